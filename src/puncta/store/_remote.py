"""Files on a web server or in an object store, read through obstore.

obstore trusts servers more than is good for us: a body that is shorter than announced, and a range that a server cut
at the end of the file, come back as if nothing had happened. Both are errors here.
"""

import hashlib
import os
import re
from collections.abc import Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import AzureStore, HTTPStore, ObjectStore, from_url

from puncta.errors import MissingError, QueryError, StoreError, UnsupportedError
from puncta.store._files import Answer, Reads

if TYPE_CHECKING:
    from obstore import GetOptions  # exists for type checkers alone

_WEB: Final = ("http", "https")

# obstore ends the process's thread with a panic where one of these stands beside the options of an object store.
_CLIENT_OPTIONS: Final = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "default_content_type",
        "default_headers",
        "http1_only",
        "http2_keep_alive_interval",
        "http2_keep_alive_timeout",
        "http2_keep_alive_while_idle",
        "http2_max_frame_size",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "randomize_addresses",
        "read_timeout",
        "root_certificate",
        "timeout",
        "user_agent",
    }
)
_NESTED_OPTIONS: Final = ("client_options", "retry_config")

_PAGE: Final = 1000
"""Names that S3 and Google list in one request."""

# What a message of obstore's says. It also holds the whole URL with its signature, so no part but these is shown.
_STATUS: Final = re.compile(r"status code: (\d{3}(?: [A-Za-z]+)*)")
_CODE: Final = re.compile(r"<Code>(\w+)</Code>")
_REASON: Final = re.compile(r'(?:message|error): "([^"\\]*)"')
_TIMEOUT: Final = re.compile(r"kind: Timeout|TimedOut")
NO_BUCKET: Final = re.compile(r"<Code>(NoSuchBucket|ContainerNotFound)</Code>")
_NOT_PARTIAL: Final = re.compile(r"Range request not supported by|non-partial response|does not support suffix range")
# where machines in a cloud ask for credentials, which is tried when none were given
_CREDENTIALS: Final = re.compile(r"/latest/(api/token|meta-data/)|token request")

_process: int | None = None
"""The process, or one that it was forked from, that made the first request; None where there was none yet."""


class _BeyondEndError(StoreError):
    """A range of which the file has no byte."""


class _NotPartialError(StoreError):
    """A whole file where a part was asked for."""


