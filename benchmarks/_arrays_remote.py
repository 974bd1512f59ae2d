"""What reads would take over a network, computed from the log of a server on loopback.

    python _arrays_remote.py FOLDER     # serves a folder; prints its port, and its log for each line on stdin

The server answers one request at a time, the oldest, and only when the client has asked for nothing more for a
while. So the log says of each request which answer it was sent after: what does not depend on an answer is there
before it. It runs in a process of its own, since a client may hold the lock of the interpreter while it waits.
"""

import asyncio
import heapq
import json
import os
import re
import subprocess
import sys
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

# The network that is modelled: seconds to the first byte, requests at a time, bytes a second shared by all of them.
LATENCY = 0.020
AT_A_TIME = 8
BANDWIDTH = 50e6

# A client that is silent for so long waits for an answer.
_QUIET_SECONDS = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request, in the order in which they came."""

    method: str
    path: str
    n_bytes: int
    """Length of the body that was sent."""

    after: int
    """Number of the last request that was answered before this one came, or -1."""


def modelled_seconds(log: list[Request]) -> float:
    """Return when the last body would have arrived over the network that is modelled.

    A request starts when the one that it came after is answered and a slot is free; bodies share one line.
    """
    slots = [0.0] * AT_A_TIME
    line_free = 0.0
    finished: list[float] = []
    for request in log:
        sent = max(heapq.heappop(slots), finished[request.after] if request.after >= 0 else 0.0)
        line_free = max(line_free, sent + LATENCY) + request.n_bytes / BANDWIDTH
        finished.append(line_free)
        heapq.heappush(slots, line_free)
    return max(finished, default=0.0)


class Server:
    """The server in its process, as a context manager.

    Args:
        folder: What it serves.

    """

    def __init__(self, folder: Path) -> None:
        self._command = [sys.executable, __file__, str(folder)]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.url = f"http://127.0.0.1:{self._say()}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.communicate()

    def take_log(self) -> list[Request]:
        """Return the requests since the last call."""
        if self._process.stdin is not None:
            self._process.stdin.write("log\n")
            self._process.stdin.flush()
        return [Request(**entry) for entry in json.loads(self._say())]

    def _say(self) -> str:
        if self._process.stdout is None or not (line := self._process.stdout.readline()):
            raise SystemExit("the server of the benchmark ended")
        return line.strip()


class _Held:
    """Requests that wait for their turn, and the log."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._waiting: deque[asyncio.Event] = deque()
        self._came = asyncio.Event()
        self._numbers: dict[asyncio.Event, int] = {}
        self._last_answered = -1
        self.log: list[Request] = []

    def take_log(self) -> str:
        log, self.log, self._last_answered = self.log, [], -1
        return json.dumps([asdict(request) for request in log])

    async def answer_in_turn(self) -> None:
        """Let the oldest request go whenever no more come."""
        while True:
            self._came.clear()
            try:
                await asyncio.wait_for(self._came.wait(), _QUIET_SECONDS if self._waiting else None)
            except TimeoutError:
                turn = self._waiting.popleft()
                self._last_answered = self._numbers.pop(turn)
                turn.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                status, fields, body = self._response(head.decode("latin-1"))
                turn = asyncio.Event()
                self._numbers[turn] = len(self.log) - 1
                self._waiting.append(turn)
                self._came.set()
                await turn.wait()
                lines = [f"HTTP/1.1 {status}", *fields, "", ""]
                writer.write("\r\n".join(lines).encode() + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def _response(self, head: str) -> tuple[str, list[str], bytes]:
        """Return status, header fields and body, and log the request."""
        method, target, _ = head.split(" ", 2)
        file = self._folder / target.lstrip("/").split("?")[0]
        if not file.is_file():
            self._note(method, target, 0)
            return "404 Not Found", ["Content-Length: 0"], b""
        size = file.stat().st_size
        start, end, partial = _asked(head, size)
        status = "206 Partial Content" if partial else "200 OK"
        fields = [f"Content-Length: {end - start}", 'ETag: "1"', "Accept-Ranges: bytes"]
        fields.append("Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT")
        if partial:
            fields.append(f"Content-Range: bytes {start}-{end - 1}/{size}")
        body = b"" if method == "HEAD" else _bytes_of(file, start, end)
        self._note(method, target, len(body))
        return status, fields, body

    def _note(self, method: str, path: str, n_bytes: int) -> None:
        self.log.append(Request(method=method, path=path, n_bytes=n_bytes, after=self._last_answered))


def _asked(head: str, size: int) -> tuple[int, int, bool]:
    """Return the half-open range that a request asks for, and whether it names one."""
    found = re.search(r"^range: *bytes=(\d*)-(\d*)", head, re.IGNORECASE | re.MULTILINE)
    if found is None:
        return 0, size, False
    first, last = found.groups()
    if not first:
        return max(size - int(last), 0), size, True
    return int(first), min(int(last) + 1, size) if last else size, True


def _bytes_of(file: Path, start: int, end: int) -> bytes:
    with file.open("rb") as opened:
        return os.pread(opened.fileno(), end - start, start)


async def _serve(folder: Path) -> None:
    held = _Held(folder)
    server = await asyncio.start_server(held.serve, "127.0.0.1", 0)
    answering = asyncio.create_task(held.answer_in_turn())
    print(server.sockets[0].getsockname()[1], flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        print(held.take_log(), flush=True)
    answering.cancel()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
