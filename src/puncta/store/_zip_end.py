"""Where the central directory of a zip archive lies, from the records at the end of the archive. Pure.

Follows PKWARE's APPNOTE.TXT 6.3.10, sections 4.3.14 to 4.3.16.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from puncta.errors import StoreError, UnsupportedError

_END: Final = struct.Struct("<4s4H2LH")
_END_SIGNATURE: Final = b"PK\5\6"
_END64: Final = struct.Struct("<4sQ2H2L4Q")
_END64_SIGNATURE: Final = b"PK\6\6"
_LOCATOR: Final = struct.Struct("<4sLQL")
_LOCATOR_SIGNATURE: Final = b"PK\6\7"
_LONGEST_COMMENT: Final = 0xFFFF

ENTRY_SIGNATURE: Final = b"PK\1\2"
"""How an entry of the central directory begins."""

ENTRY_LENGTH: Final = 46
"""Bytes of such an entry before its name."""

TAIL_LENGTH: Final = _LONGEST_COMMENT + _END.size + _LOCATOR.size + _END64.size
"""Bytes from the end of an archive in which its end records surely are; a little more than 64 KiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectorySpan:
    """Where the central directory of an archive lies."""

    start: int
    """Its offset in the file."""

    length: int
    """Its length in bytes."""

    shift: int
    """Bytes before the archive in the file that its own offsets do not count, such as a program that unpacks it."""

    count: int
    """How many entries it has; where `is_zip64` is not set, modulo 65,536."""

    is_zip64: bool
    """Whether the record that says so is the one of 64 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _EndRecord:
    """What an end record says, and where it is."""

    at: int
    """Where the central directory has to end: the offset of this record, or of the zip64 one before it."""

    is_split: bool
    """Whether the archive goes over several files."""

    count: int
    length: int
    offset: int
    is_zip64: bool

    @property
    def shift(self) -> int:
        return self.at - self.length - self.offset


def locate_directory(tail: bytes | memoryview, size: int, *, name: str) -> DirectorySpan:
    """Return where the central directory of an archive lies.

    A signature within the comment of the archive, or of an archive within the archive, is not taken for the end record:
    that has a comment that reaches to the end of the file exactly, and a directory before it.

    Args:
        tail: The last bytes of the file: `TAIL_LENGTH` of them, or all where it has fewer.
        size: Length of the whole file in bytes.
        name: Of the archive, for messages.

    Raises:
        StoreError: If there is no end record, or no directory where it says.
        UnsupportedError: If the archive goes over several files.

    """
    data = bytes(tail)
    records = list(_end_records(data, size - len(data)))
    if not records:
        raise damaged(name, f"no end record of a zip archive at the end of its {size} bytes")
    fitting = [record for record in records if _has_directory(record, data, size - len(data))]
    # a comment can hold a whole archive; the one that leaves the least of the file unexplained is the one meant
    record = min(fitting or records, key=lambda record: record.shift)
    if record.is_split:
        raise UnsupportedError(f"{name} is one part of an archive that goes over several files; join them into one")
    if not fitting:
        what = f"no central directory of {record.length} bytes at byte {record.offset}, where its end record says"
        raise damaged(name, what)
    return DirectorySpan(
        start=record.at - record.length,
        length=record.length,
        shift=record.shift,
        count=record.count,
        is_zip64=record.is_zip64,
    )


def damaged(name: str, what: str) -> StoreError:
    """Return the error of an archive that contradicts itself."""
    return StoreError(f"{name}: {what}; it may be incomplete or damaged: fetch it again")


def _end_records(tail: bytes, tail_start: int) -> Iterator[_EndRecord]:
    """Yield every end record whose comment reaches to the end of the file, the last one first."""
    at = len(tail)
    while (at := tail.rfind(_END_SIGNATURE, 0, at + len(_END_SIGNATURE) - 1)) >= 0:
        if at + _END.size > len(tail):
            continue
        _, disk, first_disk, here, count, length, offset, comment = _END.unpack_from(tail, at)
        if at + _END.size + comment == len(tail):
            plain = _EndRecord(
                at=tail_start + at,
                is_split=bool(disk or first_disk) or here != count,
                count=count,
                length=length,
                offset=offset,
                is_zip64=False,
            )
            yield _end_record64(tail, at - _LOCATOR.size, tail_start) or plain


def _end_record64(tail: bytes, locator: int, tail_start: int) -> _EndRecord | None:
    """Return the zip64 end record that a locator leads to, which lies at a place in the tail; None where none does."""
    if locator < 0 or tail[locator : locator + 4] != _LOCATOR_SIGNATURE:
        return None
    _, _, offset, disks = _LOCATOR.unpack_from(tail, locator)
    # right before its locator, which an offset that counts no prepended bytes misses; a longer one where it says
    for at in (locator - _END64.size, offset - tail_start):
        if 0 <= at <= locator - _END64.size and tail[at : at + 4] == _END64_SIGNATURE:
            _, _, _, _, disk, first_disk, here, count, length, start = _END64.unpack_from(tail, at)
            return _EndRecord(
                at=tail_start + at,
                is_split=bool(disk or first_disk) or disks > 1 or here != count,
                count=count,
                length=length,
                offset=start,
                is_zip64=True,
            )
    return None


def _has_directory(record: _EndRecord, tail: bytes, tail_start: int) -> bool:
    """Whether a central directory can lie where an end record says, as far as the tail shows it."""
    if record.shift < 0 or record.count * ENTRY_LENGTH > record.length:
        return False
    start = record.at - record.length - tail_start
    return start < 0 or record.length == 0 or tail[start : start + 4] == ENTRY_SIGNATURE
