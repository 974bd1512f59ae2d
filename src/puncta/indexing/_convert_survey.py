"""Finds out what only the rows say: the distinct values of text columns, and whether codes are what they seem."""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from puncta.errors import ColumnError
from puncta.indexing._convert_columns import Codes, columns_of_codes, text_columns
from puncta.indexing._convert_files import SurveyRows, Work
from puncta.indexing._convert_plan import tile_cuts
from puncta.points import Points

__all__ = ["Survey", "survey"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What the rows of an element say."""

    texts: Mapping[str, pa.Array]
    """Distinct values of each column of text that the index keeps no list of, sorted."""

    codes_columns: tuple[str, ...]
    """Feature columns beside which there is a column of their codes."""


def survey(
    points: Points,
    categories: Mapping[str, pa.Array],
    *,
    max_bytes: int,
    work: Work,
) -> Survey:
    """Return what the rows of level 0 say; none is read where there is nothing to find out.

    Args:
        points: The element.
        categories: Values of its feature columns.
        max_bytes: Bytes that the distinct values of a column may take.
        work: Who does the work.

    Raises:
        ColumnError: If the distinct values of a column are too many to be held.

    """
    level = points.levels[0]
    texts, candidates = text_columns(points), columns_of_codes(points)
    if not texts and not candidates:
        return Survey(texts={}, codes_columns=())
    features = {name: Codes(name, categories[name]) for name in candidates}
    task = SurveyRows(copy=level.stored, texts=texts, features=features)
    cuts = tile_cuts(level.tile_offsets, tiles_per_file=level.tiles_per_part)
    windows = [window for file in cuts.windows_of(window_rows=work.window_rows) for window in file.windows]
    known = {name: _Distinct(name, points.schema.field(name).type, max_bytes) for name in texts}
    other: set[str] = set()
    for found in work.done(task, windows, "reading texts"):
        for name, distinct in known.items():
            distinct.add(found.values[name])
        other |= found.other
    return Survey(
        texts={name: distinct.sorted() for name, distinct in known.items()},
        codes_columns=tuple(name for name in candidates if name not in other),
    )


class _Distinct:
    """The distinct values of a column, of which more and more come to be known."""

    def __init__(self, name: str, data_type: pa.DataType, max_bytes: int) -> None:
        self._name = name
        self._type = data_type
        self._max_bytes = max_bytes
        self._known = pa.nulls(0, data_type)
        self._pending: list[pa.Array] = []
        self._n_pending = 0

    def add(self, values: pa.Array) -> None:
        """Take note of values, each of them once."""
        self._pending.append(values)
        self._n_pending += len(values)
        # only when there is as much that is new as is known, or the known would be looked through again and again
        if self._n_pending > len(self._known):
            self._merge()

    def sorted(self) -> pa.Array:
        """Return the values in their order."""
        self._merge()
        return self._known.take(pc.sort_indices(self._known))

    def _merge(self) -> None:
        self._known = pc.unique(pa.chunked_array([self._known, *self._pending], type=self._type))
        self._pending, self._n_pending = [], 0
        if self._known.nbytes > self._max_bytes:
            raise ColumnError(
                f"the column {self._name!r} has {len(self._known):,} distinct texts or more, too many for the Zarr "
                "layout, which stores each once, to be collected in the memory; give more --memory, or leave the "
                "element in the Parquet layout"
            )
