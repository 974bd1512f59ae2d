import asyncio
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.servers import HIDDEN_WORD, BucketServer, FileServer

from puncta.errors import MissingError, QueryError, StoreError, UnsupportedError
from puncta.store import LocalFiles, Place, RemoteFiles, open_place


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file in it, and an archive of both beside it under two names."""
    inner = tmp_path / "study.zarr"
    inner.mkdir()
    (inner / "zarr.json").write_bytes(b"{}")
    for name in ("study.zarr.zip", "unnamed"):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("points/zarr.json", b"{}")
    return tmp_path


def shown(path_or_url: str | Path, **options: object) -> tuple[str, str]:
    """Return what a place is made of, and the key in it."""
    place = open_place(path_or_url, options)
    return repr(place.files), place.key


def read(place: Place) -> bytes:
    assert isinstance(place.files, RemoteFiles)
    answer = asyncio.run(place.files.get(place.key))
    assert answer is not None
    return bytes(answer.data)


def test_a_folder_is_a_place_of_its_own(folder: Path) -> None:
    assert shown(folder / "study.zarr") == (f"Directory('{folder}/study.zarr')", "")


def test_a_file_lies_in_its_folder(folder: Path) -> None:
    assert shown(folder / "study.zarr" / "zarr.json") == (f"Directory('{folder}/study.zarr')", "zarr.json")


@pytest.mark.parametrize("name", ["study.zarr.zip", "unnamed"])
def test_an_archive_is_known_by_its_content(folder: Path, name: str) -> None:
    assert shown(folder / name) == (f"LocalZip('{folder}/{name}')", "")
    assert shown(folder / name / "points" / "a") == (f"LocalZip('{folder}/{name}')", "points/a")


def test_an_archive_behind_something_else_is_known_by_its_name(folder: Path) -> None:
    archive = folder / "study.zarr.zip"
    archive.write_bytes(b"#!/bin/unpack\n" + archive.read_bytes())
    assert shown(archive / "points") == (f"LocalZip('{archive}')", "points")


def test_a_file_in_an_archive_is_read(folder: Path) -> None:
    place = open_place(folder / "study.zarr.zip" / "points" / "zarr.json")
    assert isinstance(place.files, LocalFiles)
    file = place.files.open(place.key)
    assert file is not None
    assert file.size == 2
    file.close()


def test_a_relative_path_and_a_file_url_lead_to_the_same_place(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "my study").mkdir()
    monkeypatch.chdir(folder)
    assert shown("my study") == shown(f"file://{folder}/my%20study") == shown(f"file:{folder}/my%20study")


def test_what_looks_like_a_drive_is_a_path() -> None:
    with pytest.raises(MissingError, match="nothing at"):
        open_place("C:/study.zarr")


def test_a_missing_path_is_answered_with_the_nearest(folder: Path) -> None:
    with pytest.raises(MissingError, match=r"the nearest in that folder: 'study\.zarr'"):
        open_place(folder / "stdy.zarr")


def test_no_path_leads_on_from_a_plain_file(folder: Path) -> None:
    with pytest.raises(MissingError, match=r"zarr\.json is a file"):
        open_place(folder / "study.zarr" / "zarr.json" / "x")


def test_what_the_system_refuses_to_look_at_is_not_missing(folder: Path) -> None:
    with pytest.raises(StoreError, match="could not look at"):
        open_place(folder / ("x" * 300))


URLS = {
    "https://a.org/d/s.zarr": ("Remote('https://a.org')", "d/s.zarr"),
    "HTTP://a.org:81/d/s.zarr/": ("Remote('http://a.org:81')", "d/s.zarr"),
    "https://a.org": ("Remote('https://a.org')", ""),
    "https://a.org/my%20d/é%2B+": ("Remote('https://a.org')", "my d/é++"),
    "https://a.org/d/s.zip?sig=x/y.zip": ("RemoteZip('https://a.org/d/s.zip')", ""),
    "https://a.org/d/s.ZIP/points/a": ("RemoteZip('https://a.org/d/s.ZIP')", "points/a"),
    "s3://bucket/d/s.zarr": ("Remote('s3://bucket')", "d/s.zarr"),
    "s3://bucket": ("Remote('s3://bucket')", ""),
    "s3://bucket/a%20b?c#d": ("Remote('s3://bucket')", "a%20b?c#d"),
    "s3://bucket/d/s.zarr.zip/points": ("RemoteZip('s3://bucket/d/s.zarr.zip')", "points"),
    "gs://bucket/d": ("Remote('gs://bucket')", "d"),
}


@pytest.mark.parametrize("url", URLS)
def test_a_url_is_split_into_what_is_asked_and_for_what(url: str) -> None:
    assert shown(url) == URLS[url]


@pytest.mark.parametrize("scheme", ["az", "azure", "abfs"])
def test_azure_has_three_names(scheme: str) -> None:
    assert shown(f"{scheme}://container/d", account_name="a") == (f"Remote('{scheme}://container')", "d")


def test_a_container_may_name_its_account() -> None:
    url = "abfss://container@account.dfs.core.windows.net/d"
    assert shown(url) == ("Remote('abfss://container@account.dfs.core.windows.net')", "d")


def test_opening_sends_no_request(http_server: FileServer) -> None:
    open_place(f"{http_server.url}/s.zarr.zip/points")
    assert http_server.requests == []


def test_a_name_with_spaces_reaches_the_server_and_its_query_too(http_server: FileServer) -> None:
    place = open_place(f"{http_server.serve({'my study/a': b'it'})}/my%20study/a?sig=1%2B2")
    assert read(place) == b"it"
    assert [entry.path for entry in http_server.requests] == ["/my%20study/a?sig=1%2B2"]


def test_a_presigned_link_leads_to_its_file(s3_server: BucketServer) -> None:
    s3_server.serve({"d/a": b"it"})
    assert read(open_place(s3_server.signed("tissue", "d/a"))) == b"it"


def test_options_go_to_the_bucket(s3_server: BucketServer) -> None:
    url = s3_server.serve({"d/a": b"it"})
    assert read(open_place(f"{url}/d/a", s3_server.options)) == b"it"


def test_options_with_a_local_path_are_refused(folder: Path) -> None:
    with pytest.raises(QueryError, match=r"2 storage options \('region', 'token'\) are given with a local path"):
        open_place(folder, {"region": "x", "token": HIDDEN_WORD})


NOT_READ = {
    "": "the path is empty",
    "ftp://a.org/s.zarr": "ftp:// URLs are not read; give a local path, or a URL that begins with file://, http://",
    "https:///s.zarr": "names no server",
    "https://a.org/s#x": "write '%23'",
    "https://a.org/%ff": "not encoded as UTF-8",
    "s3://": "names no bucket",
    "s3:///s.zarr": "names no bucket",
    "file://elsewhere/s.zarr": "a file of another machine",
    str(Path("s3://bucket/s.zarr")): "has one slash where a URL has two",
}


@pytest.mark.parametrize("url", NOT_READ)
def test_what_is_not_read_says_what_is(url: str) -> None:
    with pytest.raises(UnsupportedError, match=NOT_READ[url]):
        open_place(url)


@pytest.mark.parametrize("url", ["https:///s?sig={}", "https://u:{}@a.org/s?sig={}#x", "https://u:{}@a.org/%ff?sig={}"])
def test_no_refusal_shows_a_signature(url: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        open_place(url.replace("{}", HIDDEN_WORD))
    assert HIDDEN_WORD not in str(caught.value)


def test_local_places_need_neither_obstore_nor_zarr(folder: Path) -> None:
    opens = f"import sys, puncta.store as s; s.open_place({str(folder)!r}); "
    script = opens + "print({'obstore', 'zarr'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout == "set()\n"
