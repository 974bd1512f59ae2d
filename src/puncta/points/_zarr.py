"""Reads one copy of the points from the arrays of the Zarr layout: one array a column, rows as ranges of them.

In the tile order chunk k is tile k, padded to the largest tile; the feature-major copies have plain rows.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from puncta.arrays import BatchArray, RangeRequest, read_batch
from puncta.arrays._cost import cost_of_batch
from puncta.errors import StoreError
from puncta.points._arrow import booleans_of, masked_arrow_of
from puncta.points._categories import Categories, Vocabulary
from puncta.points._copy import Cost
from puncta.points._element import Element
from puncta.points._plan import Ranges, padded
from puncta.store._sizes import n_bytes_below

__all__ = ["ZarrCopy", "as_parquet"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """How a column is stored."""

    field: pa.Field
    """Its name and type in the schema."""

    stored_type: pa.DataType
    """Type of its values as they are stored."""

    array: BatchArray
    """Its values, or their codes."""

    validity: BatchArray | None
    """Where it has values; None where it has one in every row, or codes."""

    categories: Categories | None
    """What the codes stand for; None for plain values."""

    is_given_back: bool
    """Codes are given back as a dictionary, and not as the values that they stand for."""

    @property
    def arrays(self) -> list[BatchArray]:
        """What is read for it."""
        return [self.array] if self.validity is None else [self.array, self.validity]


class ZarrCopy:
    """The arrays of one copy, in one group.

    Args:
        element: What it is a copy of.
        vocabulary: The strings that the element keeps.
        group: Where the arrays are, below the element.
        tile_offsets: Of a tile order, returns the first row of each tile, then the number of rows; None where rows are
            stored one behind the other.

    """

    def __init__(
        self,
        element: Element,
        vocabulary: Vocabulary,
        group: str,
        *,
        tile_offsets: Callable[[], NDArray[np.int64]] | None,
    ) -> None:
        self._element = element
        self._vocabulary = vocabulary
        self._group = group
        self._tile_offsets = tile_offsets
        self._columns: dict[str, _Column] = {}

    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the rows, with the pandas metadata."""
        return self._schema

    def n_bytes(self) -> int:
        """Return the bytes of all files of the group.

        Raises:
            UnsupportedError: If they are on a web server, which cannot list them.

        """
        return n_bytes_below(self._element.files, self._element.key_of(self._group))

    def read(self, ranges: Ranges, columns: Sequence[str]) -> pa.Table:
        """Return the rows of some ranges, in their order, with some columns.

        A column whose categories are kept comes as a dictionary of them. Holds the result, and a bounded number of
        chunks.

        Raises:
            StoreError: If an array is missing or damaged; the message names it.

        """
        return self.read_with([(self, ranges)], columns)[0]

    def read_with(self, pieces: Sequence[tuple["ZarrCopy", Ranges]], columns: Sequence[str]) -> list[pa.Table]:
        """Return the rows of ranges of several copies, all of them one plan; else as `read`."""
        stored = [copy._stored(columns) for copy, _ in pieces]  # noqa: SLF001 (another of this class)
        requests = [
            request
            for (copy, ranges), some in zip(pieces, stored, strict=True)
            for request in copy._requests(ranges, some)  # noqa: SLF001 (as above)
        ]
        answers: Any = iter(read_batch(requests))
        return [
            copy._table(some, answers)  # noqa: SLF001 (as above)
            for (copy, _), some in zip(pieces, stored, strict=True)
        ]

    def cost(self, ranges: Ranges, columns: Sequence[str]) -> Cost:
        """Return what `read` takes, from the indexes of the shards."""
        requests, n_bytes = cost_of_batch(self._requests(ranges, self._stored(columns)))
        return Cost(requests=requests, bytes=n_bytes)

    @cached_property
    def _attributes(self) -> Mapping[str, Any]:
        (document,) = self._element.documents([self._group])
        if document is None:
            raise StoreError(f"{self._name} is missing, though the index needs it; index the points again")
        attributes = document.get("attributes") or {}
        if not isinstance(attributes, Mapping) or not {"df", "arrow_schema"} <= attributes.keys():
            raise StoreError(f"{self._name}/zarr.json does not say what its columns are; index the points again")
        return attributes

    @cached_property
    def _schema(self) -> pa.Schema:
        # an element has the same types in either layout, whatever one of them could hold
        stored = self._stored_schema
        fields = [field.with_type(as_parquet(field.type)) for field in stored]
        return pa.schema(fields, metadata=stored.metadata)

    @cached_property
    def _stored_schema(self) -> pa.Schema:
        try:
            # strict, or bytes that are none of base64 would be left out
            message = base64.b64decode(self._attributes["arrow_schema"], validate=True)
            return pa.ipc.read_schema(pa.py_buffer(message))
        except (ValueError, TypeError, pa.ArrowException, OSError) as error:
            raise StoreError(f"the schema in {self._name}/zarr.json is damaged: {error}; restore it") from error

    @cached_property
    def _array_names(self) -> dict[str, str]:
        """Name of the array of each column."""
        names = self._attributes["df"].get("columns")
        if not isinstance(names, list) or len(names) != len(self._schema):
            raise StoreError(f"{self._name}/zarr.json does not name an array for each column; index the points again")
        return dict(zip(self._schema.names, map(str, names), strict=True))

    @property
    def _name(self) -> str:
        return f"{self._element.location}/{self._group}"

    def _stored(self, columns: Sequence[str]) -> list[_Column]:
        """Return how columns are stored; the metadata of those that are new is asked for in one round."""
        fresh = [name for name in dict.fromkeys(columns) if name not in self._columns]
        if fresh:
            paths = [f"{self._group}/{self._array_names[name]}" for name in fresh]
            masks = [f"{self._group}/validity/{self._array_names[name]}" for name in fresh]
            found = self._element.batch_arrays([*paths, *masks])
            for at, name in enumerate(fresh):
                array = found[at] or self._element.batch_array(paths[at])
                self._columns[name] = self._column(name, paths[at], array, found[len(fresh) + at])
        return [self._columns[name] for name in columns]

    def _column(self, name: str, path: str, array: BatchArray, validity: BatchArray | None) -> _Column:
        field = self._schema.field(name)
        (document,) = self._element.documents([path])
        place = ((document or {}).get("attributes") or {}).get("categories")
        stored_type = self._stored_schema.field(name).type
        if place is None and pa.types.is_dictionary(stored_type):
            raise StoreError(f"{self._element.location}/{path} does not say where its categories are")
        categories = None if place is None else self._vocabulary.categories(str(place), partial(_type_of, field))
        is_given_back = place is not None and not str(place).startswith("index/values/")
        return _Column(
            field=field,
            stored_type=stored_type,
            array=array,
            validity=validity,
            categories=categories,
            is_given_back=is_given_back,
        )

    def _requests(self, ranges: Ranges, columns: Sequence[_Column]) -> list[RangeRequest]:
        arrays = [array for column in columns for array in column.arrays]
        if self._tile_offsets is None or not arrays:
            return [RangeRequest(array, ranges[:, 0], ranges[:, 1]) for array in arrays]
        offsets = self._tile_offsets()
        chunk = int(arrays[0].shape[0]) // max(len(offsets) - 1, 1)
        if int(np.diff(offsets).max(initial=0)) > chunk:
            raise StoreError(f"{self._name} has chunks of {chunk} rows, fewer than its densest tile; index again")
        places = padded(ranges, offsets, chunk)
        return [RangeRequest(array, places[:, 0], places[:, 1]) for array in arrays]

    def _table(self, columns: Sequence[_Column], answers: Any) -> pa.Table:  # noqa: ANN401 (an iterator of answers)
        arrays = []
        for column in columns:
            values, _ = next(answers)
            has_value = None if column.validity is None else next(answers)[0]
            try:
                arrays.append(_arrow(column, values, has_value))
            except (pa.ArrowException, IndexError) as error:
                raise StoreError(f"{column.array.name} does not hold what its schema says: {error}") from error
        names = [column.field.name for column in columns]
        schema = pa.schema([pa.field(name, array.type) for name, array in zip(names, arrays, strict=True)])
        return pa.table(arrays, schema=schema.with_metadata(self._schema.metadata))


