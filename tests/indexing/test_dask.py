"""A cluster makes what one process makes, byte for byte; one worker killed in the middle changes nothing."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from puncta.errors import StoreError
from puncta.indexing import index_points
from puncta.indexing._dask import DaskCrew

ROWS = 40_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from distributed import LocalCluster  # noqa: PLC0415  # takes a second

    made = LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None)
    with made:
        yield made


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    genes = pa.array([f"g{code}" for code in np.minimum(rng.geometric(0.2, ROWS), 40)])
    cells = pa.array([f"cell-{number}" for number in rng.integers(0, 900, ROWS)])
    path = tmp_path / "molecules.parquet"
    columns = {"x": rng.random(ROWS) * 100, "y": rng.random(ROWS) * 100, "gene": genes, "cell": cells}
    pq.write_table(pa.table(columns), path)
    return path


def build(source: Path, store: Path, **options: Any) -> dict[str, bytes]:  # noqa: ANN401  # options of the door
    index_points(source, store, feature_key="gene", layout="both", tile_size=4, limit=200, **options)
    return {str(path.relative_to(store)): path.read_bytes() for path in store.rglob("*") if path.is_file()}


def test_a_cluster_makes_the_same_bytes(cluster: Any, table: Path, tmp_path: Path) -> None:  # noqa: ANN401
    alone = build(table, tmp_path / "alone.zarr")
    assert build(table, tmp_path / "cluster.zarr", dask=cluster.scheduler_address) == alone


def test_a_worker_that_is_killed_changes_nothing(cluster: Any, table: Path, tmp_path: Path) -> None:  # noqa: ANN401
    alone = build(table, tmp_path / "alone.zarr")
    killed: list[int] = []

    def kill(stage: str, *_: int) -> None:
        if stage == "writing level 0" and not killed:
            pid = next(iter(cluster.workers.values())).pid
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

    assert build(table, tmp_path / "cluster.zarr", dask=cluster.scheduler_address, progress=kill) == alone
    assert killed


def test_the_client_of_the_caller_stays_open(cluster: Any, table: Path, tmp_path: Path) -> None:  # noqa: ANN401
    from distributed import Client  # noqa: PLC0415  # as above

    with Client(cluster, set_as_default=False) as client:
        build(table, tmp_path / "cluster.zarr", dask=client)
        assert client.status == "running"


def test_where_nobody_listens_it_says_how_to_start_a_scheduler(table: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"no dask scheduler at tcp://127\.0\.0\.1:1 .*dask scheduler"):
        build(table, tmp_path / "cluster.zarr", dask="tcp://127.0.0.1:1")
    assert [path.name for path in tmp_path.iterdir()] == ["molecules.parquet"]


def test_a_folder_that_workers_do_not_see_is_refused(
    cluster: Any,  # noqa: ANN401
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    # one path, and another folder in each process
    folder = Path("/proc/self/cwd/elsewhere")
    with pytest.raises(StoreError, match=r"2 of 2 dask workers do not see .*--tmp"):
        DaskCrew(cluster.scheduler_address, [folder])
    assert list(folder.iterdir()) == []
