"""What a batch would take: its reads after merging, and the bytes that are needed; from the indexes of the shards."""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, cast

from puncta.arrays._layout import Layout
from puncta.arrays._local import look
from puncta.arrays._merge import LOCAL, REMOTE, merge
from puncta.arrays._outputs import prepare
from puncta.arrays._plan import Request, plan_batch
from puncta.arrays._shard_index import INDEXES, read_index
from puncta.arrays._share import Found, Share
from puncta.store import LocalFiles, RemoteFiles
from puncta.store._event_loop import run

__all__ = ["cost_of_batch"]

_AT_ONCE = 16


def cost_of_batch(requests: Sequence[Request]) -> tuple[int, int]:
    """Return how many reads a batch would take, and the bytes of the chunks that it needs.

    Reads the indexes of the shards that are touched, and no chunk.

    Raises:
        RangeError: If a request cannot be answered.
        StoreError: If an index cannot be read, or is damaged.

    """
    asked, outputs = prepare(requests)
    plan = plan_batch(asked)
    places = [cast("Any", requests[first].array).files for first in plan.first_request]
    shares = [(places[parts[0].layout], Share(plan, parts, outputs)) for parts in plan.shares(0)]
    near = [(files, share) for files, share in shares if isinstance(files, LocalFiles)]
    far = [(files, share) for files, share in shares if not isinstance(files, LocalFiles)]
    found = [(share, _look(files, share), LOCAL) for files, share in near]
    if far:
        answers = run(_gathered([partial(_ask, files, share) for files, share in far]))
        found += [(share, answer, REMOTE) for (_, share), answer in zip(far, answers, strict=True)]
    n_reads = n_bytes = 0
    for share, file, merging in found:
        if file is None:
            continue
        wanted = share.locate([file])
        n_reads += len(merge(wanted.starts, wanted.ends, merging)) - 1
        n_bytes += int((wanted.ends - wanted.starts).sum())
    return n_reads, n_bytes


def _look(files: LocalFiles, share: Share) -> Found | None:
    key = share.keys()[0]
    file = files.open(key)
    try:
        return look(file, share.layouts[0], (files.identity, key))
    finally:
        if file is not None:
            file.close()


async def _ask(files: RemoteFiles, share: Share) -> Found | None:
    layout, key = share.layouts[0], share.keys()[0]
    cached = (layout.token, (files.identity, key))
    kept = INDEXES.find(cached)
    if kept is not None and layout.shards is not None:
        return Found(size=int(kept[1].max(initial=0)), index=kept[1])
    return await _request(files, layout, key, cached)


async def _request(files: RemoteFiles, layout: Layout, key: str, cached: Hashable) -> Found | None:
    shards = layout.shards
    if shards is None or shards.at_end:
        answer = await files.get_suffix(key, 1 if shards is None else shards.index_size)
    else:
        answer = await files.get_range(key, 0, shards.index_size)
    if answer is None:
        return None
    size = answer.start + len(answer.data) if answer.size is None else answer.size
    if shards is None:
        return Found(size=size, index=None)
    index = read_index(answer.data, layout, key, size=size)
    # without a version nobody could tell later that the file was replaced
    if answer.version is not None:
        INDEXES.keep(cached, answer.version, index)
    return Found(size=size, index=index)


async def _gathered(calls: Sequence[Callable[[], Any]]) -> list[Found | None]:
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(call: Callable[[], Any]) -> Found | None:
        async with gate:
            found: Found | None = await call()
            return found

    return list(await asyncio.gather(*(one(call) for call in calls)))
