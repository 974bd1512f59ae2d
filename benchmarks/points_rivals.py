"""Compares the index with what people use today, each library in an environment of its own, in one run.

    uv run python benchmarks/points_rivals.py --rivals FOLDER            # 3 million points, some minutes
    uv run python benchmarks/points_rivals.py --rivals FOLDER --only zarr-vectors --millions 1

FOLDER keeps the environments (3 GB); a library that the package index does not have is named, with the reason.

Input: the coronal section repeated with shifts, as x, y (float32, from 0 on) and gene, in one Parquet file. All grids
have tiles of one size and one origin. A figure is CPU (user + system of all threads and children) around the call
itself, in a fresh process, after the same call on a small table: the median over the questions, and of the pairs, ours
and the rival's in turn. Behind it stands by how much ours is less, the median of the ratios of the pairs. Every answer
reads x, y and gene of all rows into arrays, and its count is held against pandas.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from _points_rivals_install import LIBRARIES, Environment, environment_of
from points import SECTION, describe_machine

_OURS = "_points_rivals_ours"
_WORKER = Path(__file__).with_name("_points_rivals_work.py")

QUESTIONS = ("view", "gene in view", "gene", "zoomed out")
"""Columns of the tables, after building and before bytes."""

# A rival that rounds coordinates moves points across the edge of a view.
_MOST_MOVED = 1 / 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A form of a rival, and the form of ours that does the same work."""

    library: str
    form: str
    ours: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One of the two comparisons."""

    title: str
    columns: tuple[str, ...]
    """Questions that all are asked."""

    lines: tuple[Line, ...]


EQUAL_WORK = Table(
    title="Equal work: level 0 alone",
    columns=QUESTIONS[:2],
    lines=(
        Line(library="spatialdata", form="rows sorted by tile", ours="tile order"),
        Line(library="celldega", form="tiles", ours="tile order"),
        Line(library="spatialdata-js-util", form="Morton order", ours="tile order"),
        Line(library="zarr-vectors", form="point cloud", ours="tile order"),
        Line(library="puncta", form="tile order, Zarr", ours="tile order"),
        Line(library="spatialdata-js-util", form="points-zarr, level 0", ours="both orders"),
        Line(library="spatiato", form="both orders", ours="both orders"),
        Line(library="puncta", form="both orders, Zarr", ours="both orders"),
    ),
)

EVERYTHING = Table(
    title="Everything each offers",
    columns=QUESTIONS,
    lines=(
        Line(library="spatialdata", form="points element", ours="everything"),
        Line(library="celldega", form="tiles", ours="everything"),
        Line(library="spatialdata-js-util", form="Morton order, its own row groups", ours="everything"),
        Line(library="spatialdata-js-util", form="points-zarr", ours="everything"),
        Line(library="spatiato", form="all levels", ours="everything"),
        Line(library="zarr-vectors", form="genes as objects, pyramid", ours="everything"),
        Line(library="puncta", form="everything, shared", ours="everything"),
        Line(library="puncta", form="everything, Zarr", ours="everything"),
        Line(library="puncta", form="everything, shared, Zarr", ours="everything"),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What one process took: seconds of CPU by column, and bytes."""

    values: dict[str, float]
    version: str
    rows: int | None
    """Rows of the picture of the whole section."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Ours and a rival's, one after the other."""

    ours: Figures
    rival: Figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Where and of what everything is measured."""

    folder: Path
    expected: dict[str, list[int]]
    environments: dict[str, Environment]
    repeats: int


def main() -> None:
    """Run both comparisons, print the tables, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rivals", type=Path, required=True, help="folder that keeps the environments")
    parser.add_argument("--python", default=sys.executable, help="interpreter of new environments")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="rivals to compare with")
    parser.add_argument("--millions", type=float, default=3, help="million points")
    parser.add_argument("--repeats", type=int, default=3, help="pairs of each comparison")
    parser.add_argument("--budget", type=int, default=200_000, help="points of a picture of the whole section")
    parser.add_argument("--source", type=Path, default=SECTION, help="table to repeat: x, y, feature_name, fov")
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--tmp", type=Path, help="folder for inputs and indexes")
    options = parser.parse_args()
    wanted = [library for library in LIBRARIES if library.name in (options.only or [one.name for one in LIBRARIES])]
    environments = {one.name: environment_of(one, options.rivals, options.python) for one in wanted}
    with tempfile.TemporaryDirectory(dir=options.tmp) as folder:
        made = _started(
            sys.executable, f"{_OURS}.py", options.source, folder, int(options.millions * 1e6), options.budget
        )
        run = Run(folder=Path(folder), expected=made["expected"], environments=environments, repeats=options.repeats)
        tables = {table.title: measure(run, table) for table in (EQUAL_WORK, EVERYTHING)}
    machine = describe_machine()
    print(f"{machine}; {options.millions:g} million points; tiles of {made['plan']['tile_size']:g} units")
    for table in (EQUAL_WORK, EVERYTHING):
        print_table(table, tables[table.title])
    print_absent(environments)
    if options.json is not None:
        found = {
            title: [{"line": asdict(line), "pairs": [asdict(pair) for pair in pairs]} for line, pairs in measured]
            for title, measured in tables.items()
        }
        options.json.write_text(json.dumps({"machine": machine, "plan": made["plan"], "tables": found}, indent=2))