def as_parquet(data_type: pa.DataType) -> pa.DataType:
    """Return the type that a column of some type has once it was written as Parquet and read again."""
    if pa.types.is_dictionary(data_type):
        value_type = data_type.value_type
        if not (pa.types.is_string(value_type) or pa.types.is_large_string(value_type)):
            return as_parquet(value_type)
        return pa.dictionary(data_type.index_type, pa.string(), ordered=data_type.ordered)
    if pa.types.is_date64(data_type):
        return pa.date32()
    if pa.types.is_time32(data_type):
        return pa.time32("ms")
    is_coarse = pa.types.is_timestamp(data_type) and data_type.unit == "s"
    return pa.timestamp("ms", tz=data_type.tz) if is_coarse else data_type


def _type_of(field: pa.Field) -> pa.DataType:
    return field.type


def _arrow(column: _Column, values: NDArray[Any], has_value: NDArray[np.bool_] | None) -> pa.Array:
    """Return a column as Arrow from what is stored of it."""
    if column.categories is not None:
        if len(values) and int(values.max()) >= len(column.categories.names):
            raise IndexError(f"code {int(values.max())} of {len(column.categories.names)} categories")
        return column.categories.coded(values) if column.is_given_back else column.categories.decoded(values)
    is_null = np.zeros(len(values), dtype=bool) if has_value is None else ~has_value
    if pa.types.is_boolean(column.field.type):
        return _booleans(values, is_null)
    array = masked_arrow_of(values, is_null)
    # times and dates are stored as the integers that they are
    array = array if array.type == column.stored_type else array.view(column.stored_type)
    return array if array.type == column.field.type else array.cast(column.field.type)


def _booleans(values: NDArray[np.bool_], is_null: NDArray[np.bool_]) -> pa.Array:
    array = booleans_of(values)
    if not is_null.any():
        return array
    valid = np.packbits(~is_null, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(values), [pa.py_buffer(valid), array.buffers()[1]])
