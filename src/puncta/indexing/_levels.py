"""Plans of the levels: their fractions, how tiles are shared out into buckets, and where row groups are cut.

Pure. RFC 3, "Sampling"; decisions P6, P9, P13 and P15.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from puncta.points._grid import Grid
from puncta.points._sampling import is_kept, next_fraction

WINDOW_ROWS = 2**20
"""Rows that are looked at at once, and about those of a group of features."""


def fraction_of_next_level(
    counts: NDArray[np.int64], parents: NDArray[np.uint32], *, fraction: float, limit: int
) -> float:
    """Return P(l + 1) from the number of points of each tile of level l (RFC 3; c(l + 1) is the realised count).

    Args:
        counts: Points of level l in each of its tiles, shape (n_tiles,).
        parents: Tile of level l + 1 of each tile of level l, shape (n_tiles,).
        fraction: P(l).
        limit: Number of points that the densest tile is to hold.

    """
    merged = np.bincount(parents, weights=counts)
    return next_fraction(fraction, int(merged.max()), limit)


# Counting into a table of this many cells is faster than sorting, and takes 16 MB.
_MAX_DENSE_COUNTS = 2**21


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureTiles:
    """The tiles that some features occupy: per feature its non-empty tiles, ascending, and its rows in each."""

    features: NDArray[np.int64]
    """Feature of each pair, shape (m,), ascending."""

    tiles: NDArray[np.uint32]
    """Tile of each pair, shape (m,), ascending within a feature."""

    counts: NDArray[np.int64]
    """Rows of each pair, shape (m,)."""

    def moved(self, to_level: NDArray[np.uint32]) -> "FeatureTiles":
        """Return the same rows, counted by the tiles of a coarser level.

        Args:
            to_level: Tile of that level of each tile, shape (n_tiles,).

        """
        n_tiles = int(to_level[-1]) + 1  # C order: the last tile's ancestor is the last one
        keys = self.features * n_tiles + to_level[self.tiles]
        order = np.argsort(keys, kind="stable")
        keys, counts = keys[order], self.counts[order]
        starts = np.flatnonzero(np.diff(keys, prepend=-1))
        features, tiles = np.divmod(keys[starts], n_tiles)
        return FeatureTiles(features=features, tiles=tiles.astype(np.uint32), counts=_sums(counts, starts))

    def densest(self, n_features: int) -> NDArray[np.int64]:
        """Return the rows in the densest tile of each feature, shape (n_features,); 0 for one without rows."""
        densest = np.zeros(n_features, dtype=np.int64)
        np.maximum.at(densest, self.features, self.counts)
        return densest

    def only(self, features: NDArray[np.bool_]) -> "FeatureTiles":
        """Return the pairs of the features that are marked."""
        kept = features[self.features]
        return FeatureTiles(features=self.features[kept], tiles=self.tiles[kept], counts=self.counts[kept])


def feature_tiles_of(features: NDArray[np.integer], tiles: NDArray[np.uint32]) -> FeatureTiles:
    """Return the pairs of rows that are sorted by feature, then by tile.

    Args:
        features: Feature of each row, shape (n,).
        tiles: Tile of each row, shape (n,).

    """
    if not len(features):
        empty = np.zeros(0, dtype=np.int64)
        return FeatureTiles(features=empty, tiles=empty.astype(np.uint32), counts=empty)
    changes = (features[1:] != features[:-1]) | (tiles[1:] != tiles[:-1])
    starts = np.concatenate([[0], np.flatnonzero(changes) + 1])
    counts = np.diff(starts, append=len(features))
    return FeatureTiles(features=features[starts].astype(np.int64), tiles=tiles[starts], counts=counts)


def joined(parts: Sequence[FeatureTiles]) -> FeatureTiles:
    """Return pairs that follow each other as one."""
    return FeatureTiles(
        features=np.concatenate([part.features for part in parts]),
        tiles=np.concatenate([part.tiles for part in parts]),
        counts=np.concatenate([part.counts for part in parts]),
    )


def ancestors_of(grids: Sequence[Grid]) -> list[NDArray[np.uint32]]:
    """Return, for each level, the tile of that level which holds each tile of level 0, shape (n_tiles of level 0,)."""
    ancestors = [np.arange(grids[0].n_tiles, dtype=np.uint32)]
    for grid in grids[:-1]:
        ancestors.append(grid.parents()[ancestors[-1]])
    return ancestors


def feature_fractions(
    rows: tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.uint32]],
    pairs: FeatureTiles,
    ancestors: Sequence[NDArray[np.uint32]],
    *,
    limit: int,
) -> NDArray[np.float64]:
    """Return P_g of every level for features whose rows are all at hand.

    Rows are looked at only once a feature is thinned: until then the counts of its tiles are sums of those below.

    Args:
        rows: Rows of each feature, shape (n_features,); tile and u of each row of level 0, shape (n,), by feature.
        pairs: The same rows, counted by feature and tile.
        ancestors: Tile of each level of each tile of level 0, from `ancestors_of`.
        limit: Number of points that the densest tile of a feature is to hold.

    Returns:
        Fractions, shape (n_levels, n_features), float64.

    """
    counts, tiles, u = rows
    n_features = len(counts)
    fractions = np.ones((len(ancestors), n_features))
    thinned = np.zeros(n_features, dtype=bool)
    kept_counts, kept = np.zeros(n_features, dtype=np.int64), np.zeros(0, dtype=np.uint32)
    for level in range(1, len(ancestors)):
        to_level = ancestors[level]
        densest = pairs.moved(to_level).densest(n_features)
        np.maximum(densest, _densest_of(kept_counts, to_level[tiles[kept]]), out=densest)
        over = densest > limit
        fractions[level] = fractions[level - 1]
        fractions[level][over] *= limit / densest[over]
        newly = over & ~thinned
        if newly.any():
            pairs = pairs.only(~newly)
            thinned |= newly
        if over.any():
            # Features that are thinned already hold on to what they kept; the others start from all their rows.
            stored = np.where(thinned, fractions[level], 0.0)
            kept_counts, kept = rows_kept(counts, u, stored)
    return fractions


def fractions_of_one(
    tiles: NDArray[np.uint32], u: NDArray[np.uint32], ancestors: Sequence[NDArray[np.uint32]], *, limit: int
) -> NDArray[np.float64]:
    """Return P_g of every level for a single feature, of whose rows only a window is held at a time."""
    fractions = np.ones((len(ancestors), 1))
    for level in range(1, len(ancestors)):
        before = float(fractions[level - 1, 0])
        densest = int(counts_kept(tiles, u, before, ancestors[level]).max())
        fractions[level] = next_fraction(before, densest, limit)
    return fractions


def counts_kept(
    tiles: NDArray[np.uint32], u: NDArray[np.uint32], fraction: float, to_level: NDArray[np.uint32]
) -> NDArray[np.int64]:
    """Return how many of the rows that a fraction keeps lie in each tile of a level, window by window.

    Args:
        tiles: Tile of level 0 of each row, shape (n,).
        u: Number of each row, shape (n,).
        fraction: The fraction; 0 keeps none.
        to_level: Tile of the level of each tile of level 0, from `ancestors_of`.

    """
    counts = np.zeros(int(to_level[-1]) + 1, dtype=np.int64)
    for start in range(0, len(u) if fraction else 0, WINDOW_ROWS):
        window = slice(start, start + WINDOW_ROWS)
        kept = tiles[window][is_kept(u[window], fraction)]
        counts += np.bincount(to_level[kept], minlength=len(counts))
    return counts


def pairs_of_one(counts: NDArray[np.int64]) -> FeatureTiles:
    """Return the pairs of a single feature from its rows in each tile."""
    tiles = np.flatnonzero(counts)
    return FeatureTiles(
        features=np.zeros(len(tiles), dtype=np.int64), tiles=tiles.astype(np.uint32), counts=counts[tiles]
    )


def blocks_of(
    tiles: NDArray[np.uint32], to_level: NDArray[np.uint32], row_tiles: int, *, target_rows: int
) -> Iterator[tuple[int, int]]:
    """Yield half-open ranges of rows, sorted by tile, whose tiles at a coarser level follow those of the range before.

    Args:
        tiles: Tile of level 0 of each row, shape (n,), ascending.
        to_level: Tile of the coarser level of each tile of level 0, from `ancestors_of`.
        row_tiles: Tiles of the coarser level that share one coordinate along the first axis.
        target_rows: Rows after which a range ends, where it may.

    """
    # In C order the first axis varies slowest: at every level, tiles of one coordinate along it come before those of
    # the next, and merging keeps neighbours together.
    slabs = to_level // np.uint32(row_tiles)
    borders = np.append(np.flatnonzero(np.diff(slabs, prepend=slabs[:1])), len(slabs))
    starts = np.unique(np.searchsorted(tiles, borders))
    first = 0
    for start in starts.tolist():
        if start - first >= target_rows or start == len(tiles):
            if start > first:
                yield first, start
            first = start


def rows_kept(
    counts: NDArray[np.int64], u: NDArray[np.uint32], fractions: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """Return the rows that a level holds of each feature: how many, and at which positions.

    Args:
        counts: Rows of each feature, shape (n_features,), fewer than 2**32 in all.
        u: Number of each row, shape (n,), by feature.
        fractions: Fraction of each feature at that level; 0 for one that the level does not store.

    """
    starts = np.cumsum(counts) - counts
    # Positions of half the width: for one feature of ten million rows each array counts.
    positions = [
        np.flatnonzero(is_kept(u[start : start + count], fraction)).astype(np.uint32) + np.uint32(start)
        for start, count, fraction in zip(starts.tolist(), counts.tolist(), fractions.tolist(), strict=True)
        if fraction and count
    ]
    kept = np.zeros(len(counts), dtype=np.int64)
    kept[(fractions > 0) & (counts > 0)] = [len(part) for part in positions]
    if len(positions) == 1:
        return kept, positions[0]
    return kept, np.concatenate([*positions, np.zeros(0, dtype=np.uint32)])


def _densest_of(counts: NDArray[np.int64], tiles: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Return the rows in the densest tile of each feature, shape (n_features,), of rows by feature."""
    n_features, n_tiles = len(counts), int(tiles.max()) + 1 if len(tiles) else 1
    keys = np.repeat(np.arange(n_features, dtype=np.int64) * n_tiles, counts) + tiles
    if n_features * n_tiles <= _MAX_DENSE_COUNTS:
        return np.bincount(keys, minlength=n_features * n_tiles).reshape(n_features, n_tiles).max(axis=1)
    keys, found = np.unique(keys, return_counts=True)
    densest = np.zeros(n_features, dtype=np.int64)
    np.maximum.at(densest, keys // n_tiles, found)
    return densest


def _sums(values: NDArray[np.int64], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.add.reduceat(values, starts) if len(starts) else values[:0]


def buckets_of_tiles(counts: NDArray[np.int64], *, tiles_per_part: int, target_rows: int) -> NDArray[np.int64]:
    """Return the first tile of each bucket: runs of neighbouring tiles of one part with about `target_rows` rows.

    A bucket never crosses a part file, and a single tile is never split.

    Args:
        counts: About how many rows each tile holds, shape (n_tiles,).
        tiles_per_part: Tiles of a part file.
        target_rows: Rows that a bucket should not exceed.

    Returns:
        First tiles, ascending, beginning with 0, int64.

    """
    starts: list[int] = []
    for part in range(0, len(counts), tiles_per_part):
        ends = np.cumsum(counts[part : part + tiles_per_part])
        position, before = 0, 0
        while position < len(ends):
            starts.append(part + position)
            # at least one tile, and as many more as fit
            position = max(int(np.searchsorted(ends, before + target_rows, side="right")), position + 1)
            before = int(ends[position - 1])
    return np.asarray(starts, dtype=np.int64)


def row_group_cuts(pairs: FeatureTiles, *, target_rows: int) -> NDArray[np.int64]:
    """Return the first row of each row group of a feature-major copy (P9).

    Groups hold about `target_rows` rows; they end where a feature ends if one ends nearby, otherwise where a tile ends.

    Args:
        pairs: Feature and tile of the rows, in order.
        target_rows: Rows of a row group.

    Returns:
        First rows, ascending, beginning with 0, int64; empty without rows.

    """
    if not len(pairs.counts):
        return np.zeros(0, dtype=np.int64)
    ends = np.cumsum(pairs.counts)
    is_feature_end = np.append(pairs.features[1:] != pairs.features[:-1], True)
    feature_ends = ends[is_feature_end]
    cuts, total = [0], int(ends[-1])
    while total - cuts[-1] > target_rows:
        start = cuts[-1]
        feature = np.searchsorted(feature_ends, start + target_rows + target_rows // 4, side="right")
        candidate = int(feature_ends[feature - 1]) if feature else 0
        if candidate < start + max(target_rows // 2, 1):
            tile = max(int(np.searchsorted(ends, start + target_rows, side="right")) - 1, 0)
            candidate = int(ends[tile]) if ends[tile] > start else int(ends[tile + 1])
        if candidate >= total:
            break
        cuts.append(candidate)
    return np.asarray(cuts, dtype=np.int64)
