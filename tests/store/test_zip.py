"""Members of archives, local and remote, against `zipfile` and `zarr`; requests are counted by the server."""

import asyncio
import io
import os
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from puncta.errors import MissingError, StoreError, UnsupportedError
from puncta.store._directory import Directory
from puncta.store._files import Answer, LocalFiles, Reads, RemoteFiles
from puncta.store._local_file import OpenFile
from puncta.store._zip import LocalZip, RemoteZip

CONTENTS = {"zarr.json": b"{}", "c/0": bytes(range(256)) * 4, "c/1": b"", "ä": b"123"}
HEADER_AND_NAME = 33


class Memory:
    """A server in memory, that remembers what it was asked."""

    def __init__(self, data: bytes, *, version: str | None = "1") -> None:
        self.reads = Reads()
        self.name = self.identity = "https://example.org/data"
        self.version = version
        self.files = {"a.zip": data}
        self.asked: list[tuple[int, int]] = []

    async def get(self, key: str) -> Answer | None:
        return await self.get_range(key, 0, len(self.files[key])) if key in self.files else None

    async def get_range(self, key: str, start: int, end: int) -> Answer | None:
        if key not in self.files:
            return None
        data = self.files[key][start:end]
        if len(data) != end - start or not data:
            raise StoreError(f"{key} ends before byte {end}")
        self.asked.append((start, end))
        self.reads.add(requests=1, nbytes=len(data))
        return Answer(data=memoryview(data), start=start, size=len(self.files[key]), version=self.version)

    async def get_suffix(self, key: str, length: int) -> Answer | None:
        size = len(self.files.get(key, b""))
        return await self.get_range(key, max(0, size - length), size)

    def names(self, prefix: str) -> Iterator[str]:
        return (name for name in self.files if name.startswith(prefix))


class Pipe(io.BytesIO):
    """What cannot go back, so that local headers do not know the lengths."""

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        raise io.UnsupportedOperation


def archive(contents: dict[str, bytes], *, streamed: bool = False, method: int = zipfile.ZIP_STORED) -> bytes:
    target = Pipe() if streamed else io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as written:
        for name, content in contents.items():
            written.writestr(name, content)
    return target.getvalue()


def read_member(files: Directory | LocalZip, key: str) -> bytes:
    file = files.open(key)
    assert file is not None
    data = bytearray(file.size)
    file.read_into(memoryview(data), 0)
    file.close()
    return bytes(data)


async def fetch(files: RemoteFiles, key: str, *ends: int) -> bytes:
    answer = await (files.get_range(key, *ends) if ends else files.get(key))
    assert answer is not None
    return bytes(answer.data)


