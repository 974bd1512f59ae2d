"""The threads that decode: few, shared, and done when their caller goes on."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from puncta.arrays._shard_index import IndexCache
from puncta.arrays._threads import AsyncWorkers, BlockingWorkers, thread_limit
from puncta.arrays._turn import TURN
from puncta.errors import QueryError

MANY_ARRAYS = """
import sys, threading
import numpy as np, zarr
from puncta.arrays import BatchArray, read_batch
group = zarr.create_group(sys.argv[1])
for number in range(60):
    group.create_array(str(number), shape=(50_000,), dtype="u4", chunks=(5_000,))[:] = number
arrays = [BatchArray.open(sys.argv[1], str(number)) for number in range(60)]
answers = read_batch([(array, [0], [50_000]) for array in arrays])
assert [int(flat[7]) for flat, _ in answers] == list(range(60))
print(sum(thread.name.startswith("puncta") for thread in threading.enumerate()))
"""


def test_many_arrays_need_no_more_threads(tmp_path: Path) -> None:
    environment = os.environ | {"PUNCTA_THREADS": "2"}
    command = [sys.executable, "-c", MANY_ARRAYS, str(tmp_path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    assert int(done.stdout) <= 2


@pytest.mark.parametrize("wish", ["0", "-1", "many", "1.5", ""])
def test_a_number_of_threads_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, wish: str) -> None:
    monkeypatch.setenv("PUNCTA_THREADS", wish)
    with pytest.raises(QueryError, match="PUNCTA_THREADS"):
        thread_limit()


class Blocking:
    """Work that begins, and ends when it is told to."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.ended = 0

    def __call__(self, _: int) -> None:
        self.begun.set()
        self.go_on.wait(10)
        self.ended += 1


def cancelled(work: Blocking, times: int) -> int:
    """Return how much had ended when a cancelled caller went on."""

    async def ask() -> int:
        sharing = asyncio.create_task(AsyncWorkers().share(work, [1]))
        await asyncio.to_thread(work.begun.wait)
        for _ in range(times):
            sharing.cancel()
            await asyncio.sleep(0.02)
        threading.Timer(0.1, work.go_on.set).start()
        with pytest.raises(asyncio.CancelledError):
            await sharing
        return work.ended

    return asyncio.run(ask())


@pytest.mark.parametrize("times", [1, 2])
def test_a_cancelled_caller_goes_on_when_what_was_begun_has_ended(times: int) -> None:
    assert cancelled(Blocking(), times) == 1


def test_the_first_error_stops_the_rest_and_is_raised() -> None:
    done: list[int] = []

    def work(item: int) -> None:
        done.append(item)
        raise LookupError(item)

    with pytest.raises(LookupError):
        asyncio.run(BlockingWorkers().share(work, range(1000)))
    assert len(done) <= thread_limit()


def run_in_child(function: Callable[[], None]) -> int:
    """Return how a forked process ends that calls the function, or is killed when it hangs."""
    pid = os.fork()
    if pid == 0:
        function()
        os._exit(0)
    timer = threading.Timer(5, os.kill, [pid, 9])
    timer.start()
    _, status = os.waitpid(pid, 0)
    timer.cancel()
    return os.waitstatus_to_exitcode(status)


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_process_forked_in_the_middle_of_a_turn_does_not_wait_for_it() -> None:
    def take_turn() -> None:
        with TURN.lock:
            pass

    with TURN.lock:
        assert run_in_child(take_turn) == 0


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_threads_are_made_anew_in_a_forked_process() -> None:
    asyncio.run(AsyncWorkers().share(lambda _: None, [1]))
    assert run_in_child(lambda: asyncio.run(AsyncWorkers().share(lambda _: None, [1]))) == 0


def test_indexes_are_kept_up_to_a_bound_and_the_last_used_stay() -> None:
    import numpy as np  # noqa: PLC0415

    cache = IndexCache(bound=100)
    index = np.zeros((3, 2), np.int64)
    cache.keep("a", 1, index)
    cache.keep("b", 1, index)
    cache.find("a")
    cache.keep("c", 1, index)
    assert [cache.find(key) is not None for key in "abc"] == [True, False, True]
