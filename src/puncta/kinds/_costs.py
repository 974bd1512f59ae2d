"""What each way of writing feature-major levels costs, in rows (P15)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from puncta.points import Level, Points

__all__ = ["feature_level_costs"]


def feature_level_costs(points: Points) -> dict[str, int] | None:
    """Return the rows that the feature-major copies of all levels hold in each mode, or None without such copies.

    The mode that was written is counted; the others are what the fractions of the features let expect.

    """
    if points.feature_levels is None:
        return None
    costs = dict.fromkeys(("all", "shared", "none"), 0)
    for key in points.feature_keys:
        further = None if key == points.feature_key else key
        for mode, rows in _costs_of_column(points, further).items():
            costs[mode] += rows
    return costs


def _costs_of_column(points: Points, further: str | None) -> dict[str, int]:
    levels = points.levels
    counts, fractions = _counts(levels[0], further), _fractions(points, further)
    expected = counts * fractions
    # a feature whose fraction did not change is served by an earlier level; nulls, the last, are stored everywhere
    is_stored = np.diff(fractions, axis=0, prepend=np.zeros((1, len(counts)))) != 0
    is_stored[:, -1] = True
    costs = {
        "all": round(float(expected.sum())),
        "shared": round(float(expected[is_stored].sum())),
        "none": int(counts.sum()),
    }
    costs[str(points.feature_levels)] = sum(_rows(level, further) for level in levels)
    return costs


def _rows(level: Level, further: str | None) -> int:
    """Return the rows of a level's copy; 0 without one."""
    rows = level.n_rows_feature if further is None else level.by.get(further, {}).get("n_rows_feature")
    return int(rows or 0)


def _counts(level: Level, further: str | None) -> NDArray[np.int64]:
    """Return the points of each feature, those without one at the end, shape (n_features + 1,)."""
    offsets = level.copy(further).rows.offsets
    return np.append(np.diff(offsets), _rows(level, further) - int(offsets[-1])).astype(np.int64)


def _fractions(points: Points, further: str | None) -> NDArray[np.float64]:
    """Return P_g of every level and feature, that of the points without one at the end."""
    levels = points.levels
    n_features = len(levels[0].copy(further).rows.offsets) - 1
    fractions = np.ones((len(levels), n_features + 1))
    for number, level in enumerate(levels[1:], 1):
        sampling = level.sampling if further is None else level.by.get(further, {})
        # where only level 0 has a copy, no level says what its features' fractions would be
        if "P_feature" not in sampling:
            fractions[number, :-1] = _expected(levels[: number + 1], further, points.limit)
            continue
        fractions[number, :-1] = level.copy(further).fractions
        fractions[number, -1] = sampling.get("P_null", 1.0)
    return fractions


def _expected(levels: Sequence[Level], further: str | None, limit: int | None) -> NDArray[np.float64]:
    """Return the fractions that a level would have, were its realised counts the expected ones.

    With C(l) all points of the feature in its densest tile and c(l) = P(l-1) * C(l), the rule
    P(l) = P(l-1) * min(1, limit / c(l)) becomes min(1, limit / C(l)), since C only grows.

    """
    rows, grid = levels[0].copy(further).rows, levels[-1].grid
    n_features = len(rows.offsets) - 1
    if limit is None:
        return np.ones(n_features)
    tiles, starts = rows.all_pairs()
    for level in levels[:-1]:
        tiles = level.grid.parents()[tiles]
    features = np.repeat(np.arange(n_features), np.diff(rows.indptr))
    keys, places = np.unique(features * grid.n_tiles + tiles, return_inverse=True)
    merged = np.bincount(places, weights=np.diff(starts, append=rows.offsets[-1]), minlength=len(keys))
    densest = np.ones(n_features)
    np.maximum.at(densest, keys // grid.n_tiles, merged)
    return np.minimum(1.0, limit / densest)
