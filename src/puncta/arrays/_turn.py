"""Whose turn it is to run Python code for long: one thread's at a time, of all that read."""

import os
import threading


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
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


TURN = Turn()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=TURN.renew)
