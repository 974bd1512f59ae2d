"""The members of a zip archive as files, read where they lie in it: on a local disk, or on a server.

The archive is never unpacked. Its directory is read once, in one or two ranges, when the first member is asked for.
"""

import os
import threading
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Final

from puncta.errors import MissingError, StoreError, UnsupportedError
from puncta.store._directory import Directory
from puncta.store._files import Answer, Reads, RemoteFiles
from puncta.store._local_file import OpenFile
from puncta.store._zip_end import TAIL_LENGTH, DirectorySpan, locate_directory
from puncta.store._zip_index import ZipIndex, parse_directory

_NEAR: Final = 1 << 16
"""How far into a member a read may begin, in bytes, to be one request with that of the member's header."""

_ROOM: Final = 4096
"""Bytes that a local header's extra field surely fits into; one that does not costs a request."""


type _Holder = Directory | LocalZip


class LocalZip:
    """The members of an archive on a local disk, as `LocalFiles`.

    An archive that was replaced since is read anew. Holds nothing open between calls, so it may be forked, and pickled:
    the copy reads the directory of the archive itself, once.

    Args:
        files: Where the archive lies: in a folder, or in another archive, stored without compression.
        key: Its name there.

    """

    __slots__ = ("_files", "_key", "_loaded", "_lock", "_process", "name")

    def __init__(self, files: _Holder, key: str) -> None:
        self._files = files
        self._key = key
        self._loaded: tuple[tuple[int, ...], ZipIndex] | None = None
        self._lock = threading.Lock()
        self._process = os.getpid()
        self.name: Final[str] = f"{files.name.rstrip('/')}/{key}"

    def __reduce__(self) -> tuple[type["LocalZip"], tuple[_Holder, str]]:
        return LocalZip, (self._files, self._key)

    def __repr__(self) -> str:
        return f"LocalZip({self.name!r})"

    @property
    def identity(self) -> Hashable:
        """Of the place in which the archive lies, and its name there."""
        return (self._files.identity, self._key)

    @property
    def reads(self) -> Reads:
        """What was read so far, of the place in which the archive lies."""
        return self._files.reads

    def open(self, key: str) -> OpenFile | None:
        """Open a member; None where there is none.

        Raises:
            StoreError: If the archive cannot be read, or is damaged.
            MissingError: If there is no archive.
            UnsupportedError: If the member is compressed or encrypted.

        """
        archive = self._open_archive()
        try:
            index = self._index(archive)
            entry = index.positions.get(key)
            if entry is None:
                return None
            index.require_stored(entry)
            start = int(index.data_offset[entry])
            if start < 0:
                start = _read_start(archive, index, entry)
            return archive.part(f"{self.name}/{key}", start, int(index.size[entry]))
        finally:
            # does nothing where the member took over
            archive.close()

    def names(self, prefix: str) -> Iterator[str]:
        """Yield the names of all members that begin with a prefix, folders left out."""
        archive = self._open_archive()
        try:
            index = self._index(archive)
        finally:
            archive.close()
        yield from _matching(index, prefix)

    def sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Yield name and length in bytes, as they lie in the archive, of all members that begin with a prefix."""
        archive = self._open_archive()
        try:
            index = self._index(archive)
        finally:
            archive.close()
        yield from _sizes(index, prefix)

    def _open_archive(self) -> OpenFile:
        archive = self._files.open(self._key)
        if archive is None:
            raise MissingError(f"there is no archive {self.name}; check its path")
        return archive

    def _index(self, archive: OpenFile) -> ZipIndex:
        loaded = self._loaded
        if loaded is None or loaded[0] != archive.version:
            with self._lock_of_process():
                # another thread may have read it while this one waited
                loaded = self._loaded
                if loaded is None or loaded[0] != archive.version:
                    loaded = self._loaded = (archive.version, _read_index(archive, self.name))
        return loaded[1]

    def _lock_of_process(self) -> threading.Lock:
        # a process that is forked while a thread holds the lock would wait for it for ever
        if self._process != os.getpid():
            self._lock = threading.Lock()
            self._process = os.getpid()
        return self._lock


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    """What is known of a remote archive; every later answer must be of the same one."""

    index: ZipIndex
    size: int
    version: Hashable


class RemoteZip:
    """The members of an archive on a server, as `RemoteFiles`.

    May be forked, and pickled: the copy reads the directory of the archive itself, once. Reads that begin together
    before it is known may each read it.

    Args:
        files: Where the archive lies.
        key: Its name there.

    """

    __slots__ = ("_files", "_key", "_loaded", "name")

    def __init__(self, files: RemoteFiles, key: str) -> None:
        self._files = files
        self._key = key
        # set whole, in one step: needs no lock, and so no event loop; only offsets of members are filled in later, with
        # the same numbers by whoever comes first
        self._loaded: _Loaded | None = None
        self.name: Final[str] = f"{files.name.rstrip('/')}/{key}" if key else files.name

    def __reduce__(self) -> tuple[type["RemoteZip"], tuple[RemoteFiles, str]]:
        return RemoteZip, (self._files, self._key)

    def __repr__(self) -> str:
        return f"RemoteZip({self.name!r})"

    @property
    def identity(self) -> Hashable:
        """Of the place in which the archive lies, and its name there."""
        return (self._files.identity, self._key)

    @property
    def reads(self) -> Reads:
        """What was requested so far, of the place in which the archive lies."""
        return self._files.reads

    async def load(self) -> None:
        """Read the directory of the archive, where that is not done yet.

        Raises:
            StoreError: If it cannot be read, or the archive is damaged.
            MissingError: If there is no archive.

        """
        await self._load()

    async def get(self, key: str) -> Answer | None:
        """Return a whole member; None where there is none.

        Raises:
            StoreError: If the archive cannot be read, is damaged, or is another one than at the first read.
            MissingError: If there is no archive.
            UnsupportedError: If the member is compressed or encrypted.

        """
        loaded = await self._load()
        entry = loaded.index.positions.get(key)
        return None if entry is None else await self._answer(loaded, entry, 0, int(loaded.index.size[entry]))

    async def get_range(self, key: str, start: int, end: int) -> Answer | None:
        """Return bytes `[start, end)` of a member; None where there is none. Raises as `get`."""
        loaded = await self._load()
        entry = loaded.index.positions.get(key)
        if entry is None:
            return None
        size = int(loaded.index.size[entry])
        if not 0 <= start < end <= size:
            raise StoreError(
                f"{self.name}/{key} ends at byte {size}, but bytes {start} to {end} were expected; "
                "it may be incomplete: write it again"
            )
        return await self._answer(loaded, entry, start, end)

    async def get_suffix(self, key: str, length: int) -> Answer | None:
        """Return the last bytes of a member, or all where it has fewer; None where there is none. Raises as `get`."""
        loaded = await self._load()
        entry = loaded.index.positions.get(key)
        if entry is None:
            return None
        size = int(loaded.index.size[entry])
        return await self._answer(loaded, entry, max(0, size - length), size)

    def names(self, prefix: str) -> Iterator[str]:
        """Yield the names of all members that begin with a prefix, folders left out; `await load()` before.

        Raises:
            StoreError: If the directory is not read yet, which only `load` can wait for.

        """
        yield from _matching(self._known_index(), prefix)

    def sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Yield name and length in bytes of all members that begin with a prefix; else as `names`."""
        yield from _sizes(self._known_index(), prefix)

    def _known_index(self) -> ZipIndex:
        if self._loaded is None:
            raise StoreError(f"the names in {self.name} are not read yet; await load() before")
        return self._loaded.index

    async def _load(self) -> _Loaded:
        if self._loaded is not None:
            return self._loaded
        tail = await self._files.get_suffix(self._key, TAIL_LENGTH)
        if tail is None:
            raise MissingError(f"there is no archive {self.name}; check its address")
        size = tail.size
        if size is None:
            raise UnsupportedError(f"{self.name} lies where no length is told; give the archive by its path or URL")
        span = locate_directory(tail.data, size, name=self.name)
        head = memoryview(b"")
        if span.start < tail.start:
            head = (await self._request(span.start, tail.start, size=size, version=tail.version)).data
        index = parse_directory(_joined(head, tail.data, tail.start, span=span), span, name=self.name)
        self._loaded = _Loaded(index=index, size=size, version=tail.version)
        return self._loaded

    async def _answer(self, loaded: _Loaded, entry: int, start: int, end: int) -> Answer:
        index = loaded.index
        index.require_stored(entry)
        data = await self._read(loaded, entry, start=start, end=end) if start < end else memoryview(b"")
        # where the server does not tell archives apart, a member's place in one is no version either
        version = None if loaded.version is None else (loaded.version, int(index.header_offset[entry]))
        return Answer(data=data, start=start, size=int(index.size[entry]), version=version)

    async def _read(self, loaded: _Loaded, entry: int, *, start: int, end: int) -> memoryview:
        index = loaded.index
        known = int(index.data_offset[entry])
        found = memoryview(b"")
        if known < 0:
            header = int(index.header_offset[entry])
            length = index.shortest_header(entry)
            if start <= _NEAR:
                length = max(length, min(index.longest_header(entry), length + _ROOM) + end)
            answer = await self._request(header, header + length, size=loaded.size, version=loaded.version)
            known = index.data_start(entry, answer.data)
            index.data_offset[entry] = known
            found = answer.data[known - header + start : known - header + end]
        if len(found) < end - start:
            found = (await self._request(known + start, known + end, size=loaded.size, version=loaded.version)).data
        return found

    async def _request(self, start: int, end: int, *, size: int, version: Hashable) -> Answer:
        """Return bytes of the archive, provided that it is still the same one."""
        answer = await self._files.get_range(self._key, start, end)
        if answer is None:
            raise StoreError(f"{self.name} is gone since it was opened; open it again")
        if answer.version != version or answer.size not in {size, None}:
            raise StoreError(
                f"{self.name} changed while it was read (version {version!r}, {size} bytes, "
                f"now {answer.version!r}, {answer.size} bytes); open it again"
            )
        return answer


