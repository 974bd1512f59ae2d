"""The metadata of an indexed points element: its shape, and every problem found in one.

RFC 3, "Metadata"; decisions P18, P29 and P30 for the keys that we add.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, Literal, NotRequired, TypedDict

from puncta.spec._points_laws import broken_laws
from puncta.spec._problem import Problem, pointer

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator, ValidationError

VERSION: Final = "0.1"
"""Version of the `spatial_index` metadata that we write."""

RESAMPLING_METHOD: Final = "density_preserving"
"""Name of the RFC's sampling in the multiscales metadata (P29)."""

# Characters of a value, and of a rule, that a message shows.
_SHOWN: Final = 80


class ConventionEntry(TypedDict):
    """One entry of `zarr_conventions`."""

    uuid: str
    name: str
    schema_url: NotRequired[str]
    spec_url: NotRequired[str]


MULTISCALES_CONVENTION: Final[ConventionEntry] = {
    "name": "multiscales",
    "uuid": "d35379db-88df-4056-af3a-620245f8e347",
    "schema_url": "https://raw.githubusercontent.com/zarr-conventions/multiscales/refs/tags/v0.1/schema.json",
    "spec_url": "https://github.com/zarr-conventions/multiscales/blob/v0.1/README.md",
}
"""The entry of the levels, with the URLs that the RFC prints: readers tell revisions apart by the schema's."""

# No URLs before the project has a public address (P30); the UUID was drawn once and never changes.
SPATIAL_INDEX_CONVENTION: Final[ConventionEntry] = {
    "name": "spatial_index",
    "uuid": "a7bfd45e-a419-46a8-beb2-fd1903c8006a",
}
"""The entry of the spatial index."""


class ArrayReference(TypedDict):
    """An array that stands for a list of numbers."""

    array: str
    """Path below the element: `index/1/P_feature`."""


type Fractions = list[float] | ArrayReference
"""One fraction in (0, 1] for each feature, in the order of the categories, or the array that holds them (P12)."""


class Dropped(TypedDict, total=False):
    """How many points of the source were left out, by reason."""

    invalid: int
    where: int
    controls: int


class ElementIndex(TypedDict):
    """The element's `spatial_index`."""

    coordinate_system: str
    axes: list[str]
    orders: list[Literal["spatial", "feature"]]
    version: NotRequired[str]
    affine: NotRequired[list[list[float]]]
    """Stored coordinates to the grid's system, d rows of d + 1; absent for the identity."""
    feature_key: NotRequired[str]
    layout: NotRequired[list[Literal["parquet", "zarr"]]]
    feature_levels: NotRequired[Literal["all", "shared", "none"]]
    """Which levels have a feature-major copy (P15); `all` where absent."""
    limit: NotRequired[int]
    seed: NotRequired[int]
    where: NotRequired[str | list[str]]
    dropped: NotRequired[Dropped]
    created_with: NotRequired[str]


class Sampling(TypedDict):
    """The fractions of a sampled level, from level 1 on."""

    limit: int
    P: float
    """Fraction of the tile-order copy."""
    P_feature: NotRequired[Fractions]
    P_null: NotRequired[float]
    """Fraction of the points without a feature (P32)."""


class ByFeature(TypedDict, total=False):
    """What a further feature column has at a level (P11)."""

    n_rows_feature: int
    P_feature: Fractions
    P_null: float


class LevelIndex(TypedDict):
    """A level's `spatial_index`: its grid and its sampling, every list in the order of the element's axes."""

    origin: list[float]
    tile_size: list[float]
    grid_shape: list[int]
    n_rows: int
    """Rows of the tile-order copy."""
    tiles_per_part: NotRequired[int]
    n_rows_feature: NotRequired[int]
    """Rows stored in the level's feature-major copy."""
    sampling: NotRequired[Sampling]
    by: NotRequired[dict[str, ByFeature]]


class Transform(TypedDict):
    """How much larger the tiles are than those of the level before, per axis."""

    scale: list[float]


class Level(TypedDict):
    """One entry of the multiscales layout."""

    asset: str
    spatial_index: LevelIndex
    derived_from: NotRequired[str]
    transform: NotRequired[Transform]


class Multiscales(TypedDict):
    """The levels, the finest first."""

    layout: list[Level]
    resampling_method: NotRequired[str]


class PointsAttrs(TypedDict):
    """What indexing adds to the attributes of a points element."""

    zarr_conventions: list[ConventionEntry]
    spatial_index: ElementIndex
    multiscales: Multiscales


def asset_of(level: int, layout: Sequence[str]) -> str:
    """Return the path of a level's group below the element, which `asset` names (P18)."""
    return str(level) if "zarr" in layout else f"index/{level}"


