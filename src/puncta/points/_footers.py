"""The footers of part files: each is read once and kept, the least recently used dropped; for use from many threads."""

import os
import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from puncta.errors import StoreError
from puncta.points._fetch import Files, Tail, read_tails
from puncta.store._directory import Directory

__all__ = ["Footer", "Footers", "version_of"]

# A footer of 256 row groups of seven columns takes about a megabyte once parsed.
_MAX_FOOTERS = 128

# Of a remote part the length of the footer is not known before it is read: this much for a row group is enough for
# seven columns (527 bytes were measured), and this much for the schema. Later parts are judged by those that were read.
_BYTES_A_GROUP = 640
_BYTES_OF_SCHEMA = 16 << 10

_END = 8
"""Bytes behind a footer: its length, and the mark of the format."""

_MARK = b"PAR1"


@dataclass(frozen=True, kw_only=True)
class Footer:
    """The footer of one part file."""

    metadata: pq.FileMetaData
    """What it says."""

    size: int
    """Length of the file in bytes."""

    version: Hashable
    """Version of the file that it was read from."""

    @cached_property
    def leaves(self) -> list[str]:
        """Path of each column chunk of a row group."""
        return [self.metadata.schema.column(at).path for at in range(self.metadata.num_columns)]

    @cached_property
    def _spans(self) -> dict[int, NDArray[np.int64]]:
        return {}

    def spans(self, groups: Sequence[int], columns: Sequence[str]) -> NDArray[np.int64]:
        """Return where the chunks of some columns of some row groups lie.

        Args:
            groups: Ordinals of row groups in the file.
            columns: Names of columns.

        Returns:
            Offset of the first byte and of the end, shape (n, 2), in the order of the groups and of the file's columns.

        """
        at = [number for number, path in enumerate(self.leaves) if _is_of(path, columns)]
        found = [self._spans_of(group)[at] for group in groups]
        return np.concatenate([np.zeros((0, 2), np.int64), *found])

    def _spans_of(self, group: int) -> NDArray[np.int64]:
        spans = self._spans.get(group)
        if spans is None:
            row_group = self.metadata.row_group(group)
            chunks = [row_group.column(at) for at in range(self.metadata.num_columns)]
            starts = [_start_of(chunk) for chunk in chunks]
            ends = [start + chunk.total_compressed_size for start, chunk in zip(starts, chunks, strict=True)]
            spans = self._spans[group] = np.asarray([starts, ends], dtype=np.int64).reshape(2, -1).T
        return spans


class Footers:
    """The footers of all part files of one element."""

    def __init__(self, files: Files) -> None:
        """Read nothing yet."""
        self._files = files
        self._kept: OrderedDict[str, Footer] = OrderedDict()
        self._lock = threading.Lock()
        self._a_group = float(_BYTES_A_GROUP)

    def of(self, wanted: Sequence[tuple[str, int]]) -> list[Footer]:
        """Return the footers of files, those that are not kept read together.

        Args:
            wanted: Name of each file, and its number of row groups as far as it is known.

        Raises:
            StoreError: If a file is missing or damaged; the message names it.

        """
        with self._lock:
            found = {key: self._kept[key] for key, _ in wanted if key in self._kept}
            for key in found:
                self._kept.move_to_end(key)
        missing = [(key, n_groups) for key, n_groups in dict(wanted).items() if key not in found]
        if missing:
            fresh = self._read(missing)
            found |= fresh
            with self._lock:
                self._kept |= fresh
                while len(self._kept) > _MAX_FOOTERS:
                    self._kept.popitem(last=False)
        return [found[key] for key, _ in wanted]

    def drop(self, key: str) -> None:
        """Forget the footer of a file that was replaced."""
        with self._lock:
            self._kept.pop(key, None)

    def damaged(self, key: str, error: object) -> StoreError:
        """Return the error for a part file that cannot be read."""
        path = f"{self._files.name}/{key}"
        if error is None or isinstance(error, FileNotFoundError):
            return StoreError(f"{path} is missing, though the index needs it; restore it, or index the points again")
        return StoreError(f"could not read {path}: {error}; run puncta validate, or restore the file")

    def _read(self, wanted: Sequence[tuple[str, int]]) -> dict[str, Footer]:
        if isinstance(self._files, Directory):
            return {key: self._local(Path(self._files.name) / key, key) for key, _ in wanted}
        lengths = [(key, int(n_groups * self._a_group) + _BYTES_OF_SCHEMA) for key, n_groups in wanted]
        tails = self._tails(lengths)
        needs = {key: self._need(key, tail) for key, tail in tails.items()}
        short = [(key, needs[key]) for key, tail in tails.items() if needs[key] > len(tail.data)]
        if short:
            tails |= self._tails(short)
        footers = {key: self._parsed(key, tail, needs[key]) for key, tail in tails.items()}
        measured = [needs[key] / footer.metadata.num_row_groups for key, footer in footers.items() if footer.leaves]
        self._a_group = max([self._a_group, *measured])
        return footers

    def _tails(self, wanted: Sequence[tuple[str, int]]) -> dict[str, Tail]:
        tails = {}
        for (key, _), tail in zip(wanted, read_tails(self._files, wanted), strict=True):
            if tail is None:
                raise self.damaged(key, None)
            tails[key] = tail
        return tails

    def _need(self, key: str, tail: Tail) -> int:
        """Return how many bytes the end of a file takes up: its footer, and what follows."""
        end = bytes(tail.data[-_END:])
        need = int.from_bytes(end[:4], "little") + _END
        if end[4:] != _MARK or need > tail.size:
            raise self.damaged(key, "it does not end as a Parquet file does")
        return need

    def _parsed(self, key: str, tail: Tail, need: int) -> Footer:
        try:
            # the file begins with its mark, too, and some readers look for it
            buffer = pa.py_buffer(_MARK + bytes(tail.data[-need:]))
            metadata = pq.read_metadata(pa.BufferReader(buffer))
        except (pa.ArrowException, OSError) as error:
            raise self.damaged(key, error) from error
        return Footer(metadata=metadata, size=tail.size, version=tail.version)

    def _local(self, path: Path, key: str) -> Footer:
        try:
            version = version_of(path)
            return Footer(metadata=pq.read_metadata(path), size=version[2], version=version)
        except (pa.ArrowException, OSError) as error:
            raise self.damaged(key, error) from error


def version_of(path: Path) -> tuple[int, int, int]:
    """Return what tells a file on a disk from its replacement."""
    found = os.stat(path)  # noqa: PTH116 (half as long as through Path, and it is asked of every read)
    return found.st_ino, found.st_mtime_ns, found.st_size


def _is_of(path: str, columns: Sequence[str]) -> bool:
    """Say whether a leaf belongs to one of the columns, whose own names may have dots in them."""
    return any(path == name or path.startswith(f"{name}.") for name in columns)


def _start_of(chunk: pq.ColumnChunkMetaData) -> int:
    first = int(chunk.data_page_offset)
    return min(first, int(chunk.dictionary_page_offset)) if chunk.dictionary_page_offset else first
