"""zarr-vectors: a chunk a tile, genes as an attribute or as objects, and a pyramid of one point a bin.

The points of its pyramid have no gene, so that its picture of the whole section is one of places alone.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import zarr_vectors as zv  # type: ignore[import-not-found]  # in an environment of its own

from _points_rivals_work import Box, Form, Plan, Question

# A level of its pyramid has bins larger by this factor, and keeps all objects.
_FACTORS = [(2.0, 1.0)] * 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ZarrVectors:
    """A point cloud; it keeps numbers, so that the names of genes are kept beside it."""

    has_objects: bool
    """Whether points of a gene are an object, which it finds by number, and a pyramid is built."""

    distribution: str = "zarr-vectors"

    def prepare(self, source: Path, folder: Path) -> Path:  # noqa: ARG002  # others make a file there
        """Return the table as it is."""
        return source

    def build(self, source: Path, folder: Path, plan: Plan) -> None:
        """Read the table, and add its points to a new store."""
        table = pq.read_table(source)
        genes = table["gene"].combine_chunks()
        codes = genes.indices.to_numpy().astype(np.uint16)
        positions = np.stack([table["x"].to_numpy(), table["y"].to_numpy()], axis=1)
        layout = zv.Layout(cell_size=[plan.tile_size] * 2)
        bounds = (list(plan.extent[:2]), list(plan.extent[2:]))
        schema = zv.Schema(ndim=2, axes=(zv.Axis("x"), zv.Axis("y")), bounds=bounds, layout=layout)
        store = zv.create(str(self.files(folder)), schema=schema)
        objects: dict[str, Any] = {"object_ids": codes} if self.has_objects else {}
        store.add_points(positions, attributes={"gene": codes}, **objects)
        if self.has_objects:
            store.build_pyramid(factors=_FACTORS)
        (folder / "genes.txt").write_text("\n".join(genes.dictionary.to_pylist()))

    def files(self, folder: Path) -> Path:
        """Return the store."""
        return folder / "points.zarrvectors"

    def questions(self, folder: Path, plan: Plan) -> dict[str, list[Question]]:
        """Ask the store; without objects a gene is found by reading its attribute everywhere."""
        store = zv.open(str(self.files(folder)))
        gene = (folder / "genes.txt").read_text().split("\n").index(plan.gene)
        selected = _of_object if self.has_objects else _of_attribute
        asked: dict[str, list[Question]] = {
            "view": [partial(_view, store, box) for box in plan.boxes],
            "gene in view": [partial(selected, store, gene, box) for box in plan.boxes],
            "gene": [partial(selected, store, gene, None)] * 3,
        }
        return asked | ({"zoomed out": [partial(_overview, store, plan.budget)] * 3} if self.has_objects else {})


def _view(store: Any, box: Box) -> int:  # noqa: ANN401  # not in the type checker's environment
    found = store.select(bbox=_corners(box)).read()
    return len(found.attributes["gene"]) if len(found.positions) else 0


def _of_object(store: Any, gene: int, box: Box | None) -> int:  # noqa: ANN401  # as above
    query = store.select(objects=[gene]) if box is None else store.select(objects=[gene], bbox=_corners(box))
    return len(query.read().positions)


def _of_attribute(store: Any, gene: int, box: Box | None) -> int:  # noqa: ANN401  # as above
    found = (store.select() if box is None else store.select(bbox=_corners(box))).read()
    return len(found.positions[found.attributes["gene"] == gene]) if len(found.positions) else 0


def _overview(store: Any, budget: int) -> int:  # noqa: ANN401  # as above
    levels = (store.level(number) for number in range(len(_FACTORS) + 1))
    fitting = next(level for level in levels if level.select().count() <= budget)
    return len(fitting.read().positions)


def _corners(box: Box) -> tuple[list[float], list[float]]:
    return list(box[:2]), list(box[2:])


FORMS: dict[str, Form] = {
    "point cloud": ZarrVectors(has_objects=False),
    "genes as objects, pyramid": ZarrVectors(has_objects=True),
}
