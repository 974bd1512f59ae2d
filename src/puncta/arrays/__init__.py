"""Many ranges and boxes of Zarr arrays, read as one plan."""

from puncta.arrays._array import BatchArray, BatchAsyncArray
from puncta.arrays._read import read_batch, read_batch_async
from puncta.arrays._requests import BoxRequest, RangeRequest

__all__ = ["BatchArray", "BatchAsyncArray", "BoxRequest", "RangeRequest", "read_batch", "read_batch_async"]
