"""The rows of the tile order: each in its tile, and each level drawn from the one below it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from puncta.points._arrow import numpy_of
from puncta.points._check_parts import Parts, Tally
from puncta.points._check_plan import ElementPlan, LevelPlan
from puncta.points._check_rows import UNKNOWN, FeatureCodes, RowHasher, invented, keyed, nulls_of, sum_of
from puncta.points._grid import Grid
from puncta.points._sampling import next_fraction
from puncta.spec._problem import Problem
from puncta.spec.transformations import apply_affine

# Fractions are products of quotients: another order of the operations differs in the last digits.
_TOLERANCE = 1e-9

_BATCH_ROWS = 2**17


@dataclass(slots=True, kw_only=True)
class Contents:
    """What level 0 holds, so that a copy of it can be compared."""

    total: int = 0
    """Sum of the hashes of all rows, modulo 2**64."""
    counts: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    """Rows of each feature of each column, those without a feature last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelParts:
    """One level and its part files."""

    plan: LevelPlan
    grid: Grid
    parts: Parts


class TileCheck:
    """Goes once through the tile order of all levels, coarse tile by coarse tile.

    Holds the rows of a batch of coarse tiles, of about 130,000 rows or of a single coarse tile.
    """

    def __init__(self, plan: ElementPlan, codes: dict[str, FeatureCodes], tally: Tally) -> None:
        """Check nothing yet."""
        self._plan = plan
        self._codes = codes
        self._tally = tally
        self._hasher = RowHasher()
        self.contents = Contents(counts={name: np.zeros(len(one) + 1, dtype=np.int64) for name, one in codes.items()})

    def level(self, level: LevelParts, coarser: LevelParts | None) -> None:
        """Check the rows of one level, and that those of the next one are among them."""
        tiles = level.parts.groups()
        parents = tiles if coarser is None else level.grid.parents()[tiles].astype(np.int64)
        order = np.argsort(parents, kind="stable")
        tiles, parents = tiles[order], parents[order]
        for start, end in _batches(parents, level.parts.counts[tiles]):
            self._batch(level, coarser, tiles[start:end], parents[start:end])
        if coarser is not None:
            # rows of a tile below which there are none
            above = np.setdiff1d(coarser.parts.groups(), parents)
            self._sample(coarser, above, np.zeros(0, dtype=np.uint64))

    def _batch(
        self, level: LevelParts, coarser: LevelParts | None, tiles: NDArray[np.int64], parents: NDArray[np.int64]
    ) -> None:
        found, lost = [np.zeros(0, dtype=np.uint64)], np.zeros(len(tiles), dtype=bool)
        for members in _by_part(level.parts, tiles):
            table = level.parts.read(tiles[members].tolist())
            if table is None:
                lost[members] = True
                continue
            hashes = self._rows(level, table, tiles[members])
            found.append(keyed(hashes, np.repeat(parents[members], level.parts.counts[tiles[members]])))
        if coarser is not None:
            self._sample(coarser, np.setdiff1d(parents, parents[lost]), np.concatenate(found))

    def _rows(self, level: LevelParts, table: pa.Table, tiles: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Check the rows of some tiles of one part; return their hashes."""
        loc = level.parts.file_loc(level.parts.part_of(int(tiles[0])))
        tile_of_row = np.repeat(tiles, level.parts.counts[tiles])
        self._places(level.grid, table, tile_of_row, loc)
        hashes = self._hasher.hashes(table)
        for name, codes in self._codes.items():
            if name not in table.column_names:
                continue
            found = features_of(codes, table, name, loc, self._tally)
            if level.plan.number == 0:
                # NULL is -1 and so the last; unknown features are reported on their own
                known = np.where(found < 0, len(codes), found)
                self.contents.counts[name] += np.bincount(known, minlength=len(codes) + 1)
        if level.plan.number == 0:
            self.contents.total = (self.contents.total + sum_of(hashes)) % 2**64
        return hashes

    def _places(self, grid: Grid, table: pa.Table, tile_of_row: NDArray[np.int64], loc: str) -> None:
        columns = placed(table, self._plan)
        if columns is None:
            return
        points = np.stack(columns, axis=1)
        finite = np.isfinite(points).all(axis=1)
        if not finite.all():
            example = f"in tile {int(tile_of_row[~finite][0])}"
            words = "points are at no finite place"
            self._tally.add(loc, "coordinates", words, count=int((~finite).sum()), example=example)
        found = grid.unbounded_tiles_of(points)
        other = np.flatnonzero((found != grid.tile_coordinates(tile_of_row)).any(axis=1) & finite)
        if len(other):
            place = ", ".join(str(value) for value in points[other[0]].tolist())
            example = f"one of tile {int(tile_of_row[other[0]])} lies at ({place})"
            self._tally.add(loc, "order", "points lie outside their tile", count=len(other), example=example)

    def _sample(self, coarser: LevelParts, tiles: NDArray[np.int64], below: NDArray[np.uint64]) -> None:
        """Check that the rows of some tiles are among those of the level below, given as hashes keyed by tile."""
        tiles = tiles[coarser.parts.counts[tiles] > 0]
        for members in _by_part(coarser.parts, tiles):
            table = coarser.parts.read(tiles[members].tolist())
            if table is None:
                continue
            tile_of_row = np.repeat(tiles[members], coarser.parts.counts[tiles[members]])
            count, first = invented(keyed(self._hasher.hashes(table), tile_of_row), below)
            if count:
                loc = coarser.parts.file_loc(coarser.parts.part_of(int(tiles[members][0])))
                words = f"rows are not among those of level {coarser.plan.number - 1}"
                self._tally.add(loc, "sample", words, count=count, example=f"in tile {int(tile_of_row[first])}")


def _batches(parents: NDArray[np.int64], sizes: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield half-open ranges of tiles: whole families of about so many rows, or one family."""
    borders = np.flatnonzero(np.diff(parents, prepend=-1, append=-1)).tolist()
    before = np.concatenate([[0], np.cumsum(sizes)])
    first = 0
    for start, end in pairwise(borders):
        if start > first and before[end] - before[first] > _BATCH_ROWS:
            yield first, start
            first = start
    if len(parents):
        yield first, len(parents)


def _by_part(parts: Parts, tiles: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Yield the positions of the tiles of each part."""
    part_of_tile = np.searchsorted(parts.starts, tiles, side="right") - 1
    for part in np.unique(part_of_tile).tolist():
        yield np.flatnonzero(part_of_tile == part)


def placed(table: pa.Table, plan: ElementPlan) -> list[NDArray[np.float64]] | None:
    """Return the coordinates of rows in the grid's system (P33); None where a column is absent or holds no numbers."""
    columns = [table.column(axis) for axis in plan.axes if axis in table.column_names]
    is_number = [pa.types.is_floating(column.type) or pa.types.is_integer(column.type) for column in columns]
    if len(columns) < len(plan.axes) or not all(is_number):
        return None
    stored = [_floats(column.combine_chunks()) for column in columns]
    if plan.affine is not None:
        return apply_affine(plan.affine, stored)
    return stored


def _floats(column: pa.Array) -> NDArray[np.float64]:
    """Return numbers as float64, a null as not a number."""
    values = numpy_of(column).astype(np.float64)
    if column.null_count:
        values[nulls_of(column)] = np.nan
    return values


def features_of(codes: FeatureCodes, table: pa.Table, name: str, loc: str, tally: Tally) -> NDArray[np.int64]:
    """Return the feature code of each row, noting a dictionary that is not the index's and unknown features."""
    column = table.column(name)
    others = codes.count_other(column)
    if others:
        words = f"row groups have a dictionary of {name!r} that is not index/features/{name}"
        example = f"{len(column.chunk(0).dictionary)} values for {len(codes)} categories"
        tally.add(loc, "mismatch", words, count=others, example=example)
    found = codes.codes(column)
    unknown = np.flatnonzero(found == UNKNOWN)
    if len(unknown):
        words = f"rows have a value of {name!r} that index/features/{name} lacks"
        tally.add(loc, "mismatch", words, count=len(unknown), example=repr(column[int(unknown[0])].as_py()))
    return found


class Chain:
    """Fractions as they follow from level to level, so that a wrong one does not put its neighbours in the wrong."""

    def __init__(self) -> None:
        """Start at level 0, which holds every point."""
        self._expected: float | None = 1.0

    def check(self, level: LevelPlan, coarser: LevelPlan, offsets: NDArray[np.int64] | None) -> list[Problem]:
        """Return a P of the next level that does not follow from the points of this one (RFC 3, P13).

        Args:
            level: A level.
            coarser: The next one.
            offsets: Tile offsets of the level, or None where these are of no use.

        """
        before, self._expected = self._expected, coarser.fraction
        if before is None or offsets is None or level.grid is None or coarser.grid is None or not coarser.limit:
            return []
        densest = int(np.bincount(level.grid.parents(), weights=np.diff(offsets)).max())
        self._expected = next_fraction(before, densest, coarser.limit)
        if coarser.fraction is None or abs(coarser.fraction - self._expected) <= _TOLERANCE * self._expected:
            return []
        message = f"{coarser.fraction}, but {self._expected} follows from the {densest} points of the densest tile"
        return [Problem(f"{coarser.loc}/sampling/P", message, "sample")]
