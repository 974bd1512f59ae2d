"""The molecules: in their cells, off the holes, too dense in one field, and of unequal genes."""

import numpy as np
import pytest
import shapely
from numpy.typing import NDArray
from scipy import ndimage

from puncta.example import Tissue, make_tissue

FIELD = 200.0  # side of a field of view, in micrometres; written out, so that the tests do not lean on the code


@pytest.fixture(scope="module")
def tissue() -> Tissue:
    return make_tissue()


@pytest.fixture(scope="module")
def counts(tissue: Tissue) -> NDArray[np.int64]:
    """Molecules of each gene."""
    codes = tissue.molecules["gene"].chunk(0).indices.to_numpy()
    return np.asarray(np.bincount(codes, minlength=300))


def binned(tissue: Tissue, side: float) -> NDArray[np.int64]:
    """Molecules in each square of this side, by column and row."""
    x, y = tissue.molecules["x"].to_numpy(), tissue.molecules["y"].to_numpy()
    edges = [np.arange(0, values.max() + 2 * side, side) for values in (x, y)]
    return np.asarray(np.histogram2d(x, y, bins=edges)[0], dtype=np.int64)


def fields_of(tissue: Tissue) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Column and row of the field of view of each molecule."""
    x, y = (tissue.molecules[axis].to_numpy().astype(np.float64) for axis in "xy")
    return np.floor(x / FIELD), np.floor(y / FIELD)


def test_the_section_is_millimetres_wide(tissue: Tissue) -> None:
    x, y = tissue.molecules["x"].to_numpy(), tissue.molecules["y"].to_numpy()
    assert x.min() > 0
    assert y.min() > 0
    assert np.ptp(x) > 2_000
    assert np.ptp(y) > 1_500
    assert np.ptp(tissue.molecules["z"].to_numpy()) < 20


def test_molecules_of_a_cell_lie_inside_its_boundary(tissue: Tissue) -> None:
    molecules = tissue.molecules.slice(100_000, 50_000)
    cell_id = molecules["cell_id"].to_numpy()
    polygons = np.asarray(shapely.buffer(shapely.polygons(tissue.boundaries), 0.01))
    inside = shapely.contains_xy(polygons[cell_id], molecules["x"].to_numpy(), molecules["y"].to_numpy())
    assert inside[cell_id >= 0].all()


def test_molecules_of_no_cell_lie_outside_every_boundary(tissue: Tissue) -> None:
    free = tissue.molecules.filter(tissue.molecules["cell_id"].to_numpy() < 0)
    points = shapely.points(free["x"].to_numpy(), free["y"].to_numpy())
    polygons = np.asarray(shapely.buffer(shapely.polygons(tissue.boundaries), -0.01))
    assert shapely.STRtree(polygons).query(points, predicate="within").size == 0


def test_most_molecules_lie_in_cells_and_some_do_not(tissue: Tissue) -> None:
    assert 0.05 < np.mean(tissue.molecules["cell_id"].to_numpy() < 0) < 0.25


def test_the_section_has_two_or_three_holes(tissue: Tissue) -> None:
    empty = binned(tissue, 25.0) == 0
    parts, number = ndimage.label(np.pad(empty, 1, constant_values=True))
    areas = ndimage.sum_labels(np.ones_like(parts), parts, np.arange(1, number + 1))
    # The largest part is the slide around the section; parts of a few squares are chance.
    assert 2 <= np.sum(np.sort(areas)[:-1] >= 12) <= 3


def test_one_field_is_about_three_times_too_dense(tissue: Tissue) -> None:
    fields = binned(tissue, FIELD)
    column, row = np.unravel_index(fields.argmax(), fields.shape)
    around = fields[column - 1 : column + 2, row - 1 : row + 2]
    assert 2.3 < fields.max() / np.median(around) < 3.7
    assert np.sort(fields, axis=None)[-2] < fields.max() / 1.7


def test_rows_come_field_by_field(tissue: Tissue) -> None:
    column, row = fields_of(tissue)
    visits = 1 + np.count_nonzero(np.diff(column + 1_000 * row))
    assert visits == len(np.unique(column + 1_000 * row))


def test_consecutive_fields_touch_within_a_row_of_fields(tissue: Tissue) -> None:
    column, row = fields_of(tissue)
    assert np.abs(np.diff(column)[np.diff(row) == 0]).max() == 1
    assert set(np.diff(row)) == {0, 1}


def test_few_genes_hold_most_molecules_and_the_rarest_a_handful(counts: NDArray[np.int64]) -> None:
    ranked = np.sort(counts)[::-1]
    assert ranked[:30].sum() > 0.7 * ranked.sum()
    assert ranked[0] < 0.25 * ranked.sum()
    assert 1 <= ranked[-2] <= 20


def test_exactly_one_gene_is_never_seen(counts: NDArray[np.int64]) -> None:
    assert np.flatnonzero(counts == 0).tolist() == [150]


def test_genes_are_markers_first_and_numbers_after(tissue: Tissue) -> None:
    names = tissue.molecules["gene"].chunk(0).dictionary.to_pylist()
    assert len(set(names)) == 300
    assert {"Slc17a7", "Gad1", "Plp1", "Aqp4"} <= set(names[:60])
    assert (names[60], names[-1]) == ("Gene061", "Gene300")


@pytest.mark.parametrize(
    ("gene", "cell_type"),
    [("Plp1", "Oligodendrocyte"), ("Pvalb", "Pvalb"), ("Cldn5", "Endothelial"), ("Rorb", "L4 IT")],
)
def test_a_marker_is_seen_mostly_in_its_own_cells(tissue: Tissue, gene: str, cell_type: str) -> None:
    seen = tissue.molecules.filter(tissue.molecules["cell_id"].to_numpy() >= 0).select(["gene", "cell_id"])
    own = np.array(tissue.cells["cell_type"].to_pylist()) == cell_type
    of_gene = np.array(seen["gene"].chunk(0).dictionary.to_pylist()) == gene
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in seen["gene"].chunks])
    marked = own[seen["cell_id"].to_numpy()]
    assert np.mean(of_gene[codes[marked]]) > 20 * np.mean(of_gene[codes[~marked]])


def test_layers_differ_in_their_cells(tissue: Tissue) -> None:
    y = tissue.cells["y"].to_numpy()
    middle = np.abs(tissue.cells["x"].to_numpy() - np.mean(tissue.cells["x"].to_numpy())) < 300
    kind = np.array(tissue.cells["cell_type"].to_pylist())
    down = ["L2/3 IT", "L4 IT", "L5 ET", "L6 CT", "CA pyramidal", "DG granule", "Ependymal"]
    # Only the upper half: below the ventricle the layers come again, in reverse.
    upper = middle & (y < np.percentile(y, 75))
    medians = [np.median(y[upper & (kind == name)]) for name in down]
    assert medians == sorted(medians)


def test_qualities_are_capped_and_mostly_good(tissue: Tissue) -> None:
    qv = tissue.molecules["qv"].to_numpy()
    assert qv.min() >= 0
    assert qv.max() == 40
    assert np.mean(qv >= 20) > 0.8
    assert np.mean(qv < 20) > 0.02
