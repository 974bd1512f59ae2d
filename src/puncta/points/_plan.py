"""From a question to row ranges, and from row ranges to the row groups that hold them. Pure.

RFC 3, "Tile index", "Feature index" and "Reading"; decisions P6, P9 and P31.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

type Ranges = NDArray[np.int64]
"""Half-open row ranges, shape (m, 2), ascending and apart."""


def no_ranges() -> Ranges:
    """Return no ranges at all."""
    return np.zeros((0, 2), dtype=np.int64)


def merged(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Ranges:
    """Return the rows of half-open ranges as few ranges that do not touch.

    Args:
        starts: First rows, shape (m,), ascending.
        ends: Rows after the last, shape (m,); ranges may touch but not overlap.

    """
    filled = ends > starts
    starts, ends = starts[filled], ends[filled]
    if not len(starts):
        return no_ranges()
    gaps = np.flatnonzero(starts[1:] > ends[:-1])
    first = np.concatenate([[0], gaps + 1])
    last = np.concatenate([gaps, [len(ends) - 1]])
    return np.stack([starts[first], ends[last]], axis=1)


def ranges_of_tiles(tiles: NDArray[np.int64], offsets: NDArray[np.int64]) -> Ranges:
    """Return the rows of some tiles of a tile-order copy.

    Args:
        tiles: Tile ids, ascending.
        offsets: `tile_offsets` of the level, shape (n_tiles + 1,).

    """
    return merged(offsets[tiles], offsets[tiles + 1])


def padded(ranges: Ranges, offsets: NDArray[np.int64], chunk: int) -> Ranges:
    """Return where rows of the tile order lie in arrays in which each tile fills a chunk of its own.

    Args:
        ranges: Rows.
        offsets: `tile_offsets` of the level, shape (n_tiles + 1,).
        chunk: Rows of a chunk, as many as the largest tile has or more.

    Returns:
        Places, half-open, one range for each tile that a range meets; ascending, those of full tiles touch.

    """
    # of empty tiles at one row, the last has the row; the first of those at the end has none of the range
    first = np.searchsorted(offsets, ranges[:, 0], side="right") - 1
    counts = np.searchsorted(offsets, ranges[:, 1], side="left") - first
    which = np.repeat(np.arange(len(ranges)), counts)
    tiles = np.repeat(first, counts) + np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    begin, end = offsets[tiles], offsets[tiles + 1]
    shift = tiles * chunk - begin
    places = np.stack([np.maximum(ranges[which, 0], begin), np.minimum(ranges[which, 1], end)], axis=1)
    places += shift[:, None]
    return places[places[:, 1] > places[:, 0]]


def rows_in_blocks(ranges: Ranges, *, block: int, n_rows: int) -> int:
    """Return how many rows are decoded where rows come in blocks of one size, the last one shorter.

    Args:
        ranges: Rows wanted.
        block: Rows of a block.
        n_rows: Rows that there are.

    """
    first, end = ranges[:, 0] // block, -(-ranges[:, 1] // block)
    # ranges are ascending: two that meet in a block share its rows
    begin = np.maximum(first, np.append(0, end[:-1]))
    return int((np.minimum(end * block, n_rows) - np.minimum(begin * block, n_rows)).sum())


def tiles_among(own: NDArray[np.int64], tiles: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the positions in `own` of the tiles that are in `tiles`, too.

    Args:
        own: Tile ids, ascending.
        tiles: Tile ids, ascending.

    """
    if len(tiles) < len(own):
        at = np.searchsorted(own, tiles)
        found: NDArray[np.int64] = at[(at < len(own)) & (own[np.minimum(at, len(own) - 1)] == tiles)]
        return found
    return np.flatnonzero(_is_among(own, tiles))


