"""What a batch costs and promises: every chunk read once, few requests, no thread left, any process."""

import asyncio
import multiprocessing
import pickle
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from operator import methodcaller
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from numpy.typing import NDArray
from tests.servers import HIDDEN_WORD, BucketServer, FileServer, file_server
from zarr.codecs import ZstdCodec
from zarr.storage import MemoryStore

from puncta.arrays import BatchArray, BatchAsyncArray, BoxRequest, RangeRequest, read_batch, read_batch_async
from puncta.store import FilesStore
from puncta.store._directory import Directory

VALUES = np.random.default_rng(0).integers(0, 1000, 10_000).astype("u2")


def make(folder: Path, **options: Any) -> Path:  # noqa: ANN401
    """Write two sharded arrays of one length and an image."""
    root = folder / "study.zarr"
    settings: dict[str, Any] = {"chunks": (100,), "shards": (2000,), "compressors": ZstdCodec(level=1)} | options
    group = zarr.create_group(root)
    for name in ("csr/indices", "csr/layers/counts"):
        group.create_array(name, shape=VALUES.shape, dtype="u2", **settings)[:] = VALUES
    group.create_array("image", shape=(64, 64, 3), dtype="u1", chunks=(16, 16, 3))[...] = image()
    return root


def image() -> NDArray[np.uint8]:
    return np.random.default_rng(1).integers(0, 255, (64, 64, 3)).astype("u1")


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return make(tmp_path)


def test_a_batch_of_several_arrays_is_answered_in_the_order_of_its_requests(study: Path) -> None:
    indices, counts = BatchArray.open(study, "csr/indices"), BatchArray.open(study, "csr/layers/counts")
    crops = BoxRequest(BatchArray.open(study, "image"), [[3, 5]], [[20, 30]], stack_uniform=True)
    answers: list[Any] = read_batch([(counts, [5], [9]), crops, RangeRequest(indices, [9000, 0], [9005, 2])])
    np.testing.assert_array_equal(answers[0][0], VALUES[5:9])
    np.testing.assert_array_equal(answers[1], image()[None, 3:20, 5:30])
    np.testing.assert_array_equal(answers[2][0], np.concatenate([VALUES[9000:9005], VALUES[:2]]))
    assert answers[2][1].tolist() == [5, 2]


def test_a_chunk_is_read_once_however_many_ranges_ask_for_it(study: Path) -> None:
    array = BatchArray.open(study, "csr/indices")
    array.read_ranges([0], [1])
    before = array.files.reads.requests
    array.read_ranges([10, 20, 30, 10], [15, 25, 35, 15])
    assert array.files.reads.requests == before + 1


def test_one_chunk_is_read_once_for_several_requests_of_a_batch(study: Path) -> None:
    first, second = BatchArray.open(study, "csr/indices"), BatchArray.open(study, "csr/indices")
    read_batch([(first, [0], [5]), (second, [90], [95])])
    # the metadata of two openings, one index, one chunk
    assert first.files.reads.requests + second.files.reads.requests == 2 + 2


def test_neighbouring_chunks_are_one_read(study: Path) -> None:
    array = BatchArray.open(study, "csr/indices")
    array.read_ranges([0], [1])
    before = array.files.reads.requests
    array.read_ranges([0], [1000])
    assert array.files.reads.requests == before + 1


def test_a_wider_gap_makes_fewer_reads(study: Path) -> None:
    array = BatchArray.open(study, "csr/indices")
    array.read_ranges([0], [1])
    before = array.files.reads.requests
    answers: list[Any] = read_batch([(array, [0, 300, 900], [10, 310, 910])], gap=100_000)
    np.testing.assert_array_equal(answers[0][0], np.concatenate([VALUES[:10], VALUES[300:310], VALUES[900:910]]))
    assert array.files.reads.requests == before + 1


def test_of_uncompressed_chunks_only_the_wanted_bytes_are_read(tmp_path: Path) -> None:
    array = BatchArray.open(make(tmp_path, compressors=None), "csr/indices")
    array.read_ranges([0], [1])
    before = array.files.reads.bytes
    flat, _ = array.read_ranges([10, 150], [20, 260])
    np.testing.assert_array_equal(flat, np.concatenate([VALUES[10:20], VALUES[150:260]]))
    assert array.files.reads.bytes == before + 2 * (10 + 110)


