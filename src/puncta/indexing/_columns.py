"""What becomes of each column of a source: its name, its type and its place in the indexed element.

Pure. Decisions P20 (coordinates), P25 (columns with many values), P26 (order) and P34 (names).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from puncta.errors import ColumnError

MAX_FEATURES_AS_DICTIONARY = 65_536
"""A feature column with more values is written as its value type: its dictionary would repeat in every row group."""

MAX_CATEGORIES_AS_DICTIONARY = 1_024
"""The same bound for any other categorical column (P25)."""

DASK_INDEX = "__null_dask_index__"
"""The column in which dask keeps the index of a frame that gave it no name."""

TILE = "__tile"
"""Tile id of a row, uint32, while the index is built."""

SAMPLE = "__u"
"""Number u of a row, uint32, while the index is built."""

ROW = "__row"
"""Row number in the source, uint64, while the index is built."""

BUILD_COLUMNS = (TILE, SAMPLE, ROW)

# A view shows two axes.
_VIEW_AXES = 2

type Role = Literal["coordinate", "feature", "coded", "plain"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnPlan:
    """One column of the element."""

    name: str
    """Its name in the element."""

    source: str
    """Its name in the source."""

    role: Role
    """A coordinate, a feature column, another column that is handled as codes, or one that is taken as it is."""


def plan_columns(
    schema: pa.Schema,
    *,
    coordinates: Sequence[tuple[str, str]],
    features: Sequence[str],
    index_column: str | None,
    extra_names: Iterable[str] = (),
) -> tuple[ColumnPlan, ...]:
    """Return the columns of the element in the order of its files: those of a view, other axes and features, the rest.

    A view is the first two axes and the primary feature. They lie together (P26): what stands between two columns that
    are asked for is read in vain, or costs a request for each tile.

    Args:
        schema: Columns of the source.
        coordinates: Pairs of axis name and source column, in the order of the axes.
        features: Feature columns by their source name, the primary one first.
        index_column: Column that holds the pandas index, if any.
        extra_names: Names that the element adds itself, and that no source column may bear.

    Raises:
        ColumnError: If two columns of the element would bear one name.

    """
    used = {source for _, source in coordinates}
    reserved = {axis for axis, _ in coordinates} | set(extra_names) | set(BUILD_COLUMNS)
    rest = [name for name in schema.names if name not in used and name not in features and name != index_column]
    axes = [ColumnPlan(name=axis, source=source, role="coordinate") for axis, source in coordinates]
    counted = [ColumnPlan(name=_free_name(name, reserved), source=name, role="feature") for name in features]
    plans = [*axes[:_VIEW_AXES], *counted[:1], *axes[_VIEW_AXES:], *counted[1:]]
    for name in [*rest, *([index_column] if index_column else [])]:
        final = _index_name(name) if name == index_column else _free_name(name, reserved)
        plans.append(ColumnPlan(name=final, source=name, role=_role_of(schema.field(name).type)))
    for plan in plans:
        if plan.role == "feature":
            check_node_name(plan.name)
    names = [plan.name for plan in plans]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ColumnError(
            f"{len(twice)} names would stand for two columns each (first: {twice[0]!r}); "
            "rename one of them in the source"
        )
    return tuple(plans)


def written_type(
    value_type: pa.DataType, n_values: int, *, role: Role, is_categorical: bool, is_ordered: bool = False
) -> pa.DataType:
    """Return the type that a coded column has in the files: a dictionary, or its value type where that costs less."""
    bound = MAX_FEATURES_AS_DICTIONARY if role == "feature" else MAX_CATEGORIES_AS_DICTIONARY
    if n_values > bound or not (role == "feature" or is_categorical) or not _is_read_as_category(value_type):
        return value_type
    return pa.dictionary(code_type(n_values), value_type, ordered=is_ordered)


def _is_read_as_category(value_type: pa.DataType) -> bool:
    """Whether a dictionary of such values is read as what it was: dates make dask fail, and times lose their zone."""
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer, pa.types.is_floating)
    is_time = pa.types.is_timestamp(value_type) and value_type.tz is None
    return is_time or any(test(value_type) for test in (*tests, pa.types.is_boolean))


def check_node_name(name: str) -> None:
    """Refuse the name of a column whose categories are stored, where no Zarr array may bear it.

    Raises:
        ColumnError: If a path with it would lead elsewhere, or meet a file of the format.

    """
    if name in {"", ".", "..", "zarr.json"} or "/" in name or name.startswith("__"):
        raise ColumnError(
            f"the categories of the column {name!r} are stored as a Zarr array of its name, and no array may be called "
            "that; rename the column in the source"
        )


def code_type(n_values: int) -> pa.DataType:
    """Return the narrowest signed integer type for codes of so many values, as pandas chooses it."""
    for candidate in (pa.int8(), pa.int16()):
        if n_values < 2 ** (candidate.bit_width - 1):
            return candidate
    return pa.int32()


def _role_of(data_type: pa.DataType) -> Role:
    is_text = pa.types.is_string(data_type) or pa.types.is_large_string(data_type)
    return "coded" if pa.types.is_dictionary(data_type) or is_text else "plain"


def _free_name(name: str, reserved: set[str]) -> str:
    return f"{name}_source" if name in reserved else name


def _index_name(name: str) -> str:
    return "index" if name.startswith("__index_level_") else name
