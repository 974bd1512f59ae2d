"""How well the tiles of level 0 fit the points: the cases of RFC 3, "When the spatial index helps" (P16). Pure."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

_TOO_MANY = 1.5
_TOO_FEW = 0.5
_HOTSPOT = 3.0


@dataclass(frozen=True, slots=True)
class Fit:
    """How well tiles fit."""

    case: Literal["a", "b", "c", "d"]
    """a: they fit; b: too large; c: too small; d: a hotspot makes one size fit badly everywhere."""

    text: str
    """The same in words and numbers."""


def fit_of(counts: NDArray[np.int64], limit: int) -> Fit:
    """Return how well tiles of these counts fit a limit.

    Args:
        counts: Points of each tile of level 0, shape (n_tiles,).
        limit: Points that the densest tile should hold.

    """
    occupied = counts[counts > 0]
    if not len(occupied):
        return Fit("c", "no tile holds a point")
    densest = int(occupied.max())
    dense = float(np.quantile(occupied, 0.95))
    numbers = (
        f"the densest tile holds {densest:,} points for a limit of {limit:,}, the median occupied tile "
        f"{int(np.median(occupied)):,}; {len(occupied):,} of {len(counts):,} tiles are occupied"
    )
    if len(occupied) > 1 and densest > _HOTSPOT * dense:
        return Fit(
            "d", f"a hotspot: {numbers}; 19 of 20 tiles hold at most {int(dense):,}, so one size cannot fit both"
        )
    if densest > _TOO_MANY * limit:
        return Fit("b", f"tiles too large: {numbers}; a finer grid would load less at once")
    if densest < _TOO_FEW * limit and len(counts) > 1:
        return Fit("c", f"tiles too small: {numbers}; a coarser grid would need fewer requests")
    return Fit("a", f"tiles that fit: {numbers}")
