"""The few steps that happen whole or not at all: a file replaced, two directories exchanged, a tree on disk."""

import ctypes
import errno
import fcntl
import os
import re
import secrets
import stat
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from puncta.errors import PunctaError, StoreError
from puncta.store._disk import says_disk_full, walk

_PRIVATE = re.compile(r"\.(?P<name>.+)\.puncta-[0-9a-f]{16}", re.DOTALL)

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_RENAME_SWAP = 2

# What a system or file system answers that cannot exchange; EPERM is how some containers refuse an unknown call.
_CANNOT_EXCHANGE = frozenset(
    {
        errno.ENOSYS,
        errno.EINVAL,
        errno.EXDEV,
        errno.ENOTSUP,
        errno.EOPNOTSUPP,
        errno.EPERM,
    }
)


def exchange(a: Path, b: Path) -> bool:
    """Swap two directories (or files) in one call, so that neither name is ever missing.

    Returns:
        Whether it was done; False where the system or the file system cannot.

    Raises:
        OSError: If it can, and failed: one is missing, or may not be moved.

    """
    library = ctypes.CDLL(None, use_errno=True)
    names = (os.fsencode(a), os.fsencode(b))
    if hasattr(library, "renameat2"):
        failed = library.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE)
    elif sys.platform == "darwin" and hasattr(library, "renamex_np"):
        failed = library.renamex_np(names[0], names[1], _RENAME_SWAP)
    else:
        return False
    if not failed:
        return True
    number = ctypes.get_errno()
    if number in _CANNOT_EXCHANGE:
        return False
    raise OSError(number, os.strerror(number), str(a), None, str(b))


def write_file(path: Path, data: bytes, *, scratch: Path | None = None) -> None:
    """Write a file so that readers, and a crash, find the old content or the new one.

    Args:
        path: The file; its folder is there. Where it exists, its permissions are kept.
        data: The whole content.
        scratch: A folder of the same file system for the temporary file; default is beside the file.

    Raises:
        SpaceError: If the disk is full; the file is then as it was.
        StoreError: If the system refuses; likewise.

    """
    temporary = (scratch or path.parent) / private_name(path.name)
    with says_refused(path):
        try:
            _write_through(temporary, data, mode=_mode_of(path))
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        flush_folder(path.parent)


@contextmanager
def says_refused(path: Path) -> Iterator[None]:
    """Turn the system's errors inside the block into a `SpaceError` or a `StoreError` that names the path."""
    try:
        with says_disk_full(path):
            yield
    except OSError as error:
        if isinstance(error, PunctaError):
            raise
        raise StoreError(
            f"could not write {path}: {error.strerror or error}; check its permissions and disk"
        ) from error


def private_name(name: str) -> str:
    """Return a new name for a temporary file or folder of puncta's own, to stand in for `name`."""
    return f".{name}.puncta-{secrets.token_hex(8)}"


def is_private_name(name: str, *, of: Collection[str] | None = None) -> bool:
    """Whether a name is one of puncta's temporary ones; with `of`, one that stands in for any of these names."""
    match = _PRIVATE.fullmatch(name)
    return match is not None and (of is None or match["name"] in of)


def flush_tree(folder: Path) -> None:
    """Wait until every file below a folder, every folder, and its own name are on disk."""
    for inner, _, names in walk(folder):
        for name in names:
            if not (inner / name).is_symlink():
                _flush(inner / name)
        _flush(inner)
    _flush(folder.parent)


def flush_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk."""
    _flush(folder)


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Hold off other puncta processes that ask for the same folder; does nothing where the file system has no locks."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write_through(path: Path, data: bytes, *, mode: int | None) -> None:
    # Not `tempfile`: its files are for their owner alone, and this one becomes the real one.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    with os.fdopen(descriptor, "wb") as stream:
        with suppress(OSError):
            # a dead writer's file can be told from a live one's by its lock
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if mode is not None:
            os.fchmod(descriptor, mode)
        stream.write(data)
        stream.flush()
        os.fsync(descriptor)


def _mode_of(path: Path) -> int | None:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return None


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
