"""The columns of one copy in the Zarr layout, looked at like part files: groups of rows in parts, which are shards."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import zarr
import zarr.errors
from numpy.typing import NDArray

from puncta.errors import StoreError
from puncta.points._categories import Vocabulary
from puncta.points._check_parts import Expected
from puncta.points._element import Element
from puncta.points._zarr import ZarrCopy
from puncta.spec._problem import Problem

# Rows that are looked at as a group where the copy has no tiles (P31).
GROUP_ROWS = 16_384

_GROUPS_PER_PART = 256

# What zarr raises for a document or a chunk that is damaged.
_DAMAGE = (zarr.errors.BaseZarrError, ValueError, TypeError, LookupError, OSError, RuntimeError)


def plain_groups(n_rows: int) -> Expected:
    """Return how the rows of a copy without tiles are looked at: in groups of a chunk each."""
    borders = np.append(np.arange(0, n_rows, GROUP_ROWS), n_rows)
    n_groups = len(borders) - 1
    starts = np.append(np.arange(0, n_groups, _GROUPS_PER_PART), n_groups)
    return Expected(starts=starts, counts=np.diff(borders), source="n_rows_feature")


@dataclass(slots=True, kw_only=True)
class ColumnParts:
    """The columns of one copy."""

    copy: ZarrCopy
    loc: str
    """Their group, below the element."""
    starts: NDArray[np.int64]
    """First group of rows of each part, then their number."""
    counts: NDArray[np.int64]
    """Rows of each group; 0 where the columns are of no use."""
    is_usable: NDArray[np.bool_]
    """Whether each part can be read and is what the index says."""
    damage: list[Problem]
    """Takes what turns out damaged on reading."""

    @property
    def is_whole(self) -> bool:
        """Whether every part is usable."""
        return bool(self.is_usable.all())

    def part_of(self, group: int) -> int:
        """Return the part that holds a group."""
        return int(np.searchsorted(self.starts, group, side="right")) - 1

    def file_loc(self, part: int) -> str:
        """Return where a part is, below the element: its shards stand in many folders, so their number is named."""
        return f"{self.loc} (shard {part})"

    def groups(self) -> NDArray[np.int64]:
        """Return the groups that hold rows, and those of which it cannot be known."""
        is_unknown = np.repeat(~self.is_usable, np.diff(self.starts))
        return np.flatnonzero((self.counts > 0) | is_unknown)

    def read(self, groups: Sequence[int], columns: Sequence[str] | None = None) -> pa.Table | None:
        """Return the rows of some groups of one part; None where the part is not usable."""
        part = self.part_of(groups[0])
        if not self.is_usable[part]:
            return None
        first = np.concatenate([[0], np.cumsum(self.counts)])
        at = np.asarray(groups, dtype=np.int64)
        try:
            return self.copy.read(np.stack([first[at], first[at + 1]], axis=1), columns or self.copy.schema().names)
        except StoreError as error:
            self.is_usable[part] = False
            message = f"its rows cannot be read: {str(error)[:120]}"
            self.damage.append(Problem(self.file_loc(part), message, "mismatch"))
            return None

    def close(self) -> None:
        """Nothing is held open."""


def open_columns(
    element: Element, loc: str, expected: Expected, problems: list[Problem], *, tile_rows: int | None
) -> ColumnParts:
    """Look at the metadata of all columns of a copy.

    Args:
        element: The element.
        loc: Group of the copy, below the element.
        expected: What the index says.
        problems: Takes what is wrong, here and later on reading.
        tile_rows: Of a tile order, rows of the largest tile; None where rows are stored one behind the other.

    """
    counts = np.zeros(0, np.int64) if expected.counts is None else expected.counts
    starts = np.zeros(1, np.int64) if expected.starts is None else expected.starts
    borders = np.concatenate([[0], np.cumsum(counts)])
    is_padded = tile_rows is not None
    copy = ZarrCopy(element, Vocabulary(element), loc, tile_offsets=(lambda: borders) if is_padded else None)
    chunk = max(tile_rows or 0, 1) if is_padded else GROUP_ROWS
    wrong = _wrong_group(element, copy, loc, int(counts.sum()))
    if not wrong:
        wrong = _wrong_arrays(element, loc, len(counts) * chunk if is_padded else int(counts.sum()), chunk)
    problems += wrong
    is_usable = np.full(len(starts) - 1, not wrong and expected.counts is not None)
    return ColumnParts(
        copy=copy,
        loc=loc,
        starts=starts,
        counts=counts if not wrong else np.zeros_like(counts),
        is_usable=is_usable,
        damage=problems,
    )


def _wrong_group(element: Element, copy: ZarrCopy, loc: str, n_rows: int) -> list[Problem]:
    try:
        names = copy.schema().names
        (document,) = element.documents([loc])
    except StoreError as error:
        return [Problem(f"{loc}/zarr.json", str(error)[:200], "mismatch")]
    frame = ((document or {}).get("attributes") or {}).get("df")
    stated = frame.get("n_rows") if isinstance(frame, dict) else None
    arrays = frame.get("columns") if isinstance(frame, dict) else None
    if not isinstance(arrays, list) or len(arrays) != len(names):
        message = f"df names {len(arrays or [])} arrays, but the schema has {len(names)} columns"
        return [Problem(f"{loc}/zarr.json", message, "mismatch")]
    if stated != n_rows:
        return [Problem(f"{loc}/zarr.json", f"df.n_rows is {stated}, but the index has {n_rows} rows", "mismatch")]
    return []


def _wrong_arrays(element: Element, loc: str, length: int, chunk: int) -> list[Problem]:
    """Return the arrays of a copy that are absent, damaged, or of another shape than the index says."""
    (document,) = element.documents([loc])
    names: list[str] = list((document or {})["attributes"]["df"]["columns"])
    problems = []
    for name in names:
        place = f"{loc}/{name}"
        try:
            array: Any = zarr.open_array(Path(element.location) / place, mode="r", zarr_format=3)
        except FileNotFoundError:
            problems.append(Problem(place, "this array is not there", "missing"))
            continue
        except _DAMAGE as error:
            problems.append(Problem(place, f"cannot be read: {str(error)[:120]}", "mismatch"))
            continue
        if array.shape != (length,):
            problems.append(Problem(place, f"it has the shape {array.shape}, not ({length},)", "mismatch"))
        elif array.chunks != (chunk,):
            problems.append(Problem(place, f"its chunks have {array.chunks[0]} rows, not {chunk}", "mismatch"))
    return problems


def wrong_padding(parts: ColumnParts, element: Path, names: Sequence[str], tile_rows: int) -> list[Problem]:
    """Return the columns of a tile order whose padding is not the fill value; holds one tile of one column.

    Args:
        parts: The columns.
        element: Folder of the element.
        names: The arrays to look at.
        tile_rows: Rows of the largest tile.

    """
    problems = []
    for name in names:
        place = f"{parts.loc}/{name}"
        array: Any = zarr.open_array(element / place, mode="r", zarr_format=3)
        found = 0
        for tile, count in enumerate(parts.counts.tolist()):
            if 0 < count < tile_rows:
                padding = array[tile * tile_rows + count : (tile + 1) * tile_rows]
                is_fill = np.isnan(padding) if array.dtype.kind == "f" else padding == array.fill_value
                found += not is_fill.all()
        if found:
            problems.append(Problem(place, f"{found} tiles have padding that is not the fill value", "mismatch"))
    return problems


def columns_of(element: Element, loc: str) -> list[str]:
    """Return the arrays of the columns of a copy that was found to have them."""
    (document,) = element.documents([loc])
    return list((document or {})["attributes"]["df"]["columns"])
