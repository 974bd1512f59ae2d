"""Servers on loopback that remember what they were asked: a web server with faults to switch on, and S3."""

import hashlib
import logging
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import urlopen

_REGION = "us-east-1"
_KEY = "tester"
HIDDEN_WORD = "hidden-word"
"""What no message may say."""

_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request as it reached a server, and what it was answered."""

    method: str
    """GET, HEAD and so on."""

    path: str
    """The raw path and query."""

    range: str | None
    """The `Range` header."""

    conditions: dict[str, str]
    """Headers that begin with `If-`."""

    status: int
    """What was answered."""

    nbytes: int
    """Bytes of the body that was sent."""


@dataclass(kw_only=True)
class Faults:
    """What a server does wrong, all of it off at first."""

    ignores_range: bool = False
    """Answers a range with 200 and the whole file, as simple servers do."""

    ignores_suffix: bool = False
    """Does so where the end of a file is asked for."""

    shorter_by: int = 0
    """Leaves out that many bytes at the end of a body, and says so in its length alone."""

    breaks_off: bool = False
    """Closes the connection in the middle of a body."""

    moved_by: int = 0
    """Answers with a range that begins that many bytes later than was asked."""

    status: dict[str, int] = field(default_factory=dict)
    """Answers names that begin so with that status."""

    seconds: float = 0
    """Waits that long before each answer."""

    tag: str | None = None
    """Sends that ETag instead of one of the content; an empty one is left out."""

    date: str = "Mon, 06 Jan 2025 00:00:00 GMT"
    """Sends that as the date of a file; an empty one is left out."""


class FileServer:
    """A web server of files that answers ranges, refuses HEAD as presigned links do, and keeps a log."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.under_way: list[str] = []
        """Requests that are being answered, which a client that was stopped no longer waits for."""
        self.reset()

    def reset(self) -> None:
        """Forget the requests, the faults and the files, once the requests that are being answered are."""
        while self.under_way:
            time.sleep(0.01)
        self.requests: list[Request] = []
        self.faults = Faults()
        self._files: Path | Mapping[str, bytes] = {}

    def serve(self, files: Path | Mapping[str, bytes]) -> str:
        """Serve a folder, or contents by name; return the URL that their names follow after a slash."""
        self._files = files
        return self.url

    def content(self, name: str) -> bytes | None:
        """Return a file; None where there is none."""
        if not isinstance(self._files, Path):
            return self._files.get(name)
        path = self._files / name
        return path.read_bytes() if path.is_file() else None


