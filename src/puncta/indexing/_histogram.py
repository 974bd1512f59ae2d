"""The automatic grid: a fine histogram of the points, and the tile size whose densest tile holds about `limit` points.

Pure. RFC 3, "When the spatial index helps"; decision P16.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MAX_BINS = 2**22
"""Bins of the fine histogram: 32 MB of counts, and two thousand bins along each side of a square section."""

_ROUND = (1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2.0, 2.2, 2.5, 2.8, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0)
_ROUND_BINS = (1.0, 2.0, 5.0)

# The number of a bin is exact in float64 up to 2**53; some bits are left to the division.
_FINEST = 2.0**-48


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """Counts of points in fine bins of equal edge over the axes that are cut into tiles."""

    first: tuple[int, ...]
    """Bin number of the lower corner along each axis; bin i spans [i * edge, (i + 1) * edge)."""

    edge: float
    """Edge of a bin, a round number, in the units of the grid's coordinate system."""

    counts: NDArray[np.int64]
    """Number of points of each bin, one axis per axis."""

    def add(self, coordinates: Sequence[NDArray[np.float64]], weight: int = 1) -> None:
        """Count points into their bins.

        Args:
            coordinates: One array of shape (n,) per axis, within the bounds that the histogram was made for.
            weight: How many points each row stands for.

        """
        bins = np.zeros(len(coordinates[0]), dtype=np.int64)
        for values, first, size in zip(coordinates, self.first, self.counts.shape, strict=True):
            bins *= size
            # A value on the border may round into the next bin; the counts only choose a tile size.
            bins += np.clip(np.floor(values / self.edge).astype(np.int64) - first, 0, size - 1)
        self.counts.ravel()[:] += weight * np.bincount(bins, minlength=self.counts.size)

    def block_counts(self, edges: Sequence[float], origin: Sequence[float]) -> NDArray[np.int64]:
        """Return about how many points each tile of a grid holds: each bin is counted where its centre lies.

        Args:
            edges: Tile size along each axis.
            origin: Lower corner of tile 0.

        Returns:
            Shape of the tiles that the bins reach.

        """
        counts = self.counts
        for axis, (size, begin, first) in enumerate(zip(edges, origin, self.first, strict=True)):
            centres = (np.arange(counts.shape[axis]) + first + 0.5) * self.edge
            tiles = np.maximum(np.floor((centres - begin) / size).astype(np.int64), 0)
            starts = np.flatnonzero(np.diff(tiles, prepend=-1))
            summed = np.add.reduceat(counts, starts, axis=axis)
            shape = list(summed.shape)
            shape[axis] = int(tiles[-1]) + 1
            counts = np.zeros(shape, dtype=np.int64)
            counts[(slice(None),) * axis + (tiles[starts],)] = summed
        return counts


def empty_histogram(lower: Sequence[float], upper: Sequence[float], *, max_bins: int = MAX_BINS) -> Histogram:
    """Return a histogram without points whose bins reach from `lower` to `upper`, both included."""
    extents = [high - low for low, high in zip(lower, upper, strict=True)]
    per_axis = max_bins ** (1 / len(extents))
    # Bins finer than the coordinates themselves could not be told apart, nor counted, far from zero.
    finest = max(map(abs, (*lower, *upper))) * _FINEST
    edge = _round_up(max(max(extents) / per_axis, finest), _ROUND_BINS) if any(extents) else 1.0
    while True:
        first = tuple(math.floor(low / edge) for low in lower)
        shape = tuple(math.floor(high / edge) - begin + 1 for high, begin in zip(upper, first, strict=True))
        # A long thin section may take more bins along its length for the same memory.
        finer = _round_down(edge)
        too_many = math.prod(math.ceil(count * edge / finer) + 1 for count in shape) > max_bins
        if too_many or finer < finest or not any(extents):
            return Histogram(first=first, edge=edge, counts=np.zeros(shape, dtype=np.int64))
        edge = finer


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A tile size, and how it fits."""

    tile_size: float
    """Edge of a tile, a round number."""

    origin: tuple[float, ...]
    """Lower corner of tile 0: the largest multiple of the tile size below every point."""

    densest: int
    """About how many points the densest tile holds."""


def choose_tile_size(histogram: Histogram, *, limit: int, max_tiles: int) -> Choice:
    """Return the round tile size whose densest tile holds about `limit` points, within `max_tiles` tiles (P16)."""
    best: Choice | None = None
    for size in _sizes(histogram):
        origin = tuple(math.floor(begin * histogram.edge / size) * size for begin in histogram.first)
        if _tiles_reached(histogram, size, origin) > max_tiles:
            continue
        counts = histogram.block_counts((size,) * histogram.counts.ndim, origin)
        choice = Choice(tile_size=size, origin=origin, densest=int(counts.max()))
        if best is not None and _misfit(choice, limit) > _misfit(best, limit) and choice.densest > limit:
            break
        if best is None or _misfit(choice, limit) < _misfit(best, limit):
            best = choice
        if counts.size == 1:
            break
    return _single_tile(histogram) if best is None else best


def _tiles_reached(histogram: Histogram, size: float, origin: Sequence[float]) -> int:
    """Return how many tiles the bins reach, whole: a point may lie beyond the centre of its bin."""
    ends = [
        (first + count) * histogram.edge for first, count in zip(histogram.first, histogram.counts.shape, strict=True)
    ]
    return math.prod(max(math.ceil((end - begin) / size), 1) for end, begin in zip(ends, origin, strict=True))


def _single_tile(histogram: Histogram) -> Choice:
    """Return one tile for everything, from the lowest bin: at round multiples, points around zero always need two."""
    return Choice(
        tile_size=round_above(max(histogram.counts.shape) * histogram.edge),
        origin=tuple(begin * histogram.edge for begin in histogram.first),
        densest=int(histogram.counts.sum()),
    )


def _misfit(choice: Choice, limit: int) -> float:
    return abs(math.log(max(choice.densest, 1) / limit))


def _sizes(histogram: Histogram) -> Iterator[float]:
    """Yield round tile sizes, ascending, from one bin to one that holds everything."""
    extent = (max(histogram.counts.shape) + 1) * histogram.edge
    size = histogram.edge
    while True:
        yield size
        if size > 2 * extent:
            return
        size = _round_up(size * (1 + 1e-9), _ROUND)


def round_above(value: float) -> float:
    """Return the smallest round number above a value that is not negative; 1 for zero."""
    return _round_up(value * (1 + 1e-9), _ROUND) if value > 0 else 1.0


def _round_up(value: float, mantissas: tuple[float, ...]) -> float:
    exponent = math.floor(math.log10(value))
    for mantissa in (*mantissas, 10.0):
        # float("1.2e3") is the double nearest to the number a person writes; 1.2 * 10**3 need not be.
        candidate = float(f"{mantissa}e{exponent}")
        if candidate >= value:
            return candidate
    return float(f"1e{exponent + 1}")


def _round_down(value: float) -> float:
    """Return the next smaller round bin edge."""
    exponent = math.floor(math.log10(value))
    below = [float(f"{mantissa}e{power}") for power in (exponent - 1, exponent) for mantissa in _ROUND_BINS]
    return max(candidate for candidate in below if candidate < value)
