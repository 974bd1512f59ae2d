"""Values of a column as integer codes, with every distinct value stored once for the whole source.

Sorting, gathering and spilling a code costs a twentieth of what the string costs (measured), and the codes of a feature
are what the index is built from. All distinct values are held while the source is read, so their number is bounded.
"""

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from puncta.points._arrow import arrow_of, filled, numpy_of

NULL = -1
"""Code of a null."""

VALUE_BYTES = 200
"""What a distinct text of some ten letters takes while it can be looked up (measured: 150 to 180)."""

# Values that are looked up at a time: a dictionary of nothing but new ones is given up before all of it is taken in.
_STEP = 2**16


class TooManyValuesError(Exception):
    """A column has more distinct values than may be held: at least `found`."""

    def __init__(self, found: int) -> None:
        """Say how many were found."""
        super().__init__(found)
        self.found = found


class Coder:
    """Turns batches of one column into codes into one growing list of distinct values."""

    def __init__(
        self, value_type: pa.DataType, categories: pa.Array | None = None, *, is_ordered: bool = False
    ) -> None:
        """Start with the categories that the source declares, in their order, or with none."""
        self.value_type = value_type
        self.is_categorical = categories is not None
        self.is_ordered = is_ordered
        self._pieces: list[pa.Array] = [] if categories is None else [categories]
        self._code_of = {value: code for code, value in enumerate([] if categories is None else categories.to_pylist())}
        self._last: tuple[pa.Array, NDArray[np.int32]] | None = None

    def __len__(self) -> int:
        """Return the number of distinct values seen or declared."""
        return len(self._code_of)

    def codes(self, column: pa.Array, *, most: int | None = None) -> NDArray[np.int32]:
        """Return the code of each value, shape (n,), int32; -1 for a null.

        Args:
            column: Values of the column's type, or a dictionary of them.
            most: Distinct values that may be held in all; no bound by default.

        Raises:
            TooManyValuesError: If there would be more; nothing is taken in then.

        """
        encoded = column if pa.types.is_dictionary(column.type) else pc.dictionary_encode(column)
        mapping = self._mapping_of(encoded.dictionary, most)
        indices = encoded.indices
        # a narrow index type may not reach the entry for null
        at = filled(indices, len(mapping) - 1, np.int32) if indices.null_count else numpy_of(indices)
        codes: NDArray[np.int32] = mapping[at]
        return codes

    def values(self) -> pa.Array:
        """Return the distinct values, in the order of their codes."""
        return pa.concat_arrays([*self._pieces, pa.nulls(0, self.value_type)])

    def final_order(self) -> NDArray[np.int64] | None:
        """Return the codes in the order of the final categories, or None where it is theirs already.

        Declared categories keep their order, unused ones included (P5); distinct values of a plain column are sorted.
        """
        if self.is_categorical:
            return None
        order: NDArray[np.int64] = numpy_of(pc.sort_indices(self.values())).astype(np.int64)
        return order

    def _mapping_of(self, dictionary: pa.Array, most: int | None) -> NDArray[np.int32]:
        """Return the code of each value of a batch's dictionary, and of null at the end."""
        if self._last is not None and self._last[0].equals(dictionary):
            return self._last[1]
        known = len(self._code_of)
        codes = np.empty(len(dictionary) + 1, dtype=np.int32)
        for start in range(0, len(dictionary), _STEP):
            for position, value in enumerate(dictionary.slice(start, _STEP).to_pylist(), start):
                codes[position] = NULL if value is None else self._code_of.setdefault(value, len(self._code_of))
            found = len(self._code_of)
            if most is not None and found > most:
                while len(self._code_of) > known:
                    self._code_of.popitem()
                raise TooManyValuesError(found)
        codes[-1] = NULL
        fresh = np.flatnonzero(codes[:-1] >= known)
        if len(fresh):
            self._pieces.append(dictionary.take(arrow_of(fresh)))
        self._last = (dictionary, codes)
        return codes


class Coders:
    """The coders of all columns of a source, which together hold no more than so many values.

    Where they would, the column of the most values gives up its coder, unless codes are what it is needed for.
    """

    def __init__(self, most: int | None, give_up: Callable[[str, Coder], None]) -> None:
        """Start without columns.

        Args:
            most: Distinct values that may be held; None for no bound.
            give_up: Told the name of a column that has no coder any more, and the one that it had.

        """
        self.by_name: dict[str, Coder] = {}
        """The coder of each column that has one."""
        self._most = most
        self._give_up = give_up
        self._needed: set[str] = set()

    def add(
        self,
        name: str,
        value_type: pa.DataType,
        categories: pa.Array | None,
        *,
        is_ordered: bool = False,
        is_needed: bool = False,
    ) -> None:
        """Add the coder of a column, as `Coder` takes it; where its declared values are too many, it is given up.

        Raises:
            TooManyValuesError: If codes are needed of more values than may be held.

        """
        if is_needed:
            self._needed.add(name)
        n_values = 0 if categories is None else len(categories)
        is_too_much = self._most is not None and n_values > self._most
        if is_too_much and is_needed:
            raise TooManyValuesError(n_values)
        if is_too_much:
            self._give_up(name, Coder(value_type))
            return
        self.by_name[name] = Coder(value_type, categories, is_ordered=is_ordered)
        while self._most is not None and sum(map(len, self.by_name.values())) > self._most:
            self._make_room({}, self._most + 1)

    def codes(self, columns: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
        """Return the codes of the columns that still have a coder, as int32.

        Args:
            columns: Rows of all columns that were added, by name.

        Raises:
            TooManyValuesError: If codes are needed of more values than may be held.

        """
        codes: dict[str, pa.Array] = {}
        for name in [name for name in columns if name in self.by_name]:
            while name in self.by_name and name not in codes:
                try:
                    codes[name] = arrow_of(self.by_name[name].codes(columns[name], most=self._room(name)))
                except TooManyValuesError as error:
                    self._make_room({name: error.found}, error.found)
        return {name: found for name, found in codes.items() if name in self.by_name}

    def _room(self, name: str) -> int | None:
        """Return how many values a column may have beside those of the others."""
        if self._most is None:
            return None
        return self._most - sum(len(coder) for other, coder in self.by_name.items() if other != name)

    def _make_room(self, wished: Mapping[str, int], found: int) -> None:
        """Give up the column of the most values, had or wished for, whose codes are not needed."""
        sizes = {name: len(coder) for name, coder in self.by_name.items() if name not in self._needed}
        sizes |= {name: size for name, size in wished.items() if name not in self._needed}
        if not sizes:
            raise TooManyValuesError(found)
        largest = max(sizes, key=lambda name: sizes[name])
        self._give_up(largest, self.by_name.pop(largest))
