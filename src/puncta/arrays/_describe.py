"""The layout of an array, from the metadata that zarr has read."""

import math
from collections.abc import Hashable, Sequence
from functools import partial
from typing import Any

import numcodecs
import numpy as np
import zarr
from numcodecs.compat import ensure_contiguous_ndarray
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, ZstdCodec
from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.core.buffer import default_buffer_prototype
from zarr.core.metadata import ArrayV2Metadata

from puncta.arrays._decode import Bytes, Codecs, Step, gunzip, unblosc, uncrc32c, unzlib, unzstd
from puncta.arrays._layout import Integers, Layout, Shards
from puncta.store import LocalFiles, RemoteFiles

_STEPS: dict[type, Step] = {
    BloscCodec: unblosc,
    Crc32cCodec: uncrc32c,
    GzipCodec: gunzip,
    ZstdCodec: unzstd,
    numcodecs.Blosc: unblosc,
    numcodecs.GZip: gunzip,
    numcodecs.Zlib: unzlib,
    numcodecs.Zstd: unzstd,
}


def layout_of(array: zarr.Array[Any], files: LocalFiles | RemoteFiles, path: str) -> Layout:
    """Return how the values of an array lie in its files.

    Args:
        array: Any array that zarr can read, of format 2 or 3.
        files: Where its bytes are.
        path: Where among them it is.

    """
    metadata: Any = array.metadata
    shards, chunks, codecs = _chunks_and_codecs(array)
    edges = _edges(metadata)
    fill, fills = metadata.fill_value, getattr(array.config, "read_missing_chunks", True)
    return Layout(
        name=f"{files.name}/{path}" if path else files.name,
        prefix=f"{path}/" if path else "",
        token=_token(metadata, path, fills),
        shape=array.shape,
        dtype=array.dtype,
        fill=metadata.dtype.default_scalar() if fill is None else fill,
        fills=fills,
        chunks=chunks,
        edges=edges,
        shards=shards,
        codecs=_codecs(array, codecs, chunks=chunks, regular=edges is None),
        key_of=metadata.encode_chunk_key,
    )


def _token(metadata: Any, path: str, fills: bool) -> Hashable:  # noqa: ANN401 (metadata of zarr, of several kinds)
    """Return what is equal for two descriptions that read alike: all of the metadata but the user's attributes."""
    document = {key: value for key, value in metadata.to_dict().items() if key != "attributes"}
    return (path, fills, repr(document))


def _chunks_and_codecs(array: zarr.Array[Any]) -> tuple[Shards | None, tuple[int, ...], tuple[Any, ...]]:
    """Return how chunks share files, their shape, and the codecs of one of them.

    A shard is opened only where it is the outermost and the only codec, on a regular grid, with an index that any
    reader finds; otherwise it is decoded whole, as one chunk, by zarr.
    """
    metadata: Any = array.metadata
    if isinstance(metadata, ArrayV2Metadata):
        return None, tuple(metadata.chunks), _pipeline_codecs(array)
    grid = _grid_shape(metadata)
    if len(metadata.codecs) == 1 and isinstance(metadata.codecs[0], ShardingCodec) and _edges(metadata) is None:
        sharding = metadata.codecs[0]
        shards = _shards(sharding, grid)
        if shards is not None:
            return shards, tuple(sharding.chunk_shape), tuple(sharding.codecs)
    return None, grid, _pipeline_codecs(array)


