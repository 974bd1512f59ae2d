"""How `arrays.py` measures: pairs of reads by CPU, and memory in a process of its own.

python _arrays_work.py ROOT GROUP READER ROWS     # prints the bytes above the output of one batch
"""

import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from _arrays_data import Data, arrays_of
from _arrays_rivals import Boxes, Form, Forms, Question, Ranges, homeobox_ranges, ours_ranges

_LEAST_PAIRS = 5
_MOST_PAIRS = 41

# A form that is so much slower than another on its first batch is not tried again.
_HOPELESS = 3.0

_TRIALS = 4

_CROP = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One thing that was measured."""

    claim: str
    """Which claims it belongs to: the beginning of their text."""

    label: str
    value: float
    low: float
    """Lower quartile of the pairs, or the value where there are none."""

    high: float
    n: int
    """Pairs, or 1."""

    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """What many alternating pairs of reads took."""

    ratios: list[float]
    """CPU of the rival / CPU of ours, of each pair."""

    ours: float
    """Median CPU seconds of our reads."""

    rival: float
    """Median CPU seconds of the rival's."""


def cell_of(claim: str, label: str, values: Sequence[float], *, detail: str = "") -> Cell:
    """Return a cell with the median and the quartiles of its values."""
    low, value, high = np.quantile(values, [0.25, 0.5, 0.75]).tolist()
    print(f"  {claim}: {label}: {value:.3g} ({low:.3g} to {high:.3g}); {detail}", file=sys.stderr)
    return Cell(claim=claim, label=label, value=value, low=low, high=high, n=len(values), detail=detail)


def cpu_of[T](function: Callable[[], T]) -> tuple[float, T]:
    """Return the CPU seconds of all threads that a call took, and what it returned."""
    start = time.process_time()
    answer = function()
    return time.process_time() - start, answer


def best_of[Q](forms: Forms[Q], questions: Iterator[Q]) -> tuple[str, Form[Q]]:
    """Return the form that takes the least CPU, tried on fresh batches; the first read of each is not counted."""
    first = next(questions)
    for form in forms.values():
        form(first)
    took: dict[str, list[float]] = {name: [] for name in forms}
    for _ in range(_TRIALS):
        question = next(questions)
        limit = _HOPELESS * min((min(found) for found in took.values() if found), default=float("inf"))
        for name, form in forms.items():
            if not took[name] or min(took[name]) <= limit:
                took[name].append(cpu_of(partial(form, question))[0])
    best = min(took, key=lambda name: statistics.median(took[name]))
    return best, forms[best]


def alternate[Q](ours: Form[Q], rival: Form[Q], questions: Iterator[Q], *, seconds: float) -> Pairs:
    """Read the same fresh batches with both, in turn, and check that the answers are equal."""
    ours(question := next(questions))
    rival(question)
    found: list[tuple[float, float]] = []
    stop = time.perf_counter() + seconds
    while len(found) < _LEAST_PAIRS or (time.perf_counter() < stop and len(found) < _MOST_PAIRS):
        question = next(questions)
        with_gc = gc.isenabled()
        gc.collect()
        gc.disable()
        # whoever is second finds the file's pages in the caches of the processor
        if len(found) % 2:
            mine, answer = cpu_of(partial(ours, question))
            theirs, other = cpu_of(partial(rival, question))
        else:
            theirs, other = cpu_of(partial(rival, question))
            mine, answer = cpu_of(partial(ours, question))
        if with_gc:
            gc.enable()
        require_equal(answer, other)
        found.append((mine, theirs))
    return Pairs(
        ratios=[theirs / mine for mine, theirs in found],
        ours=statistics.median(mine for mine, _ in found),
        rival=statistics.median(theirs for _, theirs in found),
    )


def require_equal(ours: Sequence[NDArray[Any]], rival: Sequence[NDArray[Any]]) -> None:
    """Stop where two readers differ: who is wrong cannot be compared by speed."""
    for number, (mine, theirs) in enumerate(zip(ours, rival, strict=True)):
        if mine.dtype != theirs.dtype or not np.array_equal(np.ravel(mine), np.ravel(theirs)):
            raise SystemExit(f"array {number} of {len(ours)} differs between the readers: the comparison is void")


def row_questions(indptr: NDArray[np.int64], n_rows: int, *, seed: int, n_arrays: int = 2) -> Iterator[Question]:
    """Yield batches of random rows, no row twice in one, the same ranges for each array."""
    rng = np.random.default_rng(seed)
    while True:
        rows = rng.choice(len(indptr) - 1, min(n_rows, len(indptr) - 1), replace=False)
        yield tuple(Ranges(array=k, starts=indptr[rows], ends=indptr[rows + 1]) for k in range(n_arrays))


def group_questions(indptrs: Sequence[NDArray[np.int64]], n_rows: int) -> Iterator[Question]:
    """Yield batches of rows that are random over all groups, two arrays to a group."""
    rng = np.random.default_rng(5)
    borders = np.cumsum([len(indptr) - 1 for indptr in indptrs])
    while True:
        chosen = np.sort(rng.choice(int(borders[-1]), n_rows, replace=False))
        in_group = np.split(chosen, np.searchsorted(chosen, borders[:-1]))
        first = np.concatenate([[0], borders[:-1]])
        question: list[Ranges] = []
        for group, (indptr, rows) in enumerate(zip(indptrs, in_group, strict=True)):
            starts, ends = indptr[rows - first[group]], indptr[rows - first[group] + 1]
            question += [Ranges(array=2 * group + k, starts=starts, ends=ends) for k in range(2) if len(rows)]
        yield question


def box_questions(data: Data, batches: Sequence[int]) -> Iterator[tuple[str, int, str, Iterator[Boxes]]]:
    """Yield path, number of boxes, label and questions: rows of the dense array, crops of the image."""
    for n in batches:
        yield "dense", n, "dense rows, batch", _boxes(np.array([data.sizes.dense_shape[0]]), 1, n)
    for n in batches[:-1]:
        yield "image", n, "crops, batch", _boxes(np.array([data.sizes.image_side] * 2), _CROP, n)


def _boxes(extent: NDArray[np.int64], size: int, n: int) -> Iterator[Boxes]:
    rng = np.random.default_rng(n)
    while True:
        lower = rng.integers(0, extent - size + 1, (n, len(extent)))
        yield Boxes(lower=lower, upper=lower + size)


def memory_above(root: Path, group: str, reader: str, n_rows: int) -> int:
    """Return the bytes above the output that reading one batch took, in a fresh process."""
    command = [sys.executable, __file__, str(root), group, reader, str(n_rows)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return int(json.loads(done.stdout)["above"])


def _measure_memory(root: Path, group: str, reader: str, n_rows: int) -> int:
    """Return the growth of this process's largest size by one batch, less the size of the answer."""
    indptr = np.asarray(zarr.open_array(root / group / "csr" / "indptr", mode="r")[:], np.int64)
    forms: Forms[Question] = {"ours": ours_ranges(root, arrays_of(group))} if reader == "ours" else {}
    form = (forms or homeobox_ranges(root, arrays_of(group)))[reader]
    form(next(row_questions(indptr, 8, seed=1)))
    question = next(row_questions(indptr, n_rows, seed=2))
    gc.collect()
    # "5" resets the high-water mark of the resident set
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    answer = form(question)
    return _status("VmHWM") - before - sum(array.nbytes for array in answer)


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


if __name__ == "__main__":
    print(json.dumps({"above": _measure_memory(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))}))
