"""The files of an object store, put there, looked at and removed through obstore.

A put is whole or nothing. What two writers could undo each other's work with is written on a condition: that nothing is
there, or still what was read.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, cast

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError, PreconditionError

from puncta.errors import MissingError, StoreError, UnsupportedError
from puncta.store._locate import URL
from puncta.store._open import BUCKETS, split_bucket
from puncta.store._remote import NO_BUCKET, is_refusal, open_store, require_unforked, said

if TYPE_CHECKING:
    from obstore import PutMode, UpdateVersion  # exist for type checkers alone

# obstore waits for 30 seconds, in which a slow line brings few megabytes away
_PATIENCE: Final = {"timeout": "300s"}

_LARGEST_PUT: Final = 32 << 20
"""Bytes up to which a file is put whole: what is put in pieces and stopped leaves pieces that cost and do not show."""

_PIECE: Final = 8 << 20
_PIECES_AT_ONCE: Final = 4
_PIECES: Final = 9_000
"""Pieces of a file at the most; S3 takes 10,000."""


class ConflictError(StoreError):
    """Something is there, or is no longer what it was, since somebody else wrote it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A document as it was found."""

    data: bytes
    """The whole of it."""

    version: "UpdateVersion"
    """What tells it from its replacement, as obstore wants it."""


class Bucket:
    """The files of one bucket, to be written. Names are whole paths in it.

    Args:
        url: `s3://bucket`, `gs://bucket`, `az://container`.
        options: What obstore takes for such a store, unchanged.

    Raises:
        QueryError: If an option is unknown, has a wrong value or is wanting.

    """

    __slots__ = ("_store", "name")

    def __init__(self, url: str, options: Mapping[str, object]) -> None:
        self.name: Final[str] = url
        self._store = open_store(url, {**_PATIENCE, **options}, name=url)

    def path(self, key: str) -> str:
        """Return the URL of a name."""
        return f"{self.name}/{key}".rstrip("/")

    async def read(self, key: str) -> Found | None:
        """Return a document; None where there is none.

        Raises:
            StoreError: If it cannot be read, or not all of it came.
            MissingError: If there is no such bucket.

        """
        require_unforked()
        try:
            result = await obstore.get_async(self._store, key)
            data = bytes(await result.bytes_async())
        except FileNotFoundError as error:
            if NO_BUCKET.search(str(error)):
                self._refuse(key, error, "read")
            return None
        except (BaseError, ValueError, OSError) as error:
            self._refuse(key, error, "read")
        meta = result.meta
        if len(data) != meta["size"]:
            raise StoreError(f"{self.path(key)}: {len(data)} of {meta['size']} bytes came; try again")
        # obstore refuses one that is None
        version = {name: meta[name] for name in ("e_tag", "version") if meta[name] is not None}
        return Found(data=data, version=cast("UpdateVersion", version))

    async def write(self, key: str, data: bytes, *, over: Found | None) -> None:
        """Put a document where it was found, or where there is none.

        Where the options say that the store knows no conditions (`conditional_put` is "disabled"), it is looked at just
        before, and a writer that comes in between is not seen.

        Args:
            key: Its name.
            data: The whole of it.
            over: What it takes the place of; None where nothing may be there.

        Raises:
            ConflictError: If something else is there.
            StoreError: If it cannot be written.

        """
        try:
            await self._put(key, data, mode="create" if over is None else over.version)
        except (NotSupportedError, NotImplementedError):
            now = await self.read(key)
            if (now and now.data) != (over and over.data):
                raise ConflictError(f"{self.path(key)} was written by somebody else") from None
            await self.put(key, data)

    async def put(self, key: str, data: bytes) -> None:
        """Put a small file, whatever is there.

        Raises:
            StoreError: If it cannot be written.

        """
        await self._put(key, data, mode="overwrite")

    async def put_file(self, key: str, path: Path, size: int) -> None:
        """Put a file of this machine, whatever is there. Memory: `bytes_in_flight(size)`.

        Raises:
            StoreError: If it cannot be read or written.

        """
        require_unforked()
        if size <= _LARGEST_PUT:
            await self._put(key, await asyncio.to_thread(_content, path), mode="overwrite")
            return
        try:
            await obstore.put_async(
                self._store, key, path, chunk_size=_piece(size), max_concurrency=_PIECES_AT_ONCE, use_multipart=True
            )
        except (BaseError, ValueError, OSError) as error:
            self._refuse(key, error, "write")

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove files; one that is not there is no error.

        Raises:
            StoreError: If one cannot be removed.

        """
        if not keys:
            return
        try:
            await obstore.delete_async(self._store, keys)
        except FileNotFoundError:
            # some stores say so of a file, others never
            return
        except (BaseError, ValueError, OSError) as error:
            self._refuse(keys[0], error, "remove")

    async def sizes(self, folder: str) -> dict[str, int]:
        """Return the bytes of every file below a folder, by name. A request lists about 1,000.

        Raises:
            StoreError: If it cannot be listed.
            MissingError: If there is no such bucket.

        """
        require_unforked()
        found: dict[str, int] = {}
        try:
            async for page in obstore.list(self._store, prefix=folder or None):
                found |= {member["path"]: member["size"] for member in page}
        except (BaseError, ValueError, OSError) as error:
            self._refuse(folder, error, "list")
        # an empty file of the folder's own name is how some tools make a folder
        return {name: size for name, size in found.items() if name != folder}

    async def _put(self, key: str, data: bytes, *, mode: "PutMode") -> None:
        require_unforked()
        try:
            await obstore.put_async(self._store, key, data, mode=mode, use_multipart=False)
        except (AlreadyExistsError, PreconditionError):
            raise ConflictError(f"{self.path(key)} was written by somebody else") from None
        except (NotSupportedError, NotImplementedError):
            raise
        except (BaseError, ValueError, OSError) as error:
            self._refuse(key, error, "write")

    def _refuse(self, key: str, error: Exception, what: str) -> NoReturn:
        # "from None": the library's message may hold a signature, and a traceback would print it
        text = str(error)
        if isinstance(error, FileNotFoundError) and what != "read" and not NO_BUCKET.search(text):
            raise MissingError(f"could not {what} {self.path(key)}: there is no such bucket; check its name") from None
        if " 501 " in text:
            raise UnsupportedError(
                f"could not {what} {self.path(key)}: the store knows no conditional puts, by which writers see each "
                "other; give conditional_put=disabled as a storage option, and let one write at a time"
            ) from None
        raise said(text, self.path(key), refused=is_refusal(error), what=what) from None