def _is_among(values: NDArray[np.int64], ascending: NDArray[np.int64]) -> NDArray[np.bool_]:
    at = np.searchsorted(ascending, values)
    found: NDArray[np.bool_] = (at < len(ascending)) & (ascending[np.minimum(at, max(len(ascending) - 1, 0))] == values)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRead:
    """One read of some row groups of one part file."""

    part: int
    """Number of the part file."""

    groups: NDArray[np.int64]
    """Ordinals of the row groups within the file, ascending, none empty."""

    slices: Ranges
    """Rows to keep, counted through the rows of these groups."""

    n_rows: int
    """Rows of these groups."""


def reads_of(ranges: Ranges, group_starts: NDArray[np.int64], part_starts: NDArray[np.int64]) -> list[PartRead]:
    """Return the reads that bring some row ranges of a copy, one a part file.

    Args:
        ranges: Rows wanted.
        group_starts: First row of each row group, then the number of rows, shape (n_groups + 1,).
        part_starts: First row group of each part, then their number, shape (n_parts + 1,).

    """
    if not len(ranges):
        return []
    # of empty groups at one row, the last has the row; the first of those at the end has none of the range
    first = np.searchsorted(group_starts, ranges[:, 0], side="right") - 1
    end = np.searchsorted(group_starts, ranges[:, 1], side="left")
    groups = _union(first, end)
    groups = groups[group_starts[groups + 1] > group_starts[groups]]
    parts = np.searchsorted(part_starts, groups, side="right") - 1
    reads = []
    for part in parts[np.diff(parts, prepend=-1) > 0]:
        own = groups[parts == part]
        reads.append(_part_read(int(part), own, ranges, group_starts, int(part_starts[part])))
    return reads


def _union(first: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.int64]:
    counts = end - first
    steps = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    groups: NDArray[np.int64] = np.repeat(first, counts) + steps
    # ranges are ascending: a group of two of them stands twice in a row
    return groups[np.diff(groups, prepend=-1) > 0]


def _part_read(
    part: int, groups: NDArray[np.int64], ranges: Ranges, group_starts: NDArray[np.int64], first_group: int
) -> PartRead:
    starts, ends = group_starts[groups], group_starts[groups + 1]
    held = np.cumsum(ends - starts) - (ends - starts)
    # ranges that reach into this part's groups, cut to each group that they meet
    lower = np.searchsorted(ranges[:, 1], starts, side="right")
    upper = np.searchsorted(ranges[:, 0], ends, side="left")
    at = np.repeat(np.arange(len(groups)), upper - lower)
    which = np.arange(len(at)) - np.repeat(np.cumsum(upper - lower) - (upper - lower), upper - lower) + lower[at]
    begin = np.maximum(ranges[which, 0], starts[at]) - starts[at] + held[at]
    stop = np.minimum(ranges[which, 1], ends[at]) - starts[at] + held[at]
    return PartRead(
        part=part, groups=groups - first_group, slices=merged(begin, stop), n_rows=int((ends - starts).sum())
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which level answers a question, and how much of it is shown."""

    level: int
    """Number of the level."""

    share: float
    """Share of its rows to keep, by the hash of the points (P14); 1 for all."""


# A level that fills this much of the budget is shown whole: the finer one would cost several times the reading.
_FULL_ENOUGH = 0.75


def choose_level(expected: Sequence[float], budget: int) -> Choice:
    """Return the finest level expected to fit a budget, or the next finer one thinned to it.

    Args:
        expected: Rows expected in view at each level, finest first.
        budget: Rows to come back at the most.

    """
    fitting = next((level for level, rows in enumerate(expected) if rows <= budget), None)
    if fitting == 0 or (fitting is not None and expected[fitting] >= _FULL_ENOUGH * budget):
        return Choice(level=fitting, share=1.0)
    level = len(expected) - 1 if fitting is None else fitting - 1
    return Choice(level=level, share=min(target_of(budget) / max(expected[level], 1.0), 1.0))


def target_of(budget: int) -> float:
    """Return how many rows to aim at, so that thinning, which is binomial, hardly ever exceeds a budget.

    Four standard deviations below it, that happens 3 times in 100,000.
    """
    return max(budget - 4 * math.sqrt(budget), budget / 2)
