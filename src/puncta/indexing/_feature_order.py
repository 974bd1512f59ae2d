"""Writes the feature-major copies of all levels from runs keyed by feature.

A group of features is gathered once; from it come its fractions, its rows in every level, and its part of the index.
Groups know nothing of each other: each writes part files of its own, which get their numbers when all are there.
RFC 3, "Tile order and feature-major order" and "Sampling"; decisions P5, P9 to P12, P15 and P32.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from puncta.indexing._columns import SAMPLE, TILE
from puncta.indexing._crew import Crew
from puncta.indexing._feature_index import FeatureLevel, FeatureOrder, PairFiles
from puncta.indexing._levels import (
    WINDOW_ROWS,
    FeatureTiles,
    ancestors_of,
    blocks_of,
    feature_fractions,
    feature_tiles_of,
    joined,
    row_group_cuts,
    rows_kept,
)
from puncta.indexing._order import stable_order
from puncta.indexing._runs import RunFiles, Runs, Spans
from puncta.indexing._stage import Progress
from puncta.indexing._write_parquet import FileLayout, PartWriter
from puncta.points._arrow import arrow_of, numpy_of
from puncta.points._grid import Grid
from puncta.points._sampling import is_kept

ROWS_PER_GROUP = 16_384
"""Rows of a row group (P9): a gene of median abundance takes a few groups, and none is far larger than a tile."""

GROUPS_PER_PART = 256
"""Row groups of a part file at the most; a footer costs some hundred bytes for each."""

BYTES_A_ROW = 20
"""What is held of each row of a large feature, besides a window of rows: its tile, its number and its position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyHome:
    """Where the feature-major copy of a level is written."""

    parquet: Path | None
    """Folder of the part files, where that layout is asked for."""

    rows: RunFiles | None
    """Where the rows are laid down in their order, for the Zarr layout, whose shards cross the borders of groups."""

    pairs: PairFiles
    """Where the tiles of the features go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Neighbouring features, of about a million rows in all; one with more stands alone."""

    number: int
    """Number of the group."""

    first: int
    """First feature."""

    end: int
    """Feature after the last; the null feature is behind the last one."""

    spans: Spans
    """Its rows in the runs."""

    rows: int
    """How many there are."""


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


