"""Builds one form of an index and asks it questions, in the environment of its library; prints one JSON object.

    python _points_rivals_work.py MODULE FORM SOURCE FOLDER PLAN

A module of rivals has FORMS: ways to index a table of x, y and gene, by name. What is asked stands in the plan.
"""

import contextlib
import importlib
import json
import resource
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

type Box = tuple[float, float, float, float]
"""Half-open: x0, y0, x1, y1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What every rival is given, and what it is asked."""

    tile_size: float
    """Edge of a tile, in the units of the coordinates; of a rival that has a size to choose."""

    rows_per_tile: int
    """Mean rows of a tile, of a rival whose row groups have a size to choose."""

    boxes: list[Box]
    """Views of 16 tiles; the first one warms up."""

    gene: str
    """The gene of median count."""

    budget: int
    """Points that a picture of the whole section should have at the most."""

    extent: Box
    """All points lie inside."""


type Question = Callable[[], int]
"""Reads x, y and gene of what is asked into arrays, and returns how many rows there are."""


class Form(Protocol):
    """One way of a library to index points."""

    @property
    def distribution(self) -> str:
        """Return what is installed."""
        ...

    def prepare(self, source: Path, folder: Path) -> Path:
        """Return the table in the form that its users have it in; not measured."""
        ...

    def build(self, source: Path, folder: Path, plan: Plan) -> None:
        """Write the index of what was prepared, into a folder that is empty."""
        ...

    def files(self, folder: Path) -> Path:
        """Return the folder or file whose bytes count."""
        ...

    def questions(self, folder: Path, plan: Plan) -> dict[str, list[Question]]:
        """Return the questions that this form can answer, the index opened."""
        ...


def measure(form: Form, source: Path, folder: Path, plan: Plan) -> dict[str, Any]:
    """Return CPU seconds of building and of each question, the rows found, and the bytes."""
    target = folder / "index"
    target.mkdir(parents=True)
    prepared = form.prepare(source, folder)
    start, wall = _cpu(), time.perf_counter()
    form.build(prepared, target, plan)
    build, wall = _cpu() - start, time.perf_counter() - wall
    found: dict[str, Any] = {}
    for name, questions in form.questions(target, plan).items():
        questions[0]()
        answers = [_asked(question) for question in questions]
        found[name] = {"seconds": [seconds for seconds, _ in answers], "rows": [rows for _, rows in answers]}
    return {
        "build": build,
        "wall": wall,
        "bytes": n_bytes(form.files(target)),
        "questions": found,
        "version": version(form.distribution),
    }


def rows_inside(columns: Sequence[NDArray[Any]], box: Box) -> int:
    """Cut columns, x and y first, to the rows that lie in a box, and return how many they are."""
    x, y = columns[:2]
    inside = (x >= box[0]) & (x < box[2]) & (y >= box[1]) & (y < box[3])
    return min(len(column[inside]) for column in columns)


def n_bytes(path: Path) -> int:
    """Return the bytes of a file, or of all files below a folder."""
    return sum(file.stat().st_size for file in [path, *path.rglob("*")] if file.is_file())


def _asked(question: Question) -> tuple[float, int]:
    start = _cpu()
    rows = question()
    return _cpu() - start, rows


def _cpu() -> float:
    """Return user and system seconds of this process and of those it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def main(arguments: Sequence[str]) -> None:
    """Warm up on the small source beside the large one, then measure."""
    module, name, source, folder, document = arguments
    fields = json.loads(Path(document).read_text())
    plan = Plan(**fields)
    form: Form = importlib.import_module(module).FORMS[name]
    with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        measure(form, Path(source).with_name("warm.parquet"), Path(folder) / "warm", plan)
        found = measure(form, Path(source), Path(folder) / "measured", plan)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
