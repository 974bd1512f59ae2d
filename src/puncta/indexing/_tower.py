"""Writes the levels of an element one after the other, in one layout or both."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from puncta.indexing._copy_shards import write_copy
from puncta.indexing._crew import Crew
from puncta.indexing._feature_index import FeatureOrder, PairFiles
from puncta.indexing._feature_order import CopyHome, write_feature_order
from puncta.indexing._index_arrays import IndexWriter, group_document
from puncta.indexing._metadata import Built, copy_home
from puncta.indexing._options import TILES_PER_PART, BuildOptions, Clock
from puncta.indexing._runs import RunFiles, Runs
from puncta.indexing._stage import Progress
from puncta.indexing._tile_order import LevelRows, NextLevel, TileHome, next_level, write_tile_order
from puncta.indexing._write_parquet import FileLayout
from puncta.indexing._write_zarr import require_padding, write_group
from puncta.indexing._zarr_columns import plan_arrays
from puncta.points._grid import Grid


class Tower:
    """The levels of one element."""

    def __init__(
        self,
        layout: FileLayout,
        options: BuildOptions,
        *,
        element: Path,
        scratch: Path,
        bucket_rows: int,
        crew: Crew,
        clock: Clock,
        progress: Progress | None,
    ) -> None:
        """Write nothing yet but the group of the index.

        Args:
            layout: Layout of the files.
            options: How to build.
            element: Folder of the element; it is there.
            scratch: Folder for buckets.
            bucket_rows: Rows that a bucket should not exceed.
            crew: Who does the work.
            clock: Takes the times of the stages.
            progress: Told how far it is.

        Raises:
            ColumnError: If the Zarr layout is asked for, and a column has no form as an array.

        """
        self.layout = layout
        self.options = options
        self.element = element
        self.scratch = scratch
        self.bucket_rows = bucket_rows
        self.crew = crew
        self.clock = clock
        self.progress = progress
        self.arrays = plan_arrays(layout) if "zarr" in options.layouts else None
        self.index = IndexWriter(element, options.layouts)

    def feature_runs(self, features: Sequence[str]) -> dict[str, Runs]:
        """Return empty runs for each feature column that gets a feature-major copy."""
        return {
            name: Runs(self.scratch / f"feature-{number}", len(self.layout.coded[name].values) + 1)
            for number, name in enumerate(features)
        }

    def tile_order(self, rows: LevelRows, counts: NDArray[np.int64], feature_runs: dict[str, Runs]) -> Built:
        """Write the tile order of all levels.

        Raises:
            GridError: If the Zarr layout is asked for, and its padding would be too much.

        """
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
            below = self._write_level(number, rows, counts, coarser, feature_runs if number == 0 else {})
            rows.runs.remove()
            self.index.tile_offsets(number, counts)
            n_rows.append(int(counts.sum()))
            if coarser is not None:
                rows, counts = coarser.rows, below
                fractions.append(coarser.onward.fraction)
        return Built(grids=tuple(grids), fractions=tuple(fractions), n_rows=tuple(n_rows))

    def _write_level(
        self,
        number: int,
        rows: LevelRows,
        counts: NDArray[np.int64],
        coarser: NextLevel | None,
        feature_runs: dict[str, Runs],
    ) -> NDArray[np.int64]:
        """Write the tile order of one level; return the rows of each tile of the next one."""
        home = self._tile_home(number, counts)
        with self.clock.stage("writing tiles" if number == 0 else "writing levels"):
            below, nullable = write_tile_order(
                rows,
                self.layout,
                home,
                tiles_per_part=TILES_PER_PART,
                window_rows=self.bucket_rows,
                coarser=coarser,
                feature_runs=list(feature_runs.items()),
                crew=self.crew,
                progress=self.progress,
                stage=f"writing level {number}",
            )
        if home.zarr is not None and home.arrays is not None:
            write_group(
                home.zarr,
                home.arrays,
                n_rows=int(counts.sum()),
                shape=home.chunk_rows * len(counts),
                chunk_rows=home.chunk_rows,
                chunks_per_shard=TILES_PER_PART,
                nullable=nullable,
            )
        return below

    def _tile_home(self, number: int, counts: NDArray[np.int64]) -> TileHome:
        chunk_rows = max(int(counts.max()), 1)
        parquet = zarr = None
        if "parquet" in self.options.layouts:
            parquet = self.element / (f"levels/{number}/points.parquet" if number else "points.parquet")
            if number:
                _write_groups(parquet.parent, below=self.element)
        if self.arrays is not None:
            itemsize = max(plan.dtype.itemsize for plan in self.arrays.arrays)
            require_padding(chunk_rows, len(counts), int(counts.sum()), level=number, itemsize=itemsize)
            zarr = self.element / str(number) / "spatial"
            _write_groups(zarr.parent, below=self.element)
        return TileHome(parquet=parquet, zarr=zarr, arrays=self.arrays, chunk_rows=chunk_rows)

    def feature_orders(self, feature_runs: dict[str, Runs], grids: Sequence[Grid]) -> dict[str, FeatureOrder]:
        """Write the feature-major copies."""
        n_levels = 1 if self.options.feature_levels == "none" else len(grids)
        orders = {}
        for position, (name, runs) in enumerate(feature_runs.items()):
            further = name if position else None
            homes = [self._copy_home(level, position, further) for level in range(n_levels)]
            with self.clock.stage("writing features"):
                orders[name], laid = write_feature_order(
                    runs,
                    name,
                    self.layout,
                    homes,
                    grids,
                    limit=self.options.wishes.limit,
                    shared=self.options.feature_levels == "shared",
                    crew=self.crew,
                    progress=self.progress,
                )
                runs.remove()
                for level, (home, spans) in enumerate(zip(homes, laid, strict=True)):
                    if home.rows is not None and self.arrays is not None:
                        folder = self.element / copy_home(level, further, "zarr")
                        write_copy(folder, home.rows, spans, self.arrays, crew=self.crew)
        return orders

    def _copy_home(self, level: int, position: int, further: str | None) -> CopyHome:
        """Return where a feature-major copy goes: the RFC's place for the primary column, another for others (P11)."""
        parquet = rows = None
        if "parquet" in self.options.layouts:
            group = self.element / "feature" / str(level)
            if further is not None:
                group /= f"by-{further}"
            _write_groups(group, below=self.element)
            parquet = group / "points.parquet"
            parquet.mkdir(exist_ok=True)
        scratch = self.scratch / f"copy-{position}"
        if self.arrays is not None:
            laid = scratch / f"rows-{level}"
            laid.mkdir(parents=True, exist_ok=True)
            rows = RunFiles(folder=laid, n_keys=1)
        pairs = scratch / f"pairs-{level}"
        pairs.mkdir(parents=True, exist_ok=True)
        return CopyHome(parquet=parquet, rows=rows, pairs=PairFiles(folder=pairs))


def _write_groups(folder: Path, *, below: Path) -> None:
    """Make a folder and those above it Zarr groups, so that zarr does not warn about foreign directories (P8)."""
    folder.mkdir(parents=True, exist_ok=True)
    while folder != below:
        (folder / "zarr.json").write_text(json.dumps(group_document()))
        folder = folder.parent