def in_zipfile(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as opened:
        return {name: opened.read(name) for name in opened.NameToInfo if not name.endswith("/")}


@pytest.fixture(params=[False, True], ids=["written", "streamed"])
def data(request: pytest.FixtureRequest) -> bytes:
    return archive({"folder/": b"", **CONTENTS}, streamed=request.param)


@pytest.fixture
def local(tmp_path: Path, data: bytes) -> LocalZip:
    (tmp_path / "a.zip").write_bytes(data)
    return LocalZip(Directory(tmp_path), "a.zip")


@pytest.fixture(scope="module")
def large() -> bytes:
    """Return an archive whose directory does not fit into the first request."""
    return archive({f"c/{number}": number.to_bytes(4, "big") for number in range(3000)})


# On a local disk


def test_members_of_a_local_archive_are_those_of_zipfile(local: LocalZip) -> None:
    files: LocalFiles = local
    assert isinstance(files, LocalFiles)
    assert {name: read_member(local, name) for name in local.names("")} == CONTENTS
    assert sorted(local.names("c/")) == ["c/0", "c/1"]


@pytest.mark.parametrize("key", ["b", "", "folder/", "c", "/c/0", "../a.zip"])
def test_what_is_no_member_is_none(local: LocalZip, key: str) -> None:
    assert local.open(key) is None


def test_a_small_archive_is_opened_by_one_read(local: LocalZip) -> None:
    assert local.open("none") is None
    assert local.reads.requests == 1
    assert local.open("neither") is None
    assert local.reads.requests == 1


def test_a_large_archive_is_opened_by_two_reads_of_the_end_and_the_directory(tmp_path: Path, large: bytes) -> None:
    (tmp_path / "a.zip").write_bytes(large)
    files = LocalZip(Directory(tmp_path), "a.zip")
    assert read_member(files, "c/2999") == (2999).to_bytes(4, "big")
    assert files.reads.requests == 3
    assert files.reads.bytes < len(large)


def test_a_local_header_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(archive(CONTENTS, streamed=True))
    files = LocalZip(Directory(tmp_path), "a.zip")
    counts = [(read_member(files, "c/0"), files.reads.requests)[1] for _ in range(3)]
    assert counts == [3, 4, 5]


def test_a_read_beyond_a_member_does_not_reach_the_next(local: LocalZip) -> None:
    file = local.open("zarr.json")
    assert file is not None
    with pytest.raises(StoreError, match=r"/a\.zip/zarr\.json ends at byte 2, but bytes 1 to 3 were expected"):
        file.read_into(memoryview(bytearray(2)), 1)
    file.close()


def test_an_archive_that_was_replaced_is_read_anew(local: LocalZip, tmp_path: Path) -> None:
    old = local.open("zarr.json")
    (tmp_path / "new").write_bytes(archive({"zarr.json": b"[1, 2]", "more": b"3"}))
    (tmp_path / "new").replace(tmp_path / "a.zip")
    new = local.open("zarr.json")
    assert old is not None
    assert new is not None
    assert old.version != new.version
    assert (read_member(local, "zarr.json"), read_member(local, "more")) == (b"[1, 2]", b"3")
    old.close()
    new.close()


def test_members_have_different_versions(local: LocalZip) -> None:
    opened = [local.open(name) for name in ("zarr.json", "c/0", "zarr.json")]
    first, second, again = [file.version for file in opened if isinstance(file, OpenFile)]
    assert first == again != second
    for file in opened:
        assert file is not None
        file.close()


def test_an_absent_archive_is_missing(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match=r"there is no archive .*/a\.zip; check its path"):
        LocalZip(Directory(tmp_path), "a.zip").open("zarr.json")


@pytest.mark.parametrize("length", [0, 1, 21, 22, 60, 500])
def test_an_archive_cut_short_names_itself_and_the_remedy(local: LocalZip, tmp_path: Path, length: int) -> None:
    os.truncate(tmp_path / "a.zip", length)
    with pytest.raises(StoreError, match=r"/a\.zip: no end record of a zip archive .*: fetch it again"):
        local.open("zarr.json")


def test_compressed_members_are_refused_and_others_read(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as written:
        written.writestr("zarr.json", b"{}")
        written.writestr("c/0", bytes(99), zipfile.ZIP_DEFLATED)
    files = LocalZip(Directory(tmp_path), "a.zip")
    assert read_member(files, "zarr.json") == b"{}"
    with pytest.raises(UnsupportedError, match=r"1 of 2 members are compressed \(first: 'c/0', DEFLATE\); unzip"):
        files.open("c/0")


def test_an_archive_within_an_archive_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(archive({"b": b"1", "inner.zip": archive(CONTENTS, streamed=True)}))
    inner = LocalZip(LocalZip(Directory(tmp_path), "a.zip"), "inner.zip")
    assert {name: read_member(inner, name) for name in inner.names("")} == CONTENTS


def test_offsets_beyond_32_bits_are_followed(tmp_path: Path) -> None:
    with (tmp_path / "a.zip").open("wb") as stream:
        stream.seek(5 << 30)  # takes no room on the disk
        with zipfile.ZipFile(stream, "w") as written:
            written.writestr("c/0", b"far")
            written.writestr("c/1", b"away")
    files = LocalZip(Directory(tmp_path), "a.zip")
    assert (read_member(files, "c/0"), read_member(files, "c/1")) == (b"far", b"away")
    assert files.reads.requests == 3


def test_many_threads_read_the_directory_once(tmp_path: Path, large: bytes) -> None:
    (tmp_path / "a.zip").write_bytes(large)
    files = LocalZip(Directory(tmp_path), "a.zip")
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda number: read_member(files, f"c/{number}"), range(3000)))
    assert found == [number.to_bytes(4, "big") for number in range(3000)]
    assert files.reads.requests == 2 + 3000


