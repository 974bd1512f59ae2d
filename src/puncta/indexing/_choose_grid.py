"""Chooses the grid of level 0: the user's where given, the automatic one where not (P2, P16)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from puncta.errors import GridError
from puncta.indexing._histogram import Histogram, choose_tile_size, round_above
from puncta.indexing._partition import Placement, bounds, count_outside, histogram
from puncta.indexing._stage import Staged
from puncta.points._grid import Grid


@dataclass(frozen=True, slots=True, kw_only=True)
class GridWishes:
    """What the user asked of the grid."""

    tile_size: tuple[float, ...] | None
    """Edge lengths: one for all axes but z, or one per axis."""

    origin: tuple[float, ...] | None
    """Lower corner of tile 0, one per axis."""

    max_tiles: int
    """Tiles of level 0 at the most."""

    limit: int
    """Points that the densest tile is to hold."""


def choose_grid(
    staged: Staged, placement: Placement, wishes: GridWishes, *, workers: int
) -> tuple[Grid, NDArray[np.int64]]:
    """Return the grid of level 0, and about how many rows each of its tiles holds.

    Raises:
        GridError: If the grid that was asked for does not cover the points, or has too many tiles.

    """
    lower, upper = bounds(staged, placement, workers=workers)
    flat = [axis for axis, name in enumerate(placement.axes) if name != "z"] or list(range(len(placement.axes)))
    counted = histogram(staged, placement, flat, lower=lower, upper=upper)
    if wishes.tile_size is None:
        sizes, origin = _automatic(counted, placement.axes, flat, wishes, lower=lower, upper=upper)
    else:
        sizes = _expanded(wishes.tile_size, placement.axes, lower=lower, upper=upper, origin=wishes.origin)
        origin = wishes.origin or tuple(lower.tolist())
    if len(origin) != len(placement.axes):
        raise GridError(f"the origin {origin} has {len(origin)} values; the axes are {', '.join(placement.axes)}")
    grid = _covering(staged, placement, sizes, origin, bounds=(lower, upper), workers=workers)
    if grid.n_tiles > wishes.max_tiles:
        raise GridError(
            f"tiles of {sizes} would make {grid.n_tiles} tiles ({' x '.join(map(str, grid.shape))}), more than "
            f"{wishes.max_tiles}; choose larger tiles, or raise --max-tiles"
        )
    return grid, _estimate(counted, grid, flat, staged.n_rows)


def _automatic(
    counted: Histogram,
    axes: Sequence[str],
    flat: Sequence[int],
    wishes: GridWishes,
    *,
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the tile sizes and the origin that fit the limit; z is one slab."""
    choice = choose_tile_size(counted, limit=wishes.limit, max_tiles=wishes.max_tiles)
    sizes, origin = [0.0] * len(axes), [0.0] * len(axes)
    for position, axis in enumerate(flat):
        # The rounded product of a multiple and the tile size may lie an ulp above the lowest point.
        sizes[axis], origin[axis] = choice.tile_size, min(choice.origin[position], float(lower[axis]))
    for axis in set(range(len(axes))) - set(flat):
        begin = float(lower[axis]) if wishes.origin is None else wishes.origin[axis]
        sizes[axis], origin[axis] = _slab(begin, float(upper[axis]))
    return tuple(sizes), wishes.origin or tuple(origin)


def _slab(lower: float, upper: float) -> tuple[float, float]:
    """Return the round size and the origin of one tile from `lower` to `upper`, both included."""
    size = round_above(upper - lower)
    origin = min(math.floor(lower / size) * size, lower)
    # A round origin may leave the far end outside; the lowest point itself never does.
    return size, origin if upper < origin + size else lower


def _expanded(
    tile_size: tuple[float, ...],
    axes: Sequence[str],
    *,
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    origin: tuple[float, ...] | None,
) -> tuple[float, ...]:
    """Return one tile size per axis: a single number is for all axes but z, which stays one slab."""
    if len(tile_size) == len(axes):
        return tile_size
    if len(tile_size) != 1:
        raise GridError(
            f"{len(tile_size)} tile sizes {tile_size} for the {len(axes)} axes {', '.join(axes)}; give one, or one each"
        )
    sizes = []
    for axis, name in enumerate(axes):
        begin = float(lower[axis]) if origin is None or len(origin) != len(axes) else origin[axis]
        sizes.append(round_above(float(upper[axis]) - begin) if name == "z" else tile_size[0])
    return tuple(sizes)


def _covering(
    staged: Staged,
    placement: Placement,
    sizes: tuple[float, ...],
    origin: tuple[float, ...],
    *,
    bounds: tuple[NDArray[np.float64], NDArray[np.float64]],
    workers: int,
) -> Grid:
    lower, upper = bounds
    # An upper bound below the origin would make a grid without tiles: the grid is made to hold its own origin.
    reach = np.maximum(upper, origin)
    grid = Grid.covering(
        np.maximum(lower, origin).tolist(), reach.tolist(), axes=placement.axes, tile_size=sizes, origin=origin
    )
    if (lower < np.asarray(origin)).any():
        count, example = count_outside(staged, placement, grid, workers=workers)
        raise GridError(
            f"{count} of {staged.n_rows} points lie below the origin {origin} (first: {example}); the lowest "
            f"coordinates are {tuple(lower.tolist())}: lower the origin, or leave it out"
        )
    return grid


def _estimate(counted: Histogram, grid: Grid, flat: Sequence[int], n_rows: int) -> NDArray[np.int64]:
    """Return about how many rows each tile holds, shape (n_tiles,)."""
    blocks = counted.block_counts([grid.tile_size[axis] for axis in flat], [grid.origin[axis] for axis in flat])
    fitted = np.zeros([grid.shape[axis] for axis in flat], dtype=np.float64)
    common = tuple(slice(0, min(have, want)) for have, want in zip(blocks.shape, fitted.shape, strict=True))
    fitted[common] = blocks[common]
    thick = [axis for axis in range(len(grid.axes)) if axis not in flat]
    for axis in thick:
        # z is not in the histogram: its slices are taken to be alike.
        fitted = np.expand_dims(fitted / grid.shape[axis], axis).repeat(grid.shape[axis], axis)
    scale = n_rows / max(fitted.sum(), 1)
    return np.ceil(fitted.ravel() * scale).astype(np.int64)
