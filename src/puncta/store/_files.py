"""What a place that holds bytes can do: one protocol for bytes at hand, one for bytes that must be waited for.

Everything above asks for named files by byte range and never by path, so that a directory, a zip archive, a web server
and an object store are read by the same code.
"""

import os
import threading
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(slots=True)
class Reads:
    """What was asked of a place so far; safe to use from many threads."""

    requests: int = 0
    """Reads: positional reads of a local file, or requests to a server."""

    bytes: int = 0
    """Bytes that came back."""

    def add(self, *, requests: int, nbytes: int) -> None:
        """Count some more."""
        with _counting.lock:
            self.requests += requests
            self.bytes += nbytes


class _Counting:
    """One lock for all counters, which is held for no longer than two additions."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Begin anew, as a forked process must: its parent may have held the lock."""
        self.lock = threading.Lock()


_counting = _Counting()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_counting.renew)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Bytes of one file, and what the answer says of the whole file."""

    data: memoryview
    """The bytes asked for, all of them."""

    start: int
    """Offset of the first of them in the file."""

    size: int | None
    """Length of the whole file in bytes; None where the place does not say it."""

    version: Hashable
    """Differs where the file was replaced between two answers (an ETag); None where the server does not say."""


class LocalFile(Protocol):
    """One open file whose bytes are at hand."""

    @property
    def size(self) -> int:
        """Length in bytes."""
        ...

    @property
    def version(self) -> Hashable:
        """Differs where the file was replaced or written to since it was opened before."""
        ...

    def read_into(self, buffer: memoryview, offset: int) -> None:
        """Fill the whole buffer from an offset; a file that ends before is a `StoreError`. Safe from many threads."""
        ...

    def read_at_hand(self, buffer: memoryview, offset: int) -> bool:
        """Do what `read_into` does where the system has the bytes in memory; False where it would have to wait."""
        ...

    def announce(self, offset: int, length: int) -> None:
        """Tell the system that these bytes are read next, so that a disk fetches many stretches at once."""
        ...

    def close(self) -> None:
        """Let go of the file; what was read is counted by then."""
        ...


@runtime_checkable
class LocalFiles(Protocol):
    """Named files whose bytes are at hand: a directory, an archive on a local disk."""

    @property
    def reads(self) -> Reads:
        """What was read so far."""
        ...

    @property
    def name(self) -> str:
        """The path or URL that people know it by."""
        ...

    @property
    def identity(self) -> Hashable:
        """Equal for two objects that read the same files in the same way."""
        ...

    def open(self, key: str) -> LocalFile | None:
        """Open a file; None where there is none, and a `StoreError` where that cannot be said."""
        ...

    def names(self, prefix: str) -> Iterator[str]:
        """Names of all files that begin with a prefix, in any order."""
        ...


@runtime_checkable
class RemoteFiles(Protocol):
    """Named files whose bytes must be waited for: a web server, an object store, an archive on one of them."""

    @property
    def reads(self) -> Reads:
        """What was requested so far."""
        ...

    @property
    def name(self) -> str:
        """The path or URL that people know it by."""
        ...

    @property
    def identity(self) -> Hashable:
        """Equal for two objects that read the same files in the same way."""
        ...

    async def get(self, key: str) -> Answer | None:
        """Return a whole file; None where there is none, and a `StoreError` where that cannot be said."""
        ...

    async def get_range(self, key: str, start: int, end: int) -> Answer | None:
        """Return bytes `[start, end)` of a file, `start < end`; a file that ends before is a `StoreError`."""
        ...

    async def get_suffix(self, key: str, length: int) -> Answer | None:
        """Return the last bytes of a file, `length > 0` of them, or all where it has fewer."""
        ...

    def names(self, prefix: str) -> Iterator[str]:
        """Names of all files that begin with a prefix; `UnsupportedError` where the place cannot list (HTTP)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a path or URL leads: named files, and a name (or the beginning of names) among them."""

    files: LocalFiles | RemoteFiles
    """What is read."""

    key: str
    """The rest of the path, without a slash at either end; empty where the path names all of them."""
