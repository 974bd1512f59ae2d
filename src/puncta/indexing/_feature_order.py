"""Writes the feature-major copies of all levels from runs keyed by feature.

A group of features is gathered once; from it come its fractions, its rows in every level, and its part of the index.
RFC 3, "Tile order and feature-major order" and "Sampling"; decisions P5, P9 to P12, P15 and P32.
"""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from puncta.indexing._columns import SAMPLE, TILE
from puncta.indexing._feature_index import FeatureLevel, FeatureOrder
from puncta.indexing._levels import (
    FeatureTiles,
    ancestors_of,
    feature_fractions,
    feature_tiles_of,
    row_group_cuts,
    rows_kept,
)
from puncta.indexing._order import stable_order
from puncta.indexing._runs import Runs
from puncta.indexing._stage import Progress
from puncta.indexing._write_parquet import FileLayout, PartWriter
from puncta.points._arrow import arrow_of, numpy_of
from puncta.points._grid import Grid

ROWS_PER_GROUP = 16_384
"""Rows of a row group (P9): a gene of median abundance takes a few groups, and none is far larger than a tile."""

GROUPS_PER_PART = 256
"""Row groups of a part file; a footer costs some hundred bytes for each."""

_WINDOW_ROWS = 2**20


def write_feature_order(
    runs: Runs,
    name: str,
    layout: FileLayout,
    folders: Sequence[Path],
    grids: Sequence[Grid],
    *,
    limit: int,
    shared: bool,
    workers: int,
    progress: Progress | None,
) -> FeatureOrder:
    """Write the feature-major copies of one feature column.

    Holds per worker one group of features of about a million rows; a single feature of more rows is gathered in
    windows, and 24 bytes a row of it are held.

    Args:
        runs: Rows in tile order, keyed by the code of the feature; the last key is the nulls.
        name: The feature column.
        layout: Layout of the files.
        folders: Folder of the part files of each level that gets a copy.
        grids: Grids of all levels.
        limit: Number of points that the densest tile of a feature is to hold.
        shared: Store at level l only the features whose fraction changed at l (P15).
        workers: Threads.
        progress: Told how far it is.

    """
    task = _Groups(runs, name, ancestors_of(grids), limit, shared, [_Lane(folder, layout) for folder in folders])
    groups = _groups_of(runs.counts)
    total, done = int(runs.counts.sum()), 0
    fractions: list[NDArray[np.float64]] = []
    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(task.write, number, group) for number, group in enumerate(groups)]
        try:
            for future, (first, end) in zip(futures, groups, strict=True):
                fractions.append(future.result())
                done += int(runs.counts[first:end].sum())
                if progress is not None:
                    progress("writing features", done, total)
        except BaseException:
            # A group waits for its turn: without this the pool would wait for a turn that never comes.
            for lane in task.lanes:
                lane.give_up()
            for future in futures:
                future.cancel()
            raise
    together = np.concatenate(fractions, axis=1)
    n_features = runs.n_keys - 1
    level_of = _levels_that_serve(together[:, :n_features]) if shared else None
    levels = [
        lane.finish(n_features, None if level_of is None or not level else level_of[level])
        for level, lane in enumerate(task.lanes)
    ]
    return FeatureOrder(
        levels=tuple(levels),
        fractions=together[:, :n_features],
        null_fractions=together[:, n_features] if runs.counts[n_features] else None,
    )


