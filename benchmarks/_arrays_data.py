"""The arrays that `arrays.py` reads: made once in a folder, by zarr alone, and found there again by a later run."""

import importlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.codecs import ZstdCodec

DERIVE = Path(__file__).parents[2] / "shared" / "data" / "single_cell_csr" / "derive_csr.py"

REAL_TABLES = ("xenium_breast_cell_by_gene", "iss_coronal_bin50_by_gene")

# What a changed recipe must raise, so that a folder of an older one is made anew.
_RECIPE = 1

_ZSTD = ZstdCodec(level=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How large the arrays are, and how many rows the batches have."""

    rows: int
    row_values: int
    columns: int
    chunks: tuple[int, ...]
    """Values in a chunk of the CSR copies."""

    shard_bytes: int
    """Bytes in a shard before it is compressed, about."""

    group_rows: tuple[int, ...]
    """Rows of the groups that are made; each is copied, under another name, until there are `n_groups`."""

    n_groups: int
    group_batch: int
    dense_shape: tuple[int, int]
    image_side: int
    image_chunk: int
    image_shard: int
    batches: tuple[int, ...]


FULL = Sizes(
    rows=100_000,
    row_values=1_000,
    columns=20_000,
    chunks=(4_096, 16_384, 40_960),
    shard_bytes=64 * 2**20,
    group_rows=tuple(np.linspace(250, 2_500, 20).astype(int).tolist()),
    n_groups=400,
    group_batch=1_024,
    dense_shape=(100_000, 256),
    image_side=8_192,
    image_chunk=256,
    image_shard=2_048,
    batches=(64, 256, 1_024, 4_096),
)

QUICK = Sizes(
    rows=2_000,
    row_values=100,
    columns=20_000,
    chunks=(4_096, 16_384, 40_960),
    shard_bytes=2**18,
    group_rows=(25, 50, 100),
    n_groups=9,
    group_batch=32,
    dense_shape=(2_000, 256),
    image_side=512,
    image_chunk=64,
    image_shard=256,
    batches=(8, 32),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Where the arrays are."""

    root: Path
    """A Zarr group: `zstd-<chunk>`, `raw-<chunk>`, `groups/<number>` and the real tables are CSR groups of it."""

    sizes: Sizes
    real: tuple[str, ...]
    """Names of the real tables that could be built; their groups are `<name>-<chunk>`."""

    why_not_real: str
    """Why there are none, or nothing."""

    def indptr(self, group: str) -> NDArray[np.int64]:
        """Return where the rows of a CSR group begin and end."""
        return np.asarray(zarr.open_array(self.root / group / "csr" / "indptr", mode="r")[:], np.int64)


def arrays_of(group: str) -> list[str]:
    """Return the paths of the two arrays of a CSR group that a batch reads."""
    return [f"{group}/csr/indices", f"{group}/csr/layers/counts"]


def make(folder: Path, sizes: Sizes, *, real: bool) -> Data:
    """Return the arrays in a folder, made first where they are not there in these sizes."""
    recipe = json.dumps({"recipe": _RECIPE, "real": real, **asdict(sizes)})
    root, stamp = folder / "arrays.zarr", folder / "arrays.json"
    if not stamp.exists() or json.loads(stamp.read_text())["recipe"] != recipe:
        stamp.unlink(missing_ok=True)
        shutil.rmtree(root, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        zarr.create_group(root)
        _write_synthetic(root, sizes)
        _write_dense(root, sizes)
        _write_image(root, sizes)
        why_not = _write_real(root, sizes) if real else "left out of a smoke run"
        stamp.write_text(json.dumps({"recipe": recipe, "why_not_real": why_not}))
    why_not = json.loads(stamp.read_text())["why_not_real"]
    return Data(root=root, sizes=sizes, real=() if why_not else REAL_TABLES, why_not_real=why_not)


def _write_synthetic(root: Path, sizes: Sizes) -> None:
    rng = np.random.default_rng(0)
    indices, counts = _rows(rng, sizes)
    indptr = np.arange(sizes.rows + 1, dtype=np.int64) * sizes.row_values
    for chunk in sizes.chunks:
        _write_csr(root, f"zstd-{chunk}", (indptr, indices, counts), chunk=chunk, shard_bytes=sizes.shard_bytes)
    for chunk in (sizes.chunks[0], sizes.chunks[-1]):
        raw = (indptr, indices, counts)
        _write_csr(root, f"raw-{chunk}", raw, chunk=chunk, shard_bytes=sizes.shard_bytes, compressed=False)
    _write_groups(root, (indptr, indices, counts), sizes)


def _write_groups(root: Path, table: tuple[NDArray[np.int64], NDArray[Any], NDArray[Any]], sizes: Sizes) -> None:
    """Write many small groups, each array one shard."""
    indptr, indices, counts = table
    first = 0
    for number, n_rows in enumerate(sizes.group_rows):
        part = slice(first * sizes.row_values, (first + n_rows) * sizes.row_values)
        rows = (indptr[: n_rows + 1], indices[part], counts[part])
        _write_csr(root, f"groups/{number:03d}", rows, chunk=sizes.chunks[0], shard_bytes=None)
        first = (first + n_rows) % (sizes.rows - max(sizes.group_rows))
    # the same rows under other names cost the reader the same: it cannot know
    for number in range(len(sizes.group_rows), sizes.n_groups):
        source = root / "groups" / f"{number % len(sizes.group_rows):03d}"
        shutil.copytree(source, root / "groups" / f"{number:03d}")


def _rows(rng: np.random.Generator, sizes: Sizes) -> tuple[NDArray[np.uint16], NDArray[np.float32]]:
    """Return indices that ascend within each row, and counts, of all rows.

    Types are what a writer after decision Q9 stores: indices as narrow as the columns allow, two bytes below 65,536;
    counts as they come, and AnnData hands counts over as float32.
    """
    indices = np.empty((sizes.rows, sizes.row_values), np.uint16)
    counts = np.empty((sizes.rows, sizes.row_values), np.float32)
    spare = sizes.columns - sizes.row_values
    for start in range(0, sizes.rows, 5_000):
        n = min(5_000, sizes.rows - start)
        steps = rng.standard_exponential((n, sizes.row_values + 1)).cumsum(axis=1)
        # sorted uniform numbers, spread so that no two columns of a row are the same
        places = (steps[:, :-1] / steps[:, -1:] * spare).astype(np.uint16)
        indices[start : start + n] = places + np.arange(sizes.row_values, dtype=np.uint16)
        # a geometric distribution: most counts are 1
        counts[start : start + n] = np.floor(rng.standard_exponential((n, sizes.row_values)) / 0.9) + 1
    return indices.ravel(), counts.ravel()


def _write_csr(
    root: Path,
    group: str,
    table: tuple[NDArray[np.int64], NDArray[Any], NDArray[Any]],
    *,
    chunk: int,
    shard_bytes: int | None,
    compressed: bool = True,
) -> None:
    """Write a CSR group; without a number of bytes, each array is one shard."""
    indptr, *values = table
    target = zarr.open_group(root, mode="a").require_group(group)
    target.create_array("csr/indptr", data=indptr)
    for name, array in zip(("csr/indices", "csr/layers/counts"), values, strict=True):
        n_chunks = -(-array.size // chunk)
        if shard_bytes is not None:
            n_chunks = min(n_chunks, shard_bytes // (chunk * array.itemsize))
        made = target.create_array(
            name,
            shape=array.shape,
            dtype=array.dtype,
            chunks=(chunk,),
            shards=(chunk * n_chunks,),
            compressors=_ZSTD if compressed else None,
        )
        made[:] = array


def _write_dense(root: Path, sizes: Sizes) -> None:
    """Write embeddings, in chunks of as many values as the CSR arrays have."""
    rows, columns = sizes.dense_shape
    chunk = sizes.chunks[0] // columns
    per_shard = min(sizes.shard_bytes // (4 * columns), rows) // chunk * chunk
    made = zarr.open_group(root, mode="a").create_array(
        "dense",
        shape=sizes.dense_shape,
        dtype=np.float32,
        chunks=(chunk, columns),
        shards=(per_shard, columns),
        compressors=_ZSTD,
    )
    made[:] = np.random.default_rng(1).standard_normal(sizes.dense_shape, np.float32)


def _write_image(root: Path, sizes: Sizes) -> None:
    """Write what a stained section looks like to a compressor: large smooth blobs and the noise of a camera."""
    side, chunk, shard = sizes.image_side, sizes.image_chunk, sizes.image_shard
    made = zarr.open_group(root, mode="a").create_array(
        "image",
        shape=(side, side, 3),
        dtype=np.uint8,
        chunks=(chunk, chunk, 3),
        shards=(shard, shard, 3),
        compressors=_ZSTD,
    )
    for place, block in _image_blocks(side, shard):
        made[place] = block


def _image_blocks(side: int, shard: int) -> Iterator[tuple[tuple[slice, slice], NDArray[np.uint8]]]:
    rng = np.random.default_rng(2)
    for y in range(0, side, shard):
        for x in range(0, side, shard):
            ys, xs = np.arange(y, y + shard)[:, None, None], np.arange(x, x + shard)[None, :, None]
            phase = np.arange(3)
            smooth = 150 + 40 * np.sin(ys / 97 + phase) * np.cos(xs / 131) + 25 * np.sin((xs + ys) / 23)
            noise = rng.standard_normal((shard, shard, 3), np.float32) * 3
            yield (slice(y, y + shard), slice(x, x + shard)), np.clip(smooth + noise, 0, 255).astype(np.uint8)


def _write_real(root: Path, sizes: Sizes) -> str:
    """Write the two real tables; returns why it could not be done, or nothing."""
    if not DERIVE.exists():
        return f"{DERIVE.name} is not at its place beside the checkout"
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, str(DERIVE), folder], capture_output=True, text=True, check=False)
        if done.returncode:
            return f"{DERIVE.name} failed: {done.stderr.strip().splitlines()[-1]}"
        anndata: Any = importlib.import_module("anndata")
        for name in REAL_TABLES:
            matrix = anndata.read_h5ad(Path(folder) / f"{name}.h5ad").X
            # 541 and 73 columns; two bytes are the least that the format of sparse groups knows
            table = (matrix.indptr.astype(np.int64), matrix.indices.astype(np.uint16), matrix.data)
            for chunk in (sizes.chunks[0], sizes.chunks[-1]):
                _write_csr(root, f"{name}-{chunk}", table, chunk=chunk, shard_bytes=sizes.shard_bytes)
    return ""
