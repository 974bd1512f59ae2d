"""The order of rows by small integer keys, against numpy's lexicographic sort."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puncta.indexing._order import stable_order

# Bounds on both sides of the digit: one digit, one value more, two digits, all of 32 bits.
BOUNDS = st.sampled_from([1, 3, 2**16 - 1, 2**16, 2**20, 2**32 - 1])
TYPES = {2**16 - 1: np.uint16, 2**32 - 1: np.uint32}


@given(bounds=st.lists(BOUNDS, min_size=1, max_size=3), n_rows=st.integers(0, 300), seed=st.integers(0, 99))
def test_rows_come_in_the_order_of_a_lexicographic_sort(bounds: list[int], n_rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    keys = [rng.integers(0, bound, n_rows, endpoint=True).astype(np.uint32) for bound in bounds]

    order = stable_order(*keys)

    np.testing.assert_array_equal(order, np.lexsort(keys[::-1]))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
def test_ties_keep_their_order_in_every_type(dtype: type[np.unsignedinteger]) -> None:
    key = np.asarray([1, 0, 1, 0, 1, 0] * 1000, dtype=dtype)
    np.testing.assert_array_equal(stable_order(key), np.argsort(key, kind="stable"))


def test_keys_that_differ_in_their_high_digit_alone_are_told_apart() -> None:
    key = np.asarray([3 << 16, 1 << 16, 2 << 16, 1 << 16], dtype=np.uint32)
    assert stable_order(key).tolist() == [1, 3, 2, 0]


def test_the_keys_are_left_as_they_were() -> None:
    key = np.asarray([5, 1, 70_000], dtype=np.uint32)
    stable_order(key, key)
    assert key.tolist() == [5, 1, 70_000]
