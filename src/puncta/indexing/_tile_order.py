"""Writes the tile order of one level: each part of the grid is gathered, sorted, encoded, and handed on.

While its rows are at hand in tile order, a part also feeds the feature-major copies of its level (level 0) and the runs
of the next level, so that no level is read twice.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from puncta.indexing._columns import SAMPLE, TILE
from puncta.indexing._levels import buckets_of_tiles, fraction_of_next_level
from puncta.indexing._order import stable_order
from puncta.indexing._partition import bucket_of
from puncta.indexing._runs import Runs
from puncta.indexing._stage import Progress
from puncta.indexing._write_parquet import FileLayout, PartWriter
from puncta.points._arrow import arrow_of, numpy_of
from puncta.points._grid import Grid
from puncta.points._sampling import is_kept


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelRows:
    """The rows of one level, cut into buckets of tiles."""

    grid: Grid
    """Grid of the level."""

    runs: Runs
    """The rows, keyed by bucket."""

    bucket_starts: NDArray[np.int64]
    """First tile of each bucket, shape (n_buckets,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextLevel:
    """Where the rows go that the next level keeps."""

    fraction: float
    """P of the next level."""

    parents: NDArray[np.uint32]
    """Tile of the next level of each tile of this one, shape (n_tiles,)."""

    rows: LevelRows
    """Its rows, to be written."""

    bucket_of_tile: NDArray[np.uint32]
    """Bucket of each tile of the next level."""


def next_level(
    level: LevelRows,
    counts: NDArray[np.int64],
    folder: Path,
    *,
    fraction: float,
    limit: int,
    tiles_per_part: int,
    bucket_rows: int,
) -> NextLevel:
    """Return an empty next level, its fraction by the RFC's formula from the counts of the level below.

    Args:
        level: The level below.
        counts: Rows of each of its tiles.
        folder: Where the runs of the next level go.
        fraction: P of the level below.
        limit: Points that the densest tile of the next level is to hold.
        tiles_per_part: Tiles of a part file.
        bucket_rows: Rows that a bucket should not exceed.

    """
    parents, grid = level.grid.parents(), level.grid.coarser()
    after = fraction_of_next_level(counts, parents, fraction=fraction, limit=limit)
    expected = np.ceil(np.bincount(parents, weights=counts) * (after / fraction)).astype(np.int64)
    starts = buckets_of_tiles(expected, tiles_per_part=tiles_per_part, target_rows=bucket_rows)
    runs = Runs(folder, len(starts), len(level.bucket_starts))
    return NextLevel(
        fraction=after,
        parents=parents,
        rows=LevelRows(grid=grid, runs=runs, bucket_starts=starts),
        bucket_of_tile=bucket_of(starts, grid.n_tiles),
    )


def write_tile_order(
    level: LevelRows,
    layout: FileLayout,
    folder: Path,
    *,
    tiles_per_part: int,
    coarser: NextLevel | None,
    feature_runs: Sequence[tuple[str, Runs]],
    workers: int,
    progress: Progress | None,
    stage: str,
) -> NDArray[np.int64]:
    """Write the parts of one level, and hand its rows on.

    Holds per worker one bucket, sorted and encoded, and its copies on the way to the features and the next level.

    Args:
        level: The rows.
        layout: Layout of the files.
        folder: Folder of the part files.
        tiles_per_part: Tiles of a part file.
        coarser: Where the rows of the next level go, if there is one.
        feature_runs: For each feature column that gets a feature-major copy, runs keyed by its code.
        workers: Threads.
        progress: Told how far it is.
        stage: What the progress is called.

    Returns:
        Rows of each tile of the next level, shape (n_tiles of the next level,); empty without one.

    """
    task = _Parts(level, layout, folder, tiles_per_part, coarser, feature_runs)
    n_parts = -(-level.grid.n_tiles // tiles_per_part)
    total = int(level.runs.counts.sum())
    counts = np.zeros(0 if coarser is None else coarser.rows.grid.n_tiles, dtype=np.int64)
    done = 0
    with ThreadPoolExecutor(workers) as pool:
        for rows, found in pool.map(task.write, range(n_parts)):
            done += rows
            if coarser is not None:
                counts += found
            if progress is not None:
                progress(stage, done, total)
    return counts


@dataclass(frozen=True, slots=True)
class _Parts:
    """The work on each part of a level."""

    level: LevelRows
    layout: FileLayout
    folder: Path
    tiles_per_part: int
    coarser: NextLevel | None
    feature_runs: Sequence[tuple[str, Runs]]

    def write(self, part: int) -> tuple[int, NDArray[np.int64]]:
        """Write one part; return its rows, and those of each tile of the next level."""
        first = part * self.tiles_per_part
        end = min(first + self.tiles_per_part, self.level.grid.n_tiles)
        starts = self.level.bucket_starts
        buckets = range(int(np.searchsorted(starts, first)), int(np.searchsorted(starts, end)))
        rows, counts = 0, np.zeros(0 if self.coarser is None else self.coarser.rows.grid.n_tiles, dtype=np.int64)
        with PartWriter(self.folder / f"part.{part}.parquet", self.layout) as writer:
            for bucket in buckets:
                last = int(starts[bucket + 1]) if bucket + 1 < buckets.stop else end
                table, offsets = self._sorted(bucket, int(starts[bucket]), last)
                writer.write(table, offsets)
                rows += table.num_rows
                self._hand_to_features(bucket, table)
                if self.coarser is not None:
                    counts += self._hand_on(bucket, table, self.coarser)
        return rows, counts

    def _sorted(self, bucket: int, first: int, end: int) -> tuple[pa.Table, NDArray[np.int64]]:
        """Return the rows of a bucket in tile order, and the first row of each of its tiles."""
        table = self.level.runs.gather(bucket, bucket + 1)
        if table is None:
            return self._no_rows(), np.zeros(end - first, dtype=np.int64)
        tiles = numpy_of(table.column(TILE)) - np.uint32(first)
        counts = np.bincount(tiles, minlength=end - first)
        return table.take(arrow_of(stable_order(tiles))), np.cumsum(counts) - counts

    def _no_rows(self) -> pa.Table:
        """Return an empty table of the columns of the runs."""
        fields = [
            pa.field(name, self.layout.code_type(name)) if name in self.layout.coded else self.layout.schema.field(name)
            for name in (plan.name for plan in self.layout.columns)
        ]
        schema = pa.schema([*fields, pa.field(TILE, pa.uint32()), pa.field(SAMPLE, pa.uint32())])
        return pa.Table.from_batches([], schema=schema)

    def _hand_to_features(self, bucket: int, table: pa.Table) -> None:
        for name, runs in self.feature_runs:
            runs.write(bucket, table, numpy_of(table.column(name)))

    def _hand_on(self, bucket: int, table: pa.Table, coarser: NextLevel) -> NDArray[np.int64]:
        """Write the rows that the next level keeps; return how many lie in each of its tiles."""
        kept = table
        if table.num_rows:
            mask = is_kept(numpy_of(table.column(SAMPLE)), coarser.fraction)
            kept = table.take(arrow_of(np.flatnonzero(mask)))
        tiles = coarser.parents[numpy_of(kept.column(TILE))]
        moved = kept.set_column(kept.column_names.index(TILE), TILE, arrow_of(tiles))
        coarser.rows.runs.write(bucket, moved, coarser.bucket_of_tile[tiles])
        return np.bincount(tiles, minlength=coarser.rows.grid.n_tiles)
