"""A path or URL to what is read there: a folder, a file, an archive, a web server or an object store."""

import os
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

from puncta.errors import MissingError, QueryError, UnsupportedError
from puncta.store._directory import Directory
from puncta.store._files import Place
from puncta.store._locate import URL, first_file, is_zip, local_path, locate
from puncta.store._zip import LocalZip, RemoteZip

_WEB: Final = ("http", "https")
BUCKETS: Final = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss")
_SUPPORTED: Final = "a local path, or a URL that begins with file://, http://, https://, s3://, gs:// or az://"


def open_place(path_or_url: str | os.PathLike[str], storage_options: Mapping[str, object] | None = None) -> Place:
    """Return where a path or URL leads; a path may go on inside a zip archive.

    Looks at the local disk, but sends no request: that something is there is known of a local path only. An archive is
    known by its content, on a server by a name that ends in `.zip`.

    Args:
        path_or_url: A folder, a file, a zip archive, a place inside one of these; or a URL of such. The query of a web
            URL (a signature) is sent with every request.
        storage_options: For URLs: what obstore takes for such a store, unchanged.

    Raises:
        MissingError: If nothing is at a local path.
        StoreError: If the system refuses to say what is there.
        QueryError: If an option is unknown or has a wrong value, or options are given with a local path.
        UnsupportedError: If the path is empty, or the URL of a kind that is not read.

    """
    text = os.fspath(path_or_url)
    options = storage_options or {}
    if not text:
        raise UnsupportedError(f"the path is empty; give {_SUPPORTED}")
    url = URL.match(text)
    scheme = url["scheme"].lower() if url else "file"
    if scheme != "file":
        if url and not url["slash"]:
            raise UnsupportedError(f"{text!r} has one slash where a URL has two, as pathlib leaves it; give a string")
        return _open_url(scheme, text, options)
    if options:
        names = ", ".join(map(repr, options))
        raise QueryError(f"{len(options)} storage options ({names}) are given with a local path ({text!r}); omit them")
    return _open_local(path_of_url(text) if url else text)


def _open_local(path: str) -> Place:
    place = local_path(path)
    file = first_file(place)
    if file is None:
        locate(place)  # raises, with the names that are near, where nothing is
        return Place(files=Directory(place), key="")
    folder = Directory(file.parent)
    if is_zip(file):
        key = "" if place == file else place.relative_to(file).as_posix()
        return Place(files=LocalZip(folder, file.name), key=key)
    if file != place:
        raise MissingError(f"nothing at {place}: {file} is a file, so no path leads on from it")
    return Place(files=folder, key=file.name)


def _open_url(scheme: str, url: str, options: Mapping[str, object]) -> Place:
    if scheme in _WEB:
        origin, key = _split_web(url)
    elif scheme in BUCKETS:
        origin, key = split_bucket(scheme, url)
    else:
        raise UnsupportedError(f"{scheme}:// URLs are not read; give {_SUPPORTED}")

    from puncta.store._remote import Remote  # noqa: PLC0415 (obstore is not loaded where all is local)

    files = Remote(origin, options)
    parts = key.split("/")
    end = next((number for number, part in enumerate(parts, 1) if part.lower().endswith(".zip")), None)
    if end is None:
        return Place(files=files, key=key)
    return Place(files=RemoteZip(files, "/".join(parts[:end])), key="/".join(parts[end:]))


def _split_web(url: str) -> tuple[str, str]:
    """Return the server with the query of a URL, and the path, decoded: it is encoded again for the request."""
    parts = urlsplit(url)
    name = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    if not parts.netloc:
        raise UnsupportedError(f"{name!r} names no server; give a URL such as https://example.org/study.zarr")
    if parts.fragment:
        raise UnsupportedError(f"{name!r} goes on after a '#', which no server sees; write '%23' where a name has one")
    try:
        key = unquote(parts.path, errors="strict").strip("/")
    except UnicodeDecodeError as error:
        raise UnsupportedError(f"{name!r} is not encoded as UTF-8 ({error.reason}); rename the file") from error
    query = f"/?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{parts.netloc}{query}", key


def split_bucket(scheme: str, url: str) -> tuple[str, str]:
    """Return the bucket of a URL, and the rest as it is: there nothing is encoded, as the clouds' own tools have it."""
    bucket, _, key = url[len(scheme) + 3 :].partition("/")
    if not bucket:
        raise UnsupportedError(f"{url!r} names no bucket; give a URL such as {scheme}://bucket/study.zarr")
    return f"{scheme}://{bucket}", key.strip("/")


def path_of_url(url: str) -> str:
    """Return the path that a URL of a local file names.

    Raises:
        UnsupportedError: If the file is another machine's.

    """
    parts = urlsplit(url)
    if parts.netloc not in {"", "localhost"}:
        raise UnsupportedError(f"{url!r} is a file of another machine ({parts.netloc!r}); give a path of this one")
    return unquote(parts.path)
