"""puncta, asked as its rivals are; and what all of them are asked.

python _points_rivals_ours.py SECTION FOLDER N_ROWS BUDGET     # makes the tables, and prints plan and counts
"""

import json
import math
import shutil
import sys
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from _points_rivals_work import Form, Plan, Question
from _points_work import Layout, make, views
from puncta.indexing import index_points
from puncta.points import Points, open_points

_STORE = "section.zarr"
_COLUMNS = ["x", "y", "gene"]

# Enough to call every part of a library once, before its time is taken.
_WARM_ROWS = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Puncta:
    """An index of ours."""

    options: dict[str, Any] = field(default_factory=dict)
    """Arguments of `index_points`."""

    layout: Layout = "parquet"
    distribution: str = "puncta"

    def prepare(self, source: Path, folder: Path) -> Path:  # noqa: ARG002  # others make a file there
        """Return the table as it is."""
        return source

    def build(self, source: Path, folder: Path, plan: Plan) -> None:
        """Index the table."""
        same: dict[str, Any] = {"tile_size": plan.tile_size, "origin": (0, 0), "feature_key": "gene"}
        index_points(source, folder / _STORE, layout=self.layout, **same, **self.options)

    def files(self, folder: Path) -> Path:
        """Return the element, with all of its levels and orders; the Zarr layout is one on its own."""
        return folder / _STORE if self.layout == "zarr" else folder / _STORE / "points" / "transcripts"

    def questions(self, folder: Path, plan: Plan) -> dict[str, list[Question]]:
        """Ask the element."""
        points = open_points(self.files(folder))
        boxes = [{"x": (box[0], box[2]), "y": (box[1], box[3])} for box in plan.boxes]
        asked: dict[str, list[Question]] = {
            "view": [partial(_rows, points, box=box) for box in boxes],
            "gene in view": [partial(_rows, points, box=box, features=[plan.gene]) for box in boxes],
            "gene": [partial(_rows, points, features=[plan.gene])] * 3,
        }
        has_levels = len(points.levels) > 1
        return asked | ({"zoomed out": [partial(_rows, points, budget=plan.budget)] * 3} if has_levels else {})


def _rows(points: Points, **asked: Any) -> int:  # noqa: ANN401  # arguments of the query
    return int(points.query(columns=_COLUMNS, **asked).num_rows)


FORMS: dict[str, Form] = {
    "tile order": Puncta(options={"feature_order": False, "max_levels": 1}),
    "both orders": Puncta(options={"max_levels": 1}),
    "everything": Puncta(),
    "everything, shared": Puncta(options={"feature_levels": "shared"}),
    "tile order, Zarr": Puncta(options={"feature_order": False, "max_levels": 1}, layout="zarr"),
    "both orders, Zarr": Puncta(options={"max_levels": 1}, layout="zarr"),
    "everything, Zarr": Puncta(layout="zarr"),
    "everything, shared, Zarr": Puncta(options={"feature_levels": "shared"}, layout="zarr"),
}


def main(section: str, folder: str, n_rows: int, budget: int) -> dict[str, Any]:
    """Make the tables, choose the questions, and count the answers with pandas."""
    source = Path(folder) / "points.parquet"
    make(section, str(source), str(n_rows), "section")
    frame = pq.read_table(source, columns=["x", "y", "feature_name"]).to_pandas()
    frame = frame.rename(columns={"feature_name": "gene"})
    # all grids begin at the smallest coordinates, so that all tiles are the same
    for axis in ("x", "y"):
        frame[axis] = (frame[axis] - frame[axis].min()).astype(np.float32)
    warm = frame.iloc[:: max(len(frame) // _WARM_ROWS, 1)]
    for rows, path in ((frame, source), (warm, source.with_name("warm.parquet"))):
        pq.write_table(pa.Table.from_pandas(rows, preserve_index=False), path, compression="zstd")
    plan = _plan(source, Path(folder) / "plan.zarr", frame, budget)
    (Path(folder) / "plan.json").write_text(json.dumps(asdict(plan)))
    return {"plan": asdict(plan), "expected": _expected(frame, plan)}


def _plan(source: Path, store: Path, frame: pd.DataFrame, budget: int) -> Plan:
    """Return the questions, on the tiles that our own index would choose."""
    index_points(source, store, feature_key="gene", origin=(0, 0), feature_order=False, max_levels=1)
    level = open_points(store / "points" / "transcripts").levels[0]
    tiles = level.tile_counts
    shutil.rmtree(store)
    size = float(level.grid.tile_size[0])
    named = views(level.grid.origin, level.grid.tile_size, tiles.reshape(level.grid.shape))
    counts = frame["gene"].value_counts()
    largest = [size * math.ceil((float(frame[axis].max()) + 1) / size) for axis in ("x", "y")]
    return Plan(
        tile_size=size,
        rows_per_tile=int(tiles[tiles > 0].mean()),
        boxes=[(at["x"][0], at["y"][0], at["x"][1], at["y"][1]) for at in named],
        gene=str(counts[counts > 0].index[int((counts > 0).sum()) // 2]),
        budget=budget,
        extent=(0.0, 0.0, largest[0], largest[1]),
    )


def _expected(frame: pd.DataFrame, plan: Plan) -> dict[str, list[int]]:
    of_gene = frame["gene"] == plan.gene
    inside = [
        (frame["x"] >= x0) & (frame["x"] < x1) & (frame["y"] >= y0) & (frame["y"] < y1) for x0, y0, x1, y1 in plan.boxes
    ]
    return {
        "view": [int(rows.sum()) for rows in inside],
        "gene in view": [int((rows & of_gene).sum()) for rows in inside],
        "gene": [int(of_gene.sum())] * 3,
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
