"""Plans against brute force: the rows that the reads bring are the rows that were wanted, in order."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from puncta.points._plan import choose_level, merged, padded, ranges_of_tiles, reads_of, rows_in_blocks, tiles_among

type Ints = NDArray[np.int64]


def rows_of(ranges: Ints) -> list[int]:
    return [row for start, end in ranges.tolist() for row in range(start, end)]


def starts_of(counts: list[int]) -> Ints:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


@st.composite
def wanted_ranges(draw: st.DrawFn, n_rows: int) -> Ints:
    """Return ranges of some rows, as few as possible: each row is wanted or not."""
    wanted = np.asarray(draw(st.lists(st.booleans(), min_size=n_rows, max_size=n_rows)), dtype=np.int64)
    steps = np.diff(wanted, prepend=0, append=0)
    return np.stack([np.flatnonzero(steps == 1), np.flatnonzero(steps == -1)], axis=1).astype(np.int64)


counts_with_empties = st.lists(st.integers(0, 4), min_size=1, max_size=14)


@given(counts_with_empties, st.data())
def test_merged_ranges_hold_the_same_rows_and_do_not_touch(counts: list[int], data: st.DataObject) -> None:
    offsets = starts_of(counts)
    chosen = data.draw(st.lists(st.sampled_from(range(len(counts))), unique=True).map(sorted))
    tiles = np.asarray(chosen, dtype=np.int64)
    ranges = merged(offsets[tiles], offsets[tiles + 1])
    expected = [row for tile in chosen for row in range(int(offsets[tile]), int(offsets[tile + 1]))]
    assert rows_of(ranges) == expected
    assert (ranges[1:, 0] > ranges[:-1, 1]).all()
    assert (ranges[:, 1] > ranges[:, 0]).all()
    np.testing.assert_array_equal(ranges_of_tiles(tiles, offsets), ranges)


@given(counts_with_empties, st.data())
def test_the_reads_bring_exactly_the_wanted_rows_in_order(counts: list[int], data: st.DataObject) -> None:
    group_starts = starts_of(counts)
    cuts = data.draw(st.lists(st.integers(1, len(counts)), unique=True).map(sorted))
    part_starts = np.unique([0, *cuts, len(counts)]).astype(np.int64)
    ranges = data.draw(wanted_ranges(int(group_starts[-1])))
    brought: list[int] = []
    for read in reads_of(ranges, group_starts, part_starts):
        groups = read.groups + part_starts[read.part]
        assert (groups < part_starts[read.part + 1]).all()
        held = [row for group in groups for row in range(int(group_starts[group]), int(group_starts[group + 1]))]
        assert len(held) == read.n_rows
        assert all(counts[group] for group in groups)
        brought += [held[at] for at in rows_of(read.slices)]
    assert brought == rows_of(ranges)


@given(counts_with_empties, st.data())
def test_no_read_touches_a_row_group_without_wanted_rows(counts: list[int], data: st.DataObject) -> None:
    group_starts = starts_of(counts)
    ranges = data.draw(wanted_ranges(int(group_starts[-1])))
    wanted = np.asarray(rows_of(ranges), dtype=np.int64)
    needed = sorted(set((np.searchsorted(group_starts, wanted, side="right") - 1).tolist()))
    reads = reads_of(ranges, group_starts, np.asarray([0, len(counts)], dtype=np.int64))
    assert [group for read in reads for group in read.groups.tolist()] == needed


def test_nothing_wanted_needs_no_read() -> None:
    assert reads_of(np.zeros((0, 2), dtype=np.int64), starts_of([3, 0]), starts_of([2])) == []


tile_ids = st.lists(st.integers(0, 40), unique=True).map(sorted).map(lambda ids: np.asarray(ids, dtype=np.int64))


@given(tile_ids, tile_ids)
def test_tiles_among_others_are_found_where_they_are(own: Ints, tiles: Ints) -> None:
    expected = [at for at, tile in enumerate(own.tolist()) if tile in set(tiles.tolist())]
    assert tiles_among(own, tiles).tolist() == expected


@given(counts_with_empties, st.integers(0, 3), st.data())
def test_padded_places_hold_the_wanted_rows_in_order(counts: list[int], spare: int, data: st.DataObject) -> None:
    offsets, chunk = starts_of(counts), max([*counts, 1]) + spare
    ranges = data.draw(wanted_ranges(int(offsets[-1])))
    stored = np.full(len(counts) * chunk, -1)
    for tile, count in enumerate(counts):
        stored[tile * chunk : tile * chunk + count] = np.arange(offsets[tile], offsets[tile + 1])
    places = padded(ranges, offsets, chunk)
    assert [row for start, end in places.tolist() for row in stored[start:end].tolist()] == rows_of(ranges)


@given(st.integers(1, 60), st.integers(1, 9), st.data())
def test_rows_in_blocks_are_those_of_the_blocks_that_are_met(n_rows: int, block: int, data: st.DataObject) -> None:
    ranges = data.draw(wanted_ranges(n_rows))
    met = {row // block for row in rows_of(ranges)}
    expected = sum(row // block in met for row in range(n_rows))
    assert rows_in_blocks(ranges, block=block, n_rows=n_rows) == expected


expectations = st.lists(st.floats(0, 1e9), min_size=1, max_size=12).map(lambda values: sorted(values, reverse=True))
budgets = st.integers(1, 10**7)


@given(expectations, budgets)
def test_no_more_is_expected_than_the_budget(expected: list[float], budget: int) -> None:
    choice = choose_level(expected, budget)
    assert 0 < choice.share <= 1
    assert expected[choice.level] * choice.share <= budget * (1 + 1e-12)


@given(expectations, budgets)
def test_at_least_half_of_the_budget_is_expected_where_there_is_as_much(expected: list[float], budget: int) -> None:
    choice = choose_level(expected, budget)
    shown = expected[choice.level] * choice.share
    assert shown >= min(expected[0], budget / 2) * (1 - 1e-12)


@given(expectations, budgets)
def test_what_fits_at_level_0_is_shown_whole(expected: list[float], budget: int) -> None:
    choice = choose_level(expected, budget)
    if expected[0] <= budget:
        assert (choice.level, choice.share) == (0, 1.0)


@given(expectations, budgets)
def test_a_thinned_level_is_the_next_finer_one_to_the_first_that_fits(expected: list[float], budget: int) -> None:
    choice = choose_level(expected, budget)
    if choice.share < 1:
        assert expected[choice.level] > budget / 2
        assert all(rows <= budget for rows in expected[choice.level + 1 :])
