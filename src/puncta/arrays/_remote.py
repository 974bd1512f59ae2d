"""Chunks are read from files that must be waited for: near ranges in one request, a bounded number at a time."""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from puncta.arrays._finish import finish
from puncta.arrays._layout import Integers, Shards
from puncta.arrays._merge import REMOTE, Merging, merge, with_gap
from puncta.arrays._outputs import Outputs
from puncta.arrays._plan import Plan
from puncta.arrays._shard_index import INDEXES, read_index
from puncta.arrays._share import Found, Share, Wanted
from puncta.arrays._threads import Workers
from puncta.errors import StoreError
from puncta.store import Answer, RemoteFiles

# Each holds a read of about 4 MiB, or one chunk where that is longer: this bounds what is in memory above the answers.
_REQUESTS_AT_ONCE = 16

# Where the length of a file is not said, no chunk can be found to lie behind its end before it is asked for.
_UNKNOWN_SIZE = 1 << 43

type _Check = Callable[[Answer | None], None]
"""Raises where an answer is not of the file that was expected; no answer: there is no file."""


async def read_remote(
    files: Sequence[RemoteFiles], plan: Plan, outputs: Outputs, *, workers: Workers, gap: int | None
) -> None:
    """Read the chunks of a plan, and put their values in their places.

    Args:
        files: Where the files of each of the plan's arrays are.
        plan: What is read, and where it goes.
        outputs: What is written to.
        workers: What has chunks decoded.
        gap: Bytes between two ranges that are read with them; None: as much as pays.

    Raises:
        StoreError: If a file cannot be read, is damaged, or changes meanwhile.

    """
    gate = asyncio.Semaphore(_REQUESTS_AT_ONCE)
    try:
        async with asyncio.TaskGroup() as group:
            for parts in plan.shares(0):
                share = partial(Share, plan, parts, outputs)
                reading = _Reading(workers=workers, gate=gate, merging=with_gap(REMOTE, gap))
                group.create_task(_read_file(files[parts[0].layout], share, reading))
    except BaseExceptionGroup as errors:
        first = _first_of(errors)
    else:
        return
    raise first


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """What all files of a batch have in common."""

    workers: Workers
    """What has chunks decoded."""

    gate: asyncio.Semaphore
    """Bounds the requests at a time."""

    merging: Merging
    """How far requests are merged."""


async def _read_file(files: RemoteFiles, make_share: Callable[[], Share], reading: _Reading) -> None:
    # Where many pieces are wanted, to sort them takes a while in which the event loop had better go on.
    async with reading.gate:
        share = await reading.workers.call(make_share)
    await _RemoteFile(files, share, reading).read()


class _RemoteFile:
    """A file of a batch."""

    def __init__(self, files: RemoteFiles, share: Share, reading: _Reading) -> None:
        self._files = files
        self._share = share
        self._workers = reading.workers
        self._gate = reading.gate
        self._merging = reading.merging
        self._layout = share.layouts[0]
        self._key = share.keys()[0]
        self._name = f"{self._key} of {self._layout.name}"

    async def read(self) -> None:
        """Read the chunks of the file that are wanted."""
        if self._layout.shards is not None:
            await self._read_shard(self._layout.shards)
        elif self._layout.codecs.is_plain:
            await self._read_pieces()
        else:
            await self._read_whole()

    async def _read_whole(self) -> None:
        async with self._gate:
            answer = await self._files.get(self._key)
            if answer is None:
                self._fill_all()
                return
            wanted = self._share.locate([Found(size=len(answer.data), index=None)])
            await self._finish(wanted, answer.data, 0)

    async def _read_shard(self, shards: Shards) -> None:
        cached = (self._layout.token, (self._files.identity, self._key))
        kept = INDEXES.find(cached)
        found = kept or await self._index(shards, cached)
        if found is not None and kept is not None and not self._share.locate([_found(kept[1])]).items:
            # Nothing would be asked for, so nobody would say that the file has changed: what was absent may be there.
            found = await self._index(shards, cached)
        if found is None:
            self._fill_all()
            return
        version, index = found

        def require_same(answer: Answer | None) -> None:
            if answer is None or answer.version != version:
                INDEXES.drop(cached)
                raise StoreError(f"{self._name} changed while it was read; read it again")

        await self._read(self._share.locate([_found(index)]), require_same)

    async def _read_pieces(self) -> None:
        """Read pieces of a chunk that is a file of its own, whose length the layout gives and answers confirm."""
        size = self._layout.codecs.size
        versions: set[Hashable] = set()

        def require_same(answer: Answer | None) -> None:
            if answer is not None and answer.size not in {None, size}:
                raise StoreError(
                    f"{self._name} is damaged: it has {answer.size} bytes, and a chunk has {size}; restore it from a "
                    "copy"
                )
            versions.add(("absent",) if answer is None else answer.version)
            if len(versions) > 1:
                raise StoreError(f"{self._name} changed while it was read; read it again")

        await self._read(self._share.locate([Found(size=size, index=None)]), require_same)
        if ("absent",) in versions:
            self._fill_all()

    def _fill_all(self) -> None:
        """Write the fill value for all chunks: the file is not there."""
        self._share.fill(self._share.locate([None]).absent)

    async def _read(self, wanted: Wanted, check: _Check) -> None:
        """Read byte ranges, merged; every answer is checked before anything is taken from it."""
        self._share.fill(wanted.absent)
        bounds = merge(wanted.starts, wanted.ends, self._merging).tolist()
        async with asyncio.TaskGroup() as group:
            for low, high in pairwise(bounds):
                group.create_task(self._read_range(wanted.only(low, high), check))

    async def _read_range(self, wanted: Wanted, check: _Check) -> None:
        start, end = int(wanted.starts[0]), int(wanted.ends.max())
        async with self._gate:
            answer = await self._files.get_range(self._key, start, end)
            check(answer)
            if answer is not None:
                await self._finish(wanted, answer.data, start)

    async def _finish(self, wanted: Wanted, data: memoryview, start: int) -> None:
        ranges = zip((wanted.starts - start).tolist(), (wanted.ends - start).tolist(), strict=True)
        await self._workers.call(partial(finish, self._share, wanted.items, [data[low:high] for low, high in ranges]))

    async def _index(self, shards: Shards, cached: Hashable) -> tuple[Hashable, Integers] | None:
        async with self._gate:
            if shards.at_end:
                answer = await self._files.get_suffix(self._key, shards.index_size)
            else:
                answer = await self._files.get_range(self._key, 0, shards.index_size)
        if answer is None:
            return None
        index = read_index(answer.data, self._layout, self._key, size=answer.size or _UNKNOWN_SIZE)
        # Without a version nobody could tell later that the file was replaced.
        if answer.version is not None:
            INDEXES.keep(cached, answer.version, index)
        return answer.version, index


def _found(index: Integers) -> Found:
    return Found(size=_UNKNOWN_SIZE, index=index)


def _first_of(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    first = errors.exceptions[0]
    return _first_of(first) if isinstance(first, BaseExceptionGroup) else first
