"""The levels of an indexed element and their copies: where each lies in either layout, and its index arrays."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from puncta.errors import StoreError
from puncta.points._categories import Vocabulary
from puncta.points._copy import Copy
from puncta.points._element import Element, joined
from puncta.points._feature_rows import FeatureRows, Pairs
from puncta.points._find import Form
from puncta.points._footers import Footers
from puncta.points._grid import Grid
from puncta.points._parquet import ParquetCopy, Starts
from puncta.points._zarr import ZarrCopy

__all__ = ["FeatureCopy", "Level", "Source", "levels_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What all copies of an element are read from."""

    element: Element
    """Where it is."""

    form: Form
    """Layout that is read."""

    footers: Footers
    """The footers of its part files."""

    vocabulary: Vocabulary
    """The strings that it keeps."""

    def parquet(self, folder: str, *, group_starts: Starts, part_starts: Starts) -> ParquetCopy:
        """Return a copy in part files."""
        return ParquetCopy(self.element, self.footers, folder, group_starts=group_starts, part_starts=part_starts)

    def zarr(self, group: str, *, tile_offsets: Starts | None = None) -> ZarrCopy:
        """Return a copy in arrays."""
        return ZarrCopy(self.element, self.vocabulary, group, tile_offsets=tile_offsets)


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

    source: Source = field(repr=False)
    """What it is read from."""

    sampling: Mapping[str, Any] = field(repr=False)
    """The metadata's `sampling`."""

    by: Mapping[str, Any] = field(repr=False)
    """The metadata of the copies by further feature columns."""

    @cached_property
    def tile_offsets(self) -> NDArray[np.int64]:
        """First row of each tile, then the number of rows, shape (n_tiles + 1,)."""
        group = f"{self.number}/spatial" if self.source.form == "zarr" else f"index/{self.number}"
        offsets = self.source.element.array(f"{group}/tile_offsets")
        if len(offsets) != self.grid.n_tiles + 1 or offsets[0] or int(offsets[-1]) != self.n_rows:
            raise StoreError(
                f"{self.source.element.location}/{group}/tile_offsets does not fit the metadata ({len(offsets)} "
                f"entries for {self.grid.n_tiles} tiles and {self.n_rows} rows); run puncta validate"
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
        """Bytes of the files of the tile order; `UnsupportedError` on a web server, which cannot list them."""
        return self.stored.n_bytes()

    @property
    def bytes_feature(self) -> int:
        """Bytes of the files of the primary feature-major copy, 0 without one; else as `bytes`."""
        return 0 if self.n_rows_feature is None else self.copy(None).stored.n_bytes()

    @cached_property
    def stored(self) -> Copy:
        """The tile order as it is stored."""
        if self.source.form == "zarr":
            return self.source.zarr(f"{self.number}/spatial", tile_offsets=lambda: self.tile_offsets)
        folder = f"levels/{self.number}/points.parquet" if self.number else "points.parquet"
        return self.source.parquet(folder, group_starts=lambda: self.tile_offsets, part_starts=lambda: self.part_starts)

    @cached_property
    def part_starts(self) -> NDArray[np.int64]:
        """First tile of each part file, then the number of tiles."""
        return np.append(np.arange(0, self.grid.n_tiles, self.tiles_per_part), self.grid.n_tiles)

    @cached_property
    def _copies(self) -> dict[str | None, "FeatureCopy"]:
        return {}

    def has_copy(self, further: str | None) -> bool:
        """Say whether the level has a feature-major copy, of the primary feature column or a further one."""
        return self.n_rows_feature is not None if further is None else further in self.by

    def copy(self, further: str | None) -> "FeatureCopy":
        """Return a feature-major copy: of the primary feature column (None), or of a further one."""
        if further not in self._copies:
            self._copies[further] = FeatureCopy(
                source=self.source,
                level=self.number,
                further=further,
                n_rows=self.n_rows_feature if further is None else self.by[further].get("n_rows_feature"),
                sampling=self.sampling if further is None else self.by[further],
            )
        return self._copies[further]


@dataclass(frozen=True, kw_only=True)
class FeatureCopy:
    """A feature-major copy of one level, and its index."""

    source: Source = field(repr=False)
    """What it is read from."""

    level: int
    """Number of the level."""

    further: str | None
    """Its feature column; None for the primary one."""

    n_rows: int | None
    """Rows that it has; None where the metadata does not say."""

    sampling: Mapping[str, Any]
    """Its fractions in the metadata; empty at level 0."""

    @property
    def _inside(self) -> str:
        return "" if self.further is None else f"by-{self.further}"

    @property
    def group(self) -> str:
        """Where its index arrays are, below the element."""
        if self.source.form == "zarr":
            return f"{self.level}/{self._inside or 'feature'}"
        return joined("index", str(self.level), self._inside)

    @cached_property
    def stored(self) -> Copy:
        """The copy as it is stored."""
        if self.source.form == "zarr":
            return self.source.zarr(self.group)
        folder = joined("feature", str(self.level), self._inside, "points.parquet")
        return self.source.parquet(folder, group_starts=lambda: self.group_starts, part_starts=lambda: self.part_starts)

    @cached_property
    def rows(self) -> FeatureRows:
        """Where the rows of each feature lie."""
        own, offsets, indptr, _ = self._index
        found = offsets if own is None else own
        if found is None or indptr is None:
            # says which of them is missing
            names = ("feature_offsets", "feature_tiles/indptr")
            found, indptr = self.source.element.arrays([f"{self.group}/{name}" for name in names])
        pairs = Pairs(self.source.element, f"{self.group}/feature_tiles", count=int(indptr[-1]))
        return FeatureRows(found, indptr, pairs)

    @cached_property
    def level_of(self) -> NDArray[np.int64] | None:
        """Level whose rows serve each feature, or None where this one has them all (P15)."""
        level_of = self._index[3]
        return None if level_of is None else level_of.astype(np.int64)

    @cached_property
    def group_starts(self) -> NDArray[np.int64]:
        """First row of each row group of the part files, then the number of rows."""
        return self._borders[0]

    @cached_property
    def part_starts(self) -> NDArray[np.int64]:
        """First row group of each part file, then their number."""
        return self._borders[1]

    @cached_property
    def fractions(self) -> NDArray[np.float64] | None:
        """P_g of each feature at this level; None at level 0, where all are 1."""
        value = self.sampling.get("P_feature")
        if isinstance(value, Mapping):
            return np.asarray(self.source.element.array(str(value["array"])), dtype=np.float64)
        return None if value is None else np.asarray(value, dtype=np.float64)

    @cached_property
    def _index(self) -> list[NDArray[Any] | None]:
        """What there is of the arrays that say where features lie; read together."""
        names = ("feature_offsets_own", "feature_offsets", "feature_tiles/indptr", "feature_level_of")
        return self.source.element.arrays_there([f"{self.group}/{name}" for name in names])

    @cached_property
    def _borders(self) -> list[NDArray[np.int64]]:
        names = ("feature_row_groups", "feature_parts")
        return self.source.element.arrays([f"{self.group}/{name}" for name in names])


def levels_of(source: Source) -> tuple[Level, ...]:
    """Return the levels of an element, the finest first."""
    attrs = source.element.attrs
    axes = tuple(attrs["spatial_index"]["axes"])
    levels = []
    for number, entry in enumerate(attrs["multiscales"]["layout"]):
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
                source=source,
                sampling=sampling,
                by=index.get("by", {}),
            )
        )
    return tuple(levels)