def open_bucket(url: str | os.PathLike[str], storage_options: Mapping[str, object]) -> tuple[Bucket, str]:
    """Return the bucket that a URL names, to be written, and the place in it. Sends no request.

    Raises:
        UnsupportedError: If nothing can be written to such a URL.
        QueryError: If an option is unknown, has a wrong value or is wanting.

    """
    text = os.fspath(url)
    match = URL.match(text)
    scheme = match["scheme"].lower() if match and match["slash"] else ""
    if scheme not in BUCKETS:
        named = text.partition("?")[0]
        raise UnsupportedError(
            f"nothing can be written to {named!r}; give a local path, or the URL of an object store (s3://, gs://, az://)"
        )
    origin, key = split_bucket(scheme, text)
    if any(part.lower().endswith(".zip") for part in key.split("/")):
        raise UnsupportedError(f"{text!r} is, or lies in, a zip archive, which is not written in place; give another")
    return Bucket(origin, storage_options), key


def bytes_in_flight(size: int) -> int:
    """Return how much memory it takes to put a file of that many bytes."""
    return size if size <= _LARGEST_PUT else _PIECES_AT_ONCE * _piece(size)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StoreError(f"could not read {path}: {error.strerror or error}") from error


def _piece(size: int) -> int:
    return max(_PIECE, -(-size // _PIECES))
