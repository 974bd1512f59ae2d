"""Reads row groups of the part files of one copy of the points, in any place.

Of a folder, pyarrow reads the files itself. Elsewhere the byte ranges of the wanted column chunks are taken from the
footer, merged where they lie near each other, and fetched at once into memory that stands for the file, from which
pyarrow decodes. Files are opened anew for each read, so that any number of threads may ask at once.
"""

import mmap
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from puncta.arrays._merge import LOCAL, Merging, merge
from puncta.errors import StoreError
from puncta.points._copy import Cost
from puncta.points._element import Element
from puncta.points._fetch import Stretch, changed, fetch
from puncta.points._footers import Footer, Footers, version_of
from puncta.points._plan import PartRead, Ranges, reads_of
from puncta.store import LocalFiles
from puncta.store._directory import Directory
from puncta.store._sizes import n_bytes_below

__all__ = ["ParquetCopy", "Starts"]

type Starts = Callable[[], NDArray[np.int64]]
"""Returns first rows of row groups, or first row groups of parts."""

# A few long stretches are fetched as they are: there bytes cost more than requests, which run at the same time.
_LONG = 256 << 10
_FEW = 4
_NEAR = replace(LOCAL, limit=1 << 30)
_TIGHT = Merging(gap=64 << 10, waste=0.25, spare=0, limit=8 << 20)

