"""The laws of an indexed points element that a JSON Schema cannot say: they tie several keys together.

Pure. Each law looks only at what no earlier check refused, so that one mistake is reported once, where it was made.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from puncta.spec._problem import Problem, pointer

LAYOUT = "/multiscales/layout"


def broken_laws(document: Mapping[str, Any], refused: Iterable[str]) -> list[Problem]:
    """Return every law that the metadata breaks.

    Args:
        document: Attributes of the element.
        refused: Places (JSON pointers) that the schema refuses; what lies there is not looked at again.

    """
    places = set(refused)
    found: list[Problem] = []
    trusted = _trusted({key: document.get(key) for key in ("spatial_index", "multiscales")}, "", places)
    for first_law in (_not_finite, _wrong_lengths):
        found += first_law(trusted)
        places.update(problem.loc for problem in found)
        trusted = _trusted(trusted, "", places)
    element = trusted.get("spatial_index", {})
    levels = trusted.get("multiscales", {}).get("layout", [])
    found += [*_lineage(levels), *_grids(levels), *_orders(element, levels), *_fractions(levels)]
    found += [*_growing(element, levels), *_references(levels)]
    return [problem for problem in found if problem.kind != "missing" or not _touches(problem.loc, places)]


def _touches(place: str, refused: Iterable[str]) -> bool:
    """Say whether something at, below or around the place was refused: then it is wrong, not missing."""
    return any(f"{other}/".startswith(f"{place}/") or place.startswith(f"{other}/") for other in refused)


def _trusted(value: Any, place: str, refused: set[str]) -> Any:  # noqa: ANN401  # any JSON value
    """Return a copy without what is refused; None where nothing is left, {} for a level, so that positions stay."""
    if place in refused:
        return None
    if isinstance(value, Mapping):
        kept = {key: _trusted(item, pointer(place, key), refused) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item is not None}
    if isinstance(value, list):
        items = [_trusted(item, pointer(place, number), refused) for number, item in enumerate(value)]
        if place == LAYOUT:
            return [{} if item is None else item for item in items]
        return None if any(item is None for item in items) else items
    return value


def _not_finite(value: Any, place: str = "") -> list[Problem]:  # noqa: ANN401  # any JSON value
    """Python reads and writes NaN and infinity in JSON; strict parsers refuse the whole file for one."""
    if isinstance(value, float) and not math.isfinite(value):
        return [Problem(place, f"{value} is no number that JSON has", "json")]
    steps: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        steps = value.items()
    elif isinstance(value, list):
        steps = enumerate(value)
    return [problem for step, item in steps for problem in _not_finite(item, pointer(place, step))]


def _wrong_lengths(document: Mapping[str, Any]) -> list[Problem]:
    element = document.get("spatial_index", {})
    axes = element.get("axes")
    if axes is None:
        return []
    over = f"there are {len(axes)} axes ({', '.join(axes)})"
    found = []
    for number, level in enumerate(document.get("multiscales", {}).get("layout", [])):
        place = pointer(LAYOUT, number)
        lists = {f"{place}/spatial_index/{key}": level.get("spatial_index", {}).get(key) for key in _GRID_KEYS}
        lists[f"{place}/transform/scale"] = level.get("transform", {}).get("scale")
        found += [
            Problem(where, f"{len(values)} values, but {over}", "mismatch")
            for where, values in lists.items()
            if values is not None and len(values) != len(axes)
        ]
    affine = element.get("affine")
    if affine is not None and [len(row) for row in affine] != [len(axes) + 1] * len(axes):
        rows = f"rows of {', '.join(str(len(row)) for row in affine)} values; it must be {len(axes)} x {len(axes) + 1}"
        found.append(Problem("/spatial_index/affine", f"{rows}, because {over}", "mismatch"))
    return found


_GRID_KEYS = ("origin", "tile_size", "grid_shape")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grid:
    """A grid as the merge rule makes it, and the factor by which its tiles grew."""

    origin: list[float]
    tile_size: list[float]
    grid_shape: list[int]
    scale: list[float]


def _merged(grid: _Grid) -> _Grid | None:
    """Return the next grid by "The rule in formulas"; None after a single tile.

    Written apart from `puncta.points`, which builds grids by the same rule: the two check each other.
    """
    pairs = list(zip(grid.tile_size, grid.grid_shape, strict=True))
    smallest = min((size for size, count in pairs if count > 1), default=None)
    if smallest is None:
        return None
    factors = [2 if count > 1 and size < 2 * smallest else 1 for size, count in pairs]
    return _Grid(
        origin=grid.origin,
        tile_size=[size * factor for (size, _), factor in zip(pairs, factors, strict=True)],
        grid_shape=[-(-count // factor) for (_, count), factor in zip(pairs, factors, strict=True)],
        scale=[float(factor) for factor in factors],
    )


def _grids(levels: list[dict[str, Any]]) -> Iterator[Problem]:
    """Hold every grid against what level 0 becomes, so that a wrong one does not put its neighbours in the wrong."""
    first = levels[0].get("spatial_index", {}) if levels else {}
    values = [first[key] for key in _GRID_KEYS if key in first]
    if len(values) < len(_GRID_KEYS) or len({len(value) for value in values}) > 1:
        return
    expected = _Grid(origin=values[0], tile_size=values[1], grid_shape=values[2], scale=[])
    for number, level in enumerate(levels[1:], 1):
        merged = _merged(expected)
        place = pointer(LAYOUT, number)
        if merged is None:
            yield Problem(place, "the level before is a single tile already, by the merge rule", "mismatch")
            return
        expected = merged
        lists = {f"{place}/spatial_index/{key}": (level.get("spatial_index", {}).get(key), key) for key in _GRID_KEYS}
        lists[f"{place}/transform/scale"] = (level.get("transform", {}).get("scale"), "scale")
        for where, (value, key) in lists.items():
            if value is not None and value != getattr(expected, key):
                yield Problem(where, f"{value}, but merging level 0 gives {getattr(expected, key)}", "mismatch")


def _lineage(levels: list[dict[str, Any]]) -> Iterator[Problem]:
    if levels and "derived_from" in levels[0]:
        yield Problem(f"{LAYOUT}/0/derived_from", "level 0 derives from no other level", "mismatch")
    seen: dict[str, int] = {}
    for number, level in enumerate(levels):
        place, asset = pointer(LAYOUT, number), level.get("asset")
        if asset is not None and seen.setdefault(asset, number) != number:
            yield Problem(f"{place}/asset", f"{asset!r} is the asset of level {seen[asset]} too", "mismatch")
    for number, (before, level) in enumerate(pairwise(levels), 1):
        place, asset = pointer(LAYOUT, number), before.get("asset")
        for key in ("derived_from", "transform"):
            if key not in level:
                yield Problem(f"{place}/{key}", "every level but the first has this key", "missing")
        if asset is not None and level.get("derived_from", asset) != asset:
            message = f"{level['derived_from']!r} is not the level before, {asset!r}"
            yield Problem(f"{place}/derived_from", message, "mismatch")


def _orders(element: dict[str, Any], levels: list[dict[str, Any]]) -> Iterator[Problem]:
    orders = element.get("orders")
    if orders is None:
        return
    if "feature" in orders and "feature_key" not in element:
        yield Problem("/spatial_index/feature_key", "needed where orders has a feature-major copy", "missing")
    for number, level in enumerate(levels):
        index = level.get("spatial_index", {})
        place = f"{LAYOUT}/{number}/spatial_index"
        if "feature" not in orders:
            yield from _without_copy(index, place)
            continue
        n_rows = index.get("n_rows")
        for where, copy in _copies(index, place):
            if number == 0:
                yield from _incomplete(copy, where, n_rows)
            elif element.get("feature_levels") == "none":
                yield from _uncalled(copy, where)
            elif where != f"{place}/sampling" or "sampling" in index:
                yield from _no_fractions(copy, where)


def _copies(index: dict[str, Any], place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each feature-major copy of a level with the place of its fractions, the first feature's before others'."""
    rows = {key: index[key] for key in ("n_rows_feature",) if key in index}
    yield f"{place}/sampling", {**index.get("sampling", {}), **rows}
    for column, further in index.get("by", {}).items():
        yield pointer(place, "by", column), further


