"""Chunks of a few files that are read together: which bytes they are, and where their values go.

Pure: opens nothing. Local and remote files differ in how bytes come, and in nothing that is here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from puncta.arrays._layout import Integers, Layout
from puncta.arrays._outputs import Outputs
from puncta.arrays._place import ABSENT, Blocks, Runs
from puncta.arrays._plan import Part, Plan, Table
from puncta.errors import StoreError

# Offsets below 16 TiB, and half a million files a share, together fill the bits of a 64-bit integer.
_FILE_BITS = 44

type Item = int | memoryview | tuple[Blocks, int]
"""A chunk of the share; or where the bytes belong as they are; or a piece that is read alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Byte ranges, ascending.

    An address is the number of a file of the share and an offset there, in one number, so that all files of a share
    are sorted and merged at once: no two files are ever near each other.
    """

    starts: Integers
    """Addresses of the first bytes, shape (n,)."""

    ends: Integers
    """Addresses of the ends, exclusive, shape (n,)."""

    items: list[Item]
    """What each is for."""

    absent: list[int]
    """Chunks that are not stored, whose values are the fill value."""

    def only(self, low: int, high: int) -> "Wanted":
        """Return ranges that follow each other, and no absent chunk."""
        some = slice(low, high)
        return Wanted(starts=self.starts[some], ends=self.ends[some], items=self.items[some], absent=[])

    def among(self, numbers: list[int]) -> "Wanted":
        """Return some of the ranges, and no absent chunk."""
        items = [self.items[number] for number in numbers]
        return Wanted(starts=self.starts[numbers], ends=self.ends[numbers], items=items, absent=[])


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A file that is there."""

    size: int
    """Its length in bytes."""

    index: Integers | None
    """Offset and size of each chunk in it, shape (chunks, 2); None where it is one chunk."""


def split_addresses(address: Integers) -> tuple[Integers, Integers]:
    """Return the numbers of files in their share, and the offsets there."""
    return address >> _FILE_BITS, address & ((1 << _FILE_BITS) - 1)


