"""Answers questions: plans which rows of which copy to read, reads them, and applies the exact filters.

RFC 3, "Reading" and "Showing several features together"; decisions P14, P15, P24 and P28.
"""

import difflib
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from puncta.errors import QueryError, StoreError
from puncta.points._arrow import arrow_of, numpy_of
from puncta.points._columns import Columns
from puncta.points._copy import Piece, read_pieces
from puncta.points._levels import Level
from puncta.points._plan import Choice, choose_level, merged, no_ranges, ranges_of_tiles, rows_in_blocks, target_of
from puncta.points._question import Count, Explanation, Plan, Question
from puncta.points._region import Region
from puncta.points._sampling import is_kept, thinning_numbers

# Rows of a feature-major copy that are decoded together, about, in either layout (P9).
_BLOCK_ROWS = 16_384

_NOTE_FALLBACK = "read from the tile order at a sampled level: rare features may be missing"


class Planner:
    """Plans and answers questions about one element."""

    def __init__(self, levels: Sequence[Level], columns: Columns, *, primary: str | None, system: str) -> None:
        """Read nothing yet."""
        self._levels = levels
        self._columns = columns
        self._primary = primary
        self._system = system

    def plan(self, question: Question) -> Plan:
        """Return how a question is answered; reads offsets, and no point."""
        codes = self._codes(question)
        choice = self._choice(question, codes)
        level = self._levels[choice.level]
        tiles = question.region.tiles_in(level.grid)
        if codes is None or not self._has_copy(level, question):
            return self._spatial(level, tiles, choice.share, falls_back=codes is not None)
        plan = self._by_feature(question, level, codes, choice.share)
        # At level 0 both copies hold the same points: read the one that costs less.
        if level.number == 0 and int(level.tile_counts[tiles].sum()) < self._rows_touched(plan, question):
            return self._spatial(level, tiles, choice.share, falls_back=False)
        return plan

    def answer(self, question: Question, names: Sequence[str]) -> pa.Table:
        """Return the rows that a question asks for.

        Holds the row groups that are touched, and the answer.
        """
        plan = self.plan(question)
        columns = self._asked_columns(question, names)
        table = self._matching(plan, question, columns)
        while question.budget is not None and table.num_rows > question.budget:
            # Points may crowd in the part of a tile that is in view; offsets cannot tell, so it is seen only now.
            plan = plan.thinned(target_of(question.budget) / table.num_rows)
            table = self._matching(plan, question, columns)
        table = table.select(columns)
        return table.replace_schema_metadata({"puncta": json.dumps(self._says(plan))})

    def explain(self, question: Question, names: Sequence[str]) -> Explanation:
        """Return what a question would read, without reading a point."""
        plan = self.plan(question)
        needed = self._needed(plan, question, self._asked_columns(question, names))
        costs = [piece.copy.cost(piece.ranges, needed) for piece in plan.pieces]
        return Explanation(
            level=plan.level,
            tiles=plan.tiles,
            rows=plan.rows,
            requests=sum(cost.requests for cost in costs),
            bytes=sum(cost.bytes for cost in costs),
            fraction=plan.fractions,
            complete=plan.is_complete,
            order=plan.order,
        )

    def count(self, question: Question) -> Count:
        """Return how many points a question asks for, reading as little as it can.

        Tiles that lie wholly inside are counted from the offsets; of the others only what the filters need is read.
        """
        level = self._levels[question.level or 0]
        codes = self._codes(question)
        if question.where or (codes is not None and not self._has_copy(level, question)):
            return self._count_matching(question, level)
        tiles = question.region.tiles_in(level.grid)
        if codes is None:
            inside = question.region.is_inside(level.grid, tiles)
            whole = int(level.tile_counts[tiles[inside]].sum())
            border = self._spatial(level, tiles[~inside], 1.0, falls_back=False)
            return _estimated(whole + self._matching(border, question, []).num_rows, level)
        return self._count_features(question, level, codes)

    def read_tile(self, level: Level, tile: int, names: Sequence[str]) -> pa.Table:
        """Return all columns of the rows of one tile."""
        plan = self._spatial(level, np.asarray([tile], dtype=np.int64), 1.0, falls_back=False)
        table = read_pieces(plan.pieces, names)
        return self._columns.restored(table).replace_schema_metadata({"puncta": json.dumps(self._says(plan))})

    def _count_matching(self, question: Question, level: Level) -> Count:
        plan = self.plan(question)
        table = self._matching(plan, question, [])
        if not isinstance(plan.fractions, dict):
            return Count(count=round(table.num_rows / plan.fractions), exact=level.number == 0)
        categories = self._columns.categories(str(question.feature_key))
        codes = categories.codes(table.column(str(question.feature_key)))
        found = np.bincount(codes, minlength=len(categories.names))
        total = sum(int(found[categories.code_of[name]]) / part for name, part in plan.fractions.items())
        return Count(count=round(total), exact=level.number == 0)

    def _count_features(self, question: Question, level: Level, codes: Sequence[int]) -> Count:
        total = 0.0
        for code, serving, own, rows in self._in_view(question, level, codes):
            copy = serving.copy(self._further(question))
            inside = question.region.is_inside(serving.grid, own)
            found = int((rows[inside, 1] - rows[inside, 0]).sum())
            border = merged(rows[~inside, 0], rows[~inside, 1])
            if len(border):
                piece = Piece(copy=copy.stored, ranges=border)
                found += int(question.region.contains(self._coordinates(piece, question.region)).sum())
            fraction = 1.0 if copy.fractions is None else float(copy.fractions[code])
            total += found / fraction
        return Count(count=round(total), exact=level.number == 0)

    def _coordinates(self, piece: Piece, region: Region) -> list[NDArray[np.generic]]:
        return _coordinates_of(read_pieces([piece], region.tested_axes), region.tested_axes)

    def _codes(self, question: Question) -> list[int] | None:
        """Return the codes of the features that are asked for, or None for all points."""
        if question.features is None:
            return None
        if question.feature_key is None:
            raise QueryError("the element has no feature column, so no feature can be asked for; leave features out")
        categories = self._columns.categories(question.feature_key)
        unknown = [name for name in question.features if name not in categories.code_of]
        if unknown:
            near = difflib.get_close_matches(unknown[0], categories.names, n=3, cutoff=0.5)
            raise QueryError(
                f"{len(unknown)} of {len(question.features)} features are no values of {question.feature_key!r} "
                f"(first: {unknown[0]!r})" + (f"; the nearest are {', '.join(near)}" if near else "")
            )
        return sorted({categories.code_of[name] for name in question.features})

    def _asked_columns(self, question: Question, names: Sequence[str]) -> list[str]:
        return self._columns.checked(names if question.columns is None else question.columns)

    def _further(self, question: Question) -> str | None:
        return None if question.feature_key == self._primary else question.feature_key

    def _has_copy(self, level: Level, question: Question) -> bool:
        return level.has_copy(self._further(question))

    def _choice(self, question: Question, codes: list[int] | None) -> Choice:
        """Return the level, and the share of its rows to show."""
        if question.budget is None:
            return Choice(level=question.level or 0, share=1.0)
        return choose_level([self._expected(question, codes, level) for level in self._levels], question.budget)

    def _expected(self, question: Question, codes: list[int] | None, level: Level) -> float:
        """Return about how many rows of a level are in view."""
        tiles = question.region.tiles_in(level.grid)
        if codes is None or not self._has_copy(level, question):
            counts = level.tile_counts[tiles]
            return float((counts * question.region.shares(level.grid, tiles)).sum())
        kept = self._shares(question, level, codes)
        expected = 0.0
        for (_, serving, own, rows), share in zip(self._in_view(question, level, codes), kept, strict=True):
            shares = question.region.shares(serving.grid, own)
            expected += share * float(((rows[:, 1] - rows[:, 0]) * shares).sum())
        return expected

    def _rows_touched(self, plan: Plan, question: Question) -> int:
        """Return about how many rows of level 0 are decoded: as many in either layout, so that both read one copy."""
        copy = self._levels[0].copy(self._further(question))
        n_rows = int(copy.rows.offsets[-1]) if copy.n_rows is None else copy.n_rows
        return sum(rows_in_blocks(piece.ranges, block=_BLOCK_ROWS, n_rows=n_rows) for piece in plan.pieces)

    def _fractions(self, question: Question, level: Level, codes: Sequence[int]) -> list[float]:
        """Return P_g of each feature at a level."""
        fractions = level.copy(self._further(question)).fractions
        return [1.0 if fractions is None else float(fractions[code]) for code in codes]

    def _shares(self, question: Question, level: Level, codes: Sequence[int]) -> list[float]:
        """Return which share of each feature's rows is shown: P_S / P_g, or all of them (RFC 3)."""
        fractions = self._fractions(question, level, codes)
        if question.thinning == "own":
            return [1.0] * len(fractions)
        lowest = min(fractions, default=1.0)
        return [lowest / fraction for fraction in fractions]

    def _in_view(
        self, question: Question, level: Level, codes: Sequence[int]
    ) -> Iterator[tuple[int, Level, NDArray[np.int64], NDArray[np.int64]]]:
        """Yield each feature, the level whose rows serve it (P15), its tiles in view there, and its rows in each."""
        further = self._further(question)
        level_of = level.copy(further).level_of
        numbers = [level.number if level_of is None else int(level_of[code]) for code in codes]
        # the features of one serving level are looked up together
        found = {
            number: self._levels[number]
            .copy(further)
            .rows.rows_in(
                [code for code, own in zip(codes, numbers, strict=True) if own == number],
                question.region.tiles_in(self._levels[number].grid),
            )
            for number in dict.fromkeys(numbers)
        }
        for code, number in zip(codes, numbers, strict=True):
            yield code, self._levels[number], *next(found[number])

    def _spatial(self, level: Level, tiles: NDArray[np.int64], share: float, *, falls_back: bool) -> Plan:
        ranges = ranges_of_tiles(tiles, level.tile_offsets)
        occupied = int((level.tile_counts[tiles] > 0).sum())
        return Plan(
            level=level.number,
            order="spatial",
            pieces=(Piece(copy=level.stored, ranges=ranges),),
            tiles=occupied,
            fractions=level.fraction * share,
            kept=share,
            note=_NOTE_FALLBACK if falls_back and level.number else "",
        )

    def _by_feature(self, question: Question, level: Level, codes: Sequence[int], share: float) -> Plan:
        fractions = self._fractions(question, level, codes)
        shares = [one * share for one in self._shares(question, level, codes)]
        rows_of: dict[int, list[NDArray[np.int64]]] = {}
        touched: dict[int, list[NDArray[np.int64]]] = {}
        for _, serving, own, rows in self._in_view(question, level, codes):
            rows_of.setdefault(serving.number, []).append(rows)
            touched.setdefault(serving.number, []).append(own)
        pieces = []
        for number, parts in rows_of.items():
            rows = np.concatenate(parts)
            copy = self._levels[number].copy(self._further(question))
            pieces.append(Piece(copy=copy.stored, ranges=merged(rows[:, 0], rows[:, 1])))
        names = self._columns.categories(str(question.feature_key)).names
        if question.thinning == "equal":
            # P_g * (P_S / P_g) may miss P_S by its last bit: say the one fraction that all have
            shown = dict.fromkeys((names[code] for code in codes), min(fractions, default=1.0) * share)
        else:
            shown = {names[code]: fraction * share for code, fraction in zip(codes, fractions, strict=True)}
        kept = {names[code]: one for code, one in zip(codes, shares, strict=True)}
        return Plan(
            level=level.number,
            order="feature",
            pieces=tuple(pieces),
            tiles=sum(len(np.unique(np.concatenate(parts))) for parts in touched.values()),
            fractions=_one_if_equal(shown, default=level.fraction),
            kept=_one_if_equal(kept, default=1.0),
            note="",
        )

    def _needed(self, plan: Plan, question: Question, columns: Sequence[str]) -> list[str]:
        """Return the columns to read: those that are asked for, and those that the filters look at."""
        needed = list(columns)
        needed += question.region.tested_axes
        if plan.kept != 1.0 or not needed:
            needed += question.region.axes
        if question.feature_key is not None and (question.features is not None or plan.kept != 1.0):
            needed.append(question.feature_key)
        if question.where:
            # polars takes 0.4 s to import, and most questions have no filter
            from puncta.points._where import columns_of  # noqa: PLC0415

            needed += self._columns.checked(columns_of(question.where))
        return list(dict.fromkeys(needed))

    def _matching(self, plan: Plan, question: Question, columns: Sequence[str]) -> pa.Table:
        """Return the rows that a question asks for, with these columns and those that the filters look at."""
        needed = self._needed(plan, question, columns)
        pieces = plan.pieces or (Piece(copy=self._levels[0].stored, ranges=no_ranges()),)
        table = read_pieces(pieces, needed)
        kept = np.ones(table.num_rows, dtype=bool)
        region = question.region
        if not region.is_everything:
            kept &= region.contains(_coordinates_of(table, region.tested_axes))
        if question.features is not None and question.feature_key is not None:
            kept &= self._is_asked(table, question)
        if plan.kept != 1.0:
            kept &= self._is_shown(table, plan, question)
        table = self._columns.restored(_filtered(table, kept))
        if question.where:
            from puncta.points._where import rows_meeting  # noqa: PLC0415  # as above

            table = _filtered(table, rows_meeting(table, question.where))
        return table

    def _is_asked(self, table: pa.Table, question: Question) -> NDArray[np.bool_]:
        """Say which rows are of the features that are asked for."""
        categories = self._columns.categories(str(question.feature_key))
        wanted = np.zeros(len(categories.names) + 1, dtype=bool)
        wanted[[categories.code_of[name] for name in question.features or ()]] = True
        asked: NDArray[np.bool_] = wanted[categories.codes(table.column(str(question.feature_key)))]
        return asked

    def _is_shown(self, table: pa.Table, plan: Plan, question: Question) -> NDArray[np.bool_]:
        """Say which rows are shown when a sampled level is thinned by the hash of the points (P14)."""
        axes = sorted(question.region.axes)
        key = question.feature_key
        codes = np.full(table.num_rows, -1, dtype=np.int32)
        if key is not None:
            codes = self._columns.categories(key).codes(table.column(key))
        numbers = thinning_numbers([numpy_of(table.column(axis)).astype(np.float32) for axis in axes], codes)
        if not isinstance(plan.kept, dict):
            return is_kept(numbers, plan.kept)
        shown = np.zeros(table.num_rows, dtype=bool)
        for name, share in plan.kept.items():
            own = codes == self._columns.categories(str(key)).code_of[name]
            shown[own] = is_kept(numbers[own], share)
        return shown

    def _says(self, plan: Plan) -> dict[str, Any]:
        """Return what a result says of itself (P28)."""
        return {
            "level": plan.level,
            "fraction": plan.fractions,
            "complete": plan.is_complete,
            "order": plan.order,
            "coordinate_system": self._system,
            "note": plan.note,
        }


