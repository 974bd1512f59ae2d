"""Where a path leads: which store, which place inside it, and what the metadata there says.

Metadata is read with `json` alone, so that a damaged document is named and never taken for an absent one.
"""

import difflib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from puncta.errors import MissingError, StoreError, UnsupportedError

# One letter before the colon would be a Windows drive; one slash is what `pathlib` leaves of two.
URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):/(?P<slash>/?)")

_ZIP_MAGIC = (b"PK\x03\x04", b"PK\x05\x06")

_MAX_NAMES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """A place in a local store, at which there is something."""

    root: Path
    """The outermost Zarr group that the path lies in; the path itself where it lies in none. Absolute."""

    inner: str
    """The path inside the root, such as `points/transcripts`; empty for the root itself."""

    zarr_format: Literal[2, 3] | None
    """Zarr format of the root; None where the root is no Zarr group (a table of a vendor, a folder)."""

    @property
    def path(self) -> Path:
        """The place itself."""
        return self.root / self.inner if self.inner else self.root


def locate(path: str | os.PathLike[str]) -> Location:
    """Return the store that a local path lies in, and the place inside it.

    Args:
        path: A file or folder, or a place inside a Zarr store.

    Raises:
        MissingError: If nothing is there; the message names what is near.
        StoreError: If the system refuses to say what is there.
        UnsupportedError: If the path is a URL, or is or lies in a zip archive.

    """
    text = os.fspath(path)
    if not text:
        raise MissingError("the path is empty; give a file, a folder or a place in a store")
    _refuse_url(text)
    place = _absolute(Path(text))
    _refuse_inside_file(place)
    if not is_there(place):
        raise _missing(place)
    root, place = _split(place)
    inner = "" if root == place else place.relative_to(root).as_posix()
    return Location(root=root, inner=inner, zarr_format=zarr_format_of(root))