def _read_index(archive: OpenFile, name: str) -> ZipIndex:
    tail_start = max(0, archive.size - TAIL_LENGTH)
    tail = _read(archive, tail_start, archive.size)
    span = locate_directory(tail, archive.size, name=name)
    head = _read(archive, span.start, max(span.start, tail_start))
    return parse_directory(_joined(head, tail, tail_start, span=span), span, name=name)


def _read_start(archive: OpenFile, index: ZipIndex, entry: int) -> int:
    """Return where the data of an entry begins, from its local header, and remember it in the index."""
    header = int(index.header_offset[entry])
    start = index.data_start(entry, _read(archive, header, header + index.shortest_header(entry)))
    index.data_offset[entry] = start
    return start


def _read(archive: OpenFile, start: int, end: int) -> memoryview:
    data = memoryview(bytearray(end - start))
    if end > start:
        archive.read_into(data, start)
    return data


def _joined(head: memoryview, tail: memoryview, tail_start: int, *, span: DirectorySpan) -> bytes:
    """Return the directory from the bytes of it before the tail, and from the tail, in which it ends."""
    return bytes(head) + tail[max(0, span.start - tail_start) : span.start + span.length - tail_start]


def _matching(index: ZipIndex, prefix: str) -> Iterator[str]:
    return (name for name in index.positions if name.startswith(prefix))


def _sizes(index: ZipIndex, prefix: str) -> Iterator[tuple[str, int]]:
    return ((name, int(index.size[index.positions[name]])) for name in _matching(index, prefix))
