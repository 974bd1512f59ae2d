"""The rows of a group of features, and some of them in another order, with no more in memory than is at work."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from puncta.indexing._order import stable_order
from puncta.points._arrow import arrow_of, numpy_of


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRows:
    """Some rows of a group, in the order of a feature-major copy."""

    table: pa.Table
    """All rows of the group, run after run."""

    order: NDArray[np.integer] | None
    """Positions of the rows in the table; None for all of them as they are."""

    @property
    def n_rows(self) -> int:
        """How many there are."""
        return self.table.num_rows if self.order is None else len(self.order)

    def taken(self, positions: NDArray[np.integer]) -> "GroupRows":
        """Return the rows at some positions."""
        return GroupRows(table=self.table, order=positions if self.order is None else self.order[positions])

    def window(self, start: int, end: int) -> pa.Table:
        """Return the rows from `start` to `end`."""
        if self.order is None:
            return self.table.slice(start, end - start)
        return rows_at(self.table, self.order[start:end])


def rows_at(table: pa.Table, positions: NDArray[np.integer]) -> pa.Table:
    """Return the rows at some positions of a table in many chunks.

    pyarrow joins the chunks of a column before it takes from them, which for a feature of most points would copy all of
    its rows for each window: here each chunk gives its own.

    Args:
        table: Rows, whose columns are cut into the same chunks.
        positions: Positions, shape (n,), below 2**32.

    """
    by_position = stable_order(positions.astype(np.uint32))
    ascending = positions[by_position]
    batches = table.to_batches()
    ends = np.cumsum([batch.num_rows for batch in batches])
    borders = np.concatenate([[0], np.searchsorted(ascending, ends)])
    pieces = [
        batch.take(arrow_of(ascending[first:stop].astype(np.int64) - (end - batch.num_rows)))
        for batch, end, first, stop in _with_rows(batches, ends, borders)
    ]
    back = np.empty(len(positions), dtype=np.int64)
    back[by_position] = np.arange(len(positions))
    return pa.Table.from_batches(pieces, schema=table.schema).take(arrow_of(back))


def _with_rows(
    batches: Sequence[pa.RecordBatch], ends: NDArray[np.int64], borders: NDArray[np.int64]
) -> list[tuple[pa.RecordBatch, int, int, int]]:
    """Return the batches that hold wanted rows, with their ends and the borders of these rows."""
    found = zip(batches, ends.tolist(), borders[:-1].tolist(), borders[1:].tolist(), strict=True)
    return [(batch, end, first, stop) for batch, end, first, stop in found if stop > first]


def on_disk(column: pa.ChunkedArray, folder: Path) -> NDArray[np.uint32]:
    """Return a column of the runs as one array, which takes no memory that the system could not take back."""
    values, at = room_on_disk(len(column), folder), 0
    for chunk in column.chunks:
        values[at : at + len(chunk)] = numpy_of(chunk)
        at += len(chunk)
    return values


def room_on_disk(n_values: int, folder: Path) -> NDArray[np.uint32]:
    """Return room for numbers in a file that is gone when nobody looks at it any more."""
    if not n_values:
        return np.zeros(0, dtype=np.uint32)
    with TemporaryFile(dir=folder) as file:
        file.truncate(n_values * np.dtype(np.uint32).itemsize)
        return np.memmap(file, dtype=np.uint32, mode="r+", shape=(n_values,))
