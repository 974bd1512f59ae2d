"""A table of separated values, in one or more files, as a stream of typed batches."""

import csv
import gzip
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from puncta.errors import ColumnError, SourceError, StoreError
from puncta.points._arrow import strings_of

__all__ = ["CsvTable", "Header", "read_header"]

# The first block decides the types: large enough that it is a fair sample, small enough that a few fit in memory.
_BLOCK_BYTES = 2**24

_DELIMITERS = (",", ";", "\t")

_EMPTY = strings_of([""])[0]


class _NoRowsError(SourceError):
    """A file holds a header and nothing else, which is an error only where it is alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """First line of a table of separated values."""

    names: tuple[str, ...]
    """Column names; an unnamed first column, as pandas and R write their index, is called `index`."""
    delimiter: str
    """Comma, semicolon or tab: whichever the line has most of."""
    index_column: str | None
    """`index` where the first column has no name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvTable:
    """One table in one or more files of separated values, plain or gzip.

    Coordinates are read as float64 and features as text, whatever the first rows look like; the first block of rows
    decides the other types. Empty text is a null. Words such as None or NA are kept where the column is
    text. Files may have their columns in any order, and each its own delimiter.
    """

    files: tuple[tuple[Path, Header], ...]
    """The files in the order of the rows, with their first lines."""
    schema: pa.Schema
    """What the batches give."""
    n_rows: int | None = None
    """Not known before the file is read."""
    bounds: dict[str, tuple[float, float]] | None = None
    """Not known before the file is read."""

    @classmethod
    def open(
        cls, paths: Sequence[Path], header: Header, *, coordinates: Sequence[str], features: Sequence[str]
    ) -> "CsvTable":
        """Read the first line of every file and the first block of rows, and decide the types by it.

        Args:
            paths: Files in the order of the rows.
            header: First line of the first of them.
            coordinates: Columns that are numbers.
            features: Columns that are text.

        Raises:
            SourceError: If there is no row, a value is not of its column's type, or a file has other columns.
            StoreError: If a file cannot be read.

        """
        files = [(paths[0], header), *((path, read_header(path)) for path in paths[1:])]
        for path, other in files[1:]:
            _check_same_columns(path, other, paths[0], header)
        known = dict.fromkeys(coordinates, pa.float64()) | dict.fromkeys(features, pa.string())
        found = next((schema for path, one in files if (schema := _schema_of(path, one, known)) is not None), None)
        if found is None:
            more = f" nor do the {len(files) - 1} other files" if len(files) > 1 else ""
            raise SourceError(f"{paths[0]} holds no rows, only a header{more}; there is nothing to index")
        # nothing but empty values so far: text holds whatever comes, and nulls if nothing does
        types = {field.name: pa.string() if pa.types.is_null(field.type) else field.type for field in found}
        return cls(files=tuple(files), schema=pa.schema([(name, types[name]) for name in header.names]))

    @property
    def stored(self) -> pa.Schema:
        """The same as `schema`: these files know no categories."""
        return self.schema

    @property
    def index_column(self) -> str | None:
        """Column that holds the index."""
        return self.files[0][1].index_column

    @property
    def bytes(self) -> int:
        """Size of the files as they lie there."""
        return sum(path.stat().st_size for path, _ in self.files)

    def batches(self, columns: Sequence[str], batch_size: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order, a block at a time and at most `batch_size` rows."""
        schema = pa.schema([self.schema.field(name) for name in columns])
        types = dict(zip(self.schema.names, self.schema.types, strict=True))
        for path, header in self.files:
            for block in _blocks(path, header, types, columns):
                arrays = [_without_empty(block.column(name)) for name in columns]
                batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
                for start in range(0, batch.num_rows, batch_size):
                    yield batch.slice(start, batch_size)


def read_header(path: Path) -> Header:
    """Return the column names and the delimiter of a table of separated values.

    Raises:
        SourceError: If the file is empty.
        ColumnError: If a column but the first has no name.
        StoreError: If the file cannot be read as text.

    """
    line = _first_line(path)
    if not line.strip():
        raise SourceError(f"{path} has no header line; is it empty, or is its first line blank?")
    delimiter = max(_DELIMITERS, key=line.count)
    names = next(csv.reader([line], delimiter=delimiter))
    unnamed = [position for position, name in enumerate(names) if not name and position]
    if unnamed:
        raise ColumnError(
            f"{len(unnamed)} of {len(names)} columns of {path} have no name (first: column {unnamed[0] + 1}); "
            "name them in its first line, or drop the delimiter at its end"
        )
    if names[0]:
        return Header(names=tuple(names), delimiter=delimiter, index_column=None)
    return Header(names=("index", *names[1:]), delimiter=delimiter, index_column="index")


def _schema_of(path: Path, header: Header, known: dict[str, pa.DataType]) -> pa.Schema | None:
    """Return the types that the first block of a file shows, or None where it has no rows."""
    try:
        with _explained(path, header), _reader(path, header, known) as reader:
            first = next(iter(reader), None)
            return reader.schema if first is not None and first.num_rows else None
    except _NoRowsError:
        return None


def _blocks(
    path: Path, header: Header, types: dict[str, pa.DataType], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    try:
        with _explained(path, header), _reader(path, header, types, columns) as reader:
            yield from reader
    except _NoRowsError:
        # that not all of the files are empty was seen when they were opened
        return


def _check_same_columns(path: Path, header: Header, first: Path, expected: Header) -> None:
    odd = sorted(set(header.names) ^ set(expected.names))
    if odd:
        has = "has a column" if odd[0] in header.names else "lacks the column"
        raise SourceError(
            f"{path} {has} {odd[0]!r}, unlike {first} ({len(odd)} columns differ); all files must be of one table, so "
            "give those of one"
        )
    if len(header.names) > len(set(header.names)):
        raise ColumnError(f"{path} has columns of the same name ({', '.join(header.names)}); rename the copies")


def _first_line(path: Path) -> str:
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rb") as file:
            return file.readline().decode("utf-8-sig").rstrip("\r\n")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise StoreError(f"could not read {path} as text: {error}; restore it from a copy") from error


def _reader(
    path: Path, header: Header, types: dict[str, pa.DataType], columns: Sequence[str] | None = None
) -> pacsv.CSVStreamingReader:
    return pacsv.open_csv(
        path,
        # without threads, because only then does an error name its row
        read_options=pacsv.ReadOptions(
            use_threads=False, block_size=_BLOCK_BYTES, column_names=list(header.names), skip_rows=1
        ),
        parse_options=pacsv.ParseOptions(delimiter=header.delimiter),
        convert_options=pacsv.ConvertOptions(column_types=types, include_columns=columns),
    )


@contextmanager
def _explained(path: Path, header: Header) -> Iterator[None]:
    """Turn pyarrow's errors into ours: the column by its name, and the remedy."""
    try:
        yield
    except pa.ArrowInvalid as error:
        raise _unreadable(path, header, str(error)) from error
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"could not read {path}: {error}; restore it from a copy") from error


def _unreadable(path: Path, header: Header, message: str) -> SourceError:
    if "Empty CSV file" in message or "skip initial" in message:
        return _NoRowsError(f"{path} holds no rows, only a header")
    numbered = re.search(r"CSV column #(\d+)", message)
    column = f"column {header.names[int(numbered[1])]!r} of " if numbered else ""
    return SourceError(
        f"{column}{path} does not go on as its first rows promise: {message}; "
        "mend that row, or write the table as Parquet with the types you mean"
    )


def _without_empty(array: pa.Array) -> pa.Array:
    if not pa.types.is_string(array.type):
        return array
    return pc.if_else(pc.equal(array, _EMPTY), pa.nulls(1, array.type)[0], array)
