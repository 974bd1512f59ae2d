"""What cannot be opened says why, and what to do; an index that no longer fits never answers."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import puncta
from puncta.errors import (
    MetadataError,
    MissingError,
    NotIndexedError,
    QueryError,
    StaleIndexError,
    StoreError,
    UnsupportedError,
)
from puncta.points import Points

type Built = tuple[Points, pd.DataFrame]


@pytest.fixture
def element(plain: Built, tmp_path: Path) -> Path:
    points, _ = plain
    shutil.copytree(points.store, tmp_path / "study.zarr")
    return tmp_path / "study.zarr" / "points" / "transcripts"


def edit(element: Path, change: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads((element / "zarr.json").read_text())
    change(document["attributes"])
    (element / "zarr.json").write_text(json.dumps(document))


def test_an_element_without_an_index_names_the_command(element: Path) -> None:
    edit(element, lambda attrs: [attrs.pop(key) for key in ("spatial_index", "multiscales", "zarr_conventions")])
    with pytest.raises(NotIndexedError, match=r"puncta index .*transcripts --in-place"):
        puncta.open_points(element)


def test_a_table_names_the_command(tmp_path: Path) -> None:
    (tmp_path / "transcripts.parquet").write_bytes(b"PAR1")
    with pytest.raises(NotIndexedError, match=r"puncta index .*transcripts\.parquet -o NEW\.zarr"):
        puncta.open_points(tmp_path / "transcripts.parquet")


def test_every_problem_of_the_metadata_is_listed(element: Path) -> None:
    def spoil(attrs: dict[str, Any]) -> None:
        attrs["spatial_index"]["axes"] = ["x", "q"]
        attrs["multiscales"]["layout"][0]["spatial_index"]["n_rows"] = -1
        del attrs["multiscales"]["layout"][1]["spatial_index"]["tile_size"]

    edit(element, spoil)
    with pytest.raises(MetadataError) as caught:
        puncta.open_points(element)
    for place in ("/spatial_index/axes", "layout/0/spatial_index/n_rows", "layout/1/spatial_index/tile_size"):
        assert place in str(caught.value)


def test_another_transformation_makes_an_index_stale(element: Path) -> None:
    def scale(attrs: dict[str, Any]) -> None:
        attrs["coordinateTransformations"][0] |= {"type": "scale", "scale": [2.0] * len(attrs["axes"])}

    edit(element, scale)
    with pytest.raises(StaleIndexError, match=r"stale.*--in-place --overwrite"):
        puncta.open_points(element)


def test_a_stale_index_is_mended_by_the_command_it_names(element: Path) -> None:
    edit(element, lambda attrs: attrs["coordinateTransformations"][0].update(type="scale", scale=[2.0, 2.0]))
    puncta.index_points(element, in_place=True, overwrite=True, limit=500)

    points = puncta.open_points(element)
    stored = points.count(box={"x": (0, 50), "y": (50, 100)})
    assert points.count(box={"x": (0, 100), "y": (100, 200)}, coordinate_system="global") == stored


def test_broken_json_is_not_taken_for_an_absent_index(element: Path) -> None:
    (element / "zarr.json").write_text('{"attributes": {')
    with pytest.raises(StoreError, match=r"zarr\.json"):
        puncta.open_points(element)


def test_nothing_names_what_is_near(element: Path) -> None:
    with pytest.raises(MissingError, match="'transcripts'"):
        puncta.open_points(element.with_name("transcript"))


def test_a_url_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="ftp:// URLs are not read"):
        puncta.open_points("ftp://example.org/study.zarr")
    (tmp_path / "study.zarr.zip").write_bytes(b"PK\x03\x04")
    with pytest.raises(StoreError, match="no end record"):
        puncta.open_points(tmp_path / "study.zarr.zip")


def test_options_of_a_server_are_refused_for_a_folder(element: Path) -> None:
    with pytest.raises(QueryError, match="given with a local path"):
        puncta.open_points(element, storage_options={"region": "x"})


def test_a_file_url_is_a_path(element: Path) -> None:
    assert puncta.open_points(element.as_uri()).path == element


def test_a_layout_that_nobody_knows_is_refused(element: Path) -> None:
    edit(element, lambda attrs: attrs["spatial_index"].update(layout=["lance"]))
    with pytest.raises((MetadataError, UnsupportedError), match="lance"):
        puncta.open_points(element)


def test_a_missing_index_array_is_named(element: Path) -> None:
    shutil.rmtree(element / "index" / "0" / "tile_offsets")
    with pytest.raises(StoreError, match="tile_offsets is missing"):
        puncta.open_points(element).query(box={"x": (0, 1)})
