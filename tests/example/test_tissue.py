"""The tissue as a whole: counts, types, determinism, and the shapes of its cells."""

import numpy as np
import pyarrow as pa
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from puncta.errors import QueryError
from puncta.example import Tissue, make_tissue


@pytest.fixture(scope="module")
def tissue() -> Tissue:
    return make_tissue(points=60_000)


def test_molecules_have_the_promised_columns(tissue: Tissue) -> None:
    assert tissue.molecules.schema == pa.schema(
        {
            "x": pa.float32(),
            "y": pa.float32(),
            "z": pa.float32(),
            "gene": pa.dictionary(pa.int16(), pa.string()),
            "cell_id": pa.int32(),
            "qv": pa.float32(),
        }
    )


def test_cells_have_the_promised_columns(tissue: Tissue) -> None:
    assert tissue.cells.schema == pa.schema(
        {
            "cell_id": pa.int32(),
            "x": pa.float32(),
            "y": pa.float32(),
            "cell_type": pa.dictionary(pa.int8(), pa.string()),
            "area": pa.float32(),
        }
    )


@pytest.mark.parametrize("points", [1, 2, 3, 99, 100, 1_001, 12_345])
def test_the_number_of_molecules_is_exact(points: int) -> None:
    assert make_tissue(points=points).molecules.num_rows == points


@given(points=st.integers(1, 3_000), seed=st.integers(0, 2**64), genes=st.integers(2, 400))
@settings(max_examples=25)
def test_any_size_and_seed_gives_a_tissue_that_agrees_with_itself(points: int, seed: int, genes: int) -> None:
    tissue = make_tissue(points=points, seed=seed, genes=genes)
    cell_id = tissue.molecules["cell_id"].to_numpy()
    assert tissue.molecules.num_rows == points
    assert len(tissue.boundaries) == tissue.cells.num_rows >= 1
    assert cell_id.min() >= -1
    assert cell_id.max() < tissue.cells.num_rows
    assert len(tissue.molecules["gene"].chunk(0).dictionary) == genes
    assert all(np.isfinite(tissue.molecules[axis].to_numpy()).all() for axis in "xyz")


def test_cells_hold_sixty_to_a_hundred_molecules_on_average(tissue: Tissue) -> None:
    cell_id = tissue.molecules["cell_id"].to_numpy()
    assert 60 <= (cell_id >= 0).sum() / tissue.cells.num_rows <= 100


def test_the_same_seed_gives_the_same_tissue() -> None:
    first, second = make_tissue(points=5_000, seed=7), make_tissue(points=5_000, seed=7)
    assert first.molecules.equals(second.molecules)
    assert first.cells.equals(second.cells)
    assert first.boundaries.tobytes() == second.boundaries.tobytes()


def test_another_seed_gives_another_tissue() -> None:
    first, second = make_tissue(points=5_000, seed=7), make_tissue(points=5_000, seed=8)
    assert not first.molecules["x"].equals(second.molecules["x"])
    assert not np.array_equal(first.boundaries, second.boundaries)


def test_the_random_state_of_the_caller_is_left_alone() -> None:
    before = np.random.get_state()[1]  # noqa: NPY002 - the state that must not change is the old global one
    make_tissue(points=100)
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_boundaries_are_valid_rings_that_do_not_repeat_a_vertex(tissue: Tissue) -> None:
    assert tissue.boundaries.dtype == np.float32
    assert shapely.is_valid(shapely.polygons(tissue.boundaries)).all()
    assert (tissue.boundaries[:, 0] != tissue.boundaries[:, -1]).any(axis=1).all()


def test_cells_do_not_overlap(tissue: Tissue) -> None:
    polygons = np.asarray(shapely.polygons(tissue.boundaries))
    one, other = shapely.STRtree(polygons).query(polygons, predicate="intersects")
    shared = shapely.area(shapely.intersection(polygons[one], polygons[other]))[one != other]
    assert shared.max(initial=0) < 0.01


def test_area_and_centroid_are_those_of_the_boundary(tissue: Tissue) -> None:
    polygons = shapely.polygons(tissue.boundaries.astype(np.float64))
    centroid = shapely.get_coordinates(shapely.centroid(polygons))
    assert np.allclose(tissue.cells["area"].to_numpy(), shapely.area(polygons), rtol=1e-3)
    assert np.allclose(tissue.cells["x"].to_numpy(), centroid[:, 0], atol=0.01)
    assert np.allclose(tissue.cells["y"].to_numpy(), centroid[:, 1], atol=0.01)


def test_no_cell_is_a_circle_and_some_are_long(tissue: Tissue) -> None:
    polygons = shapely.polygons(tissue.boundaries)
    roundness = 4 * np.pi * shapely.area(polygons) / shapely.length(polygons) ** 2
    assert np.mean(roundness > 0.985) < 0.02
    assert 0.03 < np.mean(roundness < 0.85) < 0.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"points": 0}, "0 molecules.*at least 1"),
        ({"seed": -1}, "seed is -1.*from 0"),
        ({"genes": 1}, "1 genes.*2 to 32,767"),
        ({"genes": 32_768}, "32768 genes"),
    ],
)
def test_an_argument_out_of_range_is_refused(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(QueryError, match=message):
        make_tissue(**arguments)
