"""The folder of one build: kept when the build is stopped, and found again by the same build.

It lies beside the store under a name made of what is built from what. Unlike a workspace of `puncta.store` it survives
its process, so that hours of finished work are not lost; it never holds the only copy of anything.
"""

import fcntl
import hashlib
import json
import logging
import os
import shutil
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from puncta.indexing._ledger import Ledger
from puncta.store import tree_bytes

_log = logging.getLogger(__name__)

_TARGET = "target.json"


def identity_of(path: Path) -> list[tuple[str, int, int]]:
    """Return name, size and time of change of every file of a source, sorted."""
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    return [(str(file), status.st_size, status.st_mtime_ns) for file, status in ((file, file.stat()) for file in files)]


def digest_of(plan: Mapping[str, object]) -> str:
    """Return the name of a build: 16 hexadecimal digits of all that its result depends on."""
    return hashlib.sha256(json.dumps(plan, sort_keys=True, default=repr).encode()).hexdigest()[:16]


class BuildFolder:
    """Private folders of one build, one beside the store and one for buckets.

    Once begun they are locked. After the block they are gone, unless the block was left by an interrupt when the ledger
    had something worth keeping.

    Args:
        store: The store that is built for.
        element: Name of the element.
        digest: Name of the build.
        tmp: Where the folder of buckets is; beside the store where None.

    """

    def __init__(self, store: Path, element: str, digest: str, *, tmp: Path | None) -> None:
        begin = f".{store.name}.puncta-build-"
        self._begin = begin
        self._target = {"store": str(store), "element": element}
        self._folders = [store.parent / f"{begin}{digest}", *([tmp / f"{begin}{digest}"] if tmp is not None else [])]
        self._lock = -1
        self._made: list[Path] = []
        self._is_ours = False
        self.ledger = Ledger(self._folders[0] / "ledger")
        """What has been finished."""
        self.notes: list[str] = []
        """What a user should know."""

    @property
    def element(self) -> Path:
        """Where the element is built."""
        return self._folders[0] / "element"

    @property
    def scratch(self) -> Path:
        """Where buckets go."""
        return self._folders[-1] / "scratch"

    def __enter__(self) -> Self:
        """Do nothing yet: what `begin` makes, the end of the block removes, whenever an interrupt comes."""
        return self

    def begin(self) -> bool:
        """Make and lock the folders, and begin or go on; remove what other builds of the same element have left.

        Returns:
            Whether that was done; False where the folders cannot be made, or another process builds the same.

        """
        try:
            for folder in self._folders:
                if not folder.exists():
                    self._made.append(folder)
                folder.mkdir(mode=0o700, exist_ok=True)
                if not _is_private(folder):
                    return False
            self._lock = os.open(self._folders[0] / "lock", os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            _log.info("no build folder beside the store: %s", error)
            self._unlock()
            return False
        self._is_ours = True
        self._prepare()
        return True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        was_stopped = error is not None and not isinstance(error, Exception)
        try:
            if not self._is_ours:
                # made, and not locked: by nobody else either, or they would not be new
                self._remove(self._made)
            elif was_stopped and self.ledger.is_worth_keeping and error is not None:
                size = sum(tree_bytes(folder) for folder in self._folders)
                error.add_note(
                    f"{size / 1e9:.1f} GB of finished work are kept in {self._folders[0]}; the same command goes on "
                    "from there, and the folder may be deleted"
                )
            else:
                self._remove(self._folders)
        finally:
            self._unlock()

    def _prepare(self) -> None:
        """Go on from what was finished, or clear what is of no use."""
        self._remove_others()
        (self._folders[0] / _TARGET).write_text(json.dumps(self._target))
        kept = (self.element, self.scratch, self._folders[0] / "ledger")
        if not (self.ledger.is_worth_keeping and all(folder.is_dir() for folder in kept)):
            # what there is of a build that was not far, or is on its way into the store already
            self._remove(kept)
        for folder in kept:
            folder.mkdir(exist_ok=True)
        if self.ledger.is_worth_keeping:
            self.notes.append("went on from a build with the same arguments that had been stopped")

    def _remove_others(self) -> None:
        for folder in sorted(self._folders[0].parent.glob(f"{self._begin}*")):
            if folder == self._folders[0] or not _is_of(folder, self._target):
                continue
            lock = _locked(folder / "lock")
            if lock is None:
                continue
            size = tree_bytes(folder)
            self._remove([folder, *(other.parent / folder.name for other in self._folders[1:])])
            os.close(lock)
            self.notes.append(f"removed {folder} ({size / 1e9:.1f} GB), which a build with other arguments had left")

    def _remove(self, folders: Sequence[Path]) -> None:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)

    def _unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _is_private(folder: Path) -> bool:
    """Whether a folder is this user's, and nobody else may write to it: results in it are trusted."""
    status = folder.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _is_of(folder: Path, target: Mapping[str, str]) -> bool:
    with suppress(OSError, ValueError):
        return bool(json.loads((folder / _TARGET).read_text()) == target)
    return False


def _locked(file: Path) -> int | None:
    """Return a descriptor that holds the lock of a file, or None where another process holds it."""
    try:
        descriptor = os.open(file, os.O_RDWR)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
