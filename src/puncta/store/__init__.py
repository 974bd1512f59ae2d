"""Bytes and names on disk: where a path leads, and how what was built takes its place there at once."""

from puncta.store._atomic import exchange, write_file
from puncta.store._consolidated import refresh_consolidated
from puncta.store._copy import copy_tree
from puncta.store._disk import free_bytes, require_space, says_disk_full, tree_bytes
from puncta.store._locate import Location, children, locate, read_attributes
from puncta.store._publish import Workspace, recover

__all__ = [
    "Location",
    "Workspace",
    "children",
    "copy_tree",
    "exchange",
    "free_bytes",
    "locate",
    "read_attributes",
    "recover",
    "refresh_consolidated",
    "require_space",
    "says_disk_full",
    "tree_bytes",
    "write_file",
]
