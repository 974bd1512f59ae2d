"""The one way from code that waits to code that is awaited."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def run[T](coroutine: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns; an interrupt cancels it and waits until it has ended.

    Inside a running event loop, as a notebook has one, it runs on a loop of its own in a thread.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    return _run_in_thread(coroutine)


def _run_in_thread[T](coroutine: Coroutine[Any, Any, T]) -> T:
    tasks: list[asyncio.Task[Any]] = []

    async def noted() -> T:
        task = asyncio.current_task()
        tasks.extend([task] if task else [])
        return await coroutine

    with ThreadPoolExecutor(max_workers=1) as thread:
        future = thread.submit(asyncio.run, noted())
        try:
            return future.result()
        except BaseException:
            # where it is not over, it was this thread that was interrupted
            for task in tasks if not future.done() else ():
                task.get_loop().call_soon_threadsafe(task.cancel)
            raise
