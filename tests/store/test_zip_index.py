"""The index of an archive against `zipfile`, which reads every local header, and archives that other tools write."""

import io
import shutil
import struct
import subprocess
import warnings
import zipfile
from collections.abc import Buffer, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puncta.errors import PunctaError, StoreError, UnsupportedError
from puncta.store._zip_end import TAIL_LENGTH, locate_directory
from puncta.store._zip_index import ZipIndex, parse_directory

END = b"PK\5\6"


@dataclass(frozen=True, kw_only=True)
class Member:
    """One member as it is written; its extra field may be another one in the directory, as some tools do."""

    name: str
    content: bytes
    local_extra: bytes
    central_extra: bytes
    comment: bytes
    is_zip64: bool


class Pipe(io.RawIOBase):
    """What cannot go back, so that lengths come after the data."""

    def __init__(self) -> None:
        self.sink = io.BytesIO()

    def writable(self) -> bool:
        return True

    def write(self, data: Buffer) -> int:
        return self.sink.write(data)


def archive(members: Sequence[Member], *, streamed: bool = False, limit: int = 1 << 31, comment: bytes = b"") -> bytes:
    """Return an archive that `zipfile` writes; numbers beyond the limit go to the fields of 64 bits."""
    target: Pipe | io.BytesIO = Pipe() if streamed else io.BytesIO()
    with patch("zipfile.ZIP64_LIMIT", limit), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Duplicate name")
        with zipfile.ZipFile(target, "w") as written:
            written.comment = comment
            for member in members:
                info = zipfile.ZipInfo(member.name)
                info.extra, info.comment, info.file_size = member.local_extra, member.comment, len(member.content)
                with written.open(info, "w", force_zip64=member.is_zip64) as stream:
                    stream.write(member.content)
                info.extra = member.central_extra
    return (target.sink if isinstance(target, Pipe) else target).getvalue()


def simple(**contents: bytes) -> bytes:
    return archive([member(name, content) for name, content in contents.items()])


def member(name: str, content: bytes, *, local_extra: bytes = b"", central_extra: bytes = b"") -> Member:
    return Member(
        name=name,
        content=content,
        local_extra=local_extra,
        central_extra=central_extra,
        comment=b"",
        is_zip64=False,
    )


def extra(*fields: tuple[int, bytes]) -> bytes:
    return b"".join(struct.pack("<2H", kind, len(content)) + content for kind, content in fields)


def index_of(data: bytes) -> ZipIndex:
    span = locate_directory(data[-TAIL_LENGTH:], len(data), name="a.zip")
    return parse_directory(data[span.start : span.start + span.length], span, name="a.zip")


def contents(data: bytes) -> dict[str, bytes]:
    """Return what is in an archive; where the directory tells a start, it must be that of the local header."""
    index = index_of(data)
    found = {}
    for name, entry in index.positions.items():
        start = index.data_start(entry, data[index.header_offset[entry] :])
        assert index.data_offset[entry] in {-1, start}
        found[name] = data[start : start + int(index.size[entry])]
    return found


def expected(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as opened:
        return {name: opened.read(name) for name in opened.NameToInfo if name[-1:] not in {"", "/"}}


NAMES = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12
) | st.sampled_from(["zarr.json", "c/0/0", "group/", "a/b/", "ä/0", "日本", "a\\b"])


def unsigned(max_size: int) -> st.SearchStrategy[bytes]:
    """Return bytes without a signature, which zipfile takes for a record even in a comment."""
    return st.binary(max_size=max_size).filter(lambda data: b"PK" not in data)


FIELDS = st.lists(st.tuples(st.sampled_from([0x5455, 0x7875, 0x000A, 0xCAFE]), unsigned(40)), max_size=2)
EXTRAS = FIELDS.map(lambda fields: extra(*fields))
MEMBERS = st.builds(
    Member,
    name=NAMES,
    content=st.binary(max_size=100),
    local_extra=EXTRAS,
    central_extra=EXTRAS,
    comment=unsigned(10),
    is_zip64=st.booleans(),
)
# Mostly equal extra fields, as most tools write them.
PLAIN_MEMBERS = st.builds(member, NAMES, st.binary(max_size=100))
ARCHIVES = st.builds(
    archive,
    st.lists(MEMBERS | PLAIN_MEMBERS, max_size=8),
    streamed=st.booleans(),
    limit=st.sampled_from([1 << 31, 100, 0]),
    comment=unsigned(30),
)


