"""The consolidated metadata of a store: one document that repeats every other one, and goes stale when they change.

Zarr format 3 keeps it inside the `zarr.json` of the root, in the form that zarr-python reads and writes; the format's
specification does not have it yet. zarr writes it in place, so a crash would leave a store without a root: here it is
gathered by hand and written at once.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from puncta.errors import MissingError
from puncta.store._atomic import one_at_a_time, write_file
from puncta.store._locate import is_there, read_document

_KEY = "consolidated_metadata"


def refresh_consolidated(root: Path, *, scratch: Path | None = None) -> bool:
    """Make the consolidated metadata of a group agree with what is below it, where the group has any.

    Args:
        root: Folder of the group.
        scratch: A folder of the same file system for the temporary file; default is the group itself.

    Returns:
        Whether it was stale and is written anew. False where there is none, which stays so.

    Raises:
        StoreError: If a document cannot be read; the root is then as it was.
        SpaceError: If the disk is full; likewise.

    """
    path = root / "zarr.json"
    if not is_there(path):
        return False
    # two processes that each publish an element must not leave out the other's
    with one_at_a_time(root):
        document = read_document(path)
        if not document.get(_KEY):
            return False
        fresh = document | {_KEY: consolidated_below(root)}
        if fresh == document:
            return False
        write_file(path, json.dumps(fresh, indent=2).encode(), scratch=scratch)
    return True


def consolidated_below(folder: Path) -> dict[str, Any]:
    """Return the consolidated metadata of a group: what its `zarr.json` says of all that is below it.

    Raises:
        StoreError: If a document cannot be read.

    """
    return _inline(dict(_nodes(folder, "")))


def with_member(document: Mapping[str, Any], path: str, member: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of a group, whose consolidated metadata has or gets a member with all that is below it.

    Args:
        document: Of the group, with consolidated metadata.
        path: Of the member, from the group; groups between that are missing are put in, without attributes.
        member: Its document, with consolidated metadata of its own.

    """
    nodes = {name: node for name, node in document[_KEY]["metadata"].items() if not f"{name}/".startswith(f"{path}/")}
    for above in PurePosixPath(path).parents:
        if above.name:
            empty = {"zarr_format": 3, "node_type": "group", "attributes": {}, _KEY: _inline({})}
            nodes.setdefault(above.as_posix(), empty)
    nodes[path] = {**member, _KEY: _inline({})}
    nodes |= {f"{path}/{name}": node for name, node in member.get(_KEY, _inline({}))["metadata"].items()}
    return {**document, _KEY: _inline(nodes)}


def _nodes(folder: Path, prefix: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield path and metadata of every group and array below a folder; what has no `zarr.json` is no node."""
    for inner in sorted(path for path in folder.iterdir() if path.is_dir()):
        try:
            document = read_document(inner / "zarr.json")
        except MissingError:
            continue
        name = f"{prefix}{inner.name}"
        if document.get("node_type") == "group":
            # readers want every group to carry an own, empty one; those of its members stand in the root's
            yield name, document | {_KEY: _inline({})}
            yield from _nodes(inner, f"{name}/")
        else:
            yield name, document


def _inline(nodes: dict[str, Any]) -> dict[str, Any]:
    ordered = sorted(nodes.items(), key=lambda node: (node[0].count("/"), node[0]))
    return {"kind": "inline", "must_understand": False, "metadata": dict(ordered)}