def test_the_answers_share_no_memory_and_can_be_written_to(study: Path) -> None:
    array = BatchArray.open(study, "image")
    crops = array.read_boxes([[0, 0], [0, 0]], [[8, 8], [8, 8]])
    crops[0][...] = 0
    np.testing.assert_array_equal(crops[1], image()[:8, :8])
    assert not np.shares_memory(crops[0], crops[1])


def test_nothing_asked_is_nothing_of_the_right_shape(study: Path) -> None:
    array = BatchArray.open(study, "image")
    flat, lengths = array.read_ranges([], [])
    assert (flat.dtype, flat.shape, lengths.shape, lengths.dtype) == (np.dtype("u1"), (0,), (0,), np.dtype("i8"))
    none = np.zeros((0, 2), int)
    assert array.read_boxes(none, none) == []
    stacked: Any = array.read_boxes(none, none, stack_uniform=True)
    assert stacked.shape == (0, 0, 0, 3)
    assert read_batch([]) == []


def test_strings_of_any_length_are_read_through_zarr(tmp_path: Path) -> None:
    words = np.array(["", "a", "Plp1", "höher", "x" * 300] * 4, dtype=np.dtypes.StringDType())
    array = zarr.create_array(tmp_path, name="w", shape=(20,), dtype=words.dtype, chunks=(6,), shards=(12,))
    array[:] = words
    flat, _ = BatchArray.from_array(array).read_ranges([3, 0], [9, 2])
    np.testing.assert_array_equal(flat, np.concatenate([array[3:9], array[0:2]]))


def test_an_array_without_axes_is_one_value(tmp_path: Path) -> None:
    array = zarr.create_array(tmp_path, name="s", shape=(), dtype="f8")
    array[...] = 2.5
    flat, lengths = BatchArray.from_array(array).read_ranges([0, 0, 1], [1, 1, 1])
    assert (flat.tolist(), lengths.tolist()) == ([2.5, 2.5], [1, 1, 0])


def test_an_awaited_array_answers_alike(study: Path) -> None:
    async def ask() -> tuple[Any, Any, Any]:
        array = BatchAsyncArray.open(study, "image")
        both = read_batch_async([(array, [0], [3])])
        return await array.read_ranges([192], [576]), await array.read_boxes([[1]], [[2]]), await both

    ranges, crops, batch = asyncio.run(ask())
    np.testing.assert_array_equal(ranges[0], image()[1:3].reshape(-1))
    np.testing.assert_array_equal(crops[0], image()[1:2])
    np.testing.assert_array_equal(batch[0][0], image().reshape(-1)[:3])


def test_a_waiting_read_works_inside_a_running_loop(study: Path) -> None:
    async def ask() -> Any:  # noqa: ANN401
        return BatchArray.open(study, "csr/indices").read_ranges([0], [5])

    np.testing.assert_array_equal(asyncio.run(ask())[0], VALUES[:5])


@pytest.fixture
def slow_server() -> Iterator[FileServer]:
    """A server of its own: what it is slow to answer must not reach the log of another test."""
    with file_server() as server:
        yield server


def test_a_read_from_a_server_that_is_cancelled_leaves_no_task(slow_server: FileServer, study: Path) -> None:
    array = BatchAsyncArray.open(slow_server.serve(study), "csr/indices")
    slow_server.faults.seconds = 0.3

    async def give_up() -> set[Any]:
        reading = asyncio.create_task(array.read_ranges(np.arange(0, 10_000, 500), np.arange(10, 10_010, 500)))
        await asyncio.sleep(0.1)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(give_up()) == set()


def test_many_threads_read_at_once(study: Path) -> None:
    array = BatchArray.open(study, "csr/indices")
    starts = np.random.default_rng(2).integers(0, 9_900, (40, 50))
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda some: array.read_ranges(some, some + 100)[0], starts))
    for some, flat in zip(starts, answers, strict=True):
        np.testing.assert_array_equal(flat, np.concatenate([VALUES[start : start + 100] for start in some]))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_worker_process_reads(study: Path, method: str) -> None:
    array = BatchArray.open(study, "csr/indices")
    read = methodcaller("read_ranges", [5, 9_000], [10, 9_010])
    expected = read(array)[0].tolist()
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:
        answers = [flat.tolist() for flat, _ in pool.map(read, [array] * 4)]
    assert answers == [expected] * 4


