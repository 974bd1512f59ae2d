"""Documents of a SpatialData store, against what spatialdata, pandas and dask write and read."""

import datetime as dt
import decimal
import json
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import spatialdata
import zarr
from spatialdata.models import PointsModel

from puncta.errors import ColumnError
from puncta.spec.spatialdata import pandas_metadata, points_attrs, root_attrs
from puncta.spec.transformations import identity_transformation

# dask 2026.8 sets and resets an index in place, which pandas 3.1 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword in DataFrame:DeprecationWarning")
SPREAD = ("x", "y")


def molecules() -> pa.Table:
    """Return three molecules; one gene of the dictionary is used by none."""
    genes = pa.DictionaryArray.from_arrays(pa.array([2, 0, 2], pa.int16()), pa.array(["a", "b", "c"]))
    return pa.table(
        {
            "x": pa.array([1, 2, 3], pa.float32()),
            "y": pa.array([1, 2, 3], pa.float32()),
            "gene": genes,
            "cell_id": ["k1", None, "k3"],
            "__null_dask_index__": pa.array([7, 8, 7], pa.int64()),
        }
    )


def with_block(table: pa.Table, index: str | None = "__null_dask_index__") -> pa.Table:
    block = json.dumps(pandas_metadata(table.schema, index, num_categories={"gene": 3}))
    return table.replace_schema_metadata({"pandas": block})


def frame() -> pd.DataFrame:
    """Return a frame with a column of every type that the block knows."""
    return pd.DataFrame(
        {
            **{
                name: np.zeros(2, name)
                for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
            },
            **{name: np.zeros(2, name) for name in ("float16", "float32", "float64", "bool")},
            "text": ["a", "b"],
            "plain": pd.Categorical(["a", "b"], categories=["a", "b", "c"]),
            "ordered": pd.Categorical(["a", "b"], ordered=True),
            "numbers": pd.Categorical([1, 2]),
            "time": pd.to_datetime(["2020-01-01", "2021-01-01"]),
            "zone": pd.to_datetime(["2020-01-01", "2021-01-01"]).tz_localize("Europe/Paris"),
            "date": [dt.date(2020, 1, 1)] * 2,
            "clock": [dt.time(1)] * 2,
            "bytes": [b"a", b"b"],
            "decimal": [decimal.Decimal("1.23"), decimal.Decimal("11.20")],
            "list": [[1, 2], [3]],
            "words": [["a"], ["b"]],
            "struct": [{"a": 1}] * 2,
            "span": pd.to_timedelta([1, 2], unit="s"),
            "empty": [None, None],
        }
    )


def column(block: dict[str, Any], name: str) -> dict[str, Any]:
    return next(entry for entry in block["columns"] if entry["field_name"] == name)


@pytest.mark.parametrize("name", [name for name in frame().columns if name != "text"])
def test_columns_are_described_as_pyarrow_describes_them(name: str) -> None:
    table = pa.Table.from_pandas(frame(), preserve_index=False)
    theirs = json.loads(table.schema.metadata[b"pandas"])
    ours = pandas_metadata(table.schema, None, num_categories={"plain": 3, "ordered": 2, "numbers": 2})
    assert column(ours, name) == column(theirs, name)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_text_is_described_as_every_version_of_pandas_does(kind: pa.DataType) -> None:
    block = pandas_metadata(pa.schema([("a", kind)]), None)
    assert block["columns"] == [
        {"name": "a", "field_name": "a", "pandas_type": "unicode", "numpy_type": "object", "metadata": None}
    ]


def test_the_frame_outside_its_columns_is_described_as_pyarrow_describes_it() -> None:
    indexed = frame().set_index(pd.Index(["k", "l"], name="ids"))[["int8"]]
    for index, table in (
        ("ids", pa.Table.from_pandas(indexed)),
        (None, pa.Table.from_pandas(indexed, preserve_index=False)),
    ):
        theirs = json.loads(table.schema.metadata[b"pandas"])
        ours = pandas_metadata(table.schema, index)
        assert set(ours) == set(theirs)
        assert ours["index_columns"] == theirs["index_columns"]
        assert [names["pandas_type"] for names in ours["column_indexes"]] == [
            names["pandas_type"] for names in theirs["column_indexes"]
        ]


