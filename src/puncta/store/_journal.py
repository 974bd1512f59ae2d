"""The note that says which publication is under way, and how it is finished by whoever finds it."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from puncta.errors import StoreError
from puncta.store._atomic import flush_folder, write_file
from puncta.store._consolidated import refresh_consolidated
from puncta.store._disk import measure
from puncta.store._locate import is_there, read_document

_NAME = "journal.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """One publication; written when all of the new is on disk, discarded when the store is as it will be."""

    target: str
    """Where it goes, relative to the store (so that a store may be moved); `.` is the store itself."""

    built: str
    """Where the new directory is, relative to the workspace; after an exchange, the old one."""

    old: str
    """Where two renames put the old directory, relative to the workspace."""

    built_size: tuple[int, int]
    """Files and bytes of the new directory."""

    old_size: tuple[int, int] | None
    """Files and bytes of the old one; None where there was none."""


def write_journal(folder: Path, journal: Journal) -> None:
    """Write the journal of a workspace, and wait until it is on disk."""
    write_file(folder / _NAME, json.dumps(asdict(journal)).encode())


def read_journal(folder: Path) -> Journal | None:
    """Return the journal of a workspace, or None where nothing was being published.

    Raises:
        StoreError: If it cannot be read, or says what no journal of ours says.

    """
    path = folder / _NAME
    if not is_there(path):
        return None
    document = read_document(path)
    try:
        return _parse(document)
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(
            f"{path} is no journal of puncta ({error!r}); look into {folder} before you remove it"
        ) from error


def discard_journal(folder: Path) -> None:
    """Remove the journal, and wait until that is on disk."""
    path = folder / _NAME
    if is_there(path):
        path.unlink()
        flush_folder(folder)


def put_back(folder: Path, place: Path, journal: Journal) -> list[str]:
    """Fill the place that a publication left empty: with the new directory, or else with the old one.

    Returns:
        What was done, a sentence each; empty where the workspace holds neither.

    Raises:
        StoreError: If it holds one or both, and none is complete.

    """
    new, old = folder / journal.built, folder / journal.old
    if _is_complete(new, journal.built_size):
        _move(new, place)
        return [f"finished the interrupted publication of {place}"]
    if _is_complete(old, journal.old_size):
        _move(old, place)
        return [f"put the earlier {place} back, since the new one was incomplete"]
    if is_there(new) or is_there(old):
        raise StoreError(f"{place} is missing, and what {folder} holds of it is incomplete; restore it from a copy")
    return []


def refresh_above(place: Path, store: Path, *, scratch: Path) -> bool:
    """Redo the consolidated metadata of every group above a place that has any, the store's last.

    Returns:
        Whether any was stale.

    """
    above = [folder for folder in place.parents if folder.is_relative_to(store)]
    # all of them, so no `any` over a generator
    stale = [folder for folder in above if refresh_consolidated(folder, scratch=scratch)]
    return bool(stale)


def _parse(document: dict[str, Any]) -> Journal:
    paths = [document[key] for key in ("target", "built", "old")]
    # A journal lies where others may write: it must not lead out of the store or the workspace.
    if any(PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts for path in paths):
        raise ValueError(f"a path of {paths} leads outside")
    files, size = document["built_size"]
    old = document["old_size"]
    return Journal(
        target=paths[0],
        built=paths[1],
        old=paths[2],
        built_size=(int(files), int(size)),
        old_size=None if old is None else (int(old[0]), int(old[1])),
    )


def _is_complete(path: Path, size: tuple[int, int] | None) -> bool:
    return os.path.lexists(path) and measure(path) == size


def _move(path: Path, place: Path) -> None:
    try:
        path.rename(place)
        flush_folder(place.parent)
    except OSError as error:
        raise StoreError(f"could not put {place} back from {path}: {error.strerror}; move it there yourself") from error