def test_a_pickled_array_reads_alike(study: Path) -> None:
    for name in ("csr/indices", "image"):
        array = BatchArray.open(study, name)
        copy = pickle.loads(pickle.dumps(array))  # noqa: S301 (our own)
        np.testing.assert_array_equal(copy.read_ranges([0], [3])[0], array.read_ranges([0], [3])[0])
        assert len(pickle.dumps(array)) < 20_000


def test_near_ranges_of_a_remote_shard_are_one_request(http_server: FileServer, study: Path) -> None:
    array = BatchArray.open(http_server.serve(study), "csr/indices")
    array.read_ranges([0], [1])
    http_server.requests.clear()
    array.read_ranges([0, 300, 500], [100, 400, 600])
    assert len(http_server.requests) == 1


def test_requests_and_bytes_are_counted_as_the_server_counts_them(http_server: FileServer, study: Path) -> None:
    array = BatchArray.open(http_server.serve(study), "csr/indices")
    array.read_ranges(np.arange(0, 9000, 700), np.arange(0, 9000, 700) + 150)
    reads = array.files.reads
    found = [request for request in http_server.requests if request.status in {200, 206}]
    assert reads.requests == len(http_server.requests)
    assert reads.bytes == sum(request.nbytes for request in found)
    assert {request.method for request in http_server.requests} == {"GET"}


def test_no_gap_makes_a_request_for_each_remote_chunk(http_server: FileServer, study: Path) -> None:
    array = BatchArray.open(http_server.serve(study), "csr/indices")
    array.read_ranges([0], [1])
    http_server.requests.clear()
    read_batch([(array, [0, 300, 900], [10, 310, 910])], gap=0)
    assert len(http_server.requests) == 3


def test_the_index_of_a_remote_shard_is_read_once(http_server: FileServer, study: Path) -> None:
    array = BatchArray.open(http_server.serve(study), "csr/indices")
    for start in (0, 500, 1500):
        array.read_ranges([start], [start + 10])
    ranges = [request.range for request in http_server.requests if "/c/" in request.path]
    assert len(ranges) == 1 + 3
    assert ranges[0] == "bytes=-324"


def test_a_shard_that_changes_on_the_server_is_an_error_and_then_read_anew(
    http_server: FileServer, study: Path
) -> None:
    array = BatchArray.open(http_server.serve(study), "csr/indices")
    array.read_ranges([0], [10])
    http_server.faults.tag = '"another"'
    with pytest.raises(OSError, match="changed while it was read; read it again"):
        array.read_ranges([0], [10])
    np.testing.assert_array_equal(array.read_ranges([0], [10])[0], VALUES[:10])


def test_a_server_that_ignores_ranges_is_refused(http_server: FileServer, study: Path) -> None:
    array = BatchArray.open(http_server.serve(study), "csr/indices")
    http_server.faults.ignores_range = True
    with pytest.raises(OSError, match="range"):
        array.read_ranges([0], [10])


def test_a_bucket_is_read_in_a_batch_with_a_folder(s3_server: BucketServer, study: Path) -> None:
    far = BatchArray.open(s3_server.serve(study), "csr/indices", storage_options=s3_server.options)
    near = BatchArray.open(study, "csr/indices")
    answers: list[Any] = read_batch([(far, [3], [6]), (near, [7], [9]), (far, [5000], [5001])])
    assert [flat.tolist() for flat, _ in answers] == [VALUES[3:6].tolist(), VALUES[7:9].tolist(), [VALUES[5000]]]


@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory of a process as Linux tells it")
def test_a_large_batch_needs_little_more_memory_than_its_answer(tmp_path: Path) -> None:
    import psutil  # noqa: PLC0415

    array = zarr.create_array(
        tmp_path, name="a", shape=(60_000_000,), dtype="u1", chunks=(50_000,), shards=(5_000_000,)
    )
    array[:] = np.random.default_rng(0).integers(0, 50, 60_000_000, "u1")
    batch = BatchArray.from_array(array)
    batch.read_ranges([0], [50_000])
    process = psutil.Process()
    before = process.memory_info().rss
    flat, _ = batch.read_ranges(np.arange(0, 60_000_000, 10_000), np.arange(0, 60_000_000, 10_000) + 10_000)
    assert process.memory_info().rss - before < flat.nbytes + 40_000_000


