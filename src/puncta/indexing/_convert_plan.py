"""How a copy of the points is cut when its layout changes: chunks, files, and windows that fit into memory. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from puncta.indexing._levels import FeatureTiles, row_group_cuts


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Rows that are read, and written, at once: whole chunks."""

    first: int
    """First row."""

    end: int
    """Row after the last."""

    starts: NDArray[np.int64]
    """First row of each chunk, counted from the first row, shape (k,)."""

    @property
    def n_rows(self) -> int:
        """How many rows it has."""
        return self.end - self.first

    @property
    def rows_at_once(self) -> int:
        """How many of them are held at one time."""
        return self.n_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file to write: a part file, or a shard."""

    number: int
    """Its number."""

    windows: tuple[Window, ...]
    """Its rows."""

    @property
    def n_rows(self) -> int:
        """How many rows it has."""
        return sum(window.n_rows for window in self.windows)

    @property
    def rows_at_once(self) -> int:
        """How many of them are held at one time."""
        return max((window.n_rows for window in self.windows), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cuts:
    """Where the rows of a copy are cut into chunks (or row groups), and these into files."""

    chunks: NDArray[np.int64]
    """First row of each chunk, then the number of rows, shape (n_chunks + 1,)."""

    files: NDArray[np.int64]
    """First chunk of each file, then their number, shape (n_files + 1,)."""

    def windows_of(self, *, window_rows: int) -> list[File]:
        """Return the files, their chunks put together to windows of so many rows; a larger chunk is one alone."""
        return [
            File(number=number, windows=tuple(self._windows(int(first), int(end), window_rows)))
            for number, (first, end) in enumerate(zip(self.files[:-1], self.files[1:], strict=True))
        ]

    def _windows(self, first: int, end: int, window_rows: int) -> Iterable[Window]:
        while first < end:
            fits = int(np.searchsorted(self.chunks, self.chunks[first] + window_rows, side="right")) - 1
            stop = min(max(fits, first + 1), end)
            row = int(self.chunks[first])
            yield Window(first=row, end=int(self.chunks[stop]), starts=self.chunks[first:stop] - row)
            first = stop


def tile_cuts(offsets: NDArray[np.int64], *, tiles_per_file: int) -> Cuts:
    """Return how a tile order is cut: a chunk for each tile.

    Args:
        offsets: First row of each tile, then the number of rows.
        tiles_per_file: Tiles of a part file, or of a shard.

    """
    n_tiles = len(offsets) - 1
    return Cuts(chunks=offsets, files=np.append(np.arange(0, n_tiles, tiles_per_file), n_tiles))


def even_cuts(n_rows: int, *, chunk_rows: int, chunks_per_file: int) -> Cuts:
    """Return how plain rows are cut into chunks of one length, the last one shorter."""
    chunks = np.append(np.arange(0, n_rows, chunk_rows), n_rows)
    n_chunks = len(chunks) - 1
    return Cuts(chunks=chunks, files=np.append(np.arange(0, n_chunks, chunks_per_file), n_chunks))


def group_cuts(groups: Iterable[FeatureTiles], *, target_rows: int, groups_per_file: int) -> Cuts:
    """Return how a feature-major copy is cut into row groups, and these into part files (P9).

    Args:
        groups: Feature and tile of the rows, one group of features after the other; no file holds rows of two.
        target_rows: Rows of a row group.
        groups_per_file: Row groups of a part file at the most.

    """
    chunks, n_rows, n_chunks = [np.zeros(0, dtype=np.int64)], 0, 0
    files: list[int] = []
    for pairs in groups:
        cuts = row_group_cuts(pairs, target_rows=target_rows)
        chunks.append(cuts + n_rows)
        files += range(n_chunks, n_chunks + len(cuts), groups_per_file)
        n_rows, n_chunks = n_rows + int(pairs.counts.sum()), n_chunks + len(cuts)
    # a copy without rows has one file, without row groups
    return Cuts(
        chunks=np.append(np.concatenate(chunks), n_rows),
        files=np.asarray([*(files or [0]), n_chunks], dtype=np.int64),
    )


def feature_borders(counts: Sequence[int], *, target_rows: int) -> list[int]:
    """Return the first feature of each group of about so many rows, then their number; one with more stands alone."""
    borders, rows = [0], 0
    for feature, count in enumerate(counts):
        if feature > borders[-1] and rows + count > target_rows:
            borders.append(feature)
            rows = 0
        rows += count
    return [*borders, len(counts)]
