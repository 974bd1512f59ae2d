"""Measures what the README claims of the points index, against pyarrow, polars and spatialdata, in one run.

    uv run python benchmarks/points.py                      # 10 and 50 million points, about half an hour
    uv run python benchmarks/points.py --millions 10 --repeats 1
    uv run python benchmarks/points.py --huge               # builds alone, of 10, 50 and 200 million: hours, 60 GB

Every figure is a ratio of two things that were measured in turn, in fresh processes, by CPU (user + system of all
processes) unless the row says wall; the median of the pairs is quoted, with the smallest and the largest.

Input: the coronal section repeated with shifts that make the copies overlap, and a vendor-like table of seven columns
made from it (growing ids, text cell ids, features, x, y, z, quality). `--huge` also takes the section with every tenth
point moved into one small square, so that one tile holds a tenth of all points.
"""

import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SECTION = Path(__file__).parents[2] / "shared" / "data" / "iss_mouse_coronal" / "spots.parquet"
WORKER = Path(__file__).with_name("_points_work.py")

# From this size on, answers are held against their bars: a rival reads more of a larger file, and the index does not.
VIEW_MILLIONS = 50

# With --huge: CPU a point against that of the smallest input, and memory against what was allowed.
_HUGE_CPU_BAR = 1.25
_HUGE_MEMORY_BAR = 1.2

# How often the memory of all processes is looked at.
_SAMPLE_SECONDS = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one command took."""

    cpu: float
    wall: float
    peak: float
    """Highest sum of RssAnon and RssShmem over all of its processes, in bytes."""
    printed: dict[str, Any]
    """What the command printed, as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table."""

    claim: str
    value: float
    low: float
    high: float
    bar: float | None
    unit: str = ""

    @property
    def holds(self) -> bool | None:
        """Whether the figure reaches its bar."""
        return None if self.bar is None else self.value <= self.bar


def main() -> None:
    """Run the benchmark, print the table, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--millions", type=int, nargs="+", help="million points of the inputs")
    parser.add_argument("--huge", action="store_true", help="how CPU and memory grow with the input, and nothing else")
    parser.add_argument("--memory", default="1GB", help="what a build of --huge may hold")
    parser.add_argument("--repeats", type=int, default=3, help="pairs of each comparison")
    parser.add_argument("--source", type=Path, default=SECTION, help="table to repeat: x, y, feature_name, fov")
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--tmp", type=Path, help="folder for inputs and indexes; about 20 GB at 50 million")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.tmp) as folder:
        if options.huge:
            rows = huge_rows(options, options.millions or [10, 50, 200], Path(folder))
        else:
            rows = [
                row for millions in options.millions or [10, 50] for row in measure(options, millions, Path(folder))
            ]
    machine = describe_machine()
    print_table(rows, machine)
    if options.json is not None:
        options.json.write_text(json.dumps({"machine": machine, "rows": [asdict(row) for row in rows]}, indent=2))


def measure(options: argparse.Namespace, millions: int, folder: Path) -> list[Row]:
    """Return the rows of the table for one size of input."""
    source, vendor = folder / f"section-{millions}.parquet", folder / f"vendor-{millions}.parquet"
    store = folder / f"section-{millions}.zarr"
    size = f"{millions} M points"
    for path, kind in ((source, "section"), (vendor, "vendor")):
        work("make", str(options.source), str(path), str(millions * 1_000_000), kind)
    rows = build_rows(options, source, store, folder, size=size)
    rows += size_rows(source, vendor, store, folder, size=size)
    rows += [
        Row(
            claim=f"{size}: {name}",
            bar=bar if millions >= VIEW_MILLIONS else None,
            value=value,
            low=low,
            high=high,
            unit=unit,
        )
        for name, value, low, high, bar, unit in work("questions", str(source), str(store)).printed["rows"]
    ]
    for path in (source, vendor):
        path.unlink()
    shutil.rmtree(store)
    return rows


