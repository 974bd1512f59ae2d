"""The metadata of an indexed points element: good ones pass, and each broken law is found at its place."""

import copy
import json
from collections.abc import Callable, Mapping
from typing import Any

import jsonschema
import pytest
import zarr_cm
from hypothesis import given
from hypothesis import strategies as st

from puncta.points._grid import Grid
from puncta.spec import points
from puncta.spec._problem import Problem, describe
from puncta.spec.points import PointsAttrs, validate_points_attrs

LAYOUT = "/multiscales/layout"


def levels_of(grid: Grid, n_rows: int = 1000) -> list[points.Level]:
    """Return the layout of a pyramid whose levels keep half of the points of the level before."""
    levels: list[points.Level] = []
    finer = grid
    for number, level in enumerate(grid.pyramid()):
        index: points.LevelIndex = {
            "origin": list(level.origin),
            "tile_size": list(level.tile_size),
            "grid_shape": list(level.shape),
            "n_rows": n_rows >> number,
            "tiles_per_part": 256,
            "n_rows_feature": n_rows,
        }
        entry: points.Level = {"asset": points.asset_of(number, ["parquet"]), "spatial_index": index}
        if number:
            entry["derived_from"] = levels[-1]["asset"]
            entry["transform"] = {"scale": list(level.scale_from(finer))}
            index["sampling"] = {"limit": 10, "P": 0.5**number, "P_feature": [1.0, 0.5**number], "P_null": 1.0}
            index["by"] = {"cell/type": {"n_rows_feature": 8, "P_feature": {"array": f"index/{number}/by/P_feature"}}}
        levels.append(entry)
        finer = level
    return levels


def good(grid: Grid | None = None) -> PointsAttrs:
    """Return the metadata with every key that there is."""
    worked = Grid(axes=("x", "y", "z"), origin=(0.5, 0, -1), tile_size=(100, 100, 10), shape=(12, 8, 3))
    return {
        "zarr_conventions": [points.MULTISCALES_CONVENTION, points.SPATIAL_INDEX_CONVENTION],
        "spatial_index": {
            "version": points.VERSION,
            "coordinate_system": "global",
            "affine": [[2.0, 0.0, 0.0, 1.0], [0.0, 2.0, 0.0, 1.0], [0.0, 0.0, 1.0, 0.0]],
            "axes": ["x", "y", "z"],
            "feature_key": "gene",
            "orders": ["spatial", "feature"],
            "layout": ["parquet"],
            "feature_levels": "all",
            "limit": 10,
            "seed": 0,
            "where": ["qv >= 20"],
            "dropped": {"invalid": 1, "where": 2, "controls": 3},
            "created_with": "puncta 0.1.0",
        },
        "multiscales": {"resampling_method": points.RESAMPLING_METHOD, "layout": levels_of(grid or worked)},
    }


def broken(change: Callable[[Any], object]) -> list[tuple[str, str]]:
    """Return place and kind of every problem after a change of good metadata."""
    attrs = copy.deepcopy(good())
    change(attrs)
    return [(problem.loc, problem.kind) for problem in validate_points_attrs(attrs)]


def put(place: str, value: object) -> Callable[[Any], None]:
    """Return the change that puts a value at a place; `...` removes what is there."""

    def change(attrs: Any) -> None:  # noqa: ANN401  # any JSON value
        *parents, last = [int(step) if step.isdigit() else step.replace("~1", "/") for step in place.split("/")[1:]]
        for step in parents:
            attrs = attrs[step]
        if value is ...:
            del attrs[last]
        else:
            attrs[last] = value

    return change


def level(number: int, rest: str = "") -> str:
    """Return a place in the `spatial_index` of a level."""
    return f"{LAYOUT}/{number}/spatial_index{rest}"


def test_our_schema_is_itself_a_valid_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(points.points_schema())


def test_good_metadata_has_no_problem() -> None:
    assert validate_points_attrs(good(), strict=True) == []


