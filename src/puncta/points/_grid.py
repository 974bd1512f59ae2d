"""The grid of tiles: which tile a point lies in, which tiles a box touches, and the coarser grids above it.

Pure: arrays in, arrays out. The rules are those of RFC 3, "Grid and tiles" and "Tiles ordering", with decisions P1 to
P3 and P24 for what it leaves open.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from puncta.errors import GridError

type Box = Mapping[str, tuple[float, float]] | tuple[Sequence[float], Sequence[float]]
"""A half-open box: `{"x": (lo, hi), ...}`, an axis left out unbounded, or two corners in the grid's axis order."""

# Tile ids are stored as uint32 and offsets have one entry a tile: a grid beyond this could not be written.
MAX_TILES = 2**32 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A regular grid of half-open tiles over the named axes.

    Every array that goes in or comes out is in the order of `axes`.
    """

    axes: tuple[str, ...]
    """Names of the axes, in the order that the metadata declares; the last one varies fastest in the tile id."""

    origin: tuple[float, ...]
    """Lower corner of tile 0, in the units of the grid's coordinate system."""

    tile_size: tuple[float, ...]
    """Edge lengths of every tile, in the units of the grid's coordinate system."""

    shape: tuple[int, ...]
    """Number of tiles along each axis."""

    def __post_init__(self) -> None:
        """Check the grid, and make plain floats and integers of what was given."""
        object.__setattr__(self, "axes", tuple(self.axes))
        object.__setattr__(self, "origin", tuple(float(value) for value in self.origin))
        object.__setattr__(self, "tile_size", tuple(float(value) for value in self.tile_size))
        object.__setattr__(self, "shape", tuple(int(value) for value in self.shape))
        _check(self)

    @classmethod
    def covering(
        cls,
        lower: Sequence[float],
        upper: Sequence[float],
        *,
        axes: Sequence[str],
        tile_size: Sequence[float],
        origin: Sequence[float] | None = None,
    ) -> "Grid":
        """Return the smallest grid of this tile size that covers every point from `lower` to `upper`, both included.

        The point on the far border lies inside the last tile (P2).

        Args:
            lower: Smallest coordinate along each axis.
            upper: Largest coordinate along each axis.
            axes: Names of the axes.
            tile_size: Edge lengths of a tile.
            origin: Lower corner of tile 0; `lower` unless given.

        Raises:
            GridError: If the origin lies above a lowest coordinate, or a value is not usable.

        """
        start = tuple(lower if origin is None else origin)
        one = cls(axes=tuple(axes), origin=start, tile_size=tuple(tile_size), shape=(1,) * len(axes))
        if any(low < begin for low, begin in zip(lower, one.origin, strict=True)):
            raise GridError(f"the origin {start} lies above the lowest coordinates {tuple(lower)}; lower the origin")
        last = one.unbounded_tiles_of(np.asarray(upper, dtype=np.float64)[None, :])[0]
        return cls(axes=one.axes, origin=one.origin, tile_size=one.tile_size, shape=tuple(last.astype(int) + 1))

    @property
    def n_tiles(self) -> int:
        """Number of tiles of the whole grid."""
        return math.prod(self.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """How much the tile id grows with one step along each axis (C order)."""
        return tuple(math.prod(self.shape[axis + 1 :]) for axis in range(len(self.shape)))

    def unbounded_tiles_of(self, coordinates: ArrayLike) -> NDArray[np.float64]:
        """Return the tile coordinate of each point, whether or not the grid reaches that far.

        Here, and in `covered_tile_ids`, coordinates become tiles: `floor((float64(p) - o) / s)`, with a true division
        (P1). It is monotone, so the tiles between those of two corners miss no point.

        Args:
            coordinates: Points, shape (n, d), any real dtype.

        Returns:
            Tile coordinates, shape (n, d), float64; not a number where a coordinate is not finite.

        """
        tiles: NDArray[np.float64] = np.asarray(coordinates, dtype=np.float64) - np.asarray(self.origin)
        with np.errstate(over="ignore"):  # the bounds of an unbounded box may leave the range of float64: still outside
            tiles /= np.asarray(self.tile_size)
        return np.floor(tiles, out=tiles)

    def tiles_of(self, coordinates: ArrayLike) -> NDArray[np.int64]:
        """Tile of each point, one coordinate per axis.

        Computed in float64 from the stored coordinates, so that every reader finds the same tile.

        Args:
            coordinates: Stored coordinates, shape (n, d), in the units of the grid's coordinate system.

        Returns:
            Tile coordinates, shape (n, d), int64, in the axis order of the grid.

        Raises:
            GridError: If a coordinate is not finite or lies outside the grid.

        """
        points = np.asarray(coordinates)
        tiles = self.unbounded_tiles_of(points)
        outside = ~((tiles >= 0) & (tiles < np.asarray(self.shape))).all(axis=1)
        if outside.any():
            raise GridError(self._outside_message(points, outside))
        return tiles.astype(np.int64)

    def tile_ids(self, coordinates: ArrayLike) -> NDArray[np.int64]:
        """Tile id of each point, in C order.

        Args:
            coordinates: Stored coordinates, shape (n, d), in the units of the grid's coordinate system.

        Returns:
            Tile ids, shape (n,), int64, from 0 to `n_tiles - 1`.

        Raises:
            GridError: If a coordinate is not finite or lies outside the grid.

        """
        return self.tiles_of(coordinates) @ np.asarray(self.strides, dtype=np.int64)

    def covered_tile_ids(self, columns: Sequence[NDArray[np.float64]]) -> NDArray[np.uint32]:
        """Tile id of each of many points that are known to lie in the grid: `tile_ids` without its check and copies.

        It is the arithmetic of `unbounded_tiles_of`, axis by axis; truncation equals the floor of what is not negative.

        Args:
            columns: Coordinates of the points, one array of shape (n,) per axis.

        Returns:
            Tile ids, shape (n,), uint32.

        """
        ids = np.zeros(len(columns[0]), dtype=np.uint32)
        for values, origin, size, count in zip(columns, self.origin, self.tile_size, self.shape, strict=True):
            if count > 1:
                ids *= np.uint32(count)
                quotient = np.subtract(values, origin)
                quotient /= size
                ids += quotient.astype(np.uint32)
        return ids

    def tile_coordinates(self, tile_ids: ArrayLike) -> NDArray[np.int64]:
        """Return the tile coordinates of tile ids.

        Args:
            tile_ids: Tile ids, shape (n,), any integer dtype.

        Returns:
            Tile coordinates, shape (n, d), int64.

        """
        ids = np.asarray(tile_ids, dtype=np.int64)
        return np.stack(np.unravel_index(ids, self.shape), axis=-1).astype(np.int64)

    def corners_of(self, box: Box) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the lower and upper corner of a box, infinite along the axes that it leaves out.

        Raises:
            GridError: If the box names an axis that the grid does not have, has corners of another length, or a bound
                that is not a number or lies below its partner.

        """
        return corners_of(box, self.axes)

    def tile_span(self, box: Box) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first tile and the tile after the last one that a half-open box touches, along each axis.

        Returns:
            Two arrays of shape (d,), int64; where the box touches no tile, the second is not above the first.

        """
        lower, upper = self.corners_of(box)
        # No point of a half-open box lies above the largest float below its bound, and tiles grow with coordinates.
        ends = self.unbounded_tiles_of(np.stack([lower, np.nextafter(upper, -np.inf)]))
        shape = np.asarray(self.shape)
        start = np.clip(ends[0], 0, shape).astype(np.int64)
        stop = np.clip(ends[1] + 1, 0, shape).astype(np.int64)
        return start, np.where((upper > lower).all(), stop, start)

    def tiles_in(self, box: Box) -> NDArray[np.int64]:
        """Tile ids that a half-open box touches.

        Args:
            box: `{"x": (lo, hi), ...}` or a pair of corners in the grid's axis order, in the grid's coordinate system.

        Returns:
            Tile ids, shape (k,), int64, ascending.

        """
        start, stop = self.tile_span(box)
        ids = np.zeros(1, dtype=np.int64)
        for first, end, stride in zip(start, stop, self.strides, strict=True):
            ids = (ids[:, None] + np.arange(first, end, dtype=np.int64) * stride).ravel()
        return ids

    def merged_axes(self) -> tuple[bool, ...]:
        """Say along which axes the next coarser grid is merged: those that stay most isotropic by it (RFC 3)."""
        open_sizes = [size for size, count in zip(self.tile_size, self.shape, strict=True) if count > 1]
        if not open_sizes:
            return (False,) * len(self.axes)
        bound = 2 * min(open_sizes)
        return tuple(count > 1 and size < bound for size, count in zip(self.tile_size, self.shape, strict=True))

    def coarser(self) -> "Grid":
        """Return the next coarser grid.

        Raises:
            GridError: If the grid is a single tile already.

        """
        merged = self.merged_axes()
        if not any(merged):
            raise GridError("a grid of a single tile has no coarser grid")
        return Grid(
            axes=self.axes,
            origin=self.origin,
            tile_size=tuple(2 * size if merge else size for size, merge in zip(self.tile_size, merged, strict=True)),
            shape=tuple(-(-count // 2) if merge else count for count, merge in zip(self.shape, merged, strict=True)),
        )

    def parents(self) -> NDArray[np.uint32]:
        """Return, for each tile id, the tile id in the next coarser grid: `t // 2` along the merged axes (P3).

        Returns:
            Shape (n_tiles,), uint32.

        """
        coarser = self.coarser()
        ids = np.zeros(1, dtype=np.int64)
        for count, merge, stride in zip(self.shape, self.merged_axes(), coarser.strides, strict=True):
            steps = np.arange(count, dtype=np.int64) // (2 if merge else 1)
            ids = (ids[:, None] + steps * stride).ravel()
        return ids.astype(np.uint32)

    def pyramid(self, max_levels: int | None = None) -> Iterator["Grid"]:
        """Yield the grids of level 0, 1, ..., down to a single tile or to `max_levels` grids, this one included."""
        grid, level = self, 1
        yield grid
        while any(grid.merged_axes()) and (max_levels is None or level < max_levels):
            grid, level = grid.coarser(), level + 1
            yield grid

    def scale_from(self, finer: "Grid") -> tuple[float, ...]:
        """Return, per axis, how many times larger a tile is than one of the finer grid."""
        return tuple(size / other for size, other in zip(self.tile_size, finer.tile_size, strict=True))

    def _outside_message(self, points: NDArray[np.generic], outside: NDArray[np.bool_]) -> str:
        row = int(np.flatnonzero(outside)[0])
        upper = [o + s * n for o, s, n in zip(self.origin, self.tile_size, self.shape, strict=True)]
        return (
            f"{int(outside.sum())} of {len(points)} points lie outside the grid, which reaches from {self.origin} to "
            f"{tuple(upper)} along {', '.join(self.axes)} (first: row {row} at "
            f"{tuple(float(value) for value in points[row])}); choose another origin or tile size"
        )


def corners_of(box: Box, axes: Sequence[str]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the lower and upper corner of a box along the axes, infinite along those that it leaves out.

    Raises:
        GridError: If the box names an unknown axis, has corners of another length, or a bound that is not a number or
            lies below its partner.

    """
    try:
        return _corners_of(box, axes)
    except (TypeError, ValueError) as error:
        if isinstance(error, GridError):
            raise
        raise GridError(
            f'the box {box!r} is not made of pairs of numbers ({error}); write it like {{"{axes[0]}": (0, 100)}}'
        ) from error


def _corners_of(box: Box, axes: Sequence[str]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if isinstance(box, Mapping):
        unknown = [name for name in box if name not in axes]
        if unknown:
            raise GridError(f"the box names the axis {unknown[0]!r}; the axes are {', '.join(axes)}")
        pairs = [tuple(box.get(name, (-np.inf, np.inf))) for name in axes]
    else:
        lengths = [len(corner) for corner in box]
        if lengths != [len(axes)] * 2:
            raise GridError(f"the corners have {lengths} values; a box over {', '.join(axes)} has 2 x {len(axes)}")
        pairs = list(zip(*box, strict=True))
    for name, pair in zip(axes, pairs, strict=True):
        # Written so that a bound that is not a number fails it too.
        if not (len(pair) == len(("lower", "upper")) and pair[0] <= pair[1]):
            raise GridError(f"a box needs a lower bound that is not above its upper one; along {name} it has {pair}")
    corners = np.asarray(pairs, dtype=np.float64).reshape(len(axes), 2)
    return corners[:, 0].copy(), corners[:, 1].copy()


def _check(grid: Grid) -> None:
    """Raise for a grid that cannot hold points."""
    lengths = {len(grid.axes), len(grid.origin), len(grid.tile_size), len(grid.shape)}
    if len(lengths) != 1 or not grid.axes:
        raise GridError(
            f"a grid needs one origin, tile size and number of tiles for each of its axes {grid.axes}; "
            f"got {grid.origin}, {grid.tile_size} and {grid.shape}"
        )
    if len(set(grid.axes)) != len(grid.axes):
        raise GridError(f"the axes {grid.axes} repeat a name")
    for name, size, begin, count in zip(grid.axes, grid.tile_size, grid.origin, grid.shape, strict=True):
        if not (math.isfinite(size) and size > 0):
            raise GridError(f"the tile size along {name} is {size}; it must be a finite number above zero")
        if not math.isfinite(begin):
            raise GridError(f"the origin along {name} is {begin}; it must be a finite number")
        if count < 1:
            raise GridError(f"the grid has {count} tiles along {name}; it must have at least one")
    if grid.n_tiles > MAX_TILES:
        raise GridError(f"the grid has {grid.n_tiles} tiles; at most {MAX_TILES} can be addressed: use larger tiles")


__all__ = ["Box", "Grid", "corners_of"]