def write_feature_order(
    runs: Runs,
    name: str,
    layout: FileLayout,
    homes: Sequence[CopyHome],
    grids: Sequence[Grid],
    *,
    limit: int,
    shared: bool,
    crew: Crew,
    progress: Progress | None,
) -> tuple[FeatureOrder, list[Spans]]:
    """Write the feature-major copies of one feature column.

    Args:
        runs: Rows in tile order, keyed by the code of the feature; the last key is the nulls.
        name: The feature column.
        layout: Layout of the files.
        homes: Where the copy of each level goes that gets one.
        grids: Grids of all levels.
        limit: Number of points that the densest tile of a feature is to hold.
        shared: Store at level l only the features whose fraction changed at l (P15).
        crew: Who does the work.
        progress: Told how far it is.

    Returns:
        The copies, and for each level the rows that were laid down for the Zarr layout, in their order.

    """
    task = WriteGroups(
        runs=runs.files,
        name=name,
        ancestors=tuple(ancestors_of(grids)),
        row_tiles=tuple(grid.n_tiles // grid.shape[0] for grid in grids),
        limit=limit,
        shared=shared,
        layout=layout,
        homes=tuple(homes),
    )
    groups = _groups_of(runs)
    total, done = int(runs.counts.sum()), 0
    found: list[GroupDone] = []
    for group, result in zip(groups, crew.map(task, groups, need=_need), strict=True):
        found.append(result)
        done += group.rows
        if progress is not None:
            progress("writing features", done, total)
    for level, home in enumerate(homes):
        if home.parquet is not None:
            _number_parts(home.parquet, [one.levels[level] for one in found], layout)
    return _order_of(found, homes, n_features=runs.n_features, shared=shared, has_nulls=bool(runs.counts[-1])), [
        _laid([one.levels[level] for one in found]) for level in range(len(homes))
    ]


def _groups_of(runs: Runs) -> list[Group]:
    """Return the groups of features, each of about a million rows; one with more stands alone."""
    borders, rows = [0], 0
    for feature, count in enumerate(runs.counts.tolist()):
        if feature > borders[-1] and rows + count > WINDOW_ROWS:
            borders.append(feature)
            rows = 0
        rows += count
    borders.append(len(runs.counts))
    return [
        Group(
            number=number,
            first=first,
            end=end,
            spans=runs.spans(first, end),
            rows=int(runs.counts[first:end].sum()),
        )
        for number, (first, end) in enumerate(itertools.pairwise(borders))
    ]


def _need(group: Group) -> int:
    """Return the bytes that a group takes, where it is a feature too large to share it with others."""
    return group.rows * BYTES_A_ROW if group.end - group.first == 1 else 0


def _number_parts(folder: Path, levels: Sequence[LevelDone], layout: FileLayout) -> None:
    """Give the part files of the groups their numbers; a copy without rows is one part without row groups."""
    part = 0
    for group, level in enumerate(levels):
        for own in range(len(level.parts)):
            written, final = _part_path(folder, group, own), folder / f"part.{part}.parquet"
            # after a crash some have their names already
            if written.exists() or not final.exists():
                written.replace(final)
            part += 1
    if not part:
        with PartWriter(folder / "part.0.parquet", layout):
            pass


def _part_path(folder: Path, group: int, own: int) -> Path:
    return folder / f"group.{group}.{own}.parquet"


def _laid(levels: Sequence[LevelDone]) -> Spans:
    """Return the rows that were laid down, in the order of the copy."""
    found = [
        (_run_of(group, own), 0, rows) for group, level in enumerate(levels) for own, rows in enumerate(level.windows)
    ]
    return np.asarray(found, dtype=np.int64).reshape(-1, 3)


# Windows of a million rows: a single feature of more than 2**40 rows would be too much for other reasons.
_WINDOWS_OF_A_GROUP = 2**20


def _run_of(group: int, window: int) -> int:
    return group * _WINDOWS_OF_A_GROUP + window


def _order_of(
    groups: Sequence[GroupDone], homes: Sequence[CopyHome], *, n_features: int, shared: bool, has_nulls: bool
) -> FeatureOrder:
    fractions = np.concatenate([group.fractions for group in groups], axis=1)
    level_of = _levels_that_serve(fractions[:, :n_features]) if shared else None
    levels = [
        _level_of(
            [group.levels[level] for group in groups],
            home.pairs,
            n_features,
            None if level_of is None or not level else level_of[level],
        )
        for level, home in enumerate(homes)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteGroups:
    """The work on each group of features.

    Holds a window of about a million rows, encoded, and 20 bytes for each row of a feature that stands alone.
    """

    runs: RunFiles
    """Rows in tile order, keyed by the code of the feature."""

    name: str
    """The feature column."""

    ancestors: tuple[NDArray[np.uint32], ...]
    """Tile of each level of each tile of level 0."""

    row_tiles: tuple[int, ...]
    """Tiles of each level that share one coordinate along the first axis."""

    limit: int
    """Points that the densest tile of a feature is to hold."""

    shared: bool
    """Store at level l only the features whose fraction changed at l."""

    layout: FileLayout
    """Layout of the files."""

    homes: tuple[CopyHome, ...]
    """Where the copy of each level goes that gets one."""

    def __call__(self, group: Group) -> GroupDone:
        """Write the rows of a group in every level."""
        table, n_features = self.runs.gather(group.spans), group.end - group.first
        if table is None:
            fractions = np.ones((len(self.ancestors), n_features))
            nothing = feature_tiles_of(np.zeros(0, np.int64), np.zeros(0, np.uint32))
            levels = [self._write(group, level, None, nothing) for level in range(len(self.homes))]
            return GroupDone(fractions=fractions, levels=tuple(levels))
        tiles, u = numpy_of(table.column(TILE)), numpy_of(table.column(SAMPLE))
        features, order = _alone(len(tiles)), None
        if n_features > 1:
            codes = numpy_of(table.column(self.name))
            features = codes - codes.dtype.type(group.first)
            # Runs come one after the other in the order of their tiles: sorting by feature alone keeps them in order.
            order = stable_order(features)
            features, tiles, u = features[order], tiles[order], u[order]
        pairs = feature_tiles_of(features, tiles)
        counts = np.bincount(pairs.features, weights=pairs.counts, minlength=n_features).astype(np.int64)
        fractions = feature_fractions((counts, tiles, u), pairs, self.ancestors, limit=self.limit)
        rows = _GroupRows(table=table.select([plan.name for plan in self.layout.columns]), order=order)
        levels = [self._write(group, 0, rows, pairs)]
        for level in range(1, len(self.homes)):
            stored = self._stored(level, fractions, group.first)
            if n_features > 1:
                positions, pairs = self._selected(level, counts, tiles, u, stored)
            else:
                positions, pairs = self._selected_of_one(level, tiles, u, float(stored[0]))
            levels.append(self._write(group, level, rows.taken(positions), pairs))
        return GroupDone(fractions=fractions, levels=tuple(levels))

    def _stored(self, level: int, fractions: NDArray[np.float64], first: int) -> NDArray[np.float64]:
        """Return the fraction of each feature of the group that a level stores; 0 for one that it does not."""
        stored: NDArray[np.float64] = fractions[level].copy()
        if self.shared:
            unchanged = fractions[level] == fractions[level - 1]
            # Nulls have no level of their own to serve them: they are stored everywhere (P32).
            unchanged[self.runs.n_keys - 1 - first :] = False
            stored[unchanged] = 0
        return stored

    def _selected(
        self,
        level: int,
        counts: NDArray[np.int64],
        tiles: NDArray[np.uint32],
        u: NDArray[np.uint32],
        stored: NDArray[np.float64],
    ) -> tuple[NDArray[np.integer], FeatureTiles]:
        """Return the positions of the rows that a level stores, in its order, and its pairs."""
        kept, positions = rows_kept(counts, u, stored)
        level_tiles = self.ancestors[level][tiles[positions]]
        features = np.repeat(np.arange(len(counts), dtype=np.uint32), kept)
        order = stable_order(features, level_tiles)
        return positions[order], feature_tiles_of(features[order], level_tiles[order])

    def _selected_of_one(
        self, level: int, tiles: NDArray[np.uint32], u: NDArray[np.uint32], fraction: float
    ) -> tuple[NDArray[np.integer], FeatureTiles]:
        """Return the same for a single feature, block by block, since it may have most of all points."""
        parts: list[NDArray[np.uint32]] = [np.zeros(0, np.uint32)]
        pairs = [feature_tiles_of(_alone(0), tiles[:0])]
        ancestors = self.ancestors[level]
        for start, end in blocks_of(tiles, ancestors, self.row_tiles[level], target_rows=WINDOW_ROWS):
            kept = np.flatnonzero(is_kept(u[start:end], fraction)).astype(np.uint32) + np.uint32(start)
            level_tiles = ancestors[tiles[kept]]
            order = stable_order(level_tiles)
            parts.append(kept[order])
            pairs.append(feature_tiles_of(_alone(len(kept)), level_tiles[order]))
        return np.concatenate(parts), joined(pairs)

    def _write(self, group: Group, level: int, rows: "_GroupRows | None", pairs: FeatureTiles) -> LevelDone:
        """Write the rows of a group that a level stores."""
        home, n_features = self.homes[level], group.end - group.first
        home.pairs.write(group.number, pairs)
        cuts = row_group_cuts(pairs, target_rows=ROWS_PER_GROUP)
        parts: tuple[int, ...] = ()
        windows: tuple[int, ...] = ()
        if rows is not None and home.parquet is not None:
            parts = tuple(self._write_parts(home.parquet, group.number, rows, cuts))
        if rows is not None and home.rows is not None:
            windows = tuple(_lay(home.rows, group.number, rows))
        return LevelDone(
            feature_rows=np.bincount(pairs.features, weights=pairs.counts, minlength=n_features).astype(np.int64),
            feature_pairs=np.bincount(pairs.features, minlength=n_features),
            cuts=cuts,
            parts=parts,
            windows=windows,
        )

    def _write_parts(self, folder: Path, group: int, rows: "_GroupRows", cuts: NDArray[np.int64]) -> Iterator[int]:
        """Write the part files of a group; yield the row groups of each."""
        ends = np.append(cuts[1:], rows.n_rows)
        for own, first in enumerate(range(0, len(cuts), GROUPS_PER_PART)):
            last = min(first + GROUPS_PER_PART, len(cuts))
            with PartWriter(_part_path(folder, group, own), self.layout) as writer:
                start = first
                while start < last:
                    stop = max(int(np.searchsorted(ends, cuts[start] + WINDOW_ROWS, side="right")), start + 1)
                    stop = min(stop, last)
                    window = rows.window(int(cuts[start]), int(ends[stop - 1]))
                    writer.write(window, cuts[start:stop] - cuts[start])
                    start = stop
            yield last - first


def _lay(files: RunFiles, group: int, rows: "_GroupRows") -> Iterator[int]:
    """Lay the rows of a group down in their order; yield how many there are in each run."""
    for own, start in enumerate(range(0, rows.n_rows, WINDOW_ROWS)):
        window = rows.window(start, min(start + WINDOW_ROWS, rows.n_rows))
        files.lay(_run_of(group, own), window)
        yield window.num_rows


def _alone(n_rows: int) -> NDArray[np.uint32]:
    """Return the number of a feature that stands alone in its group, for each row, without room for each."""
    return np.broadcast_to(np.uint32(0), n_rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class _GroupRows:
    """Some rows of a group, in the order of a feature-major copy."""

    table: pa.Table
    """All rows of the group, run after run."""

    order: NDArray[np.integer] | None
    """Positions of the rows in the table; None for all of them as they are."""

    @property
    def n_rows(self) -> int:
        """How many there are."""
        return self.table.num_rows if self.order is None else len(self.order)

    def taken(self, positions: NDArray[np.integer]) -> "_GroupRows":
        """Return the rows at some positions."""
        return _GroupRows(table=self.table, order=positions if self.order is None else self.order[positions])

    def window(self, start: int, end: int) -> pa.Table:
        """Return the rows from `start` to `end`."""
        if self.order is None:
            return self.table.slice(start, end - start)
        return self.table.take(arrow_of(self.order[start:end]))
