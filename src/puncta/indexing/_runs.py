"""Rows on disk, cut by a key: each run is sorted by its key, and one key's rows are gathered from all runs.

This is the external sort that everything rests on: source rows by bucket of tiles, tile-ordered rows by feature, and
the rows of one level by bucket of the next. Runs are mapped into memory, so gathering copies nothing.
"""

import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from puncta.indexing._order import stable_order
from puncta.indexing._stage import read_batch, write_batch
from puncta.points._arrow import arrow_of


class Runs:
    """A set of runs with keys from 0 to `n_keys - 1`.

    Runs are numbered by whoever writes them, in any order and from any thread; rows of one key are gathered in the
    order of these numbers, so the result does not depend on how the work was shared out.
    """

    def __init__(self, folder: Path, n_keys: int, n_runs: int) -> None:
        """Start without rows; the folder is made, and holds one file a run."""
        folder.mkdir(parents=True)
        self.folder = folder
        self.n_keys = n_keys
        self._offsets: list[NDArray[np.int64] | None] = [None] * n_runs
        self._mapped: dict[int, pa.Table] = {}
        self._lock = threading.Lock()
        self.counts = np.zeros(n_keys, dtype=np.int64)
        """Rows of each key in all runs, shape (n_keys,)."""

    def write(self, number: int, rows: pa.RecordBatch | pa.Table, keys: NDArray[np.unsignedinteger]) -> None:
        """Write one run: the rows sorted by their keys, ties in the order they came in.

        Args:
            number: Number of the run.
            rows: Rows of the run.
            keys: Key of each row, shape (n,), below `n_keys`.

        """
        counts = np.bincount(keys, minlength=self.n_keys)
        if rows.num_rows:
            write_batch(self._path(number), rows.take(arrow_of(stable_order(keys))))
        with self._lock:
            self.counts += counts
            self._offsets[number] = np.concatenate([[0], np.cumsum(counts)])

    def gather(self, first: int, end: int) -> pa.Table | None:
        """Return the rows with keys in [first, end), run after run, or None where there are none.

        Within one run the rows are sorted by key. Nothing is copied: the table's chunks lie in the mapped files.
        """
        pieces = []
        for number, offsets in enumerate(self._offsets):
            if offsets is not None and offsets[end] > offsets[first]:
                pieces.append(self._map(number).slice(int(offsets[first]), int(offsets[end] - offsets[first])))
        return pa.concat_tables(pieces) if pieces else None

    def remove(self) -> None:
        """Delete the runs from disk."""
        self._mapped.clear()
        for path in self.folder.iterdir():
            path.unlink()
        self.folder.rmdir()

    def _path(self, number: int) -> Path:
        return self.folder / f"{number}.arrow"

    def _map(self, number: int) -> pa.Table:
        with self._lock:
            if number not in self._mapped:
                self._mapped[number] = pa.Table.from_batches([read_batch(self._path(number))])
            return self._mapped[number]