class Share:
    """Knows the bytes of its chunks, takes their values and puts them in their places."""

    def __init__(self, plan: Plan, parts: Sequence[Part], outputs: Outputs) -> None:
        """Take a share of a plan.

        Args:
            plan: Of the batch.
            parts: Chunks of files that follow each other in the plan.
            outputs: What is written to.

        """
        low, high = parts[0].low, parts[-1].high
        self.layouts: list[Layout] = [plan.layouts[part.layout] for part in parts]
        self.places = [layout.file_at(part.file) for layout, part in zip(self.layouts, parts, strict=True)]
        self._bounds = [part.low - low for part in parts] + [high - low]
        self._chunks = plan.place[low:high]
        # Where the chunks of one file end, those of the next begin.
        self._part = np.repeat(np.arange(len(parts)), np.diff(self._bounds))
        self.part_of: list[int] = self._part.tolist()
        tables = [table for table in plan.tables if table.bounds[low] < table.bounds[high]]
        scales = np.array([_scale(layout) for layout in self.layouts], np.int64)[self._part]
        self._runs = [
            Runs(table, low, high, scales=scales, outputs=outputs) for table in tables if table.shape.shape[1] == 1
        ]
        self._blocks = [
            Blocks(table, low, high, shapes=self._shapes(table), outputs=outputs)
            for table in tables
            if table.shape.shape[1] > 1
        ]
        self._pieces: list[Runs | Blocks] = [*self._runs, *self._blocks]

    def keys(self) -> list[str]:
        """Return the names of the files."""
        return [layout.prefix + layout.key_of(place) for layout, place in zip(self.layouts, self.places, strict=True)]

    def layout_of(self, chunk: int) -> Layout:
        """Return which array a chunk is of."""
        return self.layouts[self.part_of[chunk]]

    def locate(self, found: Sequence[Found | None]) -> Wanted:
        """Return the bytes to read, and the chunks that are not stored.

        Args:
            found: Each file of the share; None where it is not there.

        Raises:
            StoreError: If a chunk that is stored as it is has another length than its values, or if a file is not
                there that must be.

        """
        offsets, sizes = np.full(self._chunks.size, ABSENT, np.int64), np.zeros(self._chunks.size, np.int64)
        for part, file in enumerate(found):
            own = slice(self._bounds[part], self._bounds[part + 1])
            if file is None:
                self._require_fill(part)
            elif file.index is None:
                offsets[own], sizes[own] = 0, file.size
            else:
                entries = file.index[self._chunks[own]]
                offsets[own], sizes[own] = entries[:, 0], entries[:, 1]
        stored = offsets != ABSENT
        addresses = np.where(stored, (self._part << _FILE_BITS) + offsets, ABSENT)
        plain = np.array([layout.codecs.is_plain for layout in self.layouts])[self._part]
        whole = self._locate_chunks(np.flatnonzero(stored & ~plain), addresses, sizes)
        whole = replace(whole, absent=np.flatnonzero(~stored).tolist())
        if not plain.any():
            return whole
        self._require_whole(np.flatnonzero(stored & plain), sizes)
        return self._with_pieces(whole, np.where(plain, addresses, ABSENT))

    def fill(self, chunks: Sequence[int]) -> None:
        """Write the fill value for chunks that are not stored."""
        for chunk in chunks:
            value = self.layout_of(chunk).fill
            for pieces in self._pieces:
                pieces.fill(chunk, value)

    def place(self, decoded: Sequence[tuple[Item, Any]]) -> None:
        """Put values in their places.

        Args:
            decoded: What each is for, and the values: of a chunk as `decode` returns them, of all else as read.

        """
        chunks = [(item, values) for item, values in decoded if isinstance(item, int)]
        for runs in self._runs:
            runs.place(chunks)
        if self._blocks:
            self._place_blocks(chunks)
        for item, data in decoded if len(chunks) < len(decoded) else ():
            if isinstance(item, memoryview):
                item[:] = data
            elif not isinstance(item, int):
                blocks, piece = item
                blocks.put(piece, data)

    def _place_blocks(self, chunks: Sequence[tuple[int, Any]]) -> None:
        for chunk, values in chunks:
            layout = self.layout_of(chunk)
            array = np.frombuffer(values, layout.dtype) if layout.codecs.as_bytes else values
            for blocks in self._blocks:
                blocks.place(chunk, array)

    def decode(self, chunk: int, data: memoryview) -> Any:  # noqa: ANN401 (a memory view or an array)
        """Return the values of a chunk as `place` takes them.

        Raises:
            StoreError: If the chunk is damaged; the message names array, chunk and file.

        """
        part = self.part_of[chunk]
        layout = self.layouts[part]
        try:
            if layout.codecs.as_bytes:
                return memoryview(layout.codecs.decode_bytes(data))
            return layout.codecs.decode_array(data, layout.chunk_shape(self.places[part])).reshape(-1)
        except StoreError as error:
            raise StoreError(f"{self._name(chunk)} is damaged: {error}; restore the file from a copy") from error

    def _locate_chunks(self, chunks: Integers, addresses: Integers, sizes: Integers) -> Wanted:
        starts = addresses[chunks]
        order = np.argsort(starts, kind="stable")
        chunks, starts = chunks[order], starts[order]
        return Wanted(starts=starts, ends=starts + sizes[chunks], items=[*chunks.tolist()], absent=[])

    def _with_pieces(self, whole: Wanted, addresses: Integers) -> Wanted:
        """Add the pieces of chunks that are stored as their values are, of which no more need be read."""
        found = [(whole.starts, whole.ends, whole.items)]
        found += [pieces.alone(addresses) for pieces in self._pieces]
        starts = np.concatenate([starts for starts, _, _ in found])
        order = np.argsort(starts, kind="stable")
        items = [item for _, _, some in found for item in some]
        return Wanted(
            starts=starts[order],
            ends=np.concatenate([ends for _, ends, _ in found])[order],
            items=[items[place] for place in order.tolist()],
            absent=whole.absent,
        )

    def _require_whole(self, chunks: Integers, sizes: Integers) -> None:
        expected = np.array([layout.codecs.size for layout in self.layouts], np.int64)[self._part[chunks]]
        wrong = np.flatnonzero(sizes[chunks] != expected)
        if wrong.size:
            first = int(wrong[0])
            chunk = int(chunks[first])
            raise StoreError(
                f"{self._name(chunk)} is damaged: it has {sizes[chunk]} bytes, and a chunk has {expected[first]} "
                f"({wrong.size} such were met); restore the file from a copy"
            )

    def _require_fill(self, part: int) -> None:
        layout = self.layouts[part]
        if not layout.fills:
            raise StoreError(
                f"{self.keys()[part]} of {layout.name} is not there, and the array was opened with "
                "read_missing_chunks=False; restore the file, or open the array without that"
            )

    def _shapes(self, table: Table) -> list[tuple[int, ...]]:
        """Return the shape of each chunk along the axes of a table's pieces."""
        shapes = [
            layout.folded_shape(layout.chunk_shape(place)) if table.folded else layout.chunk_shape(place)
            for layout, place in zip(self.layouts, self.places, strict=True)
        ]
        return [shapes[part] for part in self.part_of]

    def _name(self, chunk: int) -> str:
        part = self.part_of[chunk]
        layout, file = self.layouts[part], self.places[part]
        inner = np.unravel_index(int(self._chunks[chunk]), layout.counts) if layout.counts else ()
        place = tuple(at * n + int(within) for at, n, within in zip(file, layout.counts, inner, strict=True))
        return f"chunk {place} of {layout.name} (in {self.keys()[part]})"


def _scale(layout: Layout) -> int:
    return layout.dtype.itemsize if layout.codecs.as_bytes else 1