def _groups_of(counts: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return half-open ranges of features, each of about a million rows; one with more stands alone."""
    groups, first, rows = [], 0, 0
    for feature, count in enumerate(counts.tolist()):
        if feature > first and rows + count > _WINDOW_ROWS:
            groups.append((first, feature))
            first, rows = feature, 0
        rows += count
    return [*groups, (first, len(counts))]


def _levels_that_serve(fractions: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Return, per level and feature, the last level at which the feature's fraction changed (P15)."""
    changed = np.diff(fractions, axis=0, prepend=fractions[:1]) != 0
    numbers = np.where(changed, np.arange(len(fractions))[:, None], 0)
    return np.maximum.accumulate(numbers, axis=0).astype(np.uint8)


@dataclass(frozen=True, slots=True)
class _Groups:
    """The work on each group of features."""

    runs: Runs
    name: str
    ancestors: list[NDArray[np.uint32]]
    limit: int
    shared: bool
    lanes: list["_Lane"]

    def write(self, number: int, group: tuple[int, int]) -> NDArray[np.float64]:
        """Write the rows of a group in every level; return its fractions, shape (n_levels, features of the group)."""
        first, end = group
        table = self.runs.gather(first, end)
        if table is None:
            for lane in self.lanes:
                with lane.turn(number):
                    pass
            return np.ones((len(self.ancestors), end - first))
        codes, tiles, u = (numpy_of(table.column(column)) for column in (self.name, TILE, SAMPLE))
        features = codes - codes.dtype.type(first)
        # Runs come one after the other in the order of their tiles: sorting by feature alone keeps them in order.
        order = stable_order(features) if end - first > 1 else None
        if order is not None:
            features, tiles, u = features[order], tiles[order], u[order]
        pairs = feature_tiles_of(features, tiles)
        counts = np.bincount(features, minlength=end - first)
        fractions = feature_fractions((counts, tiles, u), pairs, self.ancestors, limit=self.limit)
        table = table.select([plan.name for plan in self.lanes[0].layout.columns])
        rows = _GroupRows(table=table, order=order, features=features, tiles=tiles, u=u)
        for level, lane in enumerate(self.lanes):
            selected = rows if level == 0 else self._selected(rows, level, counts, fractions, first)
            with lane.turn(number):
                lane.append(selected, pairs if level == 0 else selected.pairs(), first)
        return fractions

    def _selected(
        self, rows: "_GroupRows", level: int, counts: NDArray[np.int64], fractions: NDArray[np.float64], first: int
    ) -> "_GroupRows":
        """Return the rows of the group that a level stores, in its order."""
        stored = fractions[level].copy()
        if self.shared:
            unchanged = fractions[level] == fractions[level - 1]
            # Nulls have no level of their own to serve them: they are stored everywhere (P32).
            unchanged[self.runs.n_keys - 1 - first :] = False
            stored[unchanged] = 0
        kept, positions = rows_kept(counts, rows.u, stored)
        tiles = self.ancestors[level][rows.tiles[positions]]
        if len(counts) == 1:
            order = stable_order(tiles)
            # one feature: its number need not be stored once for each row
            return rows.taken(positions[order], np.broadcast_to(np.uint32(0), len(order)), tiles[order])
        features = np.repeat(np.arange(len(counts), dtype=np.uint32), kept)
        order = stable_order(features, tiles)
        return rows.taken(positions[order], features[order], tiles[order])


@dataclass(frozen=True, slots=True, kw_only=True)
class _GroupRows:
    """Some rows of a group, in the order of a feature-major copy."""

    table: pa.Table
    """All rows of the group, run after run."""

    order: NDArray[np.integer] | None
    """Positions of the rows in the table; None for all of them as they are."""

    features: NDArray[np.unsignedinteger]
    """Feature of each row, counted from the first of the group."""

    tiles: NDArray[np.uint32]
    """Tile of each row, at the level in question."""

    u: NDArray[np.uint32]
    """Number of each row; kept for level 0 alone, from which the others are taken."""

    def taken(
        self, positions: NDArray[np.integer], features: NDArray[np.uint32], tiles: NDArray[np.uint32]
    ) -> "_GroupRows":
        """Return the rows at some positions, with their features and the tiles they have at another level."""
        return _GroupRows(
            table=self.table,
            order=positions if self.order is None else self.order[positions],
            features=features,
            tiles=tiles,
            u=self.u[:0],
        )

    def pairs(self) -> FeatureTiles:
        """Return the rows counted by feature and tile."""
        return feature_tiles_of(self.features, self.tiles)

    def window(self, start: int, end: int) -> pa.Table:
        """Return the rows from `start` to `end`."""
        if self.order is None:
            return self.table.slice(start, end - start)
        return self.table.take(arrow_of(self.order[start:end]))


class _Lane:
    """One level's files, written group after group in their order while other groups are at other levels."""

    def __init__(self, folder: Path, layout: FileLayout) -> None:
        self._folder = folder
        self.layout = layout
        self._writer: PartWriter | None = None
        self._turn = 0
        self._given_up = False
        self._condition = threading.Condition()
        self._n_rows = 0
        self._cuts: list[NDArray[np.int64]] = []
        self._parts = [0]
        self._pairs: list[tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.int64]]] = []

    @contextmanager
    def turn(self, number: int) -> Iterator[None]:
        """Wait for the turn of a group; the next one may go on afterwards."""
        with self._condition:
            self._condition.wait_for(lambda: self._turn == number or self._given_up)
        if self._given_up:
            raise RuntimeError("another group of features failed")
        yield
        with self._condition:
            self._turn += 1
            self._condition.notify_all()

    def give_up(self) -> None:
        """Let every waiting group fail."""
        with self._condition:
            self._given_up = True
            self._condition.notify_all()

    def append(self, rows: _GroupRows, pairs: FeatureTiles, first_feature: int) -> None:
        """Write the rows of a group."""
        n_rows = len(rows.features)
        cuts = row_group_cuts(pairs, target_rows=ROWS_PER_GROUP)
        ends = np.append(cuts[1:], n_rows)
        start = 0
        while start < len(cuts):
            stop = max(int(np.searchsorted(ends, cuts[start] + _WINDOW_ROWS, side="right")), start + 1)
            stop = min(stop, start + self._room())
            self._open().write(rows.window(int(cuts[start]), int(ends[stop - 1])), cuts[start:stop] - cuts[start])
            start = stop
        starts = self._n_rows + np.cumsum(pairs.counts) - pairs.counts
        self._pairs.append((pairs.features + first_feature, pairs.tiles, starts))
        self._cuts.append(cuts + self._n_rows)
        self._n_rows += n_rows

    def finish(self, n_features: int, level_of: NDArray[np.uint8] | None) -> FeatureLevel:
        """Close the files, and return the index of the copy."""
        if self._writer is None:
            self._open()
        self._close()
        features, tiles, starts = (
            (np.concatenate(arrays) for arrays in zip(*self._pairs, strict=True))
            if (self._pairs)
            else (np.zeros(0, np.int64), np.zeros(0, np.uint32), np.zeros(0, np.int64))
        )
        indptr = np.searchsorted(features, np.arange(n_features + 1))
        offsets = np.append(starts, self._n_rows)[indptr]
        n_named = int(indptr[-1])
        return FeatureLevel(
            offsets=offsets,
            n_rows=self._n_rows,
            tile_indptr=indptr.astype(np.int64),
            tiles=tiles[:n_named],
            tile_starts=starts[:n_named],
            row_groups=np.append(np.concatenate([*self._cuts, np.zeros(0, np.int64)]), self._n_rows).astype(np.int64),
            parts=np.asarray(self._parts, dtype=np.int64),
            level_of=level_of,
        )

    def _room(self) -> int:
        """Return how many row groups the open part still takes."""
        if self._writer is not None and self._writer.n_row_groups >= GROUPS_PER_PART:
            self._close()
        return GROUPS_PER_PART - (self._writer.n_row_groups if self._writer is not None else 0)

    def _open(self) -> PartWriter:
        if self._writer is None:
            self._writer = PartWriter(self._folder / f"part.{len(self._parts) - 1}.parquet", self.layout)
        return self._writer

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._parts.append(self._parts[-1] + self._writer.n_row_groups)
            self._writer = None
