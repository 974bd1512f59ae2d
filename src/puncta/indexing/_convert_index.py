"""Copies the arrays of an index from one layout to the other, and cuts its feature-major copies into row groups."""

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import zarr

from puncta.errors import StoreError
from puncta.indexing._convert_files import read_rows
from puncta.indexing._convert_plan import Cuts, feature_borders, group_cuts
from puncta.indexing._feature_order import GROUPS_PER_PART, ROWS_PER_GROUP
from puncta.indexing._index_arrays import CHUNK_VALUES
from puncta.indexing._levels import WINDOW_ROWS, FeatureTiles, ancestors_of, feature_tiles_of, joined
from puncta.indexing._partition import Placement
from puncta.points import Level, Points
from puncta.points._element import Element
from puncta.points._feature_rows import Pairs
from puncta.points._levels import FeatureCopy

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["copy_array", "copy_feature_index", "n_rows_of", "row_groups_of"]

_FEATURE_ARRAYS = (
    "feature_offsets",
    "feature_offsets_own",
    "feature_level_of",
    "feature_tiles/indptr",
    "feature_tiles/tiles",
    "feature_tiles/starts",
)


def copy_array(element: Element, path: str, root: zarr.Group, target: str) -> None:
    """Copy an array of one dimension, a few megabytes at a time."""
    source = element.batch_array(path)
    (length,) = source.shape
    chunk = max(min(length, CHUNK_VALUES), 1)
    array = root.create_array(target, shape=(length,), dtype=source.dtype, chunks=(chunk,))
    step = chunk * 8
    for start in range(0, length, step):
        end = min(start + step, length)
        starts, ends = np.asarray([[start], [end]], dtype=np.int64)
        (array[start:end],) = element.ranges([path], starts, ends)


def copy_feature_index(copy: FeatureCopy, root: zarr.Group, home: str) -> None:
    """Copy the arrays that say where the features of a feature-major copy lie, and its fractions.

    Args:
        copy: The copy, in the layout that is there.
        root: The new element.
        home: Where its arrays go.

    """
    element = copy.source.element
    paths = [f"{copy.group}/{name}" for name in _FEATURE_ARRAYS]
    for name, path, document in zip(_FEATURE_ARRAYS, paths, element.documents(paths), strict=True):
        if document is not None:
            copy_array(element, path, root, f"{home}/{name}")
    fractions = copy.sampling.get("P_feature")
    if isinstance(fractions, dict):
        copy_array(element, str(fractions["array"]), root, f"{home}/P_feature")


def n_rows_of(copy: FeatureCopy) -> int:
    """Return how many rows a feature-major copy has.

    Raises:
        StoreError: If the metadata does not say.

    """
    if copy.n_rows is None:
        raise StoreError(
            f"{copy.source.element.location} does not say how many rows its copy {copy.group} has (n_rows_feature), so "
            "it cannot be converted; index the points again"
        )
    return copy.n_rows


def row_groups_of(points: Points, level: Level, further: str | None) -> Cuts:
    """Return how the part files of a feature-major copy are cut, as they are when it is built.

    Holds the tiles of one group of features, and four bytes for each row without a feature.

    Args:
        points: The element.
        level: The level.
        further: None for the copy of the primary feature column, the name of a further one.

    """
    finest = points.levels[0].copy(further)
    counts = [*np.diff(finest.rows.offsets).tolist(), n_rows_of(finest) - int(finest.rows.offsets[-1])]
    borders = feature_borders(counts, target_rows=WINDOW_ROWS)
    return group_cuts(
        _groups(points, level, level.copy(further), borders),
        target_rows=ROWS_PER_GROUP,
        groups_per_file=GROUPS_PER_PART,
    )


def _groups(points: Points, level: Level, copy: FeatureCopy, borders: list[int]) -> Iterator[FeatureTiles]:
    """Yield feature and tile of the rows of each group of features; those without a feature are in the last."""
    offsets, indptr = copy.rows.offsets, copy.rows.indptr
    n_features = len(offsets) - 1
    pairs = Pairs(copy.source.element, f"{copy.group}/feature_tiles", count=int(indptr[-1]))
    for first, end in itertools.pairwise(borders):
        last = min(end, n_features)
        bounds = indptr[first : last + 1]
        tiles, starts = next(pairs.between([(int(bounds[0]), int(bounds[-1]))]))
        group = FeatureTiles(
            features=np.repeat(np.arange(first, last), np.diff(bounds)),
            tiles=tiles,
            counts=np.diff(starts, append=offsets[last]),
        )
        yield group if end == last else joined([group, _without_feature(points, level, copy)])


def _without_feature(points: Points, level: Level, copy: FeatureCopy) -> FeatureTiles:
    """Return the tiles of the rows that have no feature, of which the index knows only where they begin (P4)."""
    first, n_rows = int(copy.rows.offsets[-1]), n_rows_of(copy)
    affine = points.attrs["spatial_index"].get("affine")
    placement = Placement(axes=points.axes, affine=None if affine is None else np.asarray(affine, dtype=np.float64))
    ancestors = ancestors_of([one.grid for one in points.levels])[level.number]
    tiles: list[NDArray[np.uint32]] = [np.zeros(0, dtype=np.uint32)]
    for start in range(first, n_rows, WINDOW_ROWS):
        rows = read_rows(copy.stored, start, min(start + WINDOW_ROWS, n_rows), sorted(points.axes))
        tiles.append(ancestors[points.levels[0].grid.covered_tile_ids(placement.placed(rows))])
    found = np.concatenate(tiles)
    return feature_tiles_of(np.full(len(found), len(copy.rows.offsets) - 1), found)
