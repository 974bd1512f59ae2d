"""The door: ask for a tissue by number of molecules and seed."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from puncta.errors import QueryError
from puncta.example._anatomy import CELL_TYPES
from puncta.example._cells import SITE_AREA, Cells, grow_cells
from puncta.example._molecules import BACKGROUND, scatter_molecules
from puncta.example._section import cut_section

__all__ = ["Tissue", "make_tissue"]

_PER_CELL = 77  # molecules in a cell, on average
_OCCUPANCY = 0.68  # share of the sites that hold a cell, over all regions
_SMALLEST = 40  # sites: on less tissue than that, none is clear of the rim


@dataclass(frozen=True, kw_only=True, slots=True)
class Tissue:
    """A made-up section of a brain, measured molecule by molecule."""

    molecules: pa.Table
    """One row per molecule: x, y, z (float32, micrometres), gene (dictionary<int16, string>), cell_id (int32, -1
    outside any cell), qv (float32). Rows are in order of acquisition, field of view by field of view."""
    cells: pa.Table
    """One row per cell: cell_id (int32), x, y (float32, centroid in micrometres), cell_type (dictionary<int8, string>),
    area (float32, square micrometres)."""
    boundaries: NDArray[np.float32]
    """Polygon of each cell, in the order of `cells`, shape (n_cells, n_vertices, 2), float32, micrometres; the first
    vertex is not repeated at the end."""


def make_tissue(*, points: int = 500_000, seed: int = 0, genes: int = 300) -> Tissue:
    """Return a small tissue that looks measured, the same for the same arguments.

    It has what makes measured tissues awkward: layers of unequal density, holes, a field that was read out about three
    times too densely, a few genes with most of the molecules, rare genes, and one gene with none. It is no substitute
    for measured data where biology matters: nothing in it was fitted to a brain.

    Args:
        points: Molecules. The section grows with them: half a million cover about 2.7 by 2 millimetres and 5,700 cells.
        seed: Any integer from 0. Equal bytes are promised within one version of NumPy on one kind of processor.
        genes: Size of the panel, 2 to 32,767; the first 60 names are markers of cell types.

    Returns:
        Molecules, cells and the boundaries of the cells.

    Raises:
        QueryError: If an argument is out of its range.

    """
    _check(points=points, seed=seed, genes=genes)
    # One stream per part, so that a part added or changed leaves the others as they were.
    shape, growth, scatter = np.random.default_rng(seed).spawn(3)
    number = max(1, round(points * (1 - BACKGROUND) / _PER_CELL))
    section = cut_section(max(number / _OCCUPANCY, _SMALLEST) * SITE_AREA, shape)
    sites, cells = grow_cells(section, number, growth)
    molecules = scatter_molecules(sites, cells, section=section, points=points, genes=genes, rng=scatter)
    return Tissue(molecules=molecules, cells=_cell_table(cells), boundaries=cells.polygons.astype(np.float32))


def _check(*, points: int, seed: int, genes: int) -> None:
    if points < 1:
        raise QueryError(f"a tissue of {points} molecules was asked for; ask for at least 1")
    if seed < 0:
        raise QueryError(f"the seed is {seed}; give an integer from 0")
    last = np.iinfo(np.int16).max
    if not 2 <= genes <= last:  # noqa: PLR2004 - one gene with molecules, and one without
        raise QueryError(f"a panel of {genes} genes was asked for; ask for 2 to {last:,}")


def _cell_table(cells: Cells) -> pa.Table:
    area, centroid = _area_and_centroid(cells.polygons)
    kinds = pa.array(cells.kind.astype(np.int8))
    columns = {
        "cell_id": pa.array(np.arange(len(area), dtype=np.int32)),
        "x": pa.array(centroid[:, 0].astype(np.float32)),
        "y": pa.array(centroid[:, 1].astype(np.float32)),
        "cell_type": pa.DictionaryArray.from_arrays(kinds, pa.array(list(CELL_TYPES), pa.string())),
        "area": pa.array(area.astype(np.float32)),
    }
    return pa.table(columns)


def _area_and_centroid(polygons: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Area and centroid of each polygon, shape (n,) and (n, 2), by the shoelace formula."""
    # Relative to a vertex: far from the origin the products would cancel.
    origin = polygons[:, :1]
    here = polygons - origin
    there = np.roll(here, -1, axis=1)
    cross = here[..., 0] * there[..., 1] - here[..., 1] * there[..., 0]
    area = cross.sum(axis=1) / 2
    centroid = ((here + there) * cross[..., None]).sum(axis=1) / (6 * area[:, None])
    return area, centroid + origin[:, 0]