def _rows_place(where: str) -> str:
    """Return where the row count of a copy stands: the first feature's is not among the fractions."""
    return f"{where.removesuffix('/sampling')}/n_rows_feature"


def _without_copy(index: dict[str, Any], place: str) -> Iterator[Problem]:
    message = "present, but orders has no feature-major copy"
    for key in ("n_rows_feature", "by"):
        if key in index:
            yield Problem(f"{place}/{key}", message, "mismatch")
    if "P_feature" in index.get("sampling", {}):
        yield Problem(f"{place}/sampling/P_feature", message, "mismatch")


def _incomplete(copy: dict[str, Any], where: str, n_rows: int | None) -> Iterator[Problem]:
    rows = copy.get("n_rows_feature")
    if rows is not None and n_rows is not None and rows != n_rows:
        message = f"{rows}, but level 0 holds all {n_rows} points in either order"
        yield Problem(_rows_place(where), message, "mismatch")


def _uncalled(copy: dict[str, Any], where: str) -> Iterator[Problem]:
    if copy.get("n_rows_feature", 0) > 0:
        message = "feature_levels is 'none', so only level 0 has a feature-major copy"
        yield Problem(_rows_place(where), message, "mismatch")


def _no_fractions(copy: dict[str, Any], where: str) -> Iterator[Problem]:
    if "P_feature" not in copy:
        yield Problem(f"{where}/P_feature", "needed at every sampled level of a feature-major copy", "missing")


