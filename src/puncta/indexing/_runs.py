"""Rows on disk, cut by a key: each run is sorted by its key, and one key's rows are gathered from all runs.

This is the external sort that everything rests on: source rows by bucket of tiles, tile-ordered rows by feature, and
the rows of one level by bucket of the next. Runs are mapped into memory, so gathering copies nothing. Who writes or
gathers runs knows their folder alone; where each key begins in each run is known to whoever plans the work.
"""

import shutil
import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from puncta.indexing._arrow_files import read_batch, write_batch
from puncta.indexing._order import stable_order
from puncta.points._arrow import arrow_of

type Spans = NDArray[np.int64]
"""Rows to gather: run, first row and end of each stretch, shape (m, 3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFiles:
    """A folder of runs, as those see it who write them and read them."""

    folder: Path
    """The folder; it is there."""

    n_keys: int
    """Keys are from 0 to `n_keys - 1`."""

    def write(
        self, number: int, rows: pa.RecordBatch | pa.Table, keys: NDArray[np.unsignedinteger]
    ) -> NDArray[np.int64]:
        """Write one run: the rows sorted by their keys, ties in the order they came in.

        Args:
            number: Number of the run.
            rows: Rows of the run.
            keys: Key of each row, shape (n,), below `n_keys`.

        Returns:
            First row of each key, then the number of rows, shape (n_keys + 1,).

        """
        counts = np.bincount(keys, minlength=self.n_keys)
        if rows.num_rows:
            write_batch(self._path(number), rows.take(arrow_of(stable_order(keys))))
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    def lay(self, number: int, rows: pa.Table) -> None:
        """Write one run of a single key."""
        write_batch(self._path(number), rows)

    def gather(self, spans: Spans) -> pa.Table | None:
        """Return the rows of some spans, one after the other, or None where there are none.

        Nothing is copied: the table's chunks lie in the mapped files.
        """
        pieces = [_MAPS.table(self._path(run)).slice(start, end - start) for run, start, end in spans.tolist()]
        return pa.concat_tables(pieces) if pieces else None

    def _path(self, number: int) -> Path:
        return self.folder / f"{number}.arrow"


class Runs:
    """A set of runs, as the one sees it who plans: which rows of which run have a key.

    Runs are numbered by whoever writes them, in any order; rows of one key are gathered in the order of these numbers,
    so the result does not depend on how the work was shared out.
    """

    def __init__(self, folder: Path, n_keys: int) -> None:
        """Start without rows; the folder is made."""
        folder.mkdir(parents=True, exist_ok=True)
        self.files = RunFiles(folder=folder, n_keys=n_keys)
        """The runs, for those who write and read them."""
        self.counts = np.zeros(n_keys, dtype=np.int64)
        """Rows of each key in all runs, shape (n_keys,)."""
        self._offsets: dict[int, NDArray[np.int64]] = {}

    @property
    def n_features(self) -> int:
        """Keys but the last, where these are features and the last one stands for none."""
        return len(self.counts) - 1

    def add(self, number: int, offsets: NDArray[np.int64]) -> None:
        """Take note of a run that was written, as `RunFiles.write` returned it."""
        self.counts += np.diff(offsets)
        self._offsets[number] = offsets

    def spans(self, first: int, end: int) -> Spans:
        """Return the rows with keys in [first, end), run after run; within one run they are sorted by key."""
        found = [
            (number, int(offsets[first]), int(offsets[end]))
            for number, offsets in sorted(self._offsets.items())
            if offsets[end] > offsets[first]
        ]
        return np.asarray(found, dtype=np.int64).reshape(-1, 3)

    def remove(self) -> None:
        """Delete the runs from disk."""
        _MAPS.forget(self.files.folder)
        # may be gone already, where a build goes on
        shutil.rmtree(self.files.folder, ignore_errors=True)


# Each map is an entry in a table of the system's, which has some ten thousands of them for a process.
_MAX_MAPS = 4_096


class _Maps:
    """The runs that this process has mapped: to open one costs as much as to sort some thousand rows."""

    def __init__(self) -> None:
        self._tables: OrderedDict[Path, pa.Table] = OrderedDict()
        self._lock = threading.Lock()

    def table(self, path: Path) -> pa.Table:
        """Return the rows of a run."""
        with self._lock:
            table = self._tables.get(path)
            if table is None:
                table = self._tables[path] = pa.Table.from_batches([read_batch(path)])
                if len(self._tables) > _MAX_MAPS:
                    self._tables.popitem(last=False)
            self._tables.move_to_end(path)
            return table

    def forget(self, folder: Path) -> None:
        """Let go of the runs of a folder, whose room on disk is not given back before."""
        with self._lock:
            for path in [path for path in self._tables if path.parent == folder]:
                del self._tables[path]


_MAPS = _Maps()
