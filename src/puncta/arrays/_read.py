"""A batch is read: checked and planned, then every chunk read and decoded once, its values put in their places."""

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
from puncta.arrays._share import Share
from puncta.arrays._threads import AsyncWorkers, BlockingWorkers, Workers
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


def read_batch(requests: Iterable[AnyRequest]) -> list[Ranges | Crops]:
    """Return the answers to many requests of any arrays, read as one plan.

    Chunks are grouped by file, near ranges are merged, every chunk is read and decoded once however many requests ask
    for it, and it is dropped as soon as its values are copied. Memory: the answers, and a bounded number of chunks.

    Args:
        requests: `RangeRequest` and `BoxRequest`; a tuple (array, starts, ends) is a `RangeRequest`.

    Returns:
        In the order of the requests: for ranges (values, shape (sum of lengths,); lengths, shape (n,), int64), for
        boxes a list of crops or one stacked array. They are writable and share no memory.

    Raises:
        RangeError: If a request cannot be answered; nothing is read then.
        StoreError: If bytes cannot be read, or are damaged.

    """
    asked = _requests(requests)
    if all(_are_near(asked)):
        return _finish(_read(asked, BlockingWorkers()))
    return sync(_read(asked, AsyncWorkers()))


async def read_batch_async(requests: Iterable[AnyRequest]) -> list[Ranges | Crops]:
    """Return what `read_batch` returns, while the event loop goes on; cancelling it leaves nothing running."""
    return await _read(_requests(requests), AsyncWorkers())


async def _read(requests: Sequence[Request], workers: Workers) -> list[Ranges | Crops]:
    are_near = _are_near(requests)
    near = [request for request, is_near in zip(requests, are_near, strict=True) if is_near]
    far = [request for request, is_near in zip(requests, are_near, strict=True) if not is_near]
    # Both are checked and allocated before either is read.
    planned = await workers.call(lambda: {True: _plan(near), False: _plan(far)} if far else {True: _plan(near)})
    for is_near, (plan, outputs) in planned.items():
        files = [_files_of((near if is_near else far)[first]) for first in plan.first_request]
        await (_read_near if is_near else _read_far)(files, plan, outputs, workers=workers)
    answers = {is_near: iter(outputs.answers) for is_near, (_, outputs) in planned.items()}
    return [next(answers[is_near]) for is_near in are_near]


def _plan(requests: Sequence[Request]) -> tuple[Plan, Outputs]:
    asked, outputs = prepare(requests)
    return plan_batch(asked), outputs


async def _read_near(files: Sequence[Any], plan: Plan, outputs: Outputs, *, workers: Workers) -> None:
    await workers.share(partial(read_local, files, plan, outputs), plan.shares(_SHARE))


async def _read_far(files: Sequence[Any], plan: Plan, outputs: Outputs, *, workers: Workers) -> None:
    shares = [(files[parts[0].layout], Share(plan, parts, outputs)) for parts in plan.shares(0)]
    await read_remote(shares, workers)


def _requests(requests: Iterable[AnyRequest]) -> list[Request]:
    return [
        request if isinstance(request, RangeRequest | BoxRequest) else RangeRequest(*request) for request in requests
    ]


def _files_of(request: Request) -> LocalFiles | RemoteFiles:
    return cast("HasFiles", request.array).files


def _are_near(requests: Sequence[Request]) -> list[bool]:
    """Return for each request whether the bytes are at hand."""
    files = [_files_of(request) for request in requests]
    # To look whether an object has all that a protocol names takes longer than planning a request.
    kinds = {kind: isinstance(one, LocalFiles) for kind, one in {type(one): one for one in files}.items()}
    return [kinds[type(one)] for one in files]


def _finish[T](coroutine: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise RuntimeError("a read of local files waited for something")
