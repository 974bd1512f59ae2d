"""Finds the points element that a path or URL means, and says why it cannot be opened."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from puncta.errors import MetadataError, MissingError, NotIndexedError, QueryError, StaleIndexError, UnsupportedError
from puncta.points._element import Element, joined, parsed
from puncta.points._fetch import Files, read_files
from puncta.spec._problem import describe
from puncta.spec.points import validate_points_attrs
from puncta.spec.transformations import affines, is_identity
from puncta.store import Place, children, locate, open_place, read_attributes, recover
from puncta.store._directory import Directory
from puncta.store._locate import URL, is_there

__all__ = [
    "Form",
    "check_fresh",
    "find_element",
    "form_of",
    "is_url",
    "names_below",
    "node_at",
    "require_indexed",
    "transformations_of",
]

type Form = Literal["parquet", "zarr"]
"""How the points are stored."""

# What makes a node a points element: the mark of SpatialData, or an index that stands alone.
_MARKS = ("encoding-type", "spatial_index")


def is_url(path: str | os.PathLike[str]) -> bool:
    """Say whether a path is a URL, which no folder of this machine is."""
    found = URL.match(os.fspath(path))
    return found is not None and found["scheme"].lower() != "file"


def find_element(path_or_url: str | os.PathLike[str], storage_options: Mapping[str, object] | None = None) -> Element:
    """Return the points element at a path or URL: the element, or a store that has exactly one.

    Raises:
        MissingError: If nothing is there, or no points element.
        NotIndexedError: If it is a file of a table.
        UnsupportedError: If a store is on a web server, which cannot list it, and its metadata is not consolidated.
        StoreError: If it cannot be read.

    """
    if not is_url(path_or_url):
        # a crash may have left the store under another name for a moment
        recover(Path(os.fspath(path_or_url)))
    place = open_place(path_or_url, storage_options)
    if isinstance(place.files, Directory):
        return _in_folder(place)
    document = node_at(place.files, place.key)
    if document is None:
        raise MissingError(
            f"nothing at {joined(place.files.name, place.key)}: it has no zarr.json, .zattrs or .zgroup; check the path"
        )
    if any(mark in document["attributes"] for mark in _MARKS):
        return Element(place.files, place.key, document=document)
    key = joined(place.key, "points", _only_one(place, document))
    document = node_at(place.files, key)
    if document is None:
        raise MissingError(f"nothing at {joined(place.files.name, key)}, though the store's metadata has it")
    return Element(place.files, key, document=document)


def node_at(files: Files, key: str) -> dict[str, Any] | None:
    """Return the `zarr.json` of a node, or as much of one as format 2 has; None where there is no node.

    Raises:
        StoreError: If it cannot be read.

    """
    names = [joined(key, "zarr.json")]
    (data,) = read_files(files, names)
    if data is None:
        names = [joined(key, name) for name in (".zattrs", ".zgroup", ".zarray")]
        data, *marks = read_files(files, names)
        if data is None and not any(marks):
            return None
        return {"zarr_format": 2, "attributes": {} if data is None else parsed(data, joined(files.name, names[0]))}
    document = parsed(data, joined(files.name, names[0]))
    attributes = document.get("attributes")
    return document | {"attributes": attributes if isinstance(attributes, dict) else {}}


def _in_folder(place: Place) -> Element:
    """Return the element at or below a folder of this machine."""
    path = joined(place.files.name, place.key)
    location = locate(path)
    if not location.path.is_dir() or location.zarr_format is None:
        raise NotIndexedError(
            f"{location.path} is no points element of a SpatialData store; index it with: "
            f"puncta index {location.path} -o NEW.zarr"
        )
    attrs, folder = read_attributes(location.path), location.path
    if not any(mark in attrs for mark in _MARKS):
        names = children(folder / "points") if is_there(folder / "points") else []
        folder = folder / "points" / _single(names, str(folder))
    files = Directory(folder)
    document = node_at(files, "") or {"attributes": read_attributes(folder)}
    return Element(files, "", document=document, store=location.root)


def _only_one(place: Place, document: Mapping[str, Any]) -> str:
    """Return the name of the only points element of a store that is no folder of this machine."""
    known = (document.get("consolidated_metadata") or {}).get("metadata") or {}
    if known:
        names = [path.removeprefix("points/") for path in known if path.startswith("points/") and path.count("/") == 1]
    else:
        names = names_below(place, "points")
    return _single(sorted(set(names)), joined(place.files.name, place.key))


def names_below(place: Place, group: str) -> list[str]:
    """Return the names in a group of a store that is no folder of this machine, each once, sorted.

    Raises:
        UnsupportedError: If the store is on a web server, which cannot list it.
        StoreError: If it cannot be listed.

    """
    files, folder = place.files, joined(place.key, group)
    lister: Any = getattr(files, "children", None)
    try:
        if lister is not None:
            found = list(lister(folder))
        else:
            inside = [name.removeprefix(f"{folder}/") for name in files.names(f"{folder}/")]
            found = [name.partition("/")[0] for name in inside if "/" in name]
    except UnsupportedError as error:
        store = joined(files.name, place.key)
        raise UnsupportedError(
            f"{store} is a store on a web server, which cannot list its elements, and its metadata is not "
            f"consolidated; name the element: {store}/points/NAME"
        ) from error
    return sorted(set(found) - {"zarr.json", ".zgroup", ".zattrs"})


def _single(names: Sequence[str], store: str) -> str:
    if len(names) != 1:
        raise MissingError(
            f"{store} has {len(names)} points elements"
            + (f" ({', '.join(names)}); name one: {store}/points/{names[0]}" if names else "")
        )
    return names[0]


def require_indexed(element: Element) -> None:
    """Raise for an element without a spatial index, or with one that breaks its schema.

    Raises:
        NotIndexedError: If there is no index; the message names the command that makes one.
        MetadataError: If the metadata breaks its schema; the message lists every problem.

    """
    name = element.location
    if "spatial_index" not in element.attrs:
        new = f"into a new store with: puncta index {name} -o NEW.zarr"
        way = f"make one with: puncta index {name} --in-place, or {new}"
        if not isinstance(element.files, Directory):
            way = "get a copy, and make one there with: puncta index COPY.zarr/points/NAME --in-place"
        raise NotIndexedError(f"{name} has no spatial index; {way}")
    problems = validate_points_attrs(element.attrs)
    if problems:
        raise MetadataError(
            f"the metadata of {name} has {len(problems)} problems; index the points again, or repair:\n"
            + describe(problems)
        )


def form_of(element: Element, layout: str | None) -> Form:
    """Return the layout to read: the one that is asked for, else Parquet where the element has it.

    Raises:
        QueryError: If the element does not have the layout that is asked for.
        UnsupportedError: If it has none that is read.

    """
    there = element.attrs["spatial_index"].get("layout", ["parquet"])
    forms: tuple[Form, ...] = ("parquet", "zarr")
    known: list[Form] = [form for form in forms if form in there]
    if not known:
        raise UnsupportedError(f"{element.location} has the layout {there}; those that are read are {', '.join(forms)}")
    if layout is None:
        return known[0]
    if layout not in known:
        raise QueryError(f"{element.location} has the layout {' and '.join(known)}, not {layout!r}; leave it out")
    return next(form for form in known if form == layout)


def transformations_of(element: Element, axes: tuple[str, ...]) -> dict[str, NDArray[np.float64]]:
    """Return the affine from stored coordinates to each coordinate system of an element."""
    return affines(element.attrs.get("coordinateTransformations") or (), axes)


def check_fresh(element: Element, systems: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64] | None:
    """Return the recorded affine of the grid, or None for the identity.

    Raises:
        StaleIndexError: If the element's transformation is no longer the one that was used (P17).

    """
    index = element.attrs["spatial_index"]
    recorded = index.get("affine")
    name, ndim = index["coordinate_system"], len(index["axes"])
    used = np.eye(ndim, ndim + 1) if recorded is None else np.asarray(recorded, dtype=np.float64)
    current = systems.get(name)
    # an index outside of SpatialData has no transformations to disagree with
    if systems and (current is None or not np.array_equal(current, used)):
        now = "has none now" if current is None else f"is now {current.tolist()}"
        raise StaleIndexError(
            f"the index of {element.location} is stale: it was built with the transformation {used.tolist()} to "
            f"{name!r}, which {now}; build it anew with: puncta index {element.location} --in-place --overwrite"
        )
    return None if is_identity(used) else used
