"""Results as SpatialData points elements, checked with spatialdata itself."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import spatialdata
from spatialdata.models import PointsModel
from spatialdata.transformations import get_transformation

import puncta
from puncta.errors import ColumnError
from puncta.points import Points

# dask 2026.8 sets and resets an index in place, which pandas 3.1 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword in DataFrame:DeprecationWarning")

type Built = tuple[Points, pd.DataFrame]

SOME_BOX = {"x": (-20.5, 45.25), "y": (60.0, 150.0)}
WITH_Z = [[0.0, 2.0, 0.0, 10.0], [3.0, 0.0, 0.0, 20.0], [0.0, 0.0, 5.0, 30.0]]


def moved(path: Path, matrix: list[list[float]]) -> None:
    """Give an element a transformation, whose matrix is in the order of the axes that spatialdata writes."""
    document = json.loads((path / "zarr.json").read_text())
    given: list[dict[str, Any]] = document["attributes"]["coordinateTransformations"]
    given[0] = {**given[0], "type": "affine", "affine": matrix}
    (path / "zarr.json").write_text(json.dumps(document))


def test_an_element_has_the_rows_and_columns_of_the_result(built: Built) -> None:
    points, frame = built
    table = points.query(box=SOME_BOX)
    element = points.to_element(table)
    PointsModel().validate(element)
    given = element.compute().sort_values("row", ignore_index=True)
    inside = frame["x"].between(-20.5, 45.25, inclusive="left") & frame["y"].between(60, 150, inclusive="left")
    pd.testing.assert_frame_equal(
        given[list(frame.columns)], frame[inside].reset_index(drop=True), check_column_type=False
    )
    assert element.attrs["spatialdata_attrs"]["feature_key"] == "gene"


def test_an_element_of_no_points_is_one(plain: Built) -> None:
    points, _ = plain
    element = points.to_element(points.query(box={"x": (1e6, 2e6)}))
    assert len(element.compute()) == 0
    assert element.compute()["gene"].cat.categories.tolist() == points.features


def test_an_element_may_have_few_columns(plain: Built) -> None:
    points, _ = plain
    element = points.to_element(points.query(box=SOME_BOX, columns=["x", "y"]))
    assert list(element.columns) == ["x", "y"]
    assert "feature_key" not in element.attrs.get("spatialdata_attrs", {})


def test_a_result_without_coordinates_is_no_element(plain: Built) -> None:
    points, _ = plain
    with pytest.raises(ColumnError, match="'y'"):
        points.to_element(points.query(box=SOME_BOX, columns=["x", "gene"]))


def test_the_transformations_are_those_of_the_element_on_disk(placed: Built) -> None:
    points, _ = placed
    theirs = spatialdata.read_zarr(points.store).points["transcripts"]
    given = get_transformation(points.to_element(points.query(box=SOME_BOX)), get_all=True)
    expected = get_transformation(theirs, get_all=True)
    assert set(given) == set(expected) == {"global", "turned", "swapped"}
    for name, transformation in expected.items():
        np.testing.assert_allclose(
            given[name].to_affine_matrix(("x", "y"), ("x", "y")),
            transformation.to_affine_matrix(("x", "y"), ("x", "y")),
            rtol=1e-15,
        )


def test_axes_in_another_order_keep_their_transformation(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [1.0, 9.0], "y": [4.0, 5.0], "z": [0.0, 2.0], "gene": ["a", "b"]})
    path = puncta.index_points(
        pa.Table.from_pandas(frame), tmp_path / "study.zarr", axes=("x", "y", "z"), feature_key="gene"
    ).path
    moved(Path(path), WITH_Z)
    puncta.index_points(path, in_place=True, overwrite=True, axes=("z", "y", "x"))
    points = puncta.open_points(path)
    given = get_transformation(points.to_element(points.query()))
    assert points.axes == ("z", "y", "x")
    assert points.query(box={"x": (18, 18.1), "y": (23, 23.1)}, coordinate_system="global").num_rows == 1
    np.testing.assert_allclose(given.to_affine_matrix(("x", "y", "z"), ("x", "y", "z"))[:3], WITH_Z)


def test_an_element_can_be_written_and_indexed_again(plain: Built, tmp_path: Path) -> None:
    points, _ = plain
    table = points.query(box=SOME_BOX, features=["Gene0", "Gene3"])
    spatialdata.SpatialData(points={"some": points.to_element(table)}).write(tmp_path / "some.zarr")
    puncta.index_points(tmp_path / "some.zarr", in_place=True)
    again = puncta.open_points(tmp_path / "some.zarr")
    assert sorted(again.query().column("row").to_pylist()) == sorted(table.column("row").to_pylist())
    assert again.features == points.features


@pytest.mark.parametrize("name", ["all", "volume"])
def test_spatialdata_reads_the_whole_element(build: Callable[..., Built], name: str) -> None:
    points, frame = build(name)
    theirs = spatialdata.read_zarr(points.store).points["transcripts"].compute().sort_values("row", ignore_index=True)
    assert theirs["gene"].cat.categories.tolist() == points.features
    for column in frame.columns:
        values = frame[column].astype(theirs[column].dtype)
        pd.testing.assert_series_equal(theirs[column], values, check_names=False, check_index_type=False)
