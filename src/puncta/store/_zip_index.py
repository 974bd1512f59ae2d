"""Where the members of a zip archive lie, from its central directory and its local headers. Pure.

Follows PKWARE's APPNOTE.TXT 6.3.10, sections 4.3.7, 4.3.12, 4.4 and 4.5. Nothing here is trusted until it agrees with
something else, because a wrong offset would hand out the bytes of another member.
"""

import struct
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from puncta.errors import UnsupportedError
from puncta.store._zip_end import ENTRY_LENGTH, ENTRY_SIGNATURE, DirectorySpan, damaged

_LOCAL: Final = struct.Struct("<4s2xHH16x2H")
_LOCAL_LENGTH: Final = _LOCAL.size
_LOCAL_SIGNATURE: Final = b"PK\3\4"

# Of an entry of the central directory, before its name, extra field and comment.
_ENTRY: Final = np.dtype(
    [
        ("signature", "S4"),
        ("made_by", "<u2"),
        ("needs", "<u2"),
        ("flags", "<u2"),
        ("method", "<u2"),
        ("time", "<u2"),
        ("date", "<u2"),
        ("crc", "<u4"),
        ("packed", "<u4"),
        ("size", "<u4"),
        ("name_length", "<u2"),
        ("extra_length", "<u2"),
        ("comment_length", "<u2"),
        ("disk", "<u2"),
        ("internal", "<u2"),
        ("external", "<u4"),
        ("offset", "<u4"),
    ]
)
_LENGTHS: Final = 28
"""Offset in it of the lengths of those three."""

_EXTRA: Final = struct.Struct("<2H")
_IN_ZIP64: Final = 0xFFFFFFFF
_ZIP64: Final = 0x0001
_UNICODE_PATH: Final = 0x7075
_LOCAL_ZIP64_LENGTH: Final = 20
"""Length of the zip64 field of a local header, which always holds both sizes."""

# Bits of the flags: encrypted, patch data, strongly encrypted. The bytes of such members are not those of the file.
_SEALED: Final = 0x0001 | 0x0020 | 0x0040
_STREAMED: Final = 0x0008
_UTF8: Final = 0x0800

