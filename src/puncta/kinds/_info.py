"""What is at a path, as data: the JSON of `puncta info`."""

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from puncta.errors import MissingError, StoreError, UnsupportedError
from puncta.kinds._costs import feature_level_costs
from puncta.kinds._detect import attributes_of, elements_elsewhere, elements_of, kind_at
from puncta.points import Level, Points, fit_of, open_points
from puncta.points._check_plan import POINTS_ENCODING
from puncta.points._element import joined
from puncta.points._find import is_url, node_at
from puncta.store import Location, Place, locate, open_place, read_attributes, recover, tree_bytes
from puncta.store._directory import Directory
from puncta.store._sizes import n_bytes_below

__all__ = ["info"]


def info(path: str | os.PathLike[str], *, storage_options: Mapping[str, object] | None = None) -> dict[str, Any]:
    """Return what is at a path or URL, from metadata, offsets and footers; no point is read.

    Sizes are null on a web server, which cannot list files; so is what only a listing tells of points without an index.

    Args:
        path: A points element, indexed or not, or a SpatialData store; in a folder, in a zip archive, or at a URL of
            either.
        storage_options: For a URL, handed to obstore unchanged.

    Returns:
        An object that can be written as JSON; `interface.md` says its keys.

    Raises:
        MissingError: If nothing is there.
        QueryError: If a storage option is unknown, or given with a local path.
        MetadataError: If the metadata of an index breaks its schema.
        StaleIndexError: If the element's transformation has changed since it was indexed.
        StoreError: If a file cannot be read.
        UnsupportedError: If it is of a kind that is not known.

    """
    if not is_url(path):
        recover(Path(os.fspath(path)))
    place = open_place(path, storage_options)
    if not isinstance(place.files, Directory):
        return _elsewhere(place, path, storage_options)
    location = locate(joined(place.files.name, place.key))
    if kind_at(location) == "store":
        return _store(location)
    attrs, damage = attributes_of(location)
    if damage is not None:
        raise damage
    if "spatial_index" not in attrs:
        return _plain(location, attrs)
    return _indexed(open_points(location.path))


def _indexed(points: Points) -> dict[str, Any]:
    fit = fit_of(points.levels[0].tile_counts, points.limit) if points.limit is not None else None
    return {
        "path": points.location,
        "kind": "points",
        "indexed": True,
        "n_rows": points.n_rows,
        "axes": list(points.axes),
        "columns": list(points.columns),
        "feature_key": points.feature_key,
        "n_features": len(points.features),
        "coordinate_system": points.coordinate_system,
        "layout": list(points.layout),
        "limit": points.limit,
        "levels": [_level(level) for level in points.levels],
        "fit": None if fit is None else fit.case,
        "fit_text": None if fit is None else fit.text,
        "feature_levels": points.feature_levels,
        "feature_level_costs": feature_level_costs(points),
        "bytes": _known(lambda: points.bytes),
    }


def _level(level: Level) -> dict[str, Any]:
    return {
        "level": level.number,
        "origin": list(level.grid.origin),
        "tile_size": list(level.grid.tile_size),
        "grid_shape": list(level.grid.shape),
        "n_rows": level.n_rows,
        "n_rows_feature": level.n_rows_feature,
        "P": level.fraction,
        "bytes": _known(lambda: level.bytes),
        "bytes_feature": _known(lambda: level.bytes_feature),
        "densest_tile": level.densest_tile,
    }


def _known(measure: Callable[[], int]) -> int | None:
    """Return a number of bytes; None where it takes a listing and the place cannot list."""
    try:
        return measure()
    except UnsupportedError:
        return None


def _elsewhere(
    place: Place, path: str | os.PathLike[str], storage_options: Mapping[str, object] | None
) -> dict[str, Any]:
    """Return what is in an archive, on a server or in a bucket."""
    name = joined(place.files.name, place.key)
    document = node_at(place.files, place.key)
    if document is None:
        raise MissingError(f"nothing at {name}: it has no zarr.json, .zattrs or .zgroup; check the path")
    attrs, bytes_ = document["attributes"], _known(lambda: n_bytes_below(place.files, place.key))
    if "spatial_index" in attrs:
        return _indexed(open_points(path, storage_options=storage_options))
    if attrs.get("encoding-type") == POINTS_ENCODING:
        return _plain_elsewhere(name, attrs) | {"bytes": bytes_}
    elements = [
        {
            "path": inner,
            "kind": kind,
            "bytes": _known(partial(n_bytes_below, place.files, joined(place.key, inner))),
            "indexed": indexed,
        }
        for inner, kind, indexed in elements_elsewhere(place, document)
    ]
    if not elements and "spatialdata_attrs" not in attrs:
        raise UnsupportedError(
            f"{name} is something else; this reads points elements (STORE.zarr/points/NAME) and SpatialData stores"
        )
    zarr_format = document.get("zarr_format")
    return {"path": name, "kind": "store", "zarr_format": zarr_format, "elements": elements, "bytes": bytes_}


def _plain_elsewhere(name: str, attrs: Mapping[str, Any]) -> dict[str, Any]:
    declared = attrs.get("spatialdata_attrs")
    return {
        "path": name,
        "kind": "points",
        "indexed": False,
        "n_rows": None,
        "axes": attrs.get("axes"),
        "columns": None,
        "feature_key": declared.get("feature_key") if isinstance(declared, dict) else None,
        "remedy": "get a copy, and index it there with: puncta index COPY.zarr/points/NAME --in-place",
    }


def _plain(location: Location, attrs: dict[str, Any]) -> dict[str, Any]:
    declared = attrs.get("spatialdata_attrs")
    declared = declared if isinstance(declared, dict) else {}
    n_rows, columns = _footers(location.path / "points.parquet")
    return {
        "path": str(location.path),
        "kind": "points",
        "indexed": False,
        "n_rows": n_rows,
        "axes": attrs.get("axes"),
        "columns": columns,
        "feature_key": declared.get("feature_key"),
        "bytes": tree_bytes(location.path),
        "remedy": f"index it with: puncta index {location.path} {_target(location)}",
    }


def _target(location: Location) -> str:
    # stores of Zarr format 2 are read, never changed in place (P27)
    return "--in-place" if location.zarr_format == 3 and location.inner else "-o NEW.zarr"  # noqa: PLR2004


def _footers(folder: Path) -> tuple[int, list[str]]:
    """Return the rows of all files of a folder, and the columns of the first."""
    files = [folder] if folder.is_file() else sorted(folder.glob("*.parquet"))
    n_rows, columns = 0, []
    for number, file in enumerate(files):
        try:
            metadata = pq.read_metadata(file)
        except (pa.ArrowException, OSError) as error:
            raise StoreError(f"{file} is no Parquet file that can be read ({error}); restore it from a copy") from error
        n_rows += metadata.num_rows
        if number == 0:
            columns = list(metadata.schema.to_arrow_schema().names)
    return n_rows, columns


def _store(location: Location) -> dict[str, Any]:
    elements = []
    for path, kind in elements_of(location):
        element: dict[str, Any] = {"path": path, "kind": kind, "bytes": tree_bytes(location.root / path)}
        if kind == "points":
            element["indexed"] = "spatial_index" in read_attributes(location.root / path)
        elements.append(element)
    return {
        "path": str(location.path),
        "kind": "store",
        "zarr_format": location.zarr_format,
        "elements": elements,
        "bytes": tree_bytes(location.root),
    }
