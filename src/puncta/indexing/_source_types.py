"""One type for each column of a source, whatever its parts say.

Pure. pandas picks the width of a categorical's codes by the values of each part, and writes a column of nothing but
nulls without a type, so parts of one table differ in both; anything beyond that is not one table.
"""

import json
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

import pyarrow as pa
import pyarrow.compute as pc

from puncta.errors import ColumnError, SourceError

__all__ = ["as_text", "check_feature_types", "conform", "index_column_of", "one_schema", "union_of_dictionaries"]


def one_schema(schemas: Iterable[tuple[str, pa.Schema]], names: Sequence[str]) -> pa.Schema:
    """Return the one schema that all parts can be read with, columns in the order of `names`.

    Args:
        schemas: Name of each part, for the message, and its schema.
        names: Columns of the first part.

    Raises:
        SourceError: If a part lacks a column, has one more, or holds another type.

    """
    types: dict[str, pa.DataType] = {}
    first = ""
    for part, schema in schemas:
        first = first or part
        odd = sorted(set(names) ^ set(schema.names))
        if odd:
            has = "has a column" if odd[0] in schema.names else "lacks the column"
            raise SourceError(
                f"{part} {has} {odd[0]!r}, unlike {first} ({len(odd)} columns differ); all parts must be of one table"
            )
        for name in names:
            data_type = schema.field(name).type
            wider = _wider(types.get(name, data_type), data_type)
            if wider is None:
                raise SourceError(
                    f"column {name!r} is {data_type} in {part} and {types[name]} before it (first: {first}); "
                    "all parts must be of one table, so write it with one type"
                )
            types[name] = wider
    return pa.schema([(name, types[name]) for name in names])


def as_text(data_type: pa.DataType) -> pa.DataType:
    """Return plain text for bytes and views, any other type as it is; old Xenium files hold their names as bytes."""
    if pa.types.is_dictionary(data_type):
        return pa.dictionary(data_type.index_type, as_text(data_type.value_type), ordered=data_type.ordered)
    if pa.types.is_large_binary(data_type):
        return pa.large_string()
    is_bytes = pa.types.is_binary(data_type) or pa.types.is_fixed_size_binary(data_type)
    return pa.string() if is_bytes or data_type in {pa.binary_view(), pa.string_view()} else data_type


def conform(array: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return the array as this type: same values, another width, dictionary or text for bytes.

    Raises:
        pyarrow.ArrowInvalid: If the bytes are no UTF-8 text.

    """
    if array.type == data_type:
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), data_type)
    if not pa.types.is_dictionary(data_type):
        return array.cast(data_type)
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    return pa.DictionaryArray.from_arrays(
        array.indices.cast(data_type.index_type),
        array.dictionary.cast(data_type.value_type),
        ordered=data_type.ordered,
    )


def union_of_dictionaries(dictionaries: Iterable[pa.Array], value_type: pa.DataType, most: int | None) -> pa.Array:
    """Return the values of all dictionaries in order of appearance, unused ones included (P5); nulls are no value.

    Once there are more than `most`, no further dictionary is looked at.
    """
    union = last = pa.nulls(0, value_type)
    for dictionary in dictionaries:
        if not dictionary.equals(last):
            union, last = pc.unique(pa.concat_arrays([union, dictionary])), dictionary
        if most is not None and len(union) > most + 1:
            break
    return union.drop_null()


def index_column_of(schema: pa.Schema) -> str | None:
    """Return the column that holds the pandas index, by the pandas metadata; None for a plain range or several.

    The levels of an index of several are columns like any other.
    """
    try:
        document = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))
        columns = document.get("index_columns", [])
    except (ValueError, AttributeError):
        # the metadata serves pandas alone: without it the index is one more column, and nothing is lost
        return None
    named = [column for column in columns if isinstance(column, str) and column in schema.names]
    return named[0] if len(named) == 1 else None


def check_feature_types(schema: pa.Schema, features: AbstractSet[str] | Sequence[str]) -> None:
    """Refuse a feature column that does not name things.

    Raises:
        ColumnError: If the type is neither text nor integer, nor a dictionary of these.

    """
    for name in features:
        data_type = schema.field(name).type
        values = data_type.value_type if pa.types.is_dictionary(data_type) else data_type
        is_text = pa.types.is_string(values) or pa.types.is_large_string(values)
        if not (is_text or pa.types.is_integer(values)):
            raise ColumnError(
                f"column {name!r} holds {data_type}, and features are text or integers; "
                "name another with feature_key= (--feature-key)"
            )


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the type that holds the values of both, or None."""
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if pa.types.is_dictionary(one) and pa.types.is_dictionary(other):
        index, value = _wider(one.index_type, other.index_type), _wider(one.value_type, other.value_type)
        is_ordered = one.ordered and other.ordered
        return pa.dictionary(pa.int32() if index is None else index, value, ordered=is_ordered) if value else None
    kinds = (pa.types.is_signed_integer, pa.types.is_unsigned_integer, pa.types.is_floating)
    if any(kind(one) and kind(other) for kind in kinds):
        return one if one.bit_width >= other.bit_width else other
    if {one, other} == {pa.string(), pa.large_string()}:
        return pa.large_string()
    return pa.large_binary() if {one, other} == {pa.binary(), pa.large_binary()} else None
