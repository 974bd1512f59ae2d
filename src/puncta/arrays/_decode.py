"""The bytes of a chunk become values: fast ways for common codecs, zarr's own codec objects for all others.

A fast way either returns exactly the bytes that the chunk must have, or it hands the chunk to zarr's codecs, whose
answer or complaint counts.
"""

import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import google_crc32c
import numcodecs.blosc
import numpy as np
import zstandard
from numpy.typing import NDArray
from zarr.core.array_spec import ArraySpec
from zarr.core.sync import sync

from puncta.errors import StoreError

type Bytes = bytes | bytearray | memoryview
type Step = Callable[[Bytes, int], Bytes]

_CHECKSUM_SIZE = 4
_BLOSC_HEADER_SIZE = 16

# A decompression context is not for two threads at once, and making one costs as much as a small chunk.
_contexts = threading.local()


class DamagedError(Exception):
    """A chunk that zarr would decode, and that shows damage all the same."""


def unzstd(data: Bytes, size: int) -> Bytes:
    """Return the first frame of Zstandard data; `size` is what a frame holds that does not say it."""
    # The header's size is what is allocated, so a damaged one is refused before it takes all memory.
    if zstandard.frame_content_size(data) not in {-1, size}:
        raise ValueError("another size than the chunk's")
    decompressed: bytes = zstd_context().decompress(data, max_output_size=size)
    return decompressed


def zstd_context() -> zstandard.ZstdDecompressor:
    """Return this thread's decompression context."""
    try:
        context: zstandard.ZstdDecompressor = _contexts.zstd
    except AttributeError:
        context = _contexts.zstd = zstandard.ZstdDecompressor()
    return context


def unblosc(data: Bytes, size: int) -> Bytes:
    """Return what Blosc data holds.

    Raises:
        DamagedError: If its header speaks of another number of bytes, where Blosc itself would read on.

    """
    require_blosc_size(data)
    # The header's size is what Blosc allocates, so a damaged one is refused before it takes all memory.
    if int.from_bytes(data[4:8], "little") != size:
        raise ValueError("another size than the chunk's")
    decompressed: bytes = numcodecs.blosc.decompress(data)
    return decompressed


def require_blosc_size(data: Bytes) -> None:
    """Refuse Blosc data whose header gives another compressed size than the bytes at hand have."""
    stated = int.from_bytes(data[12:16], "little")
    if len(data) < _BLOSC_HEADER_SIZE or stated != len(data):
        raise DamagedError(f"its Blosc header speaks of {stated} bytes, and there are {len(data)}")


def gunzip(data: Bytes, size: int) -> Bytes:
    """Return the first member of gzip data."""
    return _inflated(data, size, wbits=31)


def unzlib(data: Bytes, size: int) -> Bytes:
    """Return what zlib data holds."""
    return _inflated(data, size, wbits=zlib.MAX_WBITS)


def _inflated(data: Bytes, size: int, *, wbits: int) -> bytes:
    # With a limit, since a few bytes may claim to be gigabytes.
    stream = zlib.decompressobj(wbits)
    values = stream.decompress(data, size + 1)
    if not stream.eof or stream.unused_data:
        raise ValueError("more or less than one stream of the chunk's size")
    return values


def uncrc32c(data: Bytes, size: int) -> Bytes:
    """Return the data before its checksum.

    Raises:
        DamagedError: If the checksum is another.

    """
    del size
    body = memoryview(data)[:-_CHECKSUM_SIZE]
    if len(data) < _CHECKSUM_SIZE or crc32c(body) != int.from_bytes(data[-_CHECKSUM_SIZE:], "little"):
        raise DamagedError("its checksum (CRC32C) does not match its bytes")
    return body


def crc32c(data: Bytes) -> int:
    """Return the checksum of data."""
    # The library takes arrays and refuses memory views.
    return int(google_crc32c.value(np.frombuffer(data, np.uint8)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Codecs:
    """How the chunks of one array are decoded."""

    steps: tuple[tuple[Step, int], ...] | None
    """What takes the stored bytes to the values' bytes, each with the size of what it returns; None: zarr's codecs."""

    size: int
    """Bytes of a decoded chunk; 0 where chunks differ in size or hold objects."""

    codecs: tuple[Any, ...]
    """zarr's codec objects, in the order of encoding."""

    spec: ArraySpec
    """What zarr's codecs must know of a chunk."""

    @property
    def as_bytes(self) -> bool:
        """Whether a decoded chunk is the bytes of its values in C order, in the dtype of the results."""
        return self.steps is not None

    @property
    def is_zstd(self) -> bool:
        """Whether a stored chunk is Zstandard data and nothing else."""
        return self.steps is not None and len(self.steps) == 1 and self.steps[0][0] is unzstd

    @property
    def is_plain(self) -> bool:
        """Whether the stored bytes are the values' bytes, so that any part of a chunk can be read alone."""
        return self.steps == ()

    def decode_bytes(self, data: Bytes) -> Bytes:
        """Return the bytes of a chunk's values, `size` of them.

        Raises:
            StoreError: If the chunk is damaged.

        """
        values = data
        try:
            for step, size in self.steps or ():
                values = step(values, size)
            if len(values) == self.size:
                return values
        except DamagedError as error:
            raise StoreError(str(error)) from error
        except (zstandard.ZstdError, zlib.error, RuntimeError, ValueError, MemoryError):
            pass  # zarr's codec tells whether this is another form of the same codec, or damage
        return np.ascontiguousarray(self.decode_array(data, self.spec.shape)).reshape(-1).view(np.uint8).data

    def decode_array(self, data: Bytes, shape: tuple[int, ...]) -> NDArray[Any]:
        """Return the values of a chunk as zarr's own codecs decode them, in the chunk's shape.

        Raises:
            StoreError: If they cannot.

        """
        spec = self.spec
        if shape != spec.shape:
            spec = ArraySpec(shape, spec.dtype, spec.fill_value, spec.config, spec.prototype)
        try:
            values = _decode_with_zarr(self.codecs, data, spec)
        except Exception as error:  # codecs raise whatever they like; the caller adds which chunk it was
            raise StoreError(f"{type(error).__name__}: {error}") from error
        if values.shape != shape:
            raise StoreError(f"it holds values of shape {values.shape}, not {shape}")
        return values


def _decode_with_zarr(codecs: tuple[Any, ...], data: Bytes, spec: ArraySpec) -> NDArray[Any]:
    specs = [spec]
    for codec in codecs[:-1]:
        specs.append(codec.resolve_metadata(specs[-1]))
    value: Any = spec.prototype.buffer.from_bytes(bytes(data))
    for codec, codec_spec in zip(reversed(codecs), reversed(specs), strict=True):
        if _speaks_blosc(codec):
            require_blosc_size(value.to_bytes())
        value = _decode_one(codec, value, codec_spec)
    array: NDArray[Any] = value.as_numpy_array()
    return array


def _decode_one(codec: Any, value: Any, spec: ArraySpec) -> Any:  # noqa: ANN401 (buffers of zarr, of two kinds)
    decode = getattr(codec, "_decode_sync", None)
    if decode is not None and getattr(codec, "_sync_capable", True):
        return decode(value, spec)
    # Codecs of others, and those of older zarr, can only be awaited. This thread may be one that runs a loop.
    return next(iter(sync(codec.decode([(value, spec)]))))


def _speaks_blosc(codec: Any) -> bool:  # noqa: ANN401 (any codec of zarr's registry)
    compressor = getattr(codec, "compressor", codec)
    return type(compressor).__name__ in {"Blosc", "BloscCodec"}