def test_a_shard_in_memory_that_was_written_anew_is_read_anew() -> None:
    array = zarr.create_array(MemoryStore(), name="x", shape=(40,), dtype="i4", chunks=(10,), shards=(40,))
    array[:] = np.repeat([1, 2, 3, 4], 10)  # compresses better than what follows, so the old index does not fit
    batch = BatchArray.from_array(array)
    batch.read_ranges([0], [40])
    array[:] = np.random.default_rng(0).integers(0, 1 << 30, 40)
    np.testing.assert_array_equal(batch.read_ranges([0], [40])[0], array[:])


def test_an_array_of_a_store_that_begins_deeper_is_found(study: Path) -> None:
    array = zarr.open_array(FilesStore(Directory(study), "csr"), path="layers/counts", mode="r")
    np.testing.assert_array_equal(BatchArray.from_array(array).read_ranges([3], [9])[0], VALUES[3:9])


def test_two_links_with_other_options_are_not_taken_for_one(s3_server: BucketServer, study: Path) -> None:
    url, options = s3_server.serve(study), s3_server.options
    first = BatchArray.open(url, "csr/indices", storage_options=options)
    second = BatchArray.open(url, "csr/indices", storage_options=options | {"access_key_id": "another"})
    again = BatchArray.open(url, "csr/indices", storage_options=options)
    assert first.files.identity == again.files.identity != second.files.identity
    assert HIDDEN_WORD not in f"{first.files.identity} {first!r} {first.layout!r}"


def test_a_copy_of_an_array_in_memory_is_not_taken_for_it() -> None:
    array = zarr.create_array(MemoryStore(), name="x", shape=(4,), dtype="i4")
    array[:] = 1
    original = BatchArray.from_array(array)
    copy = pickle.loads(pickle.dumps(original))  # noqa: S301 (our own)
    array[:] = 2
    answers: list[Any] = read_batch([(original, [0], [4]), (copy, [0], [4])])
    assert [flat.tolist() for flat, _ in answers] == [[2] * 4, [1] * 4]


def test_an_array_that_misses_no_chunk_is_not_taken_for_one_that_may(tmp_path: Path) -> None:
    lenient = zarr.create_array(tmp_path, name="x", shape=(4,), dtype="i4")
    strict = zarr.open_array(tmp_path, path="x", config={"read_missing_chunks": False})
    with pytest.raises(OSError, match="read_missing_chunks=False"):
        read_batch([(BatchArray.from_array(one), [0], [4]) for one in (lenient, strict)])


def test_a_remote_chunk_that_changes_between_two_pieces_is_an_error(http_server: FileServer, tmp_path: Path) -> None:
    array = zarr.create_array(tmp_path, name="x", shape=(400_000,), dtype="i4", chunks=(400_000,), compressors=None)
    array[:] = 1
    url = http_server.serve(Changing(tmp_path))
    with pytest.raises(OSError, match="changed while it was read"):
        BatchArray.open(url, "x").read_ranges([0, 390_000], [10, 390_010])


class Changing(dict[str, bytes]):
    """Files of which each reading of a chunk is another one of the same length."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._times = 0

    def get(self, key: str, default: Any = None) -> Any:  # noqa: ANN401 (as a dict's)
        path = self._folder / key
        if not path.is_file():
            return default
        data = path.read_bytes()
        self._times += 1
        return data if key.endswith("json") else bytes([self._times]) + data[1:]


def test_an_interrupt_of_a_waiting_remote_read_stops_its_requests(slow_server: FileServer, tmp_path: Path) -> None:
    zarr.create_array(tmp_path, name="x", shape=(400,), dtype="u1", chunks=(1,))[:] = 1
    array = BatchArray.open(slow_server.serve(tmp_path), "x")
    slow_server.faults.seconds = 0.2
    threading.Timer(0.5, signal.raise_signal, [signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        array.read_ranges([0], [400])
    begun = len(slow_server.requests)
    time.sleep(0.8)
    assert len(slow_server.requests) <= begun + 16
