"""Odd input that works: nothing of it is lost, and other readers find it as it was."""

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import spatialdata
from spatialdata.models import PointsModel

from puncta.errors import ColumnError
from puncta.indexing import index_points
from puncta.points import open_points
from puncta.spec.points import validate_points_attrs

# dask 2026.8 sets and resets an index in place, which pandas 3.1 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword in DataFrame:DeprecationWarning")

XY: dict[str, Any] = {"x": [0.0, 1.0, 2.0], "y": [0.0, 1.0, 2.0]}

type Read = Callable[..., list[pa.Table]]
type Attributes = Callable[[Path], dict[str, Any]]


def written(element: Path) -> pd.DataFrame:
    """Return the rows as pandas reads them."""
    return pd.read_parquet(element / "points.parquet")


@pytest.mark.parametrize("n_rows", [1, 50])
@pytest.mark.parametrize("axes", ["xy", "xyz"])
@pytest.mark.parametrize("limit", [3, 10_000])
def test_points_in_one_place_make_one_tile(
    tmp_path: Path, attributes_of: Attributes, n_rows: int, axes: str, limit: int
) -> None:
    table = pa.table({**{axis: [7.5] * n_rows for axis in axes}, "gene": ["a"] * n_rows})
    report = index_points(table, tmp_path / "s.zarr", limit=limit)
    assert (report.n_rows, report.levels, report.grid_shape) == (n_rows, 1, (1,) * len(axes))
    assert validate_points_attrs(attributes_of(Path(report.path)), strict=True) == []
    assert open_points(Path(report.path)).query(box={"x": (7.5, 8)}).num_rows == n_rows


def test_points_in_one_place_may_have_coarser_tiles_that_thin_them(tmp_path: Path) -> None:
    table = pa.table({"x": [7.5] * 1000 + [0.0], "y": [7.5] * 1000 + [0.0], "gene": ["a"] * 1001})
    report = index_points(table, tmp_path / "s.zarr", limit=100, tile_size=4, origin=(0, 0))
    coarse = open_points(Path(report.path)).levels[1]
    assert coarse.fraction == pytest.approx(100 / 1001)
    assert report.fit == "b"


def test_null_features_are_kept_where_they_lie(tmp_path: Path, copy_of: Read) -> None:
    element = Path(index_points(pa.table({**XY, "gene": ["b", None, "a"]}), tmp_path / "s.zarr").path)
    assert written(element)["gene"].tolist() == ["b", np.nan, "a"] or written(element)["gene"].isna().sum() == 1
    assert pa.concat_tables(copy_of(element))["gene"].to_pylist() == ["a", "b", None]


def test_features_may_all_be_null(tmp_path: Path, copy_of: Read, attributes_of: Attributes) -> None:
    table = pa.table({**XY, "gene": pa.array([None] * 3, pa.string())})
    element = Path(index_points(table, tmp_path / "s.zarr", limit=1, tile_size=1, origin=(0, 0)).path)
    assert pa.concat_tables(copy_of(element))["gene"].to_pylist() == [None] * 3
    assert attributes_of(element)["multiscales"]["layout"][1]["spatial_index"]["sampling"]["P_feature"] == []
    assert validate_points_attrs(attributes_of(element), strict=True) == []


def test_an_empty_name_is_a_name_and_no_null(tmp_path: Path) -> None:
    points = open_points(Path(index_points(pa.table({**XY, "gene": ["", "b", None]}), tmp_path / "s.zarr").path))
    assert points.features == ["", "b"]
    assert points.query(features=[""]).num_rows == 1


@pytest.mark.parametrize(
    "names", [["é", "µ", "\U0001f9ec"], ["a\x00b", "a", "\x00"], ["a/b", "..", "a b"], ["A", "a", "á"]]
)
def test_features_may_have_any_name(tmp_path: Path, names: list[str]) -> None:
    points = open_points(Path(index_points(pa.table({**XY, "gene": names}), tmp_path / "s.zarr").path))
    assert points.features == sorted(names)
    assert [points.query(features=[name])["x"].to_pylist() for name in names] == [[0.0], [1.0], [2.0]]


