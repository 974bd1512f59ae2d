"""Who does the work: pieces of it that know nothing of each other, given to threads."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol


class Crew(Protocol):
    """Does pieces of work, several at a time."""

    def map[Item, Result](
        self, task: Callable[[Item], Result], items: Sequence[Item], *, need: Callable[[Item], int] | None = None
    ) -> Iterator[Result]:
        """Yield what a task makes of each item, in the order of the items.

        Args:
            task: Can be pickled, and called twice for an item, at the same time even.
            items: Can be pickled.
            need: Bytes that an item takes; None where no item takes more than its worker's share.

        """
        ...


class ThreadCrew:
    """Threads of this process, which share its memory.

    Args:
        workers: How many.
        memory: Bytes that all of them may hold.

    """

    def __init__(self, workers: int, memory: int) -> None:
        self._workers = workers
        self._room = _Room(memory)
        self._share = memory // workers

    def map[Item, Result](
        self, task: Callable[[Item], Result], items: Sequence[Item], *, need: Callable[[Item], int] | None = None
    ) -> Iterator[Result]:
        """Yield what a task makes of each item; an error, or a caller who stops, leaves what was not begun."""

        def work(item: Item) -> Result:
            with self._room.taken(max(self._share, need(item) if need is not None else 0)):
                return task(item)

        with ThreadPoolExecutor(self._workers) as pool:
            futures = deque(pool.submit(work, item) for item in items)
            try:
                while futures:
                    # out of the list, since a result may hold counts of every tile
                    yield futures.popleft().result()
            finally:
                for future in futures:
                    future.cancel()


class _Room:
    """Memory that threads take by turns, so that two large pieces of work do not hold theirs at one time.

    A piece that needs more than there is has the room to itself.
    """

    def __init__(self, size: int) -> None:
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
