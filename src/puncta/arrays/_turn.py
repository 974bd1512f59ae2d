"""What a process has one of: the turn to run Python code for long, and a number of files to open at once."""

import os
import sys
import threading

MOST_FILES = 32
"""Files that one share opens, at most."""


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
        # Taken by `with` itself and by no method of ours, inside of which an interrupt would leave it taken for ever.
        self.lock = threading.Lock()


class Openings:
    """How many shares may have files open: a quarter of the files that the system allows this process, in all."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Begin anew, as a forked process must."""
        self.slots = threading.BoundedSemaphore(max(_allowed_files() // 4 // MOST_FILES, 1))


def _allowed_files() -> int:
    if sys.platform == "win32":
        return 512
    import resource  # noqa: PLC0415 (not there on Windows)

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 16 if limit == resource.RLIM_INFINITY else limit


TURN = Turn()
OPENINGS = Openings()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=TURN.renew)
    os.register_at_fork(after_in_child=OPENINGS.renew)
