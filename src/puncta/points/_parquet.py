"""Reads row groups of the part files of one copy of the points.

Footers are parsed once a part and kept, the least recently used dropped; files are opened anew for each read, so that
any number of threads may ask at once.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from puncta.errors import StoreError
from puncta.points._plan import PartRead

# A footer of 256 row groups of seven columns takes about a megabyte once parsed.
_MAX_FOOTERS = 128


class PartFiles:
    """The part files of one copy: `part.0.parquet`, `part.1.parquet`, ... in one folder."""

    def __init__(self, folder: Path) -> None:
        """Open nothing yet."""
        self.folder = folder
        self._footers: OrderedDict[int, pq.FileMetaData] = OrderedDict()
        self._lock = threading.Lock()

    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the files."""
        return self._open(0).schema_arrow

    def n_bytes(self) -> int:
        """Return the bytes of all part files."""
        try:
            return sum(path.stat().st_size for path in self.folder.glob("part.*.parquet"))
        except OSError as error:
            raise StoreError(f"could not list {self.folder}: {error.strerror}") from error

    def read(self, reads: Sequence[PartRead], columns: Sequence[str]) -> pa.Table:
        """Return the rows of some reads, in their order, with some columns.

        Holds the row groups that are touched, besides the result.

        Raises:
            StoreError: If a file is missing or damaged; the message names it.

        """
        tables = [self._read(read, columns) for read in reads]
        if not tables:
            return pa.Table.from_batches([], schema=_selected(self.schema(), columns))
        return pa.concat_tables(tables)

    def compressed_bytes(self, read: PartRead, columns: Sequence[str]) -> int:
        """Return the bytes of the column chunks that a read takes, without reading them."""
        footer = self._footer(read.part)
        at = [index for index in range(footer.num_columns) if _is_of(footer.schema.column(index).path, columns)]
        return sum(
            footer.row_group(group).column(column).total_compressed_size
            for group in read.groups.tolist()
            for column in at
        )

    def _read(self, read: PartRead, columns: Sequence[str]) -> pa.Table:
        with self._open(read.part) as file:
            try:
                table = file.read_row_groups(read.groups.tolist(), columns=list(columns), use_threads=False)
            except (pa.ArrowException, OSError, IndexError) as error:
                raise self._damaged(read.part, error) from error
        if table.num_rows != read.n_rows:
            raise StoreError(
                f"{self._path(read.part)} holds {table.num_rows} rows where the index says {read.n_rows}; "
                "it was changed after indexing: run puncta validate"
            )
        table = table.select(columns)
        if len(read.slices) == 1 and read.slices[0, 1] - read.slices[0, 0] == table.num_rows:
            return table
        pieces = [table.slice(start, end - start) for start, end in read.slices.tolist()]
        return pa.concat_tables(pieces) if pieces else table.slice(0, 0)

    def _open(self, part: int) -> pq.ParquetFile:
        footer = self._footer(part)
        try:
            # a plain file: finding out which file system a path is on costs as much as reading a tile
            return pq.ParquetFile(pa.OSFile(str(self._path(part))), metadata=footer, pre_buffer=False)
        except (pa.ArrowException, OSError) as error:
            raise self._damaged(part, error) from error

    def _footer(self, part: int) -> pq.FileMetaData:
        with self._lock:
            footer = self._footers.get(part)
            if footer is not None:
                self._footers.move_to_end(part)
                return footer
        try:
            footer = pq.read_metadata(self._path(part))
        except (pa.ArrowException, OSError) as error:
            raise self._damaged(part, error) from error
        with self._lock:
            self._footers[part] = footer
            while len(self._footers) > _MAX_FOOTERS:
                self._footers.popitem(last=False)
        return footer

    def _path(self, part: int) -> Path:
        return self.folder / f"part.{part}.parquet"

    def _damaged(self, part: int, error: Exception) -> StoreError:
        path = self._path(part)
        if isinstance(error, FileNotFoundError):
            return StoreError(f"{path} is missing, though the index needs it; restore it, or index the points again")
        return StoreError(f"could not read {path}: {error}; run puncta validate, or restore the file")


def _is_of(path: str, columns: Sequence[str]) -> bool:
    """Say whether a leaf belongs to one of the columns, whose own names may have dots in them."""
    return any(path == name or path.startswith(f"{name}.") for name in columns)


def _selected(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in columns], metadata=schema.metadata)