def huge_rows(options: argparse.Namespace, sizes: list[int], folder: Path) -> list[Row]:
    """Build both orders and all levels of growing inputs: the CPU of a point stays, and the memory does."""
    rows: list[Row] = []
    allowed = bytes_of(options.memory)
    for kind, words in (("section", "section"), ("hot", "a tenth in one tile")):
        base = 0.0
        for millions in sizes:
            source, store = folder / f"{kind}-{millions}.parquet", folder / f"{kind}-{millions}.zarr"
            work("make", str(options.source), str(source), str(millions * 1_000_000), kind)
            usage = work("index", str(source), str(store), "all", "parquet", options.memory)
            share = work("densest", str(store)).printed["share"]
            cpu = usage.cpu / millions
            base = base or cpu
            name = f"{millions} M points, {words}"
            rows += [
                row(f"{name}: CPU a million points / at {sizes[0]} M", [cpu / base], _HUGE_CPU_BAR),
                row(f"{name}: CPU a million points", [cpu], None, unit="s"),
                row(f"{name}: wall", [usage.wall], None, unit="s"),
                row(f"{name}: peak memory / --memory {options.memory}", [usage.peak / allowed], _HUGE_MEMORY_BAR),
                row(f"{name}: share of the densest tile", [share], None),
                row(f"{name}: bytes a point, all levels and orders", [usage.printed["bytes"] / millions / 1e6], None),
            ]
            source.unlink()
            shutil.rmtree(store)
    return rows


def bytes_of(text: str) -> float:
    """Return the bytes of a size such as 1GB or 512MB, as the command line reads it."""
    factor = next((value for unit, value in (("GB", 1e9), ("MB", 1e6)) if text.endswith(unit)), 1.0)
    return float(text.rstrip("GMB")) * factor


def build_rows(options: argparse.Namespace, source: Path, store: Path, folder: Path, *, size: str) -> list[Row]:
    """Compare building an index with pyarrow reading and writing the same table."""
    baseline: list[Usage] = []
    ours: dict[str, list[Usage]] = {"tile": [], "shared": [], "all": []}
    sorted_by_polars: list[Usage] = []
    for _ in range(options.repeats):
        for mode, found in ours.items():
            baseline.append(work("copy", str(source), str(folder / "copy.parquet")))
            shutil.rmtree(store, ignore_errors=True)
            found.append(work("index", str(source), str(store), mode))
    sorted_by_polars.append(work("polars-sort", str(source), str(folder / "sorted.parquet")))
    base_cpu = statistics.median(usage.cpu for usage in baseline)
    base_wall = statistics.median(usage.wall for usage in baseline)

    def ratio(claim: str, mode: str, bar: float, of: Callable[[Usage], float], base: float) -> Row:
        return row(f"{size}: {claim}", [of(usage) / base for usage in ours[mode]], bar)

    peaks = [usage.peak / 1e9 for mode in ("shared", "all") for usage in ours[mode]]
    source_bytes = source.stat().st_size
    return [
        ratio("tile order, level 0, wall / pyarrow read + write", "tile", 1.2, lambda usage: usage.wall, base_wall),
        ratio("everything, shared, CPU / pyarrow read + write", "shared", 3.0, lambda usage: usage.cpu, base_cpu),
        ratio("everything, default, CPU / pyarrow read + write", "all", 8.0, lambda usage: usage.cpu, base_cpu),
        row(
            f"{size}: everything, default, bytes / source bytes",
            [usage.printed["bytes"] / source_bytes for usage in ours["all"]],
            None,
        ),
        row(
            f"{size}: everything, shared, bytes / source bytes",
            [usage.printed["bytes"] / source_bytes for usage in ours["shared"]],
            None,
        ),
        row(f"{size}: peak memory, both orders, all levels", peaks, 1.0, unit="GB", worst=True),
        row(f"{size}: for comparison, pyarrow's peak", [usage.peak / 1e9 for usage in baseline], None, unit="GB"),
        row(
            f"{size}: for comparison, polars sort + sink, CPU / pyarrow read + write",
            [usage.cpu / base_cpu for usage in sorted_by_polars],
            None,
        ),
        row(
            f"{size}: for comparison, polars sort + sink, peak",
            [usage.peak / 1e9 for usage in sorted_by_polars],
            None,
            unit="GB",
        ),
    ]


