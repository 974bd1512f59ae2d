"""The columns of an indexed element as the writers of either layout take them: codes, and the values they count."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from puncta.errors import StoreError
from puncta.indexing._columns import ColumnPlan, Role
from puncta.indexing._text_table import TextTable
from puncta.indexing._write_parquet import CodedColumn, FileLayout, encoding_of
from puncta.points import Points
from puncta.points._arrow import arrow_of, filled

__all__ = ["Codes", "Stager", "categories_of", "columns_of_codes", "layout_of", "sample_of", "text_columns"]

# More texts are found by a table that is made once; to make one of fewer for every window costs next to nothing.
_MANY = 2**14

# As many rows as the encodings of a new index are chosen by.
_SAMPLE_ROWS = 4_096


def text_columns(points: Points) -> list[str]:
    """Return the columns of text of which the index keeps no list of values."""
    names = [field.name for field in points.schema if _is_text(field.type) and field.name not in points.feature_keys]
    found = points.levels[0].source.element.documents([f"index/categories/{name}" for name in names])
    return [name for name, document in zip(names, found, strict=True) if document is None]


def columns_of_codes(points: Points) -> list[str]:
    """Return the feature columns beside which there may be one of their codes, by its name and type (P20)."""
    schema = points.schema
    names = [(feature, f"{feature}_codes") for feature in points.feature_keys]
    return [feature for feature, name in names if name in schema.names and schema.field(name).type == pa.int32()]


def sample_of(points: Points) -> pa.Table:
    """Return some thousand rows of level 0 from its densest tile on, or as many as there are."""
    level = points.levels[0]
    first = int(level.tile_offsets[np.argmax(level.tile_counts)])
    first = min(first, max(level.n_rows - _SAMPLE_ROWS, 0))
    end = min(first + _SAMPLE_ROWS, level.n_rows)
    ranges = np.asarray([(first, end)] if end > first else [], dtype=np.int64)
    return level.stored.read(ranges.reshape(-1, 2), points.columns)


def categories_of(points: Points, sample: pa.Table) -> dict[str, pa.Array]:
    """Return the values of the feature columns and of the categoricals, in their order.

    Args:
        points: The element.
        sample: Some of its rows, whose dictionaries are those that the files alone have: all parts have the same (P8).

    Raises:
        StoreError: If they cannot be read.

    """
    source = points.levels[0].source
    places = {name: f"index/features/{name}" for name in points.feature_keys}
    others = [field.name for field in points.schema if field.name not in places]
    found = source.element.documents([f"index/categories/{name}" for name in others])
    places |= {
        name: f"index/categories/{name}" for name, document in zip(others, found, strict=True) if document is not None
    }
    values: dict[str, pa.Array] = {}
    for field in points.schema:
        if field.name in places:
            values[field.name] = source.vocabulary.categories(places[field.name], _giving(field.type)).values
        elif pa.types.is_dictionary(field.type):
            column = sample.column(field.name)
            values[field.name] = column.chunk(0).dictionary if column.num_chunks else pa.nulls(0, field.type.value_type)
    return values


def layout_of(
    points: Points, sample: pa.Table, values: Mapping[str, pa.Array], codes_columns: Sequence[str]
) -> FileLayout:
    """Return the layout of the files of an element that is there.

    Args:
        points: The element.
        sample: Some of its rows, by which encodings are chosen.
        values: Of each column that is written as codes, what they count.
        codes_columns: Feature columns beside which there is a column of their codes.

    """
    schema = points.schema
    own = {f"{name}_codes" for name in codes_columns}
    columns = tuple(
        ColumnPlan(name=name, source=name, role=_role_of(points, name, values))
        for name in schema.names
        if name not in own
    )
    chosen = {
        plan.name: encoding_of(plan, sample.column(plan.name).combine_chunks())
        for plan in columns
        if plan.name not in values
    }
    return FileLayout(
        columns=columns,
        coded={name: _coded(points, schema.field(name).type, name, some) for name, some in values.items()},
        codes_columns=tuple(codes_columns),
        schema=schema,
        encodings={name: encoding for name, encoding in chosen.items() if encoding is not None},
    )


class Stager:
    """Makes of rows that were read such as the writers take; may be used from many threads.

    Args:
        layout: Layout of the files.

    """

    def __init__(self, layout: FileLayout) -> None:
        self.layout = layout
        self._codes = {name: Codes(name, coded.values) for name, coded in layout.coded.items()}

    def staged(self, rows: pa.Table) -> pa.Table:
        """Return rows with final codes, a null the highest one.

        Raises:
            StoreError: If a value is not among those of its column.

        """
        names = [plan.name for plan in self.layout.columns]
        return pa.Table.from_arrays([self._staged(rows.column(name), name) for name in names], names=names)

    def _staged(self, column: pa.ChunkedArray, name: str) -> pa.ChunkedArray | pa.Array:
        if name not in self._codes:
            return column
        narrow = self.layout.code_type(name).to_pandas_dtype()
        return arrow_of(self._codes[name].of(column).astype(narrow))


class Codes:
    """The positions of the values of one column among those that it can have; may be used from many threads.

    Args:
        name: The column, for messages.
        values: The values, each of them once.

    """

    def __init__(self, name: str, values: pa.Array) -> None:
        self._name = name
        self._values = values
        self._table = TextTable(values) if len(values) > _MANY and _is_text(values.type) else None

    def of(self, column: pa.ChunkedArray) -> NDArray[np.int32]:
        """Return the position of each value, shape (n,), int32; the number of values for a null.

        Args:
            column: Plain values, or dictionaries.

        Raises:
            StoreError: If a value is not among them.

        """
        if self._table is not None or pa.types.is_dictionary(column.type):
            chunks = column.chunks
        else:
            # one table of distinct values for all chunks: in each there may be as many as in all
            chunks = pc.dictionary_encode(column).chunks
        codes = np.concatenate([np.zeros(0, np.int32), *self._of_chunks(chunks)])
        n_values = len(self._values)
        missing = int((codes == n_values).sum()) - column.null_count
        if missing:
            raise StoreError(
                f"{missing} of {len(column)} values of the column {self._name!r} are not among the {n_values} that the "
                "index lists; it was changed after indexing: run puncta validate"
            )
        return codes

    def _of_chunks(self, chunks: Sequence[pa.Array]) -> Iterator[NDArray[np.int32]]:
        dictionary: pa.Array | None = None
        positions = np.zeros(0, np.int32)
        for chunk in chunks:
            if not pa.types.is_dictionary(chunk.type):
                yield self._positions(chunk)
                continue
            if dictionary is None or not chunk.dictionary.equals(dictionary):
                dictionary = chunk.dictionary
                positions = np.append(self._positions(dictionary.cast(self._values.type)), np.int32(len(self._values)))
            # a narrow index type may not reach the entry for null
            yield positions[filled(chunk.indices, len(dictionary), np.int32)]

    def _positions(self, values: pa.Array) -> NDArray[np.int32]:
        """Return the position of each of some values, their number for a null and for any other."""
        if self._table is not None:
            return self._table.positions(values)
        found: NDArray[np.int32] = filled(pc.index_in(values, value_set=self._values), len(self._values), np.int32)
        return found


def _coded(points: Points, data_type: pa.DataType, name: str, values: pa.Array) -> CodedColumn:
    is_dictionary = pa.types.is_dictionary(data_type)
    is_listed = points.levels[0].source.element.has(f"index/categories/{name}")
    return CodedColumn(
        order=np.arange(len(values)),
        values=values,
        as_dictionary=is_dictionary,
        is_categorical=is_dictionary or is_listed,
    )


def _role_of(points: Points, name: str, values: Mapping[str, pa.Array]) -> Role:
    if name in points.axes:
        return "coordinate"
    if name in points.feature_keys:
        return "feature"
    return "coded" if name in values else "plain"


def _giving(data_type: pa.DataType) -> Callable[[], pa.DataType]:
    return lambda: data_type


def _is_text(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(data_type) or pa.types.is_large_string(data_type))
