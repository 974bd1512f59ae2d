"""Byte ranges that lie near each other become one read. Pure: opens nothing."""

import math
from dataclasses import dataclass, replace

import numpy as np

from puncta.arrays._layout import Integers


@dataclass(frozen=True, slots=True, kw_only=True)
class Merging:
    """How far reads are merged."""

    gap: int
    """Bytes between two ranges that are worth reading with them."""

    waste: float
    """Bytes read in vain in a file, at most, as a share of the bytes wanted of it."""

    spare: int
    """Bytes that are read in vain in a file without a second thought, however few are wanted of it."""

    limit: int
    """A read is split at the first border of ranges after so many bytes; one range is never split."""


# A gap costs more than a second read where the bytes are at hand.
LOCAL = Merging(gap=0, waste=0.0, spare=0, limit=1 << 20)

# A request costs as much as some hundred kilobytes; yet twice the bytes is what a user on a slow line still forgives.
REMOTE = Merging(gap=64 << 10, waste=0.9, spare=32 << 10, limit=4 << 20)


def with_gap(merging: Merging, gap: int | None) -> Merging:
    """Return how to merge where the caller has chosen a gap, which then is read over whatever it costs."""
    return merging if gap is None else replace(merging, gap=gap, waste=math.inf)


def merge(starts: Integers, ends: Integers, merging: Merging) -> Integers:
    """Return where merged reads begin: positions in `starts`, then the number of ranges, shape (reads + 1,).

    Args:
        starts: First bytes, ascending, shape (n,).
        ends: Ends of the ranges, exclusive, shape (n,); ranges may overlap.
        merging: How far to merge.

    """
    if starts.size == 0:
        return np.zeros(1, np.int64)
    reach = np.maximum.accumulate(ends)
    gaps = np.maximum(starts[1:] - reach[:-1], 0)
    near = gaps[gaps <= merging.gap]
    if near.size == 0:
        return np.arange(starts.size + 1)
    wanted = int(reach[-1] - starts[0] - gaps.sum())
    apart = gaps > _widest(near, max(wanted * merging.waste, merging.spare))
    firsts = np.concatenate([[0], np.flatnonzero(apart) + 1])
    return _split_long(firsts, starts, reach, limit=merging.limit)


def _widest(gaps: Integers, allowed: float) -> int:
    """Return the widest gap to read over when the narrowest are taken first, until they add up to what is allowed."""
    gaps = np.sort(gaps)
    n = int(np.searchsorted(np.cumsum(gaps), allowed, "right"))
    # Of gaps of one width none or all are taken, since the answer is a width.
    if 0 < n < gaps.size and gaps[n - 1] == gaps[n]:
        n = int(np.searchsorted(gaps, gaps[n], "left"))
    return int(gaps[n - 1]) if n else 0


def _split_long(firsts: Integers, starts: Integers, reach: Integers, *, limit: int) -> Integers:
    """Split reads that are longer than the limit at the borders of their ranges."""
    begin = np.repeat(starts[firsts], np.diff(np.append(firsts, starts.size)))
    stretch = (starts - begin) // limit
    # A range that overlaps one before the border stays with it, or its bytes would be read twice.
    new = (np.diff(stretch) > 0) & (starts[1:] >= reach[:-1])
    borders = np.union1d(firsts, np.flatnonzero(new) + 1)
    return np.append(borders, starts.size).astype(np.int64)