def test_the_keys_of_the_schema_are_those_of_the_types() -> None:
    definitions = points.points_schema()["$defs"]
    typed = {
        "element_index": points.ElementIndex,
        "level_index": points.LevelIndex,
        "sampling": points.Sampling,
        "by_feature": points.ByFeature,
        "level": points.Level,
        "dropped": points.Dropped,
    }
    for name, shape in typed.items():
        assert set(definitions[name]["properties"]) == set(shape.__annotations__)
        assert set(definitions[name].get("required", [])) == shape.__required_keys__  # type: ignore[attr-defined]  # mypy: typeddict


def test_metadata_of_the_rfc_alone_has_no_problem() -> None:
    attrs: Any = good()
    own = ("version", "affine", "layout", "feature_levels", "limit", "seed", "where", "dropped", "created_with")
    for key in own:
        del attrs["spatial_index"][key]
    for entry in attrs["multiscales"]["layout"]:
        for key in ("tiles_per_part", "n_rows_feature", "by"):
            entry["spatial_index"].pop(key, None)
    attrs["zarr_conventions"][1] = {"name": "spatial_index", "uuid": "another"}
    assert validate_points_attrs(attrs) == []


def test_the_example_of_the_rfc_breaks_its_own_merge_rule() -> None:
    attrs: Any = good()
    first, second = attrs["multiscales"]["layout"][:2]
    first["spatial_index"].update(origin=[0.0] * 3, grid_shape=[120, 80, 3], tile_size=[100.0, 100.0, 10.0])
    second["spatial_index"].update(origin=[0.0] * 3, grid_shape=[60, 40, 2], tile_size=[200.0, 200.0, 20.0])
    second["transform"] = {"scale": [2.0, 2.0, 2.0]}
    attrs["multiscales"]["layout"] = [first, second]
    found = [problem.loc for problem in validate_points_attrs(attrs)]
    assert found == [level(1, "/tile_size"), level(1, "/grid_shape"), f"{LAYOUT}/1/transform/scale"]


def test_multiscales_part_satisfies_the_convention() -> None:
    attrs: Any = good()
    assert zarr_cm.detect_revisions(attrs)["multiscales"] == "r2"
    zarr_cm.validate_all(attrs)
    zarr_cm.multiscales.validate_group_metadata({"zarr_format": 3, "node_type": "group", "attributes": attrs})


@given(
    sizes=st.lists(st.floats(0.01, 1000), min_size=3, max_size=3),
    shape=st.lists(st.integers(1, 50), min_size=3, max_size=3),
)
def test_every_pyramid_that_grids_make_satisfies_the_merge_rule(sizes: list[float], shape: list[int]) -> None:
    grid = Grid(axes=("x", "y", "z"), origin=(0.1, -7, 3e5), tile_size=tuple(sizes), shape=tuple(shape))
    attrs: Mapping[str, Any] = json.loads(json.dumps(good(grid)))
    assert validate_points_attrs(attrs) == []


