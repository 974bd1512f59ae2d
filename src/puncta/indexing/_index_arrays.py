"""Writes the arrays of the index: offsets, feature tiles, fractions and categories (P5, P10 to P12, P31)."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import zarr
from numpy.typing import NDArray

from puncta.indexing._feature_index import MAX_FRACTIONS_IN_METADATA, FeatureLevel, FeatureOrder
from puncta.indexing._write_parquet import FileLayout

# One chunk of a megabyte: a reader takes the offsets of a level in one request.
_CHUNK_VALUES = 2**17


def group_document() -> dict[str, Any]:
    """Return the `zarr.json` of a group without attributes."""
    return {"attributes": {}, "zarr_format": 3, "node_type": "group"}


class IndexWriter:
    """Writes arrays below the `index` group of an element."""

    def __init__(self, element: Path) -> None:
        """Make the group."""
        self._root = zarr.open_group(element / "index", mode="w", zarr_format=3)

    def array(self, path: str, values: NDArray[np.generic]) -> None:
        """Write an array of one dimension."""
        self._root.create_array(path, data=values, chunks=(max(min(len(values), _CHUNK_VALUES), 1),))

    def strings(self, path: str, values: pa.Array) -> None:
        """Write the values of a column as strings."""
        # Arrow's texts, since readers compare them with those that Arrow makes of the rows: 1.0 is "1".
        texts = np.asarray(values.cast(pa.string()).fill_null("").to_pylist(), dtype=object)
        array = self._root.create_array(
            path, shape=texts.shape, dtype="string", chunks=(max(min(len(texts), _CHUNK_VALUES), 1),)
        )
        if len(texts):
            array[:] = texts

    def categories(self, layout: FileLayout) -> None:
        """Write the categories of the feature columns, and of others that the files do not give back (P25)."""
        for plan in layout.columns:
            if plan.role == "feature":
                self.strings(f"features/{plan.name}", layout.coded[plan.name].values)
                continue
            coded = layout.coded.get(plan.name)
            if coded is not None and coded.needs_categories:
                self.strings(f"categories/{plan.name}", coded.values)

    def tile_offsets(self, level: int, counts: NDArray[np.int64]) -> None:
        """Write where each tile of a level starts."""
        self.array(f"{level}/tile_offsets", np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))

    def feature_order(self, order: FeatureOrder, *, inside: str) -> None:
        """Write the index of the feature-major copies of one feature column.

        Args:
            order: The copies.
            inside: `""` for the primary feature column, `by-<column>/` for a further one.

        """
        for number, level in enumerate(order.levels):
            self._feature_level(f"{number}/{inside}", level)
        if order.fractions.shape[1] > MAX_FRACTIONS_IN_METADATA:
            for number in range(1, len(order.fractions)):
                self.array(f"{number}/{inside}P_feature", order.fractions[number])

    def _feature_level(self, place: str, level: FeatureLevel) -> None:
        # Where a level holds only some features, a reader of the RFC alone must not take an empty range for no points.
        name = "feature_offsets" if level.level_of is None else "feature_offsets_own"
        self.array(place + name, level.offsets)
        if level.level_of is not None:
            self.array(place + "feature_level_of", level.level_of)
        self.array(place + "feature_tiles/indptr", level.tile_indptr)
        self.array(place + "feature_tiles/tiles", level.tiles)
        self.array(place + "feature_tiles/starts", level.tile_starts)
        self.array(place + "feature_row_groups", level.row_groups)
        self.array(place + "feature_parts", level.parts)
