"""The index of a shard: where in the file each of its chunks lies. Kept for the next batch, up to a bound."""

import os
import threading
from collections import OrderedDict
from collections.abc import Hashable

import numpy as np

from puncta.arrays._decode import crc32c
from puncta.arrays._layout import Integers, Layout
from puncta.arrays._place import ABSENT
from puncta.errors import StoreError

_BOUND = 64 << 20


def read_index(data: memoryview, layout: Layout, key: str, *, size: int) -> Integers:
    """Return offset and size of each chunk of a shard, in C order, shape (chunks, 2); `ABSENT` where there is none.

    Args:
        data: The bytes of the index, or the whole file where that is shorter.
        layout: Of the array, which is sharded.
        key: Name of the file.
        size: Length of the file.

    Raises:
        StoreError: If the file is too short, the checksum is wrong, or a chunk lies outside of the file.

    """
    shards, name = layout.shards, f"{key} of {layout.name}"
    if shards is None:
        raise ValueError(f"{layout.name} is not sharded")
    if len(data) < shards.index_size:
        raise StoreError(
            f"{name} has {len(data)} bytes, fewer than its index of {shards.index_size}: it was cut short; restore it "
            "from a copy"
        )
    entries = data[: shards.index_size - 4 * shards.checksum]
    if shards.checksum and crc32c(entries) != int.from_bytes(data[-4:], "little"):
        raise StoreError(
            f"the index of {name} is damaged: its checksum (CRC32C) does not match; restore it from a copy"
        )
    index: Integers = np.frombuffer(entries, f"{shards.byte_order}i8").astype(np.int64).reshape(-1, 2)
    _require_inside(index, name, size)
    return index


def _require_inside(index: Integers, name: str, size: int) -> None:
    offset, length = index[:, 0], index[:, 1]
    # All bits set is absent. Of numbers with a sign, anything else that is beyond any file is negative.
    inside = (offset >= 0) & (length >= 0) & (offset <= size) & (length <= size - offset)
    outside = ~inside & ~((offset == ABSENT) & (length == ABSENT))
    if outside.any():
        first = int(np.flatnonzero(outside)[0])
        start, count = (int(value) % (1 << 64) for value in index[first])
        raise StoreError(
            f"the index of {name} says that {int(outside.sum())} of {len(index)} chunks lie outside of its {size} "
            f"bytes (first: number {first}, {count} bytes from {start}); it was cut short or damaged: restore it from "
            "a copy"
        )


class IndexCache:
    """Indexes of the shards that were read last; safe for use from many threads."""

    def __init__(self, bound: int = _BOUND) -> None:
        self._bound = bound
        self.clear()

    def clear(self) -> None:
        """Forget everything; also what a forked process must do, whose parent may have held the lock."""
        self._lock = threading.Lock()
        self._indexes: OrderedDict[Hashable, tuple[Hashable, Integers]] = OrderedDict()
        self._size = 0

    def find(self, key: Hashable) -> tuple[Hashable, Integers] | None:
        """Return the version and the index of a shard; None where it is not kept."""
        with self._lock:
            found = self._indexes.get(key)
            if found is not None:
                self._indexes.move_to_end(key)
            return found

    def keep(self, key: Hashable, version: Hashable, index: Integers) -> None:
        """Keep an index in place of an older one, and drop the least used above the bound, but itself."""
        with self._lock:
            self._remove(key)
            self._indexes[key] = version, index
            self._size += index.nbytes
            while self._size > self._bound and len(self._indexes) > 1:
                self._remove(next(iter(self._indexes)))

    def drop(self, key: Hashable) -> None:
        """Forget the index of a shard."""
        with self._lock:
            self._remove(key)

    def _remove(self, key: Hashable) -> None:
        gone = self._indexes.pop(key, None)
        self._size -= gone[1].nbytes if gone else 0


INDEXES = IndexCache()
"""Of this process: 64 MiB, the indexes of 17 thousand million values in chunks of 4,096."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=INDEXES.clear)