@pytest.mark.parametrize(
    "categories",
    [
        pd.Index([30, 20, 10]),
        pd.Index([2.5, 1.0, -1e20]),
        pd.Index([False, True]),
        pd.to_datetime(["2021-05-05", "2020-01-01", "2022-02-02"]),
        pd.Index([dt.date(2021, 5, 5), dt.date(2020, 1, 1)]),
    ],
    ids=["integers", "floats", "booleans", "times", "dates"],
)
def test_categories_need_not_be_text(tmp_path: Path, categories: pd.Index) -> None:
    kinds = pd.Categorical.from_codes([1, -1, 0], categories=categories)
    element = Path(index_points(pd.DataFrame({**XY, "gene": ["a"] * 3, "kind": kinds}), tmp_path / "s.zarr").path)
    found = written(element)["kind"]
    assert found.isna().tolist() == [False, True, False]
    assert found.dropna().tolist() == [categories[1], categories[0]]
    again = spatialdata.read_zarr(element.parents[1]).points["transcripts"].compute()["kind"]
    assert again.dropna().tolist() == [categories[1], categories[0]]
    # Parquet keeps the categories of text alone; ours stand beside the offsets, unused ones included.
    ours = open_points(element).query(columns=["kind"]).to_pandas()["kind"]
    pd.testing.assert_series_equal(ours, pd.Series(kinds, name="kind"))


@pytest.mark.parametrize(
    "categories",
    [pd.to_timedelta([1, 2], unit="s"), pd.Index([b"\xff", b"a"]), pd.Index([dt.time(1), dt.time(2, 3, 4, 5)])],
    ids=["spans", "bytes", "clock"],
)
def test_categories_without_a_text_come_back_as_their_values(tmp_path: Path, categories: pd.Index) -> None:
    kinds = pd.Categorical.from_codes([1, -1, 0], categories=categories)
    element = Path(index_points(pd.DataFrame({**XY, "gene": ["a"] * 3, "kind": kinds}), tmp_path / "s.zarr").path)
    ours = open_points(element).query(columns=["kind"]).to_pandas()["kind"]
    assert ours.dropna().tolist() == written(element)["kind"].dropna().tolist() == [categories[1], categories[0]]


@pytest.mark.parametrize(
    ("genes", "features"),
    [
        (pd.Categorical([30, 10, 30], categories=[30, 20, 10]), ["30", "20", "10"]),
        (np.asarray([30, 10, 30]), ["10", "30"]),
        (np.asarray([-1, 2**40, -1]), ["-1", str(2**40)]),
    ],
    ids=["categorical", "plain", "wide"],
)
def test_features_may_be_integers(tmp_path: Path, genes: object, features: list[str]) -> None:
    element = Path(index_points(pd.DataFrame({**XY, "gene": genes}), tmp_path / "s.zarr").path)
    assert open_points(element).features == features
    assert written(element)["gene"].tolist() == list(genes)  # type: ignore[call-overload] # all are sequences


def test_the_order_of_ordered_categories_is_kept(tmp_path: Path) -> None:
    kinds = pd.Categorical(["low", "high", "low"], categories=["low", "high"], ordered=True)
    frame = pd.DataFrame({**XY, "gene": kinds, "kind": kinds})
    element = Path(index_points(frame, tmp_path / "s.zarr").path)
    pd.testing.assert_series_equal(written(element)["kind"], frame["kind"])
    pd.testing.assert_series_equal(written(element)["gene"], frame["gene"])
    assert open_points(element).query(columns=["kind"]).schema.field("kind").type.ordered


# --- columns of many values (P25)


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return elements of the same 300,000 points, their distinct cells as a categorical and as plain text."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("cells")
    codes = rng.permutation(300_000)
    names = pd.Index([f"{number:08x}-1" for number in rng.permutation(300_000)])
    x, y = (np.floor(codes / 600), codes % 600)
    frame = pd.DataFrame({"x": x, "y": y, "gene": "a", "cell": pd.Categorical.from_codes(codes, categories=names)})
    forms = {"categorical": frame, "plain": frame.astype({"cell": "str"})}
    return {
        form: Path(index_points(table, folder / f"{form}.zarr", feature_order=False, max_levels=1).path)
        for form, table in forms.items()
    }


