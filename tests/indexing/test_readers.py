"""Other programs read what comes out: spatialdata the store, and pandas, polars and duckdb `points.parquet`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pads
import pytest
import spatialdata
from dask import dataframe as dd
from spatialdata.models import PointsModel
from spatialdata.transformations import Affine, get_transformation

from puncta.indexing import index_points

# dask 2026.8 sets and resets an index in place, which pandas 3.1 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword in DataFrame:DeprecationWarning")

# The type that dask gives to text.
TEXT = pd.StringDtype("pyarrow")


@pytest.fixture(scope="module")
def expected() -> pd.DataFrame:
    """Return molecules with columns of every kind, by id; categories are out of order, and one is unused."""
    rng = np.random.default_rng(0)
    genes = pd.Categorical.from_codes(rng.integers(-1, 3, 3000), categories=["z", "a", "unused", "m"])
    cells = [f"cell-{number}" for number in range(2000)]
    return pd.DataFrame(
        {
            "x": rng.random(3000, dtype=np.float32) * 100,
            "y": rng.random(3000, dtype=np.float32) * 100,
            "gene": genes,
            "z": rng.random(3000, dtype=np.float32) * 9,
            "qv": rng.integers(0, 40, 3000).astype(np.uint8),
            "inside": rng.random(3000) < 0.5,
            "score": rng.random(3000),
            "word": pd.array(rng.choice(["p", "q"], 3000), dtype="str"),
            "kind": pd.Categorical.from_codes(rng.integers(-1, 2, 3000), categories=["two", "one"]),
            "cell": pd.Categorical.from_codes(rng.integers(-1, 2000, 3000), categories=cells),
            "id": np.arange(3000),
        }
    )


@pytest.fixture(scope="module")
def element(tmp_path_factory: pytest.TempPathFactory, expected: pd.DataFrame) -> Path:
    """Return their index: many tiles, in more than one part, and several levels."""
    store = tmp_path_factory.mktemp("readers") / "s.zarr"
    return Path(index_points(expected, store, feature_key="gene", tile_size=(5, 5, 9), limit=50).path)


def by_id(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.sort_values("id").reset_index(drop=True)


def as_text(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame whose columns of words are plain text, for readers that have no categoricals."""
    words = dict.fromkeys(("gene", "word", "kind", "cell"), object)
    plain = frame.astype(words)
    return plain.where(plain.notna(), None)


def test_spatialdata_reads_the_same_points_columns_and_categories(element: Path, expected: pd.DataFrame) -> None:
    points = spatialdata.read_zarr(element.parents[1]).points["transcripts"]
    assert points.columns.tolist() == expected.columns.tolist()
    # A categorical of more than 1,024 values comes back as its value type (P25).
    pd.testing.assert_frame_equal(by_id(points.compute()), expected.astype({"word": TEXT, "cell": TEXT}))


def test_spatialdata_finds_the_feature_and_the_coordinate_system(element: Path) -> None:
    sdata = spatialdata.read_zarr(element.parents[1])
    points = sdata.points["transcripts"]
    PointsModel().validate(points)
    assert points.attrs["spatialdata_attrs"]["feature_key"] == "gene"
    assert list(get_transformation(points, get_all=True)) == ["global"]
    assert sdata.coordinate_systems == ["global"]


def test_spatialdata_writes_what_it_read(tmp_path: Path, element: Path, expected: pd.DataFrame) -> None:
    spatialdata.read_zarr(element.parents[1]).write(tmp_path / "again.zarr")
    again = spatialdata.read_zarr(tmp_path / "again.zarr").points["transcripts"].compute()
    assert set(again["gene"].cat.categories) == {"z", "a", "unused", "m"}
    pd.testing.assert_frame_equal(as_text(by_id(again)), as_text(expected))


def test_spatialdata_adds_elements_to_the_store(tmp_path: Path, expected: pd.DataFrame) -> None:
    index_points(expected, tmp_path / "s.zarr", feature_key="gene")
    sdata = spatialdata.read_zarr(tmp_path / "s.zarr")
    sdata.points["more"] = PointsModel.parse(expected[["x", "y", "gene"]])
    sdata.write_element("more")
    assert set(spatialdata.read_zarr(tmp_path / "s.zarr").points) == {"transcripts", "more"}


def test_spatialdata_asks_boxes_of_it(element: Path, expected: pd.DataFrame) -> None:
    found = spatialdata.bounding_box_query(
        spatialdata.read_zarr(element.parents[1]).points["transcripts"],
        axes=("x", "y"),
        min_coordinate=[20, 30],
        max_coordinate=[50, 60],
        target_coordinate_system="global",
    )
    inside = expected[expected["x"].between(20, 50) & expected["y"].between(30, 60)]
    assert sorted(found["id"].compute()) == inside["id"].tolist()


def test_pandas_reads_a_plain_data_set(element: Path, expected: pd.DataFrame) -> None:
    found = by_id(pd.read_parquet(element / "points.parquet"))
    pd.testing.assert_frame_equal(found, expected.astype({"cell": "str"}))


