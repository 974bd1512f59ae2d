"""What the metadata of a points element of a SpatialData store says of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from puncta.errors import MetadataError
from puncta.spec.transformations import affines
from puncta.store._locate import read_attributes, zarr_format_of

__all__ = ["ElementSource", "read_element"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementSource:
    """What the metadata of a points element of a SpatialData store says."""

    root: Path
    """The SpatialData store."""
    name: str
    """Name of the element."""
    zarr_format: Literal[2, 3]
    """Zarr format of the element; stores of format 2 are read, never changed in place (P27)."""
    axes: tuple[str, ...]
    """Axes of the element, in its order."""
    transformations: tuple[dict[str, Any], ...]
    """Coordinate transformations as they are stored."""
    affines: dict[str, NDArray[np.float64]]
    """Matrix to each coordinate system, shape (d, d + 1), float64, in the order of the source's axes."""
    feature_key: str | None
    """Feature column that the element declares."""
    instance_key: str | None
    """Cell column that the element declares."""
    attrs: dict[str, Any]
    """All attributes as they are stored."""

    @property
    def path(self) -> Path:
        """Folder of the element."""
        return self.root / "points" / self.name


def read_element(path: Path, axes: tuple[str, ...] | None) -> ElementSource:
    """Read the metadata of a points element, Zarr v2 or v3.

    Args:
        path: Folder of the element.
        axes: Axes that the affines are for; the element's own by default.

    Raises:
        MetadataError: If the element does not say what its axes are.
        StoreError: If its metadata cannot be read.

    """
    attrs = read_attributes(path)
    own_axes = _axes_of(path, attrs)
    declared = attrs.get("spatialdata_attrs")
    declared = declared if isinstance(declared, dict) else {}
    transformations = list(attrs.get("coordinateTransformations") or ())
    return ElementSource(
        root=path.parent.parent,
        name=path.name,
        zarr_format=zarr_format_of(path) or 3,
        axes=own_axes,
        transformations=tuple(transformations),
        affines=affines(transformations, axes or own_axes),
        feature_key=declared.get("feature_key"),
        instance_key=declared.get("instance_key"),
        attrs=attrs,
    )


def _axes_of(path: Path, attrs: dict[str, Any]) -> tuple[str, ...]:
    axes = attrs.get("axes")
    if not isinstance(axes, list) or not {"x", "y"} <= set(axes) <= {"x", "y", "z"} or len(set(axes)) < len(axes):
        raise MetadataError(f"the axes of the points element {path} are {axes!r}, not x, y or x, y, z; repair them")
    return tuple(axes)