def test_no_archive_stays_open(local: LocalZip) -> None:
    before = len(list(Path("/dev/fd").iterdir()))
    read_member(local, "c/0")
    local.open("none")
    list(local.names(""))
    assert len(list(Path("/dev/fd").iterdir())) == before


def test_a_pickled_archive_is_read_by_another_process(local: LocalZip) -> None:
    read_member(local, "c/0")
    code = "import pickle, sys; print(pickle.load(sys.stdin.buffer).open('c/0').size)"
    pickled = pickle.dumps(local)
    done = subprocess.run([sys.executable, "-c", code], input=pickled, capture_output=True, check=True)
    assert int(done.stdout) == 1024
    assert len(pickled) < 500


FORKS = """
import os, sys, threading
from pathlib import Path
from puncta.store._directory import Directory
from puncta.store._zip import LocalZip
files = LocalZip(Directory(Path(sys.argv[1])), "a.zip")
files._lock.acquire()
child = os.fork()
if not child:
    os._exit(files.open("c/0").size % 256 + 7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_process_does_not_wait_for_a_thread_it_left_behind(local: LocalZip, tmp_path: Path) -> None:
    assert local.open("none") is None
    done = subprocess.run([sys.executable, "-c", FORKS, str(tmp_path)], capture_output=True, check=True, timeout=30)
    assert int(done.stdout) == 7


@pytest.mark.parametrize("pattern", ["zarr_zip_scanpy/*.zarr.zip", "checkpoints/*.zip"])
def test_measured_archives_are_read_as_by_zipfile(shared_data: Path, pattern: str) -> None:
    (path,) = shared_data.glob(pattern)
    files = LocalZip(Directory(path.parent), path.name)
    assert {name: read_member(files, name) for name in files.names("")} == in_zipfile(path)
    # one read of the directory and one of each member: no local header
    assert files.reads.requests == 1 + len(in_zipfile(path))


def test_what_zarr_writes_into_an_archive_is_found_without_local_headers(tmp_path: Path) -> None:
    with zarr.storage.ZipStore(tmp_path / "a.zip", mode="w") as store:
        zarr.create_array(store, name="a", data=np.arange(100), chunks=10, attributes={"ä": 1})
    files = LocalZip(Directory(tmp_path), "a.zip")
    assert {name: read_member(files, name) for name in files.names("")} == in_zipfile(tmp_path / "a.zip")
    assert files.reads.requests == 1 + 12


# On a server


@given(
    contents=st.dictionaries(st.text(min_size=1, alphabet="ab/ä"), st.binary(max_size=99), min_size=1, max_size=5),
    streamed=st.booleans(),
    ends=st.tuples(st.integers(0, 99), st.integers(0, 99)),
    length=st.integers(1, 120),
)
def test_remote_members_are_the_same_whole_and_in_part(
    contents: dict[str, bytes], ends: tuple[int, int], length: int, *, streamed: bool
) -> None:
    contents = {f"{name}.": content for name, content in contents.items()}
    name = next(iter(contents))
    content = contents[name]
    start, end = sorted(min(end, len(content)) for end in ends)

    async def check() -> None:
        files = RemoteZip(Memory(archive(contents, streamed=streamed)), "a.zip")
        if start < end:
            assert await fetch(files, name, start, end) == content[start:end]
        suffix = await files.get_suffix(name, length)
        assert suffix is not None
        assert (bytes(suffix.data), suffix.start) == (content[-length:], max(0, len(content) - length))
        assert {key: await fetch(files, key) for key in contents} == contents

    asyncio.run(check())


def remote(data: bytes, *, version: str | None = "1") -> tuple[RemoteZip, Memory]:
    memory = Memory(data, version=version)
    return RemoteZip(memory, "a.zip"), memory


def test_a_remote_archive_is_remote_files(data: bytes) -> None:
    zipped, memory = remote(data)
    files: RemoteFiles = zipped
    assert isinstance(files, RemoteFiles)
    assert files.name == "https://example.org/data/a.zip"
    assert files.reads is memory.reads


def test_a_small_directory_takes_one_request_and_a_large_one_two(large: bytes) -> None:
    small_zip, small_memory = remote(archive(CONTENTS))
    large_zip, large_memory = remote(large)
    asyncio.run(small_zip.load())
    asyncio.run(large_zip.load())
    asyncio.run(large_zip.load())
    assert len(small_memory.asked) == 1
    (_, end), (start, before) = large_memory.asked
    assert (end, before) == (len(large), large_memory.asked[0][0])
    assert large[start : start + 4] == b"PK\1\2"
    assert b"PK\1\2" not in large[:start]


def test_a_member_takes_one_request_of_its_own_bytes(large: bytes) -> None:
    zipped, memory = remote(large)
    asyncio.run(zipped.load())
    asyncio.run(fetch(zipped, "c/2000"))
    start, end = memory.asked[-1]
    assert large[start:end] == (2000).to_bytes(4, "big")
    assert len(memory.asked) == 3


def test_several_event_loops_share_one_index(data: bytes) -> None:
    zipped, memory = remote(data)
    found = [asyncio.run(fetch(zipped, "zarr.json")) for _ in range(3)]
    assert found == [b"{}"] * 3
    assert len(memory.asked) == 1 + 3


def test_reads_that_begin_together_are_all_answered(data: bytes) -> None:
    zipped, _ = remote(data)

    async def together() -> list[bytes]:
        return await asyncio.gather(*(fetch(zipped, name) for name in list(CONTENTS) * 5))

    assert asyncio.run(together()) == list(CONTENTS.values()) * 5


def test_the_header_of_a_streamed_member_comes_with_its_data_once() -> None:
    zipped, memory = remote(archive({"big": bytes(200_000)}, streamed=True))
    asyncio.run(fetch(zipped, "big", 1000, 2000))
    asyncio.run(fetch(zipped, "big", 1000, 2000))
    _, (first, _), last = memory.asked
    assert first == 0
    assert last == (HEADER_AND_NAME + 1000, HEADER_AND_NAME + 2000)
    assert len(memory.asked) == 3


def test_a_far_read_of_a_streamed_member_takes_its_header_apart() -> None:
    zipped, memory = remote(archive({"big": bytes(200_000)}, streamed=True))
    asyncio.run(fetch(zipped, "big", 150_000, 150_001))
    assert memory.asked[1:] == [(0, HEADER_AND_NAME), (HEADER_AND_NAME + 150_000, HEADER_AND_NAME + 150_001)]


def test_a_longer_local_header_than_expected_costs_a_request_and_no_data() -> None:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as written:
        info = zipfile.ZipInfo("a")
        info.extra = b"\xfe\xca" + (9000).to_bytes(2, "little") + bytes(9000)
        written.writestr(info, b"12345678")
        info.extra = b""
    zipped, memory = remote(target.getvalue())
    assert asyncio.run(fetch(zipped, "a", 2, 5)) == b"345"
    assert len(memory.asked) == 3


def test_an_empty_member_takes_no_request(data: bytes) -> None:
    zipped, memory = remote(data)
    assert asyncio.run(fetch(zipped, "c/1")) == b""
    assert len(memory.asked) == 1


def test_what_is_no_member_is_none_remotely(data: bytes) -> None:
    zipped, _ = remote(data)
    answers = [zipped.get("b"), zipped.get_range("folder/", 0, 1), zipped.get_suffix("c", 5)]
    assert [asyncio.run(answer) for answer in answers] == [None] * 3


@pytest.mark.parametrize(("start", "end"), [(0, 3), (2, 3), (-1, 1), (1, 1)])
def test_a_range_beyond_a_remote_member_does_not_reach_the_next(data: bytes, start: int, end: int) -> None:
    zipped, _ = remote(data)
    with pytest.raises(StoreError, match=rf"a\.zip/zarr\.json ends at byte 2, but bytes {start} to {end} were"):
        asyncio.run(fetch(zipped, "zarr.json", start, end))


def test_another_version_is_an_error_and_not_data(data: bytes) -> None:
    zipped, memory = remote(data)
    asyncio.run(zipped.load())
    memory.version = "2"
    with pytest.raises(StoreError, match=r"a\.zip changed while it was read .*; open it again"):
        asyncio.run(fetch(zipped, "c/0"))


def test_another_version_between_the_two_reads_of_the_directory_is_an_error(large: bytes) -> None:
    class Changing(Memory):
        async def get_suffix(self, key: str, length: int) -> Answer | None:
            answer = await super().get_suffix(key, length)
            self.version = "2"
            return answer

    with pytest.raises(StoreError, match="changed while it was read"):
        asyncio.run(RemoteZip(Changing(large), "a.zip").load())


def test_another_length_is_an_error_where_no_version_is_told(data: bytes) -> None:
    zipped, memory = remote(data, version=None)
    asyncio.run(zipped.load())
    memory.files["a.zip"] += b"more"
    with pytest.raises(StoreError, match="changed while it was read"):
        asyncio.run(fetch(zipped, "c/0"))


def test_the_version_of_a_member_is_that_of_the_archive_and_its_place(data: bytes) -> None:
    zipped, _ = remote(data)
    answers = [asyncio.run(zipped.get(name)) for name in ("zarr.json", "c/0", "zarr.json")]
    first, second, again = [answer.version for answer in answers if answer]
    assert first == again != second
    (unknown,) = [asyncio.run(remote(data, version=None)[0].get("c/0"))]
    assert unknown is not None
    assert unknown.version is None


def test_an_absent_remote_archive_is_missing_and_one_that_went_is_an_error(data: bytes) -> None:
    zipped, memory = remote(data)
    asyncio.run(zipped.load())
    del memory.files["a.zip"]
    with pytest.raises(StoreError, match="is gone since it was opened"):
        asyncio.run(fetch(zipped, "c/0"))
    with pytest.raises(MissingError, match="there is no archive"):
        asyncio.run(RemoteZip(memory, "a.zip").load())


def test_a_local_header_of_another_member_is_an_error_remotely() -> None:
    zipped, _ = remote(archive(CONTENTS, streamed=True).replace(b"c/0", b"c/9", 1))
    with pytest.raises(StoreError, match="is of 'c/9', not of 'c/0'"):
        asyncio.run(fetch(zipped, "c/0"))


def test_compressed_remote_members_are_refused() -> None:
    zipped, _ = remote(archive(CONTENTS, method=zipfile.ZIP_DEFLATED))
    with pytest.raises(UnsupportedError, match=r"4 of 4 members are compressed \(first: 'zarr.json', DEFLATE\)"):
        asyncio.run(fetch(zipped, "c/0"))


def test_names_are_known_once_the_archive_is_loaded(data: bytes) -> None:
    zipped, _ = remote(data)
    with pytest.raises(StoreError, match=r"are not read yet; await load\(\) before"):
        list(zipped.names(""))
    asyncio.run(zipped.load())
    assert sorted(zipped.names("")) == sorted(CONTENTS)
    assert sorted(zipped.names("c/")) == ["c/0", "c/1"]


def test_a_pickled_remote_archive_reads_its_directory_itself(data: bytes) -> None:
    zipped, _ = remote(data)
    asyncio.run(zipped.load())
    copy = pickle.loads(pickle.dumps(zipped))  # noqa: S301 (our own)
    assert asyncio.run(fetch(copy, "c/0")) == CONTENTS["c/0"]
    assert (zipped.reads.requests, copy.reads.requests) == (1, 3)