def _coordinates_of(table: pa.Table, axes: Sequence[str]) -> list[NDArray[np.generic]]:
    """Return coordinates of rows.

    Raises:
        StoreError: If a row has none: what reads as nothing must not pass for a point that lies elsewhere.

    """
    coordinates = [numpy_of(table.column(axis)) for axis in axes]
    lost = [axis for axis, values in zip(axes, coordinates, strict=True) if np.isnan(np.sum(values))]
    if lost:
        raise StoreError(
            f"{len(lost)} of {len(axes)} coordinates are missing in some of {table.num_rows} rows (first: "
            f"{lost[0]!r}), as where a file of the index is gone; run puncta validate, or restore the file"
        )
    return coordinates


def _filtered(table: pa.Table, kept: NDArray[np.bool_]) -> pa.Table:
    # taking by position is several times faster than a mask where rows are few, and keeps one chunk
    return table if kept.all() else table.take(arrow_of(np.flatnonzero(kept)))


def _one_if_equal(values: dict[str, float], *, default: float) -> dict[str, float] | float:
    """Return one number where all are the same, and the mapping where they differ."""
    distinct = set(values.values())
    return values if len(distinct) > 1 else next(iter(distinct), default)


def _estimated(rows: int, level: Level) -> Count:
    return Count(count=round(rows / level.fraction), exact=level.number == 0)
