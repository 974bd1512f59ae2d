"""The arrays of an index (P31), read and held against the metadata and each other."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr
import zarr.errors
from numpy.typing import NDArray

from puncta.errors import MissingError, StoreError
from puncta.points._check_columns import plain_groups
from puncta.points._check_plan import CopyPlan, LevelPlan
from puncta.spec._problem import Problem
from puncta.store._locate import read_document

# What zarr raises for a document or a chunk that is damaged.
_DAMAGE = (zarr.errors.BaseZarrError, ValueError, TypeError, LookupError, OSError, RuntimeError)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyArrays:
    """The arrays of one feature-major copy; None where one is absent or breaks a rule."""

    plan: CopyPlan
    offsets: NDArray[np.int64] | None
    """First row of each feature, then where the nulls begin, then the number of rows: shape (n_features + 2,)."""
    indptr: NDArray[np.int64] | None
    tiles: NDArray[np.uint32] | None
    starts: NDArray[np.int64] | None
    row_groups: NDArray[np.int64] | None
    parts: NDArray[np.int64] | None
    fractions: NDArray[np.float64] | None
    """P_feature, shape (n_features,); ones at level 0."""
    level_of: NDArray[np.uint8] | None
    """Level whose rows serve each feature; None where it is this level for all."""


class ArrayReader:
    """Reads arrays of an element, and keeps what is wrong with them."""

    def __init__(self, element: Path) -> None:
        """Start without problems."""
        self._element = element
        self.problems: list[Problem] = []

    def wrong(self, loc: str, message: str) -> None:
        """Note that an array disagrees with what it should say."""
        self.problems.append(Problem(loc, message, "mismatch"))

    def read(self, loc: str, dtype: str, length: int | None = None) -> NDArray[Any] | None:
        """Return an array of one dimension, or None, noting why."""
        if not (self._element / loc / "zarr.json").exists():
            self.problems.append(Problem(loc, "this array is not there", "missing"))
            return None
        try:
            array = zarr.open_array(self._element / loc, mode="r", zarr_format=3)
            if array.ndim != 1 or (dtype and array.dtype != np.dtype(dtype)):
                self.wrong(loc, f"{array.ndim} dimensions of {array.dtype}, not 1 of {dtype or 'strings'}")
                return None
            if length is not None and array.shape[0] != length:
                self.wrong(loc, f"{array.shape[0]} values, not {length}")
                return None
            return np.asarray(array[:])
        except _DAMAGE as error:
            self.wrong(loc, f"cannot be read: {str(error)[:120] or type(error).__name__}")
            return None

    def bounds(self, loc: str, *, length: int | None = None, last: int | None = None) -> NDArray[np.int64] | None:
        """Return an int64 array that begins with 0, never falls, and ends with a known number; None otherwise."""
        values = self.read(loc, "int64", length)
        if values is None:
            return None
        falls = np.flatnonzero(np.diff(values) < 0)
        if len(values) == 0 or values[0] != 0:
            self.wrong(loc, f"it begins with {values[:1].tolist()}, not with 0")
        elif len(falls):
            at = int(falls[0])
            self.wrong(
                loc, f"it falls {len(falls)} times (first: from {values[at]} to {values[at + 1]}, entry {at + 1})"
            )
        elif last is not None and values[-1] != last:
            self.wrong(loc, f"it ends with {values[-1]}, but there are {last} of what it counts")
        else:
            return values
        return None

    def categories(self, column: str) -> list[str] | None:
        """Return the categories of a feature column."""
        values = self.read(f"index/features/{column}", "")
        return None if values is None else [str(value) for value in values.tolist()]

    def tile_offsets(self, level: LevelPlan) -> NDArray[np.int64] | None:
        """Return the tile offsets of a level."""
        length = None if level.grid is None else level.grid.n_tiles + 1
        return self.bounds(level.offsets, length=length, last=level.n_rows)

    def copy(self, plan: CopyPlan, n_features: int, n_tiles: int | None) -> CopyArrays:
        """Return the arrays of a feature-major copy."""
        at = plan.arrays
        # other readers take an empty range for no points, so a partial copy bears another name (P15)
        offsets_loc = at + ("feature_offsets_own" if plan.is_partial else "feature_offsets")
        offsets = self.bounds(offsets_loc, length=n_features + 1)
        row_groups, parts = self._groups(plan)
        # where the row groups end is the one number of rows that can be read
        n_rows = None if row_groups is None or not len(row_groups) else int(row_groups[-1])
        if offsets is not None and n_rows is not None and offsets[-1] > n_rows:
            self.wrong(offsets_loc, f"it ends with {offsets[-1]}, but the copy has {n_rows} rows")
            offsets = None
        tiles = self.read(f"{at}feature_tiles/tiles", "uint32")
        indptr = self.bounds(
            f"{at}feature_tiles/indptr", length=n_features + 1, last=None if tiles is None else len(tiles)
        )
        starts = self.read(f"{at}feature_tiles/starts", "int64", None if tiles is None else len(tiles))
        arrays = CopyArrays(
            plan=plan,
            offsets=None if offsets is None or n_rows is None else np.append(offsets, n_rows),
            indptr=indptr,
            tiles=tiles,
            starts=starts,
            row_groups=row_groups,
            parts=parts,
            fractions=self._fractions(plan, n_features),
            level_of=self._level_of(plan, n_features),
        )
        return arrays if self._tiles_agree(arrays, n_tiles) else _without_tiles(arrays)

    def _groups(self, plan: CopyPlan) -> tuple[NDArray[np.int64] | None, NDArray[np.int64] | None]:
        """Return the borders of the groups of rows of a copy, and of its parts: of arrays, those that it is read in."""
        if plan.form == "zarr":
            if plan.n_rows is None:
                return None, None
            expected = plain_groups(plan.n_rows)
            counts = np.zeros(0, np.int64) if expected.counts is None else expected.counts
            return np.concatenate([[0], np.cumsum(counts)]), expected.starts
        row_groups = self.bounds(f"{plan.arrays}feature_row_groups", last=plan.n_rows)
        last = None if row_groups is None else len(row_groups) - 1
        return row_groups, self.bounds(f"{plan.arrays}feature_parts", last=last)

    def _fractions(self, plan: CopyPlan, n_features: int) -> NDArray[np.float64] | None:
        if plan.level == 0:
            return np.ones(n_features)
        if isinstance(plan.fractions, dict):
            # a path that leaves the element is refused with the metadata
            loc = str(plan.fractions.get("array"))
            values = None if ".." in loc or loc.startswith("/") else self.read(loc, "float64", n_features)
            if values is not None and not ((values > 0) & (values <= 1)).all():
                self.wrong(loc, f"{int((~((values > 0) & (values <= 1))).sum())} fractions are not in (0, 1]")
                return None
            return values
        if not isinstance(plan.fractions, list):
            return None
        if len(plan.fractions) != n_features:
            self.wrong(plan.fractions_loc, f"{len(plan.fractions)} fractions for {n_features} features")
            return None
        return np.asarray(plan.fractions, dtype=np.float64)

    def _level_of(self, plan: CopyPlan, n_features: int) -> NDArray[np.uint8] | None:
        if not plan.is_partial:
            return None
        loc = f"{plan.arrays}feature_level_of"
        values = self.read(loc, "uint8", n_features)
        if values is not None and (values > plan.level).any():
            self.wrong(loc, f"it names level {int(values.max())}, which comes after level {plan.level}")
            return None
        return values

    def _tiles_agree(self, arrays: CopyArrays, n_tiles: int | None) -> bool:
        """Say whether the feature tiles say the same as the feature offsets, noting what differs."""
        tiles, starts, indptr, offsets = arrays.tiles, arrays.starts, arrays.indptr, arrays.offsets
        at = f"{arrays.plan.arrays}feature_tiles"
        if tiles is None or starts is None or indptr is None or offsets is None:
            return False
        before = len(self.problems)
        features = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        if n_tiles is not None and (tiles >= n_tiles).any():
            self.wrong(f"{at}/tiles", f"it names tile {int(tiles.max())} of {n_tiles} tiles")
        same = features[1:] == features[:-1]
        falls = np.flatnonzero(same & (tiles[1:] <= tiles[:-1]))
        if len(falls):
            self.wrong(f"{at}/tiles", f"not ascending within {len(np.unique(features[falls]))} features")
        if (np.diff(starts) <= 0).any():
            self.wrong(f"{at}/starts", "not growing from each pair of feature and tile to the next")
        # a feature with rows has tiles, the first of which begins where the feature does
        is_empty = offsets[:-2] == offsets[1:-1]
        other = np.flatnonzero(is_empty != (indptr[:-1] == indptr[1:]))
        if len(other):
            self.wrong(
                f"{at}/indptr",
                f"{len(other)} features have rows but no tiles, or tiles but no rows (first: {other[0]})",
            )
        elif not np.array_equal(starts[indptr[:-1][~is_empty]], offsets[:-2][~is_empty]):
            self.wrong(f"{at}/starts", "features do not begin where the feature offsets say")
        return len(self.problems) == before


def _without_tiles(arrays: CopyArrays) -> CopyArrays:
    return CopyArrays(
        plan=arrays.plan,
        offsets=arrays.offsets,
        indptr=None,
        tiles=None,
        starts=None,
        row_groups=arrays.row_groups,
        parts=arrays.parts,
        fractions=arrays.fractions,
        level_of=arrays.level_of,
    )


def damaged_groups(element: Path, levels: Sequence[LevelPlan]) -> list[Problem]:
    """Return the groups of the tree whose `zarr.json` is absent or wrong: zarr warns about such folders, or stops."""
    groups = {"index", "index/features"} if any(level.copies for level in levels) else {"index"}
    for level in levels:
        arrays = [f"{copy.arrays}feature_tiles" for copy in level.copies]
        inner = [level.offsets, level.folder, *(f"{array}/tiles" for array in arrays)]
        inner += [copy.folder for copy in level.copies]
        groups |= {group for place in inner for group in _parents(place)}
    return [problem for group in sorted(groups) for problem in _damaged_group(element, f"{group}/zarr.json")]


def _damaged_group(element: Path, loc: str) -> list[Problem]:
    try:
        document = read_document(element / loc)
    except MissingError:
        return [Problem(loc, "this group has no metadata of its own", "missing")]
    except StoreError as error:
        return [Problem(loc, str(error), "json")]
    kind = (document.get("zarr_format"), document.get("node_type"))
    if kind == (3, "group"):
        return []
    return [Problem(loc, f"it describes {kind[1]!r} of format {kind[0]!r}, not a group of format 3", "mismatch")]


def _parents(place: str) -> list[str]:
    steps = place.split("/")[:-1]
    return ["/".join(steps[: count + 1]) for count in range(len(steps))]
