"""How much room things take and a disk has, and how running out of it is said."""

import errno
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from puncta.errors import SpaceError, StoreError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})

# Libraries that drop the number of the error: Rust's (polars) put it in the text, numpy says that a write was short.
_FULL_IN_WORDS = re.compile(rf"\(os error ({errno.ENOSPC}|{errno.EDQUOT})\)|^\d+ requested and \d+ written$")

_REMEDY = "free some, or give another -o (for the result) or --tmp (for what is needed on the way)"

_KILO = 1000


def tree_bytes(path: Path) -> int:
    """Return the size of a file, or of all files below a folder; links count as nothing and are not followed."""
    return measure(path)[1]


def measure(path: Path) -> tuple[int, int]:
    """Return the number of files at or below a path, and their bytes."""
    if path.is_symlink() or not path.is_dir():
        return 1, path.lstat().st_size
    sizes = [
        (folder / name).lstat().st_size
        for folder, _, names in walk(path)
        for name in names
        if not (folder / name).is_symlink()
    ]
    return len(sizes), sum(sizes)


def walk(top: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Yield (folder, names of folders, other names) for a folder and all below it, the inner ones first.

    Unlike `Path.walk`, a folder that cannot be listed is an error and not an empty one. Links are not followed; they
    are among the other names.
    """
    return top.walk(top_down=False, on_error=_refuse)


def _refuse(error: OSError) -> None:
    raise StoreError(f"could not list {error.filename}: {error.strerror}") from error


def free_bytes(path: Path) -> int:
    """Return the bytes that the user may still write at a path, or where it would be made."""
    place = path.absolute()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


def require_space(path: Path, needed: int, what: str) -> None:
    """Check before anything is written that it will fit.

    Args:
        path: Where it will be written; need not be there yet.
        needed: Bytes that it will take.
        what: Name of it for the message, such as "the index".

    Raises:
        SpaceError: If less is free.

    """
    free = free_bytes(path)
    if free < needed:
        raise SpaceError(f"{what} needs {in_units(needed)} at {path}, where {in_units(free)} are free; {_REMEDY}")


@contextmanager
def says_disk_full(path: Path) -> Iterator[None]:
    """Turn the many ways in which libraries report a full disk, or a spent quota, into one.

    Args:
        path: Where is being written; its disk is the one named.

    Raises:
        SpaceError: If the disk became full inside the block.

    """
    try:
        yield
    except Exception as error:  # polars and numpy raise their own classes; every other error goes on as it is
        if not _is_disk_full(error):
            raise
        free = in_units(free_bytes(path))
        raise SpaceError(
            f"the disk or the quota became full while writing {path} ({free} are free); {_REMEDY}"
        ) from error


def in_units(n_bytes: int) -> str:
    """Return a number of bytes as people read it: `1.2 GB`, in powers of 1,000."""
    value = float(n_bytes)
    for unit in ("bytes", "kB", "MB", "GB"):
        # 999.95 would print as 1000.0
        if value < _KILO - 0.05:
            return f"{n_bytes} bytes" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= _KILO
    return f"{value:.1f} TB"


def _is_disk_full(error: Exception) -> bool:
    return getattr(error, "errno", None) in _FULL or _FULL_IN_WORDS.search(str(error)) is not None
