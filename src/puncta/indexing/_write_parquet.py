"""Writes the part files of an element: one row group a tile, or row groups of a feature-major copy.

Encodings and the order of columns are those that paid on measured data (P23, P25, P26).
"""

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from puncta.indexing._arrow_files import written_beside
from puncta.indexing._columns import DASK_INDEX, ColumnPlan, check_node_name, written_type
from puncta.indexing._stage import Staged
from puncta.points._arrow import arrow_of, masked_arrow_of, numpy_of
from puncta.spec.spatialdata import pandas_metadata

# A row group of a tile has some thousand rows, and sources keep neighbours together: where so many rows of the source
# share few values, a dictionary pays.
_SAMPLE_ROWS = 4_096
_FEW_VALUES = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class CodedColumn:
    """How a column of codes is written."""

    order: NDArray[np.int64]
    """Final code of each staged code, shape (n_values,)."""

    values: pa.Array
    """The final categories."""

    as_dictionary: bool
    """Written as an Arrow dictionary, or as plain values."""

    is_categorical: bool
    """The source declares its categories."""

    @property
    def needs_categories(self) -> bool:
        """Whether they are stored beside the offsets: Parquet gives those of dictionaries of text alone back."""
        is_text = pa.types.is_string(self.values.type) or pa.types.is_large_string(self.values.type)
        return self.is_categorical and not (self.as_dictionary and is_text) and self.is_found_by_text

    @property
    def is_found_by_text(self) -> bool:
        """Whether a reader finds the values by their texts, which is how they are stored; bytes and spans have none."""
        try:
            return bool(self.values.cast(pa.string()).cast(self.values.type).equals(self.values))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return False


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLayout:
    """What all files of an element have in common."""

    columns: tuple[ColumnPlan, ...]
    """Columns in the order of the files."""

    coded: Mapping[str, CodedColumn]
    """The feature and coded columns, by name."""

    codes_columns: tuple[str, ...]
    """Feature columns whose integer codes are written as a column of their own, `<feature>_codes`."""

    schema: pa.Schema
    """Schema of the files, with the pandas metadata (P8)."""

    encodings: Mapping[str, str]
    """Encoding of each column that is not dictionary-encoded."""

    @property
    def coordinates(self) -> list[str]:
        """Names of the coordinate columns."""
        return [plan.name for plan in self.columns if plan.role == "coordinate"]

    @property
    def features(self) -> list[str]:
        """Names of the feature columns, the primary one first."""
        return [plan.name for plan in self.columns if plan.role == "feature"]

    def code_type(self, name: str) -> pa.DataType:
        """Return the type of the final codes of a column, which must also hold the one for null."""
        return pa.uint16() if len(self.coded[name].values) < 2**16 else pa.uint32()

    def final_codes(self, name: str, codes: NDArray[np.int32]) -> NDArray[np.unsignedinteger]:
        """Return the final code of each staged code of a column, as narrow as they go; a null is the highest one."""
        coded = self.coded[name]
        narrow = self.code_type(name).to_pandas_dtype()
        lookup: NDArray[np.unsignedinteger] = np.append(coded.order, len(coded.values)).astype(narrow)
        return lookup[codes]

    def written(self, rows: pa.Table) -> pa.Table:
        """Return rows with final codes as they are written."""
        arrays = {
            plan.name: self._decoded(rows, plan.name) if plan.name in self.coded else rows.column(plan.name)
            for plan in self.columns
        }
        for name in self.codes_columns:
            codes = numpy_of(rows.column(name))
            n_values = len(self.coded[name].values)
            arrays[f"{name}_codes"] = arrow_of(np.where(codes == n_values, -1, codes.astype(np.int32)))
        return pa.table([arrays[name] for name in self.schema.names], schema=self.schema)

    def _decoded(self, rows: pa.Table, name: str) -> pa.Array:
        coded = self.coded[name]
        codes = numpy_of(rows.column(name))
        final = self.schema.field(name).type
        index_type = final.index_type if coded.as_dictionary else pa.int32()
        is_null = codes == len(coded.values)
        indices = masked_arrow_of(codes.astype(index_type.to_pandas_dtype()), is_null)
        if not coded.as_dictionary:
            return coded.values.take(indices)
        # The codes are ours: checking them again costs as much as writing them.
        return pa.DictionaryArray.from_arrays(indices, coded.values, ordered=final.ordered, safe=False)


