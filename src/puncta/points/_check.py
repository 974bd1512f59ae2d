"""Opens an indexed element and holds everything in it against everything else."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from puncta.errors import MissingError, StoreError
from puncta.points._categories import Vocabulary
from puncta.points._check_arrays import ArrayReader, damaged_groups
from puncta.points._check_columns import ColumnParts, columns_of, open_columns, wrong_padding
from puncta.points._check_features import CopyParts, FeatureCheck
from puncta.points._check_parts import Expected, Parts, Tally, first_dictionary, open_parts, schema_of, unreadable_files
from puncta.points._check_plan import (
    CopyPlan,
    ElementPlan,
    Form,
    LevelPlan,
    other_element,
    plan_of,
    stale_transformation,
)
from puncta.points._check_rows import FeatureCodes
from puncta.points._check_tiles import Chain, Contents, LevelParts, TileCheck
from puncta.points._element import Element
from puncta.points._zarr import ZarrCopy
from puncta.spec._problem import Problem
from puncta.spec.points import validate_points_attrs
from puncta.store import read_attributes
from puncta.store._directory import Directory

__all__ = ["check_points"]

_FORMS: Final[tuple[Form, ...]] = ("parquet", "zarr")

# A feature column with more values is plain, because its dictionary would repeat in every row group (P25).
_MAX_DICTIONARY = 65_536


def check_points(element_path: Path) -> list[Problem]:
    """Return every problem of an indexed points element, none for a good one.

    Reads every row: of the tile order up to twice, of a sampled feature-major copy up to three times. It holds the
    index arrays of one feature column, the rows of about 130,000 points or of one row group or coarse tile, and 16
    bytes for each of a million rows, or of the rows of the most abundant feature where these are more. A damaged file
    is a problem, never an error; what a problem makes meaningless is not looked at again.

    An element without an index has problems only where its points cannot be read.

    Args:
        element_path: Folder of the element.

    Returns:
        Problems whose `loc` is a path below the element, or, where it begins with `/`, a place in its attributes.

    """
    try:
        attrs = read_attributes(element_path)
    except MissingError as error:
        return [Problem("zarr.json", str(error), "missing")]
    except StoreError as error:
        return [Problem("zarr.json", str(error), "json")]
    if "spatial_index" not in attrs:
        return _plain(element_path)
    problems = validate_points_attrs(attrs)
    plans = _plans(attrs, problems)
    if not plans:
        return problems
    problems += [*other_element(attrs, plans[0]), *stale_transformation(attrs, plans[0])]
    contents = []
    for plan in plans:
        with ExitStack() as stack:
            check = _Check(element_path, plan, stack)
            contents.append(check.run())
            problems += [*check.problems, *check.reader.problems, *check.tally.problems()]
    return list(dict.fromkeys([*problems, *_layouts_differ(plans, contents)]))


def _plans(attrs: dict[str, Any], problems: list[Problem]) -> list[ElementPlan]:
    """Return what the metadata promises of each layout; none where too little of it can be believed."""
    element = attrs["spatial_index"]
    layouts = element.get("layout", ["parquet"]) if isinstance(element, dict) else []
    forms = [form for form in _FORMS if isinstance(layouts, list) and form in layouts]
    return [plan for form in forms if (plan := plan_of(attrs, problems, form)) is not None]


def _layouts_differ(plans: Sequence[ElementPlan], contents: Sequence[Contents | None]) -> list[Problem]:
    """Return that two layouts of one element do not hold the same points."""
    known = [one for one in contents if one is not None]
    if len(known) < len(_FORMS) or known[0].total == known[1].total:
        return []
    message = "its points are not those of points.parquet: some rows or values differ"
    return [Problem(plans[1].levels[0].folder, message, "mismatch")]


def _plain(element: Path) -> list[Problem]:
    """Return what is wrong with the part files of an element without an index."""
    if not (element / "points.parquet").is_dir():
        return [Problem("points.parquet", "this folder is not there", "missing")]
    return unreadable_files(element, "points.parquet")


@dataclass(slots=True)
class _Check:
    """The work on one element."""

    element: Path
    plan: ElementPlan
    stack: ExitStack
    tally: Tally = field(default_factory=Tally)
    problems: list[Problem] = field(default_factory=list)
    reader: ArrayReader = field(init=False)
    opened: Element = field(init=False)
    schema: pa.Schema | None = field(init=False)

    def __post_init__(self) -> None:
        """Find what all parts have in common."""
        self.reader = ArrayReader(self.element)
        # without consolidated metadata: what is there is asked, not what is said to be there
        self.opened = Element(Directory(self.element), "", document={})
        self.schema = self._schema()

    def _schema(self) -> pa.Schema | None:
        if self.plan.form == "parquet":
            return schema_of(self.element, "points.parquet")
        try:
            return ZarrCopy(self.opened, Vocabulary(self.opened), "0/spatial", tile_offsets=None).schema()
        except StoreError:
            # named where the level is looked at
            return None

    def run(self) -> Contents | None:
        """Check everything; return what level 0 holds, or None where it cannot be read whole."""
        self.problems += damaged_groups(self.element, self.plan.levels)
        categories = {name: self.reader.categories(name) for name in self.plan.columns}
        known = {name: values for name, values in categories.items() if values is not None}
        self._check_columns(known)
        self._check_categories(known)
        codes = {name: FeatureCodes(values) for name, values in known.items()}
        contents = self._tile_order(codes)
        for name, values in known.items():
            self._feature_order(name, values, codes[name], contents)
        return contents

    def _check_columns(self, categories: dict[str, list[str]]) -> None:
        loc = self.plan.levels[0].folder
        if self.schema is None:
            return
        absent = [name for name in (*self.plan.axes, *self.plan.columns) if name not in self.schema.names]
        self.problems += [Problem(loc, f"its files have no column {name!r}", "missing") for name in absent]
        self.problems += [
            Problem(loc, f"the feature column {name!r} is no dictionary, so readers see no categories", "mismatch")
            for name, values in categories.items()
            if len(values) <= _MAX_DICTIONARY
            and name in self.schema.names
            and not pa.types.is_dictionary(self.schema.field(name).type)
        ]

    def _check_categories(self, categories: dict[str, list[str]]) -> None:
        """Take out the columns whose categories no file has: nothing that counts by them could be right."""
        if self.plan.form == "zarr":
            # the codes of arrays mean the strings of the index, and nothing else
            return
        for name, values in list(categories.items()):
            stored = first_dictionary(self.element, "points.parquet", name)
            if stored is not None and stored != values:
                at = next((n for n, pair in enumerate(zip(stored, values, strict=False)) if pair[0] != pair[1]), -1)
                example = (
                    f"first difference: {stored[at]!r}, not {values[at]!r}, at {at}" if at >= 0 else "one is longer"
                )
                message = f"{len(values)} categories, but the files have {len(stored)} ({example})"
                self.problems.append(Problem(f"index/features/{name}", message, "mismatch"))
                del categories[name]

    def _tile_order(self, codes: dict[str, FeatureCodes]) -> Contents | None:
        """Check the tile order of all levels; return what level 0 holds, or None where it cannot be read whole."""
        chain = Chain()
        opened = [self._open_level(level, chain) for level in self.plan.levels]
        check = TileCheck(self.plan, codes, self.tally)
        for number, level in enumerate(opened):
            coarser = opened[number + 1] if number + 1 < len(opened) else None
            if level is not None:
                check.level(level, coarser)
        first = opened[0] if opened else None
        for level in opened:
            if level is not None:
                level.parts.close()
        return check.contents if first is not None and first.parts.is_whole else None

    def _open_level(self, level: LevelPlan, chain: Chain) -> LevelParts | None:
        offsets = self.reader.tile_offsets(level)
        if level.number + 1 < len(self.plan.levels):
            self.problems += chain.check(level, self.plan.levels[level.number + 1], offsets)
        if level.grid is None:
            return None
        starts = np.append(np.arange(0, level.grid.n_tiles, level.tiles_per_part), level.grid.n_tiles)
        counts = None if offsets is None else np.diff(offsets)
        expected = Expected(starts=starts, counts=counts, source=level.offsets)
        tile_rows = max(int(counts.max()), 1) if counts is not None and len(counts) else 1
        parts = self._open(level.folder, expected, tile_rows=tile_rows)
        if isinstance(parts, ColumnParts) and parts.is_whole:
            names = columns_of(self.opened, level.folder)
            self.problems += wrong_padding(parts, self.element, names, tile_rows)
        return LevelParts(plan=level, grid=level.grid, parts=parts)

    def _open(self, folder: str, expected: Expected, *, tile_rows: int | None) -> Parts:
        if self.plan.form == "zarr":
            return open_columns(self.opened, folder, expected, self.problems, tile_rows=tile_rows)
        parts = open_parts(self.element, folder, expected, self.schema, self.problems)
        self.stack.callback(parts.close)
        return parts

    def _feature_order(self, name: str, categories: list[str], codes: FeatureCodes, contents: Contents | None) -> None:
        plans = [(level, copy) for level in self.plan.levels for copy in level.copies if copy.column == name]
        copies = [self._open_copy(level, copy, len(categories)) for level, copy in plans]
        check = FeatureCheck(self.plan, codes, categories, self.tally)
        for number, copy in enumerate(copies):
            check.rows(copy, contents if number == 0 else None)
            # levels stand one above the other only where none is missing between them
            if number and [one.arrays.plan.level for one in copies[: number + 1]] == list(range(number + 1)):
                check.fractions(copy, copies[:number])
                check.drawn(copy, copies[:number])
        for copy in copies:
            copy.parts.close()
        self.problems += check.problems

    def _open_copy(self, level: LevelPlan, copy: CopyPlan, n_features: int) -> CopyParts:
        arrays = self.reader.copy(copy, n_features, None if level.grid is None else level.grid.n_tiles)
        counts = None if arrays.row_groups is None else np.diff(arrays.row_groups)
        starts = arrays.parts
        if starts is not None and counts is not None and starts[-1] != len(counts):
            starts = None
        expected = Expected(starts=starts, counts=counts, source=f"{copy.arrays}feature_row_groups")
        parts = self._open(copy.folder, expected, tile_rows=None)
        return CopyParts(arrays=arrays, parts=parts, grid=level.grid, limit=level.limit)
