"""An indexed points element in any place: its metadata, and the arrays below it, read when they are first needed.

Where the element's `zarr.json` carries consolidated metadata, no request is needed to know which arrays there are.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from puncta.arrays import BatchArray, RangeRequest, read_batch
from puncta.arrays._described import described_array
from puncta.errors import MetadataError, PunctaError, StoreError, UnsupportedError
from puncta.points._fetch import Files, read_files
from puncta.store._directory import Directory

__all__ = ["Element", "joined", "parsed"]

type Document = Mapping[str, Any]
type Integers = NDArray[np.int64]


class Element:
    """A points element: where it is, its attributes, and what is below it.

    May be used from many threads, and pickled.

    Args:
        files: Where it is.
        key: Its name there; empty for all of the files.
        document: Its `zarr.json`; only attributes where it has none.
        store: Folder of the store that it lies in, where that is a folder of this machine.

    """

    def __init__(self, files: Files, key: str, *, document: Document, store: Path | None = None) -> None:
        self.files = files
        self.key = key
        self.document = document
        self.store = store
        self.attrs: dict[str, Any] = dict(document.get("attributes") or {})
        """Its attributes."""
        below = (document.get("consolidated_metadata") or {}).get("metadata") or {}
        self._below: dict[str, Document | None] = dict(below)
        # an empty one is what groups carry inside of the root's: it says nothing of what is below
        self._is_consolidated = bool(below)
        self._arrays: dict[str, BatchArray] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.files, self.key, self.document, self.store)

    @property
    def location(self) -> str:
        """Path or URL of the element."""
        return f"{self.files.name.rstrip('/')}/{self.key}" if self.key else self.files.name

    @property
    def folder(self) -> Path:
        """Folder of the element.

        Raises:
            UnsupportedError: If it is no folder of this machine.

        """
        if not isinstance(self.files, Directory):
            raise UnsupportedError(f"{self.location} is no folder of this machine; use its location")
        return Path(self.location)

    def key_of(self, path: str) -> str:
        """Return the name of a file among the files from its path below the element."""
        return joined(self.key, path)

    def documents(self, paths: Sequence[str]) -> list[Document | None]:
        """Return the metadata of nodes below the element, None for each that is not there; in one round of requests.

        Raises:
            StoreError: If one cannot be read.

        """
        unknown = [path for path in dict.fromkeys(paths) if path not in self._below]
        if unknown and not self._is_consolidated:
            self._look(unknown)
        return [self._below.get(path) for path in paths]

    def has(self, path: str) -> bool:
        """Say whether there is a group or an array below the element; "could not look" is an error."""
        return self.documents([path])[0] is not None

    def batch_arrays(self, paths: Sequence[str]) -> list[BatchArray | None]:
        """Return arrays below the element, None for each that is not there; reads no value."""
        return [self._array(path, document) for path, document in zip(paths, self.documents(paths), strict=True)]

    def batch_array(self, path: str) -> BatchArray:
        """Return an array below the element; reads no value.

        Raises:
            StoreError: If it is missing, or its metadata cannot be understood.

        """
        (array,) = self.batch_arrays([path])
        if array is None:
            raise self._missing(path)
        return array

    def arrays_there(self, paths: Sequence[str]) -> list[NDArray[Any] | None]:
        """Return whole arrays, None for each that is not there, read as one plan.

        Raises:
            StoreError: If one cannot be read.

        """
        arrays = self.batch_arrays(paths)
        found = [(path, array) for path, array in zip(paths, arrays, strict=True) if array is not None]
        values = iter(self._values([path for path, _ in found], [array for _, array in found]))
        return [None if array is None else next(values) for array in arrays]

    def arrays(self, paths: Sequence[str]) -> list[NDArray[Any]]:
        """Return whole arrays, read as one plan.

        Raises:
            StoreError: If one is missing or cannot be read.

        """
        found = self.arrays_there(paths)
        missing = [path for path, values in zip(paths, found, strict=True) if values is None]
        if missing:
            raise self._missing(missing[0])
        return [values for values in found if values is not None]

    def array(self, path: str) -> NDArray[Any]:
        """Return a whole array; errors as in `arrays`."""
        return self.arrays([path])[0]

    def ranges(self, paths: Sequence[str], starts: Integers, ends: Integers) -> list[NDArray[Any]]:
        """Return the same half-open ranges of arrays, one behind the other, read as one plan.

        Raises:
            StoreError: If an array is missing or cannot be read.

        """
        return self._read(paths, [self.batch_array(path) for path in paths], [(starts, ends)] * len(paths))

    def strings(self, path: str) -> list[str]:
        """Return a whole array of strings; errors as in `arrays`."""
        return [str(value) for value in self.array(path).tolist()]

    def _array(self, path: str, document: Document | None) -> BatchArray | None:
        if document is None:
            return None
        array = self._arrays.get(path)
        if array is None:
            try:
                array = described_array(self.files, self.key_of(path), document)
            except MetadataError as error:
                raise self._unreadable(path, error) from error
            self._arrays[path] = array
        return array

    def _values(self, paths: Sequence[str], arrays: Sequence[BatchArray]) -> list[NDArray[Any]]:
        return self._read(paths, arrays, [(np.zeros(1, np.int64), np.asarray(array.shape[:1])) for array in arrays])

    def _read(
        self, paths: Sequence[str], arrays: Sequence[BatchArray], ranges: Sequence[tuple[Integers, Integers]]
    ) -> list[NDArray[Any]]:
        """Return ranges of arrays; a file that is not there is an error, unless it stands for the fill value."""
        try:
            return _read_ranges([_strict(array) for array in arrays], ranges)
        except PunctaError:
            # Where consolidated metadata speaks of an array that is gone, fill values would be invented data.
            gone = [path for path, data in zip(paths, self._read_documents(paths), strict=True) if data is None]
            if gone:
                raise self._missing(gone[0]) from None
        try:
            return _read_ranges(arrays, ranges)
        except Exception as error:  # codecs raise whatever their library does
            raise self._unreadable(", ".join(paths), error) from error

    def _look(self, paths: Sequence[str]) -> None:
        for path, data in zip(paths, self._read_documents(paths), strict=True):
            self._below[path] = None if data is None else parsed(data, f"{self.location}/{path}/zarr.json")

    def _read_documents(self, paths: Sequence[str]) -> list[bytes | None]:
        return read_files(self.files, [self.key_of(f"{path}/zarr.json") for path in paths])

    def _missing(self, path: str) -> StoreError:
        return StoreError(f"the index array {self.location}/{path} is missing; index the points again")

    def _unreadable(self, path: str, error: Exception) -> StoreError:
        return StoreError(f"could not read the index array {self.location}/{path}: {error}; run puncta validate")


def joined(*parts: str) -> str:
    """Return names one below the other; empty ones are left out."""
    return "/".join(part for part in parts if part)


def parsed(data: bytes, name: str) -> dict[str, Any]:
    """Return the JSON object in the bytes of a file.

    Raises:
        StoreError: If they hold anything else.

    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{name} is not valid JSON ({error}); restore it from a copy of the store") from error
    if not isinstance(document, dict):
        raise StoreError(f"{name} holds a JSON {type(document).__name__}, not an object; restore it from a copy")
    return document


def _again(files: Files, key: str, document: Document, store: Path | None) -> Element:
    return Element(files, key, document=document, store=store)


def _strict(array: BatchArray) -> BatchArray:
    return BatchArray(array.files, replace(array.layout, fills=False))


def _read_ranges(arrays: Sequence[BatchArray], ranges: Sequence[tuple[Integers, Integers]]) -> list[NDArray[Any]]:
    requests = [RangeRequest(array, *some) for array, some in zip(arrays, ranges, strict=True)]
    return [values for values, _ in read_batch(requests)]
