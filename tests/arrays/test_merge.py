"""Ranges that lie near each other become one read."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from puncta.arrays._merge import LOCAL, REMOTE, Merging, merge


def spans(starts: NDArray[np.int64], ends: NDArray[np.int64], merging: Merging) -> list[tuple[int, int]]:
    bounds = merge(starts, ends, merging).tolist()
    return [(int(starts[low]), int(ends[low:high].max())) for low, high in pairwise(bounds)]


def ranges(*pairs: tuple[int, int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    table = np.array(pairs, np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def test_neighbours_are_one_read_on_a_local_disk() -> None:
    assert spans(*ranges((0, 10), (10, 20), (21, 30)), LOCAL) == [(0, 20), (21, 30)]


def test_a_gap_is_read_over_where_requests_are_dear() -> None:
    assert spans(*ranges((0, 10_000), (10_500, 20_000)), REMOTE) == [(0, 20_000)]


def test_a_gap_wider_than_allowed_stays() -> None:
    merging = Merging(gap=100, waste=10.0, spare=0, limit=1 << 30)
    assert spans(*ranges((0, 1000), (1101, 2000), (2100, 3000)), merging) == [(0, 1000), (1101, 3000)]


def test_the_narrowest_gaps_are_read_over_first() -> None:
    merging = Merging(gap=1000, waste=0.1, spare=0, limit=1 << 30)
    assert spans(*ranges((0, 1000), (1300, 2300), (2400, 3400)), merging) == [(0, 1000), (1300, 3400)]


def test_a_long_read_is_split_at_the_borders_of_ranges() -> None:
    merging = Merging(gap=0, waste=0.0, spare=0, limit=100)
    assert spans(*ranges((0, 60), (60, 120), (120, 180)), merging) == [(0, 120), (120, 180)]


def test_no_ranges_are_no_reads() -> None:
    assert spans(*ranges(), REMOTE) == []


PAIRS = st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 300)), max_size=30).map(sorted)
MERGINGS = st.builds(
    Merging, gap=st.integers(0, 500), waste=st.floats(0, 3), spare=st.integers(0, 900), limit=st.integers(1, 2000)
)


@given(pairs=PAIRS, merging=MERGINGS)
def test_every_range_lies_in_exactly_one_read(pairs: list[tuple[int, int]], merging: Merging) -> None:
    starts, ends = ranges(*[(start, start + length) for start, length in pairs])
    bounds = merge(starts, ends, merging)
    assert bounds[0] == 0
    assert bounds[-1] == len(pairs)
    assert (np.diff(bounds) > 0).all()


@given(pairs=PAIRS, merging=MERGINGS)
def test_what_is_read_in_vain_stays_within_what_is_allowed(pairs: list[tuple[int, int]], merging: Merging) -> None:
    starts, ends = ranges(*[(start, start + length) for start, length in pairs])
    wanted = set().union(*[range(start, end) for start, end in zip(starts, ends, strict=True)])
    fetched = sum(end - start for start, end in spans(starts, ends, merging))
    assert fetched <= len(wanted) + max(len(wanted) * merging.waste, merging.spare)


@given(pairs=PAIRS, merging=MERGINGS)
def test_no_byte_is_read_twice(pairs: list[tuple[int, int]], merging: Merging) -> None:
    starts, ends = ranges(*[(start, start + length) for start, length in pairs])
    reads = spans(starts, ends, merging)
    assert all(end <= start for (_, end), (start, _) in pairwise(reads))
