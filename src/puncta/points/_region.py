"""The region a question asks about: a half-open box or a polygon in any coordinate system of the element (P24).

Pure: which tiles it may touch, which of them lie wholly inside, and which points are in it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray

from puncta.errors import QueryError
from puncta.points._grid import Box, Grid, corners_of
from puncta.spec.transformations import apply_affine, compose_affines, invert_affine

# A box that was mapped to another system is grown by this part of a tile: rounding must not cost a tile.
_GROWTH = 1e-6

# The last number below 0 is so small that no division leaves anything of it; no coordinate is as small as this one.
_NOTHING = 1e-300


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A region in one coordinate system."""

    axes: tuple[str, ...]
    """Axes of the element's grid."""

    lower: NDArray[np.float64]
    """Lower corner, shape (d,), in the system that was asked."""

    upper: NDArray[np.float64]
    """Upper corner, shape (d,), exclusive."""

    polygon: Any | None
    """A shapely geometry over x and y, or None for the box alone."""

    to_asked: NDArray[np.float64] | None
    """Affine from stored coordinates to the system that was asked; None for the identity."""

    to_grid: NDArray[np.float64] | None
    """Affine from stored coordinates to the grid's system; None for the identity."""

    is_everything: bool
    """Nothing was asked: all points."""

    @property
    def is_in_grid_system(self) -> bool:
        """Say whether the box stands in the grid's own system, so that tiles can be compared with it directly."""
        if self.to_asked is None or self.to_grid is None:
            return self.to_asked is None and self.to_grid is None
        return np.array_equal(self.to_asked, self.to_grid)

    def box_in(self, grid: Grid) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the corners of a box in the grid's system that holds the region."""
        if self.is_in_grid_system:
            return self.lower, self.upper
        onward = _onward(self.to_asked, self.to_grid, len(self.axes))
        origin, size = np.asarray(grid.origin), np.asarray(grid.tile_size)
        # With a tile to spare: mapped back exactly, rounding could cost the outermost points.
        reach = _mapped_box(origin - size, origin + size * (np.asarray(grid.shape) + 1), invert_affine(onward))
        lower, upper = np.maximum(self.lower, reach[0]), np.minimum(self.upper, reach[1])
        if not (upper >= lower).all():
            return origin, origin
        lower, upper = _mapped_box(lower, upper, onward)
        return lower - _GROWTH * size, upper + _GROWTH * size

    def within(self, grid: Grid) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the corners of the region in the system that was asked, cut to where the grid has tiles."""
        origin, size = np.asarray(grid.origin), np.asarray(grid.tile_size)
        end = origin + size * np.asarray(grid.shape)
        if not self.is_in_grid_system:
            back = invert_affine(_onward(self.to_asked, self.to_grid, len(self.axes)))
            origin, end = _mapped_box(origin, end, back)
        return np.maximum(self.lower, origin), np.minimum(self.upper, end)

    def tiles_in(self, grid: Grid) -> NDArray[np.int64]:
        """Return the tiles that may hold points of the region, ascending."""
        if self.is_everything:
            return np.arange(grid.n_tiles, dtype=np.int64)
        lower, upper = self.box_in(grid)
        return grid.tiles_in((lower.tolist(), upper.tolist()))

    def is_inside(self, grid: Grid, tiles: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Say for each tile whether all of its points are in the region, as far as this can be told from the grid.

        Tile coordinates never fall as coordinates grow. So a tile above that of the last number below the box has no
        point below the box, and one below that of the upper corner none above it: a box along tile borders is exact.
        """
        if self.is_everything:
            return np.ones(len(tiles), dtype=bool)
        if self.polygon is not None or not self.is_in_grid_system:
            return np.zeros(len(tiles), dtype=bool)
        below = np.minimum(np.nextafter(self.lower, -np.inf), self.lower - _NOTHING)
        ends = grid.unbounded_tiles_of(np.stack([below, self.upper]))
        at = grid.tile_coordinates(tiles)
        inside: NDArray[np.bool_] = ((at > ends[0]) & (at < ends[1])).all(axis=1)
        return inside

    def shares(self, grid: Grid, tiles: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return about which share of each tile lies in the box around the region."""
        if self.is_everything:
            return np.ones(len(tiles))
        lower, upper = self.box_in(grid)
        begin = np.asarray(grid.origin) + grid.tile_coordinates(tiles) * np.asarray(grid.tile_size)
        size = np.asarray(grid.tile_size)
        inside = np.minimum(begin + size, upper) - np.maximum(begin, lower)
        shares: NDArray[np.float64] = np.clip(inside / size, 0, 1).prod(axis=1)
        return shares

    @property
    def tested_axes(self) -> tuple[str, ...]:
        """Axes whose coordinates tell whether a point is in the region: an unbounded one need not be read."""
        if self.is_everything:
            return ()
        if self.to_asked is not None:
            return self.axes
        is_bounded = (self.lower > -np.inf) | (self.upper < np.inf)
        return tuple(axis for axis, bounded in zip(self.axes, is_bounded.tolist(), strict=True) if bounded)

    def contains(self, coordinates: Sequence[NDArray[np.generic]]) -> NDArray[np.bool_]:
        """Say for each point whether it is in the region: the exact test, in float64, in the system that was asked.

        A point on the border of a polygon is in it.

        Args:
            coordinates: Stored coordinates, one array of shape (n,) per axis of `tested_axes`, at least one.

        """
        axes = self.tested_axes
        if self.to_asked is None:
            placed = [np.asarray(values, dtype=np.float64) for values in coordinates]
        else:
            placed = apply_affine(self.to_asked, coordinates)
        kept = np.ones(len(placed[0]), dtype=bool)
        for axis, values in zip(axes, placed, strict=True):
            lower, upper = self.lower[self.axes.index(axis)], self.upper[self.axes.index(axis)]
            if lower > -np.inf:
                kept &= values >= lower
            if upper < np.inf:
                kept &= values < upper
        if self.polygon is not None:
            x, y = placed[axes.index("x")], placed[axes.index("y")]
            at = np.flatnonzero(kept)
            kept[at] = shapely.intersects_xy(self.polygon, x[at], y[at])
        return kept


def region_of(
    axes: tuple[str, ...],
    *,
    box: Box | None,
    polygon: object | None,
    to_asked: NDArray[np.float64] | None,
    to_grid: NDArray[np.float64] | None,
) -> Region:
    """Return the region that was asked about.

    Args:
        axes: Axes of the grid.
        box: Half-open box, or None.
        polygon: shapely geometry, WKT or GeoJSON over x and y, or None.
        to_asked: Affine from stored coordinates to the system that was asked; None for the identity.
        to_grid: Affine from stored coordinates to the grid's system; None for the identity.

    Raises:
        GridError: If the box is none.
        QueryError: If the polygon is none.

    """
    lower, upper = corners_of({} if box is None else box, axes)
    shape = None if polygon is None else polygon_of(polygon)
    if shape is not None:
        shapely.prepare(shape)
        bounds = dict(zip(("x", "y"), zip(*np.reshape(shape.bounds, (2, 2)).tolist(), strict=True), strict=True))
        for axis, (low, high) in bounds.items():
            at = axes.index(axis)
            lower[at] = max(lower[at], low)
            # the border of the polygon is part of it, the upper bound of a box is not
            upper[at] = min(upper[at], float(np.nextafter(high, np.inf)))
        if (upper < lower).any():
            upper = np.maximum(upper, lower)
    return Region(
        axes=axes,
        lower=lower,
        upper=upper,
        polygon=shape,
        to_asked=to_asked,
        to_grid=to_grid,
        is_everything=shape is None and bool((lower == -np.inf).all() and (upper == np.inf).all()),
    )


def polygon_of(value: object) -> Any:  # noqa: ANN401  # shapely ships no types
    """Return a shapely polygon from one, from WKT, or from GeoJSON (text or mapping, a Feature or a geometry).

    Raises:
        QueryError: If it is none of these, is empty, or has no area.

    """
    try:
        shape = _parsed(value)
    except (shapely.errors.ShapelyError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise QueryError(
            f"the polygon {str(value)[:60]!r} is neither WKT nor GeoJSON nor a shapely geometry: {error}"
        ) from error
    if shape.is_empty or not shape.area:
        raise QueryError(f"the polygon {shape.wkt[:60]!r} has no area, so no point can lie in it")
    return shape


def _parsed(value: object) -> Any:  # noqa: ANN401  # shapely ships no types
    if isinstance(value, shapely.Geometry):
        return value
    if isinstance(value, str) and not value.lstrip().startswith("{"):
        return shapely.from_wkt(value)
    document = json.loads(value) if isinstance(value, str) else value
    if not isinstance(document, Mapping):
        raise TypeError(f"it is a {type(value).__name__}")
    if document.get("type") == "FeatureCollection":
        return shapely.union_all([_parsed(feature) for feature in document["features"]])
    if document.get("type") == "Feature":
        return _parsed(document["geometry"])
    return shapely.from_geojson(json.dumps(document))


def _onward(
    to_asked: NDArray[np.float64] | None, to_grid: NDArray[np.float64] | None, ndim: int
) -> NDArray[np.float64]:
    """Return the affine from the system that was asked to the grid's."""
    identity = np.eye(ndim, ndim + 1)
    back = identity if to_asked is None else invert_affine(to_asked)
    return compose_affines(identity if to_grid is None else to_grid, back)


def _mapped_box(
    lower: NDArray[np.float64], upper: NDArray[np.float64], affine: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the box around the mapped corners of a box."""
    corners = np.asarray(list(product(*zip(lower.tolist(), upper.tolist(), strict=True))))
    mapped = np.stack(apply_affine(affine, list(corners.T)), axis=1)
    return mapped.min(axis=0), mapped.max(axis=0)