@given(data=ARCHIVES, before=unsigned(50))
def test_every_member_is_found_where_zipfile_finds_it(data: bytes, before: bytes) -> None:
    assert contents(before + data) == expected(before + data)


@given(contents_=st.dictionaries(NAMES.filter(lambda name: name[-1] != "/"), st.binary(max_size=50), max_size=9))
def test_members_without_extra_fields_need_no_local_header(contents_: dict[str, bytes]) -> None:
    data = archive([member(name, content) for name, content in contents_.items()])
    index = index_of(data)
    starts = {name: int(index.data_offset[entry]) for name, entry in index.positions.items()}
    assert {name: data[start : start + len(contents_[name])] for name, start in starts.items()} == contents_


@pytest.mark.parametrize(
    ("local", "central", "is_known"),
    [
        (b"", b"", True),
        (extra((0xCAFE, b"")), extra((0xCAFE, b"")), True),
        (b"", extra((0x000A, bytes(32))), True),  # 7z: no room for any field is a proof
        (extra((0x5455, bytes(9))), extra((0x5455, bytes(5))), False),  # zip
        (extra((0xD935, bytes(90))), b"", False),  # zipalign
    ],
)
def test_unequal_extra_fields_leave_the_start_to_the_local_header(
    local: bytes, central: bytes, *, is_known: bool
) -> None:
    data = archive([member("a", b"1", local_extra=local, central_extra=central), member("b", b"2")])
    index = index_of(data)
    assert (index.data_offset >= 0).tolist() == [is_known, True]
    assert contents(data) == {"a": b"1", "b": b"2"}


@pytest.mark.parametrize("limit", [5, 50])
def test_zip64_fields_of_sizes_and_offsets_need_no_local_header(limit: int) -> None:
    data = archive([member("a", bytes(60)), member("b", b"1234567890"), member("c", b"0")], limit=limit)
    assert (index_of(data).data_offset >= 0).all()
    assert contents(data) == expected(data)


def test_streamed_members_leave_the_start_to_the_local_header() -> None:
    index = index_of(archive([member("a", b"12"), member("b", b"")], streamed=True))
    assert index.data_offset.tolist() == [-1, -1]


def test_the_lengths_behind_a_streamed_member_are_not_taken_for_an_extra_field() -> None:
    # they take 16 bytes, as much as this field
    streamed = [member("a", b"12", central_extra=extra((0xCAFE, bytes(12))))]
    assert contents(archive(streamed, streamed=True)) == {"a": b"12"}


def test_the_last_member_of_a_name_counts() -> None:
    data = archive([member("a", b"old"), member("b", b"1"), member("a", b"new")])
    assert contents(data) == {"a": b"new", "b": b"1"}


def test_folders_are_no_files() -> None:
    assert contents(simple(**{"a/": b"", "a/0": b"1"})) == {"a/0": b"1"}


def test_an_empty_archive_has_no_members() -> None:
    assert contents(simple()) == {}


def test_names_without_the_flag_are_cp437() -> None:
    data = simple(Caa=b"1").replace(b"Caa", b"\x80\x84\xe1")
    assert list(contents(data)) == list(expected(data)) == ["ÇäB".replace("B", "ß")]


def test_the_unicode_path_of_infozip_replaces_the_name_whose_checksum_it_has() -> None:
    fields = [extra((0x7075, b"\1" + struct.pack("<L", crc) + "ü/日".encode())) for crc in (0xE8B7BE43, 1)]
    data = archive([member("a", b"1", central_extra=fields[0]), member("b", b"2", central_extra=fields[1])])
    assert contents(data) == expected(data) == {"ü/日": b"1", "b": b"2"}


@pytest.mark.parametrize(
    "comment",
    [
        END,
        END * 10,
        END + bytes(18),
        b"see " + simple(other=b"x"),
        (END + bytes(18)) * 40,
        END + struct.pack("<4H2LH", 0, 0, 9, 9, 999, 0, 0),
        END + bytes(65531),
    ],
)
@pytest.mark.parametrize("before", [b"", b"#!/bin/sh\n"])
def test_an_end_record_within_the_comment_is_not_taken_for_the_real_one(comment: bytes, before: bytes) -> None:
    assert contents(before + archive([member("a", b"1")], comment=comment)) == {"a": b"1"}


def test_an_archive_as_the_last_member_is_not_taken_for_the_outer_one() -> None:
    inner = simple(x=b"inner")
    assert contents(simple(a=inner)) == {"a": inner}


