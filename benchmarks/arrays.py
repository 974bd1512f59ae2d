"""Measures what the docs claim of batched reads, against homeobox, tensorstore and zarr, in one run of some minutes.

    uv run --with homeobox==0.2.9 --with tensorstore==0.1.86 benchmarks/arrays.py --data FOLDER
    uv run benchmarks/arrays.py --quick                 # small arrays: does it run; the figures mean nothing

A rival that is not installed is left out, and the table says so. The arrays take 4 GB in FOLDER, are made in about a
minute, and are found there by the next run; without a folder they are made for one run.

A figure of speed is the median of many pairs of reads, ours and the rival's in turn, of the same fresh random batch,
by CPU of all threads (rows per CPU-second of ours / the rival's), with files in the page cache, arrays open and their
shard indexes read before. Each rival reads in each of its forms first, and the one that takes the least CPU is
compared. All answers are compared. A claim of several cells is held by their geometric mean, and where it says "no
cell below" by the least; the floor, memory and network by the worst.
"""

import argparse
import json
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import numpy as np

import puncta
from _arrays_data import FULL, QUICK, Data, arrays_of, make
from _arrays_remote import AT_A_TIME, BANDWIDTH, LATENCY, Request, Server, modelled_seconds
from _arrays_rivals import (
    GROUP_BY_GROUP,
    N_CORES,
    Floor,
    Form,
    Forms,
    Question,
    Ranges,
    bytes_needed,
    decode_here,
    homeobox_boxes,
    homeobox_ranges,
    ours_boxes,
    ours_ranges,
    tensorstore_boxes,
    zarr_boxes,
    zarr_ranges,
)
from _arrays_work import (
    Cell,
    alternate,
    best_of,
    box_questions,
    cell_of,
    cpu_of,
    group_questions,
    memory_above,
    require_equal,
    row_questions,
)

_MEGABYTE = 2**20
_KILOBYTE = 1024
_LEAST_PAIRS = 5

# Stands for the version of a library that is not there.
_ABSENT = "not installed"

