"""Where the rows of each feature lie in a feature-major copy; what is not asked for is not read (P31)."""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from puncta.points._element import Element
from puncta.points._plan import tiles_among

__all__ = ["FeatureRows", "Pairs"]

# The pairs of 200 million points take hundreds of megabytes. They are read in blocks as long as a chunk is stored, and
# the last ones are kept: 24 MiB, which is all of them up to some ten million points.
_BLOCK = 2**17
_KEPT = 16

type Block = tuple[NDArray[np.uint32], NDArray[np.int64]]


class Pairs:
    """The non-empty tiles of all features and where each begins, read block by block; for use from many threads.

    Args:
        element: What they are of.
        group: Where its arrays `tiles` and `starts` are, below the element.
        count: Number of pairs.

    """

    def __init__(self, element: Element, group: str, *, count: int) -> None:
        self._element = element
        self._paths = (f"{group}/tiles", f"{group}/starts")
        self._count = count
        self._blocks: OrderedDict[int, Block] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._count

    def between(self, bounds: Sequence[tuple[int, int]]) -> Iterator[Block]:
        """Yield tiles and starts of ranges of pairs; blocks that are missing are read as one plan, 16 at a time.

        Args:
            bounds: First and end of each range, the ranges ascending.

        """
        waiting: list[tuple[int, int]] = []
        numbers: set[int] = set()
        for first, end in bounds:
            more = set(range(first // _BLOCK, -(-end // _BLOCK)))
            if waiting and len(numbers | more) > _KEPT:
                yield from self._cut(waiting, numbers)
                waiting, numbers = [], set()
            waiting.append((first, end))
            numbers |= more
        yield from self._cut(waiting, numbers)

    def _cut(self, bounds: Sequence[tuple[int, int]], numbers: set[int]) -> Iterator[Block]:
        blocks = self._loaded(sorted(numbers))
        for first, end in bounds:
            inside = range(first // _BLOCK, -(-end // _BLOCK))
            parts = [_part(blocks[number], number * _BLOCK, first, end) for number in inside]
            if len(parts) == 1:
                yield parts[0]
            else:
                yield (
                    np.concatenate([np.zeros(0, np.uint32), *(tiles for tiles, _ in parts)]),
                    np.concatenate([np.zeros(0, np.int64), *(starts for _, starts in parts)]),
                )

    def _loaded(self, numbers: Sequence[int]) -> dict[int, Block]:
        with self._lock:
            found = {number: self._blocks[number] for number in numbers if number in self._blocks}
            for number in found:
                self._blocks.move_to_end(number)
        missing = [number for number in numbers if number not in found]
        if missing:
            fresh = self._read(missing)
            found |= fresh
            with self._lock:
                self._blocks |= fresh
                while len(self._blocks) > _KEPT:
                    self._blocks.popitem(last=False)
        return found

    def _read(self, numbers: Sequence[int]) -> dict[int, Block]:
        starts = np.asarray(numbers, dtype=np.int64) * _BLOCK
        ends = np.minimum(starts + _BLOCK, len(self))
        borders = np.cumsum(ends - starts)[:-1]
        tiles, firsts = (np.split(values, borders) for values in self._element.ranges(self._paths, starts, ends))
        return {
            number: (tile.astype(np.uint32), first.astype(np.int64))
            for number, tile, first in zip(numbers, tiles, firsts, strict=True)
        }


def _part(block: Block, begin: int, first: int, end: int) -> Block:
    inside = slice(max(first - begin, 0), end - begin)
    return block[0][inside], block[1][inside]


class FeatureRows:
    """Where the rows of features lie in one feature-major copy: its offsets and its sparse feature tiles.

    Args:
        offsets: First row of each feature, shape (n_features + 1,).
        indptr: First pair of each feature, shape (n_features + 1,).
        pairs: The pairs of all features.

    """

    def __init__(self, offsets: NDArray[np.int64], indptr: NDArray[np.int64], pairs: Pairs) -> None:
        self.offsets = offsets
        self.indptr = indptr
        self._pairs = pairs

    def rows_in(
        self, features: Sequence[int], tiles: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Yield for each feature the tiles among `tiles` that hold rows of it, and the first and end row in each.

        Args:
            features: Codes of features, ascending.
            tiles: Tile ids, ascending.

        Yields:
            Tile ids, shape (m,); rows, shape (m, 2), half-open.

        """
        bounds = [(int(self.indptr[code]), int(self.indptr[code + 1])) for code in features]
        for code, (own, starts) in zip(features, self._pairs.between(bounds), strict=True):
            at = tiles_among(own.astype(np.int64), tiles)
            ends = np.append(starts[1:], self.offsets[code + 1])
            yield own[at].astype(np.int64), np.stack([starts[at], ends[at]], axis=1)

    def all_pairs(self) -> Block:
        """Return the tile and the first row of every pair; 12 bytes each are held."""
        ((tiles, starts),) = self._pairs.between([(0, len(self._pairs))])
        return tiles, starts
