"""A batch of requests becomes one plan: which chunks of which files, and which piece of each goes where.

Pure: opens nothing. Every chunk stands in the plan once, however many ranges and boxes ask for it.
"""

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from puncta.arrays._layout import Integers, Layout, strides_of
from puncta.arrays._pieces import Grid, IrregularGrid, Pieces, cut, regular_grids
from puncta.arrays._requests import Boxes, BoxRequest, RangeRequest
from puncta.errors import UnsupportedError

type Request = RangeRequest | BoxRequest

# What a chunk of objects, a run that is read on its own, and another file to open are taken to weigh. The last also
# bounds how many files are open at once.
_WEIGHT_OF_OBJECTS = 64 << 10
_WEIGHT_OF_RUN = 1 << 10
_WEIGHT_OF_FILE = 32 << 10

# No chunk weighs more than a share can, and sums of weights stay numbers of 64 bits.
_MOST = 1 << 30

LARGE = 64 << 10
"""Chunks above so many bytes are decoded one by one, and copied while they are in the processor's cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The pieces of all boxes with as many axes, in the order of their chunks."""

    pieces: Pieces
    """The pieces."""

    folded: bool
    """Whether the last axis of each stands for all later axes of its array."""

    bounds: Integers
    """Where the pieces of each chunk of the plan begin, then their number, shape (chunks + 1,)."""

    shape: Integers
    """Extents of each box, shape (boxes, d)."""

    output: Integers
    """Which output each box goes to, shape (boxes,)."""

    offset: Integers
    """Where in the output, taken as a list of values, the box begins, shape (boxes,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Chunks of one file."""

    layout: int
    """Which of the plan's layouts."""

    file: int
    """Number of the file in the grid of files, in C order."""

    low: int
    """First of its chunks in the plan."""

    high: int
    """End of its chunks in the plan, exclusive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that a batch needs, and in which order."""

    layouts: list[Layout]
    """The arrays, each once."""

    first_request: list[int]
    """For each array, a request that asks it."""

    layout: Integers
    """Array of each chunk, shape (chunks,)."""

    file: Integers
    """File of each chunk, by its number in the array's grid of files, shape (chunks,)."""

    place: Integers
    """Place of each chunk in its file, in C order, shape (chunks,)."""

    tables: list[Table]
    """The pieces."""

    def shares(self, weight: int) -> Iterator[list[Part]]:
        """Yield the files with their chunks, in order; together of a weight in bytes and not much more.

        A file with many chunks is divided among several shares; `weight` 0 keeps every file whole and alone.
        """
        if self.layout.size == 0:
            return
        new_file = (np.diff(self.layout) != 0) | (np.diff(self.file) != 0)
        files = np.append(True, new_file)
        weights = np.array([_weight(layout) for layout in self.layouts], np.int64)[self.layout]
        share = np.cumsum(weights + files * _WEIGHT_OF_FILE) // weight if weight else np.cumsum(files)
        lows = np.flatnonzero(np.append(True, new_file | (np.diff(share) != 0)))
        columns = (self.layout[lows], self.file[lows], lows, np.append(lows[1:], self.layout.size))
        rows = zip(*(column.tolist() for column in columns), strict=True)
        parts = [Part(layout=layout, file=file, low=low, high=high) for layout, file, low, high in rows]
        ends = [*(np.flatnonzero(np.diff(share[lows])) + 1).tolist(), len(parts)]
        yield from (parts[low:high] for low, high in zip([0, *ends[:-1]], ends, strict=True))


def _weight(layout: Layout) -> int:
    if layout.codecs.is_plain and layout.fold == 0:
        return _WEIGHT_OF_RUN
    size = min(layout.codecs.size or _WEIGHT_OF_OBJECTS, _MOST)
    # Of large chunks the decoded bytes are never there all at once, only the compressed ones.
    return size if size <= LARGE else size // 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request, checked, and where its answer goes."""

    layout: Layout
    """Of the array."""

    source: Hashable
    """Equal for two requests of the same stored array."""

    boxes: Boxes
    """What is asked."""

    output: Integers
    """Which output each box goes to, shape (n,)."""

    offset: Integers
    """Where in the output, taken as a list of values, the box begins, shape (n,)."""


def plan_batch(asked: Sequence[Asked]) -> Plan:
    """Return the plan of a batch.

    Raises:
        UnsupportedError: If the arrays have more chunks together than a 64-bit number counts.

    """
    layouts, number, first_request = _distinct(asked)
    firsts = _first_units(layouts)
    _require_countable(layouts)
    cuts = [_cut(group, firsts, number) for group in _groups(asked)]
    units = np.unique(np.concatenate([pieces.unit for _, pieces in cuts] or [np.zeros(0, np.int64)]))
    layout = np.searchsorted(firsts[1:], units, "right")
    in_file = np.array([math.prod(one.counts) for one in layouts], np.int64)[layout]
    file, place = np.divmod(units - firsts[layout], in_file)
    tables = [table for group, pieces in cuts for table in _tables(group, pieces, units)]
    return Plan(layouts=layouts, first_request=first_request, layout=layout, file=file, place=place, tables=tables)


type _Group = list[tuple[int, Asked]]


