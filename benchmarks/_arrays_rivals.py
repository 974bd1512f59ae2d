"""Ours and its rivals: each form takes a question and returns arrays, and all forms of one question return the same.

A rival that is not installed has no forms. Arrays are opened when a form is made, so that reading alone is measured.
"""

import asyncio
import importlib
import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr
import zstandard
from numpy.typing import NDArray

from puncta.arrays import BatchArray, RangeRequest, read_batch

_FUSED = "zarr.core.codec_pipeline.FusedCodecPipeline"

N_CORES = len(os.sched_getaffinity(0))

# As many as our reads use.
_N_THREADS = min(N_CORES, 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranges:
    """Half-open ranges of one of the arrays that a form has open."""

    array: int
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Boxes:
    """Half-open boxes of one array, all of one size; corners have the shape (n, k)."""

    lower: NDArray[np.int64]
    upper: NDArray[np.int64]


type Form[Q] = Callable[[Q], Sequence[NDArray[Any]]]
"""Reads what a question asks for."""

type Forms[Q] = dict[str, Form[Q]]
"""Ways of one library to read the same, by name."""

type Question = Sequence[Ranges]

GROUP_BY_GROUP = "group by group"


def _module(name: str) -> Any | None:  # noqa: ANN401  # libraries that are not in the environment of the type checker
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def ours_ranges(root: str | Path, paths: Sequence[str]) -> Form[Question]:
    """Read all ranges of all arrays as one plan; the root may be a URL."""
    arrays = [BatchArray.open(str(root), path) for path in paths]

    def read(question: Question) -> list[NDArray[Any]]:
        requests = [RangeRequest(arrays[part.array], part.starts, part.ends) for part in question]
        return [flat for flat, _ in read_batch(requests)]

    return read


def ours_boxes(root: Path, path: str) -> Form[Boxes]:
    """Read all boxes into one array."""
    array = BatchArray.open(str(root), path)
    return lambda question: [np.asarray(array.read_boxes(question.lower, question.upper, stack_uniform=True))]


def homeobox_ranges(root: str | Path, paths: Sequence[str]) -> Forms[Question]:
    """Return homeobox's bare reads: one array after the other, group by group as its loop does, all at once."""
    homeobox = _module("homeobox.batch_array")
    if homeobox is None:
        return {}
    opened = [_object_store_array(root, path) for path in paths]
    one_by_one = [homeobox.BatchArray.from_array(array) for array in opened]
    awaited = [homeobox.BatchAsyncArray.from_array(array.async_array) for array in opened]
    runner = asyncio.Runner()

    async def together(question: Question) -> list[NDArray[Any]]:
        found = await asyncio.gather(*(awaited[part.array].read_ranges(part.starts, part.ends) for part in question))
        return [flat for flat, _ in found]

    async def by_group(question: Question) -> list[NDArray[Any]]:
        pairs = zip(question[::2], question[1::2], strict=True)  # the two arrays of a group follow each other
        return [flat for pair in pairs for flat in await together(pair)]

    return {
        "one by one": lambda question: [one_by_one[p.array].read_ranges(p.starts, p.ends)[0] for p in question],
        GROUP_BY_GROUP: lambda question: runner.run(by_group(question)),
        "gathered": lambda question: runner.run(together(question)),
    }


def homeobox_boxes(root: Path, path: str) -> Forms[Boxes]:
    """Return homeobox's reads of boxes, and of the same as ranges where a box is a whole row."""
    homeobox = _module("homeobox.batch_array")
    if homeobox is None:
        return {}
    array = homeobox.BatchArray.from_array(_object_store_array(root, path))
    row = array.shape[1]

    def stacked(question: Boxes) -> list[NDArray[Any]]:
        return [array.read_boxes(question.lower, question.upper, stack_uniform=True)]

    def listed(question: Boxes) -> list[NDArray[Any]]:
        return [np.stack(array.read_boxes(question.lower, question.upper))]

    def as_ranges(question: Boxes) -> list[NDArray[Any]]:
        return [array.read_ranges(question.lower[:, 0] * row, question.upper[:, 0] * row)[0]]

    boxes: Forms[Boxes] = {"read_boxes, stacked": stacked, "read_boxes": listed}
    return {**boxes, "read_ranges": as_ranges} if array.ndim == 2 else boxes  # noqa: PLR2004  # rows of a table


def _object_store_array(root: str | Path, path: str) -> zarr.Array[Any]:
    """Open an array as homeobox needs it: through obstore."""
    stores: Any = importlib.import_module("obstore.store")
    if isinstance(root, Path):
        store = stores.LocalStore(root)
    else:
        store = stores.HTTPStore.from_url(root, client_options={"allow_http": True})
    object_store = zarr.storage.ObjectStore(store, read_only=True)
    return zarr.open_array(object_store, path=path, mode="r", zarr_format=3)


def tensorstore_boxes(root: Path, path: str) -> Forms[Boxes]:
    """Return tensorstore's reads: batched, plain, and of all rows at once, with two contexts each.

    The cache stays off: it would keep decoded chunks from one batch to the next, and nobody else does.
    """
    tensorstore = _module("tensorstore")
    if tensorstore is None:
        return {}
    forms: Forms[Boxes] = {}
    for limit, words in ((None, ""), (N_CORES, f", {N_CORES} copying")):
        context = tensorstore.Context({} if limit is None else {"data_copy_concurrency": {"limit": limit}})
        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{root / path}/"}}
        # as ours: what was read of an index when the array was opened is not looked at again
        spec |= {"recheck_cached_data": "open", "recheck_cached_metadata": "open"}
        store = tensorstore.open(spec, context=context, read=True).result()
        found = _tensorstore_forms(tensorstore, store)
        forms |= {f"{name}{words}": form for name, form in found.items()}
    return forms


def _tensorstore_forms(tensorstore: Any, store: Any) -> Forms[Boxes]:  # noqa: ANN401  # not in the type checker's environment
    def futures(question: Boxes, **options: Any) -> list[Any]:  # noqa: ANN401  # as above
        corners = zip(question.lower.tolist(), question.upper.tolist(), strict=True)
        places = (tuple(map(slice, lower, upper)) for lower, upper in corners)
        return [store[place].read(**options) for place in places]

    def batched(question: Boxes) -> list[NDArray[Any]]:
        with tensorstore.Batch() as batch:
            waiting = futures(question, batch=batch)
        return [np.stack([future.result() for future in waiting])]

    def plain(question: Boxes) -> list[NDArray[Any]]:
        return [np.stack([future.result() for future in futures(question)])]

    def all_rows(question: Boxes) -> list[NDArray[Any]]:
        return [store[question.lower[:, 0]].read().result()]

    def all_pixels(question: Boxes) -> list[NDArray[Any]]:
        return [store.vindex[_pixels(question)].read().result()]

    last = {"store[rows]": all_rows} if store.ndim == 2 else {"vindex": all_pixels}  # noqa: PLR2004  # rows of a table
    return {"Batch": batched, "futures": plain, **last}


def zarr_ranges(root: Path, paths: Sequence[str]) -> tuple[Forms[Question], Forms[Question]]:
    """Return zarr's own reads: slices, one at a time; and everything that is better."""
    plain, fused = (_zarr_range_forms(_zarr_arrays(root, paths, fused=fused)) for fused in (False, True))
    slices = {"slices": plain.pop("slices")}
    return slices, plain | {f"fused, {name}": form for name, form in fused.items()}


def zarr_boxes(root: Path, path: str) -> tuple[Forms[Boxes], Forms[Boxes]]:
    """Return zarr's own reads of boxes, as `zarr_ranges` does."""
    plain, fused = (_zarr_box_forms(_zarr_arrays(root, [path], fused=fused)[0]) for fused in (False, True))
    slices = {"slices": plain.pop("slices")}
    return slices, plain | {f"fused, {name}": form for name, form in fused.items()}


def _zarr_arrays(root: Path, paths: Sequence[str], *, fused: bool) -> list[zarr.Array[Any]]:
    with zarr.config.set({"codec_pipeline.path": _FUSED} if fused else {}):
        return [zarr.open_array(root, path=path, mode="r") for path in paths]


def _zarr_range_forms(arrays: Sequence[zarr.Array[Any]]) -> Forms[Question]:
    def slices(question: Question) -> list[NDArray[Any]]:
        return [
            np.concatenate([arrays[part.array][s:e] for s, e in zip(part.starts, part.ends, strict=True)])
            for part in question
        ]

    def orthogonal(question: Question) -> list[NDArray[Any]]:
        return [np.asarray(arrays[part.array].oindex[_elements(part)]) for part in question]

    def coordinates(question: Question) -> list[NDArray[Any]]:
        return [np.asarray(arrays[part.array].vindex[_elements(part)]) for part in question]

    return {"slices": slices, "oindex": orthogonal, "vindex": coordinates}


def _zarr_box_forms(array: zarr.Array[Any]) -> Forms[Boxes]:
    def slices(question: Boxes) -> list[NDArray[Any]]:
        corners = zip(question.lower.tolist(), question.upper.tolist(), strict=True)
        return [np.stack([np.asarray(array[tuple(map(slice, lower, upper))]) for lower, upper in corners])]

    def orthogonal(question: Boxes) -> list[NDArray[Any]]:
        return [np.asarray(array.oindex[question.lower[:, 0]])]

    def coordinates(question: Boxes) -> list[NDArray[Any]]:
        axes = _pixels(question)
        last = np.arange(array.shape[-1])
        return [np.asarray(array.vindex[(*(axis[..., None] for axis in axes), last)])]

    forms: Forms[Boxes] = {"slices": slices, "vindex": coordinates}
    return {**forms, "oindex": orthogonal} if array.ndim == 2 else forms  # noqa: PLR2004  # rows of a table


def _elements(part: Ranges) -> NDArray[np.int64]:
    """Return the positions of all elements of all ranges."""
    lengths = part.ends - part.starts
    firsts = np.repeat(part.starts - (lengths.cumsum() - lengths), lengths)
    return np.asarray(firsts + np.arange(lengths.sum()), np.int64)


def _pixels(question: Boxes) -> tuple[NDArray[np.int64], ...]:
    """Return one array a leading axis, which together hold the place of every pixel of every box."""
    n_axes = question.lower.shape[1]
    extent = question.upper[0] - question.lower[0]
    return tuple(
        question.lower[:, axis].reshape(-1, *(1,) * n_axes)
        + np.arange(extent[axis]).reshape(1, *(-1 if axis == other else 1 for other in range(n_axes)))
        for axis in range(n_axes)
    )


class Floor:
    """The least that any reader must do: the compressed chunks of a 1-D sharded array, in memory, and a decoder.

    Args:
        folder: Folder of the array.

    """

    def __init__(self, folder: Path) -> None:
        document = json.loads((folder / "zarr.json").read_text())
        (self._shard,) = document["chunk_grid"]["configuration"]["chunk_shape"]
        (self.chunk,) = document["codecs"][0]["configuration"]["chunk_shape"]
        per_shard = self._shard // self.chunk
        names = [folder / "c" / str(number) for number in range(-(-document["shape"][0] // self._shard))]
        self._shards = [name.read_bytes() for name in names]
        self._descriptors = [os.open(name, os.O_RDONLY) for name in names]
        # the index lies at the end: an offset and a length for each chunk, and a checksum of 4 bytes
        self._places = [np.frombuffer(shard[-16 * per_shard - 4 : -4], "<u8").reshape(-1, 2) for shard in self._shards]
        self.chunk_bytes = self.chunk * np.dtype(document["data_type"]).itemsize
        self._pool = ThreadPoolExecutor(_N_THREADS)

    def close(self) -> None:
        """Let go of the files and the threads."""
        self._pool.shutdown()
        for descriptor in self._descriptors:
            os.close(descriptor)

    def chunks_of(self, part: Ranges) -> NDArray[np.int64]:
        """Return the numbers of the chunks that ranges touch, each once."""
        first, last = part.starts // self.chunk, (part.ends - 1) // self.chunk
        touched = [np.arange(a, b + 1) for a, b in zip(first, last, strict=True)]
        return np.unique(np.concatenate(touched)).astype(np.int64)

    def n_bytes(self, chunks: NDArray[np.int64]) -> int:
        """Return how many compressed bytes chunks have."""
        return sum(length for _, _, length in self._located(chunks))

    def frames(self, chunks: NDArray[np.int64]) -> list[bytes]:
        """Return the compressed chunks."""
        return [self._shards[shard][start : start + length] for shard, start, length in self._located(chunks)]

    def decode(self, frames: Sequence[bytes]) -> None:
        """Decompress chunks in as many threads as our reads use, and drop them."""
        list(self._pool.map(decode_here, (frames[thread::_N_THREADS] for thread in range(_N_THREADS))))

    def read(self, chunks: NDArray[np.int64]) -> None:
        """Read the compressed chunks from their files, one positional read each, and drop them."""
        for shard, start, length in self._located(chunks):
            os.pread(self._descriptors[shard], length, start)

    def _located(self, chunks: NDArray[np.int64]) -> list[tuple[int, int, int]]:
        per_shard = self._shard // self.chunk
        places = ((int(number) // per_shard, int(number) % per_shard) for number in chunks)
        return [(shard, *map(int, self._places[shard][local])) for shard, local in places]


def decode_here(frames: Sequence[bytes]) -> None:
    """Decompress chunks in this thread, and drop them."""
    decoder = zstandard.ZstdDecompressor()
    for frame in frames:
        decoder.decompress(frame)


def bytes_needed(root: Path, paths: Sequence[str], question: Question) -> int:
    """Return how many compressed bytes the chunks have that a question touches."""
    total = 0
    for part in question:
        with closing(Floor(root / paths[part.array])) as floor:
            total += floor.n_bytes(floor.chunks_of(part))
    return total