BROKEN: list[tuple[str, object, str, str]] = [
    ("/spatial_index", ..., "/spatial_index", "missing"),
    ("/spatial_index", 3, "/spatial_index", "schema"),
    ("/spatial_index/coordinate_system", ..., "/spatial_index/coordinate_system", "missing"),
    ("/spatial_index/orders", ["feature"], "/spatial_index/orders", "schema"),
    ("/spatial_index/feature_levels", "some", "/spatial_index/feature_levels", "schema"),
    ("/spatial_index/seed", 0.5, "/spatial_index/seed", "schema"),
    ("/spatial_index/where", [1], "/spatial_index/where/0", "schema"),
    ("/spatial_index/version", "0.2", "/spatial_index/version", "version"),
    ("/spatial_index/affine", [[1.0, 0.0, 0.0]] * 3, "/spatial_index/affine", "mismatch"),
    ("/spatial_index/affine/1/2", float("nan"), "/spatial_index/affine/1/2", "json"),
    ("/spatial_index/feature_key", ..., "/spatial_index/feature_key", "missing"),
    ("/zarr_conventions/0", {"uuid": "?"}, "/zarr_conventions", "missing"),
    ("/zarr_conventions/1", {"name": "proj", "uuid": "?"}, "/zarr_conventions", "missing"),
    ("/zarr_conventions/1", {"name": "spatial_index"}, "/zarr_conventions/1", "schema"),
    ("/multiscales/resampling_method", "mean", "/multiscales/resampling_method", "schema"),
    (LAYOUT, [], LAYOUT, "schema"),
    (level(0, "/origin"), [0.5, 0], level(0, "/origin"), "mismatch"),
    (level(1, "/tile_size"), [100.0] * 4, level(1, "/tile_size"), "mismatch"),
    (level(1, "/grid_shape"), [12, 8], level(1, "/grid_shape"), "mismatch"),
    (level(2, "/grid_shape"), [6, 8, 1], level(2, "/grid_shape"), "mismatch"),
    (level(2, "/tile_size/0"), 101.0, level(2, "/tile_size"), "mismatch"),
    (level(2, "/tile_size/0"), 0, level(2, "/tile_size/0"), "schema"),
    (level(2, "/origin/1"), 1.0, level(2, "/origin"), "mismatch"),
    (level(2, "/origin/1"), float("inf"), level(2, "/origin/1"), "json"),
    (level(1, "/n_rows"), 1001, level(1, "/n_rows"), "mismatch"),
    (level(1, "/n_rows"), -1, level(1, "/n_rows"), "schema"),
    (level(0, "/n_rows_feature"), 1001, level(0, "/n_rows_feature"), "mismatch"),
    (level(1, "/n_rows_feature"), 1001, level(1, "/n_rows_feature"), "mismatch"),
    (level(0, "/tiles_per_part"), 1025, level(0, "/tiles_per_part"), "schema"),
    (level(0, "/sampling"), {"limit": 10, "P": 0.5}, level(0, "/sampling/P"), "mismatch"),
    (level(1, "/sampling"), ..., level(1, "/sampling"), "missing"),
    (level(1, "/sampling"), 5, level(1, "/sampling"), "schema"),
    (level(1, "/sampling/P"), ..., level(1, "/sampling/P"), "missing"),
    (level(1, "/sampling/P"), 0.0, level(1, "/sampling/P"), "schema"),
    (level(1, "/sampling/P"), 1.5, level(1, "/sampling/P"), "schema"),
    (level(2, "/sampling/P"), 0.75, level(2, "/sampling/P"), "mismatch"),
    (level(2, "/sampling/P_feature"), ..., level(2, "/sampling/P_feature"), "missing"),
    (level(2, "/sampling/P_feature/1"), 0.75, level(2, "/sampling/P_feature"), "mismatch"),
    (level(2, "/sampling/P_feature/1"), 0, level(2, "/sampling/P_feature/1"), "schema"),
    (level(1, "/sampling/P_feature"), {}, level(1, "/sampling/P_feature/array"), "missing"),
    (level(1, "/sampling/P_feature"), {"array": "../x"}, level(1, "/sampling/P_feature/array"), "unsafe"),
    (level(1, "/by/cell~1type/P_feature"), "a", level(1, "/by/cell~1type/P_feature"), "schema"),
    (level(1, "/by/cell~1type/P_feature"), ..., level(1, "/by/cell~1type/P_feature"), "missing"),
    (level(2, "/by/cell~1type/n_rows_feature"), 9, level(2, "/by/cell~1type/n_rows_feature"), "mismatch"),
    (f"{LAYOUT}/0/derived_from", "index/1", f"{LAYOUT}/0/derived_from", "mismatch"),
    (f"{LAYOUT}/1/derived_from", ..., f"{LAYOUT}/1/derived_from", "missing"),
    (f"{LAYOUT}/2/derived_from", "index/0", f"{LAYOUT}/2/derived_from", "mismatch"),
    (f"{LAYOUT}/1/transform", ..., f"{LAYOUT}/1/transform", "missing"),
    (f"{LAYOUT}/1/transform/scale", [2.0, 2.0, 1.0], f"{LAYOUT}/1/transform/scale", "mismatch"),
    (f"{LAYOUT}/1/transform/scale", [1.0, 2.0], f"{LAYOUT}/1/transform/scale", "mismatch"),
    (f"{LAYOUT}/1/transform/scale", ..., f"{LAYOUT}/1/transform/scale", "missing"),
    (f"{LAYOUT}/2", "index/2", f"{LAYOUT}/2", "schema"),
]