@pytest.mark.parametrize("limit", [1 << 31, 5])
def test_an_archive_cut_short_anywhere_is_refused(limit: int) -> None:
    data = archive([member("a", b"123456"), member("b/c", bytes(9))], comment=b"comment", limit=limit)
    for length in range(len(data)):
        with pytest.raises(StoreError, match=r"^a\.zip: .*; it may be incomplete or damaged: fetch it again$"):
            index_of(data[:length])


@pytest.mark.parametrize("limit", [1 << 31, 5])
def test_an_archive_without_its_beginning_is_refused(limit: int) -> None:
    data = archive([member("a", b"123456"), member("b/c", bytes(9))], limit=limit)
    for length in range(1, len(data)):
        with pytest.raises(StoreError, match="fetch it again"):
            index_of(data[length:])


def test_bytes_behind_the_end_are_refused() -> None:
    with pytest.raises(StoreError, match="no end record of a zip archive at the end of its 105 bytes"):
        index_of(simple(a=b"1") + b"more")


@given(data=st.binary(max_size=200) | st.binary(max_size=200).map(lambda data: data + END + bytes(18)))
def test_garbage_is_refused_or_empty(data: bytes) -> None:
    found: dict[str, bytes] = {}
    with suppress(StoreError):
        found = contents(data)
    assert found == {}


@given(
    data=ARCHIVES,
    changes=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_a_damaged_archive_is_refused_or_its_members_lie_within_it(data: bytes, changes: list[tuple[int, int]]) -> None:
    damaged = bytearray(data)
    for at, value in changes:
        damaged[-1 - at % len(data)] = value
    try:
        index = index_of(bytes(damaged))
    except PunctaError:
        return
    assert (index.header_offset >= 0).all()
    assert (index.header_offset + index.size <= len(data)).all()
    assert (np.where(index.data_offset < 0, 0, index.data_offset) + index.size <= index.end_offset).all()


def test_another_number_of_entries_than_the_end_record_says_is_refused() -> None:
    data = bytearray(simple(a=b"1", b=b"2"))
    data[-14:-10] = struct.pack("<2H", 1, 1)
    with pytest.raises(StoreError, match=r"directory has 2 entries, its end record says 1; "):
        index_of(bytes(data))


def test_an_entry_without_its_signature_is_refused() -> None:
    data = simple(a=b"1", b=b"2")
    at = data.rindex(b"PK\1\2")
    with pytest.raises(StoreError, match="entry 1 of its central directory is none"):
        index_of(data[:at] + b"PK\1\3" + data[at + 4 :])


@pytest.mark.parametrize(("length", "message"), [(8, "zip64 field .* too short"), (25, "longer than the place for it")])
def test_a_damaged_zip64_field_is_refused(length: int, message: str) -> None:
    data = bytearray(archive([member("a", b"1"), member("b", b"2")], limit=0))
    at = data.rindex(b"b\1\0") + 3
    data[at : at + 2] = length.to_bytes(2, "little")
    with pytest.raises(StoreError, match=message):
        index_of(bytes(data))


def test_members_beyond_the_archive_are_counted_with_an_example() -> None:
    data = simple(a=b"1", b=b"2", c=b"3")
    for name in (b"b", b"c"):
        at = data.rindex(name) - 46
        data = data[: at + 20] + struct.pack("<2L", 9999, 9999) + data[at + 28 :]
    with pytest.raises(StoreError, match=r"2 of 3 members lie outside of the archive \(first: 'b'\); "):
        index_of(data)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"PK\3\4", b"PK\3\5", "there is no header of 'a' at byte 0"),
        (b"a12", b"b12", "the header at byte 0 is of 'b', not of 'a'"),
        (b"\x14\0\0\0\0", b"\x14\0\0\0\x08", "disagree on how 'a' is compressed"),
    ],
)
def test_a_local_header_must_be_of_the_member(old: bytes, new: bytes, message: str) -> None:
    data = archive([member("a", b"12")]).replace(old, new, 1)
    with pytest.raises(StoreError, match=message):
        index_of(data).data_start(0, data)


def test_a_member_that_reaches_into_the_next_is_refused() -> None:
    data = bytearray(archive([member("a", b"12", local_extra=extra((0xCAFE, bytes(8)))), member("b", b"3")]))
    data[28:30] = struct.pack("<H", 13)
    with pytest.raises(StoreError, match="'a' reaches into what lies behind it"):
        index_of(bytes(data)).data_start(0, bytes(data))


def test_a_header_cut_short_is_refused() -> None:
    data = archive([member("abc", b"12")])
    with pytest.raises(StoreError, match="no header of 'abc'"):
        index_of(data).data_start(0, data[:32])


