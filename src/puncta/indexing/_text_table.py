"""Finds texts among very many, by a table that is made once. Pure.

Arrow's `index_in` makes its table anew for each batch, which for a million texts costs more than all else that is done
with the batch; polars' Enum took three times as long as that.
"""

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from puncta.points._arrow import numpy_of

__all__ = ["TextTable"]

_WORD = 8

# Odd numbers without a pattern: a product with one spreads each bit over those above it.
_LENGTH_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_WORD_FACTOR = np.uint64(0xC2B2AE3D27D4EB4F)
_HALF = np.uint64(32)

# Which bytes of a word belong to a text of which so many are left.
_MASKS = np.asarray([(1 << (8 * count)) - 1 for count in range(_WORD + 1)], dtype=np.uint64)


class TextTable:
    """The positions of texts; may be used from many threads.

    Takes 16 to 24 bytes for each text, and not the texts themselves: they are known by 64 bits of a hash, so that one
    which is not there is taken for another once in 2**64 / n cases.

    Args:
        values: The texts, each of them once, no null.

    """

    def __init__(self, values: pa.Array) -> None:
        self._n_values = len(values)
        # two texts of one hash: never seen, and settled by another seed
        for seed in itertools.count():
            self._seed, self._hashes = seed, hashes_of(values, seed)
            if len(np.unique(self._hashes)) == len(values):
                break
        size = 1 << max(2 * len(values) - 1, 1).bit_length()
        self._mask = np.uint64(size - 1)
        self._table = np.full(size, -1, dtype=np.int32)
        pending = np.arange(len(values), dtype=np.int32)
        for step in itertools.count():
            if not len(pending):
                break
            slots = self._slots(self._hashes[pending], step)
            is_free = self._table[slots] < 0
            self._table[slots[is_free]] = pending[is_free]
            # of those that wanted one slot, one has it; the others go on to the next
            pending = pending[self._table[slots] != pending]

    def positions(self, texts: pa.Array) -> NDArray[np.int32]:
        """Return the position of each text, shape (n,), int32; the number of values for a null, and for any other.

        Args:
            texts: Strings or large strings, shape (n,).

        """
        hashes = hashes_of(texts, self._seed)
        found = np.full(len(texts), self._n_values, dtype=np.int32)
        pending = np.arange(len(texts))
        for step in itertools.count():
            if not len(pending):
                break
            values = self._table[self._slots(hashes[pending], step)]
            is_taken = values >= 0
            pending, values = pending[is_taken], values[is_taken]
            is_hit = self._hashes[values] == hashes[pending]
            found[pending[is_hit]] = values[is_hit]
            pending = pending[~is_hit]
        if texts.null_count:
            found[numpy_of(pc.is_null(texts).cast(pa.uint8())) != 0] = self._n_values
        return found

    def _slots(self, hashes: NDArray[np.uint64], step: int) -> NDArray[np.int64]:
        return ((hashes + np.uint64(step)) & self._mask).astype(np.int64)


def hashes_of(texts: pa.Array, seed: int) -> NDArray[np.uint64]:
    """Return a hash of each text, shape (n,), uint64; that of a null is undefined.

    Args:
        texts: Strings or large strings, shape (n,).
        seed: Another one gives other hashes.

    """
    width = np.int64 if pa.types.is_large_string(texts.type) else np.int32
    _, offsets_buffer, data_buffer = texts.buffers()
    if not len(texts):
        return np.zeros(0, dtype=np.uint64)
    offsets = np.frombuffer(offsets_buffer, dtype=width)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    first = int(offsets[0])
    data = np.zeros(int(offsets[-1]) - first + _WORD, dtype=np.uint8)
    if data_buffer is not None:
        data[:-_WORD] = np.frombuffer(data_buffer, dtype=np.uint8)[first : int(offsets[-1])]
    # the word that begins at each byte
    words = np.ndarray(len(data) - _WORD + 1, dtype="<u8", buffer=data, strides=(1,))
    starts, lengths = offsets[:-1] - first, np.diff(offsets)
    hashes = (lengths.astype(np.uint64) + np.uint64(seed)) * _LENGTH_FACTOR
    for at in range(0, int(lengths.max()), _WORD):
        left = np.clip(lengths - at, 0, _WORD)
        word = words[np.minimum(starts + at, len(words) - 1)] & _MASKS[left]
        mixed = (hashes ^ word) * _WORD_FACTOR
        hashes = np.where(left > 0, mixed ^ (mixed >> _HALF), hashes)
    return hashes