# Chunks of at least so many kilobytes have a bar, the larger ones a lower one.
_FLOOR_KILOBYTES = (64, 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One line of the table of bars."""

    text: str
    cells: str
    """The claim of the cells that hold it."""

    bar: float
    by: Literal["mean", "least", "most"]
    """Which figure of the cells is held against the bar: their `mean` (geometric), the `least` or the `most`."""

    @property
    def is_lower_bound(self) -> bool:
        """Whether a higher figure is the better one."""
        return self.by != "most"

    def value(self, cells: Sequence[Cell]) -> float:
        """Return the figure."""
        values = [cell.value for cell in cells]
        if self.by == "mean":
            return statistics.geometric_mean(values)
        return min(values) if self.by == "least" else max(values)

    def holds(self, value: float) -> bool:
        """Whether the figure reaches the bar."""
        return value >= self.bar if self.is_lower_bound else value <= self.bar


CLAIMS = [
    Claim(text="random rows, zstd, against homeobox: geometric mean", cells="rows", bar=1.6, by="mean"),
    Claim(text="random rows, zstd, against homeobox: no cell below", cells="rows", bar=1.2, by="least"),
    Claim(text="the two real tables, alike: geometric mean", cells="real", bar=1.6, by="mean"),
    Claim(text="the two real tables, alike: no cell below", cells="real", bar=1.2, by="least"),
    Claim(
        text="400 groups x 2 arrays, one plan, against homeobox's reads in its loop", cells="groups", bar=5, by="mean"
    ),
    Claim(text="the same, against all of its reads awaited at once", cells="groups gathered", bar=1, by="mean"),
    Claim(text="uncompressed inner chunks of 4,096, against homeobox", cells="raw 4096", bar=15, by="mean"),
    Claim(text="uncompressed inner chunks of 40,960, against homeobox", cells="raw 40960", bar=15, by="mean"),
    Claim(text="random rows of a dense array, against homeobox", cells="dense homeobox", bar=1.3, by="mean"),
    Claim(text="random rows of a dense array, against tensorstore", cells="dense tensorstore", bar=1.0, by="mean"),
    Claim(text="64-pixel crops of the image, against homeobox", cells="crops homeobox", bar=1.3, by="mean"),
    Claim(text="64-pixel crops of the image, against tensorstore", cells="crops tensorstore", bar=1.0, by="mean"),
    Claim(text="against zarr, slices", cells="zarr slices", bar=4, by="mean"),
    Claim(text="against the best of zarr: geometric mean", cells="zarr best", bar=2, by="mean"),
    Claim(text="against the best of zarr: no cell below", cells="zarr best", bar=1, by="least"),
    Claim(text="CPU / the decoder's alone, chunks of 64 kB and more", cells="floor 64", bar=1.2, by="most"),
    Claim(text="CPU / the decoder's alone, chunks of 16 to 64 kB", cells="floor 16", bar=1.5, by="most"),
    Claim(text="memory above the output, largest batch, MB", cells="memory ours", bar=64, by="most"),
    Claim(text="network: seconds / homeobox's", cells="network seconds", bar=0.5, by="most"),
    Claim(text="network: bytes fetched / bytes of the chunks needed", cells="network bytes", bar=2, by="most"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What is measured, and for how long."""

    data: Data
    seconds: float
    """Seconds of pairs for one cell, at least five pairs."""

    def compare[Q](
        self, claim: str, label: str, ours: Form[Q], forms: Forms[Q], questions: Iterator[Q]
    ) -> Iterator[Cell]:
        """Yield the cell of ours against the best form of a rival; nothing where the rival has none."""
        if forms:
            name, rival = best_of(forms, questions) if len(forms) > 1 else next(iter(forms.items()))
            found = alternate(ours, rival, questions, seconds=self.seconds)
            detail = f"{name}; {found.ours * 1e3:.1f} ms, rival {found.rival * 1e3:.1f} ms"
            yield cell_of(claim, label, found.ratios, detail=detail)


def main() -> None:
    """Run the benchmark, print the tables, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, help="folder that keeps the arrays, 4 GB")
    parser.add_argument("--quick", action="store_true", help="small arrays and few pairs, to see that it runs")
    parser.add_argument("--only", nargs="+", metavar="NAME", help=f"parts to measure: {', '.join(PARTS)}")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as spare:
        sizes, folder = (QUICK if options.quick else FULL), options.data or Path(spare)
        data = make(folder / ("quick" if options.quick else "full"), sizes, real=not options.quick)
        start = time.perf_counter()
        run = Run(data=data, seconds=0.0 if options.quick else 2.0)
        cells = [cell for name, part in PARTS.items() if name in (options.only or PARTS) for cell in part(run)]
    machine = describe_machine()
    print_tables(cells, machine, data)
    print(f"\nmeasured in {time.perf_counter() - start:.0f} s")
    if options.quick:
        print("a smoke run: none of these figures means anything")
    if options.json is not None:
        options.json.write_text(json.dumps({"machine": machine, "cells": [asdict(cell) for cell in cells]}, indent=2))


def measure_rows(run: Run) -> Iterator[Cell]:
    """Read random rows of the synthetic table and of the real ones, against homeobox."""
    sizes, data = run.data.sizes, run.data
    for name in ("zstd", *data.real):
        for chunk in (sizes.chunks[0], sizes.chunks[-1]):
            group = f"{name}-{chunk}"
            ours, forms = ours_ranges(data.root, arrays_of(group)), homeobox_ranges(data.root, arrays_of(group))
            for n_rows in sizes.batches:
                questions = row_questions(data.indptr(group), n_rows, seed=n_rows)
                label = f"{name}, chunks of {chunk:,}, batch {n_rows:,}"
                yield from run.compare("rows" if name == "zstd" else "real", label, ours, forms, questions)


def measure_raw(run: Run) -> Iterator[Cell]:
    """Read random rows of uncompressed chunks, against homeobox."""
    root, sizes = run.data.root, run.data.sizes
    for chunk in (sizes.chunks[0], sizes.chunks[-1]):
        paths = arrays_of(f"raw-{chunk}")
        ours, forms = ours_ranges(root, paths), homeobox_ranges(root, paths)
        for n_rows in sizes.batches:
            questions = row_questions(run.data.indptr(f"raw-{chunk}"), n_rows, seed=n_rows)
            yield from run.compare(f"raw {chunk}", f"batch {n_rows:,}", ours, forms, questions)


def measure_groups(run: Run) -> Iterator[Cell]:
    """Read one batch over all groups as one plan, against homeobox's reads in its own loop, and in its best form."""
    root, sizes = run.data.root, run.data.sizes
    groups = [f"groups/{number:03d}" for number in range(sizes.n_groups)]
    paths = [path for group in groups for path in arrays_of(group)]
    questions = group_questions([run.data.indptr(group) for group in groups], sizes.group_batch)
    label = f"{sizes.n_groups} groups x 2 arrays, batch {sizes.group_batch:,}"
    everything = tuple(Ranges(array=k, starts=np.array([0]), ends=np.array([1])) for k in range(len(paths)))
    ours, forms = ours_ranges(root, paths), homeobox_ranges(root, paths)
    for form in (ours, *forms.values()):
        form(everything)  # the index of every group is read, and not only of those in the first batch
    its_loop = {name: form for name, form in forms.items() if name == GROUP_BY_GROUP}
    yield from run.compare("groups", label, ours, its_loop, questions)
    yield from run.compare("groups gathered", label, ours, forms, questions)


def measure_boxes(run: Run) -> Iterator[Cell]:
    """Read random rows of the dense array and crops of the image, against homeobox and tensorstore."""
    for path, n_items, label, questions in box_questions(run.data, run.data.sizes.batches):
        ours = ours_boxes(run.data.root, path)
        for rival, forms in (("homeobox", homeobox_boxes), ("tensorstore", tensorstore_boxes)):
            name = "dense" if path == "dense" else "crops"
            claim = f"{name} {rival}"
            yield from run.compare(claim, f"{label} {n_items:,}", ours, forms(run.data.root, path), questions)


def measure_zarr(run: Run) -> Iterator[Cell]:
    """Read rows, dense rows and crops, against zarr: by slices, and by the best of its other ways."""
    root, sizes = run.data.root, run.data.sizes
    batches = (sizes.batches[0], sizes.batches[len(sizes.batches) // 2])
    for chunk in (sizes.chunks[0], sizes.chunks[-1]):
        paths = arrays_of(f"zstd-{chunk}")
        ours, rivals = ours_ranges(root, paths), zarr_ranges(root, paths)
        for n_rows in batches:
            questions = row_questions(run.data.indptr(f"zstd-{chunk}"), n_rows, seed=n_rows)
            for claim, forms in zip(("zarr slices", "zarr best"), rivals, strict=True):
                yield from run.compare(claim, f"rows, chunks of {chunk:,}, batch {n_rows:,}", ours, forms, questions)
    for path, n_items, label, boxes in box_questions(run.data, (*batches, 0)):
        if n_items:
            for claim, box_forms in zip(("zarr slices", "zarr best"), zarr_boxes(root, path), strict=True):
                yield from run.compare(claim, f"{label} {n_items:,}", ours_boxes(root, path), box_forms, boxes)


def measure_floor(run: Run) -> Iterator[Cell]:
    """Read rows of one array, against decompressing the same chunks; and what is left to Python of a chunk's time.

    homeobox is measured alike: its CPU over the decoder's is the most that any reader with this decoder can win by.
    """
    data = run.data
    n_rows = data.sizes.batches[len(data.sizes.batches) // 2]
    for chunk in data.sizes.chunks:
        for path in arrays_of(f"zstd-{chunk}"):
            questions = row_questions(data.indptr(f"zstd-{chunk}"), n_rows, seed=n_rows, n_arrays=1)
            readers = [ours_ranges(data.root, [path])]
            readers += [form for name, form in homeobox_ranges(data.root, [path]).items() if name == "one by one"]
            with closing(Floor(data.root / path)) as floor:
                yield from _against_floor(run, readers, floor, questions, label=f"{path}, batch {n_rows:,}")


def _against_floor(
    run: Run, readers: Sequence[Form[Question]], floor: Floor, questions: Iterator[Question], *, label: str
) -> Iterator[Cell]:
    took: list[tuple[float, ...]] = []
    for reader in readers:
        reader(next(questions))
    stop = time.perf_counter() + run.seconds
    while len(took) < _LEAST_PAIRS or time.perf_counter() < stop:
        question = next(questions)
        chunks = floor.chunks_of(question[0])
        frames = floor.frames(chunks)
        calls: list[Callable[[], object]] = [partial(floor.decode, frames), partial(decode_here, frames)]
        calls += [partial(floor.read, chunks), *(partial(reader, question) for reader in readers)]
        took.append((len(chunks), *(cpu_of(call)[0] for call in calls)))
    n, threads, alone, read, *found = np.array(took).T
    kilobytes = floor.chunk_bytes / _KILOBYTE
    claim = next((f"floor {least}" for least in _FLOOR_KILOBYTES if kilobytes >= least), "floor")
    for name, mine in zip((claim, "floor homeobox"), found, strict=False):
        yield cell_of(name, f"{label}, {kilobytes:.0f} kB: CPU / the decoder's", (mine / threads).tolist())
    parts = [float(np.median(part / n) * 1e6) for part in (found[0], alone, read)]
    left = max(parts[0] - parts[1] - parts[2], 1e-3)
    words = f"{parts[0]:.1f} us a chunk: decoder {parts[1]:.1f}, reads {parts[2]:.1f}, rest {left:.1f}"
    yield cell_of("cores", f"{label}: cores at which it stops scaling", [parts[0] / left], detail=words)


def measure_memory(run: Run) -> Iterator[Cell]:
    """Read the largest batch in fresh processes: bytes above the output."""
    sizes, root = run.data.sizes, run.data.root
    readers = ["ours", *homeobox_ranges(root, arrays_of(f"zstd-{sizes.chunks[0]}"))]
    for chunk in (sizes.chunks[0], sizes.chunks[-1]):
        for reader in readers:
            above = memory_above(root, f"zstd-{chunk}", reader, sizes.batches[-1]) / _MEGABYTE
            claim = "memory ours" if reader == "ours" else "memory homeobox"
            yield cell_of(claim, f"chunks of {chunk:,}, batch {sizes.batches[-1]:,}, {reader}, MB", [above])


def measure_network(run: Run) -> Iterator[Cell]:
    """Read rows from a server on loopback that keeps a log, ours and homeobox's."""
    root, group = run.data.root, f"zstd-{run.data.sizes.chunks[0]}"
    with Server(root) as server:
        for n_rows in run.data.sizes.batches[:3]:
            questions = row_questions(run.data.indptr(group), n_rows, seed=n_rows)
            batches = [next(questions) for _ in range(2)]
            needed = [bytes_needed(root, arrays_of(group), batch) for batch in batches]
            ours, mine = _logged(server, ours_ranges(server.url, arrays_of(group)), batches)
            forms = homeobox_ranges(server.url, arrays_of(group))
            rivals = _logged(server, forms["gathered"], batches) if forms else None
            if rivals is not None:
                for answer, other in zip(ours, rivals[0], strict=True):
                    require_equal(answer, other)
            for number, when in enumerate(("first read", "later read")):
                theirs = None if rivals is None else rivals[1][number]
                label = f"batch {n_rows:,}, {when}"
                yield from _network_cells(label, mine[number], theirs, needed[number], held=bool(number))


def _logged(
    server: Server, form: Form[Question], batches: Sequence[Question]
) -> tuple[list[Sequence[np.ndarray]], list[list[Request]]]:
    """Read batches, and return the answers and the requests of each; opening belongs to the first."""
    answers, logs = [], []
    for batch in batches:
        answers.append(form(batch))
        logs.append(server.take_log())
    return answers, logs


def _network_cells(
    label: str, mine: list[Request], theirs: list[Request] | None, needed: int, *, held: bool
) -> Iterator[Cell]:
    """Yield the cells of one batch; the first read, with its metadata and indexes, is not held against the bars."""
    claims = ("network seconds", "network bytes") if held else ("network first", "network first")
    seconds, fetched = modelled_seconds(mine), sum(request.n_bytes for request in mine)
    words = f"{len(mine)} requests, {seconds:.3f} s"
    if theirs is not None:
        rival_seconds, rival_fetched = modelled_seconds(theirs), sum(request.n_bytes for request in theirs)
        detail = f"{words}; homeobox {len(theirs)} requests, {rival_seconds:.3f} s"
        yield cell_of(claims[0], f"{label}: seconds / homeobox's", [seconds / rival_seconds], detail=detail)
        yield cell_of("network homeobox", f"{label}: homeobox's bytes / needed", [rival_fetched / needed])
    yield cell_of(claims[1], f"{label}: bytes / needed", [fetched / needed], detail=words)


PARTS = {
    "rows": measure_rows,
    "groups": measure_groups,
    "raw": measure_raw,
    "boxes": measure_boxes,
    "zarr": measure_zarr,
    "floor": measure_floor,
    "memory": measure_memory,
    "network": measure_network,
}


def describe_machine() -> str:
    """Return the processor, the cores and the versions that the figures are of."""
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.processor(),
    )
    names = ("homeobox", "tensorstore", "zarr", "zstandard", "numpy", "obstore")
    versions = ", ".join(f"{name} {_version(name)}" for name in names)
    return (
        f"{model}, {N_CORES} cores, shared; Python {platform.python_version()}, puncta {puncta.__version__}, {versions}"
    )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return _ABSENT


def print_tables(cells: Sequence[Cell], machine: str, data: Data) -> None:
    """Print every cell, and then the claims with their bars, as Markdown."""
    print(f"{machine}\n")
    print("| what | median | quartiles | pairs | |\n|---|---:|---:|---:|---|")
    for cell in cells:
        spread = f"{cell.low:.3g} to {cell.high:.3g}" if cell.n > 1 else ""
        print(f"| {cell.claim}: {cell.label} | {cell.value:.3g} | {spread} | {cell.n} | {cell.detail} |")
    print("\n| claim | measured | cells | bar | |\n|---|---:|---:|---:|---|")
    for claim in CLAIMS:
        print(claim_line(claim, [cell for cell in cells if cell.claim == claim.cells], data))
    print(f"\nnetwork: {LATENCY * 1e3:.0f} ms each, {AT_A_TIME} at a time, {BANDWIDTH / 1e6:.0f} MB/s")


def claim_line(claim: Claim, cells: Sequence[Cell], data: Data) -> str:
    """Return one line of the table of bars."""
    bar = f"{'at least' if claim.is_lower_bound else 'at most'} {claim.bar:g}"
    if not cells:
        return f"| {claim.text} | | | {bar} | not measured{_why_not(claim, data)} |"
    values = [cell.value for cell in cells]
    value = claim.value(cells)
    verdict = "holds" if claim.holds(value) else "**missed**"
    return f"| {claim.text} | {value:.3g} | {min(values):.3g} to {max(values):.3g} | {bar} | {verdict} |"


def _why_not(claim: Claim, data: Data) -> str:
    if claim.cells == "real" and data.why_not_real:
        return f": {data.why_not_real}"
    rivals = (name for name in ("homeobox", "tensorstore") if name in claim.text)
    return next((f": {name} is not installed" for name in rivals if _version(name) == _ABSENT), "")


if __name__ == "__main__":
    main()
