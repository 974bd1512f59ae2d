import asyncio
import pickle
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.servers import HIDDEN_WORD, BucketServer, Faults, FileServer, file_server

from puncta.errors import MissingError, QueryError, StoreError, UnsupportedError
from puncta.store import Answer, RemoteFiles
from puncta.store._remote import Remote

CONTENT = bytes(range(100))
SIGNATURE = "sig=a%2Fb+c&expires=9"

NAMES = ["a b", "a+b", "100%", "a%20b", "é/ü", "q?x", "h#x", "[x]", "a&b=c", "a:b", "~t", "a\\b", 'c"d']


def remote(url: str, **options: object) -> Remote:
    """Return the files of a server; without retries, so that what fails fails at once."""
    return Remote(url, {"retry_config": {"max_retries": 0}, **options})


def read(files: RemoteFiles, key: str, *span: int) -> Answer | None:
    """Read a file, or a range of it, to the end."""
    return asyncio.run(files.get_range(key, *span) if span else files.get(key))


def read_end(files: RemoteFiles, key: str, length: int) -> Answer | None:
    return asyncio.run(files.get_suffix(key, length))


def data_of(answer: Answer | None) -> bytes:
    assert answer is not None
    return bytes(answer.data)


@pytest.fixture
def web(http_server: FileServer) -> Remote:
    """A web server that serves one file of a hundred bytes, and an empty one."""
    return remote(http_server.serve({"a": CONTENT, "empty": b"", "folder/b": b"b"}))


@pytest.fixture
def bucket(s3_server: BucketServer) -> Remote:
    return remote(s3_server.serve({"a": CONTENT, "empty": b"", "folder/b": b"b", "foldout": b"c"}), **s3_server.options)


@pytest.fixture(scope="module")
def lasting() -> Iterator[Remote]:
    with file_server() as server:
        yield remote(server.serve({"a": CONTENT}))


@given(bounds=st.tuples(st.integers(0, 100), st.integers(0, 100)).filter(lambda pair: pair[0] != pair[1]))
def test_a_range_is_what_the_file_has_there(lasting: Remote, bounds: tuple[int, int]) -> None:
    start, end = sorted(bounds)
    answer = read(lasting, "a", start, end)
    assert answer is not None
    assert (bytes(answer.data), answer.start, answer.size) == (CONTENT[start:end], start, 100)


@given(length=st.integers(1, 150))
def test_the_end_of_a_file_is_at_most_the_file(lasting: Remote, length: int) -> None:
    answer = read_end(lasting, "a", length)
    assert answer is not None
    assert (bytes(answer.data), answer.start, answer.size) == (CONTENT[-length:], max(100 - length, 0), 100)


def test_a_file_is_read_whole(web: Remote, bucket: Remote) -> None:
    assert data_of(read(web, "a")) == data_of(read(bucket, "a")) == CONTENT
    assert data_of(read(web, "empty")) == data_of(read(bucket, "empty")) == b""


def test_what_is_not_there_is_none(web: Remote, bucket: Remote) -> None:
    assert read(web, "b") is read(web, "b", 0, 1) is read_end(web, "b", 1) is None
    assert read(bucket, "b") is read(bucket, "b", 0, 1) is read_end(bucket, "b", 1) is None


def test_the_end_of_an_empty_file_is_empty(web: Remote, bucket: Remote) -> None:
    assert data_of(read_end(web, "empty", 5)) == data_of(read_end(bucket, "empty", 5)) == b""


@pytest.mark.parametrize("kind", ["web", "bucket"])
def test_the_counters_are_what_the_server_saw(
    kind: str, http_server: FileServer, s3_server: BucketServer, request: pytest.FixtureRequest
) -> None:
    files: Remote = request.getfixturevalue(kind)
    read(files, "a")
    read(files, "a", 5, 10)
    read_end(files, "a", 7)
    read(files, "absent")
    log = http_server.requests + s3_server.requests
    assert files.reads.requests == len(log) == 4
    assert files.reads.bytes == sum(entry.nbytes for entry in log if entry.status < 300) == 112
    assert {entry.method for entry in log} == {"GET"}


def test_the_query_goes_with_every_request(http_server: FileServer) -> None:
    files = remote(f"{http_server.serve({'a': CONTENT})}/?{SIGNATURE}")
    read(files, "a")
    read_end(files, "a", 3)
    assert [entry.path for entry in http_server.requests] == [f"/a?{SIGNATURE}"] * 2


