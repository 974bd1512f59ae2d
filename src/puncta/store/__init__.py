"""Bytes and names: where a path or URL leads, what is read there, and how what was built takes its place at once.

What needs zarr or obstore is loaded when it is first used: reading a points element's names does not wait for it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from puncta.store._atomic import exchange, write_file
from puncta.store._consolidated import consolidated_below, refresh_consolidated
from puncta.store._copy import copy_tree, link_tree
from puncta.store._disk import free_bytes, require_space, says_disk_full, tree_bytes
from puncta.store._files import Answer, LocalFile, LocalFiles, Place, Reads, RemoteFiles
from puncta.store._locate import Location, children, locate, read_attributes
from puncta.store._open import open_place
from puncta.store._publish import Workspace, recover

if TYPE_CHECKING:
    from puncta.store._bucket import Bucket, open_bucket
    from puncta.store._remote_groups import add_remote_member, read_remote_group
    from puncta.store._upload import require_free, upload
    from puncta.store._zarr_files import files_of_zarr
    from puncta.store._zarr_store import FilesStore

__all__ = [
    "Answer",
    "Bucket",
    "FilesStore",
    "LocalFile",
    "LocalFiles",
    "Location",
    "Place",
    "Reads",
    "RemoteFiles",
    "Workspace",
    "add_remote_member",
    "children",
    "consolidated_below",
    "copy_tree",
    "exchange",
    "files_of_zarr",
    "free_bytes",
    "link_tree",
    "locate",
    "open_bucket",
    "open_place",
    "read_attributes",
    "read_remote_group",
    "recover",
    "refresh_consolidated",
    "require_free",
    "require_space",
    "says_disk_full",
    "tree_bytes",
    "upload",
    "write_file",
]

_LOADED_LATE = {
    "Bucket": "_bucket",
    "FilesStore": "_zarr_store",
    "add_remote_member": "_remote_groups",
    "files_of_zarr": "_zarr_files",
    "open_bucket": "_bucket",
    "read_remote_group": "_remote_groups",
    "require_free": "_upload",
    "upload": "_upload",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401  # whatever the file gives
    if name not in _LOADED_LATE:
        raise AttributeError(f"module 'puncta.store' has no attribute {name!r}")
    return getattr(import_module(f"puncta.store.{_LOADED_LATE[name]}"), name)