def size_rows(source: Path, vendor: Path, store: Path, folder: Path, *, size: str) -> list[Row]:
    """Compare the bytes of the tile order with pyarrow's of the same table, coordinates rounded alike."""
    rows = []
    for name, table, bar in (("section", source, 0.9), ("vendor-like, 7 columns", vendor, 0.85)):
        target = store if table is source else folder / "vendor.zarr"
        if table is vendor:
            work("index", str(table), str(target), "tile")
        printed = work("bytes", str(table), str(target), str(folder / "copy.parquet")).printed
        rows.append(row(f"{size}: bytes a point, {name} / pyarrow zstd 1", [printed["ours"] / printed["pyarrow"]], bar))
        rows.append(row(f"{size}: bytes a point, {name}", [printed["ours"]], None, unit="B"))
        if table is vendor:
            shutil.rmtree(target)
    return rows


def row(claim: str, values: list[float], bar: float | None, *, unit: str = "", worst: bool = False) -> Row:
    """Return a row of repeated figures: their median, or the worst."""
    value = max(values) if worst else statistics.median(values)
    return Row(claim=claim, value=value, low=min(values), high=max(values), bar=bar, unit=unit)


def work(*arguments: str) -> Usage:
    """Run one piece of work in a fresh process, and return what it took."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    process = subprocess.Popen([sys.executable, str(WORKER), *arguments], stdout=subprocess.PIPE, text=True)
    watcher = _Watcher(process.pid)
    watcher.start()
    output, _ = process.communicate()
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    watcher.stop()
    if process.returncode:
        raise SystemExit(f"{arguments[0]} failed with exit code {process.returncode}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    usage = Usage(cpu=cpu, wall=wall, peak=watcher.peak, printed=json.loads(output or "{}"))
    print(f"  {arguments[0]} {' '.join(arguments[3:])}: {cpu:.1f} s CPU, {wall:.1f} s wall", file=sys.stderr)
    return usage


class _Watcher(threading.Thread):
    """Looks at the memory of a process and its children."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.peak = 0.0
        self._pid = pid
        self._done = threading.Event()

    def run(self) -> None:
        while not self._done.wait(_SAMPLE_SECONDS):
            self.peak = max(self.peak, float(sum(map(_private_bytes, [self._pid, *_children(self._pid)]))))

    def stop(self) -> None:
        self._done.set()
        self.join()


def _private_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("RssAnon:", "RssShmem:")))


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            own = [int(child) for child in task.read_text().split()]
        except OSError:
            continue
        found += own + [grandchild for child in own for grandchild in _children(child)]
    return found


def describe_machine() -> str:
    """Return the processor, the cores, the memory and the versions that the figures are of."""
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.processor(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = work("versions").printed
    names = ", ".join(f"{name} {version}" for name, version in versions.items())
    cores = len(os.sched_getaffinity(0))
    return f"{model}, {cores} cores, {memory:.0f} GiB, shared; Python {platform.python_version()}, {names}"


def print_table(rows: list[Row], machine: str) -> None:
    """Print the table as Markdown."""
    print(f"{machine}\n")
    print("| claim | median | smallest to largest | bar | |")
    print("|---|---:|---:|---:|---|")
    for one in rows:
        bar = "" if one.bar is None else f"{one.bar:.4g}"
        verdict = {None: "", True: "holds", False: "**missed**"}[one.holds]
        print(f"| {one.claim} | {one.value:.3g} {one.unit} | {one.low:.3g} to {one.high:.3g} | {bar} | {verdict} |")


if __name__ == "__main__":
    main()
