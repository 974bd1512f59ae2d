"""Writes the tile order of one level: each part of the grid is gathered, sorted, encoded, and handed on.

While its rows are at hand in tile order, a part also feeds the feature-major copies of its level (level 0) and the runs
of the next level, so that no level is read twice. Parts know nothing of each other.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from puncta.indexing._columns import SAMPLE, TILE
from puncta.indexing._crew import Crew
from puncta.indexing._levels import buckets_of_tiles, fraction_of_next_level
from puncta.indexing._order import stable_order
from puncta.indexing._partition import bucket_of
from puncta.indexing._runs import RunFiles, Runs, Spans
from puncta.indexing._stage import Progress
from puncta.indexing._write_parquet import FileLayout, PartWriter
from puncta.indexing._write_zarr import ShardWriter
from puncta.indexing._zarr_columns import ArrayLayout
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
class Onward:
    """Where a part hands the rows that the next level keeps."""

    fraction: float
    """P of the next level."""

    parents: NDArray[np.uint32]
    """Tile of the next level of each tile of this one, shape (n_tiles,)."""

    bucket_of_tile: NDArray[np.uint32]
    """Bucket of each tile of the next level."""

    files: RunFiles
    """Its rows, keyed by bucket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextLevel:
    """The next level, to be filled."""

    onward: Onward
    """How it is filled."""

    rows: LevelRows
    """Its rows, to be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TileHome:
    """Where the tile order of a level is written: one layout, or both."""

    parquet: Path | None
    """Folder of the part files."""

    zarr: Path | None
    """Group of the columns."""

    arrays: ArrayLayout | None
    """The columns as arrays, where there is such a group."""

    chunk_rows: int
    """Rows of the largest tile, at least 1."""


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
    runs = Runs(folder, len(starts))
    return NextLevel(
        onward=Onward(
            fraction=after, parents=parents, bucket_of_tile=bucket_of(starts, grid.n_tiles), files=runs.files
        ),
        rows=LevelRows(grid=grid, runs=runs, bucket_starts=starts),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """The rows of some neighbouring tiles, which are sorted at once."""

    first: int
    """First tile."""

    end: int
    """Tile after the last."""

    spans: Spans
    """Its rows in the runs."""

    run: int
    """Number of the first run that it hands on."""

    windows: int
    """Runs that it hands on: one; several where a single tile is too much for one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of the grid."""

    number: int
    """Number of the part file, and of the shard."""

    buckets: tuple[Bucket, ...]
    """Its buckets, in the order of their tiles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartDone:
    """What is known of a part that was written."""

    rows: int
    """Its rows."""

    tiles: NDArray[np.uint32]
    """Tiles of the next level that got rows, ascending."""

    counts: NDArray[np.int64]
    """How many rows each got."""

    onward: Mapping[int, NDArray[np.int64]]
    """First row of each bucket of the next level, by number of the run."""

    features: Mapping[str, Mapping[int, NDArray[np.int64]]]
    """First row of each feature, by feature column and number of the run."""

    nullable: tuple[str, ...]
    """Arrays in which some values are null."""


