"""Plans of the levels, against slow and obvious computations."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from puncta.indexing._levels import (
    ancestors_of,
    buckets_of_tiles,
    feature_fractions,
    feature_tiles_of,
    fraction_of_next_level,
    row_group_cuts,
    rows_kept,
)
from puncta.points._grid import Grid

GRID = Grid(axes=("x", "y"), origin=(0, 0), tile_size=(1, 1), shape=(5, 7))


def sorted_rows(seed: int, n_rows: int, n_features: int = 3) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """Return features and tiles of rows, by feature, then by tile; low tiles are fuller."""
    rng = np.random.default_rng(seed)
    features = np.sort(rng.integers(0, n_features, n_rows))
    tiles = np.minimum(rng.geometric(0.2, n_rows) - 1, GRID.n_tiles - 1)
    order = np.lexsort((tiles, features))
    return features[order], tiles[order].astype(np.uint32)


def slow_fractions(
    features: NDArray[np.int64], tiles: NDArray[np.uint32], u: NDArray[np.uint32], limit: int
) -> NDArray[np.float64]:
    """Return P_g of every level by the RFC's formulas, point by point."""
    columns, rows = np.divmod(tiles, 7)
    kept = np.ones(len(tiles), dtype=bool)
    fractions = [np.ones(3)]
    # 5 x 7 tiles become 3 x 4, 2 x 2 and 1 x 1: halves along both axes each time.
    for level in (1, 2, 3):
        after = fractions[-1].copy()
        for feature in range(3):
            of_feature = kept & (features == feature)
            places = [(c >> level, r >> level) for c, r in zip(columns[of_feature], rows[of_feature], strict=True)]
            densest = max((places.count(place) for place in set(places)), default=0)
            after[feature] *= min(1.0, limit / densest) if densest else 1.0
        kept &= u / 2**32 < after[features]
        fractions.append(after)
    return np.asarray(fractions)


@settings(max_examples=30)
@given(seed=st.integers(0, 999), n_rows=st.integers(0, 200), limit=st.integers(1, 30))
def test_fractions_of_features_are_those_of_the_formulas(seed: int, n_rows: int, limit: int) -> None:
    features, tiles = sorted_rows(seed, n_rows)
    u = np.random.default_rng(seed + 1).integers(0, 2**32, n_rows, dtype=np.uint32)
    rows = (np.bincount(features, minlength=3), tiles, u)

    found = feature_fractions(rows, feature_tiles_of(features, tiles), ancestors_of(list(GRID.pyramid())), limit=limit)

    np.testing.assert_allclose(found, slow_fractions(features, tiles, u, limit), rtol=1e-12)


@pytest.mark.parametrize(("limit", "expected"), [(5, 0.5 * 5 / 8), (8, 0.5), (9, 0.5)])
def test_the_next_fraction_thins_the_densest_merged_tile_to_the_limit(limit: int, expected: float) -> None:
    counts, parents = np.asarray([3, 5, 1, 6], dtype=np.int64), np.asarray([0, 0, 1, 1], dtype=np.uint32)
    assert fraction_of_next_level(counts, parents, fraction=0.5, limit=limit) == pytest.approx(expected)


@settings(max_examples=30)
@given(seed=st.integers(0, 999), n_rows=st.integers(0, 200))
def test_pairs_count_the_rows_of_each_feature_and_tile_at_any_level(seed: int, n_rows: int) -> None:
    features, tiles = sorted_rows(seed, n_rows)
    ancestors = ancestors_of(list(GRID.pyramid()))
    pairs = feature_tiles_of(features, tiles).moved(ancestors[2])
    keys, counts = np.unique(np.stack([features, ancestors[2][tiles]]), axis=1, return_counts=True)
    np.testing.assert_array_equal(np.stack([pairs.features, pairs.tiles]), keys)
    np.testing.assert_array_equal(pairs.counts, counts)


def test_the_ancestor_of_a_tile_is_the_half_of_its_place() -> None:
    ancestors = ancestors_of(list(GRID.pyramid()))
    columns, rows = np.divmod(np.arange(35), 7)
    np.testing.assert_array_equal(ancestors[1], columns // 2 * 4 + rows // 2)
    np.testing.assert_array_equal(ancestors[2], columns // 4 * 2 + rows // 4)
    assert set(ancestors[3]) == {0}


def test_kept_rows_are_those_whose_number_is_below_the_fraction() -> None:
    u = (np.asarray([0.1, 0.5, 0.9, 0.2, 0.7]) * 2**32).astype(np.uint32)
    kept, positions = rows_kept(np.asarray([3, 0, 2], dtype=np.int64), u, np.asarray([0.6, 1.0, 0.3]))
    assert kept.tolist() == [2, 0, 1]
    assert positions.tolist() == [0, 1, 3]


def test_a_feature_of_fraction_zero_is_not_stored() -> None:
    kept, positions = rows_kept(
        np.asarray([2, 1], dtype=np.int64), np.zeros(3, dtype=np.uint32), np.asarray([0.0, 1.0])
    )
    assert (kept.tolist(), positions.tolist()) == ([0, 1], [2])


@given(
    counts=st.lists(st.integers(0, 50), min_size=1, max_size=60),
    per_part=st.integers(1, 16),
    target=st.integers(1, 120),
)
def test_buckets_cover_every_tile_and_cross_no_part(counts: list[int], per_part: int, target: int) -> None:
    starts = buckets_of_tiles(np.asarray(counts), tiles_per_part=per_part, target_rows=target).tolist()
    assert starts[0] == 0
    assert starts == sorted(set(starts))
    assert set(range(0, len(counts), per_part)) <= set(starts)
    sizes = [counts[a:b] for a, b in zip(starts, [*starts[1:], len(counts)], strict=True)]
    assert all(sum(size) <= target or len(size) == 1 or sum(size[1:]) == 0 for size in sizes)


@given(seed=st.integers(0, 999), n_rows=st.integers(0, 400), target=st.integers(1, 60))
def test_row_groups_are_cut_between_tiles_and_are_never_much_too_large(seed: int, n_rows: int, target: int) -> None:
    features, tiles = sorted_rows(seed, n_rows)
    pairs = feature_tiles_of(features, tiles)
    cuts = row_group_cuts(pairs, target_rows=target).tolist()
    assert cuts == sorted(set(cuts))
    assert cuts[:1] == ([0] if n_rows else [])
    assert set(cuts) <= {0, *np.cumsum(pairs.counts).tolist()}
    sizes: list[int] = np.diff([*cuts, n_rows]).tolist()
    # A tile of one feature is never cut, so a group may be as large as the largest one.
    assert max(sizes, default=0) <= max(target * 1.25, int(pairs.counts.max(initial=0)))


def test_row_groups_end_where_a_feature_ends_nearby() -> None:
    features = np.repeat([0, 1, 2, 3], [90, 20, 95, 100])
    pairs = feature_tiles_of(features, np.zeros(305, dtype=np.uint32))
    assert row_group_cuts(pairs, target_rows=100).tolist() == [0, 110, 205]
