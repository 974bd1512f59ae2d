"""Where an indexed element goes, what is left as it was there, and what is refused."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

from puncta.errors import GridError, MissingError, OverwriteError, SourceError, StoreError, UnsupportedError
from puncta.indexing import index_points
from puncta.points import open_points

type Files = dict[str, bytes]


def files_of(folder: Path, *, but: str = "nothing") -> Files:
    """Return the files of a folder, but for those below a place in it."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    named = ((path.relative_to(folder).as_posix(), path) for path in files)
    return {name: path.read_bytes() for name, path in named if not name.startswith(but)}


def document(attributes: dict[str, Any]) -> str:
    return json.dumps({"zarr_format": 3, "node_type": "group", "attributes": attributes})


@pytest.fixture(scope="module")
def table(molecules: Callable[..., pa.Table]) -> pa.Table:
    """Return a few molecules."""
    return molecules(300)


@pytest.fixture
def store(tmp_path: Path, table: pa.Table) -> Path:
    """Return a store as another program writes it: points in two systems, a shape, attributes of its own."""
    root = tmp_path / "data" / "study.zarr"
    axes = [{"name": axis, "type": "space", "unit": "unit"} for axis in ("x", "y")]
    to = {
        name: {"input": {"name": "xy", "axes": axes}, "output": {"name": name, "axes": axes}, "type": kind, **more}
        for name, kind, more in (("global", "identity", {}), ("pixels", "scale", {"scale": [2.0, 4.0]}))
    }
    attributes = {
        "encoding-type": "ngff:points",
        "axes": ["x", "y"],
        "coordinateTransformations": list(to.values()),
        "spatialdata_attrs": {"feature_key": "gene", "version": "0.2"},
        "theirs": {"colour": "red"},
    }
    groups: dict[str, dict[str, Any]] = {
        "": {"theirs": 1},
        "points": {},
        "points/spots": attributes,
        "shapes": {"cells": 5},
    }
    for folder, attrs in groups.items():
        (root / folder).mkdir(parents=True, exist_ok=True)
        (root / folder / "zarr.json").write_text(document(attrs))
    (root / "points/spots/points.parquet").mkdir()
    pq.write_table(table, root / "points/spots/points.parquet/part.0.parquet")
    (root / "shapes/shapes.parquet").write_bytes(b"theirs")
    return root


# --- in place


def test_in_place_changes_nothing_but_the_element(store: Path) -> None:
    before = files_of(store, but="points/spots")
    report = index_points(store / "points/spots", in_place=True)
    assert Path(report.path) == store / "points/spots"
    assert files_of(store, but="points/spots") == before
    assert [path.name for path in store.parent.iterdir()] == ["study.zarr"]


def test_what_others_wrote_in_the_attributes_stays(
    store: Path, attributes_of: Callable[[Path], dict[str, Any]]
) -> None:
    before = attributes_of(store / "points/spots")
    after = attributes_of(Path(index_points(store, in_place=True).path))
    for key in ("theirs", "coordinateTransformations", "axes", "encoding-type", "spatialdata_attrs"):
        assert after[key] == before[key]


def test_a_store_stands_for_its_only_element(store: Path) -> None:
    assert Path(index_points(store, in_place=True).path) == store / "points/spots"


@pytest.mark.filterwarnings("ignore:Object at .* is not recognized", "ignore:Consolidated metadata is currently not")
def test_consolidated_metadata_is_redone(store: Path) -> None:
    zarr.consolidate_metadata(store)
    index_points(store, in_place=True)
    found = zarr.open_consolidated(store)["points/spots"]
    assert isinstance(found, zarr.Group)
    assert "spatial_index" in dict(found.attrs)
    assert "index/0/tile_offsets" in found


def test_a_store_without_consolidated_metadata_gets_none(store: Path) -> None:
    index_points(store, in_place=True)
    assert "consolidated_metadata" not in json.loads((store / "zarr.json").read_text())


