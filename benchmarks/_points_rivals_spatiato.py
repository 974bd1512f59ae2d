"""spatiato's multiscale cache of points: tiles, and the same points by gene, in Zarr.

It has no public builder yet: the cache that its viewer opens is made and read with its own private classes, as its
viewer reads it.
"""

import importlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import spatialdata
from spatialdata.models import PointsModel

from _points_rivals_work import Box, Form, Plan, Question, rows_inside

_CACHE = "spatiato.core.multi_scale_cache_points_zarr"
_builder, _reader, _resolution, _validation = (
    importlib.import_module(f"{_CACHE}.{name}")
    for name in ("builder", "reader", "source.resolution", "source.validation")
)

# it has no public ones
_Config, _build = _builder._PointsCacheBuilderConfig, _builder._build_points_cache_zarr  # noqa: SLF001
_Reader, _Viewport = _reader._PointsCacheReader, _reader._IntrinsicViewport  # noqa: SLF001

# One for each core of this machine.
_WORKERS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Spatiato:
    """The cache beside a points element. It keeps x, y and the gene, no other column."""

    has_levels: bool
    """Whether to build its coarser levels."""

    distribution: str = "spatiato"

    def prepare(self, source: Path, folder: Path) -> Path:
        """Return a SpatialData store with the table, which it asks for."""
        element = PointsModel.parse(pd.read_parquet(source), coordinates={"x": "x", "y": "y"}, feature_key="gene")
        store = folder / "section.zarr"
        spatialdata.SpatialData(points={"transcripts": element}).write(store)
        return store

    def build(self, source: Path, folder: Path, plan: Plan) -> None:
        """Validate the element, and build its cache."""
        data = spatialdata.read_zarr(source)
        validated = _validation.validate_parquet_points_source(
            _resolution.resolve_spatialdata_points_source(data, "transcripts", value="gene")
        )
        spill = folder / "tmp"
        spill.mkdir()
        budget = plan.budget if self.has_levels else validated.row_count
        config = _Config(leaf_tile_size=int(plan.tile_size), overview_point_budget=budget, dask_worker_count=_WORKERS)
        _build(validated, output_path=self.files(folder), temporary_directory_root=spill, config=config)

    def files(self, folder: Path) -> Path:
        """Return the cache."""
        return folder / "cache"

    def questions(self, folder: Path, plan: Plan) -> dict[str, list[Question]]:
        """Ask the cache; its reader stays open, as it does in the viewer."""
        cache = _Cache(self.files(folder))
        number = cache.reader.value_names.index(plan.gene)
        asked: dict[str, list[Question]] = {
            "view": [partial(cache.rows, box, None) for box in plan.boxes],
            "gene in view": [partial(cache.rows, box, number) for box in plan.boxes],
            "gene": [partial(cache.rows, plan.extent, number)] * 3,
        }
        return asked | ({"zoomed out": [partial(cache.overview, plan)] * 3} if self.has_levels else {})


class _Cache:
    """The cache, opened."""

    def __init__(self, path: Path) -> None:
        self.reader = _Reader(path)
        self.reader.__enter__()

    def rows(self, box: Box, gene: int | None) -> int:
        """Return how many points a box of the finest level has."""
        index = None
        if gene is not None:
            index = self.reader.load_selected_value_index(np.array([gene], np.uint32), max_resident_bytes=None)
        return self._inside(self.reader.read_viewport(0, _Viewport(*box), value_index=index), box)

    def overview(self, plan: Plan) -> int:
        """Return how many points the whole section has, at the level that fits the budget."""
        viewport = _Viewport(*plan.extent)
        level = self.reader.select_level(viewport, plan.budget).level
        return self._inside(self.reader.read_viewport(level, viewport), plan.extent)

    def _inside(self, found: Any, box: Box) -> int:  # noqa: ANN401  # a class of theirs
        """Put tiles together: coordinates are stored from the corner of each tile."""
        if not found.tiles:
            return 0
        info = self.reader.dataset_info
        x = np.concatenate(
            [tile.location[:, 0] + (info.x_origin + tile.tile_x * tile.tile_size) for tile in found.tiles]
        )
        y = np.concatenate(
            [tile.location[:, 1] + (info.y_origin + tile.tile_y * tile.tile_size) for tile in found.tiles]
        )
        genes = np.concatenate([tile.value_id for tile in found.tiles])
        return rows_inside([x, y, genes], box)


FORMS: dict[str, Form] = {
    "both orders": Spatiato(has_levels=False),
    "all levels": Spatiato(has_levels=True),
}
