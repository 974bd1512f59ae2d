"""Compares the Parquet and the Zarr layout of one index on the same data, on a disk and over a network.

    uv run python benchmarks/points_layouts.py                    # 3 million points of a vendor's table, some minutes
    uv run python benchmarks/points_layouts.py --kind section     # four columns

Input: the coronal section repeated with shifts, as a vendor's table of seven columns (growing ids, text cell ids,
features, x, y, z, quality) or as it is. Both layouts are written in turn, in fresh processes, then an element that has
both is asked the same questions, the layouts in turn; figures are medians. CPU is user + system of all processes.

Over HTTP a server on loopback counts requests and bytes. The seconds are computed from its log: 20 ms to the first byte
of each request, 8 at a time, 50 MB/s shared, a request no earlier than the answer that it came after. "Again" asks what
was asked before, with another box of the same parts: footers, offsets and indexes of shards are there already. Bytes
needed are those of the column chunks, or inner chunks, that hold the rows.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

import puncta
from _arrays_remote import Request, Server, modelled_seconds
from _points_layouts_needed import Copies
from _points_work import make, views
from points import SECTION, Usage, describe_machine, work
from puncta.points import Points

type Form = Literal["parquet", "zarr"]
type Ask = Callable[[Points, int], pa.Table]
"""Asks the question of a number: the same number, the same question."""

FORMS: tuple[Form, Form] = ("parquet", "zarr")

_BUDGET = 200_000
_VIEWS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table: the same figure of both layouts."""

    claim: str
    unit: str
    parquet: float
    zarr: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One question of many places, and the bytes that it needs."""

    name: str
    ask: Ask
    needed: Callable[[Form, int], int] | None = None
    """Bytes that a question cannot do without; None where it is not a question of bytes."""


def main() -> None:
    """Run the comparison, print the table, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--millions", type=float, default=3, help="million points")
    parser.add_argument("--kind", choices=["vendor", "section"], default="vendor", help="form of the table")
    parser.add_argument("--repeats", type=int, default=3, help="pairs of builds")
    parser.add_argument("--source", type=Path, default=SECTION, help="table to repeat: x, y, feature_name, fov")
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--tmp", type=Path, help="folder for inputs and indexes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.tmp) as name:
        folder = Path(name)
        source, store = folder / "points.parquet", folder / "both.zarr"
        make(str(options.source), str(source), str(int(options.millions * 1e6)), options.kind)
        rows = build_rows(source, folder, repeats=options.repeats)
        work("index", str(source), str(store), "shared", "both")
        element = store / "points" / "transcripts"
        asked = questions(element)
        rows += local_rows(element, asked) + remote_rows(store, asked)
    machine = describe_machine()
    print_table(rows, f"{machine}; {options.millions:g} million points, {options.kind}")
    if options.json is not None:
        options.json.write_text(json.dumps({"machine": machine, "rows": [asdict(row) for row in rows]}, indent=2))


def build_rows(source: Path, folder: Path, *, repeats: int) -> list[Row]:
    """Build level 0 alone and everything, in each layout by turns."""
    rows: list[Row] = []
    for mode, words in (("tile", "tile order, level 0"), ("shared", "both orders, all levels")):
        found: dict[Form, list[Usage]] = {"parquet": [], "zarr": []}
        for number in range(repeats):
            for form in FORMS:
                target = folder / f"{mode}-{form}-{number}.zarr"
                found[form].append(work("index", str(source), str(target), mode, form))
        rows += [
            _row(f"build, {words}, CPU", "s", found, lambda usage: usage.cpu),
            _row(f"build, {words}, wall", "s", found, lambda usage: usage.wall),
            _row(f"size, {words}", "MB", found, lambda usage: usage.printed["bytes"] / 1e6),
        ]
    return rows


def _row[T](claim: str, unit: str, found: dict[Form, list[T]], of: Callable[[T], float]) -> Row:
    parquet, zarr = (statistics.median(map(of, found[form])) for form in FORMS)
    return Row(claim=claim, unit=unit, parquet=parquet, zarr=zarr)