def test_an_index_is_built_anew_over_a_first_where_asked(store: Path) -> None:
    index_points(store, in_place=True, limit=10)
    with pytest.raises(OverwriteError, match="has a spatial index already; give --overwrite"):
        index_points(store, in_place=True, limit=20)
    index_points(store, in_place=True, limit=20, overwrite=True)
    points = open_points(store)
    assert (points.limit, points.n_rows) == (20, 300)
    assert sorted(points.query()["id"].to_pylist()) == list(range(300))


@pytest.mark.parametrize("where", ["beside", "inside"])
def test_a_link_to_a_store_is_followed(store: Path, where: str) -> None:
    link = (store.parent if where == "beside" else store.parents[1]) / "link.zarr"
    link.symlink_to(store)
    index_points(link / "points/spots", in_place=True)
    assert link.is_symlink()
    assert open_points(store).n_rows == 300


# --- into a store


def test_an_element_is_added_and_the_others_stay(store: Path, table: pa.Table) -> None:
    before = files_of(store)
    report = index_points(table, store, name="more")
    assert Path(report.path) == store / "points/more"
    assert files_of(store, but="points/more") == before


def test_the_groups_above_the_element_are_made(tmp_path: Path, table: pa.Table) -> None:
    root = tmp_path / "s.zarr"
    root.mkdir()
    (root / "zarr.json").write_text(document({}))
    index_points(table, root)
    assert json.loads((root / "points/zarr.json").read_text())["node_type"] == "group"
    assert open_points(root).n_rows == 300


def test_an_element_of_the_same_name_is_replaced_where_asked(store: Path, table: pa.Table) -> None:
    with pytest.raises(OverwriteError, match=r"points/spots exists; give --overwrite .* --name"):
        index_points(table.slice(0, 10), store, name="spots")
    index_points(table.slice(0, 10), store, name="spots", overwrite=True)
    assert open_points(store).n_rows == 10


def test_an_element_keeps_its_name_and_its_systems_in_a_new_store(
    store: Path, tmp_path: Path, attributes_of: Callable[[Path], dict[str, Any]]
) -> None:
    report = index_points(store, tmp_path / "new.zarr")
    assert Path(report.path).name == "spots"
    kept = "coordinateTransformations"
    assert attributes_of(Path(report.path))[kept] == attributes_of(store / "points/spots")[kept]


def test_the_other_elements_come_along_where_asked(store: Path, tmp_path: Path) -> None:
    index_points(store, tmp_path / "new.zarr", all_elements=True)
    assert files_of(tmp_path / "new.zarr", but="points/spots") == files_of(store, but="points/spots")
    index_points(store, tmp_path / "alone.zarr")
    assert not (tmp_path / "alone.zarr/shapes").exists()


def test_the_grid_may_belong_to_any_system_of_the_element(store: Path, tmp_path: Path, table: pa.Table) -> None:
    report = index_points(store, tmp_path / "new.zarr", coordinate_system="pixels", tile_size=100, origin=(0, 0))
    points = open_points(Path(report.path))
    assert points.coordinate_system == "pixels"
    found = points.query(box={"x": (100, 150), "y": (0, 200)}, coordinate_system="pixels")
    frame = table.to_pandas()
    assert (
        sorted(found["id"].to_pylist()) == frame["id"][frame["x"].between(50, 75, "left") & (frame["y"] < 50)].tolist()
    )


# --- refused


def test_a_target_must_be_said_and_only_one(store: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"either -o STORE .* or --in-place"):
        index_points(store)
    with pytest.raises(SourceError, match=r"either -o STORE .* or --in-place"):
        index_points(store, tmp_path / "new.zarr", in_place=True)


def test_a_table_has_no_place_of_its_own(table: pa.Table) -> None:
    with pytest.raises(SourceError, match=r"no points element .* give a new store with -o"):
        index_points(table, in_place=True)


def test_an_element_in_place_keeps_its_name(store: Path) -> None:
    with pytest.raises(SourceError, match="keeps its name 'spots'"):
        index_points(store, in_place=True, name="other")


