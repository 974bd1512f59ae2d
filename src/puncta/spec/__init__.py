"""Documents on disk: their shapes, their JSON Schemas, and every problem found in one.

Each document has a module of its own, imported by its path.
"""

from puncta.spec._problem import Problem, ProblemKind, describe

__all__ = ["Problem", "ProblemKind", "describe"]