def test_a_presigned_link_is_read_as_it_is(s3_server: BucketServer) -> None:
    s3_server.serve({"a": CONTENT})
    origin, _, query = s3_server.signed("tissue", "a").partition("/tissue/a")
    assert data_of(read(remote(f"{origin}/{query}"), "tissue/a", 3, 9)) == CONTENT[3:9]
    assert s3_server.requests[0].path == f"/tissue/a{query}"


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_encoded_once(http_server: FileServer, s3_server: BucketServer, name: str) -> None:
    files = remote(http_server.serve({name: b"it"}))
    stored = remote(s3_server.serve({name: b"it"}), **s3_server.options)
    assert data_of(read(files, name)) == data_of(read(stored, name)) == b"it"


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "../a", "./a"])
def test_what_is_no_name_is_an_error(web: Remote, key: str) -> None:
    with pytest.raises(StoreError):
        read(web, key)
    assert web.reads.bytes == 0


def test_the_version_changes_with_the_content(web: Remote, http_server: FileServer) -> None:
    first, again = read(web, "a", 0, 1), read_end(web, "a", 1)
    http_server.serve({"a": b"another"})
    changed = read(web, "a")
    assert first is not None
    assert again is not None
    assert changed is not None
    assert first.version == again.version != changed.version


def test_the_date_is_the_version_where_there_is_no_tag(web: Remote, http_server: FileServer) -> None:
    http_server.faults = Faults(tag="")
    first = read(web, "a")
    http_server.faults = Faults(tag="", date="Tue, 07 Jan 2025 00:00:00 GMT")
    later = read(web, "a")
    http_server.faults = Faults(tag="", date="")
    bare = read(web, "a")
    assert first is not None
    assert later is not None
    assert bare is not None
    assert len({first.version, later.version, None}) == 3
    assert bare.version is None


FAULTS = {
    "a server without ranges": (Faults(ignores_range=True), r"/a: .*answered with the whole file"),
    "a short body": (
        Faults(shorter_by=2),
        "/a: the server sent bytes 5 to 13 where 5 to 15|/a: .* 90 to 98 where 90 to 100 of 100 were due",
    ),
    "a broken connection": (Faults(breaks_off=True), "/a: .*body error"),
    "another range": (Faults(moved_by=1), r"/a: .*Requested \d+..\d+, got (6..15|91..100)"),
    "a login": (Faults(status={"a": 401}), r"/a: the server refuses it \(401 Unauthorized\)"),
    "a refusal": (Faults(status={"a": 403}), r"/a: the server refuses it \(403 Forbidden\)"),
    "a full server": (Faults(status={"a": 503}), "/a: the server answered 503 Service Unavailable"),
    "a broken server": (Faults(status={"a": 500}), "/a: the server answered 500 Internal Server Error"),
}


