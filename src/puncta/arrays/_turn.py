"""What a process has one of: the turn to run Python code for long, and a number of files to open at once."""

import itertools
import os
import sys
import threading
from contextlib import suppress

MOST_FILES = 32
"""Files that one share opens, at most."""

_ENOUGH = 1 << 14


class Turn:
    """A lock around what holds Python's own lock anyway.

    Threads that read and copy many small pieces hand Python's lock to and fro at every system call. Measured with two
    threads on chunks of 16 kB, that costs a fifth of the processor time and a third of the speed; taking turns costs
    nothing, since decompression, which is most of the work, needs neither lock.
    """

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Begin anew, as a forked process must: its parent may have held the lock."""
        self.lock = threading.RLock()


class Openings:
    """How many shares may have files open: those of a quarter of the files that the system allows this process."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Begin anew, as a forked process must."""
        # Locks taken in turns, and no semaphore, which does not know what an interrupted thread has taken.
        self.slots = [threading.RLock() for _ in range(max(_allowed_files() // 4 // MOST_FILES, 1))]
        self._numbers = itertools.count()

    def slot(self) -> threading.RLock:
        """Return the lock to hold while files are open."""
        return self.slots[next(self._numbers) % len(self.slots)]


def let_go() -> None:
    """Release what this thread has still taken after an interrupt, which may come between `with` and its block."""
    for lock in (TURN.lock, *OPENINGS.slots):
        # One that another thread has taken, or none, refuses.
        with suppress(RuntimeError):
            while True:
                lock.release()


def _allowed_files() -> int:
    if sys.platform == "win32":
        return 512
    import resource  # noqa: PLC0415 (not there on Windows)

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _ENOUGH if limit == resource.RLIM_INFINITY else min(limit, _ENOUGH)


TURN = Turn()
OPENINGS = Openings()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=TURN.renew)
    os.register_at_fork(after_in_child=OPENINGS.renew)
