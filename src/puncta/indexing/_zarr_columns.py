"""How the columns of an element become arrays of one dimension: types, fill values, shuffles and names.

RFC 3, "File layout"; decisions P31 and P34.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from puncta.errors import ColumnError
from puncta.indexing._columns import code_type
from puncta.indexing._write_parquet import CodedColumn, FileLayout
from puncta.points._arrow import numpy_of

RESERVED = frozenset(
    {
        "tile_offsets",
        "feature_offsets",
        "feature_offsets_own",
        "feature_level_of",
        "feature_tiles",
        "P_feature",
        "validity",
    }
)
"""Names of arrays and groups that stand beside the columns (P31)."""

type Shuffle = Literal["shuffle", "bitshuffle"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayPlan:
    """The array of one column."""

    name: str
    """Name of the array."""

    column: str
    """Name of the column."""

    dtype: np.dtype[Any]
    """Of the stored values."""

    shuffle: Shuffle
    """How Blosc shuffles before Zstandard: what compressed measured data best."""

    n_values: int | None
    """Number of values that codes count; None for a plain column."""

    counts: str | None
    """Coded column whose codes are meant; None for a plain column."""

    categories: str | None
    """Path, below the element, of the strings that codes count; None for a plain column."""

    @property
    def fill(self) -> Any:  # noqa: ANN401  # a scalar of any dtype
        """What stands where there is no row: NaN, code -1, zero or false."""
        if self.counts is not None:
            return -1
        return np.nan if self.dtype.kind == "f" else self.dtype.type(0)

    def stored(self, rows: pa.Table) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
        """Return the values of staged rows as they are stored, and which are there; None where all are."""
        if self.counts is not None and self.n_values is not None:
            codes = numpy_of(rows.column(self.counts))
            return np.where(codes == self.n_values, -1, codes.astype(np.int64)).astype(self.dtype), None
        column = rows.column(self.column)
        if not column.null_count:
            return _numbers(column, self.dtype), None
        is_valid = numpy_of(column.is_valid().cast(pa.uint8())) != 0
        values = np.array(_numbers(column, self.dtype))
        # what lies under a null is undefined, and would make bytes that depend on how the rows were cut
        values[~is_valid] = self.fill
        return values, is_valid


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayLayout:
    """The arrays of one copy of the rows."""

    arrays: tuple[ArrayPlan, ...]
    """In the order of the columns of the files."""

    schema: pa.Schema
    """Schema of the rows, as the Parquet files have it."""


def plan_arrays(layout: FileLayout) -> ArrayLayout:
    """Return how the columns of an element become arrays.

    Raises:
        ColumnError: If a column is of a type that has no form as an array.

    """
    features, taken = set(layout.features), set(RESERVED)
    codes_of = {f"{name}_codes": name for name in layout.codes_columns}
    arrays = []
    for position, field in enumerate(layout.schema):
        name = _node_name(field.name, position, taken)
        taken.add(name)
        counts = codes_of.get(field.name, field.name if field.name in layout.coded else None)
        if counts is None:
            arrays.append(_plain(name, field, is_coordinate=field.name in layout.coordinates))
            continue
        _check_texts(counts, layout.coded[counts])
        n_values = len(layout.coded[counts].values)
        arrays.append(
            ArrayPlan(
                name=name,
                column=field.name,
                dtype=np.dtype(np.int32 if field.name in codes_of else code_type(n_values).to_pandas_dtype()),
                shuffle="shuffle",
                n_values=n_values,
                counts=counts,
                # codes that are a column of their own are numbers to a reader, and stay numbers
                categories=None if field.name in codes_of else _home(layout, counts, is_feature=counts in features),
            )
        )
    return ArrayLayout(arrays=tuple(arrays), schema=layout.schema)


def value_columns(layout: FileLayout) -> Iterator[tuple[str, pa.Array]]:
    """Yield each column whose values the codes count and no other reader needs, with these values."""
    for name, coded in layout.coded.items():
        if name not in layout.features and not coded.is_categorical:
            yield name, coded.values


def _home(layout: FileLayout, name: str, *, is_feature: bool) -> str:
    if is_feature:
        return f"index/features/{name}"
    return f"index/categories/{name}" if layout.coded[name].is_categorical else f"index/values/{name}"


def _check_texts(name: str, coded: CodedColumn) -> None:
    if not coded.is_found_by_text:
        raise ColumnError(
            f"the categories of the column {name!r} are {coded.values.type}, which do not survive as text; "
            "write them as text, or write the index with --layout parquet"
        )


def _plain(name: str, field: pa.Field, *, is_coordinate: bool) -> ArrayPlan:
    dtype = _dtype_of(field.type)
    if dtype is None:
        raise ColumnError(
            f"the column {field.name!r} holds {field.type}, which is no type of a Zarr array "
            "(text is one as long as its different values fit into memory); leave it out of the source, write the "
            "index with --layout parquet, or allow more with --memory"
        )
    return ArrayPlan(
        name=name,
        column=field.name,
        dtype=dtype,
        # measured: 0.85 and 1.27 bytes a coordinate against 1.04 and 1.77; for all else bytes are as good or better
        shuffle="bitshuffle" if is_coordinate else "shuffle",
        n_values=None,
        counts=None,
        categories=None,
    )


def _dtype_of(data_type: pa.DataType) -> np.dtype[Any] | None:
    """Return the dtype in which the values of an Arrow type are stored, or None where there is none."""
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    if any(test(data_type) for test in tests):
        dtype: np.dtype[Any] = np.dtype(data_type.to_pandas_dtype())
        return dtype
    if pa.types.is_temporal(data_type) and not pa.types.is_interval(data_type):
        return np.dtype(f"int{data_type.bit_width}")
    return None


def _numbers(column: pa.ChunkedArray, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the values of a plain column as stored numbers; what stands for a null is undefined."""
    if pa.types.is_boolean(column.type):
        truth: NDArray[np.bool_] = numpy_of(column.cast(pa.uint8())) != 0
        return truth
    if pa.types.is_temporal(column.type):
        integers = pa.int64() if dtype.itemsize == np.dtype(np.int64).itemsize else pa.int32()
        column = pa.chunked_array([chunk.view(integers) for chunk in column.chunks], type=integers)
    return numpy_of(column)


def _node_name(column: str, position: int, taken: set[str]) -> str:
    """Return a name for the array of a column: its own where a Zarr node may bear it and no other array does."""
    name = column.lstrip("_") if column.startswith("__") else column
    if name in taken:
        name = f"{name}_source"
    is_allowed = name not in {"", ".", "..", "zarr.json"} and "/" not in name and not name.startswith("__")
    return name if is_allowed and name not in taken else f"column-{position}"
