"""Rows as Arrow files of one record batch: written whole or not at all, and mapped into memory when read."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

PARTIAL = ".partial"
"""How the names of files end that are being written."""


@contextmanager
def written_beside(path: Path) -> Iterator[Path]:
    """Give a name beside a file's, which becomes the file's once the block is done.

    Work that is done twice, by a process that was given up and by the one that took over, may write it at one time.
    """
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}{PARTIAL}")
    try:
        yield partial
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def remove_unfinished(folder: Path) -> None:
    """Remove the files below a folder that a process which was killed was writing."""
    for path in list(folder.rglob(f"*{PARTIAL}")):
        path.unlink()


def read_batch(path: Path) -> pa.RecordBatch:
    """Return the record batch of a file, mapped into memory."""
    with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as file:
        return file.get_batch(0)


def write_batch(path: Path, batch: pa.RecordBatch | pa.Table) -> None:
    """Write rows as an Arrow file of one record batch."""
    if isinstance(batch, pa.Table):
        # Always one batch, since `read_batch` takes the first: a table without rows gives none of itself.
        pieces = batch.combine_chunks().to_batches(max_chunksize=max(batch.num_rows, 1))
        batch = pieces[0] if pieces else pa.RecordBatch.from_pylist([], schema=batch.schema)
    with (
        written_beside(path) as partial,
        pa.OSFile(str(partial), "wb") as sink,
        pa.ipc.new_file(sink, batch.schema) as writer,
    ):
        writer.write_batch(batch)