def column_bytes(element: Path, name: str) -> int:
    """Return the bytes of a column in all files of the tile order."""
    total = 0
    for part in (element / "points.parquet").iterdir():
        footer = pq.ParquetFile(part).metadata
        at = footer.schema.names.index(name)
        total += sum(footer.row_group(group).column(at).total_compressed_size for group in range(footer.num_row_groups))
    return total


def test_300_000_cells_as_a_categorical_cost_what_they_cost_as_text(cells: dict[str, Path]) -> None:
    categorical, plain = (column_bytes(cells[form], "cell") for form in ("categorical", "plain"))
    assert 0.9 * plain <= categorical <= 1.1 * plain
    assert written(cells["categorical"])["cell"].equals(written(cells["plain"])["cell"])


def test_many_cells_are_categories_again_for_our_reader(cells: dict[str, Path]) -> None:
    table = open_points(cells["categorical"]).query(box={"x": (0, 2)}, columns=["x", "cell"])
    assert pa.types.is_dictionary(table.schema.field("cell").type)
    assert len(table["cell"].chunk(0).dictionary) == 300_000


@pytest.mark.parametrize(("n_values", "is_categorical"), [(1024, True), (1025, False)])
def test_other_readers_see_categories_up_to_1024_values(
    tmp_path: Path,
    n_values: int,
    is_categorical: bool,
) -> None:
    cells = pd.Categorical.from_codes(np.arange(n_values), categories=[f"c{n}" for n in range(n_values)][::-1])
    place = np.arange(n_values, dtype=float)
    frame = pd.DataFrame({"x": place, "y": place, "gene": "a", "cell": cells})
    element = Path(index_points(frame, tmp_path / "s.zarr").path)
    found = written(element)["cell"]
    assert isinstance(found.dtype, pd.CategoricalDtype) == is_categorical
    assert found.tolist() == list(cells)
    again = open_points(element).query(columns=["cell"]).to_pandas()["cell"]
    assert again.cat.categories.tolist() == cells.categories.tolist()


# --- the pandas index


def test_an_index_that_repeats_is_kept_as_a_column(tmp_path: Path) -> None:
    frame = pd.DataFrame({**XY, "gene": ["a"] * 3}, index=[5, 5, 2])
    element = Path(index_points(frame, tmp_path / "s.zarr").path)
    assert written(element)["index"].tolist() == [5, 5, 2]


@pytest.mark.parametrize("index", [["p", "q", "q"], pd.to_datetime(["2020-01-01", "2021-01-01", "2020-01-01"])])
def test_an_index_of_any_type_is_kept_under_its_name(tmp_path: Path, index: Any) -> None:  # noqa: ANN401 (a case)
    frame = pd.DataFrame({**XY, "gene": ["a"] * 3}, index=pd.Index(index, name="id"))
    element = Path(index_points(frame, tmp_path / "s.zarr").path)
    assert written(element)["id"].tolist() == list(frame.index)


def test_an_index_of_several_levels_is_kept_as_columns(tmp_path: Path) -> None:
    levels = pd.MultiIndex.from_tuples([(1, "p"), (1, "q"), (2, "p")], names=["fov", "spot"])
    element = Path(index_points(pd.DataFrame({**XY, "gene": ["a"] * 3}, index=levels), tmp_path / "s.zarr").path)
    assert list(zip(*(written(element)[name] for name in ("fov", "spot")), strict=True)) == levels.tolist()


# --- coordinates


@pytest.mark.parametrize("dtype", ["u1", "i2", "i4", "i8", "f2", "f8"])
def test_coordinates_of_any_type_become_float32(tmp_path: Path, dtype: str) -> None:
    values = np.asarray([0, 100, 200], dtype=dtype)
    element = Path(index_points(pa.table({"x": values, "y": values, "gene": ["a"] * 3}), tmp_path / "s.zarr").path)
    assert written(element)["x"].dtype == np.float32
    assert written(element)["x"].tolist() == [0, 100, 200]


