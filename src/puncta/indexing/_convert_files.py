"""Writes the files of a copy in the other layout: each is read window by window, and knows of no other."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from puncta.indexing._convert_columns import Codes, Stager
from puncta.indexing._convert_plan import File, Window
from puncta.indexing._crew import Crew
from puncta.indexing._options import Clock
from puncta.indexing._stage import Progress
from puncta.indexing._write_parquet import FileLayout, PartWriter
from puncta.indexing._write_zarr import ShardWriter, write_group
from puncta.indexing._zarr_columns import ArrayLayout
from puncta.points._arrow import numpy_of
from puncta.points._copy import Copy

__all__ = ["Found", "PartWriters", "ShardWriters", "SurveyRows", "Work", "WriteFiles", "read_rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Who does the work, in what pieces, and who is told."""

    crew: Crew
    """Who does it."""

    row_bytes: int
    """Bytes that a row takes while it is at work."""

    window_rows: int
    """Rows that are read at once."""

    clock: Clock
    """Takes the times of the stages."""

    progress: Progress | None
    """Told how far it is."""

    def done[Item: (File, Window), Result](
        self, task: Callable[[Item], Result], items: Sequence[Item], stage: str
    ) -> Iterator[Result]:
        """Yield what a task makes of files or windows, in their order, and tell how many rows are done."""
        done, total = 0, sum(item.n_rows for item in items)
        # a tile that is larger than a window is read whole
        results = self.crew.map(task, items, need=lambda item: item.rows_at_once * self.row_bytes)
        for item, result in zip(items, results, strict=True):
            yield result
            done += item.n_rows
            if self.progress is not None:
                self.progress(stage, done, total)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartWriters:
    """What writes the part files of a copy."""

    folder: Path
    """Folder of the files."""

    layout: FileLayout
    """Layout of the files."""

    def __call__(self, number: int) -> PartWriter:
        """Return what writes one of them."""
        return PartWriter(self.folder / f"part.{number}.parquet", self.layout)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardWriters:
    """What writes the shards of a copy."""

    folder: Path
    """Group of the copy."""

    arrays: ArrayLayout
    """The arrays."""

    chunk_rows: int
    """Rows of a chunk."""

    chunks_per_shard: int
    """Chunks of a shard."""

    def __call__(self, number: int) -> ShardWriter:
        """Return what writes one of them."""
        return ShardWriter(
            self.folder, self.arrays, number, chunk_rows=self.chunk_rows, chunks_per_shard=self.chunks_per_shard
        )

    def write_metadata(self, *, n_rows: int, shape: int, nullable: Collection[str]) -> None:
        """Write the metadata of the copy and of its arrays; arguments as those of `write_group`."""
        write_group(
            self.folder,
            self.arrays,
            n_rows=n_rows,
            shape=shape,
            chunk_rows=self.chunk_rows,
            chunks_per_shard=self.chunks_per_shard,
            nullable=nullable,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteFiles:
    """The work on each file of a copy; holds a window of rows as they are read, staged and encoded."""

    copy: Copy
    """The rows, in the layout that is there."""

    stager: Stager
    """What makes of them such as the writers take."""

    writer: Callable[[int], PartWriter | ShardWriter]
    """Returns what writes the file of a number."""

    def __call__(self, file: File) -> frozenset[str]:
        """Write one file; return the arrays in which some values are null."""
        with self.writer(file.number) as writer:
            for window in file.windows:
                rows = read_rows(self.copy, window.first, window.end, self.stager.layout.schema.names)
                writer.write(self.stager.staged(rows), window.starts)
        return frozenset(writer.nullable) if isinstance(writer, ShardWriter) else frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the rows of some columns hold."""

    values: Mapping[str, pa.Array]
    """Distinct values of each column of text, nulls left out."""

    other: frozenset[str]
    """Feature columns beside which there is something else than their codes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyRows:
    """The look at each window of level 0; holds some columns of it."""

    copy: Copy
    """The rows."""

    texts: Sequence[str]
    """Columns of text."""

    features: Mapping[str, Codes]
    """The feature columns that may have their codes beside them."""

    def __call__(self, window: Window) -> Found:
        """Look at the rows of one window."""
        names = [*self.texts, *self.features, *(f"{name}_codes" for name in self.features)]
        rows = read_rows(self.copy, window.first, window.end, names)
        values = {name: pc.unique(rows.column(name)).drop_null() for name in self.texts}
        return Found(values=values, other=frozenset(name for name in self.features if not self._agrees(rows, name)))

    def _agrees(self, rows: pa.Table, name: str) -> bool:
        stored = rows.column(f"{name}_codes")
        if stored.null_count:
            return False
        column = rows.column(name)
        codes = self.features[name].of(column)
        if column.null_count:
            codes = np.where(numpy_of(column.is_null().cast(pa.uint8())) != 0, -1, codes)
        return bool((numpy_of(stored) == codes).all())


def read_rows(copy: Copy, first: int, end: int, columns: Sequence[str]) -> pa.Table:
    """Return the rows from `first` to `end` of a copy."""
    ranges = [(first, end)] if end > first else []
    return copy.read(np.asarray(ranges, dtype=np.int64).reshape(-1, 2), columns)
