"""Parquet files as one table: parts in order, one schema, bounded memory."""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from puncta.errors import ColumnError, MissingError, SourceError, StoreError
from puncta.indexing._source_types import as_text, conform, index_column_of, one_schema

__all__ = ["PARQUET_SUFFIXES", "ParquetTable", "parquet_names"]

PARQUET_SUFFIXES = (".parquet", ".parq", ".pq")
"""Ends of the names of Parquet files, lower case."""

# A dictionary larger than this, compressed, was probably given up half way through the column (writers stop at 1 MiB).
_MAX_DICTIONARY_BYTES = 2**18

_DICTIONARY_ENCODINGS = {"PLAIN_DICTIONARY", "RLE_DICTIONARY"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetTable:
    """One table in one or more Parquet files."""

    files: tuple[Path, ...]
    """The files, in the order of the rows."""
    schema: pa.Schema
    """What the batches give; text that is stored with a dictionary arrives as a dictionary."""
    stored: pa.Schema
    """What the files say, the width of codes apart: tells a categorical from text that merely arrives as one."""
    index_column: str | None
    """Column that holds the pandas index."""
    n_rows: int
    """Number of rows."""
    bytes: int
    """Size of the files."""
    bounds: dict[str, tuple[float, float]] | None
    """Smallest and largest value of each coordinate column; None where a row group has no statistics."""

    @classmethod
    def open(cls, files: Sequence[Path], *, coordinates: Sequence[str], text: AbstractSet[str]) -> "ParquetTable":
        """Read the footer of every file, each once, and no row.

        Args:
            files: Files in the order of the rows.
            coordinates: Columns whose bounds are wanted.
            text: Columns in which bytes are text.

        Raises:
            StoreError: If a file is no Parquet file, or is damaged.
            SourceError: If the files are not of one table, or hold no row.

        """
        survey = _Survey(coordinates)
        schemas = [(str(file), survey.take(file)) for file in files]
        if not survey.n_rows:
            raise SourceError(f"{files[0]} holds no rows ({len(files)} files); there is nothing to index")
        stored = one_schema(schemas, schemas[0][1].names)
        as_read = [(field.name, _as_read(field, survey.dictionaries, text)) for field in stored]
        return cls(
            files=tuple(files),
            schema=pa.schema(as_read),
            stored=stored,
            index_column=index_column_of(schemas[0][1]),
            n_rows=survey.n_rows,
            bytes=sum(file.stat().st_size for file in files),
            bounds=survey.bounds,
        )

    def batches(self, columns: Sequence[str], batch_size: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order, at most `batch_size` at a time; memory stays within a few batches."""
        schema = pa.schema([self.schema.field(name) for name in columns])
        for file in self.files:
            for batch in self._read(file, columns, batch_size):
                yield pa.RecordBatch.from_arrays(
                    [_conform(batch, field, file) for field in schema],
                    schema=schema,
                )

    def _read(self, path: Path, columns: Sequence[str], batch_size: int) -> Iterator[pa.RecordBatch]:
        dictionaries = [name for name in columns if pa.types.is_dictionary(self.schema.field(name).type)]
        with _open(path, read_dictionary=dictionaries) as file:
            try:
                yield from file.iter_batches(batch_size=batch_size, columns=list(columns), use_threads=True)
            except (pa.ArrowException, OSError) as error:
                raise _damaged(path, error) from error


def parquet_names(path: Path) -> list[str]:
    """Return the column names of a Parquet file."""
    with _open(path) as file:
        return list(file.schema_arrow.names)


class _Survey:
    """What the footers say, taken one file at a time, so that no two are held at once."""

    def __init__(self, coordinates: Sequence[str]) -> None:
        self.n_rows = 0
        self.dictionaries: set[str] | None = None
        self._bounds: dict[str, list[float]] | None = {name: [] for name in coordinates}

    @property
    def bounds(self) -> dict[str, tuple[float, float]] | None:
        if self._bounds is None or not all(self._bounds.values()):
            return None
        return {name: (min(values), max(values)) for name, values in self._bounds.items()}

    def take(self, path: Path) -> pa.Schema:
        with _open(path) as file:
            footer, schema = file.metadata, file.schema_arrow
        if len(set(schema.names)) < len(schema.names):
            raise ColumnError(f"{path} has columns of the same name ({', '.join(schema.names)}); rename the copies")
        self.n_rows += footer.num_rows
        positions = {footer.schema.column(i).path: i for i in range(footer.num_columns)}
        for i in range(footer.num_row_groups):
            group = footer.row_group(i)
            if group.num_rows:
                self._take_group(group, positions)
        return schema

    def _take_group(self, group: Any, positions: dict[str, int]) -> None:  # noqa: ANN401 (pyarrow has no types)
        if self.dictionaries is None:
            self.dictionaries = {name for name, i in positions.items() if _is_all_dictionary(group.column(i))}
        for name in self._bounds or {}:
            statistics = group.column(positions[name]).statistics if name in positions else None
            self._take_statistics(name, statistics, group.num_rows)

    def _take_statistics(self, name: str, statistics: Any, n_rows: int) -> None:  # noqa: ANN401 (as above)
        if self._bounds is None or (statistics is not None and statistics.null_count == n_rows):
            return
        # `min < max or equal` is false for NaN, which some writers put there, and for text
        if statistics is None or not statistics.has_min_max or not _is_ordered(statistics.min, statistics.max):
            self._bounds = None
            return
        self._bounds[name] += [statistics.min, statistics.max]


def _is_ordered(low: object, high: object) -> bool:
    return isinstance(low, int | float) and isinstance(high, int | float) and low <= high


def _is_all_dictionary(chunk: Any) -> bool:  # noqa: ANN401 (pyarrow has no types)
    """Whether the column chunk is text whose values all stand in its dictionary, as far as the footer tells."""
    if chunk.physical_type != "BYTE_ARRAY" or not _DICTIONARY_ENCODINGS & set(chunk.encodings):
        return False
    if not chunk.has_dictionary_page or chunk.dictionary_page_offset is None:
        return False
    size = chunk.data_page_offset - chunk.dictionary_page_offset
    return bool(size <= _MAX_DICTIONARY_BYTES and 2 * size <= chunk.total_compressed_size)


def _as_read(field: pa.Field, dictionaries: set[str] | None, text: AbstractSet[str]) -> pa.DataType:
    data_type = as_text(field.type) if field.name in text else field.type
    is_text = pa.types.is_string(data_type) or pa.types.is_large_string(data_type)
    return pa.dictionary(pa.int32(), data_type) if is_text and field.name in (dictionaries or ()) else data_type


def _open(path: Path, read_dictionary: Sequence[str] = ()) -> pq.ParquetFile:
    try:
        # pre_buffer would hold every column chunk of a row group, which may be the whole file
        return pq.ParquetFile(path, read_dictionary=list(read_dictionary), pre_buffer=False)
    except FileNotFoundError as error:
        raise MissingError(f"nothing at {path}") from error
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from error


def _conform(batch: pa.RecordBatch, field: pa.Field, path: Path) -> pa.Array:
    try:
        return conform(batch.column(field.name), field.type)
    except pa.ArrowInvalid as error:
        raise SourceError(f"column {field.name!r} of {path} cannot be read as {field.type}: {error}") from error


def _damaged(path: Path, error: Exception) -> StoreError:
    return StoreError(f"could not read {path} as Parquet: {error}; is it a whole Parquet file? restore it from a copy")