def questions(element: Path) -> list[Asked]:
    """Return what is asked: views of 16 tiles over tissue, the gene of median count, the whole section."""
    points = puncta.open_points(element)
    level, key = points.levels[0], str(points.feature_key)
    grid, copies = level.grid, Copies(element=element)
    boxes = views(grid.origin, grid.tile_size, level.tile_counts.reshape(grid.shape))[:_VIEWS]
    three = ["x", "y", key]
    counts = {name: points.count(features=[name]).count for name in points.features}
    gene = sorted(counts, key=lambda name: counts[name])[len(counts) // 2]
    code = points.features.index(gene)
    start, end = _feature_offsets(element)[code : code + 2]

    def view(points: Points, at: int, columns: Sequence[str] | None = None) -> pa.Table:
        return points.query(box=boxes[at % len(boxes)], columns=columns)

    def of_view(form: Form, at: int, columns: Sequence[str]) -> int:
        return copies.of_tiles(form, np.asarray(grid.tiles_in(boxes[at % len(boxes)])), columns)

    def of_gene(form: Form, at: int, columns: Sequence[str]) -> int:
        del at  # the same gene at each number
        return copies.of_rows(form, int(start), int(end), columns)

    every = list(points.columns)
    return [
        Asked(name="16 tiles, all columns", ask=view, needed=partial(of_view, columns=every)),
        Asked(name="16 tiles, x, y, gene", ask=partial(view, columns=three), needed=partial(of_view, columns=three)),
        Asked(
            name=f"a gene ({counts[gene]:,} points), all columns",
            ask=lambda points, _: points.query(features=[gene]),
            needed=partial(of_gene, columns=every),
        ),
        Asked(
            name=f"a gene ({counts[gene]:,} points), x, y, gene",
            ask=lambda points, _: points.query(features=[gene], columns=three),
            needed=partial(of_gene, columns=three),
        ),
        Asked(
            name="a gene in 16 tiles, x, y, gene",
            ask=lambda points, at: points.query(box=boxes[at % len(boxes)], features=[gene], columns=three),
        ),
        Asked(
            name=f"whole section, budget {_BUDGET:,}, x, y, gene",
            ask=lambda points, _: points.query(budget=_BUDGET, columns=three),
        ),
    ]


def _feature_offsets(element: Path) -> Any:  # noqa: ANN401  # zarr answers with any array
    import zarr  # noqa: PLC0415  # an independent reader, for this array alone

    return zarr.open_array(element / "0" / "feature" / "feature_offsets", mode="r")[:]


def local_rows(element: Path, asked: list[Asked]) -> list[Row]:
    """Open and ask from a disk, warm, the layouts by turns; answers are compared."""
    opened: dict[Form, list[float]] = {"parquet": [], "zarr": []}
    for _ in range(_VIEWS):
        for form in FORMS:
            opened[form].append(_cpu(partial(_open, element, form)))
    rows = [_row("opening, from a disk, CPU", "ms", opened, _milliseconds)]
    both = {form: puncta.open_points(element, layout=form) for form in FORMS}
    for question in asked:
        for number in range(_VIEWS):
            _require_equal(question, *(question.ask(both[form], number) for form in FORMS))
        found: dict[Form, list[float]] = {"parquet": [], "zarr": []}
        for number in range(2 * _VIEWS):
            for form in FORMS if number % 2 else FORMS[::-1]:
                found[form].append(_cpu(partial(question.ask, both[form], number)))
        rows.append(_row(f"{question.name}, from a disk, CPU", "ms", found, _milliseconds))
    return rows


def _open(element: Path, form: Form) -> list[str]:
    return puncta.open_points(element, layout=form).features


def _milliseconds(seconds: float) -> float:
    return seconds * 1e3


def _cpu(function: Callable[[], object]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def _require_equal(question: Asked, ours: pa.Table, other: pa.Table) -> None:
    names = sorted(ours.column_names)
    first, second = (table.select(names).to_pandas().sort_values(names, ignore_index=True) for table in (ours, other))
    if not first.equals(second.astype(first.dtypes)):
        raise SystemExit(f"{question.name}: the layouts answer differently: the comparison is void")


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What one question cost over a network."""

    requests: int
    n_bytes: int
    seconds: float
    needed: int | None

    @classmethod
    def of(cls, log: list[Request], needed: int | None) -> "Traffic":
        """Sum up the log of a server."""
        n_bytes = sum(request.n_bytes for request in log)
        return cls(requests=len(log), n_bytes=n_bytes, seconds=modelled_seconds(log), needed=needed)


def remote_rows(store: Path, asked: list[Asked]) -> list[Row]:
    """Open and ask over HTTP: the first time after opening, and again."""
    with Server(store) as server:
        opening: dict[Form, list[Traffic]] = {"parquet": [], "zarr": []}
        first: dict[tuple[str, Form], list[Traffic]] = {}
        again: dict[tuple[str, Form], list[Traffic]] = {}
        for question in asked:
            for number in range(3):
                for form in FORMS:
                    points = puncta.open_points(f"{server.url}/points/transcripts", layout=form)
                    # opening is over once rows, levels and features are known
                    _ = points.n_rows, points.levels, points.features
                    opening[form].append(Traffic.of(server.take_log(), None))
                    for kind in (first, again):
                        needed = None if question.needed is None else question.needed(form, number)
                        question.ask(points, number)
                        kind.setdefault((question.name, form), []).append(Traffic.of(server.take_log(), needed))
    rows = _traffic_rows("opening", opening)
    for question in asked:
        for words, kind in (("first", first), ("again", again)):
            found = {form: kind[question.name, form] for form in FORMS}
            rows += _traffic_rows(f"{question.name}, {words}", found)
    return rows


def _traffic_rows(name: str, found: dict[Form, list[Traffic]]) -> list[Row]:
    rows = [
        _row(f"{name}, over HTTP", "requests", found, lambda traffic: traffic.requests),
        _row(f"{name}, over HTTP", "kB", found, lambda traffic: traffic.n_bytes / 1e3),
        _row(f"{name}, over HTTP", "ms", found, lambda traffic: traffic.seconds * 1e3),
    ]
    if all(traffic.needed for traffics in found.values() for traffic in traffics):
        rows.append(
            _row(
                f"{name}, over HTTP, bytes / bytes needed",
                "",
                found,
                lambda traffic: traffic.n_bytes / (traffic.needed or 1),
            )
        )
    return rows


def print_table(rows: list[Row], machine: str) -> None:
    """Print the table as Markdown."""
    print(f"{machine}\n\n| | Parquet | Zarr | Zarr / Parquet |\n|---|---:|---:|---:|")
    for row in rows:
        ratio = f"{row.zarr / row.parquet:.2f}" if row.parquet else "-"
        print(f"| {row.claim} | {row.parquet:.4g} {row.unit} | {row.zarr:.4g} {row.unit} | {ratio} |")


if __name__ == "__main__":
    main()
