"""The rows of the tile order: each in its tile, and each level drawn from the one below it."""

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from puncta.points._arrow import numpy_of
from puncta.points._check_parts import Parts, Tally
from puncta.points._check_plan import ElementPlan, LevelPlan
from puncta.points._check_rows import UNKNOWN, FeatureCodes, RowHasher, count_invented, sum_of
from puncta.points._grid import Grid
from puncta.points._sampling import next_fraction
from puncta.spec._problem import Problem
from puncta.spec.transformations import apply_affine

# Fractions are products of quotients: another order of the operations differs in the last digits.
_TOLERANCE = 1e-9


@dataclass(slots=True, kw_only=True)
class Contents:
    """What level 0 holds, so that a copy of it can be compared."""

    n_rows: int = 0
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

    Holds the rows of one tile, and 8 bytes for each row of the tiles that the next level merges with it.
    """

    def __init__(self, plan: ElementPlan, codes: dict[str, FeatureCodes], tally: Tally) -> None:
        """Check nothing yet."""
        self._plan = plan
        self._codes = codes
        self._tally = tally
        self._hasher = RowHasher()
        self.contents = Contents(counts={name: np.zeros(0, dtype=np.int64) for name in codes})

    def level(self, level: LevelParts, coarser: LevelParts | None) -> None:
        """Check the rows of one level, and that those of the next one are among them."""
        groups = level.parts.groups()
        parents = groups if coarser is None else level.grid.parents()[groups].astype(np.int64)
        order = np.argsort(parents, kind="stable")
        groups, parents = groups[order], parents[order]
        borders = np.flatnonzero(np.diff(parents, prepend=-1, append=-1))
        for start, end in pairwise(borders.tolist()):
            tiles = [self._tile(level, group) for group in groups[start:end].tolist()]
            if coarser is not None and all(hashes is not None for hashes in tiles):
                below = [hashes for hashes in tiles if hashes is not None]
                self._sample(coarser, int(parents[start]), np.concatenate(below))
        if coarser is not None:
            # rows of a tile below which there are none
            for tile in np.setdiff1d(np.flatnonzero(coarser.parts.counts), parents).tolist():
                self._sample(coarser, tile, np.zeros(0, dtype=np.uint64))

    def _tile(self, level: LevelParts, tile: int) -> NDArray[np.uint64] | None:
        """Check the rows of one tile; return their hashes, or None where they cannot be read."""
        table = level.parts.read(tile)
        if table is None:
            return None
        loc = level.parts.file_loc(level.parts.part_of(tile))
        self._places(level.grid, table, tile, loc)
        hashes = self._hasher.hashes(table)
        features = {name: self._features(table, name, loc) for name in self._codes if name in table.column_names}
        if level.plan.number == 0:
            self._count(hashes, features)
        return hashes

    def _places(self, grid: Grid, table: pa.Table, tile: int, loc: str) -> None:
        columns = placed(table, self._plan)
        if columns is None:
            return
        points = np.stack(columns, axis=1)
        finite = np.isfinite(points).all(axis=1)
        if not finite.all():
            count, row = int((~finite).sum()), int(np.flatnonzero(~finite)[0])
            self._tally.add(
                loc, "coordinates", "points are at no finite place", count=count, example=f"row {row} of tile {tile}"
            )
        found = grid.unbounded_tiles_of(points[finite])
        other = (found != grid.tile_coordinates([tile])).any(axis=1)
        if other.any():
            row = int(np.flatnonzero(other)[0])
            place = ", ".join(str(value) for value in points[finite][row].tolist())
            example = f"row {row} of tile {tile} lies at ({place})"
            self._tally.add(loc, "order", "points lie outside their tile", count=int(other.sum()), example=example)

    def _features(self, table: pa.Table, name: str, loc: str) -> NDArray[np.int64]:
        return features_of(self._codes[name], table, name, loc, self._tally)

    def _count(self, hashes: NDArray[np.uint64], features: dict[str, NDArray[np.int64]]) -> None:
        contents = self.contents
        contents.n_rows += len(hashes)
        contents.total = (contents.total + sum_of(hashes)) % 2**64
        for name, codes in features.items():
            n_features = len(self._codes[name])
            # NULL is -1 and so the last; unknown ones are reported on their own
            found = np.bincount(np.where(codes < 0, n_features, codes), minlength=n_features + 1)
            before = contents.counts[name]
            contents.counts[name] = found if not len(before) else before + found

    def _sample(self, coarser: LevelParts, tile: int, below: NDArray[np.uint64]) -> None:
        if not coarser.parts.counts[tile]:
            return
        table = coarser.parts.read(tile)
        if table is None:
            return
        invented = count_invented(self._hasher.hashes(table), below)
        if invented:
            loc = coarser.parts.file_loc(coarser.parts.part_of(tile))
            words = f"rows are not among those of level {coarser.plan.number - 1}"
            self._tally.add(loc, "sample", words, count=invented, example=f"in tile {tile}")


def placed(table: pa.Table, plan: ElementPlan) -> list[NDArray[np.float64]] | None:
    """Return the coordinates of rows in the grid's system (P33); None where a column is absent or holds no numbers."""
    columns = [table.column(axis) for axis in plan.axes if axis in table.column_names]
    is_number = [pa.types.is_floating(column.type) or pa.types.is_integer(column.type) for column in columns]
    if len(columns) < len(plan.axes) or not all(is_number):
        return None
    filled = [column.cast(pa.float64(), safe=False).fill_null(float("nan")) for column in columns]
    stored = [numpy_of(column) for column in filled]
    if plan.affine is not None:
        return apply_affine(plan.affine, stored)
    return [values.astype(np.float64) for values in stored]


def features_of(codes: FeatureCodes, table: pa.Table, name: str, loc: str, tally: Tally) -> NDArray[np.int64]:
    """Return the feature code of each row, noting a dictionary that is not the index's and unknown features."""
    found = codes.codes(table.column(name))
    if not codes.is_in_order:
        words = f"row groups have other categories in {name!r} than index/features/{name}"
        tally.add(loc, "mismatch", words, count=1, example=codes.example)
    unknown = int((found == UNKNOWN).sum())
    if unknown:
        words = f"rows have a value of {name!r} that index/features/{name} lacks"
        tally.add(
            loc, "mismatch", words, count=unknown, example=f"row {int((found == UNKNOWN).argmax())} of a row group"
        )
    return found


def wrong_fractions(level: LevelPlan, coarser: LevelPlan, offsets: NDArray[np.int64]) -> list[Problem]:
    """Return a fraction of the next level that does not follow from the points of this one (RFC 3, P13)."""
    if level.grid is None or coarser.fraction is None or level.fraction is None or not coarser.limit:
        return []
    densest = int(np.bincount(level.grid.parents(), weights=np.diff(offsets)).max())
    expected = next_fraction(level.fraction, densest, coarser.limit)
    if abs(coarser.fraction - expected) <= _TOLERANCE * expected:
        return []
    message = f"{coarser.fraction}, but {expected} follows from the {densest} points of the densest tile"
    return [Problem(f"{coarser.loc}/sampling/P", message, "sample")]
