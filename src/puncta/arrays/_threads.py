"""The threads that decode: a fixed number in a process, however many arrays, requests and callers there are."""

import asyncio
import os
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Protocol

from puncta.arrays._turn import let_go
from puncta.errors import QueryError

_MOST = 16

_pool: ThreadPoolExecutor | None = None


def thread_limit() -> int:
    """Return how many threads decode at once: `PUNCTA_THREADS`, or the processors of this process, 16 at the most.

    Raises:
        QueryError: If `PUNCTA_THREADS` is no number from 1 on.

    """
    wish = os.environ.get("PUNCTA_THREADS")
    if wish is None:
        return min(_processors(), _MOST)
    if not wish.isdecimal() or int(wish) < 1:
        raise QueryError(f"PUNCTA_THREADS is {wish!r}; give the number of threads that decode at once, 1 or more")
    return int(wish)


class Workers(Protocol):
    """A way to have work done by threads."""

    def share[T](self, function: Callable[[T], None], items: Iterable[T]) -> Awaitable[None]:
        """Call a function for every item, in several threads; the first error stops the rest and is raised."""
        ...

    def call[T](self, function: Callable[[], T]) -> Awaitable[T]:
        """Return what a function returns that takes a while."""
        ...


class BlockingWorkers:
    """For a caller who waits: the calling thread works, too, so that little work costs no change of threads.

    Its coroutines never wait for anything else, so they are done when they are first resumed.
    """

    async def share[T](self, function: Callable[[T], None], items: Iterable[T]) -> None:
        """Call a function for every item, in this thread and in others."""
        work = _Work(function, items)
        try:
            _HELPERS.ask(work, min(thread_limit(), len(work)) - 1)
            work.run()
        finally:
            work.stop()
            if work.failed or sys.exception() is not None:
                let_go()
            work.wait()
        work.raise_error()

    async def call[T](self, function: Callable[[], T]) -> T:
        """Return what a function returns."""
        return function()


class AsyncWorkers:
    """For a caller with an event loop, which goes on meanwhile.

    A cancelled call comes back when its threads have finished what they had begun, and not before.
    """

    async def share[T](self, function: Callable[[T], None], items: Iterable[T]) -> None:
        """Call a function for every item in the threads."""
        work = _Work(function, items)
        await _until_done([_threads().submit(work.run) for _ in range(min(thread_limit(), len(work)))], work.stop)
        work.raise_error()

    async def call[T](self, function: Callable[[], T]) -> T:
        """Return what a function returns."""
        future = _threads().submit(function)
        await _until_done([future], future.cancel)
        return future.result()


class _Work:
    """Items that several threads take from one queue."""

    def __init__(self, function: Callable[[Any], None], items: Iterable[Any]) -> None:
        self._function = function
        self._items = deque(items)
        self._errors: list[BaseException] = []
        # Who came to help, and who left again: neither is ever held by a caller who may be interrupted.
        self._came: list[None] = []
        self._left: SimpleQueue[None] = SimpleQueue()

    def __len__(self) -> int:
        return len(self._items)

    def run(self) -> None:
        """Work until nothing is left; an error is kept for whoever waits."""
        while True:
            try:
                item = self._items.popleft()
            except IndexError:
                return
            try:
                self._function(item)
            except BaseException as error:  # noqa: BLE001 (an interrupt, too, belongs to who waits)
                self._errors.append(error)
                self.stop()

    def help(self) -> None:
        """Work in a thread that its caller waits for."""
        self._came.append(None)
        self.run()
        self._left.put(None)

    def wait(self) -> None:
        """Wait until nobody helps; who comes later finds nothing to do."""
        left = 0
        while left < len(self._came):
            self._left.get()
            left += 1

    @property
    def failed(self) -> bool:
        """Whether anything went wrong so far."""
        return bool(self._errors)

    def stop(self) -> None:
        """Leave the rest undone."""
        self._items.clear()

    def raise_error(self) -> None:
        """Raise the first error, if there was one."""
        if self._errors:
            raise self._errors[0]


class _Helpers:
    """Threads that help callers who wait.

    A pool of the standard library does not bear an interrupt of its caller: futures stay without a thread, and the
    process waits for them when it ends. These threads are asked by one call that cannot be interrupted half way.
    """

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Begin anew, as a forked process must: threads do not live on in it."""
        self._asked: SimpleQueue[_Work] = SimpleQueue()
        self._number = 0

    def ask(self, work: _Work, helpers: int) -> None:
        """Have some threads help; fewer where the interpreter ends and has none to give."""
        with suppress(RuntimeError):
            while self._number < helpers:
                self._number += 1
                threading.Thread(target=self._help, name="puncta", args=(self._asked,), daemon=True).start()
        for _ in range(helpers):
            self._asked.put(work)

    @staticmethod
    def _help(asked: "SimpleQueue[_Work]") -> None:
        while True:
            asked.get().help()


_HELPERS = _Helpers()


async def _until_done(futures: list[Future[Any]], stop: Callable[[], object]) -> None:
    waiting = [asyncio.wrap_future(future) for future in futures]
    if not waiting:
        return
    for one in waiting:
        # What went wrong is raised by who asked for these threads; the loop need not complain of it, too.
        one.add_done_callback(lambda done: done.cancelled() or done.exception())
    try:
        await asyncio.wait(waiting)
    except asyncio.CancelledError:
        stop()
        # Whoever cancels a second time waits no less: these threads write to memory that the caller may let go of.
        while any(not one.done() for one in waiting):
            with suppress(asyncio.CancelledError):
                await asyncio.wait(waiting)
        raise


def _threads() -> ThreadPoolExecutor:
    global _pool  # noqa: PLW0603 (one pool for the process is the point)
    # Two first callers may each make one; the loser's has no thread yet, and goes.
    pool = _pool
    if pool is None:
        pool = _pool = ThreadPoolExecutor(thread_limit(), thread_name_prefix="puncta")
    return pool


def _forget_threads() -> None:
    global _pool  # noqa: PLW0603 (as above)
    _pool = None


def _processors() -> int:
    # A container or a job scheduler may have given this process fewer than the machine has.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


if hasattr(os, "register_at_fork"):
    # Threads do not live on in a forked process, though the pool that speaks of them does.
    os.register_at_fork(after_in_child=_forget_threads)
    os.register_at_fork(after_in_child=_HELPERS.renew)
