import asyncio
import json
import pickle
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from tests.servers import BucketServer, FileServer
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import Buffer, default_buffer_prototype
from zarr.storage import LocalStore

from puncta.errors import StoreError, UnsupportedError
from puncta.store import FilesStore, open_place

PLACES = ["folder", "archive", "web", "web archive", "bucket", "bucket archive"]
LISTS = [place for place in PLACES if place != "web"]
PROTOTYPE = default_buffer_prototype()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with a store in it, and an archive of the store beside it."""
    group = zarr.open_group(tmp_path / "s.zarr", mode="w", attributes={"a": 1})
    sharded = group.create_array("x/sharded", shape=(100, 7), chunks=(10, 7), shards=(50, 7), dtype="i4", fill_value=5)
    sharded[:60] = np.arange(420).reshape(60, 7)
    group.create_array("x/plain", shape=(30,), chunks=(8,), dtype="f8")[:] = np.arange(30) / 3
    # below an array, where no listing of members looks for another format's arrays and for what is no array
    old = zarr.create_array(tmp_path / "s.zarr/x/plain/old", shape=(9,), chunks=(4,), dtype="u2", zarr_format=2)
    old[:] = np.arange(9)
    (tmp_path / "s.zarr/x/plain/empty").write_bytes(b"")
    with zipfile.ZipFile(tmp_path / "s.zarr.zip", "w") as archive:
        for path in sorted((tmp_path / "s.zarr").rglob("*")):
            archive.write(path, path.relative_to(tmp_path / "s.zarr"))
    return tmp_path


@pytest.fixture
def oracle(root: Path) -> LocalStore:
    return LocalStore(root / "s.zarr", read_only=True)


@pytest.fixture
def store(request: pytest.FixtureRequest, root: Path) -> FilesStore:
    """The store at a place of the kind that the test asks for."""
    kind: str = request.param
    options = None
    base = str(root)
    if kind.startswith("web"):
        server: FileServer = request.getfixturevalue("http_server")
        base = server.serve(root)
    elif kind.startswith("bucket"):
        service: BucketServer = request.getfixturevalue("s3_server")
        base, options = service.serve(root), service.options
    place = open_place(f"{base}/s.zarr{'.zip' if 'archive' in kind else ''}", options)
    return FilesStore(place.files, place.key)


def get(store: FilesStore | LocalStore, key: str, byte_range: ByteRequest | None = None) -> bytes | None:
    buffer: Buffer | None = asyncio.run(store.get(key, PROTOTYPE, byte_range))
    return None if buffer is None else buffer.to_bytes()


def gathered(names: AsyncIterator[str]) -> list[str]:
    """Return all names of a listing, sorted."""

    async def gather() -> list[str]:
        return [name async for name in names]

    return sorted(asyncio.run(gather()))


@pytest.mark.parametrize("store", PLACES, indirect=True)
@pytest.mark.parametrize("path", ["x/sharded", "x/plain", "x/plain/old"])
def test_zarr_reads_the_same_values_as_from_its_own_store(store: FilesStore, oracle: LocalStore, path: str) -> None:
    array = zarr.open_array(store, path=path, mode="r")
    expected = zarr.open_array(oracle, path=path, mode="r")
    np.testing.assert_array_equal(array[:], expected[:])
    np.testing.assert_array_equal(array[3:7], expected[3:7])
    assert array.metadata == expected.metadata


@pytest.mark.parametrize("store", PLACES, indirect=True)
def test_zarr_opens_a_group_by_name(store: FilesStore) -> None:
    group = zarr.open_group(store, mode="r")
    assert dict(group.attrs) == {"a": 1}
    plain = group["x/plain"]
    assert isinstance(plain, zarr.Array)
    assert plain.shape == (30,)


@pytest.mark.parametrize("store", LISTS, indirect=True)
def test_zarr_finds_the_members_of_a_group(store: FilesStore, oracle: LocalStore) -> None:
    found = zarr.open_group(store, mode="r").members(max_depth=None)
    expected = zarr.open_group(oracle, mode="r").members(max_depth=None)
    assert sorted(name for name, _ in found) == sorted(name for name, _ in expected) == ["x", "x/plain", "x/sharded"]


@pytest.mark.parametrize("store", LISTS, indirect=True)
def test_listings_are_those_of_zarr(store: FilesStore, oracle: LocalStore) -> None:
    assert gathered(store.list()) == gathered(oracle.list())
    assert gathered(store.list_prefix("x/")) == gathered(oracle.list_prefix("x/"))
    assert gathered(store.list_dir("")) == gathered(oracle.list_dir(""))
    assert gathered(store.list_dir("x/plain")) == gathered(oracle.list_dir("x/plain"))
    assert gathered(store.list_dir("absent")) == gathered(oracle.list_dir("absent")) == []


@pytest.mark.parametrize("store", ["bucket"], indirect=True)
def test_a_folder_of_a_bucket_is_listed_without_what_is_below(store: FilesStore, s3_server: BucketServer) -> None:
    gathered(store.list_dir("x"))
    (listing,) = s3_server.requests
    assert "delimiter=%2F" in listing.path


@pytest.mark.parametrize("store", ["web"], indirect=True)
def test_the_members_on_a_web_server_are_an_error_and_not_none(store: FilesStore) -> None:
    with pytest.raises(UnsupportedError, match="cannot list its files"):
        list(zarr.open_group(store, mode="r").members())
    with pytest.raises(UnsupportedError, match="cannot list its files"):
        gathered(store.list())


def test_consolidated_members_are_found_on_a_web_server(root: Path, http_server: FileServer) -> None:
    with pytest.warns(zarr.errors.ZarrUserWarning):
        zarr.consolidate_metadata(root / "s.zarr")
    place = open_place(f"{http_server.serve(root)}/s.zarr")
    group = zarr.open_group(FilesStore(place.files, place.key), mode="r")
    assert sorted(name for name, _ in group.members()) == ["x"]


RANGES = [
    None,
    RangeByteRequest(0, 1),
    RangeByteRequest(10, 20),
    OffsetByteRequest(0),
    OffsetByteRequest(30),
    OffsetByteRequest(10_000),
    SuffixByteRequest(7),
    SuffixByteRequest(10_000),
]


@pytest.mark.parametrize("store", PLACES, indirect=True)
def test_every_kind_of_range_is_that_of_zarr(store: FilesStore, oracle: LocalStore) -> None:
    key = "x/plain/c/0"
    assert [get(store, key, each) for each in RANGES] == [get(oracle, key, each) for each in RANGES]
    assert [get(store, "x/absent", each) for each in RANGES] == [None] * len(RANGES)


@pytest.mark.parametrize("store", PLACES, indirect=True)
def test_a_range_without_a_byte_is_empty_where_there_is_a_file(store: FilesStore) -> None:
    assert [get(store, "zarr.json", each) for each in (RangeByteRequest(3, 3), SuffixByteRequest(0))] == [b"", b""]
    assert get(store, "absent", RangeByteRequest(3, 3)) is None
    assert get(store, "x/plain/empty") == get(store, "x/plain/empty", SuffixByteRequest(3)) == b""


@pytest.mark.parametrize("store", PLACES, indirect=True)
def test_a_range_that_a_file_does_not_have_is_an_error(store: FilesStore) -> None:
    with pytest.raises(StoreError, match="bytes 0 to 100000 were expected"):
        get(store, "zarr.json", RangeByteRequest(0, 100_000))


@pytest.mark.parametrize("store", PLACES, indirect=True)
def test_a_file_is_there_or_not_and_has_a_length(store: FilesStore, oracle: LocalStore) -> None:
    assert asyncio.run(store.exists("zarr.json"))
    assert asyncio.run(store.exists("x/plain/empty"))
    assert not asyncio.run(store.exists("absent"))
    assert not asyncio.run(store.exists("x"))
    assert asyncio.run(store.getsize("zarr.json")) == asyncio.run(oracle.getsize("zarr.json"))
    with pytest.raises(FileNotFoundError):
        asyncio.run(store.getsize("absent"))


@pytest.mark.parametrize("store", PLACES, indirect=True)
def test_many_ranges_come_in_the_order_they_were_asked_for(store: FilesStore) -> None:
    asked: list[tuple[str, ByteRequest | None]] = [
        ("zarr.json", RangeByteRequest(0, 1)),
        ("absent", None),
        ("zarr.json", SuffixByteRequest(1)),
    ]
    found = asyncio.run(store.get_partial_values(PROTOTYPE, asked))
    assert [None if each is None else each.to_bytes() for each in found] == [b"{", None, b"}"]


@pytest.mark.parametrize("store", PLACES, indirect=True)
def test_no_head_is_asked_for(store: FilesStore, http_server: FileServer, s3_server: BucketServer) -> None:
    zarr.open_array(store, path="x/sharded", mode="r")[:]
    asyncio.run(store.exists("zarr.json"))
    log = http_server.requests + s3_server.requests
    assert {entry.method for entry in log} <= {"GET"}


@pytest.mark.parametrize("store", ["web", "web archive"], indirect=True)
def test_zarr_costs_the_requests_that_are_counted(store: FilesStore, http_server: FileServer) -> None:
    zarr.open_array(store, path="x/sharded", mode="r")[:]
    assert store.files.reads.requests == len(http_server.requests) > 0


@pytest.mark.parametrize("store", ["folder", "web"], indirect=True)
def test_writing_is_refused(store: FilesStore) -> None:
    with pytest.raises(UnsupportedError, match="read only"):
        asyncio.run(store.set("a", PROTOTYPE.buffer.from_bytes(b"x")))
    with pytest.raises(UnsupportedError, match="read only"):
        asyncio.run(store.delete("zarr.json"))
    with pytest.raises(UnsupportedError, match="read only"):
        store.with_read_only()
    with pytest.raises(ValueError, match="read-only"):
        zarr.open_group(store, mode="a")


@pytest.mark.parametrize("store", PLACES, indirect=True)
def test_a_copy_is_equal_and_reads_the_same(store: FilesStore) -> None:
    copy = pickle.loads(pickle.dumps(store))  # noqa: S301 (made here)
    assert copy == store == store.with_read_only(read_only=True)
    assert get(copy, "zarr.json") == get(store, "zarr.json")


@pytest.mark.parametrize("store", ["folder"], indirect=True)
def test_stores_of_other_places_differ(store: FilesStore, root: Path, oracle: LocalStore) -> None:
    assert store != FilesStore(store.files, "x")
    assert store != FilesStore(open_place(root).files, store.prefix)
    assert store != oracle


def test_a_refusal_is_not_a_missing_array(root: Path, http_server: FileServer) -> None:
    http_server.serve(root)
    http_server.faults.status = {"s.zarr/x/plain/c/1": 403}
    place = open_place(http_server.url)
    array: Any = zarr.open_array(FilesStore(place.files), path="s.zarr/x/plain", mode="r")
    with pytest.raises(StoreError, match="refuses it"):
        array[:]


def test_a_broken_document_reaches_zarr_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "zarr.json").write_text("{", encoding="utf-8")
    with pytest.raises(json.JSONDecodeError):
        zarr.open_group(FilesStore(open_place(tmp_path).files), mode="r")
