"""The metadata of an index that was built (P30). Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from puncta.indexing._feature_index import MAX_FRACTIONS_IN_METADATA, FeatureOrder
from puncta.points._grid import Grid
from puncta.spec.points import (
    MULTISCALES_CONVENTION,
    RESAMPLING_METHOD,
    SPATIAL_INDEX_CONVENTION,
    VERSION,
    ByFeature,
    Dropped,
    ElementIndex,
    Fractions,
    Level,
    LevelIndex,
    PointsAttrs,
    Sampling,
    asset_of,
)

type Layout = Literal["parquet", "zarr"]
"""How the levels are stored."""

type FeatureLevels = Literal["all", "shared", "none"]
"""Which levels get a feature-major copy, and of which features (P15)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What was built, as far as the metadata speaks of it."""

    grids: tuple[Grid, ...]
    """Grids of the levels."""

    fractions: tuple[float, ...]
    """P of the levels."""

    n_rows: tuple[int, ...]
    """Rows of the tile order of the levels."""

    orders: dict[str, FeatureOrder] = field(default_factory=dict)
    """The feature-major copies, by feature column, the primary one first."""


def points_attributes(
    built: Built,
    *,
    coordinate_system: str,
    affine: NDArray[np.float64] | None,
    features: Sequence[str],
    feature_levels: FeatureLevels,
    layouts: Sequence[Layout],
    tiles_per_part: int,
    limit: int,
    seed: int,
    where: Sequence[str],
    dropped: Dropped,
    created_with: str,
) -> PointsAttrs:
    """Return what indexing adds to the attributes of the element."""
    index = ElementIndex(
        version=VERSION,
        coordinate_system=coordinate_system,
        axes=list(built.grids[0].axes),
        orders=["spatial", "feature"] if built.orders else ["spatial"],
        layout=list(layouts),
        limit=limit,
        seed=seed,
        created_with=created_with,
    )
    if affine is not None:
        index["affine"] = affine.tolist()
    if features:
        index["feature_key"] = features[0]
    if built.orders:
        index["feature_levels"] = feature_levels
    if where:
        index["where"] = list(where)
    if dropped:
        index["dropped"] = dropped
    return PointsAttrs(
        zarr_conventions=[MULTISCALES_CONVENTION, SPATIAL_INDEX_CONVENTION],
        spatial_index=index,
        multiscales={
            "resampling_method": RESAMPLING_METHOD,
            "layout": [
                _level(built, level, layouts, tiles_per_part=tiles_per_part, limit=limit)
                for level in range(len(built.grids))
            ],
        },
    )


def _level(built: Built, number: int, layouts: Sequence[Layout], *, tiles_per_part: int, limit: int) -> Level:
    grid = built.grids[number]
    index = LevelIndex(
        origin=list(grid.origin),
        tile_size=list(grid.tile_size),
        grid_shape=list(grid.shape),
        n_rows=built.n_rows[number],
        tiles_per_part=tiles_per_part,
    )
    if number:
        index["sampling"] = Sampling(limit=limit, P=built.fractions[number])
    for position, (name, order) in enumerate(built.orders.items()):
        if number >= len(order.levels):
            continue
        copy = _copy(order, number, copy_home(number, name if position else None, layouts[0]))
        if position:
            index.setdefault("by", {})[name] = copy
            continue
        index["n_rows_feature"] = copy["n_rows_feature"]
        if number:
            index["sampling"]["P_feature"] = copy["P_feature"]
            if "P_null" in copy:
                index["sampling"]["P_null"] = copy["P_null"]
    level = Level(asset=asset_of(number, layouts), spatial_index=index)
    if number:
        level["derived_from"] = asset_of(number - 1, layouts)
        level["transform"] = {"scale": list(grid.scale_from(built.grids[number - 1]))}
    return level


def copy_home(level: int, further: str | None, layout: Layout) -> str:
    """Return where the arrays of a feature-major copy stand below the element (P31).

    Args:
        level: Number of the level.
        further: None for the primary feature column, the name of a further one.
        layout: The layout whose arrays are meant.

    """
    if layout == "zarr":
        return f"{level}/feature" if further is None else f"{level}/by-{further}"
    return f"index/{level}" if further is None else f"index/{level}/by-{further}"


def _copy(order: FeatureOrder, number: int, home: str) -> ByFeature:
    """Return what the metadata says of one feature-major copy of one level, whose arrays stand at home."""
    copy = ByFeature(n_rows_feature=order.levels[number].n_rows)
    if number:
        copy["P_feature"] = _fractions(order.fractions[number], f"{home}/P_feature")
        if order.null_fractions is not None:
            copy["P_null"] = float(order.null_fractions[number])
    return copy


def _fractions(values: NDArray[np.float64], path: str) -> Fractions:
    return {"array": path} if len(values) > MAX_FRACTIONS_IN_METADATA else [float(value) for value in values]
