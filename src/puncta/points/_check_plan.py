"""What the metadata of an index promises, as far as it can be believed. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from puncta.errors import GridError, MetadataError
from puncta.points._grid import Grid
from puncta.spec._problem import Problem, pointer
from puncta.spec.transformations import affines

POINTS_ENCODING = "ngff:points"
"""How SpatialData marks a points element."""

type Form = Literal["parquet", "zarr"]
"""How levels are stored: one of those that the metadata's `layout` names."""

# What a writer means that does not say how many tiles a part file has (P6).
_TILES_PER_PART = 256

# Without these nothing of the index can be found or understood.
_WHOLE = ("/spatial_index/axes", "/spatial_index/affine", "/spatial_index/orders", "/spatial_index/feature_key")


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPlan:
    """The feature-major copy of one feature column at one level."""

    column: str
    level: int
    folder: str
    """Folder of its part files, or group of its columns, below the element."""
    arrays: str
    """Where its arrays stand below the element, with a slash at the end."""
    n_rows: int | None
    """None where the metadata does not say."""
    is_partial: bool
    """Whether it stores only the features whose fraction changed at this level (P15)."""
    fractions: Any
    """P_feature as the metadata has it: numbers, or the array that holds them; None at level 0 or where refused."""
    fractions_loc: str
    """Where the fractions stand in the metadata, as a JSON pointer."""
    form: Form


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelPlan:
    """One level."""

    number: int
    grid: Grid | None
    """None where the metadata of the grid is refused."""
    n_rows: int | None
    tiles_per_part: int
    fraction: float | None
    """P, or None where the metadata does not give a usable one; level 0 need not."""
    limit: int | None
    copies: tuple[CopyPlan, ...]
    form: Form

    @property
    def folder(self) -> str:
        """Folder of the part files of the tile order, or group of its columns, below the element."""
        if self.form == "zarr":
            return f"{self.number}/spatial"
        return f"levels/{self.number}/points.parquet" if self.number else "points.parquet"

    @property
    def offsets(self) -> str:
        """The array of the tile offsets, below the element."""
        return f"{self.number}/spatial/tile_offsets" if self.form == "zarr" else f"index/{self.number}/tile_offsets"

    @property
    def loc(self) -> str:
        """Where the level stands in the metadata, as a JSON pointer."""
        return f"/multiscales/layout/{self.number}/spatial_index"


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementPlan:
    """The whole index."""

    axes: tuple[str, ...]
    affine: NDArray[np.float64] | None
    """Stored coordinates to the grid's system; None for the identity."""
    columns: tuple[str, ...]
    """The feature columns, the primary one first."""
    levels: tuple[LevelPlan, ...]
    form: Form


def plan_of(attrs: Mapping[str, Any], problems: Sequence[Problem], form: Form) -> ElementPlan | None:
    """Return what the metadata promises of one layout, without what has problems; None where too little is left.

    Args:
        attrs: Attributes of the element.
        problems: What `validate_points_attrs` found in them.
        form: The layout.

    """
    refused = [problem.loc for problem in problems]
    if any(
        loc in {"/multiscales", "/multiscales/layout"} or _touches(loc, place) for loc in refused for place in _WHOLE
    ):
        return None
    element, layout = attrs["spatial_index"], attrs["multiscales"]["layout"]
    axes = tuple(element["axes"])
    affine = None if "affine" not in element else np.asarray(element["affine"], dtype=np.float64)
    levels = tuple(_level(element, number, entry, axes, refused, form) for number, entry in enumerate(layout))
    columns = [element["feature_key"]] if "feature_key" in element else []
    columns += [copy.column for level in levels for copy in level.copies]
    return ElementPlan(axes=axes, affine=affine, columns=tuple(dict.fromkeys(columns)), levels=levels, form=form)


def _touches(loc: str, place: str) -> bool:
    return f"{loc}/".startswith(f"{place}/") or f"{place}/".startswith(f"{loc}/")


def _level(
    element: Mapping[str, Any], number: int, entry: object, axes: tuple[str, ...], refused: Sequence[str], form: Form
) -> LevelPlan:
    index = entry.get("spatial_index") if isinstance(entry, Mapping) else None
    index = index if isinstance(index, Mapping) else {}
    place = f"/multiscales/layout/{number}/spatial_index"
    sampling = index.get("sampling")
    sampling = sampling if isinstance(sampling, Mapping) else {}
    is_refused = any(
        _touches(loc, f"{place}/{key}") for loc in refused for key in ("origin", "tile_size", "grid_shape")
    )
    tiles = _count(index.get("tiles_per_part", _TILES_PER_PART))
    return LevelPlan(
        number=number,
        grid=None if is_refused or not tiles else _grid(index, axes),
        n_rows=_count(index.get("n_rows")),
        tiles_per_part=tiles or _TILES_PER_PART,
        fraction=_fraction(sampling.get("P")) if f"{place}/sampling/P" not in refused else None,
        limit=_count(sampling.get("limit")),
        copies=tuple(_copies(element, number, index, sampling, place=place, refused=refused, form=form)),
        form=form,
    )


