"""Every problem at a path, as data: the JSON of `puncta validate`."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from puncta.errors import MissingError, StoreError
from puncta.kinds._detect import kind_at
from puncta.points._check import check_points
from puncta.spec._problem import Problem
from puncta.store import Location, locate, recover
from puncta.store._locate import read_document

__all__ = ["validate", "validate_report"]

_CONSOLIDATED = "consolidated_metadata"


def validate(path: str | os.PathLike[str]) -> list[Problem]:
    """Return every problem of what is at a path, none for what is sound.

    Of a points element all of its index is checked, row by row; `puncta.points._check` says what that holds in memory.
    Of a store all its points elements are, and whether its consolidated metadata is up to date.

    Args:
        path: A points element or a SpatialData store.

    Returns:
        Problems whose `loc` is a path below `path`; one in the attributes of an element is a JSON pointer, which for
        an element of a store follows its path and `#`.

    Raises:
        MissingError: If nothing is there.
        UnsupportedError: If it is of a kind that is not known.

    """
    location = _located(path)
    return _store(location) if kind_at(location) == "store" else _points(location)


def validate_report(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the same as an object that can be written as JSON: path, kind, whether it is valid, and the problems."""
    location = _located(path)
    kind = kind_at(location)
    problems = _store(location) if kind == "store" else _points(location)
    listed = [{"loc": one.loc, "message": one.message, "kind": one.kind} for one in problems]
    return {"path": str(location.path), "kind": kind, "valid": not problems, "hash": None, "problems": listed}


def _located(path: str | os.PathLike[str]) -> Location:
    # a process that was killed in the middle of an exchange leaves one that only needs finishing
    recover(Path(os.fspath(path)))
    return locate(path)


def _points(location: Location) -> list[Problem]:
    problems = check_points(location.path)
    if location.inner:
        up = "/".join([".."] * len(location.inner.split("/")))
        problems += _stale(location.root, f"{up}/zarr.json", inside=location.inner)
    return problems


def _store(location: Location) -> list[Problem]:
    problems = []
    for path in _points_elements(location.root):
        found = check_points(location.root / path)
        problems += [Problem(_below(path, one.loc), one.message, one.kind) for one in found]
    try:
        read_document(location.root / "zarr.json")
    except MissingError:
        pass  # a store of Zarr format 2
    except StoreError as error:
        return [Problem("zarr.json", str(error), "json"), *problems]
    return problems + _stale(location.root, "zarr.json")


def _points_elements(root: Path) -> list[str]:
    """Return the points elements, those of which the metadata is damaged included."""
    folder = root / "points"
    if not folder.is_dir():
        return []
    names = sorted(path.name for path in folder.iterdir() if path.is_dir())
    return [f"points/{name}" for name in names if any((folder / name / one).exists() for one in _MARKS)]


# Any one of these makes a folder an element.
_MARKS = ("zarr.json", ".zgroup", "points.parquet")


def _below(path: str, loc: str) -> str:
    return f"{path}#{loc}" if loc.startswith("/") or not loc else f"{path}/{loc}"


def _stale(root: Path, loc: str, *, inside: str = "") -> list[Problem]:
    """Return whether the consolidated metadata of a store, where it has any, differs from what it repeats.

    Args:
        root: Folder of the store.
        loc: What the problem calls the document.
        inside: Look only at this node and what is below it.

    """
    try:
        consolidated = read_document(root / "zarr.json").get(_CONSOLIDATED)
    except (MissingError, StoreError):
        return []
    if not consolidated:
        return []
    metadata = consolidated.get("metadata") if isinstance(consolidated, dict) else None
    if not isinstance(metadata, dict):
        return [Problem(loc, "the consolidated metadata is not an object of nodes", "json")]
    known = {name: _plain(document) for name, document in metadata.items() if _is_inside(name, inside)}
    found = {name: document for name, document in _nodes(root, "") if _is_inside(name, inside)}
    other = sorted(name for name in {*known, *found} if known.get(name) != found.get(name))
    if not other:
        return []
    message = f"the consolidated metadata is stale: {len(other)} of {len(found)} nodes differ (first: {other[0]!r})"
    return [Problem(loc, f"{message}; redo it with zarr.consolidate_metadata(store)", "stale")]


def _is_inside(name: str, folder: str) -> bool:
    return not folder or name == folder or name.startswith(f"{folder}/")


def _plain(document: object) -> object:
    """Return the metadata of a node without the consolidated metadata that it carries itself."""
    if not isinstance(document, dict):
        return document
    return {key: value for key, value in document.items() if key != _CONSOLIDATED}


def _nodes(folder: Path, prefix: str) -> Iterator[tuple[str, object]]:
    """Yield path and metadata of every node below a folder; a document that cannot be read stands as None."""
    for inner in sorted(path for path in folder.iterdir() if path.is_dir()):
        name = f"{prefix}{inner.name}"
        try:
            document = read_document(inner / "zarr.json")
        except MissingError:
            continue
        except StoreError:
            yield name, None
            continue
        yield name, _plain(document)
        if document.get("node_type") == "group":
            yield from _nodes(inner, f"{name}/")
