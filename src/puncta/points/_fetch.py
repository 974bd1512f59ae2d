"""Fetches whole files and stretches of files from any place: all that are asked for at once.

Bytes at hand are read by position; those that must be waited for are requested together, a bounded number at a time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from puncta.errors import StoreError
from puncta.store import Answer, LocalFile, LocalFiles, RemoteFiles
from puncta.store._event_loop import run

__all__ = ["Files", "Stretch", "Tail", "changed", "fetch", "read_files", "read_tails"]

type Files = LocalFiles | RemoteFiles
"""Named files, at hand or not."""

# As many as the batched reads of arrays have under way.
_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Bytes of one file, and where they go."""

    key: str
    """Name of the file."""

    start: int
    """Offset of the first byte."""

    target: memoryview
    """Where the bytes go; as long as what is wanted."""

    version: Hashable
    """What the file was when it was looked at; another version is no answer. None where nobody knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """The last bytes of a file."""

    data: memoryview
    """The bytes."""

    size: int
    """Length of the whole file."""

    version: Hashable
    """Version of the file; None where the place does not say it."""


def read_files(files: Files, keys: Sequence[str]) -> list[bytes | None]:
    """Return whole small files, None for each that is not there.

    Raises:
        StoreError: If one cannot be read.

    """
    if isinstance(files, LocalFiles):
        return [_whole(files, key) for key in keys]
    answers = run(_gathered([_getting(files, key) for key in keys]))
    return [None if answer is None else bytes(answer.data) for answer in answers]


def read_tails(files: Files, wanted: Sequence[tuple[str, int]]) -> list[Tail | None]:
    """Return the last bytes of files, or all where they have fewer; None for each that is not there.

    Args:
        files: Where they are.
        wanted: Name and number of bytes of each.

    Raises:
        StoreError: If one cannot be read.

    """
    if isinstance(files, LocalFiles):
        return [_tail(files, key, length) for key, length in wanted]
    answers = run(_gathered([_ending(files, key, length) for key, length in wanted]))
    return [None if answer is None else _tail_of(answer) for answer in answers]


def fetch(files: Files, stretches: Sequence[Stretch]) -> None:
    """Fill the targets of stretches of files.

    Args:
        files: Where the files are.
        stretches: What is read, those of one file next to each other.

    Raises:
        StoreError: If a file is not there, ends before, was replaced since it was looked at, or cannot be read.

    """
    if isinstance(files, LocalFiles):
        for key, some in groupby(stretches, key=lambda stretch: stretch.key):
            _fill(files, key, some)
        return
    run(_gathered([_filling(files, stretch) for stretch in stretches]))


def changed(files: Files, key: str) -> StoreError:
    """Return the error for a file that was replaced."""
    return StoreError(f"{files.name}/{key} changed while it was read; open it again")


def _missing(files: Files, key: str) -> StoreError:
    return StoreError(
        f"{files.name}/{key} is missing, though the index needs it; restore it, or index the points again"
    )


def _whole(files: LocalFiles, key: str) -> bytes | None:
    file = files.open(key)
    if file is None:
        return None
    try:
        data = bytearray(file.size)
        file.read_into(memoryview(data), 0)
        return bytes(data)
    finally:
        file.close()


def _tail(files: LocalFiles, key: str, length: int) -> Tail | None:
    file = files.open(key)
    if file is None:
        return None
    try:
        data = memoryview(bytearray(min(length, file.size)))
        file.read_into(data, file.size - len(data))
        return Tail(data=data, size=file.size, version=file.version)
    finally:
        file.close()


def _tail_of(answer: Answer) -> Tail:
    # a place that tells no length has sent the end of the file all the same
    size = answer.start + len(answer.data) if answer.size is None else answer.size
    return Tail(data=answer.data, size=size, version=answer.version)


def _fill(files: LocalFiles, key: str, stretches: Iterable[Stretch]) -> None:
    file: LocalFile | None = files.open(key)
    if file is None:
        raise _missing(files, key)
    try:
        for stretch in stretches:
            if file.version != stretch.version:
                raise changed(files, key)
            file.read_into(stretch.target, stretch.start)
    finally:
        file.close()


def _getting(files: RemoteFiles, key: str) -> Callable[[], Awaitable[Answer | None]]:
    return lambda: files.get(key)


def _ending(files: RemoteFiles, key: str, length: int) -> Callable[[], Awaitable[Answer | None]]:
    return lambda: files.get_suffix(key, length)


def _filling(files: RemoteFiles, stretch: Stretch) -> Callable[[], Awaitable[None]]:
    async def fill() -> None:
        answer = await files.get_range(stretch.key, stretch.start, stretch.start + len(stretch.target))
        if answer is None:
            raise _missing(files, stretch.key)
        if answer.version != stretch.version:
            raise changed(files, stretch.key)
        stretch.target[:] = answer.data

    return fill


async def _gathered[T](calls: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """Return what all calls return; the first error cancels the others and is raised."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(call: Callable[[], Awaitable[T]]) -> T:
        async with gate:
            return await call()

    tasks: list[asyncio.Task[T]] = []
    try:
        async with asyncio.TaskGroup() as group:
            tasks += [group.create_task(one(call)) for call in calls]
    except BaseExceptionGroup as errors:
        first = errors.exceptions[0]
    else:
        return [task.result() for task in tasks]
    raise first
