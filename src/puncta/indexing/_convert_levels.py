"""Writes the levels of an indexed element in another layout, and the arrays of their index."""

from collections.abc import Callable
from pathlib import Path

import zarr

from puncta.indexing._convert_columns import Stager
from puncta.indexing._convert_files import PartWriters, ShardWriters, Work, WriteFiles
from puncta.indexing._convert_index import copy_array, copy_feature_index, n_rows_of, row_groups_of
from puncta.indexing._convert_plan import Cuts, even_cuts, tile_cuts
from puncta.indexing._index_arrays import IndexWriter
from puncta.indexing._metadata import Layout, copy_home
from puncta.indexing._write_parquet import FileLayout, PartWriter
from puncta.indexing._write_zarr import CHUNK_ROWS, CHUNKS_PER_SHARD, ShardWriter, require_padding
from puncta.indexing._zarr_columns import plan_arrays
from puncta.points import Level, Points
from puncta.points._copy import Copy

__all__ = ["Conversion"]


class Conversion:
    """An element on its way into another layout.

    Args:
        points: The element, opened in the layout that it comes from.
        layout: Layout of its files.
        target: The layout that is written.
        element: Folder of the new element; it is there.
        work: Who does the work.

    Raises:
        ColumnError: If the Zarr layout is asked for, and a column has no form as an array.

    """

    def __init__(self, points: Points, layout: FileLayout, target: Layout, *, element: Path, work: Work) -> None:
        self._points = points
        self._layout = layout
        self._stager = Stager(layout)
        self._target = target
        self._element = element
        self._work = work
        self._arrays = plan_arrays(layout) if target == "zarr" else None
        self._index = IndexWriter(element, [target])
        self._root = zarr.open_group(element, mode="a", zarr_format=3)

    def write(self) -> None:
        """Write everything but the element's own `zarr.json`.

        Raises:
            GridError: If the Zarr layout is asked for, and its padding would be too much.
            StoreError: If the element is damaged.

        """
        self._require_padding()
        for level in self._points.levels:
            with self._work.clock.stage("writing levels" if level.number else "writing tiles"):
                self._tile_order(level)
        for level in self._points.levels:
            for further in (None, *self._points.feature_keys[1:]):
                if level.has_copy(further):
                    with self._work.clock.stage("writing features"):
                        self._feature_order(level, further)
        with self._work.clock.stage("writing the index"):
            self._index.categories(self._layout)

    def _require_padding(self) -> None:
        if self._arrays is None:
            return
        itemsize = max(plan.dtype.itemsize for plan in self._arrays.arrays)
        for level in self._points.levels:
            n_tiles = level.grid.n_tiles
            require_padding(_largest(level), n_tiles, level.n_rows, level=level.number, itemsize=itemsize)

    def _tile_order(self, level: Level) -> None:
        number, stage = level.number, f"writing level {level.number}"
        cuts = tile_cuts(level.tile_offsets, tiles_per_file=level.tiles_per_part)
        indexed, arrays = f"index/{number}", f"{number}/spatial"
        if self._arrays is None:
            folder = f"levels/{number}/points.parquet" if number else "points.parquet"
            self._write_files(level.stored, self._parts(folder), cuts, stage)
            copy_array(level.source.element, f"{arrays}/tile_offsets", self._root, f"{indexed}/tile_offsets")
            return
        shards = ShardWriters(
            folder=self._element / arrays,
            arrays=self._arrays,
            chunk_rows=_largest(level),
            chunks_per_shard=level.tiles_per_part,
        )
        self._root.require_group(str(number))
        nullable = self._write_files(level.stored, shards, cuts, stage)
        shards.write_metadata(n_rows=level.n_rows, shape=shards.chunk_rows * level.grid.n_tiles, nullable=nullable)
        copy_array(level.source.element, f"{indexed}/tile_offsets", self._root, f"{arrays}/tile_offsets")

    def _feature_order(self, level: Level, further: str | None) -> None:
        copy, stage = level.copy(further), "writing features"
        home, n_rows = copy_home(level.number, further, self._target), n_rows_of(copy)
        if self._arrays is None:
            inner = "" if further is None else f"by-{further}/"
            cuts = row_groups_of(self._points, level, further)
            parts = self._parts(f"feature/{level.number}/{inner}points.parquet")
            self._write_files(copy.stored, parts, cuts, stage)
            self._index.array(f"{home}/feature_row_groups", cuts.chunks)
            self._index.array(f"{home}/feature_parts", cuts.files)
        else:
            cuts = even_cuts(n_rows, chunk_rows=CHUNK_ROWS, chunks_per_file=CHUNKS_PER_SHARD)
            shards = ShardWriters(
                folder=self._element / home,
                arrays=self._arrays,
                chunk_rows=CHUNK_ROWS,
                chunks_per_shard=CHUNKS_PER_SHARD,
            )
            self._root.require_group(str(level.number))
            nullable = self._write_files(copy.stored, shards, cuts, stage)
            shards.write_metadata(n_rows=n_rows, shape=n_rows, nullable=nullable)
        copy_feature_index(copy, self._root, home)

    def _parts(self, folder: str) -> PartWriters:
        group = folder.rpartition("/")[0]
        if group:
            # or zarr warns about foreign folders (P8)
            self._root.require_group(group)
        return PartWriters(folder=self._element / folder, layout=self._layout)

    def _write_files(
        self, copy: Copy, writer: Callable[[int], PartWriter | ShardWriter], cuts: Cuts, stage: str
    ) -> frozenset[str]:
        """Write a copy; return the arrays in which some values are null."""
        files = cuts.windows_of(window_rows=self._work.window_rows)
        task = WriteFiles(copy=copy, stager=self._stager, writer=writer)
        return frozenset().union(*self._work.done(task, files, stage))


def _largest(level: Level) -> int:
    """Return the rows of the largest tile, at least 1."""
    return max(level.densest_tile, 1)