_METHODS: Final = {8: "DEFLATE", 9: "DEFLATE64", 12: "BZIP2", 14: "LZMA", 20: "ZSTD", 93: "ZSTD", 95: "XZ"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ZipIndex:
    """Where the members of an archive lie, one entry for each that the central directory has, in its order."""

    positions: dict[str, int]
    """Entry of each file by name: the last one of a name counts. Folders (names that end with `/`) are left out."""

    header_offset: NDArray[np.int64]
    """Offset of the local header, shape (entries,), in bytes from the start of the file."""

    size: NDArray[np.int64]
    """Length of the data as it lies in the archive, shape (entries,)."""

    data_offset: NDArray[np.int64]
    """Offset of the data, shape (entries,); -1 where only the local header says. Filled in by who reads that."""

    end_offset: NDArray[np.int64]
    """Where the next local header or the central directory begins, shape (entries,): the data ends before."""

    method: NDArray[np.uint16]
    """Number of the compression, shape (entries,); 0 is none."""

    flags: NDArray[np.uint16]
    """The general purpose bits, shape (entries,)."""

    name: str
    """Of the archive, for messages."""

    directory: bytes = field(repr=False)
    """The central directory."""

    raw_names: NDArray[np.int64] = field(repr=False)
    """Start and end of each name in it, shape (entries, 2)."""

    def raw_name(self, entry: int) -> bytes:
        """Return the name of an entry as it is written in the archive."""
        start, end = self.raw_names[entry].tolist()
        return self.directory[start:end]

    def compressed(self) -> tuple[int, str]:
        """Return how many files are compressed, and the name of the first; it is empty where none is."""
        return self._first(self.method != 0)

    def require_stored(self, entry: int) -> None:
        """Check that the bytes of an entry are those of the file.

        Raises:
            UnsupportedError: If they are compressed or encrypted.

        """
        if self.flags[entry] & _SEALED:
            count, first = self._first((self.flags & _SEALED) != 0)
            raise UnsupportedError(
                f"{self.name}: {count} of {len(self.positions)} members are encrypted (first: {first!r}); "
                "decrypt the archive and store its members without compression"
            )
        if self.method[entry]:
            count, first = self.compressed()
            number = int(self.method[self.positions[first]])
            raise UnsupportedError(
                f"{self.name}: {count} of {len(self.positions)} members are compressed "
                f"(first: {first!r}, {_METHODS.get(number, f'method {number}')}); "
                "unzip the archive and give the folder, or store its members without compression"
            )

    def shortest_header(self, entry: int) -> int:
        """Return how long the local header of an entry is without its extra field: what `data_start` needs."""
        start, end = self.raw_names[entry].tolist()
        return _LOCAL_LENGTH + int(end - start)

    def longest_header(self, entry: int) -> int:
        """Return how long the local header of an entry can be, from what lies behind it."""
        return int(self.end_offset[entry] - self.header_offset[entry] - self.size[entry])

    def data_start(self, entry: int, header: bytes | memoryview) -> int:
        """Return the offset of an entry's data from its local header.

        Args:
            entry: Which one.
            header: The local header, from its offset on; at least `shortest_header` bytes.

        Raises:
            StoreError: If the header is none, or of another member, or leaves too little room for the data.

        """
        raw = self.raw_name(entry)
        at = int(self.header_offset[entry])
        if len(header) < self.shortest_header(entry) or bytes(header[:4]) != _LOCAL_SIGNATURE:
            raise damaged(self.name, f"there is no header of {_readable(raw)!r} at byte {at}")
        _, flags, method, name_length, extra_length = _LOCAL.unpack_from(header)
        found = bytes(header[_LOCAL_LENGTH : _LOCAL_LENGTH + name_length])
        if found != raw:
            raise damaged(self.name, f"the header at byte {at} is of {_readable(found)!r}, not of {_readable(raw)!r}")
        if method != self.method[entry] or flags & _SEALED != self.flags[entry] & _SEALED:
            raise damaged(self.name, f"the header and the directory disagree on how {_readable(raw)!r} is compressed")
        start = at + _LOCAL_LENGTH + int(name_length) + int(extra_length)
        if start + self.size[entry] > self.end_offset[entry]:
            raise damaged(self.name, f"{_readable(raw)!r} reaches into what lies behind it")
        return start

    def _first(self, chosen: NDArray[np.bool_]) -> tuple[int, str]:
        """Return how many of the files are chosen, and the name of the first in the archive."""
        names = [name for name, entry in self.positions.items() if chosen[entry]]
        return len(names), names[0] if names else ""


def parse_directory(directory: bytes | memoryview, span: DirectorySpan, *, name: str) -> ZipIndex:
    """Return where all members of an archive lie.

    Args:
        directory: The bytes that the span names.
        span: Where they lie.
        name: Of the archive, for messages.

    Raises:
        StoreError: If the directory is cut short, has another number of entries than the end record says, or names
            members that lie outside of the archive.

    """
    data = bytes(directory)
    entries, raw_names = _entries(data, span, name)
    names = _names(data, raw_names, entries, name)
    size, packed, header, local_extra = _widened(data, raw_names, entries, name)
    header += span.shift
    shortest = header + _LOCAL_LENGTH + entries["name_length"]
    # compared one by one first: a sum of two numbers from a damaged archive can overflow
    outside = (header > span.start) | (packed > span.start) | (shortest + packed > span.start)
    _require_none(outside, "lie outside of the archive", names=names, name=name)
    mismatch = (entries["method"] == 0) & ((entries["flags"] & _SEALED) == 0) & (size != packed)
    _require_none(mismatch, "have two lengths", names=names, name=name)
    ends = np.unique(np.append(header, span.start))
    end_offset = ends[np.searchsorted(ends, header, side="right")]
    return ZipIndex(
        positions={member: entry for entry, member in enumerate(names) if member[-1:] not in {"", "/"}},
        header_offset=header,
        size=packed,
        data_offset=_known_starts(end_offset - packed, shortest, local_extra, flags=entries["flags"]),
        end_offset=end_offset,
        method=entries["method"].copy(),
        flags=entries["flags"].copy(),
        name=name,
        directory=data,
        raw_names=raw_names,
    )


def _entries(data: bytes, span: DirectorySpan, name: str) -> tuple[NDArray[np.void], NDArray[np.int64]]:
    """Return the fixed fields of every entry, and start and end of its name, shape (entries, 2)."""
    starts = np.array(_entry_starts(data, name), np.int64)
    if len(data) < ENTRY_LENGTH:
        entries = np.empty(0, _ENTRY)
    else:
        windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(data, np.uint8), ENTRY_LENGTH)
        entries = windows[starts].view(_ENTRY)[:, 0]
    (wrong,) = np.nonzero(entries["signature"] != ENTRY_SIGNATURE)
    if wrong.size:
        raise damaged(name, f"entry {wrong[0]} of its central directory is none")
    found = len(starts) if span.is_zip64 else len(starts) % (1 << 16)
    if found != span.count:
        raise damaged(name, f"its central directory has {len(starts)} entries, its end record says {span.count}")
    name_start = starts + ENTRY_LENGTH
    return entries, np.stack([name_start, name_start + entries["name_length"]], axis=1)


