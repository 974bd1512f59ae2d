"""Rows as 64-bit hashes and as feature codes, so that copies of them can be compared. Pure."""

import hashlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from puncta.points._arrow import numpy_of

NULL = -1
"""Code of a row without a feature."""

UNKNOWN = -2
"""Code of a row whose feature is none of the categories."""

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xFF51AFD7ED558CCD)
_MIX_2 = np.uint64(0xC4CEB9FE1A85EC53)
_SHIFT = np.uint64(33)
_NULL_HASH = np.uint64(0x5BF03635D3A5C1E9)

# Fixed-width values of these sizes are hashed as they lie in memory.
_WIDTHS = {8: pa.uint8(), 16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}


class RowHasher:
    """Hashes rows over all their columns; equal rows get equal hashes, whichever copy they come from.

    Values are hashed, not codes: two files may number the same categories differently.
    """

    def __init__(self) -> None:
        """Remember nothing yet; the dictionaries of a file repeat in every row group, and are hashed once."""
        self._last: dict[str, tuple[pa.Array, NDArray[np.uint64]]] = {}

    def hashes(self, table: pa.Table) -> NDArray[np.uint64]:
        """Return the hash of each row, shape (n,), uint64; columns count in their order."""
        parts = [self._of_batch(batch) for batch in table.combine_chunks().to_batches()]
        return np.concatenate([*parts, np.zeros(0, dtype=np.uint64)])

    def _of_batch(self, batch: pa.RecordBatch) -> NDArray[np.uint64]:
        total = np.zeros(batch.num_rows, dtype=np.uint64)
        for name in batch.schema.names:
            total *= _FACTOR
            total += self._of_column(name, batch.column(name))
            total = _mixed(total)
        return total

    def _of_column(self, name: str, column: pa.Array) -> NDArray[np.uint64]:
        kind = column.type
        if pa.types.is_null(kind):
            return np.full(len(column), _NULL_HASH)
        if pa.types.is_boolean(kind):
            column, kind = column.cast(pa.uint8()), pa.uint8()
        if pa.types.is_primitive(kind) and kind.bit_width in _WIDTHS:
            hashes = _mixed(numpy_of(column.view(_WIDTHS[kind.bit_width])).astype(np.uint64))
            if column.null_count:
                hashes[nulls_of(column)] = _NULL_HASH
            return hashes
        if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind):
            column = pc.dictionary_encode(column)
        if not pa.types.is_dictionary(column.type):
            return _of_objects(column)
        values = self._of_dictionary(name, column.dictionary)
        return values[_filled(column.indices, len(values) - 1)]

    def _of_dictionary(self, name: str, dictionary: pa.Array) -> NDArray[np.uint64]:
        """Return the hash of each value, and that of null at the end."""
        last = self._last.get(name)
        if last is not None and last[0].equals(dictionary):
            return last[1]
        hashes = np.append(_of_objects(dictionary), _NULL_HASH)
        self._last[name] = (dictionary, hashes)
        return hashes


class FeatureCodes:
    """Turns a feature column into codes of the categories that the index names."""

    def __init__(self, categories: Sequence[str]) -> None:
        """Number the categories in their order."""
        self._code_of = {category: code for code, category in enumerate(categories)}
        self._last: tuple[pa.Array, NDArray[np.int64]] | None = None
        self._in_order = np.asarray([*range(len(categories)), NULL], dtype=np.int64)

    def __len__(self) -> int:
        """Return the number of categories."""
        return len(self._code_of)

    def codes(self, column: pa.ChunkedArray) -> NDArray[np.int64]:
        """Return the code of each row, shape (n,), int64; `NULL` without a feature, `UNKNOWN` for one not listed."""
        array = column.combine_chunks()
        encoded = array if pa.types.is_dictionary(array.type) else pc.dictionary_encode(array)
        mapping = self._mapping_of(encoded.dictionary)
        return mapping[_filled(encoded.indices, len(mapping) - 1)]

    def count_other(self, column: pa.ChunkedArray) -> int:
        """Return how many pieces of a dictionary column do not hold exactly the categories, in their order (P8)."""
        if not pa.types.is_dictionary(column.type):
            return 0
        dictionaries = [chunk.dictionary for chunk in column.chunks if len(chunk)]
        return sum(not np.array_equal(self._mapping_of(one), self._in_order) for one in dictionaries)

    def _mapping_of(self, dictionary: pa.Array) -> NDArray[np.int64]:
        if self._last is not None and self._last[0].equals(dictionary):
            return self._last[1]
        values = dictionary.to_pylist()
        codes = [NULL if value is None else self._code_of.get(str(value), UNKNOWN) for value in values]
        mapping = np.asarray([*codes, NULL], dtype=np.int64)
        self._last = (dictionary, mapping)
        return mapping


def invented(sample: NDArray[np.uint64], source: NDArray[np.uint64]) -> tuple[int, int]:
    """Return how many rows of a sample are not among the rows it was drawn from, as multisets, and where one is.

    Args:
        sample: Hashes of rows, shape (n,).
        source: Hashes of rows, shape (m,).

    Returns:
        Their number, and the position of one of them in the sample; 0 where there is none.

    """
    rows, places, wanted = np.unique(sample, return_index=True, return_counts=True)
    known, there = np.unique(source, return_counts=True)
    if not len(known):
        return len(sample), 0
    at = np.minimum(np.searchsorted(known, rows), len(known) - 1)
    lacking = np.maximum(wanted - np.where(known[at] == rows, there[at], 0), 0)
    return int(lacking.sum()), int(places[lacking.argmax()]) if len(places) else 0


def keyed(hashes: NDArray[np.uint64], keys: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return hashes of rows together with a number of each, such as its tile."""
    return _mixed(hashes + keys.astype(np.uint64) * _FACTOR)


def sum_of(hashes: NDArray[np.uint64]) -> int:
    """Return the sum of hashes, which does not depend on their order; modulo 2**64."""
    return int(hashes.sum(dtype=np.uint64))


def _of_objects(column: pa.Array) -> NDArray[np.uint64]:
    digests = [hashlib.blake2b(repr(value).encode(), digest_size=8).digest() for value in column.to_pylist()]
    hashes = np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)
    if column.null_count:
        hashes[nulls_of(column)] = _NULL_HASH
    return hashes


def _filled(indices: pa.Array, null: int) -> NDArray[np.int64]:
    codes = numpy_of(indices).astype(np.int64)
    if indices.null_count:
        codes[nulls_of(indices)] = null
    return codes


def nulls_of(column: pa.Array) -> NDArray[np.bool_]:
    """Say which values of a column are null, shape (n,)."""
    # filling nulls instead would make a scalar, for which pyarrow imports pandas
    mask: NDArray[np.bool_] = numpy_of(column.is_null().cast(pa.uint8())) != 0
    return mask


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return values spread over all 64 bits: the finaliser of MurmurHash3 (Appleby)."""
    mixed = values ^ (values >> _SHIFT)
    mixed *= _MIX_1
    mixed ^= mixed >> _SHIFT
    mixed *= _MIX_2
    mixed ^= mixed >> _SHIFT
    return mixed