def test_the_own_store_is_no_new_one(store: Path) -> None:
    with pytest.raises(OverwriteError, match="index them with --in-place"):
        index_points(store, store)
    link = store.parent / "link.zarr"
    link.symlink_to(store)
    with pytest.raises(OverwriteError, match="index them with --in-place"):
        index_points(store, link, overwrite=True)


@pytest.mark.parametrize("name", ["", "a/b", "..", ".", "__x", "a b", "é\x00"])
def test_a_name_that_spatialdata_would_not_read_is_refused(tmp_path: Path, table: pa.Table, name: str) -> None:
    with pytest.raises(SourceError, match="cannot be that of an element; use letters"):
        index_points(table, tmp_path / "new.zarr", name=name)
    assert list(tmp_path.iterdir()) == []


def test_a_place_inside_a_store_is_no_store(store: Path, table: pa.Table) -> None:
    with pytest.raises(SourceError, match=r"lies inside the store .* give the store itself"):
        index_points(table, store / "points")


def test_a_store_of_format_2_is_never_changed(tmp_path: Path, table: pa.Table) -> None:
    root = tmp_path / "old.zarr"
    root.mkdir()
    (root / ".zgroup").write_text('{"zarr_format": 2}')
    with pytest.raises(UnsupportedError, match="Zarr v2 store, which puncta never changes; give a new -o"):
        index_points(table, root)
    assert [path.name for path in root.iterdir()] == [".zgroup"]


def test_a_target_in_no_folder_is_said(tmp_path: Path, table: pa.Table) -> None:
    with pytest.raises(MissingError, match="no folder"):
        index_points(table, tmp_path / "nowhere/new.zarr")


def test_a_target_that_is_a_file_is_refused(tmp_path: Path, table: pa.Table) -> None:
    (tmp_path / "new.zarr").write_text("a file")
    with pytest.raises((OverwriteError, StoreError)):
        index_points(table, tmp_path / "new.zarr", overwrite=True)
    assert (tmp_path / "new.zarr").read_text() == "a file"


def test_an_unknown_system_is_refused_with_those_there_are(store: Path, tmp_path: Path) -> None:
    with pytest.raises(GridError, match=r"no transformation to 'aligned'; it has them to global, pixels"):
        index_points(store, tmp_path / "new.zarr", coordinate_system="aligned")


def test_a_store_of_several_elements_needs_one_named(store: Path) -> None:
    shutil.copytree(store / "points/spots", store / "points/more")
    with pytest.raises(SourceError, match=r"more, spots|points/more"):
        index_points(store, in_place=True)


# --- nothing is left behind


def test_an_interrupt_in_the_middle_leaves_the_store_as_it_was(store: Path) -> None:
    before = files_of(store)

    def fail(stage: str, *_: int) -> None:
        if stage == "writing features":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        index_points(store, in_place=True, progress=fail)
    assert files_of(store) == before
    kept = [path.name for path in store.parent.iterdir() if path.name != "study.zarr"]
    assert len(kept) == 1
    assert kept[0].startswith(".study.zarr.puncta-build-")


def test_buckets_go_where_asked_and_away_again(tmp_path: Path, table: pa.Table) -> None:
    (tmp_path / "tmp").mkdir()
    seen: set[str] = set()

    def look(*_: object) -> None:
        seen.update(path.suffix for path in (tmp_path / "tmp").rglob("*"))

    index_points(table, tmp_path / "new.zarr", tmp=tmp_path / "tmp", progress=look)
    assert ".arrow" in seen
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.skipif(not os.geteuid(), reason="root may write anywhere")
def test_a_store_that_may_not_be_written_is_said(store: Path) -> None:
    store.parent.chmod(0o500)
    store.chmod(0o500)
    try:
        with pytest.raises(StoreError, match="may write neither beside nor in"):
            index_points(store, in_place=True)
    finally:
        store.parent.chmod(0o700)
        store.chmod(0o700)
