"""Writes the arrays of the index: offsets, feature tiles, fractions and categories (P5, P10 to P12, P31)."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import zarr
from numpy.typing import NDArray

from puncta.indexing._feature_index import MAX_FRACTIONS_IN_METADATA, FeatureLevel, FeatureOrder
from puncta.indexing._metadata import Layout, copy_home
from puncta.indexing._write_parquet import FileLayout
from puncta.indexing._zarr_columns import value_columns

# One chunk of a megabyte: a reader takes the offsets of a level in one request.
CHUNK_VALUES = 2**17


def group_document() -> dict[str, Any]:
    """Return the `zarr.json` of a group without attributes."""
    return {"attributes": {}, "zarr_format": 3, "node_type": "group"}


class IndexWriter:
    """Writes the arrays of the index where each layout has them."""

    def __init__(self, element: Path, layouts: Sequence[Layout]) -> None:
        """Make the `index` group.

        Args:
            element: Folder of the element.
            layouts: The layouts, each of which has offsets of its own.

        """
        self._root = zarr.open_group(element, mode="a", zarr_format=3)
        self._root.require_group("index")
        self._layouts = tuple(layouts)

    def array(self, path: str, values: NDArray[np.generic]) -> None:
        """Write an array of one dimension below the element."""
        # a build that goes on writes again what it had written
        self._root.create_array(path, data=values, chunks=(max(min(len(values), CHUNK_VALUES), 1),), overwrite=True)

    def strings(self, path: str, values: pa.Array) -> None:
        """Write the values of a column as strings."""
        # Arrow's texts, since readers compare them with those that Arrow makes of the rows: 1.0 is "1".
        texts = np.asarray([text or "" for text in values.cast(pa.string()).to_pylist()], dtype=object)
        array = self._root.create_array(
            path, shape=texts.shape, dtype="string", chunks=(max(min(len(texts), CHUNK_VALUES), 1),), overwrite=True
        )
        if len(texts):
            array[:] = texts

    def categories(self, layout: FileLayout) -> None:
        """Write the categories of the feature columns, and of others that the files do not give back (P25)."""
        for name in layout.features:
            self.strings(f"index/features/{name}", layout.coded[name].values)
        for name, coded in layout.coded.items():
            if name not in layout.features and (
                coded.needs_categories or ("zarr" in self._layouts and coded.is_categorical)
            ):
                self.strings(f"index/categories/{name}", coded.values)
        if "zarr" in self._layouts:
            for name, values in value_columns(layout):
                self.strings(f"index/values/{name}", values)

    def tile_offsets(self, level: int, counts: NDArray[np.int64]) -> None:
        """Write where each tile of a level starts."""
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        for layout in self._layouts:
            home = f"{level}/spatial" if layout == "zarr" else f"index/{level}"
            self.array(f"{home}/tile_offsets", offsets)

    def feature_order(self, order: FeatureOrder, *, further: str | None) -> None:
        """Write the index of the feature-major copies of one feature column.

        Args:
            order: The copies.
            further: None for the primary feature column, the name of a further one.

        """
        for layout in self._layouts:
            for number, level in enumerate(order.levels):
                self._feature_level(copy_home(number, further, layout), level, has_row_groups=layout == "parquet")
            if order.fractions.shape[1] > MAX_FRACTIONS_IN_METADATA:
                for number in range(1, len(order.levels)):
                    self.array(f"{copy_home(number, further, layout)}/P_feature", order.fractions[number])

    def _feature_level(self, home: str, level: FeatureLevel, *, has_row_groups: bool) -> None:
        # Where a level holds only some features, a reader of the RFC alone must not take an empty range for no points.
        name = "feature_offsets" if level.level_of is None else "feature_offsets_own"
        self.array(f"{home}/{name}", level.offsets)
        if level.level_of is not None:
            self.array(f"{home}/feature_level_of", level.level_of)
        self._feature_tiles(f"{home}/feature_tiles", level)
        if has_row_groups:
            self.array(f"{home}/feature_row_groups", level.row_groups)
            self.array(f"{home}/feature_parts", level.parts)

    def _feature_tiles(self, home: str, level: FeatureLevel) -> None:
        """Write the tiles of the features, of which there may be more than memory has room for."""
        self.array(f"{home}/indptr", level.tile_indptr)
        n_pairs = int(level.tile_indptr[-1])
        chunks = (max(min(n_pairs, CHUNK_VALUES), 1),)
        tiles, starts = (
            self._root.create_array(f"{home}/{name}", shape=(n_pairs,), dtype=dtype, chunks=chunks, overwrite=True)
            for name, dtype in (("tiles", np.uint32), ("starts", np.int64))
        )
        at = 0
        for own_tiles, own_starts in _in_chunks(level.tiles_and_starts()):
            end = at + len(own_tiles)
            tiles[at:end], starts[at:end] = own_tiles, own_starts
            at = end


def _in_chunks(
    pieces: Iterable[tuple[NDArray[np.uint32], NDArray[np.int64]]],
) -> Iterator[tuple[NDArray[np.uint32], NDArray[np.int64]]]:
    """Yield the same pairs in pieces that are whole chunks, so that none is written twice."""
    tiles, starts = np.zeros(0, np.uint32), np.zeros(0, np.int64)
    for more_tiles, more_starts in pieces:
        tiles, starts = np.concatenate([tiles, more_tiles]), np.concatenate([starts, more_starts])
        whole = len(tiles) - len(tiles) % CHUNK_VALUES
        if whole:
            yield tiles[:whole], starts[:whole]
            tiles, starts = tiles[whole:], starts[whole:]
    if len(tiles):
        yield tiles, starts