@pytest.mark.parametrize("dtype", ["u1", "i4", "f4", "f8"])
def test_coordinates_that_are_kept_are_asked_for_in_their_type(tmp_path: Path, dtype: str) -> None:
    values = np.asarray([0, 100, 200], dtype=dtype)
    table = pa.table({"x": values, "y": values, "gene": ["a"] * 3})
    element = Path(index_points(table, tmp_path / "s.zarr", coordinate_dtype="keep", tile_size=50).path)
    assert written(element)["x"].dtype == np.dtype(dtype)
    assert open_points(element).query(box={"x": (50, 200)})["x"].to_pylist() == [100]


def test_kept_float64_lies_in_tiles_as_precisely_as_it_is(
    tmp_path: Path, tiles_of: Read, tile_numbers_of: Callable[..., Any]
) -> None:
    values = 1e6 + np.arange(64) / 2**24
    table = pa.table({"x": values, "y": np.zeros(64), "gene": ["a"] * 64})
    options: dict[str, Any] = {"coordinate_dtype": "keep", "tile_size": 2.0**-22, "origin": (1e6, 0)}
    element = Path(index_points(table, tmp_path / "s.zarr", **options).path)
    groups = tiles_of(element)
    assert [group.num_rows for group in groups] == [4] * 16
    assert tile_numbers_of(element, pa.concat_tables(groups)).tolist() == np.repeat(np.arange(16), 4).tolist()


@pytest.mark.parametrize("lowest", [26.4, 61.9, 0.03, 0.24, -7.3])
@pytest.mark.parametrize("extent", [0.01, 1.0, 1234.5])
def test_the_lowest_point_lies_in_the_automatic_grid(tmp_path: Path, lowest: float, extent: float) -> None:
    table = pa.table({"x": [lowest, lowest + extent], "y": [0.0, 0.0], "gene": ["a", "a"]})
    report = index_points(table, tmp_path / "s.zarr", coordinate_dtype="keep", limit=1, max_tiles=100)
    assert report.n_rows == 2


@pytest.mark.parametrize("max_tiles", [1, 2, 3, 4, 17])
def test_points_around_zero_fit_any_number_of_tiles(tmp_path: Path, max_tiles: int) -> None:
    table = pa.table({"x": [-1.0, 0, 1], "y": [-1.0, 0, 1], "gene": ["a"] * 3})
    report = index_points(table, tmp_path / "s.zarr", limit=1, max_tiles=max_tiles)
    assert np.prod(report.grid_shape) <= max_tiles


@pytest.mark.parametrize(("low", "high"), [(1e9, 1e9 + 2.0**-23), (-1e300, 1e300), (1e-300, 2e-300)])
def test_extremes_of_float64_are_tiled(tmp_path: Path, low: float, high: float) -> None:
    table = pa.table({"x": [low, high], "y": [0.0, 0.0], "gene": ["a", "a"]})
    report = index_points(table, tmp_path / "s.zarr", coordinate_dtype="keep", limit=1, max_tiles=500)
    assert report.n_rows == 2


def test_a_column_named_like_an_axis_is_kept_under_another_name(tmp_path: Path) -> None:
    table = pa.table({"u": [0.0, 1, 2], "v": [3.0, 4, 5], "x": ["p", "q", "r"], "y": [7, 8, 9], "gene": ["a"] * 3})
    element = Path(index_points(table, tmp_path / "s.zarr", x="u", y="v").path)
    assert written(element).columns.tolist() == ["x", "y", "gene", "x_source", "y_source"]
    assert written(element)["x_source"].tolist() == ["p", "q", "r"]
    assert written(element)["y"].tolist() == [3, 4, 5]


# --- other columns


