"""Whatever zarr reads, we read alike: random arrays, random requests, for every kind of store."""

import itertools
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.servers import BucketServer, FileServer
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, TransposeCodec, ZstdCodec
from zarr.storage import MemoryStore

from puncta.arrays import BatchArray, BoxRequest, RangeRequest, read_batch
from puncta.arrays._shard_index import INDEXES

# Fixed-length strings have no specification in format 3 yet, which zarr says each time.
pytestmark = pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")

type Pair = tuple[NDArray[Any], NDArray[Any]]

type Draw = Callable[..., Any]
"""What draws a value of a strategy, inside of a strategy or of a test."""

DTYPES = ["u1", "i2", "u4", "i8", "f2", "f4", "f8", "c8", "bool", "M8[ns]", "m8[s]", "U3", "S4"]
NUMBERS = {"u1", "i2", "u4", "i8", "f4", "f8"}
COMPRESSORS: list[list[Any]] = [
    [],
    [ZstdCodec(level=1)],
    [ZstdCodec(level=3, checksum=True)],
    [BloscCodec(cname="lz4", shuffle="shuffle")],
    [BloscCodec(cname="zstd", shuffle="bitshuffle")],
    [GzipCodec(level=1)],
    [Crc32cCodec()],
    [ZstdCodec(level=1), Crc32cCodec()],
    [Crc32cCodec(), GzipCodec(level=1)],
    [GzipCodec(level=1), ZstdCodec(level=1)],
]
COMPRESSORS_OF_FORMAT_2 = [
    None,
    numcodecs.Zstd(1),
    numcodecs.Blosc("lz4"),
    numcodecs.GZip(1),
    numcodecs.Zlib(1),
    numcodecs.LZ4(),
    numcodecs.BZ2(1),
]