def _shards(sharding: ShardingCodec, grid: tuple[int, ...]) -> Shards | None:
    kinds = [type(codec) for codec in sharding.index_codecs]
    if kinds not in ([BytesCodec], [BytesCodec, Crc32cCodec]):
        return None
    order: Any = sharding.index_codecs[0]
    return Shards(
        counts=tuple(outer // inner for outer, inner in zip(grid, sharding.chunk_shape, strict=True)),
        at_end=_text(sharding.index_location) == "end",
        checksum=Crc32cCodec in kinds,
        byte_order=">" if _text(order.endian) == "big" else "<",
    )


def _text(value: object) -> str:
    # Older zarr has enumerations where newer has plain strings.
    return str(getattr(value, "value", value))


def _pipeline_codecs(array: zarr.Array[Any]) -> tuple[Any, ...]:
    pipeline: Any = array._async_array.codec_pipeline  # noqa: SLF001 (the codecs as zarr itself runs them)
    return tuple(pipeline)


def _grid_shape(metadata: Any) -> tuple[int, ...]:  # noqa: ANN401 (metadata of zarr, of several kinds)
    shape = getattr(metadata.chunk_grid, "chunk_shape", None)
    if shape is not None:
        return tuple(shape)
    return tuple(int(np.diff(edges).max(initial=1)) for edges in _edges(metadata) or ())


def _edges(metadata: Any) -> tuple[Integers, ...] | None:  # noqa: ANN401 (as above)
    """Return the borders of chunks along each axis of an irregular grid; None for a regular one."""
    if isinstance(metadata, ArrayV2Metadata) or hasattr(metadata.chunk_grid, "chunk_shape"):
        return None
    sizes = metadata.chunk_grid.chunk_shapes
    return tuple(_borders(size, extent) for size, extent in zip(sizes, metadata.shape, strict=True))


def _borders(sizes: int | Sequence[int], extent: int) -> Integers:
    if isinstance(sizes, int):
        sizes = [sizes] * -(-extent // sizes)
    return np.concatenate([[0], np.cumsum(np.asarray(sizes, np.int64))]).astype(np.int64)


def _codecs(array: zarr.Array[Any], codecs: tuple[Any, ...], *, chunks: tuple[int, ...], regular: bool) -> Codecs:
    metadata: Any = array.metadata
    config: Any = array.config
    if isinstance(metadata, ArrayV2Metadata):
        # Here the order of values in a chunk is the metadata's; in format 3 it is a codec's.
        config = ArrayConfig.from_dict(config.to_dict() | {"order": metadata.order})
    spec = ArraySpec(
        shape=chunks,
        dtype=metadata.dtype,
        fill_value=metadata.fill_value,
        config=config,
        prototype=default_buffer_prototype(),
    )
    codecs = _evolved(codecs, spec)
    size = math.prod(chunks) * array.dtype.itemsize
    fixed = regular and not array.dtype.hasobject and array.dtype.kind != "T"
    steps = _steps(array, codecs, size) if fixed else None
    return Codecs(steps=steps, size=size if fixed else 0, codecs=codecs, spec=spec)


def _evolved(codecs: tuple[Any, ...], spec: ArraySpec) -> tuple[Any, ...]:
    evolved = []
    for codec in codecs:
        evolved.append(codec.evolve_from_array_spec(array_spec=spec))
        spec = evolved[-1].resolve_metadata(spec)
    return tuple(evolved)


def _steps(array: zarr.Array[Any], codecs: tuple[Any, ...], size: int) -> tuple[tuple[Step, int], ...] | None:
    """Return what decodes a chunk without zarr, last codec first; None where no fast way is known."""
    if isinstance(array.metadata, ArrayV2Metadata):
        return _steps_of_format_2(array.metadata, size)
    if not isinstance(codecs[0], BytesCodec) or not _is_stored_as_read(codecs[0], array.dtype):
        return None
    kinds = [type(codec) for codec in codecs[1:]]
    checksums = kinds.count(Crc32cCodec)
    if any(kind not in _STEPS for kind in kinds) or len(kinds) - checksums > 1:
        return None
    steps = []
    for kind in kinds:  # the first codec of encoding is the last of decoding, and returns the chunk's own bytes
        steps.append((_STEPS[kind], size))
        size += 4 if kind is Crc32cCodec else 0
    return tuple(reversed(steps))


def _is_stored_as_read(codec: BytesCodec, dtype: np.dtype[Any]) -> bool:
    if codec.endian is None:
        return dtype.names is None
    stored = dtype.newbyteorder(">" if _text(codec.endian) == "big" else "<")
    return dtype.names is None and stored == dtype


def _steps_of_format_2(metadata: Any, size: int) -> tuple[tuple[Step, int], ...] | None:  # noqa: ANN401 (as above)
    if metadata.filters or (metadata.order != "C" and len(metadata.shape) > 1):
        return None
    compressor = metadata.compressor
    if compressor is None:
        return ()
    step = _STEPS.get(type(compressor))
    return ((step or partial(_with_numcodecs, compressor), size),)


def _with_numcodecs(compressor: Any, data: Bytes, size: int) -> Bytes:  # noqa: ANN401 (any codec of numcodecs)
    del size
    try:
        decoded: Bytes = ensure_contiguous_ndarray(compressor.decode(data)).view(np.uint8).data
    except Exception as error:  # codecs raise whatever they like
        raise ValueError(str(error)) from error
    return decoded