@contextmanager
def file_server() -> Iterator[FileServer]:
    """Run a web server until the block ends."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        files = server.files = FileServer(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield files
        finally:
            server.shutdown()
            thread.join()


class _Server(ThreadingHTTPServer):
    # a client keeps its connections open, and waiting for their threads would take for ever
    daemon_threads = True
    block_on_close = False
    files: FileServer

    def handle_error(self, request: object, client_address: object) -> None:
        # a client that hangs up early is no fault of ours
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    # without it, a header and a body sent apart wait for each other's acknowledgement
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its name in the library)
        pass

    def do_HEAD(self) -> None:
        self._answer(HTTPStatus.FORBIDDEN, b"", {})

    def do_GET(self) -> None:
        self.server.files.under_way.append(self.path)
        try:
            self._get()
        finally:
            self.server.files.under_way.remove(self.path)

    def _get(self) -> None:
        faults = self.server.files.faults
        time.sleep(faults.seconds)
        name = unquote(urlsplit(self.path).path).removeprefix("/")
        forced = next((status for prefix, status in faults.status.items() if name.startswith(prefix)), None)
        content = self.server.files.content(name)
        if forced is not None:
            self._answer(forced, b"", {})
        elif content is None:
            self._answer(HTTPStatus.NOT_FOUND, b"no such file", {})
        else:
            self._send(content, faults)

    def _send(self, content: bytes, faults: Faults) -> None:
        tag = f'"{hashlib.md5(content).hexdigest()}"' if faults.tag is None else faults.tag  # noqa: S324 (no secret)
        headers = {name: value for name, value in (("ETag", tag), ("Last-Modified", faults.date)) if value}
        asked = self.headers["Range"]
        if asked is None or faults.ignores_range or (faults.ignores_suffix and asked.startswith("bytes=-")):
            self._answer(HTTPStatus.OK, content, headers)
            return
        start, end = _bounds(asked, len(content))
        if start >= end:
            self._answer(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, b"", {"Content-Range": f"bytes */{len(content)}"})
            return
        start = min(start + faults.moved_by, end - 1)
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(content)}"
        self._answer(HTTPStatus.PARTIAL_CONTENT, content[start:end], headers)

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        faults = self.server.files.faults
        body = body[: len(body) - faults.shorter_by] if faults.shorter_by else body
        sent = body[: len(body) // 2] if faults.breaks_off else body
        self._note(status, len(sent))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(sent)
        self.close_connection = self.close_connection or faults.breaks_off

    def _note(self, status: int, nbytes: int) -> None:
        # before the answer is sent, so that whoever has it finds it in the log
        self.server.files.requests.append(
            Request(
                method=self.command,
                path=self.path,
                range=self.headers["Range"],
                conditions={name: value for name, value in self.headers.items() if name.startswith("If-")},
                status=int(status),
                nbytes=nbytes,
            )
        )


def _bounds(asked: str, size: int) -> tuple[int, int]:
    match = _RANGE.fullmatch(asked)
    assert match, asked
    first, last = match.groups()
    if not first:
        return max(size - int(last), 0), size
    return int(first), min(int(last) + 1, size) if last else size


@dataclass(kw_only=True)
class BucketFaults:
    """What an S3 service does wrong, or does at a given moment, all of it off at first."""

    before: Callable[[str, str], int | None] | None = None
    """Called with method and path before a request is answered; a number that it returns is answered instead."""

    under_way: list[str] = field(default_factory=list)
    """Requests that are being answered, which a client that was stopped no longer waits for."""


class BucketServer:
    """An S3 service of buckets in memory that keeps a log."""

    def __init__(
        self,
        url: str,
        client: Any,  # noqa: ANN401 (made at run time)
        requests: list[Request],
        faults: BucketFaults,
    ) -> None:
        self.url = url
        self.requests = requests
        self.faults = faults
        self.options: dict[str, Any] = {
            "endpoint": url,
            "region": _REGION,
            "access_key_id": _KEY,
            "secret_access_key": HIDDEN_WORD,
            "virtual_hosted_style_request": "false",
            "client_options": {"allow_http": True},
        }
        """What obstore must be told to read from here."""
        self._client = client

    def serve(self, files: Path | Mapping[str, bytes], bucket: str = "tissue") -> str:
        """Fill a new bucket with a folder, or contents by name; return its URL, and begin a new log."""
        self._client.create_bucket(Bucket=bucket)
        for name, content in _contents(files):
            self._client.put_object(Bucket=bucket, Key=name, Body=content)
        self.requests.clear()
        return f"s3://{bucket}"

    def reset(self) -> None:
        """Remove all buckets and forget the requests and the faults."""
        self.faults.before = None
        while self.faults.under_way:
            time.sleep(0.01)
        with urlopen(f"{self.url}/moto-api/reset", data=b""):  # noqa: S310 (our own server)
            self.requests.clear()

    def signed(self, bucket: str, name: str) -> str:
        """Return a presigned link to a file."""
        link: str = self._client.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": name})
        return link

    def put(self, name: str, content: bytes, bucket: str = "tissue") -> None:
        """Put a file, whatever is there; the request is logged."""
        self._client.put_object(Bucket=bucket, Key=name, Body=content)

    def files(self, bucket: str = "tissue") -> dict[str, bytes]:
        """Return what is in a bucket by name, without a request that is logged."""
        before, self.faults.before = self.faults.before, None
        n_requests = len(self.requests)
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=bucket)
        names = [member["Key"] for page in pages for member in page.get("Contents", ())]
        found = {name: self._client.get_object(Bucket=bucket, Key=name)["Body"].read() for name in names}
        del self.requests[n_requests:]
        self.faults.before = before
        return found


@contextmanager
def bucket_server() -> Iterator[BucketServer]:
    """Run an S3 service until the block ends."""
    # these take seconds to load, and most tests need none of them
    import boto3  # type: ignore[import-untyped]  # noqa: PLC0415
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app  # noqa: PLC0415
    from werkzeug.serving import make_server  # noqa: PLC0415

    log: list[Request] = []
    faults = BucketFaults()
    application = _logged(DomainDispatcherApplication(create_backend_app), log, faults)
    server = make_server("127.0.0.1", 0, application, threaded=True)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    client = boto3.client(
        "s3", endpoint_url=url, region_name=_REGION, aws_access_key_id=_KEY, aws_secret_access_key=HIDDEN_WORD
    )
    try:
        yield BucketServer(url, client, log, faults)
    finally:
        client.close()
        server.shutdown()
        thread.join()
        server.server_close()


def _contents(files: Path | Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
    if not isinstance(files, Path):
        yield from files.items()
        return
    for path in sorted(files.rglob("*")):
        if path.is_file():
            yield path.relative_to(files).as_posix(), path.read_bytes()


def _logged(application: Any, log: list[Request], faults: BucketFaults) -> Any:  # noqa: ANN401 (the library ships no types)
    def answer(environ: dict[str, Any], start_response: Any) -> Any:  # noqa: ANN401 (likewise)
        faults.under_way.append(environ["RAW_URI"])
        try:
            return logged(environ, start_response)
        finally:
            faults.under_way.remove(environ["RAW_URI"])

    def logged(environ: dict[str, Any], start_response: Any) -> Any:  # noqa: ANN401 (likewise)
        status: list[str] = []

        def note(code: str, *rest: Any) -> Any:  # noqa: ANN401 (likewise)
            status.append(code)
            return start_response(code, *rest)

        forced = faults.before(environ["REQUEST_METHOD"], environ["RAW_URI"]) if faults.before else None
        if forced is not None:
            note(f"{forced} {HTTPStatus(forced).phrase}", [])
        body = b"".join(application(environ, note)) if forced is None else b""
        log.append(
            Request(
                method=environ["REQUEST_METHOD"],
                path=environ["RAW_URI"],
                range=environ.get("HTTP_RANGE"),
                conditions={name: value for name, value in environ.items() if name.startswith("HTTP_IF_")},
                status=int(status[0].split()[0]),
                nbytes=len(body),
            )
        )
        return [body]

    return answer