def local_path(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path of a local file or folder, whether or not anything is there.

    Raises:
        UnsupportedError: If the path is a URL.

    """
    text = os.fspath(path)
    _refuse_url(text)
    return _absolute(Path(text))


def store_of(path: Path) -> Path:
    """Return the store that a path belongs to, whether or not anything is there now.

    While a store is exchanged by two renames it is missing for a moment, and after a crash until someone puts it back;
    then it is the first part of the path that is missing.
    """
    place = _absolute(path)
    outermost = _outermost_group(place)
    if outermost is not None:
        return outermost
    return next((part for part in _from_the_top(place) if not is_there(part)), place)


def read_attributes(group: Path) -> dict[str, Any]:
    """Return the attributes of a Zarr group or array, of either format.

    A node without attributes has none: an absent `attributes` in `zarr.json`, or an absent `.zattrs` beside the
    `.zgroup` or `.zarray` of format 2.

    Raises:
        MissingError: If there is no Zarr node in the folder.
        StoreError: If its metadata cannot be read, or is not a JSON object.

    """
    if is_there(group / "zarr.json"):
        attributes = read_document(group / "zarr.json").get("attributes", {})
        if not isinstance(attributes, dict):
            raise StoreError(f"the attributes in {group / 'zarr.json'} are not a JSON object; restore it from a copy")
        return attributes
    if is_there(group / ".zattrs"):
        return read_document(group / ".zattrs")
    if is_there(group / ".zgroup") or is_there(group / ".zarray"):
        return {}
    raise MissingError(f"{group} has no zarr.json, .zattrs or .zgroup, so it is no Zarr group; check the path")


def read_document(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file.

    Raises:
        MissingError: If there is no such file.
        StoreError: If it cannot be read, or holds anything else.

    """
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise MissingError(f"nothing at {path}") from error
    except OSError as error:
        raise StoreError(f"could not read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} is not valid JSON ({error}); restore it from a copy of the store") from error
    if not isinstance(document, dict):
        raise StoreError(f"{path} holds a JSON {type(document).__name__}, not an object; restore it from a copy")
    return document


def children(group: Path) -> list[str]:
    """Return the names of the Zarr groups directly inside a folder, sorted; arrays and foreign folders are left out.

    Raises:
        MissingError: If the folder is not there.
        StoreError: If it, or the metadata of a node in it, cannot be read.

    """
    return [name for name in _names(group) if is_group(group / name)]


def is_group(folder: Path) -> bool:
    """Whether the folder is a Zarr group of either format."""
    if is_there(folder / "zarr.json"):
        return read_document(folder / "zarr.json").get("node_type") == "group"
    return is_there(folder / ".zgroup")


def is_there(path: Path) -> bool:
    """Whether anything is at the path; unlike `Path.exists`, a refusal to say is an error and never "no"."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise StoreError(f"could not look at {path}: {error.strerror}; check its permissions") from error
    return True


def zarr_format_of(folder: Path) -> Literal[2, 3] | None:
    """Return the Zarr format of a folder; 3 where it has the metadata of both, as zarr itself chooses."""
    if is_there(folder / "zarr.json"):
        return 3
    return 2 if is_there(folder / ".zgroup") else None


def _absolute(path: Path) -> Path:
    # `a/../b` is not `b` where `a` is a link, so only the file system can take `..` away.
    return path.resolve() if ".." in path.parts else path.absolute()


def _from_the_top(place: Path) -> list[Path]:
    return [*reversed(place.parents), place]


def _outermost_group(place: Path) -> Path | None:
    return next((folder for folder in _from_the_top(place) if zarr_format_of(folder) is not None), None)


def _split(place: Path) -> tuple[Path, Path]:
    """Return the root of a place and the place; through links where only its real path lies in a store."""
    root = _outermost_group(place) or place
    if root != place:
        return root, place
    real = place.resolve()
    outermost = _outermost_group(real)
    return (place, place) if outermost is None or outermost == real else (outermost, real)


def _refuse_url(text: str) -> None:
    match = URL.match(text)
    if match:
        raise UnsupportedError(
            f"{match['scheme']} URLs are not supported yet ({text!r}); download the store and give its local path"
        )


def _refuse_inside_file(place: Path) -> None:
    """Refuse what is, or lies in, a zip archive; and say so where a file stands in the way of a path."""
    file = first_file(place)
    if file is None:
        return
    if is_zip(file):
        raise UnsupportedError(f"zip archives are not supported yet ({str(file)!r}); unzip it and give the folder")
    if file != place:
        raise MissingError(f"nothing at {place}: {file} is a file, so no path leads on from it")


def first_file(place: Path) -> Path | None:
    """Return the part of a path, from the top, that is a file: nothing but an archive leads on from there.

    Raises:
        StoreError: If the system refuses to say.

    """
    try:
        return next((part for part in _from_the_top(place) if part.is_file()), None)
    except OSError as error:
        raise StoreError(f"could not look at {place}: {error.strerror}; check its permissions") from error


def is_zip(file: Path) -> bool:
    """Whether a file is a zip archive, by its name or by how it begins.

    Raises:
        StoreError: If it cannot be read.

    """
    if file.suffix.lower() == ".zip":
        return True
    try:
        with file.open("rb") as stream:
            return stream.read(4) in _ZIP_MAGIC
    except OSError as error:
        raise StoreError(f"could not read {file}: {error.strerror}; check its permissions") from error


def _missing(place: Path) -> MissingError:
    gone = next((part for part in _from_the_top(place) if not is_there(part)), place)
    names = _names(gone.parent)
    near = difflib.get_close_matches(gone.name, names, n=_MAX_NAMES, cutoff=0.5)
    subject = f"nothing at {place}" if gone == place else f"nothing at {place}: there is no {gone}"
    if near:
        return MissingError(f"{subject}; the nearest in that folder: {', '.join(map(repr, near))}")
    if not names:
        return MissingError(f"{subject}; {gone.parent} is empty")
    some = ", ".join(map(repr, names[:_MAX_NAMES]))
    return MissingError(f"{subject}; {gone.parent} holds {len(names)} other names (first: {some}); check the path")


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 (names alone are wanted)
    except FileNotFoundError as error:
        raise MissingError(f"nothing at {folder}") from error
    except OSError as error:
        raise StoreError(f"could not list {folder}: {error.strerror}") from error
