"""A table of separated values as a stream of typed batches."""

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

__all__ = ["CsvTable", "Header", "read_header"]

# The first block decides the types: large enough that it is a fair sample, small enough that a few fit in memory.
_BLOCK_BYTES = 2**24

_DELIMITERS = (",", ";", "\t")


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
    """One table in a file of separated values, plain or gzip.

    Coordinates are read as float64 and features as text, whatever the first rows look like; the first block of the
    file decides the other types. Empty text is a null. Words such as None or NA are kept where the column is text.
    """

    file: Path
    """The file."""
    header: Header
    """Its first line."""
    schema: pa.Schema
    """What the batches give."""
    n_rows: int | None = None
    """Not known before the file is read."""
    bounds: dict[str, tuple[float, float]] | None = None
    """Not known before the file is read."""

    @classmethod
    def open(cls, path: Path, header: Header, *, coordinates: Sequence[str], features: Sequence[str]) -> "CsvTable":
        """Read the first block and decide the types by it.

        Raises:
            SourceError: If there is no row, or a value that is not of its column's type.
            StoreError: If the file cannot be read.

        """
        known = dict.fromkeys(coordinates, pa.float64()) | dict.fromkeys(features, pa.string())
        with _explained(path, header), _reader(path, header, known) as reader:
            found = reader.schema
            first = next(iter(reader), None)
        if first is None or not first.num_rows:
            raise SourceError(f"{path} holds no rows, only a header; there is nothing to index")
        # nothing but empty values so far: text holds whatever comes, and nulls if nothing does
        types = [(field.name, pa.string() if pa.types.is_null(field.type) else field.type) for field in found]
        return cls(file=path, header=header, schema=pa.schema(types))

    @property
    def stored(self) -> pa.Schema:
        """The same as `schema`: these files know no categories."""
        return self.schema

    @property
    def index_column(self) -> str | None:
        """Column that holds the index."""
        return self.header.index_column

    @property
    def bytes(self) -> int:
        """Size of the file as it lies there."""
        return self.file.stat().st_size

    def batches(self, columns: Sequence[str], batch_size: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order, a block at a time and at most `batch_size` rows."""
        schema = pa.schema([self.schema.field(name) for name in columns])
        types = dict(zip(self.schema.names, self.schema.types, strict=True))
        for block in self._blocks(types, columns):
            arrays = [_without_empty(block.column(name)) for name in columns]
            batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
            for start in range(0, batch.num_rows, batch_size):
                yield batch.slice(start, batch_size)

    def _blocks(self, types: dict[str, pa.DataType], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with _explained(self.file, self.header), _reader(self.file, self.header, types, columns) as reader:
            yield from reader


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
        return SourceError(f"{path} holds no rows, only a header; there is nothing to index")
    numbered = re.search(r"CSV column #(\d+)", message)
    column = f"column {header.names[int(numbered[1])]!r} of " if numbered else ""
    return SourceError(
        f"{column}{path} does not go on as its first rows promise: {message}; "
        "mend that row, or write the table as Parquet with the types you mean"
    )


def _without_empty(array: pa.Array) -> pa.Array:
    if not pa.types.is_string(array.type):
        return array
    return pc.if_else(pc.equal(array, ""), pa.scalar(None, array.type), array)
