"""The index of feature-major copies, as it is built: offsets, tiles, row groups and fractions.

RFC 3, "Feature index"; decisions P10 to P12, P15, P31 and P32.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from puncta.indexing._arrow_files import written_beside
from puncta.indexing._levels import FeatureTiles

MAX_FRACTIONS_IN_METADATA = 256
"""Above so many features their fractions are an array beside the offsets, not a list in the metadata (P12)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairFiles:
    """The tiles of the features of one copy, on disk: one file for each group of features.

    There are as many pairs of a feature and a tile as features times tiles at the most, which may be more than memory
    has room for.
    """

    folder: Path
    """Folder of the files; it is there."""

    def write(self, number: int, pairs: FeatureTiles) -> None:
        """Write the pairs of a group."""
        with written_beside(self._path(number)) as partial, partial.open("wb") as file:
            np.save(file, np.stack([pairs.tiles.astype(np.int64), pairs.counts]))

    def read(self, number: int) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Return the tile of each pair of a group, and its rows; each of shape (m,)."""
        tiles, counts = np.load(self._path(number))
        return tiles.astype(np.uint32), counts

    def _path(self, number: int) -> Path:
        return self.folder / f"{number}.npy"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureLevel:
    """The index of the feature-major copy of one level (P31)."""

    offsets: NDArray[np.int64]
    """First row of each feature, shape (n_features + 1,): the last entry is where the nulls begin."""

    n_rows: int
    """Rows stored, nulls included."""

    tile_indptr: NDArray[np.int64]
    """First pair of each feature, shape (n_features + 1,)."""

    pairs: PairFiles
    """Tile and rows of each pair, those of the nulls at the end."""

    n_groups: int
    """Groups of features, whose pairs are in one file each."""

    row_groups: NDArray[np.int64]
    """First row of each row group, then the number of rows."""

    parts: NDArray[np.int64]
    """First row group of each part file, then their number."""

    level_of: NDArray[np.uint8] | None
    """Level whose rows serve each feature, shape (n_features,), where not every level holds every feature."""

    def tiles_and_starts(self) -> Iterator[tuple[NDArray[np.uint32], NDArray[np.int64]]]:
        """Yield tile and first row of each pair of a feature, group after group."""
        left, row = int(self.tile_indptr[-1]), 0
        for number in range(self.n_groups):
            tiles, counts = self.pairs.read(number)
            yield tiles[:left], (row + np.cumsum(counts) - counts)[:left]
            left, row = max(left - len(tiles), 0), row + int(counts.sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureOrder:
    """The feature-major copies of one feature column."""

    levels: tuple[FeatureLevel, ...]
    """One a level that has a copy."""

    fractions: NDArray[np.float64]
    """P_g of each level and feature, shape (n_levels, n_features); of all levels, whether or not they have a copy."""

    null_fractions: NDArray[np.float64] | None
    """P_null of each level, shape (n_levels,), or None without null features."""
