"""The values of a chunk are put in their places: runs of values in lists, blocks in crops. Pure: opens nothing."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from puncta.arrays._decode import Bytes
from puncta.arrays._layout import Integers, strides_of
from puncta.arrays._outputs import Outputs
from puncta.arrays._plan import Table

# Runs of fewer values than this, on average, are copied by index where a chunk holds so many of them. Measured, a slice
# costs as much as some forty indices, and to copy by index at all as much as some four slices; these leave a margin.
_SHORT = 32
_MANY = 6

ABSENT = -1
"""What stands for the offset of a chunk that is not stored."""


class Runs:
    """Pieces that are one run of values, in the chunk as in the output.

    Long ones are copied as bytes through memory views, which takes a third of the time of slicing NumPy arrays; of many
    short ones, all that a chunk holds are copied at once, value by value.
    """

    def __init__(self, table: Table, low: int, high: int, *, scales: Integers, outputs: Outputs) -> None:
        """Take the pieces of some chunks out of a table.

        Args:
            table: Pieces of one axis.
            low: First of the chunks, in the plan.
            high: End of the chunks, exclusive.
            scales: How many places of its sink a value of each chunk takes, shape (high - low,).
            outputs: What is written to.

        """
        pieces, bounds = table.pieces, table.bounds[low : high + 1]
        taken = slice(int(bounds[0]), int(bounds[-1]))
        box, scale = pieces.box[taken], np.repeat(scales, np.diff(bounds))
        source, size = pieces.source[taken, 0], pieces.size[taken, 0]
        target = table.offset[box] + pieces.target[taken, 0]
        self._outputs = outputs
        self._bounds: list[int] = (bounds - bounds[0]).tolist()
        self._output = table.output[box]
        self._target, self._source, self._size = target * scale, source * scale, size * scale
        self._indices: _Indices | None = None
        self._rows: list[tuple[int, int, int, int, int]] = []
        are_short = size.size > _MANY * (high - low) and size.mean() < _SHORT
        if are_short and _have_one_output(self._output, self._bounds):
            self._indices = _indices(source, target, size, bounds - bounds[0])
        else:
            columns = (self._output, self._target, self._target + self._size, self._source, self._source + self._size)
            self._rows = list(zip(*(column.tolist() for column in columns), strict=True))

    def place(self, chunks: Sequence[tuple[int, Any]]) -> None:
        """Copy the pieces of chunks, each given by its number and its values."""
        if self._indices is not None:
            self._place_values(chunks, self._indices)
            return
        sinks, rows, bounds = self._outputs.sinks, self._rows, self._bounds
        for chunk, values in chunks:
            for output, begin, end, first, last in rows[bounds[chunk] : bounds[chunk + 1]]:
                sinks[output][begin:end] = values[first:last]

    def _place_values(self, chunks: Sequence[tuple[int, Any]], indices: "_Indices") -> None:
        source, target, bounds = indices
        for chunk, values in chunks:
            begin, end = bounds[chunk], bounds[chunk + 1]
            if begin < end:
                array = self._array(chunk)
                array[target[begin:end]] = (
                    values if isinstance(values, np.ndarray) else np.frombuffer(values, array.dtype)
                )[source[begin:end]]

    def fill(self, chunk: int, value: Any) -> None:  # noqa: ANN401 (a scalar)
        """Write the fill value where the pieces of an absent chunk belong."""
        if self._indices is not None:
            _, target, bounds = self._indices
            if bounds[chunk] < bounds[chunk + 1]:
                self._array(chunk)[target[bounds[chunk] : bounds[chunk + 1]]] = value
            return
        for output, begin, end, _, _ in self._rows[self._bounds[chunk] : self._bounds[chunk + 1]]:
            array = self._outputs.values[output]
            scale = array.itemsize if isinstance(self._outputs.sinks[output], memoryview) else 1
            array[begin // scale : end // scale] = value

    def _array(self, chunk: int) -> NDArray[Any]:
        return self._outputs.values[int(self._output[self._bounds[chunk]])]

    def alone(self, addresses: Integers) -> tuple[Integers, Integers, list[Any]]:
        """Return which bytes to read, and into what; pieces that follow each other in both are one read.

        Args:
            addresses: First byte of each chunk, shape (chunks,); `ABSENT` for those to leave out.

        """
        address = np.repeat(addresses, np.diff(self._bounds))
        start = address + self._source
        stored = np.flatnonzero(address != ABSENT)
        order = stored[np.argsort(start[stored], kind="stable")]
        start, size, target, output = start[order], self._size[order], self._target[order], self._output[order]
        follows = (np.diff(start) == size[:-1]) & (np.diff(target) == size[:-1]) & (np.diff(output) == 0)
        firsts = np.flatnonzero(np.append(True, ~follows)[: start.size])
        lasts = np.append(firsts, start.size)[1:] - 1
        rows = zip(output[firsts].tolist(), target[firsts].tolist(), (target + size)[lasts].tolist(), strict=True)
        sinks = self._outputs.sinks
        return start[firsts], (start + size)[lasts], [sinks[which][begin:end] for which, begin, end in rows]


type _Indices = tuple[Integers, Integers, list[int]]
"""Of every value its place in the chunk and in the output, and where the values of each chunk begin and end."""


def _indices(source: Integers, target: Integers, size: Integers, bounds: Integers) -> _Indices:
    ends = np.append(0, np.cumsum(size))
    number = np.arange(ends[-1])
    before = ends[:-1]
    return (
        number + np.repeat(source - before, size),
        number + np.repeat(target - before, size),
        ends[bounds].tolist(),
    )


def _have_one_output(output: Integers, bounds: list[int]) -> bool:
    """Return whether all pieces of a chunk go to the same output."""
    return set((np.flatnonzero(np.diff(output)) + 1).tolist()) <= set(bounds)


class Blocks:
    """Pieces of several axes."""

    def __init__(self, table: Table, low: int, high: int, *, shapes: list[tuple[int, ...]], outputs: Outputs) -> None:
        """Take the pieces of some chunks out of a table.

        Args:
            table: Pieces of several axes.
            low: First of the chunks, in the plan.
            high: End of the chunks, exclusive.
            shapes: Shape of each chunk along the axes of the pieces.
            outputs: What is written to.

        """
        pieces, bounds = table.pieces, table.bounds[low : high + 1]
        taken = slice(int(bounds[0]), int(bounds[-1]))
        box = pieces.box[taken]
        self._outputs = outputs
        self._shapes = shapes
        self._bounds = (bounds - bounds[0]).tolist()
        self._chunk = np.repeat(np.arange(high - low), np.diff(bounds))
        columns = (table.output[box], table.offset[box], table.shape[box], pieces.target[taken])
        self._targets = list(zip(*(column.tolist() for column in columns), strict=True))
        self._sources, self._sizes = pieces.source[taken].tolist(), pieces.size[taken].tolist()

    def place(self, chunk: int, values: NDArray[Any]) -> None:
        """Copy the pieces of one chunk, whose values come as a list."""
        shaped: NDArray[Any] | None = None
        for piece in range(self._bounds[chunk], self._bounds[chunk + 1]):
            shaped = values.reshape(self._shapes[chunk]) if shaped is None else shaped
            self._target(piece)[...] = shaped[_slices(self._sources[piece], self._sizes[piece])]

    def fill(self, chunk: int, value: Any) -> None:  # noqa: ANN401 (a scalar)
        """Write the fill value where the pieces of an absent chunk belong."""
        for piece in range(self._bounds[chunk], self._bounds[chunk + 1]):
            self._target(piece)[...] = value

    def alone(self, addresses: Integers) -> tuple[Integers, Integers, list[Any]]:
        """Return which bytes to read, from the first value of each piece to its last, and the pieces.

        Args:
            addresses: First byte of each chunk, shape (chunks,); `ABSENT` for those to leave out.

        """
        stored = np.flatnonzero(addresses[self._chunk] != ABSENT).tolist()
        spans = np.array([self._span(piece) for piece in stored], np.int64).reshape(-1, 2)
        spans += addresses[self._chunk[stored]][:, None]
        return spans[:, 0], spans[:, 1], [(self, piece) for piece in stored]

    def put(self, piece: int, data: Bytes) -> None:
        """Copy a piece that was read alone, from its first value to its last."""
        dtype = self._outputs.values[self._targets[piece][0]].dtype
        strides = _strides(self._shapes[self._chunk[piece]], dtype.itemsize)
        self._target(piece)[...] = np.ndarray(self._sizes[piece], dtype, buffer=data, strides=strides)

    def _span(self, piece: int) -> tuple[int, int]:
        itemsize = self._outputs.values[self._targets[piece][0]].itemsize
        strides = _strides(self._shapes[self._chunk[piece]], itemsize)
        source, size = self._sources[piece], self._sizes[piece]
        first = sum(at * stride for at, stride in zip(source, strides, strict=True))
        return first, first + sum((n - 1) * stride for n, stride in zip(size, strides, strict=True)) + itemsize

    def _target(self, piece: int) -> NDArray[Any]:
        output, offset, shape, target = self._targets[piece]
        box = self._outputs.values[output][offset : offset + math.prod(shape)].reshape(shape)
        view: NDArray[Any] = box[_slices(target, self._sizes[piece])]
        return view


def _slices(first: list[int], size: list[int]) -> tuple[slice, ...]:
    return tuple([slice(start, start + extent) for start, extent in zip(first, size, strict=True)])


def _strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    return tuple(stride * itemsize for stride in strides_of(shape))