class Remote:
    """The files of a web server, or of a bucket, as `RemoteFiles`.

    Never asks for a file's head alone: presigned links allow GET only. May be pickled, and used from many threads and
    event loops; but not in a process that was forked after a first request, which raises a `StoreError`.

    Args:
        url: `http(s)://host`, with the query that every request carries (a signature); or `s3://bucket`, `gs://bucket`,
            `az://container`. A path is no part of it: names are whole paths.
        options: What obstore takes for such a store, unchanged: its configuration (`region`, `token`),
            `client_options`, `retry_config`. Client options may also stand beside the others, as in
            `{"timeout": "60s"}`.

    Raises:
        QueryError: If an option is unknown, has a wrong value or is wanting.

    """

    __slots__ = ("_has_suffixes", "_options", "_store", "_url", "identity", "name", "reads")

    def __init__(self, url: str, options: Mapping[str, object]) -> None:
        self._url = url
        self._options = dict(options)
        self.name: Final[str] = _without_secrets(url)
        # A digest, since it holds the query and the keys: with other keys, other files may be seen.
        whole = repr((url, sorted(self._options.items(), key=repr)))
        self.identity: Final[Hashable] = hashlib.sha256(whole.encode()).hexdigest()
        self.reads = Reads()
        self._store = open_store(url, self._options, name=self.name)
        self._has_suffixes = not isinstance(self._store, AzureStore)

    def __reduce__(self) -> tuple[type["Remote"], tuple[str, dict[str, object]]]:
        return Remote, (self._url, self._options)

    def __repr__(self) -> str:
        return f"Remote({self.name!r})"

    async def get(self, key: str) -> Answer | None:
        """Return a whole file; None where there is none.

        Raises:
            StoreError: If it cannot be read, or not all of it came.
            MissingError: If there is no such bucket.

        """
        return await self._request(key, None)

    async def get_range(self, key: str, start: int, end: int) -> Answer | None:
        """Return bytes `[start, end)` of a file, `start < end`; None where there is none.

        Raises:
            StoreError: If it cannot be read, ends before, or the server does not answer ranges.
            MissingError: If there is no such bucket.

        """
        answer = await self._request(key, (start, end))
        if answer is not None and answer.data.nbytes < end - start:
            raise StoreError(
                f"{self._path(key)} ends at byte {answer.size}, but bytes {start} to {end} were expected; "
                "it may be incomplete, or changed while it was read: copy it again, or open it again"
            )
        return answer

    async def get_suffix(self, key: str, length: int) -> Answer | None:
        """Return the last bytes of a file, `length > 0` of them, or all where it has fewer; None where there is none.

        Where a server does not know such requests, as Azure's, another one finds out how long the file is.

        Raises:
            StoreError: If it cannot be read, or the server does not answer ranges.
            MissingError: If there is no such bucket.

        """
        if not self._has_suffixes:
            return await self._end(key, length)
        try:
            return await self._request(key, length)
        except _NotPartialError:
            answer = await self._end(key, length)
            self._has_suffixes = answer is None or answer.size == 0
            return answer
        except _BeyondEndError:
            # an empty file has no last byte; but only the other request can say that it is empty
            return await self._end(key, length)

    def names(self, prefix: str) -> Iterator[str]:
        """Return the names of all files that begin with a prefix, which may end within a name.

        A request lists 1,000 names, as far as it is known; so many are counted.

        Raises:
            UnsupportedError: If this is a web server, which cannot list.
            StoreError: If the bucket cannot be listed.

        """
        return (name for name, _ in self.sizes(prefix))

    def sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Return name and length in bytes of all files that begin with a prefix; else as `names`."""
        self._require_listing()
        return self._sizes(prefix)

    def children(self, folder: str) -> Iterator[str]:
        """Return the names directly in a folder, of files and of folders, without what is below these.

        Args:
            folder: Its name, without a slash at the end; empty for the bucket. One that is not there has no names.

        Raises:
            UnsupportedError: If this is a web server, which cannot list.
            StoreError: If the bucket cannot be listed.

        """
        self._require_listing()
        self.reads.add(requests=1, nbytes=0)
        try:
            found = obstore.list_with_delimiter(self._store, folder or None)
        except (BaseError, ValueError, OSError) as error:
            self._refuse(folder, error)
        paths = [*found["common_prefixes"], *(member["path"] for member in found["objects"])]
        return (path.rpartition("/")[2] for path in paths if path != folder)

    async def _request(self, key: str, wanted: tuple[int, int] | int | None) -> Answer | None:
        """Return a range of a file as far as the file has it, the last bytes of it, or all."""
        require_unforked()
        if not key or key.strip("/") != key:
            raise StoreError(f"{key!r} is no name of a file of {self.name}; give one without a slash at its ends")
        self.reads.add(requests=1, nbytes=0)
        try:
            result = await obstore.get_async(self._store, key, options=_options_of(wanted))
            data = memoryview(await result.bytes_async())
        except FileNotFoundError as error:
            if NO_BUCKET.search(str(error)):
                self._refuse(key, error)
            return None
        except (BaseError, ValueError, OSError) as error:
            self._refuse(key, error)
        self.reads.add(requests=0, nbytes=data.nbytes)
        size, came = result.meta["size"], (result.range[0], result.range[0] + data.nbytes)
        due = _due(wanted, size)
        if came != due:
            raise StoreError(
                f"{self._path(key)}: the server sent bytes {came[0]} to {came[1]} where {due[0]} to {due[1]} of {size} "
                "were due; try again, and ask who runs the server if it stays so"
            )
        return Answer(data=data, start=due[0], size=size, version=_version(result.meta))

    async def _end(self, key: str, length: int) -> Answer | None:
        """Return the last bytes of a file by two requests: the first tells its length."""
        try:
            first = await self.get_range(key, 0, 1)
        except _BeyondEndError:
            return Answer(data=memoryview(b""), start=0, size=0, version=None)
        if first is None or first.size is None:
            return None
        answer = await self.get_range(key, max(first.size - length, 0), first.size)
        if answer is None or answer.size != first.size:
            raise StoreError(f"{self._path(key)} changed while it was read; open it again")
        return answer

    def _sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        # a listing ends its prefix with a slash, so what ends within a name is left to us
        folder = prefix.rpartition("/")[0]
        try:
            pages = iter(obstore.list(self._store, prefix=folder or None, chunk_size=_PAGE))
            self.reads.add(requests=1, nbytes=0)
            for number, page in enumerate(pages):
                self.reads.add(requests=min(number, 1), nbytes=0)
                yield from ((member["path"], member["size"]) for member in page if member["path"].startswith(prefix))
        except (BaseError, ValueError, OSError) as error:
            self._refuse(prefix, error)

    def _require_listing(self) -> None:
        if isinstance(self._store, HTTPStore):
            raise UnsupportedError(
                f"{self.name} is a web server, which cannot list its files; read them by name, consolidate the store's "
                "metadata, or give the address of the bucket (s3://, gs://, az://)"
            )
        require_unforked()

    def _refuse(self, key: str, error: Exception) -> NoReturn:
        # "from None": the message of the library's error has the URL with its signature, and a traceback would print it
        raise said(str(error), self._path(key), refused=is_refusal(error)) from None

    def _path(self, key: str) -> str:
        return f"{self.name}/{key}"


def _options_of(wanted: tuple[int, int] | int | None) -> "GetOptions":
    if wanted is None:
        return {}
    return {"range": {"suffix": wanted} if isinstance(wanted, int) else wanted}


def _due(wanted: tuple[int, int] | int | None, size: int) -> tuple[int, int]:
    """Return which bytes of a file of this size are the answer to what was wanted."""
    if wanted is None:
        return 0, size
    if isinstance(wanted, int):
        return max(size - wanted, 0), size
    return wanted[0], min(wanted[1], size)


def open_store(url: str, options: Mapping[str, Any], *, name: str) -> ObjectStore:
    """Return obstore's object for a server or bucket, which sends no request yet.

    Raises:
        QueryError: If an option is unknown, has a wrong value or is wanting.

    """
    is_web = urlsplit(url).scheme.lower() in _WEB
    flat = {key: value for key, value in options.items() if key not in _NESTED_OPTIONS}
    client = {key: value for key, value in flat.items() if is_web or key in _CLIENT_OPTIONS}
    retry = options.get("retry_config")
    try:
        client |= dict(options.get("client_options") or {})
        if is_web:
            # never `from_url`: it takes the hosts of clouds for their object stores, and signs what is signed already
            web: dict[str, Any] = {"allow_http": True} | client
            return HTTPStore(url, client_options=web, retry_config=retry)  # type: ignore[arg-type]
        own = {key: value for key, value in flat.items() if key not in client}
        return from_url(url, client_options=client, retry_config=retry, **own)  # type: ignore[call-overload, no-any-return]
    except (BaseError, ValueError, TypeError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        given = ", ".join(map(repr, sorted(map(str, options)))) or "none"
        raise QueryError(f"{name} cannot be opened: {reason} (options given: {given}); correct the options") from None


def said(message: str, path: str, *, refused: bool, what: str = "read") -> StoreError | MissingError:
    """Return the error that a message of obstore's about a file means.

    Args:
        message: What obstore says.
        path: The file, as people know it.
        refused: Whether the server knows who asks, or does not, and says no.
        what: What was to be done with the file: it could not be ... it.

    """
    status, code = _STATUS.search(message), _CODE.search(message)
    answer = ", ".join(found[1] for found in (status, code) if found)
    if NO_BUCKET.search(message):
        return MissingError(f"could not {what} {path}: there is no such bucket ({answer}); check its name")
    if _NOT_PARTIAL.search(message):
        return _NotPartialError(
            f"{path}: a part was asked for and the server answered with the whole file; "
            "put it on a server that answers range requests, or download it"
        )
    if answer.startswith("416"):
        return _BeyondEndError(
            f"{path} ends before the bytes that were expected ({answer}); it may be incomplete, or changed while it "
            "was read: copy it again, or open it again"
        )
    # a listing that is refused comes as an error of no particular kind
    refused = refused or answer.startswith(("401", "403"))
    return StoreError(f"could not {what} {path}: {_refusal(message, answer, refused=refused, what=what)}")


def _refusal(message: str, answer: str, *, refused: bool, what: str) -> str:
    """Return why the server did not do it, and what to do."""
    if _CREDENTIALS.search(message):
        return (
            "no credentials were found; give them as storage options, or skip_signature=true where everybody may read"
        )
    if refused and what != "read":
        return f"the server refuses it ({answer}); check that the credentials may {what} there"
    if refused:
        return (
            f"the server refuses it ({answer}); check that the link has not expired and the credentials may read it "
            "(S3 also answers so where a file is absent and its bucket may not be listed)"
        )
    if answer:
        return f"the server answered {answer}; try again later"
    return f"{_reason(message)}; check the address and the connection"


def _reason(message: str) -> str:
    if _TIMEOUT.search(message):
        return "no answer came in time (the client option timeout sets how long to wait)"
    found = _REASON.search(message)
    if found:
        return found[1]
    first = message.partition("\n")[0]
    return re.sub(r"Error performing \w+ \S+ in \S+|\w+://\S+", "the request", first)


def is_refusal(error: Exception) -> bool:
    """Whether the server knows who asks, or does not, and says no."""
    return isinstance(error, (PermissionDeniedError, UnauthenticatedError))


def _version(meta: Mapping[str, Any]) -> Hashable:
    """Return what tells a file from its replacement: the ETag, else the date, else None."""
    if meta["e_tag"]:
        return str(meta["e_tag"])
    # the epoch stands for a date that the server does not send
    return meta["last_modified"] if meta["last_modified"].timestamp() else None


def _without_secrets(url: str) -> str:
    """Return a URL without what may be a password or a signature."""
    parts = urlsplit(url)
    if parts.scheme.lower() not in _WEB:
        return url
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def require_unforked() -> None:
    """Refuse in a process that was forked after a first request."""
    global _process  # noqa: PLW0603  # the threads of obstore are one for the process, too
    if _process is None:
        _process = os.getpid()
    elif _process != os.getpid():
        raise StoreError(
            "remote files cannot be read here: this process was forked from one that had read some, without its "
            'network threads, and would wait for ever; start workers by "spawn" or "forkserver" '
            '(of a DataLoader: multiprocessing_context="forkserver")'
        )
