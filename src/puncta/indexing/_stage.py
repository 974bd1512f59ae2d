"""Reads a source once, and lays its rows down as they will be stored: coordinates rounded, values as codes.

Everything after this reads the staged files, which are mapped into memory and cost no decoding.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from puncta.errors import ColumnError, SourceError
from puncta.indexing._arrow_files import read_batch, write_batch
from puncta.indexing._coder import NULL, Coder, Coders, TooManyValuesError
from puncta.indexing._columns import ROW, ColumnPlan
from puncta.points._arrow import arrow_of, booleans_of, filled, masked_arrow_of, numpy_of

if TYPE_CHECKING:
    from puncta.indexing._source import Source

BATCH_ROWS = 2**20
"""Rows of a batch: enough to amortise each call, little enough that two of them in flight stay below 200 MB."""

# Below this, the spacing of float32 is at most 1/32, and rounding moves a value by at most half of it (P20).
_SURELY_PRECISE = 2.0**19
_LARGEST_EXACT_INTEGER = 2**24
_MAX_ROUNDING = 1 / 64

type Progress = Callable[[str, int, int], None]
"""Called with the stage, the rows done and the rows to do (0 where not known)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which rows of the source are taken."""

    where: tuple[str, ...] = ()
    """SQL expressions over the source's columns; all must hold."""

    controls: Callable[[pa.Array], NDArray[np.bool_]] | None = None
    """Says which feature names are controls to be left out, if they are."""

    drop_invalid: bool = False
    """Leave out rows with a coordinate that is not finite, instead of refusing them."""