def test_polars_reads_a_plain_data_set(element: Path, expected: pd.DataFrame) -> None:
    found = pl.read_parquet(element / "points.parquet", hive_partitioning=False).to_pandas()
    assert found.columns.tolist() == expected.columns.tolist()
    pd.testing.assert_frame_equal(as_text(by_id(found)), as_text(expected), check_dtype=False)


def test_polars_scans_a_plain_data_set_lazily(element: Path, expected: pd.DataFrame) -> None:
    frame = pl.scan_parquet(element / "points.parquet", hive_partitioning=False)
    found = frame.filter(pl.col("x") < 10, pl.col("qv") >= 20).select("id").collect()["id"].sort().to_list()
    assert found == expected["id"][(expected["x"] < 10) & (expected["qv"] >= 20)].tolist()


def test_duckdb_reads_a_plain_data_set(element: Path, expected: pd.DataFrame) -> None:
    found = duckdb.read_parquet(str(element / "points.parquet/*.parquet")).to_arrow_table().to_pandas()
    assert found.columns.tolist() == expected.columns.tolist()
    pd.testing.assert_frame_equal(as_text(by_id(found)), as_text(expected), check_dtype=False)


def test_pyarrow_prunes_tiles_by_their_bounds(element: Path, expected: pd.DataFrame) -> None:
    dataset = pads.dataset(element / "points.parquet")
    corner = (pads.field("x") < 10) & (pads.field("y") < 10)
    pieces = [piece for fragment in dataset.get_fragments() for piece in fragment.split_by_row_group(corner)]
    assert len(pieces) <= 3 * 3
    found = sorted(dataset.to_table(filter=corner, columns=["id"])["id"].to_pylist())
    assert found == expected["id"][(expected["x"] < 10) & (expected["y"] < 10)].tolist()


def test_dask_reads_the_parts_in_their_order(element: Path) -> None:
    found = dd.read_parquet(element / "points.parquet")["id"].compute().tolist()
    assert found == [value for part in range(2) for value in _part(element, part)]


def _part(element: Path, number: int) -> list[int]:
    ids: list[int] = pd.read_parquet(element / f"points.parquet/part.{number}.parquet")["id"].tolist()
    return ids


# --- stores that spatialdata wrote


@pytest.fixture
def written(tmp_path: Path, expected: pd.DataFrame) -> Path:
    """Return a store that spatialdata wrote, of molecules with an index that repeats, and a rotation."""
    frame = expected.drop(columns="z").set_index(pd.Index(np.arange(3000) // 3))
    turn = Affine([[0.8, -0.6, 5], [0.6, 0.8, -7], [0, 0, 1]], input_axes=("x", "y"), output_axes=("x", "y"))
    points = PointsModel.parse(frame, npartitions=3, feature_key="gene", transformations={"global": turn})
    other = PointsModel.parse(frame[["x", "y"]].reset_index(drop=True))
    spatialdata.SpatialData(points={"transcripts": points, "other": other}).write(tmp_path / "s.zarr")
    return tmp_path / "s.zarr"


def test_what_spatialdata_wrote_reads_the_same_after_indexing_in_place(
    written: Path, attributes_of: Callable[[Path], dict[str, Any]]
) -> None:
    before = spatialdata.read_zarr(written)
    rows = before.points["transcripts"].compute().reset_index()
    element = Path(index_points(written / "points/transcripts", in_place=True, limit=100).path)
    after = spatialdata.read_zarr(written)

    found = after.points["transcripts"].compute().reset_index()
    expected = rows.astype({"cell": TEXT})
    expected["gene"] = expected["gene"].cat.set_categories(found["gene"].cat.categories)
    expected["kind"] = expected["kind"].cat.set_categories(found["kind"].cat.categories)
    assert set(found["gene"].cat.categories) == {"z", "a", "unused", "m"}
    pd.testing.assert_frame_equal(by_id(found), by_id(expected))
    assert get_transformation(after.points["transcripts"]) == get_transformation(before.points["transcripts"])
    assert len(attributes_of(element)["spatial_index"]["affine"]) == 2
    assert len(after.points["other"]) == 3000


def test_consolidated_metadata_shows_the_index(written: Path) -> None:
    element = Path(index_points(written / "points/transcripts", in_place=True).path)
    root = spatialdata.read_zarr(written)
    assert root.has_consolidated_metadata()
    document = (written / "zarr.json").read_text()
    assert '"points/transcripts/index/0/tile_offsets"' in document
    assert element == written / "points/transcripts"


def test_the_original_ids_stay_the_index(written: Path) -> None:
    report = index_points(written / "points/transcripts", in_place=True)
    points = spatialdata.read_zarr(written).points["transcripts"].compute()
    assert (points.index == points["id"] // 3).all()
    assert any("not shown to hold unique integers" in note for note in report.notes)


def test_pyarrow_columns_are_as_they_were_in_memory(element: Path, expected: pd.DataFrame) -> None:
    schema = pads.dataset(element / "points.parquet").schema
    source = pa.Schema.from_pandas(expected, preserve_index=False)
    for name in ("x", "y", "z", "qv", "inside", "score", "id"):
        assert schema.field(name).type == source.field(name).type
