"""The fine histogram and the tile size chosen from it, against counting the points themselves."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from puncta.indexing._histogram import MAX_BINS, Choice, Histogram, choose_tile_size, empty_histogram, round_above

COORDINATE = st.floats(-1e5, 1e5, allow_nan=False, width=32)


def counted(points: NDArray[np.float64]) -> Histogram:
    histogram = empty_histogram(points.min(axis=0).tolist(), points.max(axis=0).tolist())
    histogram.add(list(points.T))
    return histogram


def tiles_of(points: NDArray[np.float64], choice: Choice) -> NDArray[np.int64]:
    """Return the true count of each occupied tile of a choice."""
    tiles = np.floor((points - choice.origin) / choice.tile_size)
    return np.unique(tiles, axis=0, return_counts=True)[1]


@settings(max_examples=15)
@given(points=st.lists(st.tuples(COORDINATE, COORDINATE), min_size=1, max_size=40))
def test_every_point_is_counted_once(points: list[tuple[float, float]]) -> None:
    histogram = counted(np.asarray(points))
    assert histogram.counts.sum() == len(points)
    assert histogram.counts.size <= MAX_BINS


@settings(max_examples=10)
@given(
    points=st.lists(st.tuples(COORDINATE, COORDINATE), min_size=1, max_size=40),
    edges=st.tuples(st.floats(50, 1e5), st.floats(50, 1e5)),
)
def test_blocks_of_any_size_hold_every_point(points: list[tuple[float, float]], edges: tuple[float, float]) -> None:
    histogram = counted(np.asarray(points))
    origin = [number * histogram.edge for number in histogram.first]
    assert histogram.block_counts(edges, origin).sum() == len(points)


def test_blocks_of_whole_bins_are_counted_exactly() -> None:
    points = np.random.default_rng(0).random((5000, 2)) * 1000
    histogram = counted(points)
    blocks = histogram.block_counts((100.0, 200.0), (0.0, 0.0))
    edges = [np.linspace(0, 1000, 11), np.linspace(0, 1000, 6)]
    expected = np.histogramdd(points, bins=edges)[0]
    np.testing.assert_array_equal(blocks, expected)


def test_a_row_may_stand_for_several() -> None:
    histogram = empty_histogram([0.0], [9.0])
    histogram.add([np.asarray([1.0, 5.0])], weight=7)
    assert histogram.counts.sum() == 14


@pytest.mark.parametrize("lower", [(0.0, 0.0), (-3.5, 1e6), (7.0, 7.0)])
def test_points_in_one_place_make_one_bin(lower: tuple[float, float]) -> None:
    assert empty_histogram(lower, lower).counts.shape == (1, 1)


@pytest.mark.parametrize("extent", [(1e6, 3.0), (3.0, 1e6), (1.0, 1.0), (1e-3, 1e-3), (1e7, 1e7)])
def test_bins_are_many_but_bounded_whatever_the_shape(extent: tuple[float, float]) -> None:
    histogram = empty_histogram((0.0, 0.0), extent)
    assert MAX_BINS / 50 < histogram.counts.size <= MAX_BINS


@pytest.mark.parametrize("limit", [10, 100, 1000])
@pytest.mark.parametrize("shape", [(1000.0, 1000.0), (40.0, 9000.0)])
def test_the_densest_tile_holds_about_the_limit(limit: int, shape: tuple[float, float]) -> None:
    points = np.random.default_rng(1).random((20_000, 2)) * shape
    choice = choose_tile_size(counted(points), limit=limit, max_tiles=10**6)
    # The sizes to choose from grow by 4/3 at the most, so counts do by less than 2: the nearest is within sqrt(2).
    assert limit / 1.45 <= tiles_of(points, choice).max() <= limit * 1.45


def test_the_estimate_of_the_densest_tile_is_close() -> None:
    points = np.random.default_rng(2).normal(0, 300, (50_000, 2))
    choice = choose_tile_size(counted(points), limit=2000, max_tiles=65_536)
    assert choice.densest == pytest.approx(tiles_of(points, choice).max(), rel=0.05)


@pytest.mark.parametrize("max_tiles", [1, 2, 10, 100])
def test_the_number_of_tiles_is_capped(max_tiles: int) -> None:
    points = np.random.default_rng(3).random((20_000, 2)) * 1000
    choice = choose_tile_size(counted(points), limit=5, max_tiles=max_tiles)
    spread = np.floor((points.max(axis=0) - choice.origin) / choice.tile_size) + 1
    assert spread.prod() <= max_tiles


@settings(max_examples=15)
@given(max_tiles=st.integers(1, 20), shift=st.floats(-150, 50), extent=st.floats(1e-2, 1e3), seed=st.integers(0, 99))
def test_the_cap_holds_for_points_around_zero_too(max_tiles: int, shift: float, extent: float, seed: int) -> None:
    points = np.random.default_rng(seed).random((50, 2)) * extent + shift
    choice = choose_tile_size(counted(points), limit=1, max_tiles=max_tiles)
    tiles = np.floor((points - choice.origin) / choice.tile_size)
    assert (tiles.max(axis=0) + 1).prod() <= max_tiles


def test_no_more_tiles_are_made_than_the_limit_asks_for() -> None:
    points = np.random.default_rng(4).random((1000, 2)) * 1000
    choice = choose_tile_size(counted(points), limit=10_000, max_tiles=65_536)
    assert len(tiles_of(points, choice)) == 1


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6])
def test_the_tile_size_is_a_round_number_and_the_origin_a_multiple_of_it(scale: float) -> None:
    points = (np.random.default_rng(5).random((5000, 2)) + 17.3) * scale
    choice = choose_tile_size(counted(points), limit=50, max_tiles=65_536)
    assert len(f"{choice.tile_size:e}".split("e")[0].rstrip("0")) <= len("1.2")
    multiples = np.asarray(choice.origin) / choice.tile_size
    np.testing.assert_allclose(multiples, np.rint(multiples), atol=1e-9)
    assert (points.min(axis=0) >= choice.origin).all()


@given(value=st.floats(1e-6, 1e9))
def test_a_round_number_above_is_above_and_not_far(value: float) -> None:
    assert value < round_above(value) <= value * 1.34


def test_nothing_is_rounded_to_one() -> None:
    assert round_above(0.0) == 1.0
