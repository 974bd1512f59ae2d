"""What the documents of a SpatialData store look like: an element's attributes, the root's, and the pandas block.

Written by hand, so that indexing needs neither spatialdata nor pandas; the tests hold it against what these write.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from puncta.errors import ColumnError

FORMAT_VERSION: Final = "0.2"
"""Version of SpatialData's container and points formats on Zarr v3, as spatialdata 0.8 writes them."""

# The block has not changed its shape since; readers that look at the version at all ask for no more.
_PANDAS_VERSION: Final = "2.0.0"


def points_attrs(
    axes: Sequence[str],
    feature_key: str | None,
    instance_key: str | None,
    transformations: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Return the attributes of a points element's group, as spatialdata 0.8 writes them.

    Args:
        axes: Axes of the element, in the order of its coordinate columns.
        feature_key: Feature column, or None.
        instance_key: Column of the instance (cell) that a point belongs to, or None.
        transformations: The list `coordinateTransformations`, copied as it is.

    """
    keys = {"instance_key": instance_key, "feature_key": feature_key, "version": FORMAT_VERSION}
    return {
        "encoding-type": "ngff:points",
        "axes": list(axes),
        "coordinateTransformations": [dict(one) for one in transformations],
        "spatialdata_attrs": {key: value for key, value in keys.items() if value is not None},
    }


def root_attrs() -> dict[str, Any]:
    """Return the attributes of a store's root.

    `spatialdata_software_version` is left out: no reader asks for it, and the store was not written by spatialdata.

    """
    return {"spatialdata_attrs": {"version": FORMAT_VERSION}}


def pandas_metadata(
    schema: pa.Schema,
    index_column: str | None,
    *,
    num_categories: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Return the pandas block of a Parquet file, which goes into the schema's metadata as JSON under `pandas`.

    Dask takes from it which columns are categorical, and so does spatialdata (P8).

    Args:
        schema: Schema of the file; a dictionary column is a pandas categorical.
        index_column: Column that becomes the index of the data frame; None for a plain range.
        num_categories: Number of categories of dictionary columns, which an Arrow schema does not know; left out of
            the block for a column that is not named.

    Raises:
        ColumnError: If the schema has no column `index_column`.

    """
    if index_column is not None and index_column not in schema.names:
        raise ColumnError(f"the index column {index_column!r} is not in the schema; it has {', '.join(schema.names)}")
    counts = num_categories or {}
    return {
        "index_columns": [] if index_column is None else [index_column],
        "column_indexes": [] if index_column is None else [_COLUMN_NAMES],
        "columns": [_column(field, counts.get(field.name)) for field in schema],
        "attributes": {},
        "creator": {"library": "puncta"},
        "pandas_version": _PANDAS_VERSION,
    }


# How pandas says that the names of the columns are text.
_COLUMN_NAMES: Final = {
    "name": None,
    "field_name": None,
    "pandas_type": "unicode",
    "numpy_type": "object",
    "metadata": {"encoding": "UTF-8"},
}


def _column(field: pa.Field, n_categories: int | None) -> dict[str, Any]:
    kind = field.type
    return {
        "name": field.name,
        "field_name": field.name,
        "pandas_type": _pandas_type(kind),
        "numpy_type": _numpy_type(kind),
        "metadata": _extra(kind, n_categories),
    }


def _pandas_type(kind: pa.DataType) -> str:
    """Return the logical type, in pandas' words."""
    if pa.types.is_dictionary(kind):
        return "categorical"
    if _is_text(kind):
        return "unicode"
    if pa.types.is_timestamp(kind):
        return "datetime" if kind.tz is None else "datetimetz"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return f"list[{_pandas_type(kind.value_type)}]"
    if _is_plain(kind):
        return _numpy_type(kind)
    named = (
        (pa.types.is_null, "empty"),
        (pa.types.is_date, "date"),
        (pa.types.is_time, "time"),
        (pa.types.is_decimal, "decimal"),
        (_is_bytes, "bytes"),
    )
    return next((name for test, name in named if test(kind)), "object")


def _numpy_type(kind: pa.DataType) -> str:
    """Return the type of the pandas column; text is `object`, which every version of pandas reads as its own text."""
    if pa.types.is_dictionary(kind):
        return str(kind.index_type)
    if pa.types.is_timestamp(kind):
        return f"datetime64[{kind.unit}]"
    if pa.types.is_duration(kind):
        return f"timedelta64[{kind.unit}]"
    return str(kind.to_pandas_dtype()().dtype) if _is_plain(kind) else "object"


def _extra(kind: pa.DataType, n_categories: int | None) -> dict[str, Any] | None:
    if pa.types.is_dictionary(kind):
        count = {} if n_categories is None else {"num_categories": n_categories}
        return {**count, "ordered": bool(kind.ordered)}
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return {"timezone": kind.tz}
    if pa.types.is_decimal(kind):
        return {"precision": kind.precision, "scale": kind.scale}
    return None


def _is_plain(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


__all__ = ["FORMAT_VERSION", "pandas_metadata", "points_attrs", "root_attrs"]
