"""Builds the element of an index in a folder: from staged rows to part files, offsets and metadata."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from puncta.indexing._choose_grid import choose_grid
from puncta.indexing._coder import VALUE_BYTES
from puncta.indexing._columns import ColumnPlan
from puncta.indexing._crew import Crew
from puncta.indexing._ledger import PLACED, Ledger, LedgerCrew
from puncta.indexing._levels import buckets_of_tiles
from puncta.indexing._metadata import Built
from puncta.indexing._options import TILES_PER_PART, BuildOptions, Clock
from puncta.indexing._partition import Placement, has_unique_ids, partition
from puncta.indexing._source import Source
from puncta.indexing._stage import BATCH_ROWS, Progress, Staged, stage
from puncta.indexing._tile_order import LevelRows
from puncta.indexing._tower import Tower
from puncta.indexing._write_parquet import FileLayout, plan_files
from puncta.indexing._zarr_columns import plan_arrays

# What the interpreter and its libraries hold before the first row, measured.
_BASE_MEMORY = 300 * 2**20

# A code, or a short text.
_TEXT_BYTES = 16

# A bucket is held as gathered indices, sorted rows, encoded pages, and on its way to the features and the next level.
_COPIES_OF_A_BUCKET = 5

_MIN_BUCKET_ROWS = 2**14

# What distinct values may take of the memory for rows, while the source is read: two batches of it are held as well.
_SHARE_FOR_VALUES = 1 / 3

# Tile id and u of each row.
_BUILD_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What was built."""

    built: Built
    """For the metadata."""

    staged: Staged
    """What was read."""

    layout: FileLayout
    """Layout of the files."""

    counts: NDArray[np.int64]
    """Points of each tile of level 0."""

    notes: tuple[str, ...]
    """What a user should know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlacedRows:
    """The rows on the grid: all that the work after it needs to know."""

    staged: Staged
    """What was read; without the rows and the values, which are in the runs and the layout."""

    layout: FileLayout
    """Layout of the files."""

    bucket_rows: int
    """Rows that a bucket should not exceed."""

    level: LevelRows
    """The rows of level 0."""

    counts: NDArray[np.int64]
    """Rows of each tile."""

    notes: tuple[str, ...]
    """What a user should know."""


def build_element(
    source: Source,
    columns: Sequence[ColumnPlan],
    placement: Placement,
    options: BuildOptions,
    *,
    element: Path,
    scratch: Path,
    ledger: Ledger | None,
    crew: Crew,
    clock: Clock,
    progress: Progress | None,
) -> Result:
    """Write everything of an indexed element but its `zarr.json` into a folder.

    Args:
        source: Where the rows come from.
        columns: What becomes of each column.
        placement: Where they lie on the grid.
        options: How to build.
        element: Folder of the element; empty, unless the ledger says what is in it.
        scratch: Folder for buckets; holds up to three times the rows while building.
        ledger: What a build that was stopped has finished; None for one that begins, and cannot go on later.
        crew: Who does the work on the buckets.
        clock: Takes the times of the stages.
        progress: Told how far it is.

    """
    placed = None if ledger is None else ledger.find(PLACED)
    if not isinstance(placed, _PlacedRows):
        placed = _place(source, columns, placement, options, scratch=scratch, crew=crew, clock=clock, progress=progress)
        if ledger is not None:
            ledger.keep(PLACED, placed)
    tower = Tower(
        placed.layout,
        options,
        element=element,
        scratch=scratch,
        bucket_rows=placed.bucket_rows,
        crew=crew if ledger is None else LedgerCrew(crew, ledger),
        clock=clock,
        progress=progress,
    )
    layout = placed.layout
    feature_runs = tower.feature_runs(layout.features if options.feature_order else [])
    built = tower.tile_order(placed.level, placed.counts, feature_runs)
    orders = tower.feature_orders(feature_runs, built.grids)
    with clock.stage("writing the index"):
        tower.index.categories(layout)
        for position, (name, order) in enumerate(orders.items()):
            tower.index.feature_order(order, further=name if position else None)
    return Result(
        built=Built(grids=built.grids, fractions=built.fractions, n_rows=built.n_rows, orders=orders),
        staged=placed.staged,
        layout=layout,
        counts=placed.counts,
        notes=placed.notes,
    )


def _place(
    source: Source,
    columns: Sequence[ColumnPlan],
    placement: Placement,
    options: BuildOptions,
    *,
    scratch: Path,
    crew: Crew,
    clock: Clock,
    progress: Progress | None,
) -> _PlacedRows:
    """Read the rows, choose the grid, and cut them into buckets of its tiles."""
    folder = scratch / "rows"
    folder.mkdir()
    with clock.stage("reading"):
        staged = stage(
            source,
            columns,
            folder,
            selection=options.selection,
            coordinate_type=options.coordinate_type,
            max_values=int(spare_memory(options.memory) * _SHARE_FOR_VALUES / VALUE_BYTES),
            progress=progress,
        )
    with clock.stage("choosing the grid"):
        grid, estimate = choose_grid(staged, placement, options.wishes, workers=options.workers)
    layout = plan_files(staged, codes_column=options.codes_column)
    if "zarr" in options.layouts:
        # refused before the rows are placed, where a column has no form as an array
        plan_arrays(layout)
    row_ids, notes = _row_ids(staged, source.index_column)
    bucket_rows = _bucket_rows(layout, staged, options)
    bucket_starts = buckets_of_tiles(estimate, tiles_per_part=TILES_PER_PART, target_rows=bucket_rows)
    with clock.stage("placing"):
        runs, counts = partition(
            staged,
            placement,
            grid,
            layout,
            scratch / "level-0",
            bucket_starts=bucket_starts,
            row_ids=row_ids,
            seed=options.seed,
            crew=crew,
            progress=progress,
        )
    for path in staged.paths:
        path.unlink()
    return _PlacedRows(
        staged=replace(staged, paths=[], coders={}),
        layout=layout,
        bucket_rows=bucket_rows,
        level=LevelRows(grid=grid, runs=runs, bucket_starts=bucket_starts),
        counts=counts,
        notes=notes,
    )


def _row_ids(staged: Staged, index_column: str | None) -> tuple[str | None, tuple[str, ...]]:
    """Return the column of the original ids, where they are shown to be unique (P13)."""
    # The codes of texts depend on the order of the rows, which ids are there to be independent of.
    name = next((plan.name for plan in staged.columns if plan.source == index_column and plan.role == "plain"), None)
    if name is None or has_unique_ids(staged, name):
        return name, ()
    note = (
        f"the index {name} is not shown to hold unique integers, so points are sampled by their position in the source"
    )
    return None, (note,)


def _long_text_bytes(layout: FileLayout, staged: Staged) -> float:
    """Return by how much the texts of a row are longer than `row_bytes_of` takes them to be."""
    means = [n_bytes / staged.n_rows for n_bytes in staged.text_bytes.values()]
    # of columns that are written as values the texts are held as well, a bucket at a time
    written = [column.values for column in layout.coded.values() if not column.as_dictionary and len(column.values)]
    means += [values.nbytes / len(values) for values in written]
    return sum(max(mean - _TEXT_BYTES, 0) for mean in means)


def row_bytes_of(schema: pa.Schema) -> int:
    """Return about how many bytes a row takes while the index is built."""
    fixed = [int(field_.type.bit_width) // 8 for field_ in schema if pa.types.is_primitive(field_.type)]
    others = _TEXT_BYTES * (len(schema) - len(fixed))
    return sum(fixed) + others + _BUILD_BYTES


def spare_memory(memory: int) -> int:
    """Return how much of the memory that was promised is left for rows."""
    return max(memory - _BASE_MEMORY, 0)


def _bucket_rows(layout: FileLayout, staged: Staged, options: BuildOptions) -> int:
    """Return how many rows a bucket may have for the memory that was promised."""
    row_bytes = row_bytes_of(layout.schema) + _long_text_bytes(layout, staged)
    share = spare_memory(options.memory) / options.workers
    return int(np.clip(share / (row_bytes * _COPIES_OF_A_BUCKET), _MIN_BUCKET_ROWS, BATCH_ROWS))
