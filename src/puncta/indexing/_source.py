"""Where the rows of an index come from: a vendor's table, Parquet, separated values, a points element, or memory."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol

import pyarrow as pa

from puncta.errors import ColumnError, MissingError, SourceError
from puncta.indexing._source_csv import CsvTable, read_header
from puncta.indexing._source_element import ElementSource, read_element
from puncta.indexing._source_files import SEPARATED_SUFFIXES, element_at, files_of_one_table, table_files
from puncta.indexing._source_memory import MemoryTable, as_table
from puncta.indexing._source_parquet import ParquetTable, parquet_names
from puncta.indexing._source_types import check_feature_types, union_of_dictionaries
from puncta.indexing._vendors import Columns, Vendor, describe, match_columns, missing_column, recognise
from puncta.store._locate import is_there, locate

__all__ = ["ElementSource", "Source", "open_source", "paths_of"]

_AXES = ("x", "y", "z")
_IN_MEMORY = "the table in memory"


class Table(Protocol):
    """Rows of any form, read in order."""

    @property
    def schema(self) -> pa.Schema:
        """What the batches give."""

    @property
    def stored(self) -> pa.Schema:
        """What the source says of its types; a dictionary here is a categorical."""

    @property
    def index_column(self) -> str | None:
        """Column that holds the pandas index."""

    @property
    def n_rows(self) -> int | None:
        """Number of rows, where known."""

    @property
    def bytes(self) -> int:
        """Size of the source."""

    @property
    def bounds(self) -> dict[str, tuple[float, float]] | None:
        """Smallest and largest coordinates, where known."""

    def batches(self, columns: Sequence[str], batch_size: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The rows to be indexed, and what is known of them before they are read."""

    path: str
    """Where they come from, for people."""
    places: tuple[Path, ...]
    """The files or the folder that they come from; none for a table in memory."""
    kind: Literal["table", "element"]
    """A table, or a points element of a SpatialData store."""
    vendor: str | None
    """Short name of the vendor whose format the columns are; None for an element and for unknown tables."""
    words: str
    """One line that says what was recognised, and by what."""
    columns: Columns
    """Which columns are the coordinates, the features and the cell."""
    axes: tuple[str, ...]
    """Axes of the points to be indexed: the caller's, else the element's, else x, y and z where there is one."""
    element: ElementSource | None
    """What the element's metadata says; None for a table."""
    table: Table
    """The rows."""

    @property
    def schema(self) -> pa.Schema:
        """What the batches give. Text may arrive as a dictionary; `categories` says whether it is a categorical."""
        return self.table.schema

    @property
    def index_column(self) -> str | None:
        """Column that holds a pandas index that is not a plain range, such as `__null_dask_index__`."""
        return self.table.index_column

    @property
    def n_rows(self) -> int | None:
        """Number of rows; None for separated values, which must be read to know."""
        return self.table.n_rows

    @property
    def bytes(self) -> int:
        """Size of the source."""
        return self.table.bytes

    @property
    def bounds(self) -> dict[str, tuple[float, float]] | None:
        """Smallest and largest value of each coordinate column; None where the source does not say.

        NaN is not counted, and nobody vouches for the statistics of a file: a hint, not a check.
        """
        return self.table.bounds

    def batches(self, columns: Sequence[str] | None = None, batch_size: int = 2**20) -> Iterator[pa.RecordBatch]:
        """Yield the rows in the order of the source; memory stays within a few batches.

        Dictionaries may differ from batch to batch.

        Args:
            columns: Which columns, in this order; all of them by default.
            batch_size: Rows of a batch at the most; batches may be smaller.

        Raises:
            ColumnError: If a column is not there.
            SourceError: If a value is not of its column's type.
            StoreError: If the source is damaged.

        """
        names = self.schema.names if columns is None else list(columns)
        if not names:
            raise ColumnError("no column is asked for, and rows without columns cannot be counted; name at least one")
        for name in names:
            self._check(name)
        return self.table.batches(names, batch_size)

    def categories(self, column: str, *, most: int | None = None) -> pa.Array | None:
        """Return the categories of a categorical column in its order, unused ones included (P5); else None.

        Reads that column. Where parts differ it is the union in order of appearance.

        Args:
            column: The column.
            most: How many are of use: once there are more, the rest is not read.

        Raises:
            ColumnError: If the column is not there, or its categories are of a type that cannot be compared.

        """
        self._check(column)
        if not pa.types.is_dictionary(self.table.stored.field(column).type):
            return None
        batches = self.table.batches([column], 2**20)
        values = self.schema.field(column).type.value_type
        try:
            return union_of_dictionaries((batch.column(0).dictionary for batch in batches), values, most)
        except pa.ArrowNotImplementedError as error:
            raise ColumnError(
                f"the categories of column {column!r} are {values}, which cannot be compared; write them as text"
            ) from error

    def _check(self, column: str) -> None:
        if column not in self.schema.names:
            raise missing_column(self.schema.names, column, "name another")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What the caller asked for."""

    x: str | None
    y: str | None
    z: str | None
    feature_keys: tuple[str, ...]
    axes: tuple[str, ...] | None
    needs_features: bool


def open_source(
    source: object,
    *,
    x: str | None = None,
    y: str | None = None,
    z: str | None = None,
    feature_keys: Sequence[str] = (),
    axes: Sequence[str] | None = None,
    needs_features: bool = True,
) -> Source:
    """Return the rows at a path, or in memory, and what is known of them; reads metadata and the head of a CSV file.

    Args:
        source: A table as Parquet or as separated values (plain or gzip), in a file, a folder of parts or several
            files, a vendor's output folder, a points element of a SpatialData store, or a store that has one; or a
            pyarrow Table, a pandas DataFrame, or any other table that speaks Arrow.
        x: Column of the x coordinate; recognised by default, as are the other two and the features.
        y: As `x`.
        z: As `x`.
        feature_keys: Feature columns, the primary first.
        axes: Axes to index, such as x, y, in this order; the element's, or all there are, by default.
        needs_features: Whether a table without a feature column is refused; an element may always be without.

    Raises:
        MissingError: If nothing is there.
        SourceError: If what is there has no rows, or several tables.
        ColumnError: If a column is not there or not of a usable type.
        StoreError: If it cannot be read.
        UnsupportedError: If its form is not read yet.

    """
    wanted = _Wanted(
        x=x, y=y, z=z, feature_keys=tuple(feature_keys), axes=_checked_axes(axes, z), needs_features=needs_features
    )
    paths = paths_of(source)
    if not paths:
        return _table_in_memory(as_table(source), wanted)
    if len(paths) > 1:
        files = files_of_one_table(paths)
        return _open_table(f"{files[0]} and {len(files) - 1} more", tuple(files), files, wanted)
    place = locate(paths[0]).path
    element = element_at(place)
    if element is not None:
        return _open_element(element, wanted)
    return _open_table(str(place), (place,), table_files(place), wanted)


def paths_of(source: object) -> tuple[Path, ...]:
    """Return the paths that a source is given by: one, several in a sequence, or none where it is no path."""
    if isinstance(source, str | os.PathLike):
        return (Path(os.fspath(source)),)
    is_several = (
        isinstance(source, Sequence) and len(source) and all(isinstance(one, str | os.PathLike) for one in source)
    )
    return tuple(Path(os.fspath(one)) for one in source) if is_several else ()  # type: ignore[attr-defined]


def _open_element(path: Path, wanted: _Wanted) -> Source:
    """Open a points element; its coordinates are by definition the columns that its axes name."""
    if wanted.x or wanted.y or wanted.z:
        raise SourceError(
            f"the coordinates of the points element {path} are its columns x, y and z, so x, y and z cannot name "
            f"others; to read it as a plain table, give {path / 'points.parquet'}"
        )
    element = read_element(path, wanted.axes)
    axes = wanted.axes or element.axes
    files = table_files(path / "points.parquet") if is_there(path / "points.parquet") else []
    if not files:
        raise MissingError(f"the points element {path} has no points.parquet; is the store complete?")
    declared = () if element.feature_key is None else (element.feature_key,)
    z, names = ("z" if "z" in axes else None), parquet_names(files[0])
    features = wanted.feature_keys or declared
    found = match_columns(names, x="x", y="y", z=z, feature_keys=features, needs_features=False)
    columns = replace(found, z=z, cell=element.instance_key if element.instance_key in names else None)
    table = _parquet(files, columns)
    check_feature_types(table.schema, columns.features)
    words = f"points element {path.name!r} of {element.root.name} (Zarr v{element.zarr_format}), read by "
    return Source(
        path=str(path),
        places=(path,),
        kind="element",
        vendor=None,
        words=words + ", ".join((*columns.coordinates, *columns.features)),
        columns=columns,
        axes=axes,
        element=element,
        table=table,
    )


def _open_table(path: str, places: tuple[Path, ...], files: list[Path], wanted: _Wanted) -> Source:
    if files[0].name.lower().endswith(SEPARATED_SUFFIXES):
        header = read_header(files[0])
        columns, vendor = _match(header.names, wanted)
        csv = CsvTable.open(files, header, coordinates=columns.coordinates, features=columns.features)
        return _source(path, places, columns, vendor, csv, wanted)
    columns, vendor = _match(parquet_names(files[0]), wanted)
    return _source(path, places, columns, vendor, _parquet(files, columns), wanted)


def _table_in_memory(table: pa.Table, wanted: _Wanted) -> Source:
    columns, vendor = _match(table.column_names, wanted)
    memory = MemoryTable.open(table, _text_columns(columns))
    return _source(_IN_MEMORY, (), columns, vendor, memory, wanted)


def _source(
    path: str, places: tuple[Path, ...], columns: Columns, vendor: Vendor | None, table: Table, wanted: _Wanted
) -> Source:
    check_feature_types(table.schema, columns.features)
    return Source(
        path=path,
        places=places,
        kind="table",
        vendor=vendor.name if vendor is not None else None,
        words=describe(columns, vendor),
        columns=columns,
        axes=wanted.axes or _AXES[: len(columns.coordinates)],
        element=None,
        table=table,
    )


def _parquet(files: list[Path], columns: Columns) -> ParquetTable:
    return ParquetTable.open(files, coordinates=columns.coordinates, text=_text_columns(columns))


def _match(names: Sequence[str], wanted: _Wanted) -> tuple[Columns, Vendor | None]:
    vendor = recognise(names)
    columns = match_columns(
        names,
        x=wanted.x,
        y=wanted.y,
        z=wanted.z,
        feature_keys=wanted.feature_keys,
        vendor=vendor,
        needs_features=wanted.needs_features,
    )
    if wanted.axes is not None and "z" in wanted.axes and columns.z is None:
        raise missing_column(
            names, "z", "name the column of the z coordinate with z= (--z), or leave z out of the axes"
        )
    if wanted.axes is not None and "z" not in wanted.axes:
        columns = replace(columns, z=None)
    return columns, vendor


def _text_columns(columns: Columns) -> frozenset[str]:
    """Return the columns in which bytes are text: names of features and of cells."""
    return frozenset(name for name in (*columns.features, columns.cell) if name is not None)


def _checked_axes(axes: Sequence[str] | None, z: str | None) -> tuple[str, ...] | None:
    if axes is None:
        return None
    checked = tuple(axes)
    if not set(_AXES[:2]) <= set(checked) <= set(_AXES) or len(set(checked)) < len(checked):
        raise ColumnError(
            f"the axes {','.join(checked)!r} are not x and y, and z or not, each once; write x,y or x,y,z"
        )
    if z is not None and "z" not in checked:
        raise ColumnError(f"z names the column {z!r}, and the axes {','.join(checked)!r} leave z out; drop one of them")
    return checked
