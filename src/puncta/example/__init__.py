"""A seeded small tissue to try things on: cells, molecules and their boundaries, made with NumPy alone."""

from puncta.example._tissue import Tissue, make_tissue

__all__ = ["Tissue", "make_tissue"]
