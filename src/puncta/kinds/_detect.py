"""Tells what is at a path, from metadata alone."""

import os
from collections.abc import Mapping
from typing import Any, Literal

from puncta.errors import MissingError, StoreError, UnsupportedError
from puncta.points._check_plan import POINTS_ENCODING
from puncta.points._element import joined
from puncta.points._find import names_below, node_at
from puncta.store import Location, Place, children, locate, read_attributes
from puncta.store._locate import is_there

__all__ = ["ELEMENT_KINDS", "Kind", "attributes_of", "elements_elsewhere", "elements_of", "kind_at", "kind_of"]

type Kind = Literal["points", "store"]
"""What puncta knows how to inform about and validate."""

ELEMENT_KINDS = {"images": "image", "labels": "labels", "points": "points", "shapes": "shapes", "tables": "table"}
"""The groups of a SpatialData store, and what each of their members is."""


def kind_of(path: str | os.PathLike[str]) -> Kind:
    """Return what is at a path: a points element, indexed or not, or a SpatialData store.

    Raises:
        MissingError: If nothing is there.
        StoreError: If its metadata cannot be read, and its folders do not tell either.
        UnsupportedError: If it is anything else: a URL, an archive, another element, a table of a vendor.

    """
    return kind_at(locate(path))


def kind_at(location: Location) -> Kind:
    """Return what is at a place of a store; errors as in `kind_of`."""
    attrs, damage = attributes_of(location)
    # A damaged document must not hide what the folder is: validating it is the way to find the damage.
    if attrs.get("encoding-type") == POINTS_ENCODING or "spatial_index" in attrs or _has(location, "points.parquet"):
        return "points"
    if not location.inner and ("spatialdata_attrs" in attrs or any(_has(location, name) for name in ELEMENT_KINDS)):
        return "store"
    if damage is not None:
        raise damage
    if not location.path.is_dir():
        raise UnsupportedError(f"{location.path} is a file, which is no store; index it: puncta index FILE -o NEW.zarr")
    what = f"a {attrs['encoding-type']!r}" if "encoding-type" in attrs else "something else"
    raise UnsupportedError(
        f"{location.path} is {what}; this reads points elements (STORE.zarr/points/NAME) and SpatialData stores"
    )


def elements_of(location: Location) -> list[tuple[str, str]]:
    """Return path and kind of each element of a store, sorted by path.

    Raises:
        StoreError: If the metadata of a member cannot be read.

    """
    found = []
    for group, kind in ELEMENT_KINDS.items():
        if _has(location, group):
            found += [(f"{group}/{name}", kind) for name in children(location.path / group)]
    return sorted(found)


def elements_elsewhere(place: Place, document: Mapping[str, Any]) -> list[tuple[str, str, bool | None]]:
    """Return path and kind of each element of a store that is no folder of this machine, and whether it is indexed.

    Args:
        place: Where it is.
        document: Its metadata; where it is consolidated nothing else is read.

    Raises:
        UnsupportedError: If it is not, and the store is on a web server, which cannot list it.
        StoreError: If it cannot be read.

    """
    known = (document.get("consolidated_metadata") or {}).get("metadata") or {}
    if not known:
        paths = [f"{group}/{name}" for group in ELEMENT_KINDS for name in names_below(place, group)]
        found = [node_at(place.files, joined(place.key, path)) for path in paths]
        known = {path: node for path, node in zip(paths, found, strict=True) if node is not None}
    return sorted(
        (path, ELEMENT_KINDS[path.partition("/")[0]], _is_indexed(path, node))
        for path, node in known.items()
        if path.count("/") == 1 and path.partition("/")[0] in ELEMENT_KINDS
    )


def _is_indexed(path: str, node: Mapping[str, Any]) -> bool | None:
    return "spatial_index" in (node.get("attributes") or {}) if path.startswith("points/") else None


def attributes_of(location: Location) -> tuple[dict[str, Any], StoreError | None]:
    """Return the attributes of a place, empty where it has none, and why they could not be read, if so."""
    try:
        return read_attributes(location.path), None
    except MissingError:
        return {}, None
    except StoreError as error:
        return {}, error


def _has(location: Location, name: str) -> bool:
    return location.path.is_dir() and is_there(location.path / name)
