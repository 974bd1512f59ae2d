"""How copies are cut when their layout changes: laws that hold for any tissue."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from puncta.indexing._convert_plan import Cuts, even_cuts, feature_borders, group_cuts, tile_cuts
from puncta.indexing._levels import FeatureTiles

counts = st.lists(st.integers(0, 50), min_size=1, max_size=40)
sizes = st.integers(1, 60)


def rows_of(cuts: Cuts, window_rows: int) -> list[tuple[int, int]]:
    """Return the rows of every chunk, as the windows have them, in the order in which they are written."""
    found = []
    for file in cuts.windows_of(window_rows=window_rows):
        for window in file.windows:
            ends = [*window.starts[1:].tolist(), window.end - window.first]
            pairs = zip(window.starts.tolist(), ends, strict=True)
            found += [(window.first + start, window.first + end) for start, end in pairs]
    return found


def offsets_of(values: list[int]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(values)]).astype(np.int64)


@given(counts=counts, tiles_per_file=st.integers(1, 9), window_rows=sizes)
def test_every_tile_is_one_chunk_whatever_the_windows(counts: list[int], tiles_per_file: int, window_rows: int) -> None:
    offsets = offsets_of(counts)
    found = rows_of(tile_cuts(offsets, tiles_per_file=tiles_per_file), window_rows)
    assert found == list(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True))


@given(counts=counts, tiles_per_file=st.integers(1, 9), window_rows=sizes)
def test_a_window_is_larger_than_asked_only_for_one_chunk(
    counts: list[int], tiles_per_file: int, window_rows: int
) -> None:
    files = tile_cuts(offsets_of(counts), tiles_per_file=tiles_per_file).windows_of(window_rows=window_rows)
    assert all(window.n_rows <= window_rows or len(window.starts) == 1 for file in files for window in file.windows)
    assert max(len(window.starts) for file in files for window in file.windows) <= tiles_per_file


@given(n_rows=st.integers(0, 300), chunk_rows=st.integers(1, 20), chunks_per_file=st.integers(1, 5), window_rows=sizes)
def test_plain_rows_are_cut_into_even_chunks(
    n_rows: int, chunk_rows: int, chunks_per_file: int, window_rows: int
) -> None:
    cuts = even_cuts(n_rows, chunk_rows=chunk_rows, chunks_per_file=chunks_per_file)
    expected = [(start, min(start + chunk_rows, n_rows)) for start in range(0, n_rows, chunk_rows)]
    assert rows_of(cuts, window_rows) == expected
    numbers = [file.number for file in cuts.windows_of(window_rows=window_rows)]
    assert numbers == list(range(-(-n_rows // (chunk_rows * chunks_per_file))))


def group(first: int, rows: list[int]) -> FeatureTiles:
    """Return features from `first` on, each in one tile."""
    filled = [number for number, count in enumerate(rows) if count]
    return FeatureTiles(
        features=np.asarray(filled, dtype=np.int64) + first,
        tiles=np.zeros(len(filled), dtype=np.uint32),
        counts=np.asarray(rows, dtype=np.int64)[filled],
    )


@given(groups=st.lists(counts, min_size=1, max_size=5), target_rows=sizes, groups_per_file=st.integers(1, 4))
def test_no_part_file_holds_rows_of_two_groups_of_features(
    groups: list[list[int]], target_rows: int, groups_per_file: int
) -> None:
    cuts = group_cuts(
        [group(100 * number, rows) for number, rows in enumerate(groups)],
        target_rows=target_rows,
        groups_per_file=groups_per_file,
    )
    borders = set(offsets_of([sum(rows) for rows in groups]).tolist())
    firsts = cuts.chunks[cuts.files].tolist()
    assert borders <= set(firsts)
    assert int(np.diff(cuts.files).max()) <= groups_per_file
    assert cuts.chunks[-1] == sum(map(sum, groups))


def test_a_copy_without_rows_is_one_file_without_row_groups() -> None:
    cuts = group_cuts([group(0, [0, 0])], target_rows=10, groups_per_file=4)
    assert (cuts.chunks.tolist(), cuts.files.tolist()) == ([0], [0, 0])
    assert [file.windows for file in cuts.windows_of(window_rows=10)] == [()]


@given(counts=counts, target_rows=sizes)
def test_groups_of_features_have_the_rows_asked_or_one_feature(counts: list[int], target_rows: int) -> None:
    borders = feature_borders(counts, target_rows=target_rows)
    assert (borders[0], borders[-1]) == (0, len(counts))
    for first, end in itertools.pairwise(borders):
        assert end > first
        assert sum(counts[first:end]) <= target_rows or end - first == 1


@pytest.mark.parametrize(("counts", "borders"), [([5, 5, 5], [0, 2, 3]), ([50, 1], [0, 1, 2]), ([0, 0], [0, 2])])
def test_features_are_put_together_as_long_as_they_fit(counts: list[int], borders: list[int]) -> None:
    assert feature_borders(counts, target_rows=10) == borders
