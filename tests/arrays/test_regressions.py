"""What went wrong once: servers that change, interrupts, few open files, odd arrays and odd requests."""

import resource
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from tests.servers import FileServer
from zarr.storage import MemoryStore, ZipStore

from puncta.arrays import BatchArray, read_batch
from puncta.arrays._turn import OPENINGS
from puncta.errors import RangeError, UnsupportedError


def contents(store: dict[str, Any]) -> dict[str, bytes]:
    return {key: value.to_bytes() for key, value in store.items()}


def test_a_chunk_that_was_added_to_a_shard_on_a_server_is_read(running_http_server: FileServer) -> None:
    store: dict[str, Any] = {}
    array = zarr.create_array(MemoryStore(store), name="a", shape=(20,), chunks=(5,), shards=(20,), dtype="i4")
    array[:5] = 1
    url = running_http_server.serve(contents(store))
    BatchArray.open(url, "a").read_ranges([5], [10])
    array[5:10] = 2
    running_http_server.serve(contents(store))
    flat, _ = BatchArray.open(url, "a").read_ranges([5], [10])
    assert flat.tolist() == [2] * 5


def test_after_interrupts_the_next_read_does_not_wait_for_ever(tmp_path: Path) -> None:
    script = [sys.executable, "-c", INTERRUPTED, str(tmp_path)]
    done = subprocess.run(script, check=False, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip()) == (0, "9999"), done.stderr


INTERRUPTED = """
import signal, sys
import numpy as np, zarr
from puncta.arrays import BatchArray
array = zarr.create_array(sys.argv[1], name="x", shape=(20_000,), dtype="i4", chunks=(10,))
array[:] = np.arange(20_000)
batch = BatchArray.from_array(array)
for number in range(60):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.002 + number * 0.0005)
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        batch.read_ranges([0], [20_000])
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        pass
print(int(batch.read_ranges([9_999], [10_000])[0][0]))
"""


def test_many_arrays_are_read_with_few_open_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("puncta.arrays._threads._pool", None)
    monkeypatch.setenv("PUNCTA_THREADS", "16")
    group = zarr.create_group(tmp_path)
    stored = [group.create_array(f"{n}", shape=(64,), dtype="i4") for n in range(1000)]
    for n, array in enumerate(stored):
        array[:] = n
    arrays = [BatchArray.from_array(array) for array in stored]
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
    OPENINGS.renew()  # as in a process that began with this limit
    try:
        answers = [read_batch([(array, [3], [5]) for array in arrays]) for _ in range(5)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        OPENINGS.renew()
    assert [flat[0] for flat, _ in answers[-1]] == list(range(1000))


def test_a_compressed_archive_that_zarr_has_open_is_read(tmp_path: Path) -> None:
    with ZipStore(tmp_path / "a.zip", mode="w", compression=zipfile.ZIP_DEFLATED) as store:
        zarr.create_array(store, name="a", shape=(4,), dtype="i4")[:] = 7
    with ZipStore(tmp_path / "a.zip", mode="r") as store:
        array = zarr.open_array(store, path="a", mode="r")
        assert BatchArray.from_array(array).read_ranges([0], [4])[0].tolist() == np.asarray(array[:]).tolist()


def test_whole_arrays_asked_for_twice_take_little_memory_above_the_answer(tmp_path: Path) -> None:
    array = zarr.create_array(tmp_path, shape=(32 << 23,), chunks=(1 << 23,), dtype="u1", compressors=None)
    (tmp_path / "c").mkdir()
    for n in range(32):
        with (tmp_path / f"c/{n}").open("wb") as file:
            file.truncate(1 << 23)
    tracemalloc.start()
    try:
        flat, _ = BatchArray.from_array(array).read_ranges([0, 0], [array.size, array.size])
        above = tracemalloc.get_traced_memory()[1] - flat.nbytes
    finally:
        tracemalloc.stop()
    assert above < 64 << 20


@pytest.mark.parametrize(("shape", "chunks"), [((10,), (2**40,)), ((2**62,), (2**62,))])
def test_an_array_of_few_values_in_huge_chunks_is_read_as_zarr_reads_it(
    shape: tuple[int, ...], chunks: tuple[int, ...]
) -> None:
    array = zarr.create_array(MemoryStore(), shape=shape, chunks=chunks, dtype="f8", fill_value=3)
    assert BatchArray.from_array(array).read_ranges([0], [2])[0].tolist() == [3, 3]


@pytest.mark.parametrize(("shape", "chunks"), [((10, 10), (2**40, 2**40)), ((2, 2**40, 2**40), (1, 2**30, 2**30))])
def test_an_array_of_more_values_than_can_be_numbered_is_refused(
    shape: tuple[int, ...], chunks: tuple[int, ...]
) -> None:
    array = zarr.create_array(MemoryStore(), shape=shape, chunks=chunks, dtype="f8", fill_value=3)
    with pytest.raises(UnsupportedError, match="too many"):
        BatchArray.from_array(array).read_ranges([0], [2])


def test_ragged_requests_are_refused_by_name() -> None:
    array = BatchArray.from_array(zarr.create_array(MemoryStore(), shape=(4,), dtype="i4"))
    with pytest.raises(RangeError, match="starts"):
        array.read_ranges([1, [2]], [3, 4])  # type: ignore[arg-type]


def test_masked_requests_are_refused() -> None:
    array = BatchArray.from_array(zarr.create_array(MemoryStore(), shape=(100,), dtype="i4"))
    with pytest.raises(RangeError):
        array.read_ranges(np.ma.masked_array([1, 50], [False, True]), [3, 60])
