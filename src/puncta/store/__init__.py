"""Bytes and names: where a path or URL leads, what is read there, and how what was built takes its place at once.

What needs zarr is loaded when it is first used, so that reading a points element's names does not wait for it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from puncta.store._atomic import exchange, write_file
from puncta.store._consolidated import refresh_consolidated
from puncta.store._copy import copy_tree
from puncta.store._disk import free_bytes, require_space, says_disk_full, tree_bytes
from puncta.store._files import Answer, LocalFile, LocalFiles, Place, Reads, RemoteFiles
from puncta.store._locate import Location, children, locate, read_attributes
from puncta.store._open import open_place
from puncta.store._publish import Workspace, recover

if TYPE_CHECKING:
    from puncta.store._zarr_files import files_of_zarr
    from puncta.store._zarr_store import FilesStore

__all__ = [
    "Answer",
    "FilesStore",
    "LocalFile",
    "LocalFiles",
    "Location",
    "Place",
    "Reads",
    "RemoteFiles",
    "Workspace",
    "children",
    "copy_tree",
    "exchange",
    "files_of_zarr",
    "free_bytes",
    "locate",
    "open_place",
    "read_attributes",
    "recover",
    "refresh_consolidated",
    "require_space",
    "says_disk_full",
    "tree_bytes",
    "write_file",
]

_NEED_ZARR = {"FilesStore": "_zarr_store", "files_of_zarr": "_zarr_files"}


def __getattr__(name: str) -> Any:  # noqa: ANN401  # whatever the file gives
    if name not in _NEED_ZARR:
        raise AttributeError(f"module 'puncta.store' has no attribute {name!r}")
    return getattr(import_module(f"puncta.store.{_NEED_ZARR[name]}"), name)
