"""The groups of a Zarr store in a bucket: read, made where they are missing, told of a new member.

What is known of the other members is left as it is: to read them all anew would take a request for each.
"""

import json
from pathlib import PurePosixPath
from typing import Any, Final

from puncta.errors import StoreError
from puncta.store._bucket import Bucket, ConflictError, Found
from puncta.store._consolidated import with_member
from puncta.store._event_loop import run

_ATTEMPTS: Final = 20
"""Of each round of writers that come between each other one succeeds, so this is how many may."""

_GROUP: Final = b'{\n  "zarr_format": 3,\n  "node_type": "group",\n  "attributes": {}\n}'


def read_remote_group(bucket: Bucket, key: str) -> dict[str, Any] | None:
    """Return the metadata of a Zarr node of format 3, or `{"zarr_format": 2}`; None where there is none.

    Raises:
        StoreError: If it cannot be read, or is no JSON object.
        MissingError: If there is no such bucket.

    """
    return run(_read_group(bucket, key))


def add_remote_member(bucket: Bucket, store: str, path: str) -> bool:
    """Make the groups above a node that are missing, and tell the consolidated metadata of those above it.

    Written on the condition that nobody else has written since it was read, else read and tried again.

    Args:
        bucket: Where the store is.
        store: Its name there.
        path: Of the node in it, whose own metadata is consolidated.

    Returns:
        Whether any was missing or did not know it.

    Raises:
        StoreError: If anything cannot be read or written.

    """
    return run(_add_member(bucket, store, path))


async def _read_group(bucket: Bucket, key: str) -> dict[str, Any] | None:
    found = await bucket.read(_document(key, "zarr.json"))
    if found is not None:
        return _parsed(found, bucket.path(_document(key, "zarr.json")))
    if await bucket.read(_document(key, ".zgroup")) is not None:
        return {"zarr_format": 2}
    return None


async def _add_member(bucket: Bucket, store: str, path: str) -> bool:
    member = await _read_group(bucket, _document(store, path))
    if member is None:
        raise StoreError(f"{bucket.path(_document(store, path))} vanished; somebody else removed it")
    changed = False
    for above in PurePosixPath(path).parents:
        group = above.as_posix() if above.name else ""
        inner = path[len(group) :].strip("/")
        changed |= await _tell(bucket, _document(store, group), inner, member)
    return changed


async def _tell(bucket: Bucket, group: str, inner: str, member: dict[str, Any]) -> bool:
    key = _document(group, "zarr.json")
    for _ in range(_ATTEMPTS):
        found = await bucket.read(key)
        data = _GROUP if found is None else _told(found, bucket.path(key), inner, member)
        if found is not None and data == found.data:
            return False
        try:
            await bucket.write(key, data, over=found)
        except ConflictError:
            continue
        return True
    raise StoreError(
        f"{bucket.path(key)} was written by somebody else in each of {_ATTEMPTS} attempts to add {inner!r} to its "
        "consolidated metadata; the element itself is complete: consolidate the metadata of the store again"
    )


def _told(found: Found, path: str, inner: str, member: dict[str, Any]) -> bytes:
    """Return the document of a group that knows a member; its very bytes where it does, or has nothing to know."""
    document = _parsed(found, path)
    if not document.get("consolidated_metadata"):
        return found.data
    fresh = with_member(document, inner, member)
    return found.data if fresh == document else json.dumps(fresh, indent=2).encode()


def _parsed(found: Found, path: str) -> dict[str, Any]:
    try:
        document = json.loads(found.data)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} is not valid JSON ({error}); restore it from a copy of the store") from error
    if not isinstance(document, dict):
        raise StoreError(f"{path} holds a JSON {type(document).__name__}, not an object; restore it from a copy")
    return document


def _document(key: str, name: str) -> str:
    return f"{key}/{name}".strip("/")
