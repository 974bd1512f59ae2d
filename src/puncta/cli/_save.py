"""Tables as files that other programs read: Parquet, CSV, Arrow; whole or not at all."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from puncta.errors import MissingError, OverwriteError
from puncta.store._atomic import private_name, says_refused


def check_target(path: Path, *, overwrite: bool) -> None:
    """Refuse a file that may not be written, before any work is done.

    Raises:
        OverwriteError: If it exists, and was not to be replaced.
        MissingError: If its folder is not there.

    """
    if path.is_dir():
        raise OverwriteError(f"{path} is a folder; give the name of a file")
    if path.exists() and not overwrite:
        raise OverwriteError(f"{path} exists; give another name, or --overwrite to replace it")
    if not path.parent.is_dir():
        raise MissingError(f"there is no folder {path.parent} to write {path.name} to; make it first")


def save_table(path: Path, table: pa.Table) -> None:
    """Write a table in the form that its name ends in; a crash leaves what was there before.

    Raises:
        SpaceError: If the disk is full.
        StoreError: If the system refuses.

    """
    temporary = path.with_name(private_name(path.name))
    with says_refused(path):
        try:
            _WRITERS[path.suffix](table, temporary)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def _write_parquet(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path, compression="zstd")


def _write_csv(table: pa.Table, path: Path) -> None:
    pa_csv.write_csv(pa.table([_plain(column) for column in table.columns], names=table.column_names), path)


def _write_arrow(table: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values of a categorical column: CSV knows no categories."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


_WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    ".parquet": _write_parquet,
    ".csv": _write_csv,
    ".arrow": _write_arrow,
}