@pytest.mark.parametrize(("faults", "message"), FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_of_the_server_is_an_error_and_no_data(
    web: Remote, http_server: FileServer, faults: Faults, message: str
) -> None:
    http_server.faults = faults
    with pytest.raises(StoreError, match=message):
        read(web, "a", 5, 15)
    with pytest.raises(StoreError, match=message):
        read_end(web, "a", 10)


@pytest.mark.parametrize("faults", [Faults(breaks_off=True), Faults(status={"a": 403}), Faults(status={"a": 500})])
def test_a_whole_file_that_fails_is_an_error(web: Remote, http_server: FileServer, faults: Faults) -> None:
    http_server.faults = faults
    with pytest.raises(StoreError, match="could not read"):
        read(web, "a")


def test_a_range_over_the_end_says_where_the_file_ends(web: Remote, bucket: Remote) -> None:
    with pytest.raises(StoreError, match="/a ends at byte 100, but bytes 95 to 105 were expected"):
        read(web, "a", 95, 105)
    with pytest.raises(StoreError, match="s3://tissue/a ends at byte 100, but"):
        read(bucket, "a", 95, 105)


def test_a_range_beyond_the_end_is_an_error(web: Remote, bucket: Remote) -> None:
    with pytest.raises(StoreError, match="/a ends before the bytes"):
        read(web, "a", 100, 105)
    with pytest.raises(
        StoreError, match=r"s3://tissue/a ends before the bytes .*\(416 Range Not Satisfiable, InvalidRange\)"
    ):
        read(bucket, "a", 100, 105)


def test_a_missing_bucket_is_not_a_missing_file(s3_server: BucketServer) -> None:
    with pytest.raises(MissingError, match=r"no such bucket \(404 Not Found, NoSuchBucket\)"):
        read(remote("s3://tisue", **s3_server.options), "a")


def test_wanting_credentials_are_not_a_refusal(s3_server: BucketServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    options = {**s3_server.options, "metadata_endpoint": "http://127.0.0.1:9"}
    del options["access_key_id"], options["secret_access_key"]
    with pytest.raises(StoreError, match=r"no credentials were found; .*skip_signature=true"):
        read(remote("s3://tissue", **options), "a")


def test_a_server_that_is_not_there_is_an_error() -> None:
    # port 9 of loopback is reserved for a service that nobody runs
    with pytest.raises(StoreError, match=r"could not read http://127\.0\.0\.1:9/a: Connection refused"):
        read(remote("http://127.0.0.1:9"), "a")


def test_a_server_that_does_not_answer_is_an_error(http_server: FileServer) -> None:
    files = remote(http_server.serve({"a": CONTENT}), timeout="50ms")
    http_server.faults = Faults(seconds=0.5)
    with pytest.raises(StoreError, match="no answer came in time"):
        read(files, "a")


def test_a_retry_is_left_to_obstore(http_server: FileServer) -> None:
    files = remote(http_server.serve({"a": CONTENT}), retry_config={"max_retries": 2})
    http_server.faults = Faults(status={"a": 503})
    with pytest.raises(StoreError, match="503"):
        read(files, "a")
    assert len(http_server.requests) >= 3


@pytest.mark.parametrize("faults", [Faults(), Faults(ignores_range=True), Faults(status={"a": 403})])
def test_no_message_shows_a_signature_or_a_password(http_server: FileServer, faults: Faults) -> None:
    address = http_server.serve({"a": CONTENT}).removeprefix("http://")
    files = remote(f"http://user:{HIDDEN_WORD}@{address}/?sig={HIDDEN_WORD}")
    http_server.faults = faults
    with pytest.raises(StoreError) as caught:
        read(files, "a", 200, 300)
    shown = "".join(traceback.format_exception(caught.value)) + repr(files) + files.name
    assert HIDDEN_WORD not in shown


def test_no_message_shows_the_key_of_a_bucket(bucket: Remote, s3_server: BucketServer) -> None:
    with pytest.raises(QueryError) as caught:
        remote("s3://tissue", **s3_server.options, regoin="here")
    shown = "".join(traceback.format_exception(caught.value)) + repr(bucket)
    assert HIDDEN_WORD not in shown


def test_azure_is_asked_for_its_length_and_then_for_the_end(http_server: FileServer) -> None:
    http_server.serve({"account/tissue/a": CONTENT, "account/tissue/empty": b""})
    options = {"account_name": "account", "endpoint": f"{http_server.url}/account", "skip_signature": "true"}
    files = remote("az://tissue", **options, allow_http="true")
    assert data_of(read_end(files, "a", 10)) == CONTENT[-10:]
    assert [entry.range for entry in http_server.requests] == ["bytes=0-0", "bytes=90-99"]
    assert files.reads.requests == 2
    assert data_of(read_end(files, "empty", 10)) == b""
    assert read_end(files, "absent", 10) is None


class Growing(dict[str, bytes]):
    """A file that is longer whenever it is read."""

    def get(self, name: str, _: Any = None) -> Any:  # noqa: ANN401 (as of a dictionary)
        self[name] += b"more"
        return self[name]


def test_a_file_that_grows_between_two_requests_is_an_error(http_server: FileServer) -> None:
    files = remote(http_server.serve(Growing(a=CONTENT)))
    http_server.faults = Faults(ignores_suffix=True)
    with pytest.raises(StoreError, match="changed while it was read"):
        read_end(files, "a", 10)


def test_a_server_is_asked_once_whether_it_knows_the_end(web: Remote, http_server: FileServer) -> None:
    http_server.faults = Faults(ignores_suffix=True)
    assert data_of(read_end(web, "a", 10)) == data_of(read_end(web, "a", 10)) == CONTENT[-10:]
    assert [entry.range for entry in http_server.requests] == ["bytes=-10", *["bytes=0-0", "bytes=90-99"] * 2]


def test_google_is_read_by_range(http_server: FileServer) -> None:
    http_server.serve({"tissue/a": CONTENT})
    files = remote("gs://tissue", base_url=http_server.url, skip_signature="true", allow_http="true")
    assert data_of(read(files, "a", 3, 9)) == CONTENT[3:9]
    assert data_of(read_end(files, "a", 9)) == CONTENT[-9:]


def test_a_bucket_lists_what_begins_with_a_prefix(bucket: Remote) -> None:
    assert sorted(bucket.names("")) == ["a", "empty", "folder/b", "foldout"]
    assert sorted(bucket.names("fold")) == ["folder/b", "foldout"]
    assert sorted(bucket.names("folder/")) == sorted(bucket.names("folder/b")) == ["folder/b"]
    assert list(bucket.names("absent/")) == []


def test_a_bucket_lists_a_folder_alone(bucket: Remote) -> None:
    assert sorted(bucket.children("")) == ["a", "empty", "folder", "foldout"]
    assert list(bucket.children("folder")) == ["b"]
    assert list(bucket.children("absent")) == []


@pytest.mark.slow
def test_the_requests_of_a_listing_are_counted(s3_server: BucketServer) -> None:
    files = remote(s3_server.serve({f"{n:04}": b"" for n in range(1001)}), **s3_server.options)
    assert len(list(files.names(""))) == 1001
    assert files.reads.requests == len(s3_server.requests) == 2


def test_a_web_server_cannot_list(web: Remote, http_server: FileServer) -> None:
    with pytest.raises(UnsupportedError, match=r"cannot list its files; .*consolidate"):
        web.names("")
    with pytest.raises(UnsupportedError, match="cannot list its files"):
        web.children("")
    assert http_server.requests == []


BAD_OPTIONS: dict[str, tuple[str, dict[str, Any], str]] = {
    "unknown to S3": ("s3://b", {"regoin": "x"}, "'regoin' is not valid.*options given: 'regoin'"),
    "unknown to Google": ("gs://b", {"regoin": "x"}, "'regoin'"),
    "unknown to the web": ("http://a", {"regoin": "x"}, "regoin"),
    "no number": ("s3://b", {"timeout": "soon"}, 'parse "soon" as Duration.*timeout'),
    "no boolean": ("s3://b", {"skip_signature": "perhaps"}, 'parse "perhaps" as boolean'),
    "of another type": ("s3://b", {"region": 1}, "'int' object.*'region'"),
    "no mapping": ("s3://b", {"client_options": "fast"}, "'client_options'"),
    "wanting": ("az://b", {}, "Account must be specified.*options given: none"),
}


@pytest.mark.parametrize(("url", "options", "message"), BAD_OPTIONS.values(), ids=BAD_OPTIONS.keys())
def test_an_option_that_does_not_fit_is_named(url: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(QueryError, match=message):
        Remote(url, options)


def test_options_of_a_command_line_are_understood(s3_server: BucketServer) -> None:
    options = {key: value for key, value in s3_server.options.items() if key != "client_options"}
    files = Remote(s3_server.serve({"a": CONTENT}), {**options, "allow_http": "true", "timeout": "30s"})
    assert data_of(read(files, "a")) == CONTENT


def test_client_options_stand_together_or_alone(http_server: FileServer) -> None:
    url = http_server.serve({"a": CONTENT})
    files = Remote(url, {"user_agent": "reader", "client_options": {"timeout": "30s"}})
    assert data_of(read(files, "a")) == CONTENT


def test_a_copy_reads_the_same_and_counts_for_itself(bucket: Remote) -> None:
    copy = pickle.loads(pickle.dumps(bucket))  # noqa: S301 (made here)
    assert data_of(read(copy, "a")) == CONTENT
    assert (copy.name, copy.reads.requests, bucket.reads.requests) == (bucket.name, 1, 0)


def test_many_threads_read_at_once_each_in_its_own_loop(web: Remote) -> None:
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda: found.append(data_of(read(web, "a", 1, 5)))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [CONTENT[1:5]] * 8
    assert (web.reads.requests, web.reads.bytes) == (8, 32)


FORK = """
import asyncio, os, sys, warnings
from puncta.store._remote import Remote
warnings.simplefilter("ignore", DeprecationWarning)  # that a process with threads is forked is the point
files = Remote(sys.argv[1], {})
if sys.argv[2] == "after":
    asyncio.run(files.get("a"))
if not os.fork():
    try:
        print(bytes(asyncio.run(files.get("a")).data).decode())
    except OSError as error:
        print(type(error).__name__, error)
    sys.exit()
os.wait()
"""


def in_a_fork(server: FileServer, when: str) -> str:
    """Return what a forked process says of a file that it reads; one that hangs is stopped."""
    url = server.serve({"a": b"content"})
    done = subprocess.run(
        [sys.executable, "-c", FORK, url, when], check=True, capture_output=True, text=True, timeout=60
    )
    return done.stdout


def test_a_process_that_is_forked_before_the_first_read_reads(http_server: FileServer) -> None:
    assert in_a_fork(http_server, "before") == "content\n"


def test_a_process_that_is_forked_after_a_read_says_so_and_does_not_hang(http_server: FileServer) -> None:
    said = in_a_fork(http_server, "after")
    assert said.startswith("StoreError")
    assert "forkserver" in said


def test_the_protocol_is_kept(web: Remote) -> None:
    assert isinstance(web, RemoteFiles)


def test_a_folder_is_served_as_it_is_on_disk(http_server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "a").write_bytes(CONTENT)
    assert data_of(read(remote(http_server.serve(tmp_path)), "inner/a", 2, 4)) == CONTENT[2:4]
