"""The part files of one copy, opened as far as they can be; damage is noted with its file and never raised."""

import json
import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from puncta.spec._problem import Problem, ProblemKind

DAMAGE = (pa.ArrowException, OSError, ValueError, KeyError)
"""What pyarrow raises for bytes that are not, or no longer, a Parquet file."""

# Neighbours along all axes but the last lie in other parts: so many open files serve the tiles of a coarser one.
_OPEN_FILES = 16

_PART = re.compile(r"part\.(\d+)\.parquet")


class Tally:
    """Counts one sort of mistake in many rows or row groups, and keeps one example of each."""

    def __init__(self) -> None:
        """Start with none."""
        self._found: dict[tuple[str, str, ProblemKind], tuple[int, str]] = {}

    def add(self, loc: str, kind: ProblemKind, words: str, *, count: int, example: str) -> None:
        """Count so many more mistakes in a file; the first example stays."""
        before, first = self._found.get((loc, words, kind), (0, example))
        self._found[loc, words, kind] = (before + count, first)

    def problems(self) -> list[Problem]:
        """Return one problem for each file and sort of mistake."""
        return [
            Problem(loc, f"{count} {words} (first: {example})", kind)
            for (loc, words, kind), (count, example) in self._found.items()
        ]


class Parts(Protocol):
    """The rows of one copy, in groups (row groups, or chunks) that lie in parts (files, or shards)."""

    @property
    def loc(self) -> str:
        """Where the copy is, below the element."""

    @property
    def starts(self) -> NDArray[np.int64]:
        """First group of each part, then their number."""

    @property
    def counts(self) -> NDArray[np.int64]:
        """Rows of each group; 0 where a part cannot be read."""

    @property
    def is_whole(self) -> bool:
        """Whether every part is usable."""

    def part_of(self, group: int) -> int:
        """Return the part that holds a group."""

    def file_loc(self, part: int) -> str:
        """Return where a part is, below the element."""

    def groups(self) -> NDArray[np.int64]:
        """Return the groups that hold rows, and those of which it cannot be known."""

    def read(self, groups: Sequence[int], columns: Sequence[str] | None = None) -> pa.Table | None:
        """Return the rows of some groups of one part; None where the part is not usable."""

    def close(self) -> None:
        """Close the files."""


