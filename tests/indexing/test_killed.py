"""A builder that is killed at any moment leaves the store as it was or as it will be, and the next one finishes."""

import json
import os
import signal
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import puncta
from puncta.indexing import index_points

ROWS = 20_000
KILLS = 30


@pytest.fixture(scope="module")
def molecules() -> pa.Table:
    rng = np.random.default_rng(0)
    genes = pa.array([f"g{code}" for code in rng.integers(0, 20, ROWS)])
    return pa.table({"x": rng.random(ROWS) * 100, "y": rng.random(ROWS) * 100, "gene": genes, "id": np.arange(ROWS)})


def index_in_place(store: Path, limit: int) -> None:
    index_points(store, in_place=True, overwrite=True, limit=limit, workers=1)


def killed_after(store: Path, limit: int, seconds: float) -> bool:
    """Index in a forked child, which has every module loaded already, and kill it; say whether it was in time."""
    child = os.fork()
    if not child:
        try:
            index_in_place(store, limit)
        finally:
            os._exit(0)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def state_of(store: Path) -> int:
    """Return the limit that the element in the store was indexed with, all of it being there and of one piece."""
    element = store / "points" / "transcripts"
    attrs = json.loads((element / "zarr.json").read_text())["attributes"]
    table = pq.ParquetDataset(element / "points.parquet").read(columns=["id"])
    assert sorted(table["id"].to_pylist()) == list(range(ROWS))
    assert not puncta.validate(element)
    return int(attrs["spatial_index"]["limit"])


@pytest.mark.slow
def test_a_kill_at_any_moment_loses_nothing(tmp_path: Path, molecules: pa.Table) -> None:
    store = tmp_path / "study.zarr"
    index_points(molecules, store, limit=1_000)
    start = time.perf_counter()
    index_in_place(store, 1_001)
    whole = time.perf_counter() - start

    limits, in_time = {1_001}, 0
    for kill, delay in enumerate(np.linspace(0, whole * 1.1, KILLS)):
        limits.add(2_000 + kill)
        in_time += killed_after(store, 2_000 + kill, float(delay))
        puncta.open_points(store)  # what a reader meets first: it finishes or clears what was left
        assert state_of(store) in limits

    # Most of the delays lie within a build; on a busy machine the last ones may not.
    assert in_time >= KILLS // 3
    index_in_place(store, 1_002)
    assert state_of(store) == 1_002
    assert [path.name for path in tmp_path.iterdir()] == ["study.zarr"]


def test_counts_stay_what_they_were(tmp_path: Path, molecules: pa.Table) -> None:
    store = tmp_path / "study.zarr"
    index_points(molecules, store, limit=1_000)
    index_in_place(store, 500)

    points = puncta.open_points(store)
    found = {name: points.count(features=[name]).count for name in points.features}
    assert found == {row["values"]: row["counts"] for row in pc.value_counts(molecules["gene"]).to_pylist()}
