"""What a build has finished, on disk, so that one that was stopped goes on from there."""

import pickle
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from puncta.indexing._arrow_files import written_beside
from puncta.indexing._crew import Crew

PLACED = "placed"
"""Name of the result after which finished work is worth keeping: all rows are on the grid."""


class Ledger:
    """Results of finished work, one file each, in a folder that only its owner may write to."""

    def __init__(self, folder: Path) -> None:
        """Start with what is in the folder, which is there by the time something is kept."""
        self._folder = folder

    @property
    def is_worth_keeping(self) -> bool:
        """Whether a build that is stopped now would have much to go on from."""
        return (self._folder / PLACED).exists()

    def find(self, name: str) -> object | None:
        """Return a result that was kept; None where there is none, or it was not written whole."""
        try:
            # written by this build alone: `BuildFolder` refuses a folder of another user's
            result: object = pickle.loads((self._folder / name).read_bytes())  # noqa: S301
        except (FileNotFoundError, EOFError, pickle.UnpicklingError):
            return None
        return result

    def keep(self, name: str, result: object) -> None:
        """Keep a result."""
        with written_beside(self._folder / name) as partial:
            partial.write_bytes(pickle.dumps(result, protocol=pickle.HIGHEST_PROTOCOL))


class LedgerCrew:
    """A crew that does only what is not in the ledger yet.

    The same build asks for the same work in the same order, so work is known by its number.
    """

    def __init__(self, crew: Crew, ledger: Ledger) -> None:
        self._crew = crew
        self._ledger = ledger
        self._calls = 0

    def map[Item, Result](
        self, task: Callable[[Item], Result], items: Sequence[Item], *, need: Callable[[Item], int] | None = None
    ) -> Iterator[Result]:
        """Yield what a task makes, or has made, of each item."""
        call, self._calls = self._calls, self._calls + 1
        found = [self._ledger.find(f"{call}-{number}") for number in range(len(items))]
        rest = [item for item, result in zip(items, found, strict=True) if result is None]
        fresh = self._crew.map(task, rest, need=need)
        left = deque(found)
        for number in range(len(items)):
            known = left.popleft()
            if known is not None:
                yield known  # type: ignore[misc]  # what the same task made of the same item
                continue
            result = next(fresh)
            self._ledger.keep(f"{call}-{number}", result)
            yield result
        # lets the crew end what it began
        for _ in fresh:
            raise RuntimeError("the crew made more than it was asked for")
