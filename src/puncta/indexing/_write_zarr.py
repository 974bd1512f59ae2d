"""Writes the columns of one copy of the points as sharded Zarr arrays, shard by shard (P31).

The shards are put together here: zarr-python encodes each chunk of a shard as a task of its own, which costs several
times what compressing it does.
"""

import base64
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

import google_crc32c
import numcodecs.blosc
import numpy as np
import pyarrow as pa
import zarr
from numpy.typing import NDArray
from zarr.codecs import BloscCodec

from puncta.errors import GridError
from puncta.indexing._arrow_files import written_beside
from puncta.indexing._zarr_columns import ArrayLayout, ArrayPlan, Shuffle

CHUNK_ROWS: Final = 16_384
"""Rows of a chunk of a feature-major copy (P31)."""

CHUNKS_PER_SHARD: Final = 256
"""Chunks of a shard of a feature-major copy; a reader of it pays for an index of 4 KiB."""

MAX_PADDING: Final = 64
"""Rows of a level with padding, at most, over those without."""

_ABSENT: Final = np.uint64(2**64 - 1)
_CHUNK_CODES: Final = {"shuffle": numcodecs.blosc.SHUFFLE, "bitshuffle": numcodecs.blosc.BITSHUFFLE}

# What Blosc can hold in one buffer.
_MAX_CHUNK_BYTES: Final = 2**31 - 17


class ShardWriter:
    """Writes one shard of every column of a copy; it is there only after the block that it is opened in.

    Holds the stored values of one column at a time, and the compressed bytes of one chunk. May be used from many
    threads, one writer in each.
    """

    def __init__(
        self, folder: Path, arrays: ArrayLayout, shard: int, *, chunk_rows: int, chunks_per_shard: int
    ) -> None:
        """Open the files.

        Args:
            folder: Group of the copy, such as `0/spatial`.
            arrays: The arrays.
            shard: Number of the shard.
            chunk_rows: Rows of a chunk.
            chunks_per_shard: Chunks of a shard.

        """
        self.arrays = arrays
        self._chunk_rows = chunk_rows
        self._columns = [
            _ShardFile(folder / plan.name / "c" / str(shard), plan.shuffle, chunks_per_shard) for plan in arrays.arrays
        ]
        self._validity = [
            _ShardFile(folder / "validity" / plan.name / "c" / str(shard), "shuffle", chunks_per_shard)
            for plan in arrays.arrays
        ]
        self.n_chunks = 0
        """Chunks written so far."""
        self.nullable: set[str] = set()
        """Arrays of which some values were null."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in (*self._columns, *self._validity):
            file.finish(kind, error, trace)

    def write(self, rows: pa.Table, starts: NDArray[np.int64]) -> None:
        """Write staged rows as one chunk for each start, padded with the fill value; an empty one takes no bytes.

        Args:
            rows: Rows with final codes, in the order of the copy.
            starts: First row of each chunk, shape (k,), ascending, beginning with 0.

        """
        ends = np.append(starts[1:], rows.num_rows)
        for plan, column, validity in zip(self.arrays.arrays, self._columns, self._validity, strict=True):
            values, is_valid = plan.stored(rows)
            self._write_chunks(column, values, plan.fill, starts, ends)
            if is_valid is not None:
                self.nullable.add(plan.name)
                self._write_chunks(validity, is_valid, True, starts, ends)  # noqa: FBT003  # the fill value
        self.n_chunks += len(starts)

    def _write_chunks(
        self,
        file: "_ShardFile",
        values: NDArray[Any],
        fill: Any,  # noqa: ANN401  # a scalar of the dtype of the values
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
    ) -> None:
        chunk = np.empty(self._chunk_rows, dtype=values.dtype)
        for number, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True), self.n_chunks):
            if end > start:
                chunk[: end - start] = values[start:end]
                chunk[end - start :] = fill
                file.append(number, chunk)


class _ShardFile:
    """One shard of one array: its chunks one after the other, then where each is."""

    def __init__(self, path: Path, shuffle: Shuffle, n_chunks: int) -> None:
        self._path = path
        self._shuffle = _CHUNK_CODES[shuffle]
        self._index = np.full((n_chunks, 2), _ABSENT, dtype="<u8")
        self._stack = ExitStack()
        self._file: IO[bytes] | None = None
        self._end = 0

    def append(self, number: int, chunk: NDArray[Any]) -> None:
        """Compress and write a chunk."""
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._stack.enter_context(self._stack.enter_context(written_beside(self._path)).open("wb"))
        data = numcodecs.blosc.compress(chunk, b"zstd", 1, self._shuffle)
        self._file.write(data)
        self._index[number] = self._end, len(data)
        self._end += len(data)

    def finish(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write the index and name the file, or remove it after an error; a shard without chunks is none."""
        if self._file is not None and kind is None:
            index = self._index.tobytes()
            self._file.write(index + int(google_crc32c.value(index)).to_bytes(4, "little"))
        self._stack.__exit__(kind, error, trace)


