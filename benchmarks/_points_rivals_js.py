"""spatialdata-js-util: a Parquet file in Morton order, and points-zarr, its multiscale Zarr layout.

It writes for a reader in the browser and has none in Python. Of the Morton file those row groups are read, with
pyarrow, whose bounds meet the view; points-zarr is read with zarr, by the offsets that its specification gives.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.compute as pc
import pyarrow.parquet as pq
import zarr
from spatialdata_js_util import (  # type: ignore[import-not-found]  # in an environment of its own
    write_morton_points_parquet,
    write_points_zarr,
)

from _points_rivals_work import Box, Form, Plan, Question, rows_inside

_COLUMNS = ["x", "y", "gene"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Morton:
    """One Parquet file in Morton order."""

    by_default: bool
    """Row groups as long as it chooses; else as many rows as a tile has on average."""

    distribution: str = "spatialdata-js-util"

    def prepare(self, source: Path, folder: Path) -> Path:  # noqa: ARG002  # others make a file there
        """Return the table as it is."""
        return source

    def build(self, source: Path, folder: Path, plan: Plan) -> None:
        """Read the table, sort and write it."""
        size: dict[str, Any] = {} if self.by_default else {"row_group_size": plan.rows_per_tile}
        write_morton_points_parquet(pd.read_parquet(source), self.files(folder), feature_key="gene", **size)

    def files(self, folder: Path) -> Path:
        """Return the file."""
        return folder / "points.parquet"

    def questions(self, folder: Path, plan: Plan) -> dict[str, list[Question]]:
        """Ask the file."""
        groups = _RowGroups(self.files(folder))
        return {
            "view": [partial(groups.rows, box, None) for box in plan.boxes],
            "gene in view": [partial(groups.rows, box, plan.gene) for box in plan.boxes],
            "gene": [partial(groups.rows, plan.extent, plan.gene)] * 3,
        }


class _RowGroups:
    """The file in Morton order, opened, with the bounds of its row groups."""

    def __init__(self, path: Path) -> None:
        self._file = pq.ParquetFile(path)
        names = self._file.schema_arrow.names
        # the first row group has no points, but marks the bounds of all
        self._numbers = np.arange(1, self._file.metadata.num_row_groups)
        rows = [self._file.metadata.row_group(number) for number in self._numbers.tolist()]
        bounds = [[row.column(names.index(axis)).statistics for axis in ("x", "y")] for row in rows]
        self._least = np.array([[found.min for found in both] for both in bounds])
        self._most = np.array([[found.max for found in both] for both in bounds])

    def rows(self, box: Box, gene: str | None) -> int:
        """Read the row groups whose bounds meet a box, and keep what lies inside."""
        near = ((self._least < box[2:]) & (self._most >= box[:2])).all(axis=1)
        table = self._file.read_row_groups(self._numbers[near].tolist(), columns=_COLUMNS)
        if gene is not None:
            table = table.filter(pc.field("gene") == gene)
        genes = table["gene"].combine_chunks().indices
        return rows_inside([table["x"].to_numpy(), table["y"].to_numpy(), genes.to_numpy()], box)


@dataclass(frozen=True, slots=True, kw_only=True)
class PointsZarr:
    """Tiles and the same points by gene, at each level; it keeps x, y and the gene, no other column."""

    has_levels: bool
    """Whether to build coarser levels, down to one within the budget."""

    distribution: str = "spatialdata-js-util"

    def prepare(self, source: Path, folder: Path) -> Path:  # noqa: ARG002  # others make a file there
        """Return the table as it is."""
        return source

    def build(self, source: Path, folder: Path, plan: Plan) -> None:
        """Read the table and write the layout; a level has a quarter of the points of the one below."""
        frame = pd.read_parquet(source)
        n_levels = 1
        while self.has_levels and len(frame) / 4 ** (n_levels - 1) > plan.budget:
            n_levels += 1
        write_points_zarr(frame, self.files(folder), feature_key="gene", tile_size=plan.tile_size, n_levels=n_levels)

    def files(self, folder: Path) -> Path:
        """Return the group."""
        return folder / "points"

    def questions(self, folder: Path, plan: Plan) -> dict[str, list[Question]]:
        """Ask the arrays, the index of each level read when it is opened."""
        group = zarr.open_group(self.files(folder), mode="r")
        document: Any = group.attrs["multiscales"]
        layout = document["layout"]
        finest, coarsest = _Level(group, layout[0]), _Level(group, layout[-1])
        gene = finest.genes.index(plan.gene)
        asked: dict[str, list[Question]] = {
            "view": [partial(finest.view, box) for box in plan.boxes],
            "gene in view": [partial(finest.gene_in_view, box, gene) for box in plan.boxes],
            "gene": [partial(finest.gene, gene)] * 3,
        }
        return asked | ({"zoomed out": [coarsest.everything] * 3} if self.has_levels else {})


class _Level:
    """A level of points-zarr, opened."""

    def __init__(self, group: zarr.Group, entry: dict[str, Any]) -> None:
        level = zarr.open_group(group.store, path=entry["asset"], mode="r")
        self._grid = entry["points:grid"]
        self._index = {name: np.asarray(array[:]).astype(np.int64) for name, array in level["index"].arrays()}  # type: ignore[union-attr]  # a group
        self._tiles, self._features = (_columns(level, order) for order in ("tile_major", "feature_major"))
        self.genes = [str(name) for name in level["tile_major/column_2/enum_values"][:]]  # type: ignore[index, union-attr]  # an array

    def view(self, box: Box) -> int:
        """Read whole rows of tiles, and keep what lies inside."""
        first, last, width = self._spans(box)
        starts = [self._index["tile_rows"][row * width + first[0]] for row in range(first[1], last[1])]
        ends = [self._index["tile_rows"][row * width + last[0]] for row in range(first[1], last[1])]
        return _kept(self._tiles, starts, ends, box)

    def gene_in_view(self, box: Box, gene: int) -> int:
        """Read the runs of the gene's rows in rows of tiles, and keep what lies inside."""
        first, last, width = self._spans(box)
        run = slice(*self._index["feature_tile_ptr"][gene : gene + 2])
        tiles, counts = self._index["feature_tile"][run], self._index["feature_tile_count"][run]
        before = self._index["feature_rows"][gene] + np.concatenate([[0], counts.cumsum()])
        rows = np.arange(first[1], last[1]) * width
        starts, ends = (before[np.searchsorted(tiles, rows + edge[0])] for edge in (first, last))
        return _kept(self._features, starts, ends, box)

    def gene(self, gene: int) -> int:
        """Read all of a gene's rows."""
        start, end = self._index["feature_rows"][gene : gene + 2]
        return _kept(self._features, [start], [end], None)

    def everything(self) -> int:
        """Read the whole level in the order of tiles."""
        return _kept(self._tiles, [0], [self._index["tile_rows"][-1]], None)

    def _spans(self, box: Box) -> tuple[tuple[int, int], tuple[int, int], int]:
        """Return the first tiles and the ends of the tiles of x and y, and the number of tiles of x."""
        origin, size, (height, width) = self._grid["origin"], self._grid["tile_size"], self._grid["shape"]
        first = [max(int((box[axis] - origin[axis]) // size), 0) for axis in (0, 1)]
        last = [min(int(-((origin[axis] - box[axis + 2]) // size)), end) for axis, end in ((0, width), (1, height))]
        return (first[0], first[1]), (last[0], last[1]), width


def _columns(level: zarr.Group, order: str) -> list[Any]:
    return [level[f"{order}/{name}"] for name in ("column_0", "column_1", "column_2/codes")]


def _kept(columns: list[Any], starts: Any, ends: Any, box: Box | None) -> int:  # noqa: ANN401  # lists or arrays
    """Read runs of rows of x, y and gene, and return how many lie in the box."""
    runs = [(int(start), int(end)) for start, end in zip(starts, ends, strict=True) if start < end]
    if not runs:
        return 0
    found = [np.concatenate([np.asarray(column[start:end]) for start, end in runs]) for column in columns]
    return len(found[0]) if box is None else rows_inside(found, box)


FORMS: dict[str, Form] = {
    "Morton order": Morton(by_default=False),
    "Morton order, its own row groups": Morton(by_default=True),
    "points-zarr, level 0": PointsZarr(has_levels=False),
    "points-zarr": PointsZarr(has_levels=True),
}
