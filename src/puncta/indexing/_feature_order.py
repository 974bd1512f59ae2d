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
from puncta.indexing._feature_groups import GroupDone, LevelDone, order_of
from puncta.indexing._feature_index import FeatureOrder, PairFiles
from puncta.indexing._group_rows import GroupRows, on_disk, room_on_disk
from puncta.indexing._levels import (
    WINDOW_ROWS,
    FeatureTiles,
    ancestors_of,
    blocks_of,
    counts_kept,
    feature_fractions,
    feature_tiles_of,
    fractions_of_one,
    pairs_of_one,
    row_group_cuts,
    rows_kept,
)
from puncta.indexing._order import stable_order
from puncta.indexing._runs import RunFiles, Runs, Spans
from puncta.indexing._stage import Progress
from puncta.indexing._write_parquet import FileLayout, PartWriter
from puncta.points._arrow import numpy_of
from puncta.points._grid import Grid
from puncta.points._sampling import is_kept

ROWS_PER_GROUP = 16_384
"""Rows of a row group (P9): a gene of median abundance takes a few groups, and none is far larger than a tile."""

GROUPS_PER_PART = 256
"""Row groups of a part file at the most; a footer costs some hundred bytes for each."""

BYTES_A_ROW = 4
"""What is held of each row of a large feature, besides a window of rows, where a level is one block: which are kept."""


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
    order = order_of(
        found,
        [home.pairs for home in homes],
        n_features=runs.n_features,
        shared=shared,
        has_nulls=bool(runs.counts[-1]),
    )
    return order, [_laid([one.levels[level] for one in found]) for level in range(len(homes))]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteGroups:
    """The work on each group of features.

    Holds a window of about a million rows, encoded; of a feature that stands alone, 4 bytes a row at the most.
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
            nothing = feature_tiles_of(np.zeros(0, np.int64), np.zeros(0, np.uint32))
            levels = [self._write(group, level, None, nothing) for level in range(len(self.homes))]
            return GroupDone(fractions=np.ones((len(self.ancestors), n_features)), levels=tuple(levels))
        return self._write_one(group, table) if n_features == 1 else self._write_several(group, table)

    def _write_several(self, group: Group, table: pa.Table) -> GroupDone:
        """Write the rows of several features, a million or two in all."""
        codes, tiles, u = (numpy_of(table.column(column)) for column in (self.name, TILE, SAMPLE))
        features = codes - codes.dtype.type(group.first)
        # Runs come one after the other in the order of their tiles: sorting by feature alone keeps them in order.
        order = stable_order(features)
        features, tiles, u = features[order], tiles[order], u[order]
        pairs = feature_tiles_of(features, tiles)
        counts = np.bincount(features, minlength=group.end - group.first).astype(np.int64)
        fractions = feature_fractions((counts, tiles, u), pairs, self.ancestors, limit=self.limit)
        rows = GroupRows(table=table.select([plan.name for plan in self.layout.columns]), order=order)
        levels = [self._write(group, 0, rows, pairs)]
        for level in range(1, len(self.homes)):
            kept, positions = rows_kept(counts, u, self._stored(level, fractions, group.first))
            level_tiles = self.ancestors[level][tiles[positions]]
            level_features = np.repeat(np.arange(len(counts), dtype=np.uint32), kept)
            by_tile = stable_order(level_features, level_tiles)
            pairs = feature_tiles_of(level_features[by_tile], level_tiles[by_tile])
            levels.append(self._write(group, level, rows.taken(positions[by_tile]), pairs))
        return GroupDone(fractions=fractions, levels=tuple(levels))

    def _write_one(self, group: Group, table: pa.Table) -> GroupDone:
        """Write the rows of a feature that stands alone: it may have most of all points, so they stay on disk."""
        folder = self.homes[0].pairs.folder
        tiles, u = on_disk(table.column(TILE), folder), on_disk(table.column(SAMPLE), folder)
        fractions = fractions_of_one(tiles, u, self.ancestors, limit=self.limit)
        rows = GroupRows(table=table.select([plan.name for plan in self.layout.columns]), order=None)
        levels = []
        for level, ancestors in enumerate(self.ancestors[: len(self.homes)]):
            fraction = float(self._stored(level, fractions, group.first)[0]) if level else 1.0
            pairs = pairs_of_one(counts_kept(tiles, u, fraction, ancestors))
            stored = rows
            if level:
                positions = room_on_disk(int(pairs.counts.sum()), folder)
                self._select(positions, tiles, u, level, fraction)
                stored = rows.taken(positions)
            levels.append(self._write(group, level, stored, pairs))
        return GroupDone(fractions=fractions, levels=tuple(levels))

    def _select(
        self,
        positions: NDArray[np.uint32],
        tiles: NDArray[np.uint32],
        u: NDArray[np.uint32],
        level: int,
        fraction: float,
    ) -> None:
        """Write down the positions of the rows that a level stores, in its order, block by block."""
        ancestors, at = self.ancestors[level], 0
        if not len(positions):
            return
        for start, end in blocks_of(tiles, ancestors, self.row_tiles[level], target_rows=WINDOW_ROWS):
            kept = np.flatnonzero(is_kept(u[start:end], fraction)).astype(np.uint32) + np.uint32(start)
            order = stable_order(ancestors[tiles[kept]])
            positions[at : at + len(kept)] = kept[order]
            at += len(kept)

    def _stored(self, level: int, fractions: NDArray[np.float64], first: int) -> NDArray[np.float64]:
        """Return the fraction of each feature of the group that a level stores; 0 for one that it does not."""
        stored: NDArray[np.float64] = fractions[level].copy()
        if self.shared:
            unchanged = fractions[level] == fractions[level - 1]
            # Nulls have no level of their own to serve them: they are stored everywhere (P32).
            unchanged[self.runs.n_keys - 1 - first :] = False
            stored[unchanged] = 0
        return stored

    def _write(self, group: Group, level: int, rows: GroupRows | None, pairs: FeatureTiles) -> LevelDone:
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

    def _write_parts(self, folder: Path, group: int, rows: GroupRows, cuts: NDArray[np.int64]) -> Iterator[int]:
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


def _lay(files: RunFiles, group: int, rows: GroupRows) -> Iterator[int]:
    """Lay the rows of a group down in their order; yield how many there are in each run."""
    for own, start in enumerate(range(0, rows.n_rows, WINDOW_ROWS)):
        window = rows.window(start, min(start + WINDOW_ROWS, rows.n_rows))
        files.lay(_run_of(group, own), window)
        yield window.num_rows
