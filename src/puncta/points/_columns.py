"""Columns as they are read: categories whole and in their order, whatever the row groups say (P5, P25)."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from puncta.errors import ColumnError
from puncta.points._arrow import masked_arrow_of, numpy_of, strings_of
from puncta.points._element import read_strings
from puncta.store._locate import is_there


class Columns:
    """The columns of an element, and the categories of those that have them."""

    def __init__(self, element: Path, schema: pa.Schema, feature_keys: Sequence[str]) -> None:
        """Read nothing yet."""
        self._element = element
        self._schema = schema
        self._feature_keys = tuple(feature_keys)
        self._categories: dict[str, Categories] = {}

    @cached_property
    def _named(self) -> dict[str, str]:
        """Where the categories of a column are."""
        named = {name: f"index/categories/{name}" for name in self._schema.names}
        named = {name: place for name, place in named.items() if is_there(self._element / place)}
        return named | {name: f"index/features/{name}" for name in self._feature_keys}

    def categories(self, name: str) -> "Categories":
        """Return the categories of a column that has them stored beside the offsets."""
        if name not in self._categories:
            values = read_strings(self._element, self._named[name])
            self._categories[name] = Categories(values, _value_type(self._schema.field(name).type))
        return self._categories[name]

    def restored(self, table: pa.Table) -> pa.Table:
        """Return a table whose categorical columns have all their categories, in order, in one chunk."""
        arrays = []
        for name in table.column_names:
            column = table.column(name)
            if name in self._named:
                arrays.append(self.categories(name).restored(column))
            elif pa.types.is_dictionary(column.type):
                arrays.append(_one_dictionary(column))
            else:
                arrays.append(column)
        return pa.table(arrays, schema=pa.schema(list(zip(table.column_names, (a.type for a in arrays), strict=True))))

    def checked(self, names: Sequence[str]) -> list[str]:
        """Return the names, each of which is a column.

        Raises:
            ColumnError: If one is not.

        """
        unknown = [name for name in names if name not in self._schema.names]
        if unknown:
            raise ColumnError(
                f"{len(unknown)} of {len(names)} columns are not there (first: {unknown[0]!r}); the columns are "
                f"{', '.join(self._schema.names)}"
            )
        return list(dict.fromkeys(names))


class Categories:
    """The categories of one column."""

    def __init__(self, names: list[str], value_type: pa.DataType) -> None:
        """Keep the names; the values, of the column's own type, are made when a column is restored."""
        self.names = names
        self._value_type = value_type

    @cached_property
    def values(self) -> pa.Array:
        """The categories in the column's own type."""
        values = strings_of(self.names)
        return values if pa.types.is_string(self._value_type) else values.cast(self._value_type)

    @cached_property
    def code_of(self) -> dict[str, int]:
        """Code of each name."""
        return {name: code for code, name in enumerate(self.names)}

    def codes(self, column: pa.Array | pa.ChunkedArray) -> NDArray[np.int32]:
        """Return the code of each value, shape (n,), int32; -1 for a null or a value that is no category."""
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        return np.concatenate([np.zeros(0, dtype=np.int32), *(self._codes(chunk) for chunk in chunks)])

    def restored(self, column: pa.Array | pa.ChunkedArray) -> pa.Array:
        """Return a column as a dictionary with all categories."""
        codes = self.codes(column)
        return pa.DictionaryArray.from_arrays(masked_arrow_of(codes, codes < 0), self.values, safe=False)

    def _codes(self, chunk: pa.Array) -> NDArray[np.int32]:
        encoded = chunk if pa.types.is_dictionary(chunk.type) else pc.dictionary_encode(chunk)
        indices, n_values = encoded.indices, len(encoded.dictionary)
        if indices.null_count:
            # a narrow index type may not reach the entry for null
            indices = indices.cast(pa.int32()).fill_null(n_values)
        numbers: NDArray[np.integer] = numpy_of(indices)
        if not chunk.null_count and encoded.dictionary.equals(self.values):
            return numbers.astype(np.int32)
        texts = encoded.dictionary.cast(pa.string()).to_pylist()
        mapping = np.asarray([self.code_of.get(text, -1) for text in [*texts, None]], dtype=np.int32)
        codes: NDArray[np.int32] = mapping[numbers]
        return codes


def _value_type(data_type: pa.DataType) -> pa.DataType:
    return data_type.value_type if pa.types.is_dictionary(data_type) else data_type


def _one_dictionary(column: pa.ChunkedArray) -> pa.Array:
    """Return a dictionary column in one chunk; row groups of one file have one dictionary."""
    unified = column.unify_dictionaries().combine_chunks()
    return unified if isinstance(unified, pa.Array) else pa.concat_arrays([*unified.chunks, column.type.empty(0)])