def test_an_index_column_that_is_not_there_is_refused() -> None:
    with pytest.raises(ColumnError, match="'ids' is not in the schema; it has x"):
        pandas_metadata(pa.schema([("x", pa.float32())]), "ids")


def test_a_number_of_categories_that_nobody_knows_is_left_out() -> None:
    schema = pa.schema([("gene", pa.dictionary(pa.int32(), pa.string()))])
    assert pandas_metadata(schema, None)["columns"][0]["metadata"] == {"ordered": False}


def test_every_type_reads_back_as_it_does_with_the_block_of_pyarrow(tmp_path: Path) -> None:
    table = pa.Table.from_pandas(frame(), preserve_index=False)
    pq.write_table(table, tmp_path / "theirs.parquet")
    block = json.dumps(pandas_metadata(table.schema, None))
    pq.write_table(table.replace_schema_metadata({"pandas": block}), tmp_path / "ours.parquet")
    pd.testing.assert_frame_equal(
        pd.read_parquet(tmp_path / "ours.parquet"), pd.read_parquet(tmp_path / "theirs.parquet")
    )


def test_pandas_reads_all_categories_and_the_index(tmp_path: Path) -> None:
    pq.write_table(with_block(molecules()), tmp_path / "part.0.parquet")
    found = pd.read_parquet(tmp_path / "part.0.parquet")
    assert list(found["gene"].cat.categories) == ["a", "b", "c"]
    assert list(found.index) == [7, 8, 7]
    assert list(found.columns) == ["x", "y", "gene", "cell_id"]
    assert found["cell_id"].dtype == "str"


@pytest.mark.parametrize("index", ["__null_dask_index__", None])
def test_dask_reads_all_categories_of_every_part(tmp_path: Path, index: str | None) -> None:
    table = molecules() if index else molecules().drop_columns("__null_dask_index__")
    for part in range(2):
        pq.write_table(with_block(table, index), tmp_path / f"part.{part}.parquet")
    lazy = dd.read_parquet(tmp_path)
    assert lazy["gene"].cat.as_known().cat.categories.tolist() == ["a", "b", "c"]
    assert list(lazy.compute()["gene"]) == ["c", "a", "c"] * 2


def store_of(path: Path) -> Path:
    """Write a store with one points element by our documents alone."""
    root = zarr.create_group(path, zarr_format=3, attributes=root_attrs())
    root.create_group("points").create_group(
        "spots",
        attributes=points_attrs(SPREAD, "gene", "cell_id", [identity_transformation(SPREAD, "global")]),
    )
    parts = path / "points" / "spots" / "points.parquet"
    parts.mkdir()
    pq.write_table(with_block(molecules()), parts / "part.0.parquet")
    return path


def test_spatialdata_reads_a_store_of_our_documents_without_a_warning(tmp_path: Path) -> None:
    element = spatialdata.read_zarr(store_of(tmp_path / "a.zarr")).points["spots"]
    assert element.attrs["spatialdata_attrs"] == {"feature_key": "gene", "instance_key": "cell_id"}
    assert list(element.compute()["gene"].cat.categories) == ["a", "b", "c"]


def test_spatialdata_writes_again_what_it_read_from_our_documents(tmp_path: Path) -> None:
    spatialdata.read_zarr(store_of(tmp_path / "a.zarr")).write(tmp_path / "b.zarr")
    again = spatialdata.read_zarr(tmp_path / "b.zarr").points["spots"]
    assert list(again.compute()["x"]) == [1, 2, 3]


@pytest.mark.parametrize(("feature_key", "instance_key"), [("gene", "cell_id"), ("gene", None)])
def test_element_attributes_are_those_that_spatialdata_writes(
    tmp_path: Path, feature_key: str, instance_key: str | None
) -> None:
    points = molecules().drop_columns("__null_dask_index__").to_pandas()
    element = PointsModel.parse(points, feature_key=feature_key, instance_key=instance_key)
    spatialdata.SpatialData(points={"spots": element}).write(tmp_path / "a.zarr")
    theirs = json.loads((tmp_path / "a.zarr/points/spots/zarr.json").read_text())["attributes"]
    ours = points_attrs(SPREAD, feature_key, instance_key, [identity_transformation(SPREAD, "global")])
    assert json.dumps(ours) == json.dumps(theirs)
