"""Chunks are read from files at hand, a share of a batch at a time: read, then decoded, then put in their places."""

import threading
from collections.abc import Hashable, Sequence
from contextlib import ExitStack, closing

import numpy as np

from puncta.arrays._finish import finish
from puncta.arrays._layout import Integers, Layout, Shards
from puncta.arrays._merge import LOCAL, Merging, merge, with_gap
from puncta.arrays._outputs import Outputs
from puncta.arrays._plan import Part, Plan
from puncta.arrays._shard_index import INDEXES, read_index
from puncta.arrays._share import Found, Item, Share, Wanted, split_addresses
from puncta.arrays._turn import OPENINGS, TURN
from puncta.store import LocalFile, LocalFiles

# A buffer up to this size is kept for the next share of its thread: fresh memory costs more than reading into it.
_KEPT = 4 << 20

_buffers = threading.local()

type _Read = tuple[LocalFile, memoryview, int]
"""A file, where its bytes go, and the first of them."""


def read_local(
    files: Sequence[LocalFiles], plan: Plan, outputs: Outputs, parts: list[Part], *, gap: int | None = None
) -> None:
    """Read some chunks of some files and put their values in their places.

    Args:
        files: Where the files of each of the plan's arrays are.
        plan: What is read, and where it goes.
        outputs: What is written to.
        parts: The chunks.
        gap: Bytes between two ranges that are read with them; None: none.

    Raises:
        StoreError: If a file cannot be read, or is damaged.

    """
    with OPENINGS.slot(), ExitStack() as stack:
        with TURN.lock:
            share = Share(plan, parts, outputs)
            keys = share.keys()
            opened = [_opened(files[part.layout], key, stack) for part, key in zip(parts, keys, strict=True)]
            caches = [(files[part.layout].identity, key) for part, key in zip(parts, keys, strict=True)]
            wanted = share.locate([look(*one) for one in zip(opened, share.layouts, caches, strict=True)])
            share.fill(wanted.absent)
            reads, items, data = _assign(wanted, opened, with_gap(LOCAL, gap))
            late = [(file, buffer, offset) for file, buffer, offset in reads if not file.read_at_hand(buffer, offset)]
        # Chunks that a disk must fetch are fetched outside of the turn, and announced: disks do many things at once.
        for file, buffer, offset in late:
            file.announce(offset, buffer.nbytes)
        for file, buffer, offset in late:
            file.read_into(buffer, offset)
    finish(share, items, data)


def _opened(files: LocalFiles, key: str, stack: ExitStack) -> LocalFile | None:
    file = files.open(key)
    return None if file is None else stack.enter_context(closing(file))


def look(file: LocalFile | None, layout: Layout, place: tuple[Hashable, str]) -> Found | None:
    """Return what an open file of an array holds; None where there is none.

    Args:
        file: The file.
        layout: Of the array.
        place: Identity of what it lies in, and its name there.

    Raises:
        StoreError: If its index is damaged.

    """
    if file is None:
        return None
    index = None if layout.shards is None else _index_of(file, layout, layout.shards, place)
    return Found(size=file.size, index=index)


def _assign(
    wanted: Wanted, files: Sequence[LocalFile | None], merging: Merging
) -> tuple[list[_Read], list[Item], list[memoryview]]:
    """Return what to read into which memory, then the ranges that are not yet in their place, and their bytes."""
    straight = [at for at, item in enumerate(wanted.items) if isinstance(item, memoryview)]
    if not straight:
        reads, data = _merged(wanted, files, merging)
        return reads, wanted.items, data
    # What needs no decoding is read straight into its place, each range by itself: merged, it would need other memory.
    rest = sorted(set(range(len(wanted.items))) - set(straight))
    reads, data = _merged(wanted.among(rest), files, merging)
    views = [item for item in wanted.items if isinstance(item, memoryview)]
    return reads + _reads(wanted.starts[straight], views, files), [wanted.items[at] for at in rest], data


def _merged(
    wanted: Wanted, files: Sequence[LocalFile | None], merging: Merging
) -> tuple[list[_Read], list[memoryview]]:
    """Return reads of near ranges into one buffer, and the part of it that each range has."""
    bounds = merge(wanted.starts, wanted.ends, merging)
    begins, reach = wanted.starts[bounds[:-1]], np.maximum.accumulate(wanted.ends)
    sizes = reach[bounds[1:] - 1] - begins
    used = np.cumsum(sizes) - sizes
    buffer = _buffer(int(sizes.sum()))
    places = wanted.starts + np.repeat(used - begins, np.diff(bounds))
    return _reads(begins, _slices(buffer, used, sizes), files), _slices(buffer, places, wanted.ends - wanted.starts)


def _reads(starts: Integers, views: list[memoryview], files: Sequence[LocalFile | None]) -> list[_Read]:
    file, offset = split_addresses(starts)
    return list(zip((_present(files[number]) for number in file.tolist()), views, offset.tolist(), strict=True))


def _slices(buffer: memoryview, starts: Integers, sizes: Integers) -> list[memoryview]:
    return [buffer[low:high] for low, high in zip(starts.tolist(), (starts + sizes).tolist(), strict=True)]


def _present(file: LocalFile | None) -> LocalFile:
    if file is None:
        raise ValueError("bytes are wanted of a file that is not there")
    return file


def _index_of(file: LocalFile, layout: Layout, shards: Shards, place: tuple[Hashable, str]) -> Integers:
    cached: Hashable = (layout.token, place)
    found = INDEXES.find(cached)
    if found is not None and found[0] == file.version:
        return found[1]
    size = min(shards.index_size, file.size)
    data = memoryview(bytearray(size))
    file.read_into(data, file.size - size if shards.at_end else 0)
    index = read_index(data, layout, place[1], size=file.size)
    INDEXES.keep(cached, file.version, index)
    return index


def _buffer(size: int) -> memoryview:
    if size > _KEPT:
        return memoryview(bytearray(size))
    kept: memoryview | None = getattr(_buffers, "kept", None)
    if kept is None or len(kept) < size:
        kept = _buffers.kept = memoryview(bytearray(max(size, 64 << 10)))
    return kept[:size]
