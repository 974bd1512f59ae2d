"""A batch is read: checked and planned, then every chunk read and decoded once, its values put in their places."""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, Protocol, cast

from numpy.typing import ArrayLike
from zarr.core.sync import sync

from puncta.arrays._local import read_local
from puncta.arrays._outputs import Crops, Outputs, Ranges, prepare
from puncta.arrays._plan import Plan, Request, plan_batch
from puncta.arrays._remote import read_remote
from puncta.arrays._requests import BoxRequest, HasLayout, RangeRequest
from puncta.arrays._threads import AsyncWorkers, BlockingWorkers, Workers
from puncta.errors import QueryError
from puncta.store import LocalFiles, RemoteFiles

# Bytes, decoded, of a share: enough to be worth handing to a thread, and few enough for the part of a processor's cache
# that is its own.
_SHARE = 1 << 20


class HasFiles(HasLayout, Protocol):
    """An array that can be read."""

    @property
    def files(self) -> LocalFiles | RemoteFiles:
        """Where its bytes are."""
        ...


type AnyRequest = Request | tuple[HasFiles, ArrayLike, ArrayLike]


def read_batch(requests: Iterable[AnyRequest], *, gap: int | None = None) -> list[Ranges | Crops]:
    """Return the answers to many requests of any arrays, read as one plan.

    Chunks are grouped by file, near ranges are merged, every chunk is read and decoded once however many requests ask
    for it, and it is dropped as soon as its values are copied. Memory: the answers; about 200 bytes a range for the
    plan; and while reading, about 2 MiB a thread, or from a server 16 requests of about 4 MiB, or one chunk where that
    is more.

    Args:
        requests: `RangeRequest` and `BoxRequest`; a tuple (array, starts, ends) is a `RangeRequest`.
        gap: Bytes between two wanted stretches of a file up to which both are one read. None: 0 for local files, and
            for remote ones 64 KiB, as long as not much more is read in vain than is wanted.

    Returns:
        In the order of the requests: for ranges (values, shape (sum of lengths,); lengths, shape (n,), int64), for
        boxes a list of crops or one stacked array. They are writable and share no memory.

    Raises:
        QueryError: If an array cannot be read in batches, or `PUNCTA_THREADS` is no number.
        RangeError: If a request cannot be answered; nothing is read then.
        StoreError: If bytes cannot be read, or are damaged.

    """
    asked = _requests(requests)
    if all(_are_near(asked)):
        return _finish(_read(asked, BlockingWorkers(), gap))
    return _wait(_read(asked, AsyncWorkers(), gap))


async def read_batch_async(requests: Iterable[AnyRequest], *, gap: int | None = None) -> list[Ranges | Crops]:
    """Return what `read_batch` returns, while the event loop goes on; cancelling it leaves nothing running."""
    return await _read(_requests(requests), AsyncWorkers(), gap)


async def _read(requests: Sequence[Request], workers: Workers, gap: int | None) -> list[Ranges | Crops]:
    are_near = _are_near(requests)
    near = [request for request, is_near in zip(requests, are_near, strict=True) if is_near]
    far = [request for request, is_near in zip(requests, are_near, strict=True) if not is_near]
    # Both are checked and allocated before either is read.
    planned = await workers.call(lambda: {True: _plan(near), False: _plan(far)} if far else {True: _plan(near)})
    for is_near, (plan, outputs) in planned.items():
        files: list[Any] = [_files_of((near if is_near else far)[first]) for first in plan.first_request]
        await (_read_near if is_near else read_remote)(files, plan, outputs, workers=workers, gap=gap)
    answers = {is_near: iter(outputs.answers) for is_near, (_, outputs) in planned.items()}
    return [next(answers[is_near]) for is_near in are_near]


def _plan(requests: Sequence[Request]) -> tuple[Plan, Outputs]:
    asked, outputs = prepare(requests)
    return plan_batch(asked), outputs


async def _read_near(files: Sequence[Any], plan: Plan, outputs: Outputs, *, workers: Workers, gap: int | None) -> None:
    await workers.share(partial(read_local, files, plan, outputs, gap=gap), plan.shares(_SHARE))


def _requests(requests: Iterable[AnyRequest]) -> list[Request]:
    """Return requests, a tuple (array, starts, ends) as the `RangeRequest` that it is.

    Raises:
        QueryError: If the array of one cannot be read in batches.

    """
    made = [
        request if isinstance(request, RangeRequest | BoxRequest) else RangeRequest(*request) for request in requests
    ]
    wrong = [number for number, request in enumerate(made) if not hasattr(request.array, "layout")]
    if wrong:
        kind = type(made[wrong[0]].array).__name__
        raise QueryError(
            f"{len(wrong)} of {len(made)} requests are not of a BatchArray (first: number {wrong[0]}, {kind}); "
            "make one with BatchArray.from_array"
        )
    return made


def _files_of(request: Request) -> LocalFiles | RemoteFiles:
    return cast("HasFiles", request.array).files


def _are_near(requests: Sequence[Request]) -> list[bool]:
    """Return for each request whether the bytes are at hand."""
    files = [_files_of(request) for request in requests]
    # To look whether an object has all that a protocol names takes longer than planning a request.
    kinds = {kind: isinstance(one, LocalFiles) for kind, one in {type(one): one for one in files}.items()}
    return [kinds[type(one)] for one in files]


def _wait[T](coroutine: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns, run on zarr's event loop; an interrupt stops it there, too."""
    tasks: list[asyncio.Task[Any]] = []

    async def run() -> T:
        task = asyncio.current_task()
        tasks.extend([task] if task else [])
        return await coroutine

    try:
        return sync(run())
    except BaseException:
        for task in tasks:
            task.get_loop().call_soon_threadsafe(task.cancel)
        raise


def _finish[T](coroutine: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise RuntimeError("a read of local files waited for something")
