"""Arrays from metadata at hand: consolidated metadata has that of many, and to read each anew takes a request each."""

from collections.abc import Mapping
from typing import Any

import zarr
from zarr.core.array import AsyncArray
from zarr.core.metadata import ArrayV3Metadata
from zarr.storage import StorePath

from puncta.arrays._array import BatchArray
from puncta.arrays._describe import layout_of
from puncta.errors import MetadataError
from puncta.store import FilesStore, LocalFiles, RemoteFiles

__all__ = ["described_array"]


def described_array(files: LocalFiles | RemoteFiles, key: str, document: Mapping[str, Any]) -> BatchArray:
    """Return the array that a `zarr.json` of format 3 describes; reads nothing.

    Args:
        files: Where its bytes are.
        key: Where among them it is, without a slash at either end.
        document: Its metadata.

    Raises:
        MetadataError: If zarr cannot make sense of the metadata, or it is of no array.

    """
    name = f"{files.name}/{key}"
    if document.get("node_type") != "array":
        raise MetadataError(f"{name} is no array, but a {document.get('node_type')!r}; check the path")
    try:
        metadata = ArrayV3Metadata.from_dict(dict(document))
        array: zarr.Array[Any] = zarr.Array(
            AsyncArray(metadata=metadata, store_path=StorePath(FilesStore(files), path=key))
        )
        return BatchArray(files, layout_of(array, files, key))
    except (KeyError, TypeError, ValueError) as error:
        raise MetadataError(f"zarr cannot make sense of the metadata of {name}: {error}") from error