@dataclass(slots=True, kw_only=True)
class FileParts:
    """The part files of one copy."""

    folder: Path
    loc: str
    """The folder, below the element."""
    starts: NDArray[np.int64]
    """First row group of each part, then their number."""
    counts: NDArray[np.int64]
    """Rows of each row group, by the footers; 0 where a part cannot be read."""
    is_usable: NDArray[np.bool_]
    """Whether each part can be read and is what the index says."""
    damage: list[Problem]
    """Takes what turns out damaged on reading."""
    _open: OrderedDict[int, pq.ParquetFile] = field(default_factory=OrderedDict)

    @property
    def is_whole(self) -> bool:
        """Whether every part is usable."""
        return bool(self.is_usable.all())

    def part_of(self, group: int) -> int:
        """Return the part that holds a row group."""
        return int(np.searchsorted(self.starts, group, side="right")) - 1

    def file_loc(self, part: int) -> str:
        """Return the file of a part, below the element."""
        return f"{self.loc}/part.{part}.parquet"

    def groups(self) -> NDArray[np.int64]:
        """Return the row groups that hold rows, and those of which it cannot be known."""
        is_unknown = np.repeat(~self.is_usable, np.diff(self.starts))
        return np.flatnonzero((self.counts > 0) | is_unknown)

    def read(self, groups: Sequence[int], columns: Sequence[str] | None = None) -> pa.Table | None:
        """Return the rows of some row groups of one part; None where the part is not usable."""
        part = self.part_of(groups[0])
        if not self.is_usable[part]:
            return None
        local = [group - int(self.starts[part]) for group in groups]
        try:
            return self._file(part).read_row_groups(local, columns=columns, use_threads=False)
        except DAMAGE as error:
            self.is_usable[part] = False
            message = f"its rows cannot be read: {_brief(error)}"
            self.damage.append(Problem(self.file_loc(part), message, "mismatch"))
            return None

    def close(self) -> None:
        """Close the files."""
        while self._open:
            self._open.popitem()[1].close()

    def _file(self, part: int) -> pq.ParquetFile:
        if part not in self._open:
            if len(self._open) >= _OPEN_FILES:
                self._open.popitem(last=False)[1].close()
            # pre_buffer would hold a whole row group of encoded bytes twice
            self._open[part] = pq.ParquetFile(self.folder / f"part.{part}.parquet", pre_buffer=False)
        self._open.move_to_end(part)
        return self._open[part]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the index says of the part files of one copy."""

    starts: NDArray[np.int64] | None
    """First row group of each part, then their number; None where the index does not say."""
    counts: NDArray[np.int64] | None
    """Rows of each row group; None where the index does not say."""
    source: str
    """The array that says it."""


def open_parts(
    element: Path, loc: str, expected: Expected, schema: pa.Schema | None, problems: list[Problem]
) -> FileParts:
    """Look at the footers of all parts of a copy.

    Args:
        element: Folder of the element.
        loc: Folder of the copy, below the element.
        expected: What the index says.
        schema: Schema that all files of the element have; None where none could be read.
        problems: Takes what is wrong, here and later on reading.

    """
    names = _names(element / loc)
    numbers = sorted(names)
    n_parts = len(numbers) if expected.starts is None else len(expected.starts) - 1
    problems += [
        Problem(f"{loc}/{names[number]}", f"the index knows {n_parts} parts", "unexpected")
        for number in numbers
        if number >= n_parts
    ]
    found: list[NDArray[np.int64]] = []
    usable = np.zeros(n_parts, dtype=bool)
    for part in range(n_parts):
        file_loc = f"{loc}/part.{part}.parquet"
        own, counts, wrong = _footer(element, file_loc)
        if own is not None and counts is not None:
            wrong += [*_other_schema(file_loc, own, schema), *_other_counts(file_loc, counts, part, expected)]
            problems += _other_pandas(file_loc, own)
        usable[part] = not wrong
        problems += wrong
        planned = 0 if expected.starts is None else int(expected.starts[part + 1] - expected.starts[part])
        found.append(counts if counts is not None and usable[part] else np.zeros(planned, dtype=np.int64))
    starts = np.concatenate([[0], np.cumsum([len(counts) for counts in found])]).astype(np.int64)
    return FileParts(
        folder=element / loc,
        loc=loc,
        starts=starts,
        counts=np.concatenate([*found, np.zeros(0, dtype=np.int64)]),
        is_usable=usable,
        damage=problems,
    )


def schema_of(element: Path, loc: str) -> pa.Schema | None:
    """Return the schema that most of the first parts of a copy have; None where no footer can be read."""
    schemas: list[pa.Schema] = []
    for _, name in sorted(_names(element / loc).items())[:3]:
        try:
            schemas.append(pq.read_schema(element / loc / name))
        except DAMAGE:
            continue
    return max(schemas, key=lambda one: sum(one.equals(other) for other in schemas), default=None)


def first_dictionary(element: Path, loc: str, column: str) -> list[str] | None:
    """Return the values of a dictionary column in the first row group that has rows; None where there is none."""
    for _, name in sorted(_names(element / loc).items()):
        try:
            with pq.ParquetFile(element / loc / name, pre_buffer=False) as file:
                counts = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
                group = next((group for group, count in enumerate(counts) if count), None)
                if group is None or not pa.types.is_dictionary(file.schema_arrow.field(column).type):
                    continue
                chunk = file.read_row_group(group, columns=[column], use_threads=False).column(column).chunk(0)
                return [str(value) for value in chunk.dictionary.to_pylist()]
        except DAMAGE:
            continue
    return None


def unreadable_files(element: Path, loc: str) -> list[Problem]:
    """Return the files of a folder, whatever they are called, whose footers cannot be read."""
    problems = []
    for path in sorted((element / loc).glob("*.parquet")):
        try:
            pq.read_metadata(path)
        except DAMAGE as error:
            message = f"not a Parquet file that can be read: {_brief(error)}"
            problems.append(Problem(f"{loc}/{path.name}", message, "mismatch"))
    return problems


def _names(folder: Path) -> dict[int, str]:
    """Return the part files of a folder by their number: in a listing `part.10` stands before `part.2` (P7)."""
    try:
        matches = [_PART.fullmatch(path.name) for path in folder.iterdir()]
    except OSError:
        return {}
    return {int(match[1]): match[0] for match in matches if match}


def _footer(element: Path, loc: str) -> tuple[pa.Schema | None, NDArray[np.int64] | None, list[Problem]]:
    """Return the schema of a part file and the rows of each row group; neither, and why, where it cannot be read."""
    path = element / loc
    if not path.exists():
        return None, None, [Problem(loc, "this part file is not there", "missing")]
    try:
        with pq.ParquetFile(path, pre_buffer=False) as file:
            metadata, own = file.metadata, file.schema_arrow
            groups = range(metadata.num_row_groups)
            counts = np.asarray([metadata.row_group(group).num_rows for group in groups], dtype=np.int64)
    except DAMAGE as error:
        return None, None, [Problem(loc, f"not a Parquet file that can be read: {_brief(error)}", "mismatch")]
    return own, counts, []


def _other_schema(loc: str, own: pa.Schema, schema: pa.Schema | None) -> list[Problem]:
    if schema is None or own.equals(schema):
        return []
    # names and types, one by one: two whole schemas would hide the difference
    here, there = ([f"{one.name}: {one.type}" for one in fields] for fields in (own, schema))
    differing = sorted(set(here) ^ set(there)) or ["the order of the columns"]
    return [Problem(loc, f"its schema is not that of the other parts: {', '.join(differing)}", "mismatch")]


def _other_pandas(loc: str, own: pa.Schema) -> list[Problem]:
    """Old readers take the categorical columns from this block (P8)."""
    text = (own.metadata or {}).get(b"pandas")
    if text is None:
        return [Problem(loc, "it has no pandas metadata, so readers do not see its categories", "missing")]
    try:
        columns = [column["name"] for column in json.loads(text)["columns"]]
    except (ValueError, KeyError, TypeError):
        return [Problem(loc, "its pandas metadata is not readable", "mismatch")]
    absent = [name for name in own.names if name not in columns]
    if not absent:
        return []
    return [Problem(loc, f"its pandas metadata lacks {len(absent)} columns (first: {absent[0]!r})", "mismatch")]


def _other_counts(loc: str, counts: NDArray[np.int64], part: int, expected: Expected) -> list[Problem]:
    if expected.starts is None:
        return []
    first, end = int(expected.starts[part]), int(expected.starts[part + 1])
    if len(counts) != end - first:
        return [Problem(loc, f"{len(counts)} row groups, but the index says {end - first}", "mismatch")]
    if expected.counts is None:
        return []
    other = np.flatnonzero(counts != expected.counts[first:end])
    if not len(other):
        return []
    at = int(other[0])
    example = f"row group {at} has {counts[at]}, not {expected.counts[first + at]}"
    message = f"{len(other)} of {len(counts)} row groups have other numbers of rows than {expected.source} says"
    return [Problem(loc, f"{message} (first: {example})", "mismatch")]


def _brief(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:120]
