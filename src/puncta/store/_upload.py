"""A folder put below a URL: its parts in any order, then the documents that make it readable, one after the other.

An object store has no rename. So the last document is the commit (P22): it is put on the condition that none is there.
Until then a claim lies beside the parts. It says that what is there is not yet anything, and may be replaced; and
whoever finds another claim than his own stops, since somebody else has begun anew.
"""

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from puncta.errors import OverwriteError, StoreError
from puncta.store._bucket import Bucket, ConflictError, bytes_in_flight
from puncta.store._directory import Directory
from puncta.store._disk import in_units
from puncta.store._event_loop import run

_log = logging.getLogger(__name__)

_CLAIM: Final = ".puncta-upload"

_AT_ONCE: Final = 16
"""Files that are put at the same time, where they are small."""

_BUDGET: Final = 128 << 20
"""Bytes of files in memory at once, where no file alone takes more."""

_CLAIM_EVERY: Final = 16
"""Files between two looks at the claim."""


def upload(
    bucket: Bucket,
    folder: Path,
    key: str,
    *,
    last: Sequence[str],
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Put a folder below a name in a bucket; what leads out of it through links comes along.

    Memory: about 128 MiB, or four pieces of the largest file where that is more.

    Args:
        bucket: Where to.
        folder: What is put; a few files at least.
        key: The name that the folder gets.
        last: The documents that are put after all others, in this order; the last one is the commit.
        progress: Called with the bytes that are there and all there are.

    Raises:
        OverwriteError: If something is there that no interrupted upload left, or somebody else writes there.
        StoreError: If anything cannot be read or written; a note says what is left.
        MissingError: If there is no such bucket.

    """
    names = {name: _size(folder / name) for name in sorted(Directory(folder).names(""))}
    job = _Upload(bucket=bucket, folder=folder, key=key, sizes=names, last=tuple(last), progress=progress)
    try:
        run(job.run())
    except BaseException as error:
        # here, since an interrupt is raised anew where the coroutine is waited for
        if job.is_under_way:
            error.add_note(job.left())
        raise


def require_free(bucket: Bucket, key: str) -> None:
    """Check that nothing is below a name but what an interrupted upload has left.

    Raises:
        OverwriteError: If anything else is there.
        StoreError: If that cannot be said.
        MissingError: If there is no such bucket.

    """
    run(_require_free(bucket, key))


async def _require_free(bucket: Bucket, key: str) -> None:
    found = await bucket.sizes(key)
    if found and _below(key, _CLAIM) not in found:
        raise OverwriteError(
            f"{len(found)} files are below {bucket.path(key)} (first: {min(found)!r}), and they are no store; give "
            "another name, or remove them first"
        )


@dataclass(slots=True, kw_only=True)
class _Upload:
    """One upload."""

    bucket: Bucket
    """Where to."""

    folder: Path
    """What is put."""

    key: str
    """The name that it gets."""

    sizes: dict[str, int]
    """Bytes of every file, by its name in the folder."""

    last: tuple[str, ...]
    """The documents that are put after all others; the last one is the commit."""

    progress: Callable[[int, int], None] | None
    """Called with the bytes that are there and all there are."""

    claim: bytes = field(default_factory=lambda: json.dumps({"claim": secrets.token_hex(16)}).encode())
    """What the claim says, and no other does."""

    done: list[int] = field(default_factory=list)
    """Bytes of each file that is there."""

    is_under_way: bool = False
    """Whether something is there, and not all of it."""

    async def run(self) -> None:
        """Put everything."""
        await self._take_claim()
        self.is_under_way = True
        await self._put_parts()
        await self._require_whole()
        await self._commit()
        self.is_under_way = False
        try:
            await self.bucket.delete([self._at(_CLAIM)])
        except StoreError as error:
            # all is there, and a claim beside what is complete says nothing to anybody
            _log.warning("%s", error)

    def left(self) -> str:
        """Return what an upload that was stopped leaves, in words."""
        return (
            f"{len(self.done)} of {len(self.sizes)} files ({in_units(sum(self.done))}) are below "
            f"{self.bucket.path(self.key)}, which is no store yet: the same command replaces them, or remove them"
        )

    async def _take_claim(self) -> None:
        """Remove what an interrupted upload has left, and say that this one has begun."""
        await _require_free(self.bucket, self.key)
        # before they are removed: their writer, should it live, must not put more
        await self.bucket.put(self._at(_CLAIM), self.claim)
        left = await self.bucket.sizes(self.key)
        await self.bucket.delete(sorted(left.keys() - {self._at(_CLAIM)}))

    async def _put_parts(self) -> None:
        parts = sorted(self.sizes.keys() - set(self.last))
        queue, memory = iter(enumerate(parts)), _Memory(free=_BUDGET)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(_AT_ONCE, len(parts))):
                    group.create_task(self._put_from(queue, memory))
        except ExceptionGroup as failed:
            # the first one stopped the others
            raise failed.exceptions[0] from failed.exceptions[0].__cause__

    async def _put_from(self, queue: Iterator[tuple[int, str]], memory: "_Memory") -> None:
        for number, name in queue:
            if number % _CLAIM_EVERY == 0:
                await self._require_claim()
            size = self.sizes[name]
            async with memory.lent(bytes_in_flight(size)):
                await self.bucket.put_file(self._at(name), self.folder / name, size)
            self._note(size)

    async def _require_claim(self) -> None:
        found = await self.bucket.read(self._at(_CLAIM))
        if found is None or found.data != self.claim:
            raise OverwriteError(
                f"somebody else has begun to write {self.bucket.path(self.key)}, so this upload stopped; "
                "wait until that has ended, or give another name"
            )

    async def _require_whole(self) -> None:
        """Check that the parts are there as they were put, and nothing else."""
        await self._require_claim()
        found = await self.bucket.sizes(self.key)
        due = {self._at(name): size for name, size in self.sizes.items() if name not in self.last}
        due[self._at(_CLAIM)] = len(self.claim)
        wrong = sorted(name for name in found.keys() | due.keys() if found.get(name) != due.get(name))
        if wrong:
            raise StoreError(
                f"{len(wrong)} of {len(due)} files below {self.bucket.path(self.key)} are not as they were put (first: "
                f"{wrong[0]!r}), so something else writes there; let it end, and run again"
            )

    async def _commit(self) -> None:
        for name in self.last[:-1]:
            await self.bucket.put_file(self._at(name), self.folder / name, self.sizes[name])
            self._note(self.sizes[name])
        key, document = self._at(self.last[-1]), (self.folder / self.last[-1]).read_bytes()
        try:
            await self.bucket.write(key, document, over=None)
        except ConflictError as error:
            found = await self.bucket.read(key)
            # it is ours where the answer to a first attempt was lost on its way
            if found is None or found.data != document:
                raise OverwriteError(
                    f"{self.bucket.path(self.key)} was written by somebody else meanwhile; give another name"
                ) from error
        self._note(self.sizes[self.last[-1]])

    def _at(self, name: str) -> str:
        return _below(self.key, name)

    def _note(self, size: int) -> None:
        self.done.append(size)
        if self.progress is not None:
            self.progress(sum(self.done), sum(self.sizes.values()))


@dataclass(slots=True, kw_only=True)
class _Memory:
    """Bytes that files may take at the same time."""

    free: int
    """What is left."""

    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    """Wakes those who wait for more."""

    @asynccontextmanager
    async def lent(self, wanted: int) -> AsyncIterator[None]:
        """Wait for some bytes, or for all there are, and give them back after the block."""
        taken = min(wanted, _BUDGET)
        async with self.changed:
            await self.changed.wait_for(lambda: self.free >= taken)
            self.free -= taken
        try:
            yield
        finally:
            async with self.changed:
                self.free += taken
                self.changed.notify_all()


def _below(key: str, name: str) -> str:
    return f"{key}/{name}" if key else name


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise StoreError(f"could not look at {path}: {error.strerror}; check its permissions") from error
