"""The rows of the feature-major copies: each with its feature and its tile, and each level drawn from one below it."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from puncta.points._check_arrays import CopyArrays
from puncta.points._check_parts import Parts, Tally
from puncta.points._check_plan import ElementPlan
from puncta.points._check_rows import NULL, FeatureCodes, RowHasher, invented, sum_of
from puncta.points._check_tiles import Contents, features_of, placed
from puncta.points._grid import Grid
from puncta.points._sampling import next_fraction
from puncta.spec._problem import Problem

# Rows of the copy below that are compared at once; a feature of more rows stands alone.
_WINDOW_ROWS = 2**20

_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyParts:
    """One feature-major copy, its arrays and its part files."""

    arrays: CopyArrays
    parts: Parts
    grid: Grid | None
    limit: int | None

    @property
    def first_rows(self) -> NDArray[np.int64] | None:
        """First row of each row group, then the number of rows; None where it is not known."""
        if self.arrays.row_groups is not None and len(self.arrays.row_groups) == len(self.parts.counts) + 1:
            return self.arrays.row_groups
        if not self.parts.is_whole:
            return None
        return np.concatenate([[0], np.cumsum(self.parts.counts)]).astype(np.int64)

    @property
    def is_comparable(self) -> bool:
        """Whether its rows can be found by their feature."""
        return self.parts.is_whole and self.arrays.offsets is not None and self.first_rows is not None


class FeatureCheck:
    """Checks the copies of one feature column.

    Holds a row group, and 16 bytes for each of a million rows, or of the rows of the most abundant feature where these
    are more.
    """

    def __init__(self, plan: ElementPlan, codes: FeatureCodes, categories: Sequence[str], tally: Tally) -> None:
        """Check nothing yet."""
        self._plan = plan
        self._codes = codes
        self._categories = categories
        self._tally = tally
        self._hasher = RowHasher()
        self._expected: NDArray[np.float64] | None = np.ones(len(categories))
        self.problems: list[Problem] = []

    def rows(self, copy: CopyParts, contents: Contents | None) -> None:
        """Check every row of a copy, and that it holds the rows of level 0 where these are given."""
        name, first_rows = copy.arrays.plan.column, copy.first_rows
        columns = None if contents is not None else [*self._plan.axes, name]
        counts, total = np.zeros(len(self._categories) + 1, dtype=np.int64), 0
        for group in copy.parts.groups().tolist():
            table = copy.parts.read([group], columns)
            if table is None or name not in table.column_names:
                continue
            loc = copy.parts.file_loc(copy.parts.part_of(group))
            codes = features_of(self._codes, table, name, loc, self._tally)
            if first_rows is not None:
                rows = int(first_rows[group]) + np.arange(table.num_rows)
                self._features(copy, codes, rows, loc)
                self._tiles(copy, placed(table, self._plan), rows, loc)
            if contents is not None:
                total = (total + sum_of(self._hasher.hashes(table))) % 2**64
                counts += np.bincount(np.where(codes < 0, len(counts) - 1, codes), minlength=len(counts))
        if contents is not None and copy.parts.is_whole:
            self._same(copy, contents, counts, total)

    def _features(self, copy: CopyParts, codes: NDArray[np.int64], rows: NDArray[np.int64], loc: str) -> None:
        offsets = copy.arrays.offsets
        if offsets is None:
            return
        expected = np.searchsorted(offsets[:-1], rows, side="right") - 1
        expected[expected == len(self._categories)] = NULL
        other = np.flatnonzero(codes != expected)
        if len(other):
            row = int(rows[other[0]])
            example = f"row {row} has {self._name(codes[other[0]])}, not {self._name(expected[other[0]])}"
            words = "rows have another feature than the feature offsets say"
            self._tally.add(loc, "order", words, count=len(other), example=example)

    def _tiles(
        self, copy: CopyParts, points: list[NDArray[np.float64]] | None, rows: NDArray[np.int64], loc: str
    ) -> None:
        tiles, starts, offsets = copy.arrays.tiles, copy.arrays.starts, copy.arrays.offsets
        if points is None or tiles is None or starts is None or offsets is None or copy.grid is None:
            return
        # nulls come last, and no array says in which tile one lies
        named = rows < offsets[-2]
        if not named.any():
            return
        expected = tiles[np.searchsorted(starts, rows[named], side="right") - 1]
        found = copy.grid.unbounded_tiles_of(np.stack(points, axis=1)[named])
        other = np.flatnonzero((found != copy.grid.tile_coordinates(expected)).any(axis=1))
        if len(other):
            example = f"row {int(rows[named][other[0]])} is not in tile {int(expected[other[0]])}"
            words = "rows lie in another tile than the feature tiles say"
            self._tally.add(loc, "order", words, count=len(other), example=example)

    def _same(self, copy: CopyParts, contents: Contents, counts: NDArray[np.int64], total: int) -> None:
        name, loc = copy.arrays.plan.column, copy.arrays.plan.folder
        expected = contents.counts.get(name)
        if expected is None or not len(expected):
            return
        other = np.flatnonzero(counts != expected)
        if len(other):
            at = int(other[0])
            example = f"{self._name(at)} has {counts[at]}, not {expected[at]}"
            message = f"{len(other)} features have other numbers of rows than the tile order has (first: {example})"
            self.problems.append(Problem(loc, message, "mismatch"))
        elif total != contents.total:
            message = f"its {counts.sum()} rows are not those of the tile order: some values differ"
            self.problems.append(Problem(loc, message, "mismatch"))

    def drawn(self, copy: CopyParts, below: Sequence[CopyParts]) -> None:
        """Check that the rows of a copy are among those that serve the level below.

        Args:
            copy: A copy of level l, from 1 on.
            below: The copies of levels 0 to l - 1.

        """
        offsets, serving = copy.arrays.offsets, serving_levels(below)
        if serving is None or offsets is None or not copy.is_comparable:
            return
        if not all(below[level].is_comparable for level in np.unique(serving).tolist()):
            return
        sizes = np.diff(offsets)
        finer = np.zeros(len(serving), dtype=np.int64)
        for level in np.unique(serving).tolist():
            finer[serving == level] = _sizes(below[level])[serving == level]
        for first, end in _windows(np.where(sizes > 0, finer, 0)):
            keys = np.where(sizes[first:end] > 0, serving[first:end], -1)
            runs = np.flatnonzero(np.diff(keys, prepend=-2, append=-2))
            source = [
                self._hashes(below[int(keys[start])], first + start, first + stop)
                for start, stop in pairwise(runs.tolist())
                if keys[start] >= 0
            ]
            rows = self._hashes(copy, first, end)
            count, row = invented(rows, np.concatenate([*source, np.zeros(0, dtype=np.uint64)]))
            if count:
                words = f"rows are not among those that serve level {copy.arrays.plan.level - 1}"
                feature = int(np.searchsorted(offsets, offsets[first] + row, side="right")) - 1
                example = f"one of {self._name(feature)}"
                self._tally.add(copy.arrays.plan.folder, "sample", words, count=count, example=example)

    def _hashes(self, copy: CopyParts, first: int, end: int) -> NDArray[np.uint64]:
        """Return the hashes of the rows of some features."""
        offsets, first_rows = copy.arrays.offsets, copy.first_rows
        parts: list[NDArray[np.uint64]] = [np.zeros(0, dtype=np.uint64)]
        if offsets is None or first_rows is None:
            return parts[0]
        start, stop = int(offsets[first]), int(offsets[end])
        group = int(np.searchsorted(first_rows, start, side="right")) - 1
        while start < stop:
            table = copy.parts.read([group])
            begin, group = int(first_rows[group]), group + 1
            if table is None:
                break
            parts.append(self._hasher.hashes(table.slice(start - begin, stop - start)))
            start = int(first_rows[group])
        return np.concatenate(parts)

    def _name(self, code: int) -> str:
        return repr(self._categories[code]) if 0 <= code < len(self._categories) else "no feature"

    def fractions(self, copy: CopyParts, below: Sequence[CopyParts]) -> None:
        """Check that the fractions of a level follow from the points below it, feature by feature (RFC 3, P15)."""
        own, last = copy.arrays.fractions, below[-1].arrays.fractions
        if own is not None and last is not None:
            self._level_of(copy, below[-1], own, last)
        # held against what follows from level 0, so that a wrong fraction does not put its neighbours in the wrong
        before, self._expected = self._expected, own
        densest = _densest_below(copy, below)
        if before is None or densest is None or not copy.limit:
            return
        follows = [next_fraction(*pair, copy.limit) for pair in zip(before.tolist(), densest.tolist(), strict=True)]
        expected = self._expected = np.asarray(follows, dtype=np.float64)
        other = np.zeros(0, int) if own is None else np.flatnonzero(np.abs(own - expected) > _TOLERANCE * expected)
        if own is not None and len(other):
            at, fractions = int(other[0]), copy.arrays.plan.fractions
            example = f"{self._name(at)}: {own[at]}, but {expected[at]} follows from its densest tile"
            loc = fractions["array"] if isinstance(fractions, dict) else copy.arrays.plan.fractions_loc
            message = f"{len(other)} of {len(own)} fractions do not follow from the level below (first: {example})"
            self.problems.append(Problem(loc, message, "sample"))

    def _level_of(
        self, copy: CopyParts, before: CopyParts, own: NDArray[np.float64], last: NDArray[np.float64]
    ) -> None:
        """Check that a partial copy names, and stores, the features whose fraction changed."""
        level_of, offsets, level = copy.arrays.level_of, copy.arrays.offsets, copy.arrays.plan.level
        if level_of is None:
            return
        earlier = before.arrays.level_of if before.arrays.level_of is not None else np.zeros(len(own), dtype=np.uint8)
        other = np.flatnonzero(level_of != np.where(own != last, level, earlier))
        loc = f"{copy.arrays.plan.arrays}feature_level_of"
        if len(other):
            example = f"{self._name(int(other[0]))}: {level_of[other[0]]}"
            message = f"{len(other)} features do not name the level at which their fraction changed (first: {example})"
            self.problems.append(Problem(loc, message, "mismatch"))
        elif offsets is not None:
            stray = np.flatnonzero((np.diff(offsets[:-1]) > 0) & (level_of != level))
            if len(stray):
                message = f"{len(stray)} features have rows here that another level is to serve"
                example = f" (first: {self._name(int(stray[0]))})"
                self.problems.append(Problem(loc, message + example, "mismatch"))


def serving_levels(below: Sequence[CopyParts]) -> NDArray[np.int64] | None:
    """Return the level whose rows serve each feature, and the nulls at the end; None where it is not known."""
    last = below[-1].arrays
    if last.offsets is None or (last.plan.is_partial and last.level_of is None):
        return None
    if last.level_of is None:
        return np.full(len(last.offsets) - 1, last.plan.level, dtype=np.int64)
    # nulls are stored at every level (P32)
    return np.append(last.level_of.astype(np.int64), last.plan.level)


def _sizes(copy: CopyParts) -> NDArray[np.int64]:
    offsets = copy.arrays.offsets
    return np.zeros(0, dtype=np.int64) if offsets is None else np.diff(offsets)


def _densest_below(copy: CopyParts, below: Sequence[CopyParts]) -> NDArray[np.int64] | None:
    """Return the rows of each feature at the level below, in the densest tile of this one; None where not known."""
    serving = serving_levels(below)
    if serving is None or copy.grid is None:
        return None
    densest = np.zeros(len(serving) - 1, dtype=np.int64)
    for level in np.unique(serving[:-1]).tolist():
        found = _densest(below[level:], copy.grid)
        if found is None:
            return None
        densest = np.where(serving[:-1] == level, found, densest)
    return densest


def _densest(below: Sequence[CopyParts], grid: Grid) -> NDArray[np.int64] | None:
    """Return the rows of each feature in its densest tile of a grid above the given levels, from the first of these."""
    arrays = below[0].arrays
    if arrays.tiles is None or arrays.starts is None or arrays.indptr is None or arrays.offsets is None:
        return None
    tiles = arrays.tiles
    for copy in below:
        if copy.grid is None:
            return None
        tiles = copy.grid.parents()[tiles]
    n_features = len(arrays.indptr) - 1
    features = np.repeat(np.arange(n_features), np.diff(arrays.indptr))
    counts = np.diff(arrays.starts, append=arrays.offsets[-2])
    keys, places = np.unique(features * grid.n_tiles + tiles, return_inverse=True)
    merged = np.bincount(places, weights=counts, minlength=len(keys)).astype(np.int64)
    densest = np.zeros(n_features, dtype=np.int64)
    np.maximum.at(densest, keys // grid.n_tiles, merged)
    return densest


def _windows(sizes: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return half-open ranges of features of at most so many rows, or of one feature."""
    windows, first, rows = [], 0, 0
    for feature, size in enumerate(sizes.tolist()):
        if feature > first and rows + size > _WINDOW_ROWS:
            windows.append((first, feature))
            first, rows = feature, 0
        rows += size
    return [*windows, (first, len(sizes))]
