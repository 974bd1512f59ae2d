"""A crew of dask workers, on this machine or many, that share a file system.

Rows never pass through the scheduler: workers read and write files, and what travels is which rows to take and how many
there were. The task itself lies in the shared folder too, so that a worker that joins late, or in place of one that
was lost, finds it there.
"""

import pickle
import secrets
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from puncta.errors import StoreError, UnsupportedError
from puncta.indexing._arrow_files import written_beside

# A worker that dies takes what it was doing with it; work that kills every worker it is given to is no accident.
_RETRIES = 3

# Until then a scheduler that is not there yet is waited for.
_CONNECT_SECONDS = 10


class DaskCrew:
    """Workers of a dask cluster.

    Args:
        address: Address of the scheduler, or a `distributed.Client`.
        folders: Folders that every worker must see; tasks are put into the first.

    Raises:
        UnsupportedError: If distributed is not installed.
        StoreError: If there is no scheduler at the address, or a worker does not see a folder.

    """

    def __init__(self, address: object, folders: Sequence[Path]) -> None:
        self._folder = folders[0]
        self._client = _client_of(address)
        self._is_own = isinstance(address, str)
        for folder in folders:
            _require_shared(self._client, folder)

    def map[Item, Result](
        self,
        task: Callable[[Item], Result],
        items: Sequence[Item],
        *,
        need: Callable[[Item], int] | None = None,  # noqa: ARG002  # workers have memory of their own
    ) -> Iterator[Result]:
        """Yield what a task makes of each item; work of a worker that is lost is done by another."""
        path = self._folder / f"task-{secrets.token_hex(4)}"
        with written_beside(path) as partial:
            partial.write_bytes(pickle.dumps(task, protocol=pickle.HIGHEST_PROTOCOL))
        # not pure: the same rows are written again where they are lost, and no key may stand for an earlier build's
        submit: Any = self._client.submit
        futures = deque(submit(_run, str(path), item, pure=False, retries=_RETRIES) for item in items)
        try:
            while futures:
                future = futures.popleft()
                yield future.result()
                future.release()
        finally:
            self._client.cancel(list(futures))
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Leave the cluster, where the connection is this crew's own."""
        if self._is_own:
            self._client.close()


def _run(path: str, item: object) -> object:
    """Do one piece of work, on a worker."""
    return _task_at(path)(item)


@lru_cache(maxsize=2)
def _task_at(path: str) -> Callable[[object], object]:
    # the folder is private to whoever runs the build, and so are the workers
    task: Callable[[object], object] = pickle.loads(Path(path).read_bytes())  # noqa: S301
    return task


def _client_of(address: object) -> Any:  # noqa: ANN401  # distributed has no types
    try:
        from distributed import Client  # noqa: PLC0415  # takes a second, and few builds have a cluster
    except ImportError as error:
        raise UnsupportedError(
            "building on a cluster needs dask's distributed, which is not installed: pip install 'puncta[dask]'"
        ) from error
    if isinstance(address, Client):
        return address
    try:
        return Client(str(address), set_as_default=False, timeout=_CONNECT_SECONDS)
    except (OSError, ValueError, TimeoutError) as error:
        raise StoreError(
            f"there is no dask scheduler at {address!s} ({error}); start one with: dask scheduler"
        ) from error


def _require_shared(client: Any, folder: Path) -> None:  # noqa: ANN401  # as above
    """Raise where a worker does not see a folder, or sees another one at its path."""
    word = secrets.token_hex(8)
    probe = folder / f"probe-{word}"
    probe.write_text(word)
    try:
        seen: dict[str, str | None] = client.run(_read_probe, str(probe))
    finally:
        probe.unlink(missing_ok=True)
    if not seen:
        raise StoreError("the dask cluster has no workers; start some with: dask worker ADDRESS")
    blind = sorted(worker for worker, text in seen.items() if text != word)
    if blind:
        raise StoreError(
            f"{len(blind)} of {len(seen)} dask workers do not see {folder} (first: {blind[0]}); give a folder that "
            "all machines share with --tmp, and write the store to one"
        )


def _read_probe(path: str) -> str | None:
    try:
        return Path(path).read_text()
    except OSError:
        return None
