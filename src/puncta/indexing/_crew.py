"""Who does the work: pieces of it that know nothing of each other, given to threads."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol


class Crew(Protocol):
    """Does pieces of work, several at a time."""

    def map[Item, Result](self, task: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """Yield what a task makes of each item, in the order of the items.

        Args:
            task: Can be pickled, and called twice for an item, at the same time even.
            items: Can be pickled.

        """
        ...


class ThreadCrew:
    """Threads of this process."""

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def map[Item, Result](self, task: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """Yield what a task makes of each item; an error, or a caller who stops, leaves what was not begun."""
        with ThreadPoolExecutor(self._workers) as pool:
            futures = deque(pool.submit(task, item) for item in items)
            try:
                while futures:
                    # out of the list, since a result may hold counts of every tile
                    yield futures.popleft().result()
            finally:
                for future in futures:
                    future.cancel()


class Room:
    """Memory that threads take by turns, so that two large pieces of work do not hold theirs at one time."""

    def __init__(self, size: int) -> None:
        """Start empty.

        Args:
            size: Bytes; a piece of work that needs more has the room to itself.

        """
        self._free = self._size = size
        self._changed = threading.Condition()

    @contextmanager
    def taken(self, need: int) -> Iterator[None]:
        """Hold some of it for the time of a block, once it is free."""
        share = min(need, self._size)
        with self._changed:
            self._changed.wait_for(lambda: self._free >= share)
            self._free -= share
        try:
            yield
        finally:
            with self._changed:
                self._free += share
                self._changed.notify_all()
