"""Arrays that answer many ranges or boxes at once."""

import os
from collections.abc import Mapping
from typing import Any, Self, cast

import numpy as np
import zarr
from numpy.typing import ArrayLike
from zarr.errors import NodeTypeValidationError

from puncta.arrays._describe import layout_of
from puncta.arrays._layout import Layout
from puncta.arrays._outputs import Crops, Ranges
from puncta.arrays._read import read_batch, read_batch_async
from puncta.arrays._requests import BoxRequest, RangeRequest
from puncta.errors import MetadataError, MissingError, PunctaError
from puncta.store import FilesStore, LocalFiles, RemoteFiles, files_of_zarr, open_place


class _StoredArray:
    """What both kinds of arrays know: where their values are."""

    __slots__ = ("files", "layout")

    def __init__(self, files: LocalFiles | RemoteFiles, layout: Layout) -> None:
        self.files = files
        self.layout = layout

    @classmethod
    def from_array(cls, array: zarr.Array[Any] | zarr.AsyncArray[Any]) -> Self:
        """Return an array of zarr's, of any store, as one that answers many requests at once.

        A directory or an archive is read directly, by position; any other store through zarr's own interface.

        Args:
            array: An open array, of Zarr format 2 or 3.

        """
        opened = zarr.Array(array) if isinstance(array, zarr.AsyncArray) else array
        files, prefix = files_of_zarr(opened.store)
        return cls(files, layout_of(opened, files, "/".join(part for part in (prefix, opened.path) if part)))

    @classmethod
    def open(
        cls,
        path_or_url: str | os.PathLike[str],
        path: str = "",
        *,
        storage_options: Mapping[str, object] | None = None,
    ) -> Self:
        """Open an array of a store; reads its metadata and nothing else.

        Args:
            path_or_url: A directory, a zip archive, a place inside one of these, or an `http(s)://`, `s3://`,
                `gs://` or `az://` URL of either.
            path: Where in it the array is.
            storage_options: For a URL, handed to obstore unchanged: region, endpoint, token and others.

        Raises:
            MissingError: If nothing is there, or no array.
            QueryError: If a storage option is unknown, has a wrong value, or is given with a local path.
            UnsupportedError: If the URL, or a compressed archive, is of a kind that is not read.
            MetadataError: If zarr cannot make sense of its metadata.
            StoreError: If it cannot be read.

        """
        place = open_place(path_or_url, storage_options)
        key = "/".join(part for part in (place.key, path.strip("/")) if part)
        return cls(place.files, layout_of(_open(place.files, key), place.files, key))

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the array."""
        return self.layout.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of its values."""
        return self.layout.dtype

    @property
    def name(self) -> str:
        """Its store and its path there."""
        return self.layout.name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, shape={self.shape}, dtype={self.dtype})"

    def __getstate__(self) -> tuple[LocalFiles | RemoteFiles, Layout]:
        return self.files, self.layout

    def __setstate__(self, state: tuple[LocalFiles | RemoteFiles, Layout]) -> None:
        self.files, self.layout = state


def _open(files: LocalFiles | RemoteFiles, key: str) -> zarr.Array[Any]:
    name = f"{key} in {files.name}" if key else files.name
    try:
        return zarr.open_array(FilesStore(files, ""), path=key, mode="r")
    except PunctaError:
        raise
    except FileNotFoundError as error:
        raise MissingError(f"there is no array at {name}; check the path") from error
    except NodeTypeValidationError as error:
        if "'group'" not in str(error):
            raise MetadataError(f"zarr cannot make sense of the metadata of {name}: {error}") from error
        raise MissingError(f"{name} is a group and no array; give the path of one of its arrays") from error
    except (KeyError, TypeError, ValueError) as error:
        raise MetadataError(f"zarr cannot make sense of the metadata of {name}: {error}") from error


class BatchArray(_StoredArray):
    """An array that answers many ranges or boxes in one read.

    Can be pickled, and used from many threads and processes; a remote one not in a process that was forked after a
    first request, which is a `StoreError`: start workers by "spawn" or "forkserver".
    """

    __slots__ = ()

    def read_ranges(self, starts: ArrayLike, ends: ArrayLike) -> Ranges:
        """Return the values of half-open ranges, one behind the other.

        Ranges count values in C order. A range of an array of several axes lies within one row of the last axis, or
        covers whole rows of the first. Duplicates, overlaps and empty ranges are allowed.

        Args:
            starts: First value of each range, shape (n,), integers.
            ends: End of each range, exclusive, shape (n,), integers.

        Returns:
            The values in the order of the ranges, shape (sum of lengths,), and the lengths, shape (n,), int64.

        Raises:
            RangeError: If a range is reversed, leaves the array, or crosses a row.
            StoreError: If bytes cannot be read, or are damaged.

        """
        return cast("Ranges", read_batch([RangeRequest(self, starts, ends)])[0])

    def read_boxes(self, min_corners: ArrayLike, max_corners: ArrayLike, stack_uniform: bool = False) -> Crops:
        """Return crops of half-open boxes.

        Args:
            min_corners: First corner of each box, shape (n, k), integers, for the k leading axes; the others are
                read whole.
            max_corners: Last corner of each box, exclusive, shape (n, k), integers.
            stack_uniform: Whether crops of one shape come as one array of shape (n, *box, *trailing).

        Returns:
            A list of n crops, each of shape (*box, *trailing), or one array of all.

        Raises:
            RangeError: If a box is reversed or leaves the array, or boxes to be stacked differ in shape.
            StoreError: If bytes cannot be read, or are damaged.

        """
        return cast("Crops", read_batch([BoxRequest(self, min_corners, max_corners, stack_uniform)])[0])


class BatchAsyncArray(_StoredArray):
    """A `BatchArray` for code with an event loop: its reads are awaited.

    `open` and `from_array` block; call them before the loop, or in a thread.
    """

    __slots__ = ()

    async def read_ranges(self, starts: ArrayLike, ends: ArrayLike) -> Ranges:
        """Return what `BatchArray.read_ranges` returns."""
        return cast("Ranges", (await read_batch_async([RangeRequest(self, starts, ends)]))[0])

    async def read_boxes(self, min_corners: ArrayLike, max_corners: ArrayLike, stack_uniform: bool = False) -> Crops:
        """Return what `BatchArray.read_boxes` returns."""
        request = BoxRequest(self, min_corners, max_corners, stack_uniform)
        return cast("Crops", (await read_batch_async([request]))[0])
