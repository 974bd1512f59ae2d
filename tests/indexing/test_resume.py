"""A build that is stopped goes on from its finished parts, and the result is the same byte for byte."""

import os
import signal
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from puncta.errors import SourceError
from puncta.indexing import IndexReport, index_points

ROWS = 60_000
WENT_ON = "went on from a build"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    genes = pa.array([f"g{code}" for code in np.minimum(rng.geometric(0.2, ROWS), 40)])
    columns = {"x": rng.random(ROWS) * 100, "y": rng.random(ROWS) * 100, "gene": genes, "id": np.arange(ROWS)}
    path = tmp_path_factory.mktemp("source") / "molecules.parquet"
    pq.write_table(pa.table(columns), path)
    return path


class Stop:
    """Interrupts a build at its n-th word of progress."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, stage: str, done: int, total: int) -> None:
        del stage, done, total
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


def build(source: Path, store: Path, stop_at: int = 0, **options: object) -> IndexReport:
    given: dict[str, object] = {"layout": "both", "tile_size": 4, "limit": 200, "max_tiles": 2_000, **options}
    return index_points(source, store, feature_key="gene", progress=Stop(stop_at), **given)  # type: ignore[arg-type]


def files_of(store: Path) -> dict[str, bytes]:
    return {str(path.relative_to(store)): path.read_bytes() for path in store.rglob("*") if path.is_file()}


def build_folders(folder: Path) -> list[Path]:
    return sorted(folder.glob(".*.puncta-build-*"))


@pytest.fixture(scope="module")
def whole(table: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    store = tmp_path_factory.mktemp("whole") / "study.zarr"
    build(table, store)
    return files_of(store)


@pytest.mark.parametrize("stop_at", [1, 2, 3, 4, 6, 8, 10])
def test_the_second_run_makes_what_one_run_would_have_made(
    stop_at: int, table: Path, whole: dict[str, bytes], tmp_path: Path
) -> None:
    store = tmp_path / "study.zarr"
    with pytest.raises(KeyboardInterrupt):
        build(table, store, stop_at)
    assert not store.exists()

    build(table, store)
    assert files_of(store) == whole
    assert [path.name for path in tmp_path.iterdir()] == ["study.zarr"]


def test_finished_parts_are_not_written_again(table: Path, tmp_path: Path) -> None:
    store = tmp_path / "study.zarr"
    with pytest.raises(KeyboardInterrupt) as stopped:
        build(table, store, 6)
    (folder,) = build_folders(tmp_path)
    assert str(folder) in stopped.value.__notes__[0]
    before = {path.name: path.stat().st_mtime_ns for path in (folder / "element" / "points.parquet").iterdir()}

    report = build(table, store)
    after = {path.name: path.stat().st_mtime_ns for path in (Path(report.path) / "points.parquet").iterdir()}
    assert before
    assert before.items() <= after.items()
    assert any(WENT_ON in note for note in report.notes)


def test_a_build_may_stop_several_times(table: Path, whole: dict[str, bytes], tmp_path: Path) -> None:
    store = tmp_path / "study.zarr"
    for stop_at in (4, 6, 8):
        with pytest.raises(KeyboardInterrupt):
            build(table, store, stop_at)
    build(table, store)
    assert files_of(store) == whole


@pytest.mark.parametrize("share", [0.3, 0.5, 0.7, 0.9])
def test_a_killed_build_goes_on(share: float, table: Path, whole: dict[str, bytes], tmp_path: Path) -> None:
    start = time.perf_counter()
    build(table, tmp_path / "timed.zarr")
    seconds = time.perf_counter() - start
    store = tmp_path / "study.zarr"
    child = os.fork()
    if not child:
        try:
            build(table, store)
        finally:
            os._exit(0)
    time.sleep(seconds * share)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)

    if not store.exists():
        build(table, store)
    assert files_of(store) == whole
    assert build_folders(tmp_path) == []


def test_other_arguments_begin_anew_and_remove_what_was_left(table: Path, tmp_path: Path) -> None:
    store = tmp_path / "study.zarr"
    with pytest.raises(KeyboardInterrupt):
        build(table, store, 6)
    (folder,) = build_folders(tmp_path)

    report = build(table, store, seed=1)
    assert any(str(folder) in note for note in report.notes)
    assert not any(WENT_ON in note for note in report.notes)
    assert build_folders(tmp_path) == []


def test_a_changed_source_begins_anew(table: Path, tmp_path: Path) -> None:
    source, store = tmp_path / "molecules.parquet", tmp_path / "study.zarr"
    pq.write_table(pq.read_table(table), source)
    with pytest.raises(KeyboardInterrupt):
        build(source, store, 6)
    pq.write_table(pq.read_table(table).slice(1), source)

    report = build(source, store)
    assert report.n_rows == ROWS - 1
    assert not any(WENT_ON in note for note in report.notes)


def test_buckets_may_lie_elsewhere(table: Path, whole: dict[str, bytes], tmp_path: Path) -> None:
    store, buckets = tmp_path / "study.zarr", tmp_path / "buckets"
    buckets.mkdir()
    with pytest.raises(KeyboardInterrupt):
        build(table, store, 6, tmp=buckets)
    assert len(build_folders(buckets)) == 1

    build(table, store, tmp=buckets)
    assert files_of(store) == whole
    assert list(buckets.iterdir()) == []


def test_an_error_of_the_data_leaves_nothing(tmp_path: Path) -> None:
    source = tmp_path / "molecules.parquet"
    pq.write_table(pa.table({"x": [1.0, float("nan")], "y": [1.0, 2.0], "gene": ["a", "b"]}), source)
    with pytest.raises(SourceError):
        index_points(source, tmp_path / "study.zarr", feature_key="gene")
    assert [path.name for path in tmp_path.iterdir()] == ["molecules.parquet"]


def test_a_folder_that_others_may_write_to_is_not_trusted(table: Path, tmp_path: Path) -> None:
    store = tmp_path / "study.zarr"
    with pytest.raises(KeyboardInterrupt):
        build(table, store, 6)
    (folder,) = build_folders(tmp_path)
    folder.chmod(0o777)

    report = build(table, store)
    assert not any(WENT_ON in note for note in report.notes)