def measure(run: Run, table: Table) -> list[tuple[Line, list[Pair]]]:
    """Return the pairs of every line whose library is there."""
    found: list[tuple[Line, list[Pair]]] = []
    for line in table.lines:
        environment = run.environments.get(line.library)
        if line.library != "puncta" and (environment is None or environment.problem is not None):
            continue
        pairs = [
            Pair(ours=figures(run, "puncta", line.ours), rival=figures(run, line.library, line.form))
            for _ in range(run.repeats)
        ]
        found.append((line, pairs))
    return found


def figures(run: Run, library: str, form: str) -> Figures:
    """Measure one form in a fresh process of its environment, and hold its answers against pandas."""
    python, module = sys.executable, _OURS
    if library != "puncta":
        python, module = str(run.environments[library].python), run.environments[library].library.module
    with tempfile.TemporaryDirectory(dir=run.folder) as folder:
        found = _started(
            python, _WORKER.name, module, form, run.folder / "points.parquet", folder, run.folder / "plan.json"
        )
    values = {"build": found["build"]}
    for name, asked in found["questions"].items():
        values[name] = statistics.median(asked["seconds"])
        if name in run.expected:
            _require_close(f"{library}, {form}: {name}", asked["rows"], run.expected[name], library == "puncta")
    overview = found["questions"].get("zoomed out")
    print(f"  {library}, {form}: {values}", file=sys.stderr)
    return Figures(
        values={**values, "bytes": float(found["bytes"])},
        version=found["version"],
        rows=overview["rows"][0] if overview else None,
    )


def _require_close(what: str, found: list[int], expected: list[int], is_exact: bool) -> None:
    for rows, counted in zip(found, expected, strict=True):
        if abs(rows - counted) > (0 if is_exact else max(counted * _MOST_MOVED, 3)):
            raise SystemExit(f"{what}: {rows} rows and pandas {counted}: the comparison is void")


def _started(python: str, script: str, *arguments: object) -> dict[str, Any]:
    command = [python, str(Path(__file__).with_name(script)), *map(str, arguments)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        raise SystemExit(f"{script} {arguments[0]} {arguments[1]} failed:\n{process.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(process.stdout)
    return found


def print_table(table: Table, measured: list[tuple[Line, list[Pair]]]) -> None:
    """Print one comparison as Markdown: ours once for each form of ours, and what it is compared with below it."""
    names = ("build", *table.columns, "bytes")
    print(f"\n### {table.title}\n\n| | {' | '.join(names)} |\n|---|{'---:|' * len(names)}")
    for form in dict.fromkeys(line.ours for line, _ in measured):
        lines = [(line, pairs) for line, pairs in measured if line.ours == form]
        ours = [pair.ours for _, pairs in lines for pair in pairs]
        print(f"| **puncta {ours[0].version}, {form}** | {' | '.join(_cell(name, ours, None) for name in names)} |")
        for line, pairs in lines:
            rivals = [pair.rival for pair in pairs]
            cells = " | ".join(_cell(name, rivals, pairs) for name in names)
            print(f"| {line.library} {rivals[0].version}, {line.form} | {cells} |")
    print("\nx: the rival's / ours; **bold** where the rival leads.")


def _cell(name: str, found: list[Figures], pairs: list[Pair] | None) -> str:
    if any(name not in figures.values for figures in found):
        return "-"
    value = statistics.median(figures.values[name] for figures in found)
    text = f"{value / 1e6:.1f} MB" if name == "bytes" else _seconds(value)
    if name == "zoomed out":
        text += f" ({found[0].rows:,} points)"
    if pairs is None or any(name not in pair.ours.values for pair in pairs):
        return text
    ratio = statistics.median(pair.rival.values[name] / pair.ours.values[name] for pair in pairs)
    return f"{text}, {ratio:.2g}x" if ratio >= 1 else f"{text}, **{ratio:.2g}x**"


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.1f} ms"


def print_absent(environments: dict[str, Environment]) -> None:
    """Say which rivals could not be installed, and why."""
    for name, environment in environments.items():
        if environment.problem is not None:
            print(f"\n{name}: not measured, it could not be installed: {environment.problem}")


if __name__ == "__main__":
    main()
