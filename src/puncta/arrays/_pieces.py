"""Boxes are cut along the borders of chunks: each piece is one box's share of one chunk. Pure: opens nothing.

All boxes of a batch that have the same number of axes are cut at once, whatever array they belong to, so that four
hundred arrays cost little more than one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from puncta.arrays._layout import Integers, Layout, strides_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """Shares of chunks, shape (p, d) each but for `box` and `unit`, in the order of the boxes."""

    box: Integers
    """Which box a piece belongs to, shape (p,)."""

    unit: Integers
    """Which chunk of which array it is cut from, shape (p,): chunks of one file follow each other."""

    source: Integers
    """First value in the chunk."""

    target: Integers
    """First value in the box."""

    size: Integers
    """Extent."""


class Grid(Protocol):
    """Where chunks begin and end along d axes."""

    def chunk_of(self, position: Integers, owner: Integers) -> Integers:
        """Return the chunk that each position lies in, shape (n, d)."""
        ...

    def borders(self, chunk: Integers, owner: Integers) -> tuple[Integers, Integers]:
        """Return the first position of each chunk and the first behind it, shape (n, d) each."""
        ...

    def unit_of(self, chunk: Integers, owner: Integers) -> Integers:
        """Return the number of each chunk, shape (n,)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RegularGrids:
    """The grids of several arrays, each of chunks of one shape; arrays of shape (arrays, d)."""

    chunk: Integers
    """Shape of a chunk."""

    count: Integers
    """Chunks of a file."""

    file_stride: Integers
    """By how much the number of a chunk grows from one file to the next."""

    chunk_stride: Integers
    """By how much it grows from one chunk of a file to the next."""

    first: Integers
    """Number of each array's first chunk, shape (arrays,)."""

    def chunk_of(self, position: Integers, owner: Integers) -> Integers:
        """Return the chunk that each position lies in."""
        return position // self.chunk[owner]

    def borders(self, chunk: Integers, owner: Integers) -> tuple[Integers, Integers]:
        """Return the first position of each chunk and the first behind it."""
        size = self.chunk[owner]
        return chunk * size, (chunk + 1) * size

    def unit_of(self, chunk: Integers, owner: Integers) -> Integers:
        """Return the number of each chunk."""
        count = self.count[owner]
        file, place = chunk // count, chunk % count
        numbers = file * self.file_stride[owner] + place * self.chunk_stride[owner]
        unit: Integers = self.first[owner] + numbers.sum(axis=1)
        return unit


@dataclass(frozen=True, slots=True, kw_only=True)
class IrregularGrid:
    """The grid of one array whose chunks differ in size, each in a file of its own."""

    edges: tuple[Integers, ...]
    """Along each axis the first position of every chunk, then the end of the last."""

    first: int
    """Number of the first chunk."""

    def chunk_of(self, position: Integers, owner: Integers) -> Integers:
        """Return the chunk that each position lies in."""
        del owner
        chunks = [np.searchsorted(edge, position[:, axis], "right") - 1 for axis, edge in enumerate(self.edges)]
        return np.stack(chunks, axis=1).astype(np.int64)

    def borders(self, chunk: Integers, owner: Integers) -> tuple[Integers, Integers]:
        """Return the first position of each chunk and the first behind it."""
        del owner
        start = np.stack([edge[chunk[:, axis]] for axis, edge in enumerate(self.edges)], axis=1)
        end = np.stack([edge[chunk[:, axis] + 1] for axis, edge in enumerate(self.edges)], axis=1)
        return start, end

    def unit_of(self, chunk: Integers, owner: Integers) -> Integers:
        """Return the number of each chunk."""
        del owner
        strides = np.array(strides_of([edge.size - 1 for edge in self.edges]), np.int64)
        unit: Integers = self.first + (chunk * strides).sum(axis=1)
        return unit


def regular_grids(layouts: Sequence[Layout], *, folded: bool, first: Sequence[int]) -> RegularGrids:
    """Return the grids of arrays that have the same number of axes once the axes that may be are folded."""
    rows = [layout.folded_grid if folded else layout.whole_grid for layout in layouts]
    chunk, count, file_stride, chunk_stride = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    return RegularGrids(
        chunk=chunk,
        count=count,
        file_stride=file_stride,
        chunk_stride=chunk_stride,
        first=np.array(first, np.int64),
    )


def cut(low: Integers, high: Integers, grid: Grid, *, owner: Integers) -> Pieces:
    """Cut boxes along the borders of chunks.

    Args:
        low: First corners of boxes of any number of arrays, shape (n, d).
        high: Last corners, exclusive, shape (n, d).
        grid: The grids of these arrays.
        owner: Which of the grids each box belongs to, shape (n,).

    """
    first = grid.chunk_of(low, owner)
    counts = np.where(high > low, grid.chunk_of(high - 1, owner) - first + 1, 0)
    pieces = counts.prod(axis=1)
    box = np.repeat(np.arange(pieces.size), pieces)
    owner = owner[box]
    chunk = first[box] + _places(pieces, counts[box])
    start, end = grid.borders(chunk, owner)
    begin = np.maximum(low[box], start)
    return Pieces(
        box=box,
        unit=grid.unit_of(chunk, owner),
        source=begin - start,
        target=begin - low[box],
        size=np.minimum(high[box], end) - begin,
    )


def _places(pieces: Integers, counts: Integers) -> Integers:
    """Return the place of each piece among the chunks of its box, in C order."""
    number = np.arange(len(counts)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    places = np.empty_like(counts)
    for axis in reversed(range(1, counts.shape[1])):
        number, places[:, axis] = np.divmod(number, counts[:, axis])
    places[:, 0] = number
    return places
