"""Puts staged rows on the grid: counts them, chooses the tiles, and cuts the rows into buckets of tiles.

Every pass over the rows is shared among threads, batch by batch; what comes out does not depend on their number.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from puncta.indexing._arrow_files import read_batch
from puncta.indexing._columns import ROW, SAMPLE, TILE
from puncta.indexing._crew import Crew
from puncta.indexing._histogram import MAX_BINS, Histogram, empty_histogram
from puncta.indexing._runs import RunFiles, Runs
from puncta.indexing._stage import Progress, Staged
from puncta.indexing._write_parquet import FileLayout
from puncta.points._arrow import arrow_of, numpy_of
from puncta.points._grid import Grid
from puncta.points._sampling import sample_numbers
from puncta.spec.transformations import apply_affine

# Counting every k-th point of a large source finds the same tile size: at 10,000 points a tile, 1 in 6 is off by 2 %.
_HISTOGRAM_ROWS = 2**23

# Few rows need few bins, and most of the time of a small build would go into them.
_BINS_PER_ROW = 256
_MIN_BINS = 2**14

# A set of row ids is shown to be unique by marking each in an array of this many bytes at the most.
_MAX_MARKS = 2**27


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """How staged rows are placed: the element's axes, and the way from stored coordinates to the grid's system."""

    axes: tuple[str, ...]
    """Axes of the element and of the grid."""

    affine: NDArray[np.float64] | None
    """Affine from stored coordinates to the grid's coordinate system, shape (d, d + 1); None for the identity."""

    def placed(self, batch: pa.RecordBatch) -> list[NDArray[np.float64]]:
        """Return the coordinates of the rows in the grid's coordinate system, one array per axis."""
        stored = [numpy_of(batch.column(axis)) for axis in self.axes]
        if self.affine is not None:
            return apply_affine(self.affine, stored)
        return [values.astype(np.float64) for values in stored]


