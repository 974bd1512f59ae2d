"""The bytes that a question cannot do without, found without our own reader: by pyarrow, and in indexes of shards.

What is needed of the Parquet layout are the column chunks of the row groups that hold the rows; of the Zarr layout the
inner chunks. Footers, offsets and indexes of shards are not counted: they are read once.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import zarr
from numpy.typing import NDArray

type Spans = Sequence[tuple[int, int]]
"""Half-open runs of row groups, or of inner chunks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """Level 0 of an element that has both layouts."""

    element: Path

    def of_tiles(self, layout: str, tiles: NDArray[np.int64], columns: Sequence[str]) -> int:
        """Return the bytes of tiles: each is a row group, or a chunk of each array."""
        spans = [(int(tile), int(tile) + 1) for tile in tiles]
        if layout == "parquet":
            return Parts(folder=self.element / "points.parquet").n_bytes(spans, columns)
        return sum(chunk_bytes(self.element / "0" / "spatial" / column, spans) for column in columns)

    def of_rows(self, layout: str, start: int, end: int, columns: Sequence[str]) -> int:
        """Return the bytes of a run of rows of the feature-major copy."""
        if layout == "parquet":
            parts = Parts(folder=self.element / "feature" / "0" / "points.parquet")
            first, last = np.searchsorted(parts.first_rows, [start, end - 1], side="right")
            return parts.n_bytes([(int(first) - 1, int(last))], columns)
        folder = self.element / "0" / "feature"
        size = zarr.open_array(folder / columns[0], mode="r").chunks[0]
        return sum(chunk_bytes(folder / column, [(start // size, -(-end // size))]) for column in columns)


class Parts:
    """The part files of one copy.

    Args:
        folder: Where they lie.

    """

    def __init__(self, *, folder: Path) -> None:
        paths = sorted(folder.glob("*.parquet"), key=lambda path: int(path.name.split(".")[1]))
        self._footers = [pq.read_metadata(path) for path in paths]

    @cached_property
    def first_rows(self) -> NDArray[np.int64]:
        """First row of each row group, shape (n,), int64."""
        rows = [footer.row_group(group).num_rows for footer in self._footers for group in range(footer.num_row_groups)]
        return np.concatenate([[0], np.cumsum(rows)[:-1]]).astype(np.int64)

    def n_bytes(self, spans: Spans, columns: Sequence[str]) -> int:
        """Return the bytes of some column chunks of row groups, numbered through all parts."""
        groups = [(footer, group) for footer in self._footers for group in range(footer.num_row_groups)]
        total = 0
        for footer, number in (groups[at] for start, end in spans for at in range(start, end)):
            group = footer.row_group(number)
            chunks = (group.column(at) for at in range(group.num_columns))
            total += sum(chunk.total_compressed_size for chunk in chunks if chunk.path_in_schema in columns)
        return total


def chunk_bytes(folder: Path, spans: Spans) -> int:
    """Return the bytes of inner chunks of a sharded 1-D array whose indexes stand at the end of the shards."""
    document = json.loads((folder / "zarr.json").read_text())
    (shard,) = document["chunk_grid"]["configuration"]["chunk_shape"]
    (chunk,) = document["codecs"][0]["configuration"]["chunk_shape"]
    per_shard = shard // chunk
    total = 0
    for at in (number for start, end in spans for number in range(start, end)):
        file = folder / "c" / str(at // per_shard)
        if not file.exists():
            continue
        # an offset and a length for each chunk, 2**64 - 1 where there is none, and a checksum of 4 bytes
        index = np.frombuffer(file.read_bytes()[-16 * per_shard - 4 : -4], "<u8").reshape(-1, 2)
        _, length = index[at % per_shard]
        total += 0 if length == np.iinfo(np.uint64).max else int(length)
    return total
