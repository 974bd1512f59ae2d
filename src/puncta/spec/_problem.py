"""What is wrong with a document, as data: where, in words, and of which kind."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

type ProblemKind = Literal[
    "zip",
    "json",
    "schema",
    "version",
    "missing",
    "unexpected",
    "mismatch",
    "stale",
    "hash",
    "unsafe",
    "order",
    "sample",
    "coordinates",
]
"""Every kind of problem; programs branch on it, so a new one is a change of the interface."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a document.

    A checker returns all of them as a list; whether to raise is the caller's choice.
    """

    loc: str
    """Place in the document, as a JSON pointer: `/multiscales/layout/1/asset`; empty for the document as a whole."""

    message: str
    """What is wrong there, in one line, without the place."""

    kind: ProblemKind
    """What sort of thing is wrong."""


def describe(problems: Iterable[Problem]) -> str:
    """Return all problems as text, one a line, for the message of an error."""
    return "\n".join(f"{problem.loc or '(document)'}: {problem.message} [{problem.kind}]" for problem in problems)


def pointer(parent: str, *steps: str | int) -> str:
    """Return the JSON pointer of a place below another one (RFC 6901: `~` and `/` in a key are escaped)."""
    return parent + "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


__all__ = ["Problem", "ProblemKind", "describe", "pointer"]
