"""The categories of columns, and columns of codes of them."""

from collections.abc import Callable
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from puncta.points._arrow import filled, masked_arrow_of, numpy_of, strings_of
from puncta.points._element import Element

__all__ = ["Categories", "Vocabulary"]


class Vocabulary:
    """The strings that an element keeps beside its offsets, each array of them read once.

    Args:
        element: Where they are.

    """

    def __init__(self, element: Element) -> None:
        self._element = element
        self._known: dict[str, Categories] = {}

    def categories(self, path: str, column_type: Callable[[], pa.DataType]) -> "Categories":
        """Return the categories of a column.

        Args:
            path: Where their names are, below the element.
            column_type: Finds out the column's type in the schema when it is needed: to open a file for it may be
                avoided.

        Raises:
            StoreError: If they are missing or cannot be read.

        """
        if path not in self._known:
            self._known[path] = Categories(self._element.strings(path), column_type)
        return self._known[path]


class Categories:
    """The categories of one column."""

    def __init__(self, names: list[str], column_type: Callable[[], pa.DataType]) -> None:
        """Keep the names; the values, of the column's own type, are made when a column is restored."""
        self.names = names
        self._column_type = column_type

    @cached_property
    def values(self) -> pa.Array:
        """The categories in the column's own type."""
        column_type = self._column_type()
        value_type = column_type.value_type if pa.types.is_dictionary(column_type) else column_type
        values = strings_of(self.names)
        return values if pa.types.is_string(value_type) else values.cast(value_type)

    @cached_property
    def type(self) -> pa.DataType:
        """The type of a column of codes: the schema's own where that is a dictionary which can hold them."""
        given = self._column_type()
        if pa.types.is_dictionary(given) and len(self.names) <= 2 ** (given.index_type.bit_width - 1):
            return given
        return pa.dictionary(pa.int32(), self.values.type)

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
        return self.coded(self.codes(column))

    def coded(self, codes: NDArray[np.integer]) -> pa.Array:
        """Return the dictionary that codes stand for, -1 for a null."""
        indices = masked_arrow_of(codes.astype(self.type.index_type.to_pandas_dtype(), copy=False), codes < 0)
        # the codes are ours: checking them again costs as much as reading them
        return pa.DictionaryArray.from_arrays(indices, self.values, ordered=self.type.ordered, safe=False)

    def decoded(self, codes: NDArray[np.integer]) -> pa.Array:
        """Return the values that codes stand for, null for -1."""
        return self.values.take(masked_arrow_of(codes, codes < 0))

    def _codes(self, chunk: pa.Array) -> NDArray[np.int32]:
        encoded = chunk if pa.types.is_dictionary(chunk.type) else pc.dictionary_encode(chunk)
        indices, n_values = encoded.indices, len(encoded.dictionary)
        # a narrow index type may not reach the entry for null
        numbers: NDArray[np.integer] = filled(indices, n_values, np.int32) if indices.null_count else numpy_of(indices)
        if not chunk.null_count and encoded.dictionary.equals(self.values):
            return numbers.astype(np.int32)
        texts = encoded.dictionary.cast(pa.string()).to_pylist()
        mapping = np.asarray([self.code_of.get(text, -1) for text in [*texts, None]], dtype=np.int32)
        codes: NDArray[np.int32] = mapping[numbers]
        return codes
