"""Builds an index on a local dask cluster, and says what ten billion points would take from what a bucket took.

    uv run python benchmarks/points_dask.py                     # 3 million points, a minute
    uv run python benchmarks/points_dask.py --millions 50 --memory 2GB

Measured, on a cluster of two worker processes that built a small index before: seconds and bytes of every task (one
bucket of one stage each), CPU of the workers, wall of the stages that this process does alone, bytes that all
processes read and wrote, and what the folder of buckets held at the most.

Extrapolated, for N points and n workers, with everything in proportion to N:

    CPU hours = N * (CPU of the workers + CPU of this process) / measured points
    wall      = N * (wall of the stages done alone + CPU of the workers / n) / measured points

    buckets   = N / points of the measured build's mean bucket of level 0

Tiles hold as many points as in the measured build, workers have a core each, and the shared file system keeps up with
the bytes a second that the last column names. A build of few buckets tells little: they are not full, and what happens
once a build is taken for a cost of each point. 50 million points or more are to be quoted.
"""

import argparse
import json
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from _points_rivals_work import n_bytes
from _points_work import make
from points import SECTION, describe_machine

# Stages that only this process does, one after the other; the rest is given to the workers bucket by bucket.
_ALONE = ("reading", "choosing the grid", "writing the index", "publishing")

_WORKERS = 2
_LOOK_SECONDS = 0.2

# Enough to call every part once, so that what workers import is not taken for a cost of points.
_WARM_ROWS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One bucket of one stage."""

    seconds: float
    result_bytes: int
    """What travelled back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """What one build on a cluster took."""

    rows: int
    source_bytes: int
    index_bytes: int
    scratch_bytes: int
    """The most that the folder of buckets held."""

    moved_bytes: int
    """Read and written by all processes, from and to files."""

    worker_cpu: float
    own_cpu: float
    wall: float
    stages: Mapping[str, float]
    """Wall seconds."""

    buckets: int
    """Of level 0."""

    tasks: list[Task]

    @property
    def alone(self) -> float:
        """Wall seconds of the stages that no worker helps with."""
        return sum(self.stages.get(name, 0.0) for name in _ALONE)


