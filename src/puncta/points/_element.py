"""An indexed points element on disk: its metadata, checked, and its index arrays, read when they are first needed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from puncta.errors import MetadataError, MissingError, NotIndexedError, StaleIndexError, StoreError, UnsupportedError
from puncta.points._grid import Grid
from puncta.points._parquet import PartFiles
from puncta.points._plan import FeatureRows
from puncta.spec._problem import describe
from puncta.spec.points import validate_points_attrs
from puncta.spec.transformations import affines, is_identity
from puncta.store import children, locate, read_attributes, recover
from puncta.store._locate import is_there


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementPlace:
    """Where an element is."""

    path: Path
    """Folder of the element."""

    store: Path
    """Store that it is in; the element itself where it stands alone."""

    attrs: dict[str, Any]
    """Its attributes."""


def find_element(path: object) -> ElementPlace:
    """Return the points element at a path: the element, or a store that has exactly one.

    Raises:
        MissingError: If nothing is there, or no points element.
        NotIndexedError: If a store has several.

    """
    recover(Path(str(path)))
    location = locate(str(path))
    if not location.path.is_dir() or location.zarr_format is None:
        raise NotIndexedError(
            f"{location.path} is no points element of a SpatialData store; index it with: "
            f"puncta index {location.path} -o NEW.zarr"
        )
    attrs = read_attributes(location.path)
    if "encoding-type" in attrs or "spatial_index" in attrs:
        return ElementPlace(path=location.path, store=location.root, attrs=attrs)
    names = children(location.path / "points") if is_there(location.path / "points") else []
    if len(names) != 1:
        raise MissingError(
            f"{location.path} has {len(names)} points elements"
            + (f" ({', '.join(names)}); name one: {location.path / 'points' / names[0]}" if names else "")
        )
    element = location.path / "points" / names[0]
    return ElementPlace(path=element, store=location.root, attrs=read_attributes(element))


@dataclass(frozen=True, kw_only=True)
class Level:
    """One level of an indexed element."""

    number: int
    """Number of the level; 0 holds all points."""

    grid: Grid
    """Grid of the level."""

    n_rows: int
    """Rows of the tile order."""

    fraction: float
    """P: the fraction of all points that the tile order keeps."""

    n_rows_feature: int | None
    """Rows stored in the primary feature-major copy; None where the level has none."""

    tiles_per_part: int
    """Tiles of a part file."""

    element: Path = field(repr=False)
    """Folder of the element."""

    sampling: Mapping[str, Any] = field(repr=False)
    """The metadata's `sampling`."""

    by: Mapping[str, Any] = field(repr=False)
    """The metadata of the copies by further feature columns."""

    @cached_property
    def tile_offsets(self) -> NDArray[np.int64]:
        """First row of each tile, then the number of rows, shape (n_tiles + 1,)."""
        offsets = read_array(self.element, f"index/{self.number}/tile_offsets")
        if len(offsets) != self.grid.n_tiles + 1 or offsets[0] or int(offsets[-1]) != self.n_rows:
            raise StoreError(
                f"{self.element}/index/{self.number}/tile_offsets does not fit the metadata ({len(offsets)} entries "
                f"for {self.grid.n_tiles} tiles and {self.n_rows} rows); run puncta validate"
            )
        return offsets

    @cached_property
    def tile_counts(self) -> NDArray[np.int64]:
        """Points of each tile, shape (n_tiles,)."""
        return np.diff(self.tile_offsets)

    @property
    def densest_tile(self) -> int:
        """Points of the densest tile."""
        return int(self.tile_counts.max())

    @property
    def bytes(self) -> int:
        """Bytes of the part files of the tile order."""
        return self.files.n_bytes()

    @property
    def bytes_feature(self) -> int:
        """Bytes of the part files of the primary feature-major copy; 0 without one."""
        return 0 if self.n_rows_feature is None else self.copy(None).files.n_bytes()

    @cached_property
    def files(self) -> PartFiles:
        """Part files of the tile order."""
        folder = f"levels/{self.number}/points.parquet" if self.number else "points.parquet"
        return PartFiles(self.element / folder)

    @cached_property
    def part_starts(self) -> NDArray[np.int64]:
        """First tile of each part, then the number of tiles."""
        return np.append(np.arange(0, self.grid.n_tiles, self.tiles_per_part), self.grid.n_tiles)

    @cached_property
    def _copies(self) -> dict[str, "FeatureCopy"]:
        return {}

    def has_copy(self, further: str | None) -> bool:
        """Say whether the level has a feature-major copy, of the primary feature column or a further one."""
        return self.n_rows_feature is not None if further is None else further in self.by

    def copy(self, further: str | None) -> "FeatureCopy":
        """Return a feature-major copy: of the primary feature column (None), or of a further one."""
        inside = "" if further is None else f"by-{further}/"
        if inside not in self._copies:
            folder = self.element / "feature" / str(self.number) / inside / "points.parquet"
            fractions = self.sampling if further is None else self.by[further]
            self._copies[inside] = FeatureCopy(
                element=self.element, index=f"index/{self.number}/{inside}", files=PartFiles(folder), sampling=fractions
            )
        return self._copies[inside]