def bounds(staged: Staged, placement: Placement, *, workers: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the smallest and largest coordinate of the rows in the grid's coordinate system, each of shape (d,)."""
    if placement.affine is None and staged.lower is not None and staged.upper is not None:
        # the files' columns stand as x, y, z; the grid's axes in any order
        at = [staged.coordinates.index(axis) for axis in placement.axes]
        return staged.lower[at], staged.upper[at]

    def of_batch(path: Path) -> NDArray[np.float64]:
        columns = placement.placed(read_batch(path))
        return np.asarray([[values.min() for values in columns], [values.max() for values in columns]])

    found = np.stack(list(_shared(of_batch, _with_rows(staged), workers)))
    return found[:, 0].min(axis=0), found[:, 1].max(axis=0)


def count_outside(staged: Staged, placement: Placement, grid: Grid, *, workers: int) -> tuple[int, tuple[float, ...]]:
    """Return how many rows lie outside a grid, and the place of the first of them."""

    def of_batch(path: Path) -> tuple[int, tuple[float, ...]]:
        points = np.stack(placement.placed(read_batch(path)), axis=1)
        tiles = grid.unbounded_tiles_of(points)
        outside = ~((tiles >= 0) & (tiles < np.asarray(grid.shape))).all(axis=1)
        return int(outside.sum()), tuple(points[outside.argmax()].tolist())

    found = [(count, example) for count, example in _shared(of_batch, _with_rows(staged), workers) if count]
    return sum(count for count, _ in found), found[0][1] if found else ()


def histogram(
    staged: Staged, placement: Placement, axes: Sequence[int], *, lower: NDArray[np.float64], upper: NDArray[np.float64]
) -> Histogram:
    """Return the fine histogram of the rows over some axes; of large sources, of evenly spaced rows.

    Args:
        staged: The rows.
        placement: Where they lie.
        axes: Positions of the axes that are cut into tiles.
        lower: Smallest coordinate along each of all axes.
        upper: Largest coordinate along each of all axes.

    """
    counted = empty_histogram(
        [float(lower[axis]) for axis in axes],
        [float(upper[axis]) for axis in axes],
        max_bins=min(max(staged.n_rows * _BINS_PER_ROW, _MIN_BINS), MAX_BINS),
    )
    step = -(-staged.n_rows // _HISTOGRAM_ROWS)
    for path in staged.paths:
        batch = read_batch(path)
        if step > 1:
            batch = batch.take(arrow_of(np.arange(0, batch.num_rows, step)))
        columns = placement.placed(batch)
        counted.add([columns[axis] for axis in axes], weight=step)
    return counted


def has_unique_ids(staged: Staged, column: str) -> bool:
    """Say whether an integer column is shown to hold a different value in every row (P13).

    Ids whose range is much larger than their number cannot be shown to be unique in bounded memory, unless they grow.
    """
    lowest, highest, last, grows = np.inf, -np.inf, -np.inf, True
    for path in staged.paths:
        column_ids = read_batch(path).column(column)
        if not pa.types.is_integer(column_ids.type) or column_ids.null_count:
            return False
        ids = numpy_of(column_ids)
        if not len(ids):
            continue
        grows = grows and bool(ids[0] > last) and bool((ids[1:] > ids[:-1]).all())
        lowest, highest, last = min(lowest, int(ids.min())), max(highest, int(ids.max())), int(ids[-1])
    if grows:
        return True
    if highest - lowest >= _MAX_MARKS:
        return False
    marks = np.zeros(int(highest - lowest) + 1, dtype=bool)
    for path in staged.paths:
        marks[numpy_of(read_batch(path).column(column)) - int(lowest)] = True
    return int(marks.sum()) == staged.n_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A staged batch."""

    number: int
    """Its number, and that of its run."""

    path: Path
    """Its file."""

    start: int
    """First row of the source that it holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """What is known of a batch that was placed."""

    counts: NDArray[np.int64]
    """Rows of each tile, shape (n_tiles,)."""

    offsets: NDArray[np.int64]
    """First row of each bucket in the run, then the number of rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceRows:
    """The work on each batch: its rows get their tile and their number, and go to the bucket of the tile.

    Holds one batch and its sorted copy.
    """

    placement: Placement
    """Where rows lie."""

    grid: Grid
    """Grid of level 0, which covers them."""

    layout: FileLayout
    """Layout of the files, whose final codes the rows are given."""

    runs: RunFiles
    """Where the runs go, keyed by bucket."""

    bucket_of_tile: NDArray[np.uint32]
    """Bucket of each tile."""

    row_ids: str | None
    """Column of unique ids, or None for the position in the source."""

    seed: int
    """Seed of the sampling."""

    def __call__(self, item: Batch) -> Placed:
        """Place one batch."""
        batch = read_batch(item.path)
        tiles = self.grid.covered_tile_ids(self.placement.placed(batch))
        ids = _row_ids(batch, self.row_ids, item.start)
        columns = {plan.name: batch.column(plan.name) for plan in self.layout.columns}
        for name in self.layout.coded:
            columns[name] = arrow_of(self.layout.final_codes(name, numpy_of(columns[name])))
        rows = pa.RecordBatch.from_pydict(
            {**columns, TILE: arrow_of(tiles), SAMPLE: arrow_of(sample_numbers(ids, self.seed))}
        )
        offsets = self.runs.write(item.number, rows, self.bucket_of_tile[tiles])
        return Placed(counts=np.bincount(tiles, minlength=self.grid.n_tiles), offsets=offsets)


def partition(
    staged: Staged,
    placement: Placement,
    grid: Grid,
    layout: FileLayout,
    folder: Path,
    *,
    bucket_starts: NDArray[np.int64],
    row_ids: str | None,
    seed: int,
    crew: Crew,
    progress: Progress | None,
) -> tuple[Runs, NDArray[np.int64]]:
    """Cut the rows into buckets of neighbouring tiles, on disk.

    Args:
        staged: The rows.
        placement: Where they lie.
        grid: Grid of level 0, which covers them.
        layout: Layout of the files, whose final codes the rows are given.
        folder: Where the runs go.
        bucket_starts: First tile of each bucket.
        row_ids: Column of unique ids, or None for the position in the source.
        seed: Seed of the sampling.
        crew: Who does the work.
        progress: Told how far it is.

    Returns:
        The runs, keyed by bucket; the rows of each tile.

    """
    runs = Runs(folder, len(bucket_starts))
    task = PlaceRows(
        placement=placement,
        grid=grid,
        layout=layout,
        runs=runs.files,
        bucket_of_tile=bucket_of(bucket_starts, grid.n_tiles),
        row_ids=row_ids,
        seed=seed,
    )
    batches = [
        Batch(number=number, path=path, start=start)
        for number, (path, start) in enumerate(zip(staged.paths, staged.starts, strict=True))
    ]
    counts = np.zeros(grid.n_tiles, dtype=np.int64)
    for batch, placed in zip(batches, crew.map(task, batches), strict=True):
        counts += placed.counts
        runs.add(batch.number, placed.offsets)
        if progress is not None:
            progress("placing", int(counts.sum()), staged.n_rows)
    return runs, counts


def bucket_of(bucket_starts: NDArray[np.int64], n_tiles: int) -> NDArray[np.uint32]:
    """Return the bucket of each tile, shape (n_tiles,), uint32."""
    marks = np.zeros(n_tiles, dtype=np.uint32)
    marks[bucket_starts[1:]] = 1
    return np.cumsum(marks, dtype=np.uint32)


def _row_ids(batch: pa.RecordBatch, column: str | None, start: int) -> NDArray[np.uint64]:
    if column is not None:
        ids: NDArray[np.uint64] = numpy_of(batch.column(column)).astype(np.uint64)
        return ids
    if ROW in batch.schema.names:
        rows: NDArray[np.uint64] = numpy_of(batch.column(ROW))
        return rows
    return np.arange(start, start + batch.num_rows, dtype=np.uint64)


def _with_rows(staged: Staged) -> list[Path]:
    return [path for path in staged.paths if read_batch(path).num_rows]


def _shared[Item, Result](function: Callable[[Item], Result], items: Iterable[Item], workers: int) -> Iterable[Result]:
    """Yield the results in the order of the items, computed by so many threads."""
    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(function, items)
