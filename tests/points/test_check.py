"""A sound index has no problems; each way of damaging one is found where it was done."""

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from numpy.typing import NDArray

from puncta.indexing._index import index_points
from puncta.points._check import check_points
from puncta.points._check_rows import RowHasher, invented
from puncta.spec._problem import Problem
from puncta.spec.spatialdata import points_attrs, root_attrs

GENES = [f"gene{number}" for number in range(9)]


def molecules(n: int, *, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    genes = rng.choice(GENES, n, p=np.arange(9, 0, -1) / 45).tolist()
    return pa.table(
        {
            "x": rng.uniform(0, 300, n).astype("float32"),
            "y": rng.uniform(0, 200, n).astype("float32"),
            "z": rng.uniform(0, 9, n).astype("float32"),
            "gene": pa.array([None if number % 40 == 0 else gene for number, gene in enumerate(genes)]),
            "cell": pa.array([f"cell{number}" for number in rng.integers(0, 5, n)]).dictionary_encode(),
            "qv": rng.uniform(0, 40, n),
        }
    )


@pytest.fixture(scope="session")
def flat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2-D, nulls, two parts at level 0."""
    store = tmp_path_factory.mktemp("flat") / "flat.zarr"
    table = molecules(3000).drop_columns(["z"])
    index_points(
        table,
        store,
        x="x",
        y="y",
        feature_key="gene",
        tile_size=(16.0, 14.0),
        origin=(0.0, 0.0),
        limit=25,
        max_levels=3,
    )
    return store


@pytest.fixture(scope="session")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """3-D, two feature columns, and only the features stored whose fraction changed."""
    store = tmp_path_factory.mktemp("deep") / "deep.zarr"
    index_points(
        molecules(2000),
        store,
        feature_key=["gene", "cell"],
        tile_size=(40.0, 40.0, 3.0),
        limit=60,
        feature_levels="shared",
    )
    return store


@pytest.fixture(scope="session")
def scaled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An element whose stored coordinates are not those of the grid."""
    store = tmp_path_factory.mktemp("scaled") / "scaled.zarr"
    element = store / "points" / "transcripts"
    write_plain_element(element)
    index_points(element, in_place=True, tile_size=100.0, limit=100, feature_levels="none")
    return store


def write_plain_element(element: Path) -> None:
    (element / "points.parquet").mkdir(parents=True)
    axes = [{"name": name, "type": "space", "unit": "unit"} for name in ("x", "y")]
    scale = {
        "type": "scale",
        "scale": [4.70588, 2.5],
        "input": {"name": "xy", "axes": axes},
        "output": {"name": "global", "axes": axes},
    }
    group = {"zarr_format": 3, "node_type": "group"}
    documents = {
        element.parent.parent: {**group, "attributes": root_attrs()},
        element.parent: {**group, "attributes": {}},
        element: {**group, "attributes": points_attrs(["x", "y"], "gene", None, [scale])},
    }
    for folder, document in documents.items():
        (folder / "zarr.json").write_text(json.dumps(document))
    table = molecules(1000).select(["x", "y", "gene", "qv"])
    table = table.set_column(2, "gene", table["gene"].dictionary_encode())
    pq.write_table(table, element / "points.parquet" / "part.0.parquet")


def copied(store: Path, tmp_path: Path) -> Path:
    shutil.copytree(store, tmp_path / "copy.zarr")
    return tmp_path / "copy.zarr" / "points" / "transcripts"


@pytest.mark.parametrize("name", ["flat", "deep", "scaled"])
def test_sound_index_has_no_problems(name: str, request: pytest.FixtureRequest) -> None:
    assert check_points(request.getfixturevalue(name) / "points" / "transcripts") == []


def test_element_without_an_index_has_no_problems(tmp_path: Path) -> None:
    write_plain_element(tmp_path / "s.zarr" / "points" / "t")
    assert check_points(tmp_path / "s.zarr" / "points" / "t") == []


def test_element_without_an_index_has_the_problem_of_its_file(tmp_path: Path) -> None:
    write_plain_element(tmp_path / "s.zarr" / "points" / "t")
    (tmp_path / "s.zarr/points/t/points.parquet/part.0.parquet").write_bytes(b"PAR1 nothing")
    problems = check_points(tmp_path / "s.zarr" / "points" / "t")
    assert [(one.loc, one.kind) for one in problems] == [("points.parquet/part.0.parquet", "mismatch")]


def edit_array(path: str, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Callable[[Path], object]:
    def edit(element: Path) -> None:
        array = zarr.open_array(element / path, mode="r")
        values, dtype = change(np.asarray(array[:]).copy()), array.dtype
        shutil.rmtree(element / path)
        new = zarr.create_array(element / path, shape=values.shape, dtype=dtype)
        new[:] = values

    return edit


def edit_attrs(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    def edit(element: Path) -> None:
        document = json.loads((element / "zarr.json").read_text())
        change(document["attributes"])
        (element / "zarr.json").write_text(json.dumps(document))

    return edit


def edit_groups(path: str, change: Callable[[list[pa.Table]], list[pa.Table]]) -> Callable[[Path], object]:
    def edit(element: Path) -> None:
        with pq.ParquetFile(element / path) as file:
            groups = [file.read_row_group(number) for number in range(file.num_row_groups)]
        changed = change(groups)
        with pq.ParquetWriter(element / path, changed[0].schema) as writer:
            for table in changed:
                writer.write_table(table, row_group_size=max(len(table), 1))

    return edit


def with_value(column: str, value: object, *, group: int = 0) -> Callable[[list[pa.Table]], list[pa.Table]]:
    """Change one column of the first row of the first row group that has one, from `group` on."""

    def change(groups: list[pa.Table]) -> list[pa.Table]:
        at = next(number for number in range(group, len(groups)) if len(groups[number]))
        table = groups[at]
        place = table.column_names.index(column)
        values = [value, *table.column(column).to_pylist()[1:]]
        kind = table.schema.field(column).type
        if pa.types.is_dictionary(kind):
            dictionary = table.column(column).chunk(0).dictionary
            codes = [None if one is None else dictionary.to_pylist().index(one) for one in values]
            array = pa.DictionaryArray.from_arrays(pa.array(codes, kind.index_type), dictionary)
        else:
            array = pa.array(values, kind)
        table = table.set_column(place, table.schema.field(column), array)
        return [*groups[:at], table, *groups[at + 1 :]]

    return change


def swap_coordinates(groups: list[pa.Table]) -> list[pa.Table]:
    """Exchange the coordinates of two row groups of as many rows."""
    sizes = [len(table) for table in groups]
    first = next(number for number, size in enumerate(sizes) if size and size in sizes[number + 1 :])
    second = sizes.index(sizes[first], first + 1)
    one, other = groups[first], groups[second]
    for place, name in enumerate(("x", "y")):
        column = one[name]
        one = one.set_column(place, one.schema.field(name), other[name])
        other = other.set_column(place, other.schema.field(name), column)
    return [one if n == first else other if n == second else table for n, table in enumerate(groups)]


def truncate(path: str) -> Callable[[Path], object]:
    return lambda element: (element / path).write_bytes((element / path).read_bytes()[:-200])


def remove(path: str) -> Callable[[Path], object]:
    def run(element: Path) -> None:
        target = element / path
        shutil.rmtree(target) if target.is_dir() else target.unlink()

    return run


def overwrite_middle(path: str) -> Callable[[Path], object]:
    def run(element: Path) -> None:
        content = bytearray((element / path).read_bytes())
        content[4:400] = b"\xff" * 396
        (element / path).write_bytes(content)

    return run


def in_level(number: int, *keys: str, value: object) -> Callable[[dict[str, Any]], object]:
    def change(attrs: dict[str, Any]) -> None:
        place = attrs["multiscales"]["layout"][number]["spatial_index"]
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value

    return change


def bumped(entry: int, by: int = 1) -> Callable[[NDArray[Any]], NDArray[Any]]:
    return lambda values: np.where(np.arange(len(values)) == entry % len(values), values + by, values)


def rename_column(groups: list[pa.Table]) -> list[pa.Table]:
    return [table.rename_columns(["x", "y", "gene", "cell", "quality"]) for table in groups]


def drop_pandas(groups: list[pa.Table]) -> list[pa.Table]:
    return [table.replace_schema_metadata(None) for table in groups]


DAMAGE: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "an offset": (edit_array("index/0/tile_offsets", bumped(7)), "points.parquet/part.0.parquet", "mismatch"),
    "the last offset": (edit_array("index/0/tile_offsets", bumped(-1)), "index/0/tile_offsets", "mismatch"),
    "a falling offset": (edit_array("index/1/tile_offsets", bumped(3, -999)), "index/1/tile_offsets", "mismatch"),
    "a short array": (edit_array("index/1/tile_offsets", lambda v: v[:-1]), "index/1/tile_offsets", "mismatch"),
    "an absent array": (remove("index/0/tile_offsets"), "index/0/tile_offsets", "missing"),
    "an array's JSON": (
        lambda element: (element / "index/0/tile_offsets/zarr.json").write_text("{"),
        "index/0/tile_offsets",
        "mismatch",
    ),
    "an array's chunk": (
        lambda element: (element / "index/0/tile_offsets/c/0").write_bytes(b"nothing"),
        "index/0/tile_offsets",
        "mismatch",
    ),
    "swapped coordinates": (
        edit_groups("points.parquet/part.0.parquet", swap_coordinates),
        "points.parquet/part.0.parquet",
        "order",
    ),
    "a moved point": (
        edit_groups("points.parquet/part.1.parquet", with_value("x", 299.5)),
        "points.parquet/part.1.parquet",
        "order",
    ),
    "a point at no place": (
        edit_groups("points.parquet/part.0.parquet", with_value("y", float("nan"))),
        "points.parquet/part.0.parquet",
        "coordinates",
    ),
    "an absent part": (remove("points.parquet/part.1.parquet"), "points.parquet/part.1.parquet", "missing"),
    "a truncated part": (truncate("points.parquet/part.1.parquet"), "points.parquet/part.1.parquet", "mismatch"),
    "a damaged page": (overwrite_middle("points.parquet/part.0.parquet"), "points.parquet/part.0.parquet", "mismatch"),
    "a foreign file": (
        lambda element: (element / "levels/1/points.parquet/part.0.parquet").write_bytes(b"x,y\n1,2\n" * 99),
        "levels/1/points.parquet/part.0.parquet",
        "mismatch",
    ),
    "one part too many": (
        lambda element: shutil.copy(
            element / "points.parquet/part.0.parquet", element / "points.parquet/part.2.parquet"
        ),
        "points.parquet/part.2.parquet",
        "unexpected",
    ),
    "a renamed column": (
        edit_groups("levels/2/points.parquet/part.0.parquet", rename_column),
        "levels/2/points.parquet/part.0.parquet",
        "mismatch",
    ),
    "no pandas metadata": (
        edit_groups("levels/2/points.parquet/part.0.parquet", drop_pandas),
        "levels/2/points.parquet/part.0.parquet",
        "missing",
    ),
    "an invented row": (
        edit_groups("levels/2/points.parquet/part.0.parquet", with_value("qv", -1.0)),
        "levels/2/points.parquet/part.0.parquet",
        "sample",
    ),
    "another value in the copy": (
        edit_groups("feature/0/points.parquet/part.0.parquet", with_value("qv", -1.0)),
        "feature/0/points.parquet",
        "mismatch",
    ),
    "another feature in the copy": (
        edit_groups("feature/0/points.parquet/part.0.parquet", with_value("gene", "gene8")),
        "feature/0/points.parquet/part.0.parquet",
        "order",
    ),
    "another tile in the copy": (
        edit_groups("feature/1/points.parquet/part.0.parquet", with_value("x", 299.5)),
        "feature/1/points.parquet/part.0.parquet",
        "order",
    ),
    "an invented row in a copy": (
        edit_groups("feature/2/points.parquet/part.0.parquet", with_value("qv", -1.0)),
        "feature/2/points.parquet",
        "sample",
    ),
    "a feature offset": (edit_array("index/0/feature_offsets", bumped(2)), "index/0/feature_tiles/starts", "mismatch"),
    "a feature tile": (
        edit_array("index/1/feature_tiles/tiles", bumped(0, 10**6)),
        "index/1/feature_tiles/tiles",
        "mismatch",
    ),
    "absent feature tiles": (remove("index/0/feature_tiles/starts"), "index/0/feature_tiles/starts", "missing"),
    "row groups": (edit_array("index/0/feature_row_groups", bumped(-1)), "index/0/feature_row_groups", "mismatch"),
    "parts": (edit_array("index/0/feature_parts", bumped(-1)), "index/0/feature_parts", "mismatch"),
    "an absent category": (edit_array("index/features/gene", lambda v: v[:-1]), "index/features/gene", "mismatch"),
    "another order of categories": (
        edit_array("index/features/gene", lambda v: v[::-1]),
        "index/features/gene",
        "mismatch",
    ),
    "no categories": (remove("index/features/gene"), "index/features/gene", "missing"),
    "another P": (
        edit_attrs(in_level(2, "sampling", "P", value=0.01)),
        "/multiscales/layout/2/spatial_index/sampling/P",
        "sample",
    ),
    "a P above 1": (
        edit_attrs(in_level(2, "sampling", "P", value=1.5)),
        "/multiscales/layout/2/spatial_index/sampling/P",
        "schema",
    ),
    "another P_feature": (
        edit_attrs(in_level(2, "sampling", "P_feature", value=[0.0123] * 9)),
        "/multiscales/layout/2/spatial_index/sampling/P_feature",
        "sample",
    ),
    "fractions of other features": (
        edit_attrs(in_level(2, "sampling", "P_feature", value=[0.5] * 3)),
        "/multiscales/layout/2/spatial_index/sampling/P_feature",
        "mismatch",
    ),
    "a fraction that is none": (
        edit_attrs(in_level(2, "sampling", "P_feature", value=[1.0] * 8 + ["x"])),
        "/multiscales/layout/2/spatial_index/sampling/P_feature/8",
        "schema",
    ),
    "other rows of a copy": (
        edit_attrs(in_level(1, "n_rows_feature", value=17.0)),
        "index/1/feature_row_groups",
        "mismatch",
    ),
    "another n_rows": (edit_attrs(in_level(1, "n_rows", value=17)), "index/1/tile_offsets", "mismatch"),
    "another grid": (
        edit_attrs(in_level(1, "tile_size", value=[20.0, 30.0])),
        "/multiscales/layout/1/spatial_index/tile_size",
        "mismatch",
    ),
    "no axes": (edit_attrs(lambda attrs: attrs["spatial_index"].pop("axes")), "/spatial_index/axes", "missing"),
    "no levels": (edit_attrs(lambda attrs: attrs.pop("multiscales")), "/multiscales", "missing"),
    "levels of another type": (
        edit_attrs(lambda attrs: attrs["multiscales"].update(layout="none")),
        "/multiscales/layout",
        "schema",
    ),
    "another transformation": (
        edit_attrs(lambda attrs: attrs["coordinateTransformations"][0].update(type="scale", scale=[2.0, 2.0])),
        "/coordinateTransformations",
        "stale",
    ),
    "an unreadable transformation": (
        edit_attrs(lambda attrs: attrs["coordinateTransformations"][0].update(type="warp")),
        "/coordinateTransformations",
        "schema",
    ),
    "broken JSON": (lambda element: (element / "zarr.json").write_text('{"attributes": '), "zarr.json", "json"),
    "no metadata": (remove("zarr.json"), "zarr.json", "missing"),
    "a group's JSON": (
        lambda element: (element / "index/0/zarr.json").write_text("{"),
        "index/0/zarr.json",
        "json",
    ),
    "a group that is none": (
        lambda element: (element / "index/0/feature_tiles/zarr.json").write_text('{"zarr_format": 3}'),
        "index/0/feature_tiles/zarr.json",
        "mismatch",
    ),
    "other axes": (edit_attrs(lambda attrs: attrs.update(axes=["x", "z"])), "/axes", "mismatch"),
    "another encoding": (
        edit_attrs(lambda attrs: attrs.update({"encoding-type": "ngff:shapes"})),
        "/encoding-type",
        "mismatch",
    ),
    "a group without metadata": (remove("levels/1/zarr.json"), "levels/1/zarr.json", "missing"),
}

# These leave everything else as it was, so nothing else may be reported.
ALONE = [
    "an offset",
    "a falling offset",
    "an absent array",
    "one part too many",
    "no pandas metadata",
    "an invented row",
    "another P",
    "another order of categories",
    "an absent category",
    "absent feature tiles",
    "another transformation",
    "a P above 1",
    "a fraction that is none",
    "a group that is none",
    "another encoding",
    "broken JSON",
    "a group without metadata",
]


@pytest.fixture(scope="session")
def problems_of(flat: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[Problem]]:
    """What is found after each sort of damage; looked for once, though several tests ask."""

    @cache
    def problems(name: str) -> list[Problem]:
        element = copied(flat, tmp_path_factory.mktemp("damaged"))
        DAMAGE[name][0](element)
        found = check_points(element)
        shutil.rmtree(element.parent.parent)
        return found

    return problems


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found_where_it_was_done(name: str, problems_of: Callable[[str], list[Problem]]) -> None:
    assert DAMAGE[name][1:] in [(problem.loc, problem.kind) for problem in problems_of(name)]


def test_one_mistake_is_reported_once(problems_of: Callable[[str], list[Problem]]) -> None:
    found = {name: [(problem.loc, problem.kind) for problem in problems_of(name)] for name in ALONE}
    assert found == {name: [DAMAGE[name][1:]] for name in ALONE}


def test_several_mistakes_are_reported_at_once(flat: Path, tmp_path: Path) -> None:
    element = copied(flat, tmp_path)
    names = ["an absent part", "an absent array", "a foreign file", "another transformation", "no categories"]
    for name in names:
        DAMAGE[name][0](element)
    found = {(problem.loc, problem.kind) for problem in check_points(element)}
    assert found >= {DAMAGE[name][1:] for name in names}


def test_message_counts_and_gives_an_example(problems_of: Callable[[str], list[Problem]]) -> None:
    message = next(problem.message for problem in problems_of("a moved point") if problem.kind == "order")
    assert message.startswith("1 points lie outside their tile (first: one of tile 256 lies at (299.5, ")


def test_feature_that_names_another_level_is_found(deep: Path, tmp_path: Path) -> None:
    element = copied(deep, tmp_path)
    edit_array("index/2/feature_level_of", lambda values: np.full_like(values, 1))(element)
    assert ("index/2/feature_level_of", "mismatch") in [(one.loc, one.kind) for one in check_points(element)]


def test_invented_row_of_a_partial_copy_is_found(deep: Path, tmp_path: Path) -> None:
    element = copied(deep, tmp_path)
    edit_groups("feature/2/points.parquet/part.0.parquet", with_value("qv", -1.0))(element)
    assert [(one.loc, one.kind) for one in check_points(element)][:1] == [("feature/2/points.parquet", "sample")]


def test_absent_array_of_a_level_between_is_the_only_problem(deep: Path, tmp_path: Path) -> None:
    element = copied(deep, tmp_path)
    remove("index/1/feature_offsets_own")(element)
    assert [(one.loc, one.kind) for one in check_points(element)] == [("index/1/feature_offsets_own", "missing")]


def test_copy_by_a_further_column_is_checked(deep: Path, tmp_path: Path) -> None:
    element = copied(deep, tmp_path)
    edit_groups("feature/0/by-cell/points.parquet/part.0.parquet", with_value("cell", "cell4"))(element)
    loc = "feature/0/by-cell/points.parquet/part.0.parquet"
    assert (loc, "order") in [(one.loc, one.kind) for one in check_points(element)]


def test_point_moved_across_a_border_of_the_transformed_grid_is_found(scaled: Path, tmp_path: Path) -> None:
    element = copied(scaled, tmp_path)
    edit_groups("points.parquet/part.0.parquet", with_value("x", 150.0))(element)
    assert ("points.parquet/part.0.parquet", "order") in [(one.loc, one.kind) for one in check_points(element)]


def test_transformation_put_back_to_the_identity_is_stale(scaled: Path, tmp_path: Path) -> None:
    element = copied(scaled, tmp_path)
    edit_attrs(lambda attrs: attrs["coordinateTransformations"][0].update(type="identity"))(element)
    assert [(one.loc, one.kind) for one in check_points(element)] == [("/coordinateTransformations", "stale")]


def test_equal_rows_have_equal_hashes_whatever_their_codes() -> None:
    one = pa.table({"a": pa.array(["u", "v", None]).dictionary_encode(), "b": pa.array([1.5, None, 2.5])})
    codes = pa.DictionaryArray.from_arrays(pa.array([2, 0, None], pa.int8()), pa.array(["v", "w", "u"]))
    other = pa.table({"a": codes, "b": pa.array([1.5, None, 2.5])})
    assert RowHasher().hashes(one).tolist() == RowHasher().hashes(other).tolist()


def test_nested_values_and_texts_have_hashes_of_their_own() -> None:
    rows = pa.table(
        {"a": pa.array([[1, 2], [2, 1], None, []]), "b": ["u", "u", "u", "u"], "c": [True, True, True, False]}
    )
    assert len(set(RowHasher().hashes(rows).tolist())) == 4


def test_invented_rows_are_counted_as_multisets() -> None:
    sample, source = np.array([1, 1, 2, 5], dtype=np.uint64), np.array([1, 2, 2, 3], dtype=np.uint64)
    assert invented(sample, source) == (2, 0)
    assert invented(sample, source[:0])[0] == 4
