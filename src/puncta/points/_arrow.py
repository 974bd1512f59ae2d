"""The same numbers as an Arrow array and as a numpy array, without a copy.

pyarrow's own `to_numpy` and `array` import pandas where it is installed, which takes longer than most questions.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def arrow_of(values: NDArray[np.generic]) -> pa.Array:
    """Return an Arrow array of fixed-width numbers, which shares the memory of the numpy one where that is contiguous.

    Args:
        values: Numbers, shape (n,), any integer or floating dtype; no nulls.

    """
    contiguous = np.ascontiguousarray(values)
    return pa.Array.from_buffers(
        pa.from_numpy_dtype(contiguous.dtype), len(contiguous), [None, pa.py_buffer(contiguous)]
    )


def masked_arrow_of(values: NDArray[np.generic], is_null: NDArray[np.bool_]) -> pa.Array:
    """Return an Arrow array of fixed-width numbers, null where the mask says so."""
    if not is_null.any():
        return arrow_of(values)
    contiguous = np.ascontiguousarray(values)
    valid = np.packbits(~is_null, bitorder="little")
    return pa.Array.from_buffers(
        pa.from_numpy_dtype(contiguous.dtype), len(contiguous), [pa.py_buffer(valid), pa.py_buffer(contiguous)]
    )


def booleans_of(mask: NDArray[np.bool_]) -> pa.Array:
    """Return an Arrow array of booleans."""
    bits = np.packbits(mask, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(mask), [None, pa.py_buffer(bits)])


def strings_of(texts: Sequence[str]) -> pa.Array:
    """Return an Arrow array of strings."""
    encoded = [text.encode() for text in texts]
    offsets = np.zeros(len(encoded) + 1, dtype=np.int32)
    np.cumsum([len(text) for text in encoded], out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(encoded), buffers)


def numpy_of(column: pa.Array | pa.ChunkedArray) -> NDArray[Any]:
    """Return fixed-width numbers as numpy, read-only and without a copy where they lie in one chunk.

    Args:
        column: Integers or floating numbers without nulls; what nulls would become is undefined.

    Returns:
        Shape (n,), the dtype of the column.

    """
    if isinstance(column, pa.ChunkedArray):
        chunks = [numpy_of(chunk) for chunk in column.chunks]
        if len(chunks) == 1:
            return chunks[0]
        return np.concatenate([np.zeros(0, dtype=_dtype_of(column.type)), *chunks])
    data = column.buffers()[1]
    dtype = _dtype_of(column.type)
    if data is None or not len(column):
        return np.zeros(0, dtype=dtype)
    values: NDArray[Any] = np.frombuffer(data, dtype=dtype, count=len(column), offset=column.offset * dtype.itemsize)
    return values


def filled(column: pa.Array, value: float, dtype: type[np.generic]) -> NDArray[Any]:
    """Return fixed-width numbers as numpy, with a value where they are null.

    Args:
        column: Integers or floating numbers.
        value: What a null becomes.
        dtype: Of the result; wide enough for the numbers and the value.

    Returns:
        Shape (n,); read-only and without a copy where there is no null and the dtype is that of the column.

    """
    values = numpy_of(column).astype(dtype, copy=False)
    if not column.null_count:
        return values
    is_valid = numpy_of(column.is_valid().cast(pa.uint8())) != 0
    return np.where(is_valid, values, np.asarray(value, dtype=dtype))


def _dtype_of(data_type: pa.DataType) -> np.dtype[Any]:
    dtype: np.dtype[Any] = np.dtype(data_type.to_pandas_dtype())
    return dtype