def main() -> None:
    """Build, print both tables, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--millions", type=float, default=3, help="million points")
    parser.add_argument("--memory", default="1GB", help="what the build may hold; buckets follow from it")
    parser.add_argument("--points", type=float, default=1e10, help="points to extrapolate to")
    parser.add_argument("--price", type=float, default=0.05, help="price of a core for an hour")
    parser.add_argument("--source", type=Path, default=SECTION, help="table to repeat: x, y, feature_name, fov")
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--tmp", type=Path, help="folder for the input, the buckets and the index")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.tmp) as name:
        source = Path(name) / "points.parquet"
        make(str(options.source), str(source), str(int(options.millions * 1e6)), "vendor")
        make(str(options.source), str(source.with_name("warm.parquet")), str(_WARM_ROWS), "vendor")
        build = measured(source, Path(name), memory=options.memory)
    machine = describe_machine()
    print_measured(build, machine)
    print_extrapolated(build, options.points, options.price)
    if options.json is not None:
        options.json.write_text(json.dumps({"machine": machine, "build": asdict(build)}, indent=2))


def measured(source: Path, folder: Path, *, memory: str) -> Build:
    """Build on a cluster of this machine, while looking at what it does."""
    from distributed import Client, LocalCluster, get_task_stream  # noqa: PLC0415  # its workers import this file, too

    from puncta.indexing import index_points  # noqa: PLC0415  # as above

    scratch = folder / "scratch"
    scratch.mkdir()
    done: Counter[str] = Counter()
    cluster = LocalCluster(n_workers=_WORKERS, threads_per_worker=1, processes=True, dashboard_address=None)
    with cluster, Client(cluster) as client, _FolderWatcher(scratch) as watcher:
        shared: dict[str, Any] = {"tmp": scratch, "memory": memory, "feature_levels": "shared", "dask": client}
        index_points(source.with_name("warm.parquet"), folder / "warm.zarr", **shared)
        before, start = [_used(), *client.run(_used).values()], time.perf_counter()
        with get_task_stream(client) as stream:
            report = index_points(
                source, folder / "store.zarr", progress=lambda name, *_: done.update([name]), **shared
            )
        wall = time.perf_counter() - start
        after = [_used(), *client.run(_used).values()]
    spent = [last - first for first, last in zip(before, after, strict=True)]
    return Build(
        rows=report.n_rows,
        source_bytes=source.stat().st_size,
        index_bytes=n_bytes(folder / "store.zarr"),
        scratch_bytes=watcher.most,
        moved_bytes=sum(used.moved for used in spent),
        worker_cpu=sum(used.cpu for used in spent[1:]),
        own_cpu=spent[0].cpu,
        wall=wall,
        stages=report.seconds,
        buckets=done["writing level 0"],
        tasks=[_task_of(entry) for entry in stream.data if entry["key"].startswith("_run-")],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Used:
    """What a process has used so far."""

    cpu: float
    moved: int

    def __sub__(self, other: "_Used") -> "_Used":
        return _Used(cpu=self.cpu - other.cpu, moved=self.moved - other.moved)


def _used() -> _Used:
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return _Used(cpu=time.process_time(), moved=int(fields["rchar"]) + int(fields["wchar"]))


def _task_of(entry: Mapping[str, Any]) -> Task:
    spans = [span["stop"] - span["start"] for span in entry["startstops"] if span["action"] == "compute"]
    return Task(seconds=sum(spans), result_bytes=int(entry["nbytes"]))


@dataclass(slots=True)
class _FolderWatcher:
    """Looks at how much a folder holds."""

    folder: Path
    most: int = 0
    _done: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()

    def _look(self) -> None:
        while not self._done.wait(_LOOK_SECONDS):
            try:
                self.most = max(self.most, n_bytes(self.folder))
            except FileNotFoundError:
                # buckets are removed when they are done with, also while they are looked at
                continue


def print_measured(build: Build, machine: str) -> None:
    """Print what was measured as Markdown."""
    million = build.rows / 1e6
    seconds = [task.seconds for task in build.tasks]
    print(f"{machine}; {million:g} million points, {_WORKERS} workers\n\n| measured | |\n|---|---:|")
    for words, value in (
        ("buckets of level 0", f"{build.buckets}"),
        ("points a bucket, mean", f"{build.rows / build.buckets:,.0f}"),
        ("tasks, one bucket of one stage each", f"{len(seconds)}"),
        ("seconds a task, median", f"{statistics.median(seconds):.2f}"),
        ("seconds a task, most", f"{max(seconds):.2f}"),
        ("bytes that travel a task, median", f"{statistics.median(task.result_bytes for task in build.tasks):,.0f}"),
        ("CPU of the workers, s a million points", f"{build.worker_cpu / million:.2f}"),
        ("CPU of the process that asks, s a million points", f"{build.own_cpu / million:.2f}"),
        ("wall of the stages done alone, s a million points", f"{build.alone / million:.2f}"),
        ("wall, s a million points", f"{build.wall / million:.2f}"),
        ("bytes a point: input", f"{build.source_bytes / build.rows:.1f}"),
        ("bytes a point: folder of buckets, at the most", f"{build.scratch_bytes / build.rows:.1f}"),
        ("bytes a point: index", f"{build.index_bytes / build.rows:.1f}"),
        ("bytes a point: read and written", f"{build.moved_bytes / build.rows:.1f}"),
    ):
        print(f"| {words} | {value} |")
    print(f"\nwall of the stages, s: {', '.join(f'{name} {value:.1f}' for name, value in build.stages.items())}")


def print_extrapolated(build: Build, points: float, price: float) -> None:
    """Print what so many points would take as Markdown, for several sizes of a cluster."""
    scale = points / build.rows
    hours = (build.worker_cpu + build.own_cpu) * scale / 3600
    print(f"\n{points:.3g} points, extrapolated by {scale:,.0f}:\n\n| | |\n|---|---:|")
    for words, value in (
        ("input", f"{build.source_bytes * scale / 1e12:.2f} TB"),
        ("folder of buckets, at the most", f"{build.scratch_bytes * scale / 1e12:.2f} TB"),
        ("index", f"{build.index_bytes * scale / 1e12:.2f} TB"),
        ("buckets of level 0", f"{build.buckets * scale:,.0f}"),
        ("tasks", f"{len(build.tasks) * scale:,.0f}"),
        ("travels through the scheduler", f"{sum(t.result_bytes for t in build.tasks) * scale / 1e9:.2f} GB"),
        ("CPU", f"{hours:,.1f} hours"),
        (f"CPU, at {price:g} an hour", f"{hours * price:,.2f}"),
    ):
        print(f"| {words} | {value} |")
    print("\n| workers | wall, hours | read and written, GB/s |\n|---:|---:|---:|")
    for workers in (1, 4, 16, 64, 256):
        wall = (build.alone + build.worker_cpu / workers) * scale
        print(f"| {workers} | {wall / 3600:,.1f} | {build.moved_bytes * scale / wall / 1e9:.2f} |")
    print("\nwall = points * (wall of the stages done alone + CPU of the workers / workers) / measured points")


if __name__ == "__main__":
    main()
