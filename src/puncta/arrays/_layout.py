"""How the values of one array lie in chunks, and the chunks in files. Pure: opens nothing."""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from puncta.arrays._decode import Codecs

type Integers = NDArray[np.int64]


type GridNumbers = tuple[list[int], list[int], list[int], list[int]]
"""Along each axis: length of a chunk, chunks of a file, and by how much the number of a chunk grows from one file to
the next, and from one chunk of a file to the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shards:
    """How the chunks of one file are found in it."""

    counts: tuple[int, ...]
    """Chunks of a file along each axis."""

    at_end: bool
    """Whether the index is the last part of the file, or the first."""

    checksum: bool
    """Whether a CRC32C of the index follows it."""

    byte_order: str
    """Of the numbers in the index: `<` or `>`."""

    @property
    def index_size(self) -> int:
        """Length of the index in bytes: an offset and a size of 8 bytes each a chunk, and the checksum."""
        return 16 * math.prod(self.counts) + 4 * self.checksum


# Without slots: what is worked out once is kept in the object's dictionary.
@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where the values of an array are."""

    name: str
    """What people know the array by: its store and its path there."""

    prefix: str
    """Beginning of the names of its files, with a slash at the end; empty for an array at the root of its store."""

    token: Hashable
    """Equal for two arrays that are read alike, wherever their files are."""

    shape: tuple[int, ...]
    """Of the array."""

    dtype: np.dtype[Any]
    """Of the results."""

    fill: Any
    """What an absent chunk holds."""

    fills: bool
    """Whether an absent file stands for the fill value; otherwise it is an error."""

    chunks: tuple[int, ...]
    """Shape of a chunk; where the grid is irregular, of the largest one."""

    edges: tuple[Integers, ...] | None
    """Where the grid is irregular: along each axis the first position of every chunk, then the end of the last."""

    shards: Shards | None
    """How chunks share files; None where each has its own."""

    codecs: Codecs
    """How the bytes of a chunk become values."""

    key_of: Callable[[tuple[int, ...]], str]
    """The name of a file, after the prefix, from its place in the grid of files."""

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Chunks of a file along each axis."""
        return (1,) * len(self.shape) if self.shards is None else self.shards.counts

    @cached_property
    def file_grid(self) -> tuple[int, ...]:
        """Files along each axis."""
        if self.edges is not None:
            return tuple(edges.size - 1 for edges in self.edges)
        spans = (chunk * count for chunk, count in zip(self.chunks, self.counts, strict=True))
        return tuple(-(-extent // span) for extent, span in zip(self.shape, spans, strict=True))

    def file_at(self, position: int) -> tuple[int, ...]:
        """Return the place of a file in the grid of files from its number in C order."""
        place = []
        for extent in reversed(self.file_grid):
            position, index = divmod(position, extent)
            place.append(index)
        return tuple(reversed(place))

    def chunk_shape(self, file: tuple[int, ...]) -> tuple[int, ...]:
        """Return the stored shape of a chunk of a file; edge chunks of a regular grid are stored whole."""
        if self.edges is None:
            return self.chunks
        return tuple(int(edges[i + 1] - edges[i]) for edges, i in zip(self.edges, file, strict=True))

    @cached_property
    def fold(self) -> int:
        """The first axis from which on a chunk is one run of the array's values in C order.

        From that axis on, all later axes lie whole and unpadded in every chunk, so the axes can be taken for one; an
        array of which this is 0 is read like a list of values.
        """
        axis = max(len(self.shape) - 1, 0)
        while axis > 0 and self._is_whole(axis):
            axis -= 1
        return axis

    @cached_property
    def folded_grid(self) -> GridNumbers:
        """The numbers of the grid whose last axis stands for all axes from `fold` on."""
        return self._grid(self.fold + 1)

    @cached_property
    def whole_grid(self) -> GridNumbers:
        """The numbers of the grid along all axes."""
        return self._grid(len(self.shape))

    def folded_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a chunk along the axes of the folded grid."""
        return (*shape[: self.fold], math.prod(shape[self.fold :]))

    def _grid(self, axes: int) -> GridNumbers:
        # An array without axes is one value in one chunk.
        counts, files = (list(extents[:axes]) or [1] for extents in (self.counts, self.file_grid))
        in_file = math.prod(counts)
        strides = [stride * in_file for stride in strides_of(files)]
        chunk = self.folded_shape(self.chunks) if axes <= self.fold + 1 else self.chunks
        return list(chunk), counts, strides, strides_of(counts)

    def _is_whole(self, axis: int) -> bool:
        return self.edges is None and self.chunks[axis] == self.shape[axis] and self.counts[axis] == 1


def strides_of(extents: Sequence[int]) -> list[int]:
    """Return by how much a number in C order grows along each axis."""
    return [math.prod(extents[axis + 1 :]) for axis in range(len(extents))]
