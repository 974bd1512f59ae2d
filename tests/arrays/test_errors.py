"""Wrong requests are refused before anything is read; damage is named and never returned as values."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, ZstdCodec

from puncta.arrays import BatchArray, BoxRequest, RangeRequest, read_batch
from puncta.errors import MetadataError, MissingError, QueryError, RangeError, StoreError


@pytest.fixture
def values(tmp_path: Path) -> BatchArray:
    array = zarr.create_array(tmp_path / "values.zarr", shape=(100,), dtype="i4", chunks=(10,), shards=(50,))
    array[:] = np.arange(100)
    return BatchArray.from_array(array)


@pytest.fixture
def image(tmp_path: Path) -> BatchArray:
    array = zarr.create_array(tmp_path / "image.zarr", shape=(20, 30, 3), dtype="u1", chunks=(8, 8, 3))
    array[...] = 7
    return BatchArray.from_array(array)


@pytest.mark.parametrize(
    ("starts", "ends", "message"),
    [
        ([0, 5], [3, 2], r"1 of 2 ranges are reversed \(first: number 1, \[5, 2\)\)"),
        ([-1, 5], [3, 7], r"1 of 2 ranges leave .*values.zarr \(first: number 0, \[-1, 3\)\); it has 100 values"),
        ([90, 95], [101, 200], r"2 of 2 ranges leave .* \(first: number 0, \[90, 101\)\); it has 100 values"),
        ([0.0, 1.5], [1.0, 2.0], "starts are float64, not integers"),
        ([True], [True], "starts are bool, not integers"),
        ([0, 1], [1], r"starts have shape \(2,\) and ends \(1,\)"),
        ([[0]], [[1]], r"starts have shape \(1, 1\)"),
        (np.array([2**64 - 1], np.uint64), [1], "starts reach 18446744073709551615"),
    ],
)
def test_wrong_ranges_are_refused(values: BatchArray, starts: Any, ends: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(RangeError, match=message):
        values.read_ranges(starts, ends)


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [
        (
            [[0, 0], [5, 5]],
            [[2, 2], [4, 6]],
            r"1 of 2 boxes are reversed \(first: number 1, \[\[5, 5, 0\], \[4, 6, 3\]\)",
        ),
        ([[0, 0], [-1, 0]], [[2, 2], [2, 2]], r"1 of 2 boxes leave .*image.zarr .*its shape is \(20, 30, 3\)"),
        ([[0]], [[21]], r"1 of 1 boxes leave"),
        ([[0, 0, 0, 0]], [[1, 1, 1, 1]], "boxes have 4 axes, and .*image.zarr has 3"),
        (np.zeros((1, 0), int), np.zeros((1, 0), int), "boxes have 0 axes"),
        ([0], [1], r"min_corners have shape \(1,\)"),
        ([[0.5]], [[1]], "min_corners are float64"),
        ([[0, 0]], [[1]], r"min_corners have shape \(1, 2\) and max_corners \(1, 1\)"),
    ],
)
def test_wrong_boxes_are_refused(image: BatchArray, low: Any, high: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(RangeError, match=message):
        image.read_boxes(low, high)


def test_a_range_that_crosses_a_row_is_refused(image: BatchArray) -> None:
    with pytest.raises(
        RangeError, match=r"1 of 2 ranges of .* cross a row \(first: number 1, \[1, 4\)\).* 3 values .* 90"
    ):
        image.read_ranges([0, 1], [90, 4])


def test_boxes_of_different_shapes_are_not_stacked(image: BatchArray) -> None:
    with pytest.raises(RangeError, match=r"1 of 2 boxes .* another shape than the first, \(2, 2, 3\)"):
        image.read_boxes([[0, 0], [1, 1]], [[2, 2], [2, 2]], stack_uniform=True)


def test_errors_of_requests_can_be_caught_as_what_a_stranger_expects(values: BatchArray) -> None:
    with pytest.raises(IndexError):
        values.read_ranges([0], [101])
    with pytest.raises(ValueError, match="reversed"):
        values.read_ranges([2], [1])


def test_nothing_is_read_when_one_request_of_a_batch_is_wrong(values: BatchArray, image: BatchArray) -> None:
    with pytest.raises(RangeError):
        read_batch([RangeRequest(values, [0], [10]), BoxRequest(image, [[0]], [[99]])])
    assert values.files.reads.requests == 0


CODECS: list[Any] = [
    [ZstdCodec(level=1)],
    [ZstdCodec(level=1, checksum=True)],
    [BloscCodec(cname="lz4")],
    [GzipCodec(level=1)],
    [Crc32cCodec()],
    [ZstdCodec(level=1), Crc32cCodec()],
]


def cut_short(data: bytes) -> bytes:
    return data[: len(data) // 2]


def longer(data: bytes) -> bytes:
    return data + b"\0" * 7


def emptied(_: bytes) -> bytes:
    return b""


def inverted(data: bytes) -> bytes:
    return bytes(255 - byte for byte in data)


@pytest.mark.parametrize("codecs", CODECS)
@pytest.mark.parametrize("damage", [cut_short, emptied, inverted])
def test_a_damaged_chunk_is_named(tmp_path: Path, codecs: Any, damage: Callable[[bytes], bytes]) -> None:  # noqa: ANN401
    array = zarr.create_array(tmp_path, name="x", shape=(4, 60), dtype="i4", chunks=(2, 20), compressors=codecs)
    array[...] = np.arange(240).reshape(4, 60)
    file = tmp_path / "x/c/1/2"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(
        StoreError, match=rf"chunk \(1, 2\) of .*{re.escape(str(tmp_path))}/x \(in x/c/1/2\) is damaged"
    ):
        BatchArray.from_array(array).read_boxes([[0]], [[4]])


@pytest.mark.parametrize("damage", [cut_short, longer, emptied])
def test_a_chunk_that_is_stored_as_it_is_must_have_its_length(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    array = zarr.create_array(tmp_path, name="x", shape=(40,), dtype="i4", chunks=(20,), compressors=None)
    array[...] = np.arange(40)
    file = tmp_path / "x/c/1"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(StoreError, match=r"chunk \(1,\) of .*/x \(in x/c/1\) is damaged: it has .* a chunk has 80"):
        BatchArray.from_array(array).read_ranges([0], [40])


def test_blosc_data_longer_than_its_header_says_are_damage(tmp_path: Path) -> None:
    compressor = BloscCodec(cname="lz4")
    array = zarr.create_array(tmp_path, name="x", shape=(20,), dtype="i4", chunks=(20,), compressors=compressor)
    array[...] = np.arange(20)
    file = tmp_path / "x/c/0"
    file.write_bytes(file.read_bytes() + b"\0")
    with pytest.raises(StoreError, match="its Blosc header speaks of"):
        BatchArray.from_array(array).read_ranges([0], [20])


def test_blosc_data_are_checked_where_zarr_decodes_them_too(tmp_path: Path) -> None:
    compressor = numcodecs.Blosc("lz4")
    array = zarr.create_array(
        tmp_path, name="x", shape=(20, 2), dtype="i4", chunks=(20, 2), compressors=compressor, zarr_format=2, order="F"
    )
    array[...] = 1
    file = tmp_path / "x/0.0"
    file.write_bytes(file.read_bytes() + b"\0")
    with pytest.raises(StoreError, match="its Blosc header speaks of"):
        BatchArray.from_array(array).read_boxes([[0]], [[20]])


@pytest.fixture
def shard(tmp_path: Path) -> tuple[zarr.Array[Any], Path]:
    array = zarr.create_array(tmp_path, name="x", shape=(80,), dtype="i4", chunks=(10,), shards=(80,))
    array[...] = np.arange(80)
    return array, tmp_path / "x/c/0"


def test_a_shard_cut_short_is_damage(shard: tuple[zarr.Array[Any], Path]) -> None:
    array, file = shard
    file.write_bytes(file.read_bytes()[:-200])
    with pytest.raises(StoreError, match=r"the index of x/c/0 of .*/x is damaged: its checksum"):
        BatchArray.from_array(array).read_ranges([0], [10])


def test_a_shard_shorter_than_its_index_is_damage(shard: tuple[zarr.Array[Any], Path]) -> None:
    array, file = shard
    file.write_bytes(file.read_bytes()[:20])
    with pytest.raises(StoreError, match=r"x/c/0 of .*/x has 20 bytes, fewer than its index of 132"):
        BatchArray.from_array(array).read_ranges([0], [10])


def test_an_index_that_points_out_of_its_file_is_damage(tmp_path: Path) -> None:
    index = [zarr.codecs.BytesCodec()]
    sharding = zarr.codecs.ShardingCodec(chunk_shape=(10,), index_codecs=index)
    array = zarr.create_array(
        tmp_path, name="x", shape=(80,), dtype="i4", chunks=(80,), serializer=sharding, compressors=None
    )
    array[...] = np.arange(80)
    file = tmp_path / "x/c/0"
    data = file.read_bytes()
    file.write_bytes(data[:-128] + np.array([[len(data) - 10, 11]] * 8, "<u8").tobytes())
    with pytest.raises(StoreError, match=r"says that 8 of 8 chunks lie outside of its \d+ bytes \(first: number 0, 11"):
        BatchArray.from_array(array).read_ranges([0], [10])


def test_a_shard_replaced_meanwhile_is_read_anew(shard: tuple[zarr.Array[Any], Path]) -> None:
    array, _ = shard
    array[...] = np.repeat(np.arange(1, 9), 10)  # compresses better than what follows, so the old index does not fit
    batch = BatchArray.from_array(array)
    batch.read_ranges([0], [80])
    array[...] = np.random.default_rng(0).integers(0, 1 << 30, 80)
    np.testing.assert_array_equal(batch.read_ranges([0], [80])[0], array[...])


def test_a_file_that_cannot_be_read_is_not_taken_for_absent(tmp_path: Path) -> None:
    array = zarr.create_array(tmp_path, name="x", shape=(10,), dtype="i4", chunks=(10,), fill_value=3)
    array[...] = 5
    shutil.move(tmp_path / "x/c/0", tmp_path / "elsewhere")
    (tmp_path / "x/c/0").symlink_to("0")
    with pytest.raises(StoreError, match="could not open"):
        BatchArray.from_array(array).read_ranges([0], [10])


def test_an_absent_file_is_an_error_for_an_array_that_misses_none(tmp_path: Path) -> None:
    array = zarr.create_array(
        tmp_path, name="x", shape=(10,), dtype="i4", chunks=(10,), config={"read_missing_chunks": False}
    )
    with pytest.raises(StoreError, match=r"x/c/0 of .* is not there.*read_missing_chunks=False"):
        BatchArray.from_array(array).read_ranges([0], [10])


def test_opening_what_is_not_there_says_so(tmp_path: Path) -> None:
    zarr.create_group(tmp_path / "study.zarr")
    with pytest.raises(MissingError, match=r"nothing\.zarr"):
        BatchArray.open(tmp_path / "nothing.zarr", "x")
    with pytest.raises(MissingError, match=r"there is no array at csr/indices in .*study\.zarr"):
        BatchArray.open(tmp_path / "study.zarr", "csr/indices")


def test_opening_a_group_says_that_it_is_none(tmp_path: Path) -> None:
    zarr.create_group(tmp_path / "study.zarr").create_group("csr")
    with pytest.raises(MissingError, match=r"csr in .* is a group and no array"):
        BatchArray.open(tmp_path / "study.zarr", "csr")


def test_a_document_without_content_is_no_group(tmp_path: Path) -> None:
    (tmp_path / "zarr.json").write_text("{}")
    with pytest.raises(MetadataError, match="zarr cannot make sense"):
        BatchArray.open(tmp_path)


def test_metadata_that_zarr_cannot_read_are_named(tmp_path: Path) -> None:
    zarr.create_array(tmp_path, name="x", shape=(10,), dtype="i4")
    document = tmp_path / "x/zarr.json"
    document.write_text(document.read_text().replace('"int32"', '"int33"'))
    with pytest.raises(MetadataError, match=r"zarr cannot make sense of the metadata of x in .*int33"):
        BatchArray.open(tmp_path, "x")


@pytest.mark.parametrize(
    "compressor",
    [
        numcodecs.Zstd(1),
        numcodecs.Blosc("lz4"),
        numcodecs.GZip(1),
        numcodecs.LZ4(),
        numcodecs.BZ2(1),
        numcodecs.LZMA(1),
    ],
)
def test_a_damaged_chunk_of_format_2_is_named(tmp_path: Path, compressor: Any) -> None:  # noqa: ANN401
    array = zarr.create_array(
        tmp_path, name="x", shape=(40,), dtype="i4", chunks=(20,), compressors=compressor, zarr_format=2
    )
    array[...] = np.arange(40)
    file = tmp_path / "x/1"
    file.write_bytes(inverted(file.read_bytes()))
    with pytest.raises(StoreError, match=r"chunk \(1,\) of .*/x \(in x/1\) is damaged"):
        BatchArray.from_array(array).read_ranges([0], [40])


def test_a_chunk_that_claims_to_be_enormous_is_damage(tmp_path: Path) -> None:
    array = zarr.create_array(tmp_path, name="x", shape=(20,), dtype="i4", chunks=(20,), compressors=ZstdCodec())
    array[...] = np.arange(20)
    # a frame header of one segment whose content is said to be 2**46 bytes
    (tmp_path / "x/c/0").write_bytes(b"\x28\xb5\x2f\xfd\xe0" + (1 << 46).to_bytes(8, "little") + b"\x01\x00\x00")
    with pytest.raises(StoreError, match=r"chunk \(0,\) .* is damaged"):
        BatchArray.from_array(array).read_ranges([0], [20])


def test_what_is_no_batch_array_is_refused(values: BatchArray) -> None:
    with pytest.raises(QueryError, match=r"1 of 2 requests are not of a BatchArray \(first: number 1, ndarray\)"):
        read_batch([(values, [0], [1]), (np.zeros(3), [0], [1])])  # type: ignore[list-item]