def validate_points_attrs(attrs: Mapping[str, Any], *, strict: bool = False) -> list[Problem]:
    """Return every problem in the attributes of an indexed points element, none for good ones.

    First what the JSON Schema says, then the laws that tie keys together; a law is not tried on parts that the schema
    refuses. No array is opened.

    Args:
        attrs: Attributes of the element's group, as parsed from its `zarr.json`.
        strict: Report unknown keys of the `spatial_index` objects too, which readers ignore.

    """
    document = dict(attrs)
    problems = list(_schema_problems(document))
    problems += broken_laws(document, [problem.loc for problem in problems])
    problems += _unannounced(document)
    if strict:
        problems += _unknown_keys(document)
    return list(dict.fromkeys(problems))


def points_schema() -> dict[str, Any]:
    """Return a fresh copy of the JSON Schema (draft 2020-12) of the attributes."""
    text = files("puncta.spec").joinpath("schemas", "points.schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


@cache
def _validator() -> "Draft202012Validator":
    # 130 ms that a program which checks no document need not pay.
    from jsonschema import Draft202012Validator  # noqa: PLC0415

    return Draft202012Validator(points_schema())


def _schema_problems(document: dict[str, Any]) -> Iterator[Problem]:
    for error in _validator().iter_errors(document):
        place = pointer("", *error.absolute_path)
        if error.validator == "required":
            # One error stands for one absent key but does not name it: name all, repetitions fall away later.
            absent = [key for key in error.validator_value if key not in error.instance]
            yield from (Problem(pointer(place, key), "this key is required", "missing") for key in absent)
        else:
            yield Problem(place, _words(error), "schema")


def _words(error: "ValidationError") -> str:
    """Return the message of a schema error, short even where the value is long."""
    value = json.dumps(error.instance, default=str)
    shown = value if len(value) <= _SHOWN else value[:_SHOWN] + "..."
    return f"{shown} does not satisfy {error.validator} = {json.dumps(error.validator_value)[:_SHOWN]}"


def _unannounced(document: dict[str, Any]) -> Iterator[Problem]:
    """Yield the conventions that are used but not named, and a version that is not ours."""
    entries = document.get("zarr_conventions")
    if isinstance(entries, list):
        named = {str(entry.get(key)) for entry in entries if isinstance(entry, dict) for key in ("uuid", "name")}
        if MULTISCALES_CONVENTION["uuid"] not in named:
            yield Problem("/zarr_conventions", "no entry for multiscales", "missing")
        # By name too: the RFC has not settled the UUID, so another writer's differs.
        if not named & set(SPATIAL_INDEX_CONVENTION.values()):
            yield Problem("/zarr_conventions", "no entry for spatial_index", "missing")
    element = document.get("spatial_index")
    version = element.get("version", VERSION) if isinstance(element, dict) else VERSION
    if isinstance(version, str) and version != VERSION:
        yield Problem("/spatial_index/version", f"{version!r}; this reader knows {VERSION!r}", "version")


def _unknown_keys(document: dict[str, Any]) -> list[Problem]:
    """Return the keys of `spatial_index` objects that the schema does not know."""
    definitions = points_schema()["$defs"]
    places = [("/spatial_index", "element_index", document.get("spatial_index"))]
    multiscales = document.get("multiscales")
    layout = multiscales.get("layout") if isinstance(multiscales, dict) else None
    for number, level in enumerate(layout if isinstance(layout, list) else []):
        index = level.get("spatial_index") if isinstance(level, dict) else None
        place = f"/multiscales/layout/{number}/spatial_index"
        places.append((place, "level_index", index))
        if isinstance(index, dict):
            places.append((f"{place}/sampling", "sampling", index.get("sampling")))
            further = index.get("by")
            named = further.items() if isinstance(further, dict) else ()
            places += [(pointer(place, "by", column), "by_feature", value) for column, value in named]
    return [
        Problem(pointer(place, key), "this key is not known in version " + VERSION, "unexpected")
        for place, name, value in places
        if isinstance(value, dict)
        for key in value
        if key not in definitions[name]["properties"]
    ]


__all__ = [
    "MULTISCALES_CONVENTION",
    "RESAMPLING_METHOD",
    "SPATIAL_INDEX_CONVENTION",
    "VERSION",
    "ArrayReference",
    "ByFeature",
    "ConventionEntry",
    "Dropped",
    "ElementIndex",
    "Fractions",
    "Level",
    "LevelIndex",
    "Multiscales",
    "PointsAttrs",
    "Sampling",
    "Transform",
    "asset_of",
    "points_schema",
    "validate_points_attrs",
]