def write_group(
    folder: Path,
    arrays: ArrayLayout,
    *,
    n_rows: int,
    shape: int,
    chunk_rows: int,
    chunks_per_shard: int,
    nullable: Collection[str],
) -> None:
    """Write the metadata of a copy and of its arrays; the shards are there already, or come later.

    Args:
        folder: Group of the copy.
        arrays: The arrays.
        n_rows: Rows, without padding.
        shape: Length of the arrays.
        chunk_rows: Rows of a chunk.
        chunks_per_shard: Chunks of a shard.
        nullable: Arrays of which some values are null, as `ShardWriter.nullable` says.

    """
    schema = base64.b64encode(arrays.schema.serialize().to_pybytes()).decode()
    columns = [plan.name for plan in arrays.arrays]
    attributes: dict[str, Any] = {"df": {"columns": columns, "n_rows": n_rows}, "arrow_schema": schema}
    group = zarr.open_group(folder, mode="a", zarr_format=3, attributes=attributes)
    for plan in arrays.arrays:
        declared = {"categories": plan.categories} if plan.categories is not None else {}
        _declare(group, plan.name, plan.dtype, plan, (shape, chunk_rows, chunks_per_shard), declared)
        if plan.name in nullable:
            validity = np.dtype(np.bool_)
            _declare(group, f"validity/{plan.name}", validity, None, (shape, chunk_rows, chunks_per_shard), {})


def _declare(
    group: zarr.Group,
    path: str,
    dtype: np.dtype[Any],
    plan: ArrayPlan | None,
    extent: tuple[int, int, int],
    attributes: dict[str, Any],
) -> None:
    """Write the `zarr.json` of an array; without a plan, of one that says which values are there."""
    if path in group:
        # written by the same build before it was stopped; to make it again would remove its shards
        return
    shape, chunk_rows, chunks_per_shard = extent
    blosc = BloscCodec(
        typesize=dtype.itemsize, cname="zstd", clevel=1, shuffle="shuffle" if plan is None else plan.shuffle
    )
    group.create_array(
        path,
        shape=(shape,),
        dtype=dtype,
        chunks=(chunk_rows,),
        shards=(chunk_rows * chunks_per_shard,),
        compressors=[blosc],
        # an absent chunk of validity says that all values are there
        fill_value=True if plan is None else plan.fill,
        attributes=attributes,
    )


def require_padding(chunk_rows: int, n_tiles: int, n_rows: int, *, level: int, itemsize: int) -> None:
    """Refuse tiles so unequal that padding them all to the largest would cost too much.

    Raises:
        GridError: If the padded rows exceed the real ones 64 times, or a chunk is more than Blosc can hold.

    """
    padded = chunk_rows * n_tiles
    if padded <= MAX_PADDING * max(n_rows, 1) and chunk_rows * itemsize <= _MAX_CHUNK_BYTES:
        return
    raise GridError(
        f"the Zarr layout pads every tile of level {level} to the {chunk_rows:,} points of the largest: {padded:,} "
        f"rows for {n_rows:,} points, more than {MAX_PADDING} times as many (or too many for one chunk); "
        "choose another --tile-size, or write --layout parquet, which pads nothing"
    )