def plan_files(staged: Staged, *, codes_column: bool) -> FileLayout:
    """Return the layout of the files of an element, from the rows that were laid down.

    Args:
        staged: The rows.
        codes_column: Whether the integer codes of each feature column become a column of their own.

    """
    codes_columns = tuple(plan.name for plan in staged.columns if plan.role == "feature") if codes_column else ()
    _, sample = next(staged.batches())
    sample = sample.slice(0, _SAMPLE_ROWS)
    coded: dict[str, CodedColumn] = {}
    fields: list[pa.Field] = []
    encodings: dict[str, str] = {}
    for plan in staged.columns:
        if plan.name in staged.coders:
            coder = staged.coders[plan.name]
            final = written_type(
                coder.value_type,
                len(coder),
                role=plan.role,
                is_categorical=coder.is_categorical,
                is_ordered=coder.is_ordered,
            )
            coded[plan.name] = _coded_column(staged, plan, as_dictionary=pa.types.is_dictionary(final))
            if coded[plan.name].needs_categories:
                check_node_name(plan.name)
            fields.append(pa.field(plan.name, final))
            continue
        column = sample.column(plan.name)
        fields.append(pa.field(plan.name, column.type))
        encoding = encoding_of(plan, column)
        if encoding is not None:
            encodings[plan.name] = encoding
    at = sum(plan.role in {"coordinate", "feature"} for plan in staged.columns)
    for name in codes_columns:
        fields.insert(at, pa.field(f"{name}_codes", pa.int32()))
    schema = pa.schema(fields)
    index = DASK_INDEX if DASK_INDEX in schema.names else None
    n_categories = {name: len(column.values) for name, column in coded.items() if column.as_dictionary}
    metadata = {"pandas": json.dumps(pandas_metadata(schema, index, num_categories=n_categories))}
    return FileLayout(
        columns=staged.columns,
        coded=coded,
        codes_columns=codes_columns,
        schema=schema.with_metadata(metadata),
        encodings=encodings,
    )


def _coded_column(staged: Staged, plan: ColumnPlan, *, as_dictionary: bool) -> CodedColumn:
    coder = staged.coders[plan.name]
    values, order = coder.values(), coder.final_order()
    if order is None or plan.role != "feature":
        # Declared categories keep their order; the order of values that are written one by one shows nowhere.
        return CodedColumn(
            order=np.arange(len(values)),
            values=values,
            as_dictionary=as_dictionary,
            is_categorical=coder.is_categorical,
        )
    final = np.empty(len(order), dtype=np.int64)
    final[order] = np.arange(len(order))
    return CodedColumn(
        order=final,
        values=values.take(arrow_of(order)),
        as_dictionary=as_dictionary,
        is_categorical=coder.is_categorical,
    )


def encoding_of(plan: ColumnPlan, sample: pa.Array) -> str | None:
    """Return the encoding of a column, or None for a dictionary."""
    is_float = pa.types.is_floating(sample.type) and not pa.types.is_float16(sample.type)
    if not is_float and not pa.types.is_integer(sample.type):
        return None
    if is_float and plan.role == "coordinate":
        return "BYTE_STREAM_SPLIT"
    # A dictionary is a page of its own in each of many small row groups: short integers do not earn it back.
    is_short = not is_float and sample.type.bit_width <= np.dtype(np.int16).itemsize * 8
    if not is_short and pc.count_distinct(sample).as_py() <= _FEW_VALUES:
        return None
    return "BYTE_STREAM_SPLIT" if is_float else "DELTA_BINARY_PACKED"


class PartWriter:
    """Writes one part file, row group by row group; it is there only after the block that it is opened in."""

    def __init__(self, path: Path, layout: FileLayout) -> None:
        """Keep what is written, and how; the file is opened with the block."""
        self.layout = layout
        self.path = path
        self._stack = ExitStack()
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        encoded = dict(self.layout.encodings)
        partial = self._stack.enter_context(written_beside(self.path))
        self._writer = self._stack.enter_context(
            pq.ParquetWriter(
                partial,
                self.layout.schema,
                compression="zstd",
                compression_level=1,
                use_dictionary=[name for name in self.layout.schema.names if name not in encoded],
                column_encoding=encoded,
                # Bounds of a tile help every reader that prunes; bounds of anything else only make footers longer.
                write_statistics=self.layout.coordinates,
            )
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def write(self, rows: pa.Table, starts: NDArray[np.int64]) -> None:
        """Write staged rows as one row group for each start, empty ones included.

        Args:
            rows: Rows in the order of the file.
            starts: First row of each row group, shape (k,), ascending, beginning with 0.

        """
        if self._writer is None:
            raise RuntimeError(f"{self.path} is not open: use the writer in a with block")
        table = self.layout.written(rows)
        ends = np.append(starts[1:], rows.num_rows)
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            # A row group is a tile whatever its size: the writer's own bound would split a large one.
            self._writer.write_table(table.slice(start, end - start), row_group_size=max(end - start, 1))
