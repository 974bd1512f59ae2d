"""A folder put below a URL: all of it or nothing, whatever happens on the way."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import zarr
from tests.servers import HIDDEN_WORD, BucketServer

from puncta.errors import MissingError, OverwriteError, QueryError, StoreError, UnsupportedError
from puncta.store import (
    Bucket,
    FilesStore,
    add_remote_member,
    consolidated_below,
    open_bucket,
    open_place,
    read_remote_group,
    upload,
)

NO_RETRIES = {"retry_config": {"max_retries": 0}}


def bucket_of(server: BucketServer, name: str = "tissue", **options: object) -> Bucket:
    return open_bucket(f"s3://{name}", {**server.options, **NO_RETRIES, **options})[0]


def open_remote(server: BucketServer, key: str, *, consolidated: bool | None = None) -> zarr.Group:
    place = open_place(f"s3://tissue/{key}", server.options)
    return zarr.open_group(FilesStore(place.files, place.key), mode="r", use_consolidated=consolidated)


def files_of(folder: Path, key: str) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {f"{key}/{path.relative_to(folder).as_posix()}": path.read_bytes() for path in paths}


def make_element(folder: Path, *, n_arrays: int = 20, value: int = 0) -> Path:
    """Write a group of arrays, each a document and a chunk, whose metadata is consolidated."""
    group = zarr.create_group(folder, attributes={"value": value})
    for number in range(n_arrays):
        # no chunk is written of what is the fill value
        group.create_array(f"a{number}", data=np.full(3, value), fill_value=-1)
    document = json.loads((folder / "zarr.json").read_text())
    (folder / "zarr.json").write_text(json.dumps({**document, "consolidated_metadata": consolidated_below(folder)}))
    return folder


@pytest.fixture
def element(tmp_path: Path) -> Path:
    return make_element(tmp_path / "element")


@pytest.fixture
def server(s3_server: BucketServer) -> BucketServer:
    s3_server.serve({})
    return s3_server


def at_put(number: int, act: Callable[[], int | None]) -> Callable[[str, str], int | None]:
    """Return what a server is told to do before it answers the put of that number."""
    seen: list[str] = []

    def before(method: str, path: str) -> int | None:
        if method == "PUT":
            seen.append(path)
            if len(seen) == number:
                return act()
        return None

    return before


# --- what is there afterwards


def test_what_is_put_is_what_was_there(server: BucketServer, element: Path) -> None:
    upload(bucket_of(server), element, "study.zarr", last=["zarr.json"])
    assert server.files() == files_of(element, "study.zarr")


def test_zarr_reads_it_through_our_files(server: BucketServer, element: Path) -> None:
    upload(bucket_of(server), element, "a/study.zarr", last=["zarr.json"])
    group = open_remote(server, "a/study.zarr", consolidated=True)
    assert np.asarray(group["a7"]).tolist() == [0, 0, 0]
    assert len(dict(group.members())) == 20


def test_a_whole_bucket_may_be_the_store(server: BucketServer, element: Path) -> None:
    upload(bucket_of(server), element, "", last=["zarr.json"])
    assert {f"/{name}" for name in server.files()} == set(files_of(element, ""))


def test_the_documents_are_put_last_and_in_order(server: BucketServer, element: Path) -> None:
    upload(bucket_of(server), element, "s", last=["a3/zarr.json", "zarr.json"])
    puts = [entry.path.partition("?")[0] for entry in server.requests if entry.method == "PUT"]
    assert puts[0] == "/tissue/s/.puncta-upload"
    assert puts[-2:] == ["/tissue/s/a3/zarr.json", "/tissue/s/zarr.json"]
    assert len(puts) == len(set(puts)) == len(files_of(element, "s")) + 1


def test_only_the_commit_is_conditional(server: BucketServer, element: Path) -> None:
    upload(bucket_of(server), element, "s", last=["zarr.json"])
    conditional = [entry for entry in server.requests if entry.conditions]
    assert [(entry.path, entry.conditions) for entry in conditional] == [
        ("/tissue/s/zarr.json", {"HTTP_IF_NONE_MATCH": "*"})
    ]


def test_a_large_file_goes_in_pieces(server: BucketServer, element: Path) -> None:
    content = np.random.default_rng(0).bytes(40_000_000)
    (element / "large").write_bytes(content)
    upload(bucket_of(server), element, "s", last=["zarr.json"])
    pieces = [entry for entry in server.requests if "/s/large?partNumber" in entry.path]
    assert len(pieces) == 5
    assert server.files()["s/large"] == content


def test_what_links_lead_to_comes_along(server: BucketServer, element: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/image").write_bytes(b"pixels")
    (element / "images").symlink_to(tmp_path / "elsewhere")
    upload(bucket_of(server), element, "s", last=["zarr.json"])
    assert server.files()["s/images/image"] == b"pixels"


def test_progress_counts_the_bytes(server: BucketServer, element: Path) -> None:
    seen: list[tuple[int, int]] = []
    upload(bucket_of(server), element, "s", last=["zarr.json"], progress=lambda *both: seen.append(both))
    total = sum(map(len, files_of(element, "s").values()))
    assert seen[-1] == (total, total)
    assert seen == sorted(seen)
    assert len(seen) == len(files_of(element, "s"))


def test_an_event_loop_may_be_running(server: BucketServer, element: Path) -> None:
    import asyncio  # noqa: PLC0415 (for this test alone)

    async def notebook() -> None:
        upload(bucket_of(server), element, "s", last=["zarr.json"])

    asyncio.run(notebook())
    assert server.files() == files_of(element, "s")


# --- what is there already


def test_what_is_no_upload_is_not_touched(server: BucketServer, element: Path) -> None:
    server.reset()
    server.serve({"s/raw/counts.csv": b"theirs", "s2/zarr.json": b"theirs"})
    with pytest.raises(OverwriteError, match=r"1 files are below s3://tissue/s \(first: 's/raw/counts.csv'\)"):
        upload(bucket_of(server), element, "s", last=["zarr.json"])
    assert server.files() == {"s/raw/counts.csv": b"theirs", "s2/zarr.json": b"theirs"}


def test_a_folder_that_tools_make_is_nothing(server: BucketServer, element: Path) -> None:
    server.reset()
    server.serve({"s/": b""})
    upload(bucket_of(server), element, "s", last=["zarr.json"])
    assert "s/zarr.json" in server.files()


def test_an_upload_after_an_interrupted_one_leaves_nothing_of_it(server: BucketServer, tmp_path: Path) -> None:
    server.faults.before = at_put(30, lambda: 500)
    with pytest.raises(StoreError, match="could not write s3://tissue/s/a"):
        upload(bucket_of(server), make_element(tmp_path / "old", n_arrays=40), "s", last=["zarr.json"])
    assert len(server.files()) > 10
    new = make_element(tmp_path / "new", n_arrays=5, value=1)
    upload(bucket_of(server), new, "s", last=["zarr.json"])
    assert server.files() == files_of(new, "s")


# --- what stops it


def test_an_error_says_what_is_left_and_commits_nothing(server: BucketServer, element: Path) -> None:
    server.faults.before = at_put(20, lambda: 500)
    with pytest.raises(StoreError, match="the server answered 500 Internal Server Error") as caught:
        upload(bucket_of(server), element, "s", last=["zarr.json"])
    (note,) = caught.value.__notes__
    assert "of 41 files (" in note
    assert "are below s3://tissue/s, which is no store yet: the same command replaces them" in note
    assert "s/zarr.json" not in server.files()


def test_an_interrupt_stops_at_once_and_commits_nothing(server: BucketServer, element: Path) -> None:
    server.faults.before = at_put(10, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt) as caught:
        upload(bucket_of(server), element, "s", last=["zarr.json"])
    assert "the same command replaces them" in caught.value.__notes__[0]
    assert "s/zarr.json" not in server.files()


def test_a_kill_in_the_middle_leaves_nothing_that_opens(server: BucketServer, element: Path) -> None:
    script = (
        "import sys, json; from pathlib import Path; from puncta.store import open_bucket, upload\n"
        "bucket, key = open_bucket(sys.argv[1], json.loads(sys.argv[2]))\n"
        "print('ready', flush=True)\n"
        "upload(bucket, Path(sys.argv[3]), key, last=['zarr.json'])\n"
    )
    arguments = ["s3://tissue/s", json.dumps(server.options), str(element)]
    with subprocess.Popen([sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE) as process:
        server.faults.before = at_put(25, process.kill)
        assert process.wait() == -signal.SIGKILL
    server.faults.before = None
    assert read_remote_group(bucket_of(server), "s") is None
    assert len(server.files()) > 5
    upload(bucket_of(server), element, "s", last=["zarr.json"])
    assert server.files() == files_of(element, "s")


def test_a_lost_bucket_is_said(server: BucketServer, element: Path) -> None:
    with pytest.raises(MissingError, match="there is no such bucket"):
        upload(bucket_of(server, "nowhere"), element, "s", last=["zarr.json"])


@pytest.mark.parametrize("method", ["GET", "PUT", "POST"])
def test_what_the_server_refuses_is_said_without_secrets(server: BucketServer, element: Path, method: str) -> None:
    (element / "large").write_bytes(bytes(34 << 20))
    server.faults.before = lambda asked, path: 403 if asked == method and "delete" not in path else None
    with pytest.raises(StoreError, match=r"could not \w+ s3://tissue/s.*: the server refuses it \(403") as caught:
        upload(bucket_of(server), element, "s", last=["zarr.json"])
    assert HIDDEN_WORD not in f"{caught.value}{caught.value.__cause__}"


def test_no_credentials_are_said(server: BucketServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    options = {**server.options, **NO_RETRIES, "metadata_endpoint": "http://127.0.0.1:9"}
    without = {name: value for name, value in options.items() if "access_key" not in name}
    bucket, _ = open_bucket("s3://tissue/s", without)
    with pytest.raises(StoreError, match="no credentials were found; give them as storage options"):
        read_remote_group(bucket, "s")


def test_a_file_that_goes_away_is_said(server: BucketServer, element: Path) -> None:
    server.faults.before = at_put(1, (element / "a9/zarr.json").unlink)
    with pytest.raises(StoreError, match=r"could not read .*a9/zarr.json: No such file"):
        upload(bucket_of(server), element, "s", last=["zarr.json"])


# --- two at once


def test_a_second_upload_stops_the_first(server: BucketServer, tmp_path: Path) -> None:
    first, second = make_element(tmp_path / "first", n_arrays=60), make_element(tmp_path / "second", value=1)
    theirs = bucket_of(server)
    is_done = threading.Event()

    def begin_anew() -> None:
        server.faults.before = None
        while not is_done.is_set():
            # what the first one had sent already may still arrive, and is then said to be somebody else's
            with suppress(StoreError):
                upload(theirs, second, "s", last=["zarr.json"])
                is_done.set()

    server.faults.before = at_put(40, begin_anew)
    with pytest.raises(OverwriteError, match="somebody else has begun to write s3://tissue/s, so this upload stopped"):
        upload(bucket_of(server), first, "s", last=["zarr.json"])
    assert is_done.wait(60)
    assert json.loads(server.files()["s/zarr.json"])["attributes"] == {"value": 1}


def test_who_commits_second_is_told(server: BucketServer, element: Path) -> None:
    def write_theirs() -> None:
        server.faults.before = None
        server.put("s/zarr.json", b"theirs")

    server.faults.before = at_put(len(files_of(element, "s")) + 1, write_theirs)
    with pytest.raises(OverwriteError, match="s3://tissue/s was written by somebody else meanwhile"):
        upload(bucket_of(server), element, "s", last=["zarr.json"])
    assert server.files()["s/zarr.json"] == b"theirs"


def test_an_answer_that_was_lost_is_no_conflict(server: BucketServer, element: Path) -> None:
    def write_ours() -> None:
        server.faults.before = None
        server.put("s/zarr.json", (element / "zarr.json").read_bytes())

    server.faults.before = at_put(len(files_of(element, "s")) + 1, write_ours)
    upload(bucket_of(server), element, "s", last=["zarr.json"])
    assert server.files() == files_of(element, "s")


def test_parts_that_change_meanwhile_are_not_committed(server: BucketServer, element: Path) -> None:
    def add_theirs() -> None:
        server.put("s/a0/c/0", b"longer than it was")

    server.faults.before = at_put(41, add_theirs)
    with pytest.raises(StoreError, match=r"1 of 41 files below s3://tissue/s are not as they were put"):
        upload(bucket_of(server), element, "s", last=["zarr.json"])
    assert "s/zarr.json" not in server.files()


# --- stores without conditions


def test_a_store_that_knows_no_conditions_is_told_how_to_be_used(server: BucketServer, element: Path) -> None:
    server.faults.before = lambda method, path: 501 if method == "PUT" and path.endswith("/s/zarr.json") else None
    with pytest.raises(UnsupportedError, match="give conditional_put=disabled as a storage option"):
        upload(bucket_of(server), element, "s", last=["zarr.json"])


def test_conditions_may_be_done_without(server: BucketServer, element: Path) -> None:
    bucket = bucket_of(server, conditional_put="disabled")
    upload(bucket, element, "s", last=["zarr.json"])
    assert server.files() == files_of(element, "s")
    assert not any(entry.conditions for entry in server.requests)


# --- the groups above


def make_store(server: BucketServer, *, consolidated: bool = True) -> None:
    inline = {"kind": "inline", "must_understand": False, "metadata": {}}
    document = {"zarr_format": 3, "node_type": "group", "attributes": {"theirs": 1}}
    more = {"consolidated_metadata": inline} if consolidated else {}
    server.put("study.zarr/zarr.json", json.dumps({**document, **more}).encode())


def test_a_store_gets_to_know_an_element(server: BucketServer, element: Path) -> None:
    make_store(server)
    bucket = bucket_of(server)
    upload(bucket, element, "study.zarr/points/a", last=["zarr.json"])
    assert add_remote_member(bucket, "study.zarr", "points/a")
    root = open_remote(server, "study.zarr", consolidated=True)
    assert dict(root.attrs) == {"theirs": 1}
    assert np.asarray(root["points/a/a3"]).tolist() == [0, 0, 0]


def test_the_store_is_as_zarr_would_consolidate_it(server: BucketServer, element: Path, tmp_path: Path) -> None:
    make_store(server)
    bucket = bucket_of(server)
    for name in ("b", "a"):
        upload(bucket, element, f"study.zarr/points/{name}", last=["zarr.json"])
        add_remote_member(bucket, "study.zarr", f"points/{name}")
    for name, content in server.files().items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    ours = json.loads((tmp_path / "study.zarr/zarr.json").read_text())
    with pytest.warns(UserWarning, match="Consolidated metadata is currently not"):
        zarr.consolidate_metadata(tmp_path / "study.zarr", zarr_format=3)
    assert ours == json.loads((tmp_path / "study.zarr/zarr.json").read_text())


def test_what_is_known_is_not_written_again(server: BucketServer, element: Path) -> None:
    make_store(server)
    bucket = bucket_of(server)
    upload(bucket, element, "study.zarr/points/a", last=["zarr.json"])
    add_remote_member(bucket, "study.zarr", "points/a")
    server.requests.clear()
    assert not add_remote_member(bucket, "study.zarr", "points/a")
    assert {entry.method for entry in server.requests} == {"GET"}


def test_a_store_without_consolidated_metadata_gets_none(server: BucketServer, element: Path) -> None:
    make_store(server, consolidated=False)
    before = server.files()["study.zarr/zarr.json"]
    upload(bucket_of(server), element, "study.zarr/points/a", last=["zarr.json"])
    add_remote_member(bucket_of(server), "study.zarr", "points/a")
    assert server.files()["study.zarr/zarr.json"] == before
    assert "study.zarr/points/zarr.json" in server.files()


def test_a_writer_that_comes_between_is_not_undone(server: BucketServer, element: Path) -> None:
    make_store(server)
    bucket = bucket_of(server)
    for name in ("a", "b"):
        upload(bucket, element, f"study.zarr/points/{name}", last=["zarr.json"])
    server.put("study.zarr/points/zarr.json", json.dumps({"zarr_format": 3, "node_type": "group"}).encode())

    def add_b() -> None:
        server.faults.before = None
        add_remote_member(bucket_of(server), "study.zarr", "points/b")

    server.faults.before = at_put(1, add_b)
    add_remote_member(bucket, "study.zarr", "points/a")
    points = open_remote(server, "study.zarr/points", consolidated=False)
    assert set(dict(points.members())) == {"a", "b"}
    assert [entry.status for entry in server.requests if entry.path == "/tissue/study.zarr/zarr.json"].count(412) == 1


def test_writers_without_end_are_said(server: BucketServer, element: Path) -> None:
    make_store(server)
    upload(bucket_of(server), element, "study.zarr/points/a", last=["zarr.json"])

    def before(method: str, path: str) -> int | None:
        return 412 if method == "PUT" and path == "/tissue/study.zarr/zarr.json" else None

    server.faults.before = before
    with pytest.raises(StoreError, match=r"in each of 20 attempts to add 'points/a' .* the element itself is complete"):
        add_remote_member(bucket_of(server), "study.zarr", "points/a")


def test_a_damaged_document_is_not_taken_for_an_absent_one(server: BucketServer) -> None:
    server.put("s/zarr.json", b'{"zarr_format":')
    with pytest.raises(StoreError, match=r"s3://tissue/s/zarr.json is not valid JSON"):
        read_remote_group(bucket_of(server), "s")
    server.put("s/zarr.json", b"[]")
    with pytest.raises(StoreError, match="holds a JSON list, not an object"):
        read_remote_group(bucket_of(server), "s")


# --- what can be written at all


@pytest.mark.parametrize(
    "url", ["https://host/s.zarr?sig=hidden-word", "http://host", "ftp://host/s", "s3:/bucket/s", "s.zarr"]
)
def test_a_url_that_is_no_bucket_is_refused(url: str) -> None:
    with pytest.raises(UnsupportedError, match=r"nothing can be written to .*; give a local path, or") as caught:
        open_bucket(url, {})
    assert HIDDEN_WORD not in str(caught.value)


def test_an_archive_is_not_written_in_place(server: BucketServer) -> None:
    with pytest.raises(UnsupportedError, match="zip archive, which is not written in place"):
        open_bucket("s3://tissue/a.zip/points", server.options)


def test_an_unknown_option_is_refused(server: BucketServer) -> None:
    with pytest.raises(QueryError, match="s3://tissue cannot be opened"):
        open_bucket("s3://tissue/s", {**server.options, "colour": "red"})
