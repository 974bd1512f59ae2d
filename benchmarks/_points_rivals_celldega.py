"""celldega's tiles of transcripts: a row group a tile, found by its number.

Its own reader is the page in the browser, which computes the number of a tile and fetches that row group whole. The
same row groups are read here with pyarrow. It asks for a Python below 3.13, to which uv does not hold it.
"""

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from celldega.pre import make_trx_tiles_row_groups  # type: ignore[import-not-found]  # in an environment of its own

from _points_rivals_work import Box, Form, Plan, Question, rows_inside


@dataclass(frozen=True, slots=True, kw_only=True)
class Celldega:
    """Tiles as row groups. Genes become numbers, coordinates are rounded to two decimals, other columns are dropped."""

    distribution: str = "celldega"

    def prepare(self, source: Path, folder: Path) -> Path:
        """Return the table as Xenium's, beside the list of genes and the matrix that it reads, too."""
        table = pq.read_table(source)
        names = table["gene"].cast(pa.string())
        zeros = pa.array(np.zeros(table.num_rows, np.int32))
        columns = {"cell_id": zeros, "transcript_id": zeros, "feature_name": names}
        path = folder / "transcripts.parquet"
        pq.write_table(pa.table({**columns, "x_location": table["x"], "y_location": table["y"]}), path)
        pd.DataFrame({"count": 1}, index=sorted(set(names.to_pylist()))).to_parquet(folder / "meta_gene.parquet")
        np.savetxt(folder / "identity.csv", np.eye(3))
        return path

    def build(self, source: Path, folder: Path, plan: Plan) -> None:
        """Tile the transcripts by its own function, and note the grid as its landscape parameters do."""
        _, grid, files = make_trx_tiles_row_groups(
            "Xenium",
            str(source),
            str(source.with_name("identity.csv")),
            str(folder),
            tile_size=plan.tile_size,
            path_dega_files=str(source.parent),
        )
        (folder / "landscape_parameters.json").write_text(json.dumps({"grid": grid, "files": files}))

    def files(self, folder: Path) -> Path:
        """Return the folder of the row groups."""
        return folder

    def questions(self, folder: Path, plan: Plan) -> dict[str, list[Question]]:
        """Ask the row groups; a gene over the whole section is found by reading all of them."""
        tiles = _Tiles(folder)
        genes = pd.read_parquet(folder.parent / "meta_gene.parquet").index
        number = int(genes.get_loc(plan.gene))
        return {
            "view": [partial(tiles.rows, box, None) for box in plan.boxes],
            "gene in view": [partial(tiles.rows, box, number) for box in plan.boxes],
            "gene": [partial(tiles.rows, plan.extent, number)] * 3,
        }


class _Tiles:
    """The files of row groups, opened."""

    def __init__(self, folder: Path) -> None:
        document = json.loads((folder / "landscape_parameters.json").read_text())
        self._grid = document["grid"]
        self._per_file = document["files"]["max_row_groups_per_file"]
        self._files = [pq.ParquetFile(folder / name) for name in document["files"]["files"]]

    def rows(self, box: Box, gene: int | None) -> int:
        """Return how many rows lie in the tiles of a box, read into arrays of x, y and gene."""
        tables = [file.read_row_groups(groups, columns=["name", "geometry"]) for file, groups in self._asked(box)]
        if not tables:
            return 0
        table = pa.concat_tables(tables)
        if gene is not None:
            table = table.filter(pc.field("name") == gene)
        flat = pc.list_flatten(table["geometry"]).to_numpy().reshape(-1, 2)
        return rows_inside([flat[:, 0], flat[:, 1], table["name"].to_numpy()], box)

    def _asked(self, box: Box) -> list[tuple[pq.ParquetFile, list[int]]]:
        size, shape = self._grid["tile_size"], (self._grid["num_tiles_x"], self._grid["num_tiles_y"])
        columns, rows = (
            range(max(int(box[axis] // size), 0), min(int(-(-box[axis + 2] // size)), shape[axis])) for axis in (0, 1)
        )
        numbers = [column * shape[1] + row for column in columns for row in rows]
        by_file: dict[int, list[int]] = {}
        for number in numbers:
            by_file.setdefault(number // self._per_file, []).append(number % self._per_file)
        return [(self._files[file], groups) for file, groups in by_file.items()]


FORMS: dict[str, Form] = {"tiles": Celldega()}