@dataclass(frozen=True, kw_only=True)
class FeatureCopy:
    """A feature-major copy of one level, and its index."""

    element: Path
    """Folder of the element."""

    index: str
    """Where its arrays are, below the element."""

    files: PartFiles
    """Its part files."""

    sampling: Mapping[str, Any]
    """Its fractions in the metadata; empty at level 0."""

    @cached_property
    def rows(self) -> FeatureRows:
        """Where the rows of each feature lie."""
        own = is_there(self.element / self.index / "feature_offsets_own")
        return FeatureRows(
            offsets=read_array(self.element, self.index + ("feature_offsets_own" if own else "feature_offsets")),
            indptr=read_array(self.element, self.index + "feature_tiles/indptr"),
            tiles=read_array(self.element, self.index + "feature_tiles/tiles").astype(np.uint32),
            starts=read_array(self.element, self.index + "feature_tiles/starts"),
        )

    @cached_property
    def level_of(self) -> NDArray[np.int64] | None:
        """Level whose rows serve each feature, or None where this one has them all (P15)."""
        if not is_there(self.element / self.index / "feature_level_of"):
            return None
        return read_array(self.element, self.index + "feature_level_of").astype(np.int64)

    @cached_property
    def group_starts(self) -> NDArray[np.int64]:
        """First row of each row group, then the number of rows."""
        return read_array(self.element, self.index + "feature_row_groups")

    @cached_property
    def part_starts(self) -> NDArray[np.int64]:
        """First row group of each part, then their number."""
        return read_array(self.element, self.index + "feature_parts")

    @cached_property
    def fractions(self) -> NDArray[np.float64] | None:
        """P_g of each feature at this level; None at level 0, where all are 1."""
        value = self.sampling.get("P_feature")
        if isinstance(value, Mapping):
            return np.asarray(read_array(self.element, str(value["array"])), dtype=np.float64)
        return None if value is None else np.asarray(value, dtype=np.float64)


def read_array(element: Path, path: str) -> NDArray[Any]:
    """Return a whole index array.

    Raises:
        StoreError: If it is missing or cannot be read.

    """
    try:
        array = zarr.open_array(element / path, mode="r")
        values: NDArray[Any] = np.asarray(array[:])
    except (FileNotFoundError, zarr.errors.NodeNotFoundError) as error:
        raise StoreError(f"the index array {element / path} is missing; index the points again") from error
    except Exception as error:  # zarr's codecs raise whatever their library does
        raise StoreError(f"could not read the index array {element / path}: {error}; run puncta validate") from error
    return values


def read_strings(element: Path, path: str) -> list[str]:
    """Return a whole index array of strings."""
    return [str(value) for value in read_array(element, path).tolist()]


def check_indexed(place: ElementPlace) -> None:
    """Raise for an element without a spatial index, or with one that breaks its schema or is of no use here.

    Raises:
        NotIndexedError: If there is no index; the message names the command that makes one.
        MetadataError: If the metadata breaks its schema; the message lists every problem.
        UnsupportedError: If the index is of a layout that is not read yet.

    """
    if "spatial_index" not in place.attrs:
        raise NotIndexedError(
            f"{place.path} has no spatial index; make one with: puncta index {place.path} --in-place, "
            f"or into a new store with: puncta index {place.path} -o NEW.zarr"
        )
    problems = validate_points_attrs(place.attrs)
    if problems:
        raise MetadataError(
            f"the metadata of {place.path} has {len(problems)} problems; index the points again, or repair:\n"
            + describe(problems)
        )
    layout = place.attrs["spatial_index"].get("layout", ["parquet"])
    if "parquet" not in layout:
        raise UnsupportedError(f"{place.path} has the layout {layout}, which is not read yet")


def transformations_of(place: ElementPlace, axes: tuple[str, ...]) -> dict[str, NDArray[np.float64]]:
    """Return the affine from stored coordinates to each coordinate system of an element."""
    return affines(place.attrs.get("coordinateTransformations") or (), axes)


def check_fresh(place: ElementPlace, systems: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64] | None:
    """Return the recorded affine of the grid, or None for the identity.

    Raises:
        StaleIndexError: If the element's transformation is no longer the one that was used (P17).

    """
    index = place.attrs["spatial_index"]
    recorded = index.get("affine")
    name, ndim = index["coordinate_system"], len(index["axes"])
    used = np.eye(ndim, ndim + 1) if recorded is None else np.asarray(recorded, dtype=np.float64)
    current = systems.get(name)
    # an index outside of SpatialData has no transformations to disagree with
    if systems and (current is None or not np.array_equal(current, used)):
        now = "has none now" if current is None else f"is now {current.tolist()}"
        raise StaleIndexError(
            f"the index of {place.path} is stale: it was built with the transformation {used.tolist()} to {name!r}, "
            f"which {now}; build it anew with: puncta index {place.path} --in-place --overwrite"
        )
    return None if is_identity(used) else used


def levels_of(place: ElementPlace) -> tuple[Level, ...]:
    """Return the levels of an element, the finest first."""
    axes = tuple(place.attrs["spatial_index"]["axes"])
    levels = []
    for number, entry in enumerate(place.attrs["multiscales"]["layout"]):
        index = entry["spatial_index"]
        sampling = index.get("sampling", {})
        levels.append(
            Level(
                number=number,
                grid=Grid(
                    axes=axes,
                    origin=tuple(index["origin"]),
                    tile_size=tuple(index["tile_size"]),
                    shape=tuple(index["grid_shape"]),
                ),
                n_rows=index["n_rows"],
                fraction=float(sampling.get("P", 1.0)),
                n_rows_feature=index.get("n_rows_feature"),
                tiles_per_part=index.get("tiles_per_part", 256),
                element=place.path,
                sampling=sampling,
                by=index.get("by", {}),
            )
        )
    return tuple(levels)