def parts_of(level: LevelRows, *, tiles_per_part: int, window_rows: int) -> list[Part]:
    """Return the parts of a level, and what rows they have.

    Args:
        level: The rows.
        tiles_per_part: Tiles of a part file.
        window_rows: Rows that are handed on at once.

    """
    n_tiles, starts = level.grid.n_tiles, level.bucket_starts
    ends = np.append(starts[1:], n_tiles)
    rows = level.runs.counts
    windows = np.where((ends - starts == 1) & (rows > window_rows), -(-rows // window_rows), 1)
    first_runs = np.cumsum(windows) - windows
    buckets = [
        Bucket(
            first=int(starts[number]),
            end=int(ends[number]),
            spans=level.runs.spans(number, number + 1),
            run=int(first_runs[number]),
            windows=int(windows[number]),
        )
        for number in range(len(starts))
    ]
    borders = np.searchsorted(starts, np.arange(0, n_tiles + tiles_per_part, tiles_per_part)).tolist()
    return [
        Part(number=number, buckets=tuple(buckets[borders[number] : borders[number + 1]]))
        for number in range(-(-n_tiles // tiles_per_part))
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteParts:
    """The work on each part of a level.

    Holds one bucket, sorted and encoded, and its copies on the way to the features and the next level. Of a tile that
    is a bucket by itself and larger than the others the codes are held, and its rows are handed on piece by piece.
    """

    runs: RunFiles
    """The rows, keyed by bucket."""

    layout: FileLayout
    """Layout of the files."""

    home: TileHome
    """Where they go."""

    tiles_per_part: int
    """Tiles of a part file."""

    onward: Onward | None
    """Where the rows of the next level go, if there is one."""

    features: tuple[tuple[str, RunFiles], ...]
    """For each feature column that gets a feature-major copy, runs keyed by its code."""

    def __call__(self, part: Part) -> PartDone:
        """Write one part."""
        handed = _Handed(features={name: {} for name, _ in self.features})
        with ExitStack() as stack:
            writers = list(self._writers(part.number))
            for writer in writers:
                stack.enter_context(writer)
            for bucket in part.buckets:
                table, offsets = self._sorted(bucket)
                for writer in writers:
                    writer.write(table, offsets)
                for number, window in _windows(bucket, table):
                    self._hand_on(number, window, handed)
        nullable = [name for writer in writers if isinstance(writer, ShardWriter) for name in sorted(writer.nullable)]
        tiles, counts = handed.by_tile()
        return PartDone(
            rows=handed.rows,
            tiles=tiles,
            counts=counts,
            onward=handed.onward,
            features=handed.features,
            nullable=tuple(nullable),
        )

    def _writers(self, number: int) -> Iterator[PartWriter | ShardWriter]:
        if self.home.parquet is not None:
            yield PartWriter(self.home.parquet / f"part.{number}.parquet", self.layout)
        if self.home.zarr is not None and self.home.arrays is not None:
            yield ShardWriter(
                self.home.zarr,
                self.home.arrays,
                number,
                chunk_rows=self.home.chunk_rows,
                chunks_per_shard=self.tiles_per_part,
            )

    def _sorted(self, bucket: Bucket) -> tuple[pa.Table, NDArray[np.int64]]:
        """Return the rows of a bucket in tile order, and the first row of each of its tiles."""
        n_tiles = bucket.end - bucket.first
        table = self.runs.gather(bucket.spans)
        if table is None:
            return self._no_rows(), np.zeros(n_tiles, dtype=np.int64)
        if bucket.windows > 1:
            # one tile, in the order of the source as it should be: nothing is sorted, so nothing is copied
            return table, np.zeros(1, dtype=np.int64)
        tiles = numpy_of(table.column(TILE)) - np.uint32(bucket.first)
        counts = np.bincount(tiles, minlength=n_tiles)
        return table.take(arrow_of(stable_order(tiles))), np.cumsum(counts) - counts

    def _no_rows(self) -> pa.Table:
        """Return an empty table of the columns of the runs."""
        fields = [
            pa.field(name, self.layout.code_type(name)) if name in self.layout.coded else self.layout.schema.field(name)
            for name in (plan.name for plan in self.layout.columns)
        ]
        schema = pa.schema([*fields, pa.field(TILE, pa.uint32()), pa.field(SAMPLE, pa.uint32())])
        return pa.Table.from_batches([], schema=schema)

    def _hand_on(self, number: int, table: pa.Table, handed: "_Handed") -> None:
        """Write the rows for the features, and those that the next level keeps."""
        handed.rows += table.num_rows
        for name, files in self.features:
            handed.features[name][number] = files.write(number, table, numpy_of(table.column(name)))
        if self.onward is None:
            return
        kept = table
        if table.num_rows:
            mask = is_kept(numpy_of(table.column(SAMPLE)), self.onward.fraction)
            kept = table.take(arrow_of(np.flatnonzero(mask)))
        tiles = self.onward.parents[numpy_of(kept.column(TILE))]
        moved = kept.set_column(kept.column_names.index(TILE), TILE, arrow_of(tiles))
        handed.onward[number] = self.onward.files.write(number, moved, self.onward.bucket_of_tile[tiles])
        handed.tiles.append(tiles)


@dataclass(slots=True, kw_only=True)
class _Handed:
    """What a part has handed on so far."""

    features: dict[str, dict[int, NDArray[np.int64]]]
    onward: dict[int, NDArray[np.int64]] = field(default_factory=dict)
    tiles: list[NDArray[np.uint32]] = field(default_factory=list)
    rows: int = 0

    def by_tile(self) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Return the tiles of the next level that got rows, and how many."""
        tiles, counts = np.unique(np.concatenate([*self.tiles, np.zeros(0, np.uint32)]), return_counts=True)
        return tiles.astype(np.uint32), counts.astype(np.int64)


def _windows(bucket: Bucket, table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of a bucket in pieces, each with the number of its run."""
    size = max(-(-table.num_rows // bucket.windows), 1)
    for window in range(bucket.windows):
        yield bucket.run + window, table.slice(window * size, size)


def write_tile_order(
    level: LevelRows,
    layout: FileLayout,
    home: TileHome,
    *,
    tiles_per_part: int,
    window_rows: int,
    coarser: NextLevel | None,
    feature_runs: Sequence[tuple[str, Runs]],
    crew: Crew,
    progress: Progress | None,
    stage: str,
) -> tuple[NDArray[np.int64], frozenset[str]]:
    """Write the parts of one level, and hand its rows on.

    Args:
        level: The rows.
        layout: Layout of the files.
        home: Where they go.
        tiles_per_part: Tiles of a part file.
        window_rows: Rows that are handed on at once.
        coarser: Where the rows of the next level go, if there is one.
        feature_runs: For each feature column that gets a feature-major copy, runs keyed by its code.
        crew: Who does the work.
        progress: Told how far it is.
        stage: What the progress is called.

    Returns:
        Rows of each tile of the next level, shape (n_tiles of the next level,), empty without one; arrays in which some
        values are null.

    """
    task = WriteParts(
        runs=level.runs.files,
        layout=layout,
        home=home,
        tiles_per_part=tiles_per_part,
        onward=None if coarser is None else coarser.onward,
        features=tuple((name, runs.files) for name, runs in feature_runs),
    )
    parts = parts_of(level, tiles_per_part=tiles_per_part, window_rows=window_rows)
    counts = np.zeros(0 if coarser is None else coarser.rows.grid.n_tiles, dtype=np.int64)
    nullable: set[str] = set()
    done, total = 0, int(level.runs.counts.sum())
    for part in crew.map(task, parts, need=_need):
        counts[part.tiles] += part.counts
        nullable.update(part.nullable)
        if coarser is not None:
            _note(coarser.rows.runs, part.onward)
        for name, runs in feature_runs:
            _note(runs, part.features[name])
        done += part.rows
        if progress is not None:
            progress(stage, done, total)
    return counts, frozenset(nullable)


# What is held of each row of a tile that is too large to be sorted: codes as they are written, and texts.
_BYTES_OF_A_LARGE_TILE = 24


def _need(part: Part) -> int:
    """Return the bytes that the largest tile of a part takes, where it is a bucket by itself."""
    rows = [int((bucket.spans[:, 2] - bucket.spans[:, 1]).sum()) for bucket in part.buckets if bucket.windows > 1]
    return max(rows, default=0) * _BYTES_OF_A_LARGE_TILE


def _note(runs: Runs, written: Mapping[int, NDArray[np.int64]]) -> None:
    for number, offsets in written.items():
        runs.add(number, offsets)