def _grid(index: Mapping[str, Any], axes: tuple[str, ...]) -> Grid | None:
    try:
        return Grid(
            axes=axes,
            origin=tuple(index["origin"]),
            tile_size=tuple(index["tile_size"]),
            shape=tuple(index["grid_shape"]),
        )
    except (GridError, KeyError, TypeError):
        return None


def _copies(
    element: Mapping[str, Any],
    number: int,
    index: Mapping[str, Any],
    sampling: Mapping[str, Any],
    *,
    place: str,
    refused: Sequence[str],
    form: Form,
) -> Iterator[CopyPlan]:
    mode = element.get("feature_levels", "all")
    if "feature" not in element["orders"] or (number and mode == "none"):
        return
    first: Mapping[str, Any] = {"n_rows_feature": index.get("n_rows_feature"), "P_feature": sampling.get("P_feature")}
    further = index.get("by")
    named = further.items() if isinstance(further, Mapping) else ()
    found = [(element["feature_key"], "", f"{place}/sampling/P_feature", first)]
    found += [
        (name, f"by-{name}/", pointer(place, "by", name, "P_feature"), copy)
        for name, copy in named
        if isinstance(copy, Mapping)
    ]
    for column, inside, loc, copy in found:
        group = f"{number}/{inside or 'feature/'}"
        yield CopyPlan(
            column=column,
            level=number,
            folder=group.rstrip("/") if form == "zarr" else f"feature/{number}/{inside}points.parquet",
            arrays=group if form == "zarr" else f"index/{number}/{inside}",
            n_rows=_count(copy.get("n_rows_feature")),
            is_partial=bool(number) and mode == "shared",
            fractions=None if any(_touches(other, loc) for other in refused) else copy.get("P_feature"),
            fractions_loc=loc,
            form=form,
        )


def _count(value: Any) -> int | None:  # noqa: ANN401  # any JSON value
    # in JSON 4000.0 is an integer too
    is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return int(value) if is_whole and not isinstance(value, bool) and value >= 0 else None


def _fraction(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None


def other_element(attrs: Mapping[str, Any], plan: ElementPlan) -> list[Problem]:
    """Return what SpatialData's own keys say that is not true of a points element with this index."""
    problems = []
    if attrs.get("encoding-type", POINTS_ENCODING) != POINTS_ENCODING:
        message = f"{attrs['encoding-type']!r}, but that of points is {POINTS_ENCODING!r}"
        problems.append(Problem("/encoding-type", message, "mismatch"))
    axes = attrs.get("axes", list(plan.axes))
    if not isinstance(axes, list) or sorted(map(str, axes)) != sorted(plan.axes):
        problems.append(Problem("/axes", f"{axes!r}, but those of the index are {', '.join(plan.axes)}", "mismatch"))
    return problems


def stale_transformation(attrs: Mapping[str, Any], plan: ElementPlan) -> list[Problem]:
    """Return what is wrong with the element's transformation to the grid's system: it must be the one recorded."""
    loc = "/coordinateTransformations"
    system = attrs["spatial_index"].get("coordinate_system")
    try:
        known = affines(attrs.get("coordinateTransformations") or [], plan.axes)
    except (MetadataError, TypeError, AttributeError) as error:
        return [Problem(loc, f"cannot be read as affines: {error}", "schema")]
    # an index outside of SpatialData has no transformations to disagree with
    if not known and plan.affine is None:
        return []
    if system not in known:
        names = ", ".join(sorted(known)) or "none"
        return [Problem(loc, f"there is none to {system!r}, the system of the grid; there are: {names}", "stale")]
    recorded = np.eye(len(plan.axes), len(plan.axes) + 1) if plan.affine is None else plan.affine
    if np.array_equal(known[system], recorded):
        return []
    message = f"the one to {system!r} is now {known[system].tolist()}, but the index was built with {recorded.tolist()}"
    return [Problem(loc, f"{message}; index again with: puncta index --in-place --overwrite", "stale")]
