"""The files below a folder of a local disk."""

import os
import stat
from collections.abc import Hashable, Iterator
from pathlib import Path

from puncta.errors import MissingError, StoreError
from puncta.store._files import Reads
from puncta.store._local_file import OpenFile, open_file


class Directory:
    """The files below a folder, as `LocalFiles`.

    Holds nothing open between calls, so it may be forked, and pickled: the copy counts its own reads.

    Args:
        root: The folder.

    """

    __slots__ = ("_prefix", "_root", "reads")

    def __init__(self, root: Path) -> None:
        self._root = root
        # absolute, so that a worker with another working directory finds it; a string, since Path is slow to join
        self._prefix = f"{str(root.absolute()).rstrip('/')}/"
        self.reads = Reads()

    def __reduce__(self) -> tuple[type["Directory"], tuple[Path]]:
        return Directory, (self._root.absolute(),)

    def __repr__(self) -> str:
        return f"Directory({self.name!r})"

    @property
    def name(self) -> str:
        """The path, as it was given."""
        return str(self._root)

    @property
    def identity(self) -> Hashable:
        """Its absolute path."""
        return self._prefix

    def open(self, key: str) -> OpenFile | None:
        """Open a file; None where there is none, or a folder. Links are followed.

        Raises:
            StoreError: If it is there and cannot be opened, is a link to nothing, or the key leads out of the folder.
            MissingError: If the whole folder is not there: an unmounted disk is not an empty one.

        """
        if not key or key[0] == "/" or (".." in key and ".." in key.split("/")):
            raise StoreError(f"{key!r} is no name of a file below {self.name}; give a relative path without '..'")
        path = self._prefix + key
        file = open_file(path, self.reads)
        if file is None:
            self._require_absent(path)
        return file

    def names(self, prefix: str) -> Iterator[str]:
        """Yield the names of all files that begin with a prefix, which may end within a name. Links are followed.

        Raises:
            StoreError: If a folder cannot be listed, a link leads round in a circle, or the prefix leads out.
            MissingError: If the whole folder is not there.

        """
        if prefix[:1] == "/" or ".." in prefix.split("/"):
            raise StoreError(f"{prefix!r} is no beginning of a name below {self.name}; give one without '..'")
        folder = prefix[: prefix.rfind("/") + 1]
        try:
            found = Path(self._prefix + folder).stat()
        except (FileNotFoundError, NotADirectoryError):
            self._require_absent(self._prefix + folder.rstrip("/"))
            return
        except (OSError, ValueError) as error:
            raise StoreError(f"could not list {self._prefix}{folder}: {error}") from error
        if stat.S_ISDIR(found.st_mode):
            yield from self._walk(folder, prefix, above=[(found.st_dev, found.st_ino)])

    def _walk(self, folder: str, prefix: str, *, above: list[tuple[int, int]]) -> Iterator[str]:
        """Yield the names of all files below a folder, whose own name is empty or ends with a slash."""
        try:
            with os.scandir(self._prefix + folder) as entries:
                wanted = [entry for entry in entries if (folder + entry.name).startswith(prefix)]
                found = [(entry.name, entry.stat() if entry.is_dir() else None) for entry in wanted]
        except OSError as error:
            raise StoreError(f"could not list {self._prefix}{folder}: {error.strerror}") from error
        for name, status in found:
            if status is None:
                yield folder + name
                continue
            identity = (status.st_dev, status.st_ino)
            if identity in above:
                raise StoreError(f"{self._prefix}{folder}{name} leads back to a folder above it; remove the link")
            yield from self._walk(f"{folder}{name}/", prefix, above=[*above, identity])

    def _require_absent(self, path: str) -> None:
        """Raise where a path that could not be opened is no proof that nothing is there."""
        while len(path) > len(self._prefix):
            if os.access(path, os.F_OK):
                return
            if os.path.lexists(path):
                # as in stores whose contents another tool keeps elsewhere: read as absent, it would be a fill value
                raise StoreError(f"{path} is a link to {Path(path).readlink()}, where nothing is; fetch its content")
            path = path.rpartition("/")[0]
        if not os.access(self._prefix, os.F_OK):
            raise MissingError(f"there is no folder {self.name}; check its path, and that its disk is connected")
