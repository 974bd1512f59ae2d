import json
import os
from pathlib import Path

import pytest

from puncta.errors import MissingError, StoreError, UnsupportedError
from puncta.store import children, locate, read_attributes

GROUP = {"zarr_format": 3, "node_type": "group", "attributes": {"a": 1}}


def make_group(folder: Path, document: object = GROUP) -> Path:
    folder.mkdir(parents=True)
    (folder / "zarr.json").write_text(json.dumps(document))
    return folder


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = make_group(tmp_path / "study.zarr")
    make_group(root / "points")
    make_group(root / "points" / "transcripts")
    return root


@pytest.mark.parametrize("inner", ["", "points", "points/transcripts"])
def test_a_path_is_split_at_the_outermost_group(store: Path, inner: str) -> None:
    place = locate(store / inner)
    assert (place.root, place.inner, place.zarr_format) == (store, inner, 3)
    assert place.path == store / inner


def test_a_relative_path_finds_the_store_around_it(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(store / "points")
    assert locate("transcripts") == locate("../points/transcripts") == locate(store / "points" / "transcripts")


def test_a_link_into_a_store_leads_to_the_store(store: Path, tmp_path: Path) -> None:
    link = tmp_path / "short"
    link.symlink_to(store / "points" / "transcripts")
    assert (locate(link).root, locate(link).inner) == (store, "points/transcripts")


def test_a_link_inside_a_store_stays_inside_it(store: Path, tmp_path: Path) -> None:
    (store / "points" / "far").symlink_to(make_group(tmp_path / "other" / "far"))
    assert (locate(store / "points" / "far").root, locate(store / "points" / "far").inner) == (store, "points/far")


def test_a_plain_file_is_its_own_root(tmp_path: Path) -> None:
    table = tmp_path / "transcripts.csv"
    table.write_text("x,y\n")
    assert (locate(table).root, locate(table).inner, locate(table).zarr_format) == (table, "", None)


@pytest.mark.parametrize(
    "url", ["https://a.b/c.zarr", "s3://b/k.zarr", "gs://b/k", "az://b/k", "HTTP://a/b", "s3:/b/k"]
)
def test_a_url_is_not_supported_yet(url: str) -> None:
    with pytest.raises(UnsupportedError, match="not supported yet"):
        locate(url)


@pytest.mark.parametrize("inner", ["", "/points/transcripts"])
@pytest.mark.parametrize("name", ["study.sdata.zarr.zip", "misnamed"])
def test_a_zip_and_a_place_in_it_are_not_supported_yet(tmp_path: Path, name: str, inner: str) -> None:
    (tmp_path / name).write_bytes(b"PK\x03\x04rest")
    with pytest.raises(UnsupportedError, match="zip"):
        locate(f"{tmp_path / name}{inner}")


def test_a_misspelt_name_is_answered_with_the_nearest(store: Path) -> None:
    with pytest.raises(MissingError, match="'transcripts'"):
        locate(store / "points" / "transcript")


def test_the_first_missing_part_is_named(store: Path) -> None:
    with pytest.raises(MissingError, match=r"there is no .*/pionts; the nearest in that folder: 'points'"):
        locate(store / "pionts" / "transcripts")


@pytest.mark.parametrize("path", ["", "no/such/thing"])
def test_nothing_is_a_missing_error(path: str) -> None:
    with pytest.raises(MissingError):
        locate(path)


def test_a_path_through_a_file_is_missing(store: Path) -> None:
    with pytest.raises(MissingError, match="is a file"):
        locate(store / "zarr.json" / "points")


def test_attributes_are_read_in_both_formats(store: Path, tmp_path: Path) -> None:
    (tmp_path / ".zgroup").write_text("{}")
    (tmp_path / ".zattrs").write_text('{"a": 2}')
    assert (read_attributes(store), read_attributes(tmp_path)) == ({"a": 1}, {"a": 2})


def test_a_group_of_format_2_may_have_no_attributes(tmp_path: Path) -> None:
    (tmp_path / ".zgroup").write_text("{}")
    assert read_attributes(tmp_path) == {}


@pytest.mark.parametrize("content", [b"", b'{"attributes": ', b"[]", b"\xff\xfe\xff", b"[" * 10**6])
@pytest.mark.parametrize("name", ["zarr.json", ".zattrs"])
def test_damaged_metadata_is_an_error_that_names_the_file(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(StoreError, match=name):
        read_attributes(tmp_path)


def test_attributes_that_are_no_object_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "zarr.json").write_text('{"attributes": 3}')
    with pytest.raises(StoreError, match="not a JSON object"):
        read_attributes(tmp_path)


def test_metadata_that_cannot_be_read_is_not_absent(tmp_path: Path) -> None:
    (tmp_path / "zarr.json").mkdir()
    with pytest.raises(StoreError, match="could not read"):
        read_attributes(tmp_path)


def test_absent_metadata_is_a_missing_error(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="no Zarr group"):
        read_attributes(tmp_path)


def test_children_are_groups_alone(store: Path) -> None:
    make_group(store / "array", {"zarr_format": 3, "node_type": "array"})
    (store / "points.parquet").mkdir()
    (store / "old").mkdir()
    (store / "old" / ".zgroup").write_text("{}")
    assert children(store) == ["old", "points"]


STORES = {
    "xenium_breast_points_sdata/*.zarr": 2,
    "xenium_segtraq_sdata/*.zarr": 2,
    "format_fixtures_blobs/spatialdataR_blobs.zarr": 2,
    "format_fixtures_blobs/spatialdataR_blobs_v3.zarr": 3,
    "format_fixtures_blobs/vitessce_spatialdata-0.7_blobs.sdata.zarr": 3,
}


@pytest.mark.parametrize("pattern", STORES)
def test_every_element_of_measured_stores_is_located(shared_data: Path, pattern: str) -> None:
    (store,) = (path.absolute() for path in shared_data.glob(pattern))
    (name,) = children(store / "points")
    place = locate(store / "points" / name)
    assert (place.root, place.inner, place.zarr_format) == (store, f"points/{name}", STORES[pattern])
    assert read_attributes(place.path)["encoding-type"] == "ngff:points"


def test_a_measured_checkpoint_is_a_zip(shared_data: Path) -> None:
    (file,) = (shared_data / "checkpoints").glob("*.zip")
    with pytest.raises(UnsupportedError, match="unzip"):
        locate(os.fspath(file / "points"))
