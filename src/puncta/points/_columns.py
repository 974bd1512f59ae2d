"""Columns as they are read: categories whole and in their order, whatever the row groups say (P5, P25)."""

from collections.abc import Callable, Sequence
from functools import cached_property, partial

import pyarrow as pa

from puncta.errors import ColumnError
from puncta.points._categories import Categories, Vocabulary
from puncta.points._element import Element

__all__ = ["Columns"]


class Columns:
    """The columns of an element, and the categories of those that have them.

    Args:
        element: What they are of.
        vocabulary: The strings that it keeps.
        schema: Returns the schema of its rows; not asked before it is needed, since that opens a file.
        feature_keys: Feature columns.

    """

    def __init__(
        self, element: Element, vocabulary: Vocabulary, schema: Callable[[], pa.Schema], feature_keys: Sequence[str]
    ) -> None:
        self._element = element
        self._vocabulary = vocabulary
        self._make_schema = schema
        self._features = {name: f"index/features/{name}" for name in feature_keys}

    @cached_property
    def schema(self) -> pa.Schema:
        """Schema of the rows."""
        return self._make_schema()

    @cached_property
    def _named(self) -> dict[str, str]:
        """Where the categories of a column are."""
        places = {name: f"index/categories/{name}" for name in self.schema.names if name not in self._features}
        found = self._element.documents(list(places.values()))
        there = [document is not None for document in found]
        named = {name: place for (name, place), is_there in zip(places.items(), there, strict=True) if is_there}
        return named | self._features

    def categories(self, name: str) -> Categories:
        """Return the categories of a column that has them stored beside the offsets."""
        path = self._features.get(name) or self._named[name]
        return self._vocabulary.categories(path, partial(self._type_of, name))

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
        unknown = [name for name in names if name not in self.schema.names]
        if unknown:
            raise ColumnError(
                f"{len(unknown)} of {len(names)} columns are not there (first: {unknown[0]!r}); the columns are "
                f"{', '.join(self.schema.names)}"
            )
        return list(dict.fromkeys(names))

    def _type_of(self, name: str) -> pa.DataType:
        return self.schema.field(name).type


def _one_dictionary(column: pa.ChunkedArray) -> pa.Array:
    """Return a dictionary column in one chunk; row groups of one file have one dictionary."""
    unified = column.unify_dictionaries().combine_chunks()
    return unified if isinstance(unified, pa.Array) else pa.concat_arrays([*unified.chunks, column.type.empty(0)])