def _distinct(asked: Sequence[Asked]) -> tuple[list[Layout], list[int], list[int]]:
    """Return the different arrays, which of them each request asks, and a request for each of them."""
    first: dict[object, int] = {}
    for position, request in enumerate(asked):
        first.setdefault(request.source, position)
    numbers = {source: number for number, source in enumerate(first)}
    number = [numbers[request.source] for request in asked]
    return [asked[position].layout for position in first.values()], number, list(first.values())


def _first_units(layouts: Sequence[Layout]) -> Integers:
    counts = [math.prod(layout.file_grid) * math.prod(layout.counts) for layout in layouts]
    if sum(counts) > np.iinfo(np.int64).max:
        most = layouts[counts.index(max(counts))]
        raise UnsupportedError(f"{most.name} has {max(counts)} chunks, more than can be numbered; read it with zarr")
    return np.concatenate([[0], np.cumsum(np.array(counts, np.int64))]).astype(np.int64)


def _require_countable(layouts: Sequence[Layout]) -> None:
    for layout in layouts:
        most = max(math.prod(layout.chunks), math.prod(layout.shape))
        if most > np.iinfo(np.int64).max:
            raise UnsupportedError(f"{layout.name} has {most} values in a chunk or in all, too many; read it with zarr")


def _groups(asked: Sequence[Asked]) -> list[_Group]:
    """Return the requests that can be cut together: as many axes, folded alike; an irregular grid goes alone."""
    groups: dict[tuple[int, int, bool], _Group] = {}
    for position, request in enumerate(asked):
        alone = position if request.layout.edges is not None else -1
        kind = (alone, request.boxes.low.shape[1], request.boxes.folded)
        groups.setdefault(kind, []).append((position, request))
    return list(groups.values())


def _cut(group: _Group, firsts: Integers, number: Sequence[int]) -> tuple[_Group, Pieces]:
    owner = np.repeat(np.arange(len(group)), [len(request.boxes.low) for _, request in group])
    low = np.concatenate([request.boxes.low for _, request in group])
    high = np.concatenate([request.boxes.high for _, request in group])
    return group, cut(low, high, _grid(group, firsts, number), owner=owner)


def _grid(group: _Group, firsts: Integers, number: Sequence[int]) -> Grid:
    position, request = group[0]
    if request.layout.edges is not None:
        return IrregularGrid(edges=request.layout.edges, first=int(firsts[number[position]]))
    return regular_grids(
        [request.layout for _, request in group],
        folded=request.boxes.folded,
        first=[int(firsts[number[position]]) for position, _ in group],
    )


def _tables(group: _Group, pieces: Pieces, units: Integers) -> list[Table]:
    """Return the pieces by chunk; those that are one run of values, in chunk and box alike, as pieces of one axis."""
    requests = [request for _, request in group]
    shape = np.concatenate([request.boxes.high - request.boxes.low for request in requests])
    output = np.concatenate([request.output for request in requests])
    offset = np.concatenate([request.offset for request in requests])
    folded = requests[0].boxes.folded
    are_runs = (pieces.size[:, :-1] == 1).all(axis=1)
    if pieces.size.shape[1] == 1 or requests[0].layout.edges is not None or not are_runs.any():
        return [_table(pieces, units, folded=folded, shape=shape, output=output, offset=offset)]
    chunks = np.array([_chunk_strides(request.layout, folded=folded) for request in requests], np.int64)
    owner = np.repeat(np.arange(len(requests)), [len(request.boxes.low) for request in requests])
    runs, blocks = _some(pieces, are_runs), _some(pieces, ~are_runs)
    flat = Pieces(
        box=runs.box,
        unit=runs.unit,
        source=(runs.source * chunks[owner[runs.box]]).sum(axis=1, keepdims=True),
        target=(runs.target * _strides(shape)[runs.box]).sum(axis=1, keepdims=True),
        size=runs.size[:, -1:],
    )
    sizes = shape.prod(axis=1)[:, None]
    tables = [_table(flat, units, folded=True, shape=sizes, output=output, offset=offset)]
    if not are_runs.all():
        tables.append(_table(blocks, units, folded=folded, shape=shape, output=output, offset=offset))
    return tables


def _table(
    pieces: Pieces, units: Integers, *, folded: bool, shape: Integers, output: Integers, offset: Integers
) -> Table:
    ordered = _some(pieces, np.argsort(pieces.unit, kind="stable"))
    bounds = np.append(np.searchsorted(ordered.unit, units), ordered.unit.size)
    return Table(pieces=ordered, folded=folded, bounds=bounds, shape=shape, output=output, offset=offset)


def _some(pieces: Pieces, which: NDArray[Any]) -> Pieces:
    return Pieces(
        box=pieces.box[which],
        unit=pieces.unit[which],
        source=pieces.source[which],
        target=pieces.target[which],
        size=pieces.size[which],
    )


def _chunk_strides(layout: Layout, *, folded: bool) -> list[int]:
    return strides_of(layout.folded_shape(layout.chunks) if folded else layout.chunks)


def _strides(shapes: Integers) -> Integers:
    """Return by how much a number in C order grows along each axis of each box."""
    behind = np.cumprod(shapes[:, :0:-1], axis=1)[:, ::-1]
    return np.concatenate([behind, np.ones((len(shapes), 1), np.int64)], axis=1)