@st.composite
def shapes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shape of an array and of its chunks; sometimes whole trailing axes lie in every chunk."""
    shape = draw(st.lists(st.integers(0, 9), min_size=1, max_size=3))
    chunks = [draw(st.one_of(st.integers(1, 5), st.just(max(extent, 1)))) for extent in shape]
    return tuple(shape), tuple(chunks)


@st.composite
def arrays_of_format_3(draw: st.DrawFn) -> tuple[dict[str, Any], str]:
    shape, chunks = draw(shapes())
    dtype = draw(st.sampled_from(DTYPES))
    inner: list[Any] = draw(st.sampled_from(COMPRESSORS))
    filters: list[Any] = draw(st.sampled_from([[], [TransposeCodec(order=tuple(reversed(range(len(shape)))))]]))
    wide = dtype not in {"u1", "bool", "S4"}
    endian: Any = draw(st.sampled_from(["little", "big"])) if dtype in NUMBERS and wide else "little"
    serializer = BytesCodec(endian=endian) if wide else BytesCodec(endian=None)
    options: dict[str, Any] = {"shape": shape, "dtype": dtype, "chunks": chunks}
    if draw(st.booleans()):
        shards = tuple(chunk * draw(st.integers(1, 3)) for chunk in chunks)
        index: Any = draw(st.sampled_from([[BytesCodec(), Crc32cCodec()], [BytesCodec()]]))
        location: Any = draw(st.sampled_from(["start", "end"]))
        codecs = [*filters, serializer, *inner]
        outer: list[Any] = [
            ShardingCodec(chunk_shape=chunks, codecs=codecs, index_codecs=index, index_location=location)
        ]
        if draw(st.integers(0, 4)) == 0:
            whole = tuple(2 * shard for shard in shards)
            outer = [ShardingCodec(chunk_shape=shards, codecs=outer)]
            shards = whole
        return options | {"chunks": shards, "serializer": outer[0], "compressors": None, "filters": None}, dtype
    return options | {"serializer": serializer, "compressors": inner or None, "filters": filters or None}, dtype


@st.composite
def arrays_of_format_2(draw: st.DrawFn) -> tuple[dict[str, Any], str]:
    shape, chunks = draw(shapes())
    dtype = draw(st.sampled_from(DTYPES))
    filters = [numcodecs.Delta(np.dtype(dtype).str)] if dtype in NUMBERS and draw(st.booleans()) else None
    return {
        "shape": shape,
        "dtype": draw(st.sampled_from([dtype, np.dtype(dtype).newbyteorder(">")])),
        "chunks": chunks,
        "zarr_format": 2,
        "order": draw(st.sampled_from(["C", "F"])),
        "compressors": draw(st.sampled_from(COMPRESSORS_OF_FORMAT_2)),
        "filters": filters,
        "fill_value": draw(st.sampled_from([None, 0])),
        "chunk_key_encoding": {"name": "v2", "separator": draw(st.sampled_from([".", "/"]))},
    }, dtype


@st.composite
def irregular_arrays(draw: st.DrawFn) -> tuple[dict[str, Any], str]:
    """Return arrays whose chunks differ in size along each axis."""
    sizes = draw(st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=4), min_size=1, max_size=3))
    compressors: list[Any] = draw(st.sampled_from(COMPRESSORS))
    dtype = draw(st.sampled_from(["u1", "f4", "i8"]))
    shape = tuple(sum(axis) for axis in sizes)
    return {"shape": shape, "dtype": dtype, "chunks": sizes, "compressors": compressors or None}, dtype


ARRAYS = st.one_of(arrays_of_format_3(), arrays_of_format_2())


def values_of(dtype: str, shape: tuple[int, ...], seed: int) -> NDArray[Any]:
    numbers = np.random.default_rng(seed).integers(0, 100, shape)
    return (numbers % 2 == 0) if dtype == "bool" else numbers.astype("i8").astype(dtype)


def written(store: Any, options: dict[str, Any], dtype: str, draw: Draw) -> zarr.Array[Any]:  # noqa: ANN401
    """Write an array, of which a box may stay unwritten."""
    array = zarr.create_array(store, name="a", **options)
    region = tuple(slice(*sorted((draw(st.integers(0, n)), draw(st.integers(0, n))))) for n in array.shape)
    if draw(st.booleans()):
        region = tuple(slice(None) for _ in array.shape)
    array[region] = values_of(dtype, array.shape, draw(st.integers(0, 9)))[region]
    return array


@st.composite
def boxes_in(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[NDArray[Any], NDArray[Any]]:
    axes = draw(st.integers(1, len(shape)))
    n = draw(st.integers(0, 6))
    corners = [[sorted((draw(st.integers(0, e)), draw(st.integers(0, e)))) for e in shape[:axes]] for _ in range(n)]
    pairs = np.array(corners, np.int64).reshape(n, axes, 2)
    return pairs[..., 0], pairs[..., 1]


@st.composite
def ranges_in(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return ranges within rows of the last axis, and of whole rows of the first."""
    size, row, first = int(np.prod(shape)), shape[-1], int(np.prod(shape[1:]))
    ranges = []
    for _ in range(draw(st.integers(0, 8))):
        if draw(st.booleans()) or size == 0:
            low, high = sorted((draw(st.integers(0, shape[0])), draw(st.integers(0, shape[0]))))
            ranges.append((low * first, high * first))
        else:
            begin = draw(st.integers(0, size // row - 1)) * row
            low, high = sorted((draw(st.integers(0, row)), draw(st.integers(0, row))))
            ranges.append((begin + low, begin + high))
    pairs = np.array(ranges, np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def require_same(array: BatchArray, whole: Any, draw: Draw) -> None:  # noqa: ANN401 (as zarr types it)
    """Ask one array for ranges and boxes in one batch, and compare with what zarr's own answer has there."""
    require_all_same([(array, whole)], draw)


def require_all_same(arrays: list[tuple[BatchArray, Any]], draw: Draw) -> None:
    """Ask several arrays for ranges and boxes in one batch, and compare with what zarr's own answers have there."""
    asked = [(draw(ranges_in(whole.shape)), draw(boxes_in(whole.shape))) for _, whole in arrays]
    requests = [
        request
        for (array, _), (ranges, boxes) in zip(arrays, asked, strict=True)
        for request in (RangeRequest(array, *ranges), BoxRequest(array, *boxes))
    ]
    answers: list[Any] = read_batch(requests)
    for (_, whole), (ranges, boxes), flat, crops in zip(arrays, asked, answers[::2], answers[1::2], strict=True):
        require_same_ranges(whole, ranges, flat)
        require_same_crops(whole, boxes, crops)


def require_same_ranges(whole: NDArray[Any], ranges: Pair, answer: tuple[NDArray[Any], NDArray[Any]]) -> None:
    values = whole.reshape(-1)
    parts = [values[start:end] for start, end in zip(*ranges, strict=True)]
    np.testing.assert_array_equal(answer[0], np.concatenate([values[:0], *parts]))
    np.testing.assert_array_equal(answer[1], ranges[1] - ranges[0])
    assert answer[0].dtype == whole.dtype


def require_same_crops(whole: NDArray[Any], boxes: Pair, crops: list[NDArray[Any]]) -> None:
    for crop, first, last in zip(crops, *boxes, strict=True):
        expected = whole[tuple(slice(*pair) for pair in zip(first, last, strict=True))]
        np.testing.assert_array_equal(crop, expected)
        assert crop.dtype == whole.dtype
        assert crop.flags.writeable


_numbers = itertools.count()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("arrays")


@given(data=st.data())
def test_a_directory_is_read_as_zarr_reads_it(folder: Path, data: st.DataObject) -> None:
    options, dtype = data.draw(ARRAYS)
    array = written(folder / str(next(_numbers)), options, dtype, data.draw)
    require_same(BatchArray.from_array(array), array[...], data.draw)


@given(data=st.data())
def test_memory_is_read_as_zarr_reads_it(data: st.DataObject) -> None:
    options, dtype = data.draw(ARRAYS)
    array = written(MemoryStore(), options, dtype, data.draw)
    require_same(BatchArray.from_array(array), array[...], data.draw)


@given(data=st.data())
def test_an_archive_is_read_as_zarr_reads_its_folder(folder: Path, data: st.DataObject) -> None:
    options, dtype = data.draw(ARRAYS)
    root = folder / str(next(_numbers))
    array = written(root, options, dtype, data.draw)
    archive = root.with_suffix(".zip")
    with zipfile.ZipFile(archive, "w") as target:
        for file in sorted(path for path in root.rglob("*") if path.is_file()):
            target.write(file, file.relative_to(root).as_posix())
    require_same(BatchArray.open(archive, "a"), array[...], data.draw)


@given(data=st.data())
def test_chunks_of_different_sizes_are_read_as_zarr_reads_them(folder: Path, data: st.DataObject) -> None:
    options, dtype = data.draw(irregular_arrays())
    with zarr.config.set({"array.rectilinear_chunks": True}):
        array = written(folder / str(next(_numbers)), options, dtype, data.draw)
        require_same(BatchArray.from_array(array), array[...], data.draw)


@given(data=st.data())
def test_a_web_server_is_read_as_zarr_reads_the_folder(running_http_server: FileServer, data: st.DataObject) -> None:
    options, dtype = data.draw(ARRAYS)
    array, files = in_memory(options, dtype, data.draw)
    running_http_server.reset()
    INDEXES.clear()
    url = running_http_server.serve(files)
    require_same(BatchArray.open(url, "a"), array[...], data.draw)
    assert {request.method for request in running_http_server.requests} == {"GET"}


@settings(max_examples=15)
@given(data=st.data())
def test_a_bucket_is_read_as_zarr_reads_the_folder(running_s3_server: BucketServer, data: st.DataObject) -> None:
    options, dtype = data.draw(ARRAYS)
    array, files = in_memory(options, dtype, data.draw)
    running_s3_server.reset()
    INDEXES.clear()
    url = running_s3_server.serve(files)
    require_same(BatchArray.open(url, "a", storage_options=running_s3_server.options), array[...], data.draw)
    assert {request.method for request in running_s3_server.requests} == {"GET"}


def in_memory(options: dict[str, Any], dtype: str, draw: Draw) -> tuple[zarr.Array[Any], dict[str, bytes]]:
    """Return an array and the files that it is stored as."""
    store: dict[str, Any] = {}
    array = written(MemoryStore(store), options, dtype, draw)
    return array, {key: value.to_bytes() for key, value in store.items()}


@given(data=st.data())
def test_several_arrays_are_read_in_one_batch_as_zarr_reads_each(folder: Path, data: st.DataObject) -> None:
    arrays = []
    for _ in range(data.draw(st.integers(2, 4))):
        options, dtype = data.draw(ARRAYS)
        array = written(folder / str(next(_numbers)), options, dtype, data.draw)
        arrays.append((BatchArray.from_array(array), array[...]))
    require_all_same(arrays, data.draw)


@given(data=st.data())
def test_crops_of_one_shape_are_stacked_as_numpy_stacks_them(folder: Path, data: st.DataObject) -> None:
    options, dtype = data.draw(ARRAYS)
    array = written(folder / str(next(_numbers)), options, dtype, data.draw)
    whole: Any = array[...]
    size = [data.draw(st.integers(0, extent)) for extent in whole.shape]
    starts = st.tuples(*[st.integers(0, extent - part) for extent, part in zip(whole.shape, size, strict=True)])
    low = np.array(data.draw(st.lists(starts, min_size=1, max_size=5)))
    stacked: Any = BatchArray.from_array(array).read_boxes(low, low + size, stack_uniform=True)
    crops = [whole[tuple(slice(at, at + n) for at, n in zip(first, size, strict=True))] for first in low]
    np.testing.assert_array_equal(stacked, np.stack(crops))
