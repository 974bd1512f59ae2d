"""Tells what is at a path, from metadata alone."""

import os
from typing import Any, Literal

from puncta.errors import MissingError, StoreError, UnsupportedError
from puncta.points._check_plan import POINTS_ENCODING
from puncta.store import Location, children, locate, read_attributes
from puncta.store._locate import is_there

__all__ = ["ELEMENT_KINDS", "Kind", "attributes_of", "elements_of", "kind_at", "kind_of"]

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
