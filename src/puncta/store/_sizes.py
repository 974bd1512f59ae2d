"""How many bytes the files below a name take up, wherever they are."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, runtime_checkable

from puncta.errors import UnsupportedError
from puncta.store._directory import Directory
from puncta.store._disk import tree_bytes
from puncta.store._event_loop import run
from puncta.store._files import LocalFiles, RemoteFiles
from puncta.store._zip import RemoteZip

__all__ = ["n_bytes_below"]


@runtime_checkable
class _TellsSizes(Protocol):
    """A place that knows the length of files without opening each."""

    def sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Name and length in bytes of all files that begin with a prefix."""
        ...


def n_bytes_below(files: LocalFiles | RemoteFiles, key: str) -> int:
    """Return the bytes of all files below a folder; 0 where there is none.

    Args:
        files: Where it is.
        key: Its name there, without a slash at either end; empty for all files.

    Raises:
        UnsupportedError: If they are on a web server, which cannot list them.
        StoreError: If they cannot be listed.

    """
    if isinstance(files, Directory):
        folder = Path(files.name) / key
        return tree_bytes(folder) if folder.is_dir() else 0
    if isinstance(files, RemoteZip):
        run(files.load())
    if not isinstance(files, _TellsSizes):
        raise UnsupportedError(f"{files.name} does not say how long its files are")
    prefix = f"{key}/" if key else ""
    return sum(size for _, size in files.sizes(prefix))
