"""Publication: what was built beside a store takes its place in it at once, and a crash leaves the old or the new.

A `Workspace` is a hidden folder beside the store, locked for as long as its process lives. In it, `journal.json` stands
from the moment at which all of the new is on disk until all is done; whoever finds it beside a free lock can finish.
"""

import errno
import fcntl
import logging
import os
import secrets
import shutil
from pathlib import Path
from types import TracebackType
from typing import Self

from puncta.errors import MissingError, OverwriteError, SpaceError, StoreError, UnsupportedError
from puncta.store._atomic import exchange, flush_folder, flush_tree, is_private_name, private_name, says_refused
from puncta.store._disk import in_units, measure, tree_bytes
from puncta.store._journal import Journal, discard_journal, put_back, read_journal, refresh_above, write_journal
from puncta.store._locate import is_there, store_of, zarr_format_of

_log = logging.getLogger(__name__)

_LOCK = "lock"
_BUILD = "build"
_GROUP = b'{\n  "zarr_format": 3,\n  "node_type": "group",\n  "attributes": {}\n}'

# What a folder answers in which nothing can be made.
_CLOSED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class Workspace:
    """A private folder to build in, on the file system of a store, and the way from there into the store.

    It lies beside the store, where no listing of the store shows it; inside it where the folder beside cannot be
    written or is another file system. On leaving the block it is removed with all that is in it, an interrupted
    publication being finished first. After a kill, `recover` does both; but a process that was forked inside the block
    counts as the builder for as long as it lives.

    Args:
        store: Root of the store; need not be there yet, its parent must.
        use_exchange: Whether to try the exchange in one call; without it, or where the system cannot, two renames are
            made, and the target is missing between them.

    """

    def __init__(self, store: Path, *, use_exchange: bool = True) -> None:
        self.store = store.resolve()
        self.path = Path()
        self._use_exchange = use_exchange
        self._folder = Path()
        self._lock = -1

    def __enter__(self) -> Self:
        """Make the folder and hold its lock; `path` is then where to build."""
        with says_refused(self.store):
            self._folder, self._lock = _claim(self.store)
        self.path = self._folder / _BUILD
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Finish what was begun, and remove the folder."""
        try:
            _settle(self._folder, self.store)
            _remove_workspace(self._folder)
        finally:
            os.close(self._lock)

    def publish_directory(self, built: Path, target: Path, *, replace: bool) -> None:
        """Put a finished directory in its place in the store, at once.

        Groups that are missing between the store and the target appear together with it. Consolidated metadata above
        the target is redone as the last step. The old directory is removed.

        Args:
            built: The directory, below `path` (or `path` itself).
            target: The store, or a place inside it.
            replace: Whether a directory at the target may be replaced.

        Raises:
            OverwriteError: If something is at the target that may not be replaced.
            SpaceError: If the disk became full; the store then is as it was, or as it will be.
            StoreError: If the target lies outside the store, or the system refuses; likewise.
            UnsupportedError: If the store is of Zarr format 2 and would be changed in place.

        """
        place = self._place(target)
        _check_replaceable(place, self.store, replace=replace)
        with says_refused(place):
            built, place = self._with_missing_groups(built, place)
            flush_tree(built)
            journal = self._begin(built, place)
            self._swap(built, place, self._folder / journal.old, is_new=journal.old_size is None)
            flush_folder(place.parent)
            flush_folder(built.parent)
            _settle(self._folder, self.store)

    def _place(self, target: Path) -> Path:
        """Return the target with the links above it resolved; one that is itself a link is replaced, not followed."""
        if target.resolve() == self.store:
            if self._folder.is_relative_to(self.store):
                raise StoreError(
                    f"cannot write in {self.store.parent}, so {self.store} cannot be replaced; give another -o"
                )
            return self.store
        place = target.parent.resolve() / target.name
        if not place.is_relative_to(self.store):
            raise StoreError(
                f"{target} lies outside of the store {self.store}, perhaps through a link; give its real path"
            )
        return place

    def _with_missing_groups(self, built: Path, place: Path) -> tuple[Path, Path]:
        """Wrap what was built in the groups above it that are missing, so that one rename brings them all."""
        while place != self.store and not is_there(place.parent):
            wrapped = self._folder / f"group-{secrets.token_hex(4)}"
            wrapped.mkdir()
            (wrapped / "zarr.json").write_bytes(_GROUP)
            built.rename(wrapped / place.name)
            built, place = wrapped, place.parent
        return built, place

    def _begin(self, built: Path, place: Path) -> Journal:
        journal = Journal(
            target=place.relative_to(self.store).as_posix(),
            built=built.relative_to(self._folder).as_posix(),
            old=f"old-{secrets.token_hex(4)}",
            built_size=measure(built),
            old_size=measure(place) if os.path.lexists(place) else None,
        )
        write_journal(self._folder, journal)
        return journal

    def _swap(self, built: Path, place: Path, old: Path, *, is_new: bool) -> None:
        try:
            if is_new:
                built.rename(place)
            elif not (self._use_exchange and exchange(built, place)):
                place.rename(old)
                built.rename(place)
        except OSError as error:
            if os.path.lexists(old) and not os.path.lexists(place):
                old.rename(place)
            discard_journal(self._folder)
            if error.errno in {errno.ENOTEMPTY, errno.EEXIST}:
                raise OverwriteError(f"{place} appeared while it was being built; give --overwrite") from error
            raise


def recover(path: Path) -> list[str]:
    """Finish what a killed puncta process left half done, and remove its rubbish; to be called by every command first.

    Workspaces of processes that are alive, or of which nothing can be found out, are left alone.

    Args:
        path: Root of a store, or any place inside one; need not be there, since a publication by two renames that was
            interrupted between them leaves nothing there.

    Returns:
        What was done, a sentence each; empty where there was nothing to do.

    Raises:
        StoreError: If an element is missing and no complete copy of it is in the workspace; nothing is removed then.

    """
    stores = dict.fromkeys(store.resolve() for store in (path, store_of(path)))
    return [sentence for store in stores for sentence in _recover_store(store)]


def _recover_store(store: Path) -> list[str]:
    done = []
    for folder in (store.parent, store):
        for name in _leftovers(folder, store):
            done += _recover_one(folder / name, store)
    return done


def _leftovers(folder: Path, store: Path) -> list[str]:
    """Return the names of puncta's own files and folders for a store, and for its `zarr.json`, in a folder."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 (names alone are wanted)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        # where nothing can be listed, nothing can have been left that this user could remove
        return []
    return sorted(name for name in names if is_private_name(name, of={store.name, "zarr.json"}))