@pytest.mark.parametrize(
    ("method", "word"), [(zipfile.ZIP_DEFLATED, "DEFLATE"), (zipfile.ZIP_BZIP2, "BZIP2"), (zipfile.ZIP_LZMA, "LZMA")]
)
def test_compressed_members_are_counted_and_refused(method: int, word: str) -> None:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as written:
        written.mkdir("a")
        written.writestr("zarr.json", b"{}")
        written.writestr("a/c/0", bytes(100), compress_type=method)
        written.writestr("a/c/1", bytes(100), compress_type=method)
    index = index_of(target.getvalue())
    index.require_stored(index.positions["zarr.json"])
    assert index.compressed() == (2, "a/c/0")
    with pytest.raises(UnsupportedError, match=rf"2 of 3 members are compressed \(first: 'a/c/0', {word}\); unzip the"):
        index.require_stored(index.positions["a/c/1"])


def test_encrypted_members_are_refused() -> None:
    data = simple(a=b"1", b=b"2")
    at = data.rindex(b"PK\1\2")
    index = index_of(data[: at + 8] + b"\1" + data[at + 9 :])
    index.require_stored(index.positions["a"])
    with pytest.raises(UnsupportedError, match=r"1 of 2 members are encrypted \(first: 'b'\); decrypt"):
        index.require_stored(index.positions["b"])


def test_a_part_of_a_split_archive_is_refused() -> None:
    data = bytearray(simple(a=b"1"))
    data[-18:-14] = struct.pack("<2H", 2, 1)
    with pytest.raises(UnsupportedError, match="goes over several files; join them"):
        index_of(bytes(data))


def test_a_stored_member_with_two_lengths_is_refused() -> None:
    data = simple(a=b"12")
    at = data.index(b"PK\1\2")
    with pytest.raises(StoreError, match=r"1 of 1 members have two lengths \(first: 'a'\)"):
        index_of(data[: at + 24] + b"\1" + data[at + 25 :])


@pytest.fixture(scope="module")
def many() -> bytes:
    """Return an archive of more members than 16 bits count."""
    return archive([member(f"c/{number}", number.to_bytes(4, "big")) for number in range(65_600)])


@pytest.mark.parametrize("before", [b"", b"prepended"])
def test_more_members_than_16_bits_count_are_found(many: bytes, before: bytes) -> None:
    data = before + many
    index = index_of(data)
    starts = index.data_offset.tolist()
    assert len(index.positions) == 65_600
    assert all(data[starts[number] : starts[number] + 4] == number.to_bytes(4, "big") for number in range(65_600))


def test_a_count_that_ran_over_16_bits_is_understood(many: bytes) -> None:
    end = bytearray(many[-22:])
    end[8:12] = struct.pack("<2H", 64, 64)
    data = many[: -22 - 20 - 56] + bytes(end)
    assert len(index_of(data).positions) == 65_600


@pytest.mark.parametrize(
    "command",
    [
        ["zip", "-q", "-0", "-r", "../made.zip", "."],
        ["zip", "-q", "-0", "-X", "-r", "../made.zip", "."],
        ["sh", "-c", "zip -q -0 -r - . | cat > ../made.zip"],
        ["jar", "--create", "--no-compress", "--file", "../made.zip", "."],
        ["7z", "a", "-bd", "-mx0", "../made.zip", "."],
        ["bsdtar", "-a", "-c", "-f", "../made.zip", "--options", "zip:compression=store", "."],
    ],
    ids=["zip", "zip without extra fields", "zip streamed", "jar", "7z", "bsdtar"],
)
def test_archives_of_other_tools_are_read(command: list[str], tmp_path: Path) -> None:
    if not shutil.which(command[0]):
        pytest.skip(f"{command[0]} is not installed")
    (tmp_path / "tree" / "c").mkdir(parents=True)
    (tmp_path / "tree" / "c" / "0").write_bytes(bytes(range(256)) * 20)
    (tmp_path / "tree" / "größe").write_bytes(b"1")
    (tmp_path / "tree" / "zarr.json").write_bytes(b"{}")
    (tmp_path / "tree" / "empty").write_bytes(b"")
    subprocess.run(command, cwd=tmp_path / "tree", check=True, stdout=subprocess.DEVNULL)
    data = (tmp_path / "made.zip").read_bytes()
    assert contents(data) == expected(data)
    # zip writes UTF-8 without saying so, and zipfile and we read that as cp437
    assert {"c/0", "zarr.json", "empty"} <= {name.removeprefix("./") for name in contents(data)}
