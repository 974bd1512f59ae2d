"""One open file on a disk, or a stretch of one, read by position."""

import os
import stat
from contextlib import suppress
from typing import Final

from puncta.errors import StoreError
from puncta.store._files import Reads

# Systems refuse or shorten a read of 2 GiB and more.
_MOST_AT_ONCE: Final = 1 << 30

# Without O_NONBLOCK, opening a pipe would wait for somebody to write to it. It changes nothing for a regular file.
_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK

# Linux alone can read without waiting for a disk.
_NO_WAIT: Final[int | None] = getattr(os, "RWF_NOWAIT", None)


class OpenFile:
    """A file on a disk, or a stretch of one such as the member of an archive, as a `LocalFile`.

    Holds no position, so that many threads may read at once. Its reads are counted when it is closed.

    Args:
        descriptor: Of the file; closed with this object.
        path: For messages; of the member where the stretch is one.
        reads: Where the reads are counted.
        start: Offset of the stretch in the file.
        size: Length of the stretch in bytes.
        version: Of the whole file, and of the stretch in it.

    """

    __slots__ = ("_descriptor", "_lengths", "_path", "_reads", "_start", "size", "version")

    def __init__(
        self, descriptor: int, path: str, *, reads: Reads, start: int, size: int, version: tuple[int, ...]
    ) -> None:
        self._descriptor = descriptor
        self._path = path
        self._reads = reads
        self._start = start
        self.size: Final = size
        self.version: Final = version
        # an append is one step for all threads; adding to a number is not, and a lock takes as long as a small read
        self._lengths: list[int] = []

    def read_into(self, buffer: memoryview, offset: int) -> None:
        """Fill the whole buffer, which is contiguous, from an offset.

        Raises:
            StoreError: If the file ends before, is closed, or the system refuses.

        """
        length = buffer.nbytes
        if offset < 0 or offset + length > self.size:
            raise self._ends_early(offset, length)
        if length > _MOST_AT_ONCE:
            self._read_on(buffer, offset, 0)
            return
        try:
            done = os.preadv(self._descriptor, (buffer,), self._start + offset)
        except OSError as error:
            raise self._refused(error) from error
        self._lengths.append(done)
        if done != length:
            self._read_on(buffer, offset, done)

    def read_at_hand(self, buffer: memoryview, offset: int) -> bool:
        """Fill the whole buffer from an offset if the system has these bytes in memory; False where it has not.

        Raises:
            StoreError: If the file ends before.

        """
        length = buffer.nbytes
        if offset < 0 or offset + length > self.size:
            raise self._ends_early(offset, length)
        if _NO_WAIT is None:
            return False
        try:
            done = os.preadv(self._descriptor, (buffer,), self._start + offset, _NO_WAIT)
        except OSError:
            # not in memory, or a file system that does not say; whatever is wrong shows when it is read with patience
            return False
        if done != length:
            return False
        self._lengths.append(done)
        return True

    def announce(self, offset: int, length: int) -> None:
        """Tell the system that these bytes are read next; where it does not listen, nothing happens."""
        if hasattr(os, "posix_fadvise"):
            # only a hint: whatever is wrong with the file shows when it is read
            with suppress(OSError):
                os.posix_fadvise(self._descriptor, self._start + offset, length, os.POSIX_FADV_WILLNEED)

    def part(self, path: str, start: int, size: int) -> "OpenFile":
        """Return a stretch of this file as a file of its own, which takes its place: this one is closed by that.

        Args:
            path: Of the stretch, for messages.
            start: Its offset in this file.
            size: Its length in bytes.

        """
        if start < 0 or start + size > self.size:
            raise self._ends_early(start, size)
        self._count()
        descriptor, self._descriptor = self._descriptor, -1
        start += self._start
        return OpenFile(descriptor, path, reads=self._reads, start=start, size=size, version=(*self.version, start))

    def close(self) -> None:
        """Close the file and count what was read; does nothing the second time."""
        # a closed number may soon be another file's, and must not be read then
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
            self._count()

    def _count(self) -> None:
        if self._lengths:
            self._reads.add(requests=len(self._lengths), nbytes=sum(self._lengths))
            self._lengths = []

    def _read_on(self, buffer: memoryview, offset: int, done: int) -> None:
        """Fill the buffer from `done` on: a system may return fewer bytes than it was asked for."""
        flat = buffer.cast("B")
        while done < flat.nbytes:
            rest = flat[done : done + _MOST_AT_ONCE]
            try:
                more = os.preadv(self._descriptor, (rest,), self._start + offset + done)
            except OSError as error:
                raise self._refused(error) from error
            if not more:
                # the file was made shorter since it was opened
                raise self._ends_early(offset, flat.nbytes, end=offset + done)
            self._lengths.append(more)
            done += more

    def _ends_early(self, offset: int, length: int, *, end: int | None = None) -> StoreError:
        return StoreError(
            f"{self._path} ends at byte {self.size if end is None else end}, but bytes {offset} to {offset + length} "
            "were expected; it may be incomplete, or changed while it was read: copy it again, or open it again"
        )

    def _refused(self, error: OSError) -> StoreError:
        if self._descriptor < 0:
            return StoreError(f"{self._path} is closed; open it again")
        return StoreError(f"could not read {self._path}: {error.strerror}; check its permissions and disk")


def open_file(path: str, reads: Reads) -> OpenFile | None:
    """Open a file; None where there is none, or a folder.

    Raises:
        StoreError: If it is there and cannot be opened, or is neither file nor folder.

    """
    try:
        descriptor = os.open(path, _FLAGS)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as error:
        raise StoreError(f"could not open {path}: {error.strerror}; check its permissions and disk") from error
    except ValueError as error:  # a null byte, or half of a surrogate pair
        raise StoreError(f"{path!r} cannot be the name of a file: {error}") from error
    try:
        found = os.fstat(descriptor)
    except OSError as error:
        os.close(descriptor)
        raise StoreError(f"could not look at {path}: {error.strerror}; check its disk") from error
    mode = found.st_mode
    if stat.S_ISREG(mode):
        size = found.st_size
        version = (found.st_ino, found.st_mtime_ns, size)
        return OpenFile(descriptor, path, reads=reads, start=0, size=size, version=version)
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        return None
    raise StoreError(f"{path} is neither a file nor a folder but a pipe or a device; give a file")