def _entry_starts(data: bytes, name: str) -> list[int]:
    """Return where each entry begins; the only thing that must be found one by one."""
    starts: list[int] = []
    at, lengths = 0, struct.Struct("<3H").unpack_from
    try:
        while at < len(data):
            starts.append(at)
            of_name, of_extra, of_comment = lengths(data, at + _LENGTHS)
            at += ENTRY_LENGTH + of_name + of_extra + of_comment
    except struct.error:
        at = len(data) + 1
    if at > len(data):
        raise damaged(name, f"entry {len(starts) - 1} of its central directory is cut short")
    return starts


def _names(data: bytes, raw_names: NDArray[np.int64], entries: NDArray[np.void], name: str) -> list[str]:
    """Return the name of every entry, as `zipfile` reads it."""
    is_utf8 = ((entries["flags"] & _UTF8) != 0).tolist()
    try:
        names = [
            _decoded(data[start:end], utf8) for (start, end), utf8 in zip(raw_names.tolist(), is_utf8, strict=True)
        ]
        has_extra = np.flatnonzero(entries["extra_length"]).tolist() if b"up" in data else []
        for entry in has_extra:
            start, end = raw_names[entry].tolist()
            path = _extra_field(data, end, int(entries["extra_length"][entry]), kind=_UNICODE_PATH, name=name)
            # the name that it replaces is named by its checksum, since a tool that renames may not know this field
            if path is not None and path[:5] == b"\1" + crc32(data[start:end]).to_bytes(4, "little"):
                names[entry] = _decoded(path[5:], is_utf8=True) or names[entry]
    except UnicodeDecodeError as error:
        raise damaged(name, f"the name of a member is no text ({error})") from error
    return names


def _decoded(raw: bytes, is_utf8: bool) -> str:
    text = raw.decode("utf-8" if is_utf8 or raw.isascii() else "cp437")
    return text.partition("\0")[0]


def _extra_field(data: bytes, start: int, length: int, *, kind: int, name: str) -> bytes | None:
    """Return the content of one kind of field of an entry's extra data; None where it has none."""
    at, end = start, start + length
    while at + _EXTRA.size <= end:
        found, size = _EXTRA.unpack_from(data, at)
        at += _EXTRA.size + size
        if at > end:
            raise damaged(name, "the extra field of a member is longer than the place for it")
        if found == kind:
            return data[at - size : at]
    return None


def _widened(
    data: bytes, raw_names: NDArray[np.int64], entries: NDArray[np.void], name: str
) -> tuple[NDArray[np.int64], ...]:
    """Return size, size in the archive, header offset, and the length that the local extra field should have.

    A number that does not fit into 32 bits stands in a zip64 field. That of the local header is another one: it has
    both sizes, or is not there.
    """
    size, packed, header, extra = (
        entries[column].astype(np.int64) for column in ("size", "packed", "offset", "extra_length")
    )
    wide = ((size == _IN_ZIP64) | (packed == _IN_ZIP64) | (header == _IN_ZIP64)) & (extra > 0)
    for entry in np.flatnonzero(wide).tolist():
        content = _extra_field(data, int(raw_names[entry, 1]), int(extra[entry]), kind=_ZIP64, name=name)
        if content is None:
            continue  # one byte less than 4 GiB needs none
        columns = [column for column in (size, packed, header) if column[entry] == _IN_ZIP64]
        if len(content) < 8 * len(columns):
            raise damaged(name, "the zip64 field of a member is too short")
        has_sizes = size[entry] == packed[entry] == _IN_ZIP64
        for column, value in zip(columns, struct.unpack_from(f"<{len(columns)}Q", content), strict=True):
            column[entry] = min(value, np.iinfo(np.int64).max)
        extra[entry] += (_LOCAL_ZIP64_LENGTH if has_sizes else 0) - _EXTRA.size - len(content)
    return size, packed, header, extra


def _known_starts(
    latest: NDArray[np.int64], shortest: NDArray[np.int64], extra: NDArray[np.int64], *, flags: NDArray[np.uint16]
) -> NDArray[np.int64]:
    """Return where the data of each entry starts as far as the directory can prove it, and -1 elsewhere.

    Args:
        latest: Where it starts if nothing lies between it and what follows.
        shortest: Where it starts if the local header has no extra field.
        extra: Length of that field, were it as in the directory.
        flags: The general purpose bits.

    """
    between = latest - shortest
    # No room is a proof. Room for just the field that the directory has is as good as one: else the local one would
    # have to be shorter by exactly as much as lies unused behind the data. Some tools (zip, 7z) write unequal ones.
    is_known = ((flags & _STREAMED) == 0) & ((between == 0) | (between == extra))
    return np.where(is_known, latest, -1)


def _require_none(wrong: NDArray[np.bool_], what: str, *, names: list[str], name: str) -> None:
    (entries,) = np.nonzero(wrong)
    if entries.size:
        raise damaged(name, f"{entries.size} of {len(names)} members {what} (first: {names[entries[0]]!r})")


def _readable(raw: bytes) -> str:
    return raw.decode(errors="backslashreplace")
