"""spatialdata as it is used today: a points element, its own box query, a filter of its data frame.

It has no spatial order; for equal work the rows are sorted by tile before they become an element.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import pandas as pd
import spatialdata
from spatialdata.models import PointsModel

from _points_rivals_work import Box, Form, Plan, Question

_STORE = "section.zarr"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpatialData:
    """A store with one points element; it has nothing to show of the whole section but every point."""

    is_sorted: bool
    """Whether rows are sorted by tile first, in memory."""

    distribution: str = "spatialdata"

    def prepare(self, source: Path, folder: Path) -> Path:  # noqa: ARG002  # others make a file there
        """Return the table as it is."""
        return source

    def build(self, source: Path, folder: Path, plan: Plan) -> None:
        """Parse the table, lazily as its readers of vendors' files do where it stays as it is, and write the store."""
        frame = _sorted(pd.read_parquet(source), plan.tile_size) if self.is_sorted else dd.read_parquet(source)
        element = PointsModel.parse(frame, coordinates={"x": "x", "y": "y"}, feature_key="gene")
        spatialdata.SpatialData(points={"transcripts": element}).write(folder / _STORE)

    def files(self, folder: Path) -> Path:
        """Return the element."""
        return folder / _STORE / "points" / "transcripts"

    def questions(self, folder: Path, plan: Plan) -> dict[str, list[Question]]:
        """Ask the element."""
        element = spatialdata.read_zarr(folder / _STORE).points["transcripts"]
        return {
            "view": [partial(_rows, element, box, None) for box in plan.boxes],
            "gene in view": [partial(_rows, element, box, plan.gene) for box in plan.boxes],
            "gene": [partial(_gene, element, plan.gene)] * 3,
        }


def _sorted(frame: pd.DataFrame, size: float) -> pd.DataFrame:
    columns, rows = ((frame[axis] // size).astype("int64") for axis in ("x", "y"))
    return frame.iloc[(columns * (rows.max() + 1) + rows).argsort()].reset_index(drop=True)


def _rows(element: Any, box: Box, gene: str | None) -> int:  # noqa: ANN401  # dask has no types
    found = spatialdata.bounding_box_query(
        element,
        axes=("x", "y"),
        min_coordinate=list(box[:2]),
        max_coordinate=list(box[2:]),
        target_coordinate_system="global",
    )
    if found is None:
        return 0
    return len((found if gene is None else found[found["gene"] == gene]).compute())


def _gene(element: Any, gene: str) -> int:  # noqa: ANN401  # as above
    return len(element[element["gene"] == gene].compute())


FORMS: dict[str, Form] = {
    "points element": SpatialData(is_sorted=False),
    "rows sorted by tile": SpatialData(is_sorted=True),
}