# Many short ones are the columns of many row groups, of which each request costs as much as some hundred kilobytes.
_LOOSE = Merging(gap=256 << 10, waste=0.9, spare=0, limit=8 << 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """Row groups of one file to read."""

    key: str
    """Its name."""

    n_groups: int
    """Row groups in it; 0 where that is not worth knowing."""

    read: PartRead
    """What is read of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """The row groups of one file to read, and where their bytes are."""

    wanted: _Wanted
    """What is read of it."""

    footer: Footer
    """Its footer."""

    stretches: NDArray[np.int64]
    """First byte and end of each stretch to fetch, shape (n, 2)."""

    n_bytes: int
    """Bytes of the column chunks that are needed, fewer than are fetched."""


class ParquetCopy:
    """The part files of one copy: `part.0.parquet`, `part.1.parquet`, ... in one folder.

    Args:
        element: What it is a copy of.
        footers: Where footers are kept.
        folder: Folder of the files, below the element.
        group_starts: Returns the first row of each row group, then the number of rows.
        part_starts: Returns the first row group of each part, then their number.

    """

    def __init__(
        self, element: Element, footers: Footers, folder: str, *, group_starts: Starts, part_starts: Starts
    ) -> None:
        self._element = element
        self._footers = footers
        self._folder = folder
        self._group_starts = group_starts
        self._part_starts = part_starts

    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the files."""
        (footer,) = self._footers.of([self._part(0)])
        return footer.metadata.schema.to_arrow_schema()

    def n_bytes(self) -> int:
        """Return the bytes of all files in the folder.

        Raises:
            UnsupportedError: If they are on a web server, which cannot list them.

        """
        return n_bytes_below(self._element.files, self._element.key_of(self._folder))

    def read(self, ranges: Ranges, columns: Sequence[str]) -> pa.Table:
        """Return the rows of some ranges, in their order, with some columns.

        Holds the row groups that are touched, besides the result.

        Raises:
            StoreError: If a file is missing, damaged, or was replaced since its footer was read; the message names it.

        """
        return self.read_with([(self, ranges)], columns)[0]

    def read_with(self, pieces: Sequence[tuple["ParquetCopy", Ranges]], columns: Sequence[str]) -> list[pa.Table]:
        """Return the rows of ranges of several copies, all bytes fetched at once; else as `read`."""
        plans = [copy._wanted(ranges) for copy, ranges in pieces]  # noqa: SLF001 (another of this class)
        wanted = [one for plan in plans for one in plan]
        if isinstance(self._element.files, Directory):
            tables = iter([self._from_folder(one, columns) for one in wanted])
        else:
            tables = iter(self._from_memory(wanted, columns))
        return [self._joined([next(tables) for _ in plan], columns) for plan in plans]

    def cost(self, ranges: Ranges, columns: Sequence[str]) -> Cost:
        """Return what `read` takes, from the footers."""
        parts = self._located(self._wanted(ranges), columns)
        return Cost(requests=sum(len(part.stretches) for part in parts), bytes=sum(part.n_bytes for part in parts))

    def _wanted(self, ranges: Ranges) -> list[_Wanted]:
        if not len(ranges):
            return []
        wanted = []
        for read in reads_of(ranges, self._group_starts(), self._part_starts()):
            key, n_groups = self._part(read.part)
            wanted.append(_Wanted(key=key, n_groups=n_groups, read=read))
        return wanted

    def _part(self, number: int) -> tuple[str, int]:
        """Return the name of a part file and its number of row groups, 0 where that is not worth knowing."""
        key = self._element.key_of(f"{self._folder}/part.{number}.parquet")
        if isinstance(self._element.files, LocalFiles):
            return key, 0
        starts = self._part_starts()
        return key, int(starts[number + 1] - starts[number])

    def _joined(self, tables: Sequence[pa.Table], columns: Sequence[str]) -> pa.Table:
        if tables:
            return pa.concat_tables(tables)
        schema = self.schema()
        fields = [schema.field(name) for name in columns]
        return pa.Table.from_batches([], schema=pa.schema(fields, metadata=schema.metadata))

    def _from_folder(self, wanted: _Wanted, columns: Sequence[str]) -> pa.Table:
        key, path = wanted.key, Path(self._element.files.name) / wanted.key
        (footer,) = self._footers.of([(key, 0)])
        try:
            self._require(key, footer, version_of(path))
            # a plain file: finding out which file system a path is on costs as much as reading a tile
            with pq.ParquetFile(pa.OSFile(str(path)), metadata=footer.metadata, pre_buffer=False) as file:
                table = file.read_row_groups(wanted.read.groups.tolist(), columns=list(columns), use_threads=False)
        except (pa.ArrowException, OSError, IndexError) as error:
            raise error if isinstance(error, StoreError) else self._footers.damaged(key, error) from error
        return self._kept(wanted, table, columns)

    def _from_memory(self, wanted: Sequence[_Wanted], columns: Sequence[str]) -> list[pa.Table]:
        parts = self._located(wanted, columns)
        images = [_image(part.footer.size) for part in parts]
        stretches = [
            Stretch(key=part.wanted.key, start=start, target=memoryview(image)[start:end], version=part.footer.version)
            for part, image in zip(parts, images, strict=True)
            for start, end in part.stretches.tolist()
        ]
        try:
            fetch(self._element.files, stretches)
        except StoreError:
            # whatever it was, the next read looks again
            for part in parts:
                self._footers.drop(part.wanted.key)
            raise
        return [self._decoded(part, image, columns) for part, image in zip(parts, images, strict=True)]

    def _decoded(self, part: _Part, image: mmap.mmap, columns: Sequence[str]) -> pa.Table:
        source = pa.BufferReader(pa.py_buffer(image))
        try:
            with pq.ParquetFile(source, metadata=part.footer.metadata, pre_buffer=False) as file:
                table = file.read_row_groups(part.wanted.read.groups.tolist(), columns=list(columns), use_threads=False)
        except (pa.ArrowException, OSError, IndexError) as error:
            raise self._footers.damaged(part.wanted.key, error) from error
        return self._kept(part.wanted, table, columns)

    def _located(self, wanted: Sequence[_Wanted], columns: Sequence[str]) -> list[_Part]:
        """Return the reads with their footers, and what to fetch of each file."""
        footers = self._footers.of([(one.key, one.n_groups) for one in wanted])
        is_near = isinstance(self._element.files, LocalFiles)
        parts = []
        for one, footer in zip(wanted, footers, strict=True):
            spans = self._spans(one, footer, columns)
            n_bytes = int((spans[:, 1] - spans[:, 0]).sum())
            stretches = _stretches(spans, is_near=is_near)
            parts.append(_Part(wanted=one, footer=footer, stretches=stretches, n_bytes=n_bytes))
        return parts

    def _spans(self, wanted: _Wanted, footer: Footer, columns: Sequence[str]) -> NDArray[np.int64]:
        """Return where the column chunks lie that are wanted of a file."""
        try:
            spans = footer.spans(wanted.read.groups.tolist(), columns)
        except IndexError as error:
            raise self._footers.damaged(wanted.key, error) from error
        if len(spans) and (int(spans.min()) < 0 or int(spans.max()) > footer.size):
            raise self._footers.damaged(wanted.key, "its footer speaks of bytes beyond its end")
        return spans

    def _require(self, key: str, footer: Footer, version: Hashable) -> None:
        if footer.version != version:
            self._footers.drop(key)
            raise changed(self._element.files, key)

    def _kept(self, wanted: _Wanted, table: pa.Table, columns: Sequence[str]) -> pa.Table:
        """Return the rows that are wanted of those of the row groups."""
        read = wanted.read
        if table.num_rows != read.n_rows:
            raise StoreError(
                f"{self._element.files.name}/{wanted.key} holds {table.num_rows} rows where the index says "
                f"{read.n_rows}; it was changed after indexing: run puncta validate"
            )
        table = table.select(columns)
        if len(read.slices) == 1 and read.slices[0, 1] - read.slices[0, 0] == table.num_rows:
            return table
        pieces = [table.slice(start, end - start) for start, end in read.slices.tolist()]
        return pa.concat_tables(pieces) if pieces else table.slice(0, 0)


def _stretches(spans: NDArray[np.int64], *, is_near: bool) -> NDArray[np.int64]:
    """Return the stretches of a file that bring some spans of it, ascending and apart."""
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    starts, ends = spans[:, 0], spans[:, 1]
    bounds = merge(starts, ends, _NEAR if is_near else _TIGHT)
    wanted = int((ends - starts).sum())
    if not is_near and len(bounds) - 1 > max(_FEW, wanted // _LONG):
        bounds = merge(starts, ends, _LOOSE)
    reach = np.maximum.accumulate(ends) if len(ends) else ends
    return np.stack([starts[bounds[:-1]], reach[bounds[1:] - 1]], axis=1)


def _image(size: int) -> mmap.mmap:
    """Return memory that stands for a file: what is not written to takes up no room."""
    if not hasattr(mmap, "MAP_NORESERVE"):
        return mmap.mmap(-1, max(size, 1))
    return mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_NORESERVE)
