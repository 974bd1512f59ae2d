"""Our files as a store of zarr's, so that zarr reads metadata and whole arrays from every place that we read."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import NoReturn, Protocol, runtime_checkable

import numpy as np
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import Buffer, BufferPrototype

from puncta.errors import StoreError, UnsupportedError
from puncta.store._files import LocalFile, LocalFiles, RemoteFiles


@runtime_checkable
class _ListsFolders(Protocol):
    """A place that can list a folder without all that is below it."""

    def children(self, folder: str) -> Iterator[str]:
        """Names directly in a folder."""
        ...


@runtime_checkable
class _Loads(Protocol):
    """A place that must read something before it knows its names."""

    async def load(self) -> None:
        """Read it, where that is not done yet."""
        ...


class FilesStore(Store):
    """Files as a store of zarr's, which reads only.

    A range that a file does not have is a `StoreError`, where zarr's own stores return less than was asked for.
    Can be pickled where the files can.

    Args:
        files: What is read.
        prefix: Where in them the store begins, without a slash at either end; empty for all of them.

    """

    supports_writes = False
    supports_deletes = False
    supports_listing = True

    def __init__(self, files: LocalFiles | RemoteFiles, prefix: str = "") -> None:
        super().__init__(read_only=True)
        self.files = files
        """What is read."""
        self.prefix = prefix
        """Where in them the store begins."""
        self._begin = f"{prefix}/" if prefix else ""

    def __eq__(self, value: object) -> bool:
        return isinstance(value, FilesStore) and (value.files.identity, value.prefix) == (
            self.files.identity,
            self.prefix,
        )

    __hash__ = None  # type: ignore[assignment]  # as zarr's own stores

    def __str__(self) -> str:
        return f"{self.files.name}/{self.prefix}".rstrip("/")

    def __repr__(self) -> str:
        return f"FilesStore({str(self)!r})"

    def with_read_only(self, read_only: bool = False) -> "FilesStore":
        """Return a store that reads the same files.

        Raises:
            UnsupportedError: If it should also write.

        """
        if not read_only:
            self._refuse()
        return FilesStore(self.files, self.prefix)

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Return a file or a range of it; None where there is none."""
        if isinstance(self.files, LocalFiles):
            data = await asyncio.to_thread(_read_local, self.files, self._begin + key, byte_range)
        else:
            data = await _read_remote(self.files, self._begin + key, byte_range)
        return None if data is None else prototype.buffer.from_bytes(data)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Return files or ranges of them, in the order in which they are asked for."""
        return await asyncio.gather(*(self.get(key, prototype, byte_range) for key, byte_range in key_ranges))

    async def exists(self, key: str) -> bool:
        """Whether there is such a file; on a server its last byte is read, as presigned links allow nothing else."""
        return await self._size(key) is not None

    async def getsize(self, key: str) -> int:
        """Return the length of a file in bytes.

        Raises:
            FileNotFoundError: If there is no such file.

        """
        size = await self._size(key)
        if size is None:
            raise FileNotFoundError(key)
        return size

    async def list(self) -> AsyncIterator[str]:
        """Yield the names of all files."""
        async for name in self.list_prefix(""):
            yield name

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Yield the names of all files that begin with a prefix."""
        for name in await self._names(prefix):
            yield name

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Yield the names directly in a folder, of files and of folders."""
        folder = prefix.strip("/")
        if isinstance(self.files, _ListsFolders):
            for name in await asyncio.to_thread(_children, self.files, f"{self._begin}{folder}".rstrip("/")):
                yield name
            return
        below = f"{folder}/" if folder else ""
        # a dictionary keeps each name once, in the order in which they were found
        for name in {path[len(below) :].partition("/")[0]: None for path in await self._names(below)}:
            yield name

    async def set(self, key: str, value: Buffer) -> None:  # noqa: ARG002 (zarr's signature)
        """Refuse."""
        self._refuse()

    async def delete(self, key: str) -> None:  # noqa: ARG002 (zarr's signature)
        """Refuse."""
        self._refuse()

    async def _size(self, key: str) -> int | None:
        if isinstance(self.files, LocalFiles):
            return await asyncio.to_thread(_local_size, self.files, self._begin + key)
        return await _remote_size(self.files, self._begin + key)

    async def _names(self, prefix: str) -> Sequence[str]:
        if isinstance(self.files, _Loads):
            await self.files.load()
        return await asyncio.to_thread(_named, self.files, self._begin, prefix)

    def _refuse(self) -> NoReturn:
        raise UnsupportedError(f"{self} is read only; write to a folder, with a store of zarr's own")


def _read_local(files: LocalFiles, key: str, byte_range: ByteRequest | None) -> memoryview | None:
    file = files.open(key)
    if file is None:
        return None
    try:
        start, end = _span(byte_range, file)
        data = memoryview(np.empty(max(end - start, 0), np.uint8))
        if end > start:
            file.read_into(data, start)
    finally:
        file.close()
    return data


def _local_size(files: LocalFiles, key: str) -> int | None:
    file = files.open(key)
    if file is None:
        return None
    file.close()
    return file.size


def _span(byte_range: ByteRequest | None, file: LocalFile) -> tuple[int, int]:
    match byte_range:
        case None:
            return 0, file.size
        case RangeByteRequest(start, end):
            return start, end
        case OffsetByteRequest(offset):
            return offset, file.size
        case SuffixByteRequest(suffix):
            return max(file.size - suffix, 0), file.size


async def _read_remote(files: RemoteFiles, key: str, byte_range: ByteRequest | None) -> memoryview | None:
    match byte_range:
        case RangeByteRequest(start, end) if start < end:
            answer = await files.get_range(key, start, end)
        case SuffixByteRequest(suffix) if suffix > 0:
            answer = await files.get_suffix(key, suffix)
        case OffsetByteRequest(offset) if offset > 0:
            size = await _remote_size(files, key)
            if size is None or size <= offset:
                return None if size is None else memoryview(b"")
            answer = await files.get_range(key, offset, size)
        case None | OffsetByteRequest():
            answer = await files.get(key)
        case _:
            # no byte is asked for; all there is to say is whether there is such a file
            return None if await _remote_size(files, key) is None else memoryview(b"")
    return None if answer is None else answer.data


async def _remote_size(files: RemoteFiles, key: str) -> int | None:
    answer = await files.get_suffix(key, 1)
    if answer is None:
        return None
    if answer.size is None:
        raise StoreError(f"{files.name} does not say how long {key!r} is; read it whole")
    return answer.size


def _named(files: LocalFiles | RemoteFiles, begin: str, prefix: str) -> list[str]:
    return [name[len(begin) :] for name in files.names(begin + prefix)]


def _children(files: _ListsFolders, folder: str) -> list[str]:
    return list(files.children(folder))
