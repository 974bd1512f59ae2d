"""Builds the element of an index in a folder: from staged rows to part files, offsets and metadata."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from puncta.indexing._choose_grid import GridWishes, choose_grid
from puncta.indexing._columns import ColumnPlan
from puncta.indexing._feature_index import FeatureOrder
from puncta.indexing._feature_order import write_feature_order
from puncta.indexing._index_arrays import IndexWriter, group_document
from puncta.indexing._metadata import Built, FeatureLevels
from puncta.indexing._partition import Placement, has_unique_ids, partition
from puncta.indexing._runs import Runs
from puncta.indexing._source import Source
from puncta.indexing._stage import BATCH_ROWS, Progress, Selection, Staged, stage
from puncta.indexing._tile_order import LevelRows, NextLevel, next_level, write_tile_order
from puncta.indexing._write_parquet import FileLayout, plan_files
from puncta.points._grid import Grid

TILES_PER_PART = 256
"""Tiles of a part file (P6): a reader pays for the footers of the parts it touches, some hundred bytes a tile."""

# What the interpreter and its libraries hold before the first row, measured.
_BASE_MEMORY = 300 * 2**20

# A bucket is held as gathered indices, sorted rows, encoded pages, and on its way to the features and the next level.
_COPIES_OF_A_BUCKET = 5

_MIN_BUCKET_ROWS = 2**14

# Tile id and u of each row.
_BUILD_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """How an index is built; the defaults are those of the command line."""

    wishes: GridWishes
    """What was asked of the grid."""

    selection: Selection
    """Which rows are taken."""

    coordinate_type: pa.DataType | None
    """Type of the stored coordinates; None keeps the source's."""

    max_levels: int | None
    """Levels at the most, level 0 included; None goes down to a single tile."""

    feature_order: bool
    """Write feature-major copies."""

    feature_levels: FeatureLevels
    """Which levels get them, and of which features."""

    codes_column: bool
    """Write the codes of the feature columns as columns of their own."""

    seed: int
    """Seed of the sampling."""

    memory: int
    """Bytes that the build should stay below."""

    workers: int
    """Threads."""


@dataclass(slots=True)
class Clock:
    """Wall seconds of each stage."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time one stage."""
        start = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


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


def build_element(
    source: Source,
    columns: Sequence[ColumnPlan],
    placement: Placement,
    options: BuildOptions,
    *,
    element: Path,
    scratch: Path,
    clock: Clock,
    progress: Progress | None,
) -> Result:
    """Write everything of an indexed element but its `zarr.json` into a folder.

    Args:
        source: Where the rows come from.
        columns: What becomes of each column.
        placement: Where they lie on the grid.
        options: How to build.
        element: Folder of the element, made here.
        scratch: Folder for buckets; holds up to three times the rows while building.
        clock: Takes the times of the stages.
        progress: Told how far it is.

    """
    element.mkdir(parents=True)
    folder = scratch / "rows"
    folder.mkdir(parents=True)
    with clock.stage("reading"):
        staged = stage(
            source,
            columns,
            folder,
            selection=options.selection,
            coordinate_type=options.coordinate_type,
            progress=progress,
        )
    with clock.stage("choosing the grid"):
        grid, estimate = choose_grid(staged, placement, options.wishes, workers=options.workers)
    layout = plan_files(staged, codes_column=options.codes_column)
    row_ids, notes = _row_ids(staged, source.index_column)
    bucket_rows = _bucket_rows(layout, options)
    with clock.stage("placing"):
        runs, bucket_starts, counts = partition(
            staged,
            placement,
            grid,
            layout,
            scratch / "level-0",
            estimate=estimate,
            tiles_per_part=TILES_PER_PART,
            bucket_rows=bucket_rows,
            row_ids=row_ids,
            seed=options.seed,
            workers=options.workers,
            progress=progress,
        )
    for path in staged.paths:
        path.unlink()
    tower = _Tower(
        layout,
        options,
        element=element,
        scratch=scratch,
        bucket_rows=bucket_rows,
        clock=clock,
        progress=progress,
    )
    feature_runs = tower.feature_runs(layout.features if options.feature_order else [], len(bucket_starts))
    built = tower.tile_order(LevelRows(grid=grid, runs=runs, bucket_starts=bucket_starts), counts, feature_runs)
    orders = tower.feature_orders(feature_runs, built.grids)
    with clock.stage("writing the index"):
        for number in range(1, len(built.grids)):
            _write_group(element / "levels" / str(number))
        tower.index.categories(layout)
        for position, (name, order) in enumerate(orders.items()):
            tower.index.feature_order(order, inside=f"by-{name}/" if position else "")
    return Result(
        built=Built(grids=built.grids, fractions=built.fractions, n_rows=built.n_rows, orders=orders),
        staged=staged,
        layout=layout,
        counts=counts,
        notes=notes,
    )


