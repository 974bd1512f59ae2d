import errno
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puncta.errors import MissingError, StoreError
from puncta.store._directory import Directory
from puncta.store._files import LocalFiles
from puncta.store._local_file import OpenFile

CONTENT = bytes(range(256)) * 40


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("store")
    (root / "a" / "c").mkdir(parents=True)
    (root / "a" / "c" / "0").write_bytes(CONTENT)
    (root / "a" / "zarr.json").write_bytes(b"{}")
    (root / "ä b").write_bytes(b"")
    return root


def opened(files: Directory, key: str) -> OpenFile:
    file = files.open(key)
    assert file is not None
    return file


def read(file: OpenFile, start: int, end: int) -> bytes:
    buffer = bytearray(end - start)
    file.read_into(memoryview(buffer), start)
    return bytes(buffer)


def read_all(files: Directory, key: str) -> bytes:
    file = opened(files, key)
    data = read(file, 0, file.size)
    file.close()
    return data


def open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


@given(ends=st.tuples(st.integers(0, len(CONTENT)), st.integers(0, len(CONTENT))).map(sorted))
def test_a_range_is_the_slice_of_the_file(root: Path, ends: list[int]) -> None:
    start, end = ends
    file = opened(Directory(root), "a/c/0")
    assert read(file, start, end) == CONTENT[start:end]
    file.close()


def test_a_directory_is_local_files(root: Path) -> None:
    files: LocalFiles = Directory(root)
    assert isinstance(files, LocalFiles)
    assert files.name == str(root)


def test_reads_are_counted_when_the_file_is_closed(root: Path) -> None:
    files = Directory(root)
    file = opened(files, "a/c/0")
    read(file, 0, 100)
    read(file, 50, 75)
    assert (files.reads.requests, files.reads.bytes) == (0, 0)
    file.close()
    file.close()
    assert (files.reads.requests, files.reads.bytes) == (2, 125)


def test_many_threads_read_one_file_and_none_of_it_is_counted_twice(root: Path) -> None:
    files = Directory(root)
    file = opened(files, "a/c/0")
    starts = list(range(0, 10_000, 3))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda start: read(file, start, start + 20), starts))
    file.close()
    assert found == [CONTENT[start : start + 20] for start in starts]
    assert (files.reads.requests, files.reads.bytes) == (len(starts), 20 * len(starts))


def test_a_buffer_of_larger_items_and_more_axes_is_filled_whole(root: Path) -> None:
    file = opened(Directory(root), "a/c/0")
    buffer = memoryview(bytearray(96)).cast("I", (4, 6))
    file.read_into(buffer, 10)
    file.close()
    assert buffer.tobytes() == CONTENT[10:106]


@pytest.mark.parametrize("key", ["b", "a/c/1", "a/zarr.json/0", "a/c/0/", "a", "a/c"])
def test_an_absent_file_a_name_below_a_file_and_a_folder_are_none(root: Path, key: str) -> None:
    assert Directory(root).open(key) is None


@pytest.mark.parametrize("key", ["", "/etc/passwd", "..", "../store", "a/../../x", "a/c/..", "\0", "a\ud800"])
def test_a_key_that_leads_out_or_cannot_be_a_name_is_refused(root: Path, key: str) -> None:
    with pytest.raises(StoreError, match=r"name of a file"):
        Directory(root).open(key)


def test_two_dots_within_a_name_are_a_name(tmp_path: Path) -> None:
    (tmp_path / "a..b").write_bytes(b"1")
    assert read_all(Directory(tmp_path), "a..b") == b"1"


def test_a_file_that_cannot_be_opened_is_not_an_absent_one(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(StoreError, match=r"could not open .*/loop: .*symbolic links; check") as caught:
        Directory(tmp_path).open("loop")
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == errno.ELOOP


@pytest.mark.parametrize("key", ["file", "folder/c/0"])
def test_a_link_to_nothing_is_not_an_absent_file(tmp_path: Path, key: str) -> None:
    (tmp_path / "file").symlink_to("../elsewhere/content")
    (tmp_path / "folder").symlink_to("../elsewhere")
    with pytest.raises(StoreError, match=r"is a link to \.\./elsewhere.*, where nothing is; fetch its content"):
        Directory(tmp_path).open(key)


def test_an_absent_root_is_not_an_empty_one(tmp_path: Path) -> None:
    files = Directory(tmp_path / "unmounted")
    with pytest.raises(MissingError, match=r"there is no folder .*/unmounted; check its path"):
        files.open("zarr.json")
    with pytest.raises(MissingError):
        list(files.names("a/"))


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StoreError, match="pipe is neither a file nor a folder"):
        Directory(tmp_path).open("pipe")


@pytest.mark.parametrize(("start", "end"), [(10_200, 10_241), (10_241, 10_242), (-1, 3)])
def test_a_read_beyond_the_end_names_file_end_and_range(root: Path, start: int, end: int) -> None:
    file = opened(Directory(root), "a/c/0")
    with pytest.raises(StoreError, match=f"a/c/0 ends at byte 10240, but bytes {start} to {end} were expected; "):
        read(file, start, end)
    file.close()