def _recover_one(leftover: Path, store: Path) -> list[str]:
    if leftover.is_symlink():
        # not ours: following it would remove what lies elsewhere
        return []
    try:
        lock = _take_lock(leftover if leftover.is_file() else leftover / _LOCK)
    except OSError as error:
        # another user's, or no locks on this file system: it cannot be told whether its process lives
        _log.info("left %s alone: %s", leftover, error.strerror)
        return []
    if lock is None:
        return []
    try:
        done = _settle(leftover, store)
        size = in_units(tree_bytes(leftover))
        _remove_workspace(leftover)
    finally:
        os.close(lock)
    return [*done, f"removed {leftover} ({size}), which an interrupted run had left"]


def _settle(folder: Path, store: Path) -> list[str]:
    """Finish the publication that the journal in a workspace speaks of, if there is one."""
    journal = read_journal(folder)
    if journal is None:
        return []
    place = store / journal.target
    done = [] if os.path.lexists(place) else put_back(folder, place, journal)
    try:
        refreshed = refresh_above(place, store, scratch=folder)
    except SpaceError:
        # the place is filled, so the other copy is of no use, and its room is needed
        _remove_copies(folder, journal)
        refreshed = refresh_above(place, store, scratch=folder)
    discard_journal(folder)
    _remove_copies(folder, journal)
    return [*done, f"redid the consolidated metadata of {store}"] if refreshed else done


def _remove_copies(folder: Path, journal: Journal) -> None:
    for copy in (journal.built, journal.old):
        _remove_tree(folder / copy)


def _claim(store: Path) -> tuple[Path, int]:
    """Make a locked workspace for a store, beside it or else inside it."""
    if not is_there(store.parent):
        raise MissingError(f"there is no folder {store.parent} to write {store.name!r} in; make it first")
    refusal: OSError | None = None
    for home in _homes(store):
        try:
            return _make_workspace(home, store.name)
        except OSError as error:
            if error.errno not in _CLOSED:
                raise
            refusal = error
    raise StoreError(f"may write neither beside nor in {store}; give another -o") from refusal


def _homes(store: Path) -> list[Path]:
    if not is_there(store):
        return [store.parent]
    beside = [store.parent] if store.stat().st_dev == store.parent.stat().st_dev else []
    return [*beside, store] if store.is_dir() else beside


def _make_workspace(home: Path, name: str) -> tuple[Path, int]:
    while True:
        folder = home / private_name(name)
        try:
            folder.mkdir(mode=0o700)
            lock = _take_lock(folder / _LOCK)
            # Another process may take the new folder for a dead one's before it is locked; it then removes it.
            if lock is not None:
                (folder / _BUILD).mkdir()
                return folder, lock
        except BaseException:
            # Everything, since a signal may come here, before there is a block whose end would clean up.
            _remove_tree(folder)
            raise


def _take_lock(file: Path) -> int | None:
    """Return a descriptor that holds the lock of a file, or None where another process holds it or removed the file."""
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), os.stat(file)):  # noqa: PTH116 (beside os.fstat)
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except OSError:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _check_replaceable(place: Path, store: Path, *, replace: bool) -> None:
    if place != store and zarr_format_of(store) == 2:  # noqa: PLR2004 (the number is the format's name)
        raise UnsupportedError(f"{store} is Zarr format 2, which is not changed in place; give -o NEW.zarr")
    if not os.path.lexists(place):
        return
    if not replace:
        raise OverwriteError(f"{place} exists; give --overwrite to replace it, or another name")
    # `-o` with a slip of the finger must not cost a home folder
    if place == store and place.is_dir() and zarr_format_of(place) is None and any(place.iterdir()):
        raise OverwriteError(f"{place} is no Zarr store, so it is not replaced; remove it yourself, or give another -o")


def _remove_workspace(folder: Path) -> None:
    if not folder.is_dir():
        folder.unlink(missing_ok=True)
        return
    # the lock goes last: as long as there is anything else, another process must see that it is being dealt with
    for path in sorted(folder.iterdir(), key=lambda path: path.name == _LOCK):
        _remove_tree(path)
    _remove_tree(folder)


def _remove_tree(path: Path) -> None:
    """Remove a file, link or folder that is no longer of use; what cannot be removed is left, with a warning."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        _log.warning("could not remove %s: %s", path, error.strerror)