class _Tower:
    """Writes the levels one after the other."""

    def __init__(
        self,
        layout: FileLayout,
        options: BuildOptions,
        *,
        element: Path,
        scratch: Path,
        bucket_rows: int,
        clock: Clock,
        progress: Progress | None,
    ) -> None:
        self.layout = layout
        self.options = options
        self.element = element
        self.scratch = scratch
        self.bucket_rows = bucket_rows
        self.clock = clock
        self.progress = progress
        self.index = IndexWriter(element)

    def feature_runs(self, features: Sequence[str], n_runs: int) -> dict[str, Runs]:
        """Return empty runs for each feature column that gets a feature-major copy."""
        return {
            name: Runs(self.scratch / f"feature-{number}", len(self.layout.coded[name].values) + 1, n_runs)
            for number, name in enumerate(features)
        }

    def tile_order(self, rows: LevelRows, counts: NDArray[np.int64], feature_runs: dict[str, Runs]) -> Built:
        """Write the tile order of all levels."""
        grids = list(rows.grid.pyramid(self.options.max_levels))
        fractions, n_rows = [1.0], []
        for number in range(len(grids)):
            coarser: NextLevel | None = None
            if number + 1 < len(grids):
                coarser = next_level(
                    rows,
                    counts,
                    self.scratch / f"level-{number + 1}",
                    fraction=fractions[-1],
                    limit=self.options.wishes.limit,
                    tiles_per_part=TILES_PER_PART,
                    bucket_rows=self.bucket_rows,
                )
            with self.clock.stage("writing tiles" if number == 0 else "writing levels"):
                below = write_tile_order(
                    rows,
                    self.layout,
                    self.element / (f"levels/{number}/points.parquet" if number else "points.parquet"),
                    tiles_per_part=TILES_PER_PART,
                    coarser=coarser,
                    feature_runs=list(feature_runs.items()) if number == 0 else [],
                    workers=self.options.workers,
                    progress=self.progress,
                    stage=f"writing level {number}",
                )
            rows.runs.remove()
            self.index.tile_offsets(number, counts)
            n_rows.append(int(counts.sum()))
            if coarser is not None:
                rows, counts = coarser.rows, below
                fractions.append(coarser.fraction)
        return Built(grids=tuple(grids), fractions=tuple(fractions), n_rows=tuple(n_rows))

    def feature_orders(self, feature_runs: dict[str, Runs], grids: Sequence[Grid]) -> dict[str, FeatureOrder]:
        """Write the feature-major copies."""
        n_levels = 1 if self.options.feature_levels == "none" else len(grids)
        orders = {}
        for position, (name, runs) in enumerate(feature_runs.items()):
            folders = [self._feature_folder(level, name if position else None) for level in range(n_levels)]
            with self.clock.stage("writing features"):
                orders[name] = write_feature_order(
                    runs,
                    name,
                    self.layout,
                    folders,
                    grids,
                    limit=self.options.wishes.limit,
                    shared=self.options.feature_levels == "shared",
                    workers=self.options.workers,
                    progress=self.progress,
                )
            runs.remove()
        return orders

    def _feature_folder(self, level: int, further: str | None) -> Path:
        """Return the folder of a feature-major copy: the RFC's for the primary column, a further one below (P11)."""
        group = self.element / "feature" / str(level)
        if further is not None:
            group /= f"by-{further}"
        _write_group(group)
        return group / "points.parquet"


def _write_group(folder: Path) -> None:
    """Make a folder and those above it Zarr groups, so that zarr does not warn about foreign directories (P8)."""
    folder.mkdir(parents=True, exist_ok=True)
    while folder.name not in {"feature", "levels"}:
        (folder / "zarr.json").write_text(json.dumps(group_document()))
        folder = folder.parent
    (folder / "zarr.json").write_text(json.dumps(group_document()))


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


def row_bytes_of(schema: pa.Schema) -> int:
    """Return about how many bytes a row takes while the index is built."""
    fixed = [int(field_.type.bit_width) // 8 for field_ in schema if pa.types.is_primitive(field_.type)]
    # a code, or a short text
    others = 16 * (len(schema) - len(fixed))
    return sum(fixed) + others + _BUILD_BYTES


def _bucket_rows(layout: FileLayout, options: BuildOptions) -> int:
    """Return how many rows a bucket may have for the memory that was promised."""
    row_bytes = row_bytes_of(layout.schema)
    share = max(options.memory - _BASE_MEMORY, 0) / options.workers
    return int(np.clip(share / (row_bytes * _COPIES_OF_A_BUCKET), _MIN_BUCKET_ROWS, BATCH_ROWS))
