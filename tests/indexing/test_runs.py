"""Runs on disk, gathered by key, against one stable sort in memory."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from puncta.indexing._runs import Runs


def write(runs: Runs, number: int, ids: NDArray[np.int64], keys: NDArray[np.unsignedinteger]) -> None:
    """Write a run and take note of it."""
    runs.add(number, runs.files.write(number, pa.table({"id": ids}), keys))


@settings(max_examples=25)
@given(
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=5),
    n_keys=st.integers(1, 6),
    seed=st.integers(0, 99),
    order=st.randoms(use_true_random=False),
)
def test_gathering_a_key_gives_its_rows_run_after_run(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], n_keys: int, seed: int, order: "np.random.Generator"
) -> None:
    rng = np.random.default_rng(seed)
    keys = [rng.integers(0, n_keys, size).astype(np.uint32) for size in sizes]
    ids = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    runs = Runs(tmp_path_factory.mktemp("runs") / "r", n_keys)
    numbers = list(range(len(sizes)))
    order.shuffle(numbers)  # runs may be written in any order
    for number in numbers:
        write(runs, number, ids[number], keys[number])

    together, key = np.arange(sum(sizes)), np.concatenate(keys)
    for wanted in range(n_keys):
        found = runs.files.gather(runs.spans(wanted, wanted + 1))
        assert (found["id"].to_pylist() if found is not None else []) == together[key == wanted].tolist()
    np.testing.assert_array_equal(runs.counts, np.bincount(key, minlength=n_keys))


def test_several_keys_come_sorted_within_each_run(tmp_path: Path) -> None:
    runs = Runs(tmp_path / "r", 4)
    write(runs, 0, np.arange(4), np.asarray([3, 1, 2, 1], dtype=np.uint16))
    write(runs, 1, np.arange(4, 6), np.asarray([2, 1], dtype=np.uint16))
    gathered = runs.files.gather(runs.spans(1, 3))
    assert gathered is not None
    assert gathered["id"].to_pylist() == [1, 3, 2, 5, 4]


def test_a_run_that_was_never_written_has_no_rows(tmp_path: Path) -> None:
    runs = Runs(tmp_path / "r", 4)
    assert runs.files.gather(runs.spans(0, 4)) is None


def test_nothing_is_left_of_runs_that_are_removed(tmp_path: Path) -> None:
    runs = Runs(tmp_path / "r", 1)
    write(runs, 0, np.arange(1), np.zeros(1, dtype=np.uint8))
    assert runs.files.gather(runs.spans(0, 1)) is not None
    runs.remove()
    assert list(tmp_path.iterdir()) == []