@pytest.mark.parametrize(
    "values",
    [
        [[1], [2, 3], None],
        [{"a": 1}, {"a": 2}, None],
        [b"\xff", b"", None],
        [True, None, False],
        [dt.datetime(2020, 1, 1), None, dt.datetime(2021, 1, 1)],  # noqa: DTZ001 (without a zone on purpose)
        [2**63 - 1, None, -(2**63)],
        [None, None, None],
    ],
    ids=["lists", "structs", "bytes", "booleans", "times", "integers", "nulls"],
)
def test_columns_of_any_type_are_kept_unchanged(tmp_path: Path, tiles_of: Read, values: list[Any]) -> None:
    element = Path(index_points(pa.table({**XY, "gene": ["a"] * 3, "more": values}), tmp_path / "s.zarr").path)
    assert pa.concat_tables(tiles_of(element))["more"].to_pylist() == values


def test_points_of_a_store_may_have_no_features(tmp_path: Path, attributes_of: Attributes) -> None:
    frame = pd.DataFrame({"x": np.arange(100.0), "y": np.arange(100.0), "qv": np.arange(100)})
    spatialdata.SpatialData(points={"spots": PointsModel.parse(frame)}).write(tmp_path / "s.zarr")
    report = index_points(tmp_path / "s.zarr/points/spots", in_place=True, limit=10)
    assert (report.n_rows, report.n_features) == (100, 0)
    assert "feature_key" not in attributes_of(Path(report.path))["spatial_index"]
    assert validate_points_attrs(attributes_of(Path(report.path)), strict=True) == []
    assert open_points(Path(report.path)).query(box={"x": (10, 20)})["qv"].to_pylist() == list(range(10, 20))
    assert len(spatialdata.read_zarr(tmp_path / "s.zarr").points["spots"]) == 100


def test_a_table_without_features_is_indexed_without_a_copy_in_their_order(
    tmp_path: Path, attributes_of: Attributes
) -> None:
    table = pa.table({"x": np.arange(100.0), "y": np.arange(100.0), "qv": np.arange(100)})
    report = index_points(table, tmp_path / "s.zarr", feature_order=False, limit=10)
    assert (report.n_rows, report.n_features, report.levels > 1) == (100, 0, True)
    assert validate_points_attrs(attributes_of(Path(report.path)), strict=True) == []
    assert open_points(Path(report.path)).features == []
    assert len(spatialdata.read_zarr(tmp_path / "s.zarr").points["transcripts"]) == 100


def test_text_without_end_costs_no_more_memory_and_loses_nothing(tmp_path: Path) -> None:
    n_rows = 150_000  # more than the values that 400 MB may hold
    ids = pa.array([None if number % 7 == 0 else f"tx-{number:09d}" for number in range(n_rows)])
    rng = np.random.default_rng(0)
    places = {axis: rng.random(n_rows, dtype="f4") for axis in "xy"}
    table = pa.table({**places, "gene": ["a", "b"] * (n_rows // 2), "id": ids})
    bounded = index_points(table, tmp_path / "bounded.zarr", memory="400MB", seed=3)
    free = index_points(table, tmp_path / "free.zarr", memory="2GB", seed=3)
    for part in sorted(Path(free.path).rglob("part.*.parquet")):
        assert (Path(bounded.path) / part.relative_to(free.path)).read_bytes() == part.read_bytes()
    order = [(name, "ascending") for name in ("x", "y", "id")]
    found = open_points(Path(bounded.path)).query(columns=["x", "y", "id"])
    assert found.sort_by(order).to_pylist() == table.select(["x", "y", "id"]).sort_by(order).to_pylist()


def test_text_without_end_is_refused_as_an_array_before_the_rows_are_placed(tmp_path: Path) -> None:
    n_rows = 150_000
    table = pa.table({**{axis: np.arange(n_rows) for axis in "xy"}, "id": [f"tx-{row:09d}" for row in range(n_rows)]})
    seen: set[str] = set()
    with pytest.raises(ColumnError, match=r"'id' holds string.*different values fit.*--layout parquet.*--memory"):
        index_points(
            table,
            tmp_path / "s.zarr",
            layout="zarr",
            memory="400MB",
            feature_order=False,
            progress=lambda stage, *_: seen.add(stage),
        )
    assert "placing" not in seen
