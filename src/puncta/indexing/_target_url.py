"""Where an element goes in an object store, and how what was built on this machine gets there (P22)."""

import os
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from puncta.errors import OverwriteError, SourceError, StoreError, UnsupportedError
from puncta.indexing._destination import RemotePlace, Target, check_name, is_element
from puncta.store import add_remote_member, open_bucket, read_remote_group, require_free, upload
from puncta.store._locate import is_there

__all__ = ["put_there", "resolve_url"]

_MAX_HOME: Final = 100
"""Characters of a folder's name: systems allow 255 bytes."""


def resolve_url(
    url: str,
    name: str | None,
    own_name: str,
    *,
    is_alone: bool,
    storage_options: Mapping[str, object],
    tmp: str | os.PathLike[str] | None,
) -> Target:
    """Return where an element goes in an object store.

    Asks the store what is there, so that what cannot be done is said before anything is built.

    Args:
        url: The URL of a store, there or new; or of an element that stands alone.
        name: The name asked for.
        own_name: The name otherwise.
        is_alone: Whether the element has no store around it.
        storage_options: What obstore takes for such a URL, unchanged.
        tmp: Folder to build in; the system's for temporary files.

    Raises:
        UnsupportedError: If nothing can be written to such a URL, or what is there is not changed.
        OverwriteError: If something is there.
        SourceError: If the URL leads into a store, or to an element.
        QueryError: If an option is unknown or has a wrong value.
        StoreError: If the store cannot be read.
        MissingError: If there is no such bucket.

    """
    bucket, key = open_bucket(url, storage_options)
    _refuse_inside(bucket.path(key), key)
    last = key.rpartition("/")[2] or bucket.name.rpartition("/")[2]
    home = Path(tempfile.gettempdir() if tmp is None else tmp).absolute() / re.sub(r"[^\w.-]", "_", last)[-_MAX_HOME:]
    remote = RemotePlace(bucket=bucket, key=key)
    found = read_remote_group(bucket, key)
    if is_alone:
        _require_no_group(bucket.path(key), found)
        require_free(bucket, key)
        return Target(store=home, name=home.name, form="element", replace=False, remote=remote)
    element_name = own_name if name is None else name
    check_name(element_name)
    if found is None:
        require_free(bucket, key)
        return Target(store=home, name=element_name, form="new store", replace=False, remote=remote)
    _check_store(bucket.path(key), found)
    target = Target(store=home, name=element_name, form="into a store", replace=False, remote=remote)
    _require_no_element(target, remote)
    return target


def put_there(built: Path, target: Target, progress: Callable[[str, int, int], None] | None) -> None:
    """Put what was built below the URL of a target: an element, or a store with one.

    Where the object store fails, what was built is kept beside its workspace, and a note says where.

    Raises:
        OverwriteError: If something appeared there meanwhile.
        StoreError: If it cannot be put there.

    """
    remote = target.remote
    if remote is None:
        raise SourceError(f"{target.path} is on this machine, so nothing is put to a URL")
    key, documents = remote.key, ["zarr.json"]
    if target.form == "new store":
        documents = [f"{target.inner}/zarr.json", "points/zarr.json", "zarr.json"]
    elif target.form == "into a store":
        key = f"{key}/{target.inner}".strip("/")
    report = None if progress is None else lambda done, total: progress("uploading", done, total)
    try:
        upload(remote.bucket, built, key, last=documents, progress=report)
    except StoreError as error:
        error.add_note(f"what was built is kept in {_keep(built, target.store)}")
        raise
    if target.form == "into a store":
        add_remote_member(remote.bucket, remote.key, target.inner)


def _keep(built: Path, place: Path) -> Path:
    """Move what was built out of its workspace, which is about to be removed."""
    number = 0
    kept = place
    while is_there(kept):
        number += 1
        kept = place.with_name(f"{place.name}-{number}")
    built.rename(kept)
    return kept


def _refuse_inside(url: str, key: str) -> None:
    above, _, _ = key.rpartition("/")
    parts = above.split("/")
    store = next((number for number, part in enumerate(parts, 1) if part.lower().endswith(".zarr")), None)
    if store is not None:
        root = url[: len(url) - len(key)] + "/".join(parts[:store])
        raise SourceError(f"{url} lies inside the store {root}; give the store itself, and the element as --name")


def _require_no_group(url: str, found: Mapping[str, Any] | None) -> None:
    if found is None:
        return
    if is_element(_attributes(found)):
        raise OverwriteError(f"{url} exists, and elements in an object store are not replaced; give another -o")
    raise UnsupportedError(
        f"{url} is a store, and spatialdata cannot read an element without points.parquet in it; give --layout both, "
        "or a new -o for the element alone"
    )


def _check_store(url: str, found: Mapping[str, Any]) -> None:
    if found.get("zarr_format") == 2:  # noqa: PLR2004  # the name of the format
        raise UnsupportedError(f"{url} is a Zarr v2 store, which puncta never changes; give a new -o")
    if found.get("node_type") != "group":
        raise SourceError(f"{url} is a Zarr array, not a store; give another -o")
    if is_element(_attributes(found)):
        raise SourceError(f"{url} is a points element, not a store; give another -o")


def _require_no_element(target: Target, remote: RemotePlace) -> None:
    key = f"{remote.key}/{target.inner}".strip("/")
    if read_remote_group(remote.bucket, key) is None:
        require_free(remote.bucket, key)
        return
    # an upload that was stopped after its commit has left the store's own metadata without it
    was_unknown = add_remote_member(remote.bucket, remote.key, target.inner)
    done = " (the metadata of the store did not know it, and now does)" if was_unknown else ""
    raise OverwriteError(
        f"{target.address} exists{done}, and elements in an object store are not replaced; give another --name or -o"
    )


def _attributes(document: Mapping[str, Any]) -> Mapping[str, Any]:
    attributes = document.get("attributes")
    return attributes if isinstance(attributes, Mapping) else {}