@pytest.mark.parametrize(("place", "value", "loc", "kind"), BROKEN)
def test_a_broken_rule_is_the_one_problem_at_its_place(place: str, value: object, loc: str, kind: str) -> None:
    assert broken(put(place, value)) == [(loc, kind)]


def test_several_broken_rules_are_all_reported() -> None:
    changes = {level(1, "/n_rows"): 2000, f"{LAYOUT}/1/derived_from": "index/7", "/spatial_index/limit": "many"}

    def change(attrs: object) -> None:
        for place, value in changes.items():
            put(place, value)(attrs)

    assert sorted(broken(change)) == sorted(
        [
            (level(1, "/n_rows"), "mismatch"),
            (f"{LAYOUT}/1/derived_from", "mismatch"),
            ("/spatial_index/limit", "schema"),
        ]
    )


def test_an_asset_stands_for_one_level_only() -> None:
    found = broken(lambda attrs: attrs["multiscales"]["layout"][-1].update(asset="index/0"))
    assert [loc for loc, _ in found] == [f"{LAYOUT}/6/asset"]


def test_no_level_follows_a_single_tile() -> None:
    attrs: Any = good()
    attrs["multiscales"]["layout"].append(
        copy.deepcopy(attrs["multiscales"]["layout"][-1]) | {"asset": "index/7", "derived_from": "index/6"}
    )
    assert [problem.loc for problem in validate_points_attrs(attrs)] == [f"{LAYOUT}/7"]


def test_feature_rows_without_a_feature_order_are_a_mismatch() -> None:
    found = broken(put("/spatial_index/orders", ["spatial"]))
    assert (level(0, "/n_rows_feature"), "mismatch") in found
    assert (level(1, "/by"), "mismatch") in found
    assert (level(1, "/sampling/P_feature"), "mismatch") in found


def test_feature_levels_none_has_no_feature_rows_above_level_0() -> None:
    found = broken(put("/spatial_index/feature_levels", "none"))
    assert (level(1, "/n_rows_feature"), "mismatch") in found
    assert all(not loc.startswith(f"{LAYOUT}/0/") for loc, _ in found)


def test_shared_feature_rows_may_grow_from_level_to_level() -> None:
    attrs: Any = good()
    attrs["spatial_index"]["feature_levels"] = "shared"
    attrs["multiscales"]["layout"][1]["spatial_index"]["n_rows_feature"] = 3
    assert validate_points_attrs(attrs) == []


@pytest.mark.parametrize(
    "place",
    ["/spatial_index/a", level(1, "/a"), level(1, "/sampling/a"), level(1, "/by/cell~1type/a")],
)
def test_unknown_keys_are_problems_only_to_a_strict_reader(place: str) -> None:
    attrs: Any = good()
    put(place, 1)(attrs)
    assert validate_points_attrs(attrs) == []
    assert [(one.loc, one.kind) for one in validate_points_attrs(attrs, strict=True)] == [(place, "unexpected")]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(place=st.sampled_from([place for place, value, _, _ in BROKEN if value is not ...]), value=JSON)
def test_whatever_stands_at_a_place_is_reported_or_fine_but_never_an_exception(place: str, value: object) -> None:
    attrs: Any = copy.deepcopy(good())
    put(place, value)(attrs)
    assert all(isinstance(problem, Problem) for problem in validate_points_attrs(attrs, strict=True))


def test_describe_says_every_problem_on_a_line_of_its_own() -> None:
    found = [Problem("/a", "is wrong", "schema"), Problem("", "is not there", "missing")]
    assert describe(found) == "/a: is wrong [schema]\n(document): is not there [missing]"


def test_the_message_stays_short_for_a_long_value() -> None:
    attrs: Any = good()
    attrs["spatial_index"]["limit"] = list(range(10_000))
    (problem,) = validate_points_attrs(attrs)
    assert len(problem.message) < 250
