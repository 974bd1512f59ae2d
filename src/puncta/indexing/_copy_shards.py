"""Writes a feature-major copy as arrays: rows that were laid down in their order are cut into shards (P31)."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from puncta.indexing._crew import Crew
from puncta.indexing._runs import RunFiles, Spans
from puncta.indexing._write_zarr import CHUNK_ROWS, CHUNKS_PER_SHARD, ShardWriter, write_group
from puncta.indexing._zarr_columns import ArrayLayout

_SHARD_ROWS = CHUNK_ROWS * CHUNKS_PER_SHARD


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One shard of a copy."""

    number: int
    """Number of the shard."""

    spans: Spans
    """Its rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteShards:
    """The work on each shard of a copy; holds one column of it, which has four million rows at the most."""

    rows: RunFiles
    """The rows, in their order."""

    folder: Path
    """Group of the copy."""

    arrays: ArrayLayout
    """Its columns as arrays."""

    def __call__(self, shard: Shard) -> tuple[str, ...]:
        """Write one shard; return the arrays in which some values are null."""
        table = self.rows.gather(shard.spans)
        writer = ShardWriter(
            self.folder, self.arrays, shard.number, chunk_rows=CHUNK_ROWS, chunks_per_shard=CHUNKS_PER_SHARD
        )
        with writer:
            if table is not None:
                writer.write(table, np.arange(0, table.num_rows, CHUNK_ROWS))
        return tuple(sorted(writer.nullable))


def write_copy(folder: Path, rows: RunFiles, laid: Spans, arrays: ArrayLayout, *, crew: Crew) -> None:
    """Write the arrays of a feature-major copy.

    Args:
        folder: Group of the copy.
        rows: The rows, laid down.
        laid: All of them, in the order of the copy.
        arrays: The columns as arrays.
        crew: Who does the work.

    """
    task = WriteShards(rows=rows, folder=folder, arrays=arrays)
    found = list(crew.map(task, shards_of(laid, shard_rows=_SHARD_ROWS)))
    n_rows = int((laid[:, 2] - laid[:, 1]).sum())
    write_group(
        folder,
        arrays,
        n_rows=n_rows,
        shape=n_rows,
        chunk_rows=CHUNK_ROWS,
        chunks_per_shard=CHUNKS_PER_SHARD,
        nullable={name for names in found for name in names},
    )


def shards_of(laid: Spans, *, shard_rows: int) -> list[Shard]:
    """Return rows in their order, cut into shards of so many.

    Args:
        laid: Rows, as spans of runs.
        shard_rows: Rows of a shard; the last has what is left.

    """
    ends = np.cumsum(laid[:, 2] - laid[:, 1])
    firsts = ends - (laid[:, 2] - laid[:, 1])
    total = int(ends[-1]) if len(ends) else 0
    shards = []
    for number, start in enumerate(range(0, total, shard_rows)):
        stop = min(start + shard_rows, total)
        at = slice(int(np.searchsorted(ends, start, side="right")), int(np.searchsorted(firsts, stop, side="left")))
        spans = laid[at].copy()
        spans[:, 1] += np.maximum(start - firsts[at], 0)
        spans[:, 2] -= np.maximum(ends[at] - stop, 0)
        shards.append(Shard(number=number, spans=spans))
    return shards
