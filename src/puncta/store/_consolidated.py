"""The consolidated metadata of a store: one document that repeats every other one, and goes stale when they change.

Zarr format 3 keeps it inside the `zarr.json` of the root, in the form that zarr-python reads and writes; the format's
specification does not have it yet. zarr writes it in place, so a crash would leave a store without a root: here it is
gathered by hand and written at once.
"""

import json
from collections.abc import Iterator
from pathlib import Path
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
        nodes = sorted(_nodes(root, ""), key=lambda node: (node[0].count("/"), node[0]))
        fresh = document | {_KEY: _inline(dict(nodes))}
        if fresh == document:
            return False
        write_file(path, json.dumps(fresh, indent=2).encode(), scratch=scratch)
    return True


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


def _inline(metadata: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "inline", "must_understand": False, "metadata": metadata}
