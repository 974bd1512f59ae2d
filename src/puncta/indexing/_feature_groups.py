"""What is known of groups of features that were written, and what it makes together.

RFC 3, "Feature index"; decisions P15, P31 and P32.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from puncta.indexing._feature_index import FeatureLevel, FeatureOrder, PairFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelDone:
    """What is known of the rows of a group at one level."""

    feature_rows: NDArray[np.int64]
    """Rows of each feature of the group."""

    feature_pairs: NDArray[np.int64]
    """Tiles in which each feature of the group has rows."""

    cuts: NDArray[np.int64]
    """First row of each row group, counted from the first row of the group."""

    parts: tuple[int, ...]
    """Row groups of each part file."""

    windows: tuple[int, ...]
    """Rows of each run that was laid down for the Zarr layout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDone:
    """What is known of a group that was written."""

    fractions: NDArray[np.float64]
    """P_g, shape (n_levels, features of the group)."""

    levels: tuple[LevelDone, ...]
    """One a level that has a copy."""


def order_of(
    groups: Sequence[GroupDone], pairs: Sequence[PairFiles], *, n_features: int, shared: bool, has_nulls: bool
) -> FeatureOrder:
    """Return the copies of a feature column from what its groups were found to have.

    Args:
        groups: The groups, in the order of their features.
        pairs: Where the tiles of the features of each level are.
        n_features: Features, without the one that stands for none.
        shared: Whether a level stores only the features whose fraction changed at it.
        has_nulls: Whether there are rows without a feature.

    """
    fractions = np.concatenate([group.fractions for group in groups], axis=1)
    level_of = _levels_that_serve(fractions[:, :n_features]) if shared else None
    levels = [
        _level_of(
            [group.levels[level] for group in groups],
            files,
            n_features,
            None if level_of is None or not level else level_of[level],
        )
        for level, files in enumerate(pairs)
    ]
    return FeatureOrder(
        levels=tuple(levels),
        fractions=fractions[:, :n_features],
        null_fractions=fractions[:, n_features] if has_nulls else None,
    )


def _levels_that_serve(fractions: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Return, per level and feature, the last level at which the feature's fraction changed (P15)."""
    changed = np.diff(fractions, axis=0, prepend=fractions[:1]) != 0
    numbers = np.where(changed, np.arange(len(fractions))[:, None], 0)
    return np.maximum.accumulate(numbers, axis=0).astype(np.uint8)


def _level_of(
    groups: Sequence[LevelDone], pairs: PairFiles, n_features: int, level_of: NDArray[np.uint8] | None
) -> FeatureLevel:
    rows = np.concatenate([group.feature_rows for group in groups])
    n_pairs = np.concatenate([group.feature_pairs for group in groups])
    group_rows = [int(group.feature_rows.sum()) for group in groups]
    first_rows = np.cumsum([0, *group_rows[:-1]])
    n_rows = int(rows.sum())
    cuts = [group.cuts + first for group, first in zip(groups, first_rows.tolist(), strict=True)]
    return FeatureLevel(
        offsets=np.concatenate([[0], np.cumsum(rows[:n_features])]).astype(np.int64),
        n_rows=n_rows,
        tile_indptr=np.concatenate([[0], np.cumsum(n_pairs[:n_features])]).astype(np.int64),
        pairs=pairs,
        n_groups=len(groups),
        row_groups=np.append(np.concatenate(cuts), n_rows).astype(np.int64),
        parts=_part_starts(groups),
        level_of=level_of,
    )


def _part_starts(groups: Sequence[LevelDone]) -> NDArray[np.int64]:
    counts = [count for group in groups for count in group.parts]
    # a copy without rows has one part, without row groups
    return np.concatenate([[0], np.cumsum(counts or [0])]).astype(np.int64)