def test_a_file_that_was_cut_while_open_names_where_it_ends_now(tmp_path: Path) -> None:
    (tmp_path / "0").write_bytes(CONTENT)
    file = opened(Directory(tmp_path), "0")
    os.truncate(tmp_path / "0", 1000)
    with pytest.raises(StoreError, match="/0 ends at byte 1000, but bytes 900 to 2000 were expected"):
        read(file, 900, 2000)
    file.close()


def test_a_closed_file_is_not_read_though_its_number_is_in_use_again(root: Path) -> None:
    files = Directory(root)
    closed = opened(files, "a/zarr.json")
    closed.close()
    other = opened(files, "a/c/0")
    with pytest.raises(StoreError, match=r"zarr\.json is closed; open it again"):
        read(closed, 0, 2)
    other.close()


def test_the_version_stays_while_a_file_is_the_same_and_differs_when_it_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "0").write_bytes(b"12")
    files = Directory(tmp_path)
    first, again = opened(files, "0"), opened(files, "0")
    (tmp_path / "new").write_bytes(b"34")
    (tmp_path / "new").replace(tmp_path / "0")
    replaced = opened(files, "0")
    assert first.version == again.version != replaced.version
    for file in (first, again, replaced):
        file.close()


def test_a_part_of_a_file_ends_where_it_was_told_to(root: Path) -> None:
    part = opened(Directory(root), "a/c/0").part("inner", 10, 5).part("innermost", 1, 4)
    assert read(part, 0, part.size) == CONTENT[11:15]
    with pytest.raises(StoreError, match="innermost ends at byte 4, but bytes 3 to 5 were expected"):
        read(part, 3, 5)
    with pytest.raises(StoreError, match="innermost ends at byte 4"):
        part.part("more", 2, 3)
    part.close()


def test_what_was_read_before_and_after_a_part_was_made_is_counted(root: Path) -> None:
    files = Directory(root)
    file = opened(files, "a/c/0")
    read(file, 0, 7)
    part = file.part("inner", 10, 5)
    file.close()
    read(part, 0, 5)
    part.close()
    assert (files.reads.requests, files.reads.bytes) == (2, 12)


def test_no_file_stays_open(root: Path) -> None:
    before = open_files()
    files = Directory(root)
    read_all(files, "a/c/0")
    files.open("a")
    files.open("none")
    opened(files, "a/c/0").part("inner", 10, 5).close()
    assert open_files() == before


def test_names_are_those_of_all_files_below(root: Path) -> None:
    expected = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    assert sorted(Directory(root).names("")) == sorted(expected)


@pytest.mark.parametrize(
    ("prefix", "names"),
    [
        ("a/", ["a/c/0", "a/zarr.json"]),
        ("a", ["a/c/0", "a/zarr.json"]),
        ("a/z", ["a/zarr.json"]),
        ("a/c/0", ["a/c/0"]),
        ("a/c/0/", []),
        ("b/", []),
    ],
)
def test_names_begin_with_the_prefix(root: Path, prefix: str, names: list[str]) -> None:
    assert sorted(Directory(root).names(prefix)) == names


@pytest.mark.parametrize("prefix", ["/etc/", "../", "a/../.."])
def test_a_prefix_that_leads_out_is_refused(root: Path, prefix: str) -> None:
    with pytest.raises(StoreError, match="beginning of a name"):
        list(Directory(root).names(prefix))


def test_names_follow_links_and_refuse_to_go_round(tmp_path: Path, root: Path) -> None:
    (tmp_path / "link").symlink_to(root)
    assert "link/a/c/0" in set(Directory(tmp_path).names(""))
    (tmp_path / "up").symlink_to(tmp_path)
    with pytest.raises(StoreError, match="/up leads back to a folder above it; remove the link"):
        list(Directory(tmp_path).names(""))


def test_a_pickled_directory_reads_the_same_from_another_working_directory(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root.parent)
    files = Directory(Path(root.name))
    read_all(files, "a/zarr.json")
    pickled = pickle.dumps(files)
    monkeypatch.chdir(tmp_path)
    copy = pickle.loads(pickled)  # noqa: S301 (our own)
    assert read_all(copy, "a/zarr.json") == read_all(files, "a/zarr.json") == b"{}"
    assert (copy.reads.requests, files.reads.requests) == (1, 2)


def test_another_process_reads_through_a_pickled_directory(root: Path) -> None:
    code = "import pickle, sys; file = pickle.load(sys.stdin.buffer).open('a/c/0'); print(file.size)"
    done = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(Directory(root)), capture_output=True, check=True
    )
    assert int(done.stdout) == len(CONTENT)


def test_an_announced_stretch_is_read_as_any_other(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(range(200)))
    file = Directory(tmp_path).open("a")
    assert file is not None
    file.announce(10, 20)
    buffer = memoryview(bytearray(20))
    file.read_into(buffer, 10)
    assert bytes(buffer) == bytes(range(10, 30))
    file.close()


def test_what_the_system_has_in_memory_is_at_hand(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(range(200)))
    file = Directory(tmp_path).open("a")
    assert file is not None
    buffer = memoryview(bytearray(20))
    file.read_into(buffer, 0)
    assert file.read_at_hand(buffer, 10) == (sys.platform == "linux")
    assert bytes(buffer)[0] in {0, 10}
    with pytest.raises(StoreError, match="ends at byte 200"):
        file.read_at_hand(buffer, 190)
    file.close()
