"""The index of feature-major copies, as it is built: offsets, tiles, row groups and fractions. Pure.

RFC 3, "Feature index"; decisions P10 to P12, P15, P31 and P32.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MAX_FRACTIONS_IN_METADATA = 256
"""Above so many features their fractions are an array beside the offsets, not a list in the metadata (P12)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureLevel:
    """The index of the feature-major copy of one level (P31)."""

    offsets: NDArray[np.int64]
    """First row of each feature, shape (n_features + 1,): the last entry is where the nulls begin."""

    n_rows: int
    """Rows stored, nulls included."""

    tile_indptr: NDArray[np.int64]
    """First pair of each feature, shape (n_features + 1,)."""

    tiles: NDArray[np.uint32]
    """Tile of each pair, ascending within a feature."""

    tile_starts: NDArray[np.int64]
    """First row of each pair."""

    row_groups: NDArray[np.int64]
    """First row of each row group, then the number of rows."""

    parts: NDArray[np.int64]
    """First row group of each part file, then their number."""

    level_of: NDArray[np.uint8] | None
    """Level whose rows serve each feature, shape (n_features,), where not every level holds every feature."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureOrder:
    """The feature-major copies of one feature column."""

    levels: tuple[FeatureLevel, ...]
    """One a level that has a copy."""

    fractions: NDArray[np.float64]
    """P_g of each level and feature, shape (n_levels, n_features); of all levels, whether or not they have a copy."""

    null_fractions: NDArray[np.float64] | None
    """P_null of each level, shape (n_levels,), or None without null features."""
