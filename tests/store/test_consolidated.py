import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from puncta.errors import StoreError
from puncta.store import Workspace, refresh_consolidated

ELEMENT = {"encoding-type": "ngff:points", "axes": ["x", "y"]}


def consolidate(root: Path) -> dict[str, Any]:
    """Let zarr write the consolidated metadata; return the document."""
    with warnings.catch_warnings():
        # that it is no part of the specification, and that points.parquet is no node
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata(root, zarr_format=3)
    return read(root)


def read(root: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((root / "zarr.json").read_text())
    return document


def add_element(root: Path, name: str) -> None:
    group = zarr.open_group(root, mode="a", zarr_format=3).create_group(f"points/{name}", attributes=ELEMENT)
    group.create_group("feature")
    group.create_array("index/0/tile_offsets", data=np.arange(5))
    group.create_array("index/0/P_feature", data=np.array([np.nan, 1.0]), attributes={"Ä": "ö"})
    (root / "points" / name / "points.parquet").mkdir()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = tmp_path / "study.zarr"
    zarr.create_group(root, attributes={"version": "0.2"})
    add_element(root, "a")
    consolidate(root)
    return root


def test_a_new_element_is_consolidated_as_zarr_does_it(store: Path) -> None:
    add_element(store, "b")
    assert refresh_consolidated(store)
    ours = read(store)
    assert "points/b/index/0/tile_offsets" in ours["consolidated_metadata"]["metadata"]
    assert ours == consolidate(store)


def test_a_removed_element_and_changed_attributes_are_followed(store: Path) -> None:
    add_element(store, "b")
    shutil.rmtree(store / "points" / "a")
    zarr.open_group(store / "points" / "b", mode="a").attrs["more"] = 1
    assert refresh_consolidated(store)
    assert read(store) == consolidate(store)


def test_what_is_fresh_is_not_written(store: Path) -> None:
    before = (store / "zarr.json").stat().st_mtime_ns
    assert not refresh_consolidated(store)
    assert (store / "zarr.json").stat().st_mtime_ns == before


def test_absent_stays_absent(tmp_path: Path) -> None:
    zarr.create_group(tmp_path / "study.zarr")
    add_element(tmp_path / "study.zarr", "a")
    assert not refresh_consolidated(tmp_path / "study.zarr")
    assert "consolidated_metadata" not in read(tmp_path / "study.zarr")


def test_an_unreadable_member_leaves_the_root_as_it_was(store: Path) -> None:
    before = read(store)
    (store / "points" / "a" / "zarr.json").write_text('{"zarr_format":')
    with pytest.raises(StoreError, match="valid JSON"):
        refresh_consolidated(store)
    assert read(store) == before


def test_zarr_finds_a_published_element_through_the_root(store: Path) -> None:
    with Workspace(store) as workspace:
        zarr.create_group(workspace.path / "b", attributes=ELEMENT).create_array("offsets", data=np.arange(3))
        workspace.publish_directory(workspace.path / "b", store / "points" / "b", replace=False)
    root = zarr.open_consolidated(store)
    assert dict(root["points/b"].attrs) == ELEMENT
    assert np.asarray(root["points/b/offsets"]).tolist() == [0, 1, 2]


@pytest.mark.parametrize("name", ["spatialdataR_blobs_v3.zarr", "vitessce_spatialdata-0.7_blobs.sdata.zarr"])
def test_measured_stores_are_consolidated_as_zarr_does_it(shared_data: Path, tmp_path: Path, name: str) -> None:
    store = shutil.copytree(shared_data / "format_fixtures_blobs" / name, tmp_path / name)
    (element,) = (store / "points").glob("blobs*")
    element.rename(element.with_name("renamed"))
    assert refresh_consolidated(store)
    members = dict(zarr.open_consolidated(store).members(max_depth=None))
    consolidate(store)
    expected = dict(zarr.open_consolidated(store).members(max_depth=None))
    assert {path: node.metadata for path, node in members.items()} == {p: n.metadata for p, n in expected.items()}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_spatialdata_reads_what_was_refreshed(shared_data: Path, tmp_path: Path) -> None:
    import spatialdata  # noqa: PLC0415 (takes seconds to import)

    name = "vitessce_spatialdata-0.7_blobs.sdata.zarr"
    store = shutil.copytree(shared_data / "format_fixtures_blobs" / name, tmp_path / name)
    (element,) = (store / "points").glob("blobs*")
    with Workspace(store) as workspace:
        built = shutil.copytree(element, workspace.path / "more")
        workspace.publish_directory(built, store / "points" / "more", replace=False)
    assert set(spatialdata.read_zarr(store).points) == {element.name, "more"}