@dataclass(slots=True, kw_only=True)
class Staged:
    """The rows of a source, laid down in batches."""

    columns: tuple[ColumnPlan, ...]
    """Columns of the element."""

    coders: dict[str, Coder]
    """The values of each feature and coded column, by its name in the element."""

    paths: list[Path] = field(default_factory=list)
    """One Arrow file a batch, in the order of the source."""

    starts: list[int] = field(default_factory=list)
    """First source row of each batch."""

    n_rows: int = 0
    """Rows laid down."""

    n_source_rows: int = 0
    """Rows read."""

    lower: NDArray[np.float64] | None = None
    """Smallest value of each of `coordinates`, shape (d,)."""

    upper: NDArray[np.float64] | None = None
    """Largest value of each of `coordinates`, shape (d,)."""

    dropped: dict[str, int] = field(default_factory=dict)
    """How many rows were left out, by reason."""

    text_bytes: dict[str, int] = field(default_factory=dict)
    """Bytes of all rows of each column that is laid down as values of no fixed width."""

    @property
    def coordinates(self) -> list[str]:
        """Names of the coordinate columns, in the order of the files."""
        return [plan.name for plan in self.columns if plan.role == "coordinate"]

    def batches(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield each batch with the source row it starts at, mapped from disk."""
        for start, path in zip(self.starts, self.paths, strict=True):
            yield start, read_batch(path)


def stage(
    source: "Source",
    columns: Sequence[ColumnPlan],
    folder: Path,
    *,
    selection: Selection,
    coordinate_type: pa.DataType | None,
    max_values: int | None = None,
    progress: Progress | None = None,
) -> Staged:
    """Read every row of a source once, and lay the chosen ones down in batches.

    Holds two batches at a time, and the distinct values of the coded columns. Beyond `max_values` of them, columns but
    the features are laid down as they are, those of the most values first.

    Args:
        source: Where the rows come from.
        columns: What becomes of each column.
        folder: Where the batches go.
        selection: Which rows are taken.
        coordinate_type: Type of the stored coordinates; None keeps the source's.
        max_values: Distinct values that may be held, of all columns together; no bound by default.
        progress: Told how far the reading is.

    Raises:
        SourceError: If a coordinate is not finite, cannot be rounded to the stored type, or no row is left.
        ColumnError: If a coordinate column holds no numbers, the features have more values than may be held, or a
            `where` expression does not fit the columns.

    """
    stager = _Stager(
        source, tuple(columns), folder, selection=selection, coordinate_type=coordinate_type, max_values=max_values
    )
    total = source.n_rows or 0
    pending: Future[None] | None = None
    with ThreadPoolExecutor(1) as writer:
        for batch in source.batches(stager.source_columns, BATCH_ROWS):
            if pending is not None:
                pending.result()
                if progress is not None:
                    progress("reading", stager.staged.n_source_rows, total)
            pending = writer.submit(stager.add, batch)
        if pending is not None:
            pending.result()
    return stager.finish()


class _Stager:
    """What `stage` knows between one batch and the next."""

    def __init__(
        self,
        source: "Source",
        columns: tuple[ColumnPlan, ...],
        folder: Path,
        *,
        selection: Selection,
        coordinate_type: pa.DataType | None,
        max_values: int | None,
    ) -> None:
        self.folder = folder
        self.selection = selection
        self.coordinate_type = coordinate_type
        self.path = source.path
        self.source_columns = [plan.source for plan in columns]
        self._source_of = {plan.name: plan.source for plan in columns}
        self.max_values = max_values
        for plan in columns:
            _check_coordinate_type(plan, source.schema.field(plan.source).type)
        self.coders = Coders(max_values, self._lay_down_as_values)
        self.staged = Staged(columns=columns, coders=self.coders.by_name)
        with self._explained():
            for plan in columns:
                if plan.role in {"feature", "coded"}:
                    self.coders.add(
                        plan.name,
                        _value_type(source.schema.field(plan.source).type),
                        source.categories(plan.source, most=max_values),
                        is_ordered=_is_ordered(source.table.stored.field(plan.source).type),
                        is_needed=plan.role == "feature",
                    )
        self.axes = self.staged.coordinates
        self.rounding = 0
        self.rounding_example = ""
        self.invalid_example = ""

    @property
    def _selects(self) -> bool:
        return bool(self.selection.where) or self.selection.controls is not None or self.selection.drop_invalid

    def add(self, batch: pa.RecordBatch) -> None:
        """Lay one batch down."""
        start = self.staged.n_source_rows
        self.staged.n_source_rows += batch.num_rows
        rows = np.arange(start, start + batch.num_rows, dtype=np.uint64) if self._selects else None
        if rows is not None:
            batch, rows = self._select(batch, rows)
        with self._explained():
            codes = self.coders.codes({name: batch.column(self._source_of[name]) for name in self.coders.by_name})
        names = [plan.name for plan in self.staged.columns]
        arrays = [
            codes[plan.name] if plan.name in codes else self._stored(plan, batch.column(plan.source))
            for plan in self.staged.columns
        ]
        if batch.num_rows:
            self._note_bounds([arrays[names.index(axis)] for axis in self.axes], start)
        if rows is not None:
            arrays, names = [*arrays, arrow_of(rows)], [*names, ROW]
        path = self.folder / f"{len(self.staged.paths)}.arrow"
        write_batch(path, pa.RecordBatch.from_arrays(arrays, names=names))
        self.staged.paths.append(path)
        self.staged.starts.append(start)
        self.staged.n_rows += batch.num_rows

    def finish(self) -> Staged:
        """Refuse what may not be indexed; otherwise return what was laid down."""
        staged = self.staged
        invalid = staged.dropped.get("invalid", 0)
        if invalid and not self.selection.drop_invalid:
            raise SourceError(
                f"{invalid} of {staged.n_source_rows} rows of {self.path} have a coordinate that is not a finite "
                f"number (first: {self.invalid_example}); correct them, or leave them out with --invalid drop "
                "(invalid='drop')"
            )
        if self.rounding:
            raise SourceError(
                f"{self.rounding} coordinates of {self.path} would lose more than 1/64 of a unit as float32 "
                f"(first: {self.rounding_example}); keep their type with --coordinate-dtype keep "
                f"(coordinate_dtype='keep')"
            )
        if not staged.n_rows:
            left = ", ".join(f"{count} by {reason}" for reason, count in staged.dropped.items() if count)
            raise SourceError(
                f"{self.path} has no rows to index"
                + (f": all {staged.n_source_rows} were left out ({left}); ask for more of them" if left else "")
            )
        return staged

    def _select(self, batch: pa.RecordBatch, rows: NDArray[np.uint64]) -> tuple[pa.RecordBatch, NDArray[np.uint64]]:
        """Return the rows that are taken, counting the others."""
        masks: list[tuple[str, Callable[[pa.RecordBatch], NDArray[np.bool_]]]] = []
        if self.selection.where:
            masks.append(("where", self._meets_where))
        if self.selection.controls is not None:
            masks.append(("controls", partial(self._is_no_control, self.selection.controls)))
        if self.selection.drop_invalid:
            masks.append(("invalid", self._is_finite))
        for reason, test in masks:
            kept = test(batch)
            self.staged.dropped[reason] = self.staged.dropped.get(reason, 0) + int(len(kept) - kept.sum())
            if not kept.all():
                batch, rows = batch.filter(booleans_of(kept)), rows[kept]
        return batch, rows

    def _meets_where(self, batch: pa.RecordBatch) -> NDArray[np.bool_]:
        # polars takes 0.4 s to import, and most sources are indexed whole
        from puncta.points._where import rows_meeting  # noqa: PLC0415

        return rows_meeting(pa.Table.from_batches([batch]), self.selection.where)

    def _is_no_control(
        self, is_control: Callable[[pa.Array], NDArray[np.bool_]], batch: pa.RecordBatch
    ) -> NDArray[np.bool_]:
        plan = next(plan for plan in self.staged.columns if plan.role == "feature")
        column = batch.column(plan.source)
        encoded = column if pa.types.is_dictionary(column.type) else pc.dictionary_encode(column)
        # A null feature is no control.
        allowed = np.append(~is_control(encoded.dictionary), True)
        kept: NDArray[np.bool_] = allowed[filled(encoded.indices, len(allowed) - 1, np.int32)]
        return kept

    def _is_finite(self, batch: pa.RecordBatch) -> NDArray[np.bool_]:
        finite = np.ones(batch.num_rows, dtype=bool)
        for plan in self.staged.columns:
            if plan.role == "coordinate":
                finite &= np.isfinite(_as_floats(batch.column(plan.source)))
        return finite

    def _stored(self, plan: ColumnPlan, column: pa.Array) -> pa.Array:
        """Return a column without codes as it is laid down."""
        if plan.role == "coordinate":
            return self._rounded(plan, column)
        values = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        self._note_texts(plan.name, values)
        return values

    def _lay_down_as_values(self, name: str, coder: Coder) -> None:
        """Take a column as it is from here on, and in the batches where it was laid down as codes."""
        values = coder.values()
        for path in self.staged.paths:
            batch = read_batch(path)
            codes = numpy_of(batch.column(name))
            decoded = values.take(masked_arrow_of(codes, codes == NULL))
            self._note_texts(name, decoded)
            write_batch(path, batch.set_column(batch.schema.get_field_index(name), name, decoded))
        self.staged.columns = tuple(
            replace(plan, role="plain") if plan.name == name else plan for plan in self.staged.columns
        )

    def _note_texts(self, name: str, values: pa.Array) -> None:
        if not pa.types.is_primitive(values.type):
            self.staged.text_bytes[name] = self.staged.text_bytes.get(name, 0) + values.nbytes

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except TooManyValuesError as error:
            features = ", ".join(repr(plan.source) for plan in self.staged.columns if plan.role == "feature")
            raise ColumnError(
                f"the feature column {features} of {self.path} has more than {self.max_values} different values, more "
                "than the memory allowed can hold; does it name features? name another with feature_key= "
                "(--feature-key), or allow more with memory= (--memory)"
            ) from error

    def _rounded(self, plan: ColumnPlan, column: pa.Array) -> pa.Array:
        """Return coordinates in the stored type, noting those that rounding would spoil."""
        target = self.coordinate_type or (pa.float32() if pa.types.is_float16(column.type) else column.type)
        if column.type == target and not column.null_count:
            return column
        if pa.types.is_integer(column.type) and pa.types.is_floating(target):
            self._note_spoilt(plan, numpy_of(column), _LARGEST_EXACT_INTEGER)
            return arrow_of(_as_floats(column).astype(target.to_pandas_dtype()))
        values = _as_floats(column)
        rounded = values.astype(target.to_pandas_dtype(), copy=False)
        if pa.types.is_float64(column.type) and pa.types.is_float32(target) and len(values):
            self._note_imprecise(plan, values, rounded)
        return arrow_of(rounded)

    def _note_spoilt(self, plan: ColumnPlan, values: NDArray[np.integer], bound: int) -> None:
        large = (values > bound) | (values < -bound)
        if large.any():
            self._note_rounding(plan, values, large)

    def _note_imprecise(self, plan: ColumnPlan, values: NDArray[np.floating], rounded: NDArray[np.floating]) -> None:
        lowest, highest = float(values.min()), float(values.max())
        if lowest >= -_SURELY_PRECISE and highest <= _SURELY_PRECISE:
            return
        with np.errstate(invalid="ignore"):
            off = np.abs(values - rounded.astype(np.float64)) > _MAX_ROUNDING
        if off.any():
            self._note_rounding(plan, values, off)

    def _note_rounding(self, plan: ColumnPlan, values: NDArray[np.generic], bad: NDArray[np.bool_]) -> None:
        if not self.rounding:
            self.rounding_example = f"{plan.source} = {values[bad][0]}"
        self.rounding += int(bad.sum())

    def _note_bounds(self, coordinates: Sequence[pa.Array], start: int) -> None:
        """Widen the bounds, and count rows that are not finite."""
        values = [_as_floats(column) for column in coordinates]
        lower = np.asarray([float(column.min()) for column in values])
        upper = np.asarray([float(column.max()) for column in values])
        if not (np.isfinite(lower) & np.isfinite(upper)).all():
            finite = np.logical_and.reduce([np.isfinite(column) for column in values])
            self._note_invalid(values, finite, start)
            if not finite.any():
                return
            lower = np.asarray([float(column[finite].min()) for column in values])
            upper = np.asarray([float(column[finite].max()) for column in values])
        staged = self.staged
        staged.lower = lower if staged.lower is None else np.minimum(staged.lower, lower)
        staged.upper = upper if staged.upper is None else np.maximum(staged.upper, upper)

    def _note_invalid(self, values: list[NDArray[np.floating]], finite: NDArray[np.bool_], start: int) -> None:
        if not self.staged.dropped.get("invalid"):
            row = int(np.flatnonzero(~finite)[0])
            place = ", ".join(f"{axis} = {column[row]}" for axis, column in zip(self.axes, values, strict=True))
            self.invalid_example = f"row {start + row}, {place}"
        self.staged.dropped["invalid"] = self.staged.dropped.get("invalid", 0) + int((~finite).sum())


def _as_floats(column: pa.Array) -> NDArray[np.floating]:
    """Return numbers as floats, a null as not a number; integers of any size as float64."""
    if not pa.types.is_floating(column.type):
        column = column.cast(pa.float64(), safe=False)
    values: NDArray[np.floating] = filled(column, np.nan, column.type.to_pandas_dtype())
    return values


def _value_type(data_type: pa.DataType) -> pa.DataType:
    return data_type.value_type if pa.types.is_dictionary(data_type) else data_type


def _is_ordered(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_dictionary(data_type) and data_type.ordered)


def _check_coordinate_type(plan: ColumnPlan, data_type: pa.DataType) -> None:
    is_number = pa.types.is_integer(data_type) or pa.types.is_floating(data_type)
    if plan.role == "coordinate" and not is_number:
        raise ColumnError(
            f"the column {plan.source!r} holds {data_type}, not numbers, and cannot be the {plan.name} coordinate; "
            f"name another one with --{plan.name}"
        )