def _fractions(levels: list[dict[str, Any]]) -> Iterator[Problem]:
    for number, level in enumerate(levels):
        index = level.get("spatial_index")
        place = f"{LAYOUT}/{number}/spatial_index/sampling"
        if number > 0 and index is not None and "sampling" not in index:
            yield Problem(place, "every level but the first has this key", "missing")
        fraction = (index or {}).get("sampling", {}).get("P", 1)
        if number == 0 and fraction != 1:
            yield Problem(f"{place}/P", f"{fraction}, but level 0 holds every point", "mismatch")


def _growing(element: dict[str, Any], levels: list[dict[str, Any]]) -> Iterator[Problem]:
    """Levels are nested: neither fractions nor counts grow from one to the next."""
    paths = [("n_rows",), ("sampling", "P"), ("sampling", "P_null"), ("sampling", "P_feature")]
    columns = dict.fromkeys(column for level in levels for column in level.get("spatial_index", {}).get("by", {}))
    paths += [("by", column, key) for column in columns for key in ("P_null", "P_feature")]
    # `shared` stores at a level only the features whose fraction changed there, so its counts go up and down.
    if element.get("feature_levels", "all") == "all":
        paths += [("n_rows_feature",), *(("by", column, "n_rows_feature") for column in columns)]
    for path in paths:
        values = [_at(level.get("spatial_index", {}), path) for level in levels]
        known = [(number, value) for number, value in enumerate(values) if isinstance(value, int | float | list)]
        for (before, old), (number, new) in pairwise(known):
            message = _growth(old, new)
            if message:
                place = pointer(f"{LAYOUT}/{number}/spatial_index", *path)
                yield Problem(place, f"{message} at level {before}; levels are nested", "mismatch")


def _at(value: Any, path: tuple[str, ...]) -> Any:  # noqa: ANN401  # any JSON value
    for step in path:
        value = value.get(step, {})
    return value


def _growth(old: float | list[float], new: float | list[float]) -> str:
    """Say what grew from a number to a number, or from a list to a list; empty where nothing did."""
    if isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            return f"{len(new)} values, but {len(old)}"
        grown = [place for place, (one, other) in enumerate(zip(old, new, strict=True)) if other > one]
        first = f"entry {grown[0]} is {new[grown[0]]}, but {old[grown[0]]}" if grown else ""
        return f"{len(grown)} of {len(new)} values grew (first: {first})" if grown else ""
    if isinstance(old, list) or isinstance(new, list):
        return ""
    return f"{new}, but {old}" if new > old else ""


def _references(levels: list[dict[str, Any]]) -> Iterator[Problem]:
    """A path that leaves the element could read anything that the server holds."""
    for number, level in enumerate(levels):
        for where, copy in _copies(level.get("spatial_index", {}), f"{LAYOUT}/{number}/spatial_index"):
            fractions = copy.get("P_feature")
            path = fractions.get("array") if isinstance(fractions, dict) else None
            if path is not None and (path.startswith("/") or "\\" in path or ".." in path.split("/")):
                yield Problem(f"{where}/P_feature/array", f"{path!r} leads out of the element", "unsafe")
