"""Bytes that were read become values in their places: small chunks decoded together, all copied in one turn."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import zstandard

from puncta.arrays._decode import Codecs, zstd_context
from puncta.arrays._plan import LARGE
from puncta.arrays._share import Item, Share
from puncta.arrays._turn import TURN

_DECODES_MANY = "multi_decompress_to_buffer" in zstandard.backend_features


def finish(share: Share, items: Sequence[Item], data: Sequence[memoryview]) -> None:
    """Decode chunks and put their values in their places.

    Args:
        share: What the bytes belong to.
        items: What each of the ranges is for.
        data: Their bytes.

    Raises:
        StoreError: If a chunk is damaged; the message names array, chunk and file.

    """
    are_together = [_is_decoded_together(layout.codecs) for layout in share.layouts]
    ranges = list(zip(items, data, strict=True))
    small = [(item, view) for item, view in ranges if isinstance(item, int) and are_together[share.part_of[item]]]
    values = _decode_together(share, small) if len(small) > 1 else None
    if values is not None:
        with TURN.lock:
            share.place([(chunk, memoryview(value)) for (chunk, _), value in zip(small, values, strict=True)])
        if len(small) == len(ranges):
            return
        done = {chunk for chunk, _ in small}
        ranges = [(item, view) for item, view in ranges if not (isinstance(item, int) and item in done)]
    for item, view in ranges:
        # One by one: what was decoded last is still in the processor's cache, and no more than that in memory.
        share.place([(item, share.decode(item, view) if isinstance(item, int) else view)])


def _is_decoded_together(codecs: Codecs) -> bool:
    return _DECODES_MANY and codecs.is_zstd and codecs.size <= LARGE


def _decode_together(share: Share, chunks: Sequence[tuple[int, memoryview]]) -> Any:  # noqa: ANN401 (has no type)
    """Return the values of Zstandard chunks in one call, which gives up Python's lock once for all of them.

    None where one of them is no plain frame of just the size of a chunk; then they are taken one by one.
    """
    sizes = np.array([layout.codecs.size for layout in share.layouts], np.uint64)
    sizes = sizes[[share.part_of[chunk] for chunk, _ in chunks]]
    try:
        return zstd_context().multi_decompress_to_buffer([data for _, data in chunks], decompressed_sizes=sizes.data)
    except zstandard.ZstdError:
        return None
