"""The columns of a copy as sharded arrays: zarr-python reads back what was written."""

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from puncta.arrays import BatchArray
from puncta.errors import ColumnError, GridError
from puncta.indexing._columns import ColumnPlan
from puncta.indexing._write_parquet import CodedColumn, FileLayout
from puncta.indexing._write_zarr import ShardWriter, require_padding, write_group
from puncta.indexing._zarr_columns import plan_arrays, value_columns

GENES = pa.array(["a", "b", "c"])
PER_SHARD = 4


def coded(values: pa.Array, *, is_categorical: bool = False, as_dictionary: bool = False) -> CodedColumn:
    order = np.arange(len(values))
    return CodedColumn(order=order, values=values, as_dictionary=as_dictionary, is_categorical=is_categorical)


def layout_of(columns: dict[str, pa.DataType], codes: dict[str, CodedColumn]) -> FileLayout:
    plans = tuple(
        ColumnPlan(
            name=name,
            source=name,
            role="coordinate"
            if name in "xyz"
            else "feature"
            if name == "gene"
            else "coded"
            if name in codes
            else "plain",
        )
        for name in columns
    )
    schema = pa.schema(list(columns.items()))
    return FileLayout(columns=plans, coded=codes, codes_columns=(), schema=schema, encodings={})


def simple_layout() -> FileLayout:
    return layout_of(
        {"x": pa.float32(), "gene": pa.dictionary(pa.int8(), pa.string()), "n": pa.int64(), "cell": pa.string()},
        {"gene": coded(GENES, is_categorical=True, as_dictionary=True), "cell": coded(pa.array(["u", "v"]))},
    )


def rows(n: int, seed: int = 0) -> pa.Table:
    """Return staged rows: final codes, the highest of which is null."""
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "x": rng.random(n).astype(np.float32),
            "gene": rng.integers(0, 4, n).astype(np.uint16),
            "n": rng.integers(-5, 5, n),
            "cell": rng.integers(0, 3, n).astype(np.uint16),
        }
    )


def write(folder: Path, table: pa.Table, counts: list[int], chunk_rows: int, layout: FileLayout) -> frozenset[str]:
    """Write chunks of so many rows each, a few to a shard."""
    arrays, starts = plan_arrays(layout), np.cumsum([0, *counts])
    nullable: frozenset[str] = frozenset()
    for shard, first in enumerate(range(0, len(counts), PER_SHARD)):
        own = starts[first : first + PER_SHARD + 1]
        with ShardWriter(folder, arrays, shard, chunk_rows=chunk_rows, chunks_per_shard=PER_SHARD) as writer:
            writer.write(table.slice(own[0], own[-1] - own[0]), own[:-1] - own[0])
        nullable |= writer.nullable
    write_group(
        folder,
        arrays,
        n_rows=table.num_rows,
        shape=chunk_rows * len(counts),
        chunk_rows=chunk_rows,
        chunks_per_shard=PER_SHARD,
        nullable=nullable,
    )
    return nullable


def opened(folder: Path) -> Any:  # noqa: ANN401  # zarr gives a union of a group and an array for each member
    """Return the group of a copy."""
    return zarr.open_group(folder, mode="r")


def padded(values: NDArray[Any], counts: list[int], chunk_rows: int, fill: float) -> NDArray[Any]:
    """Return what an array must hold, made row by row."""
    out = np.full(chunk_rows * len(counts), fill, dtype=values.dtype)
    start = 0
    for chunk, count in enumerate(counts):
        out[chunk * chunk_rows : chunk * chunk_rows + count] = values[start : start + count]
        start += count
    return out


@settings(max_examples=25, deadline=None)
@given(counts=st.lists(st.integers(0, 9), min_size=1, max_size=11), spare=st.integers(0, 3))
def test_chunk_k_is_tile_k_and_the_rest_is_fill(
    counts: list[int], spare: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, table = tmp_path_factory.mktemp("copy") / "spatial", rows(sum(counts))
    chunk_rows = max(*counts, 1) + spare
    write(folder, table, counts, chunk_rows, simple_layout())
    group = opened(folder)
    np.testing.assert_array_equal(group["x"][:], padded(table["x"].to_numpy(), counts, chunk_rows, np.nan))
    genes = table["gene"].to_numpy().astype(np.int8)
    genes[genes == len(GENES)] = -1
    np.testing.assert_array_equal(group["gene"][:], padded(genes, counts, chunk_rows, -1))
    np.testing.assert_array_equal(group["n"][:], padded(table["n"].to_numpy(), counts, chunk_rows, 0))
    assert group["gene"].dtype == np.int8


def test_arrays_are_read_in_batches_by_the_fast_way(tmp_path: Path) -> None:
    table = rows(30)
    write(tmp_path / "spatial", table, [10, 5, 0, 7, 8], 10, simple_layout())
    array = BatchArray.open(tmp_path / "spatial", "x")
    values, _ = array.read_ranges([10, 40], [15, 48])
    expected = np.concatenate([table["x"].to_numpy()[10:15], table["x"].to_numpy()[22:30]])
    np.testing.assert_array_equal(values, expected)
    assert array.layout.shards is not None
    assert array.layout.codecs.steps is not None


def test_the_group_says_its_columns_and_the_schema(tmp_path: Path) -> None:
    layout = simple_layout()
    write(tmp_path / "spatial", rows(3), [3], 3, layout)
    group = opened(tmp_path / "spatial")
    assert group.attrs["df"] == {"columns": ["x", "gene", "n", "cell"], "n_rows": 3}
    message = base64.b64decode(str(group.attrs["arrow_schema"]))
    assert pa.ipc.read_schema(pa.py_buffer(message)).equals(layout.schema)
    assert group["gene"].attrs["categories"] == "index/features/gene"
    assert group["cell"].attrs["categories"] == "index/values/cell"
    assert [name for name, _ in value_columns(layout)] == ["cell"]


def test_nulls_of_plain_columns_are_the_false_entries_of_validity(tmp_path: Path) -> None:
    layout = layout_of({"x": pa.float32(), "n": pa.int32(), "f": pa.float64()}, {})
    table = pa.table(
        {
            "x": pa.array([1, 2, 3, 4, 5], pa.float32()),
            "n": pa.array([1, None, 3, 4, 5], pa.int32()),
            "f": pa.array([float("nan"), 1, 2, None, 4], pa.float64()),
        }
    )
    assert write(tmp_path / "spatial", table, [3, 2], 4, layout) == {"n", "f"}
    group = opened(tmp_path / "spatial")
    assert group["validity/n"][:].tolist() == [True, False, True, True, True, True, True, True]
    assert group["validity/f"][:].tolist() == [True, True, True, True, False, True, True, True]
    assert group["n"][:3].tolist() == [1, 0, 3]
    assert "x" not in group["validity"]


def test_times_are_stored_as_the_integers_of_arrow(tmp_path: Path) -> None:
    layout = layout_of({"when": pa.timestamp("ms", "UTC"), "day": pa.date32()}, {})
    table = pa.table({"when": pa.array([5, 7], layout.schema.field(0).type), "day": pa.array([1, 2], pa.date32())})
    write(tmp_path / "spatial", table, [2], 2, layout)
    group = opened(tmp_path / "spatial")
    assert group["when"][:].tolist() == [5, 7]
    assert group["day"].dtype == np.int32


@pytest.mark.parametrize(
    "data_type", [pa.decimal128(9, 2), pa.binary(), pa.list_(pa.int8()), pa.month_day_nano_interval()]
)
def test_types_without_a_form_are_refused_by_name(data_type: pa.DataType) -> None:
    with pytest.raises(ColumnError, match=r"'odd' holds .*--layout parquet"):
        plan_arrays(layout_of({"x": pa.float32(), "odd": data_type}, {}))


def test_names_that_no_node_may_bear_are_replaced() -> None:
    names = ["x", "tile_offsets", "__null_dask_index__", "a/b", "zarr.json", ".."]
    arrays = plan_arrays(layout_of(dict.fromkeys(names, pa.float32()), {})).arrays
    assert [plan.name for plan in arrays] == [
        "x",
        "tile_offsets_source",
        "null_dask_index__",
        "column-3",
        "column-4",
        "column-5",
    ]
    assert [plan.column for plan in arrays] == names


def test_the_same_rows_are_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "other"):
        write(tmp_path / name, rows(50), [20, 0, 30], 30, simple_layout())
    files = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file())
    assert len(files) == 9
    assert all((tmp_path / "one" / file).read_bytes() == (tmp_path / "other" / file).read_bytes() for file in files)


def test_a_writer_that_fails_leaves_no_shard(tmp_path: Path) -> None:
    arrays = plan_arrays(simple_layout())
    incomplete = rows(4).append_column("more", rows(4)["n"]).drop_columns("cell")
    writer = ShardWriter(tmp_path, arrays, 0, chunk_rows=5, chunks_per_shard=2)
    with pytest.raises(KeyError), writer:
        writer.write(incomplete, np.zeros(1, np.int64))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_padding_beyond_64_times_the_rows_is_refused() -> None:
    require_padding(640, 100, 1_000, level=0, itemsize=8)
    with pytest.raises(GridError, match=r"level 3 .* 64,100 rows for 1,000 points.*--layout parquet"):
        require_padding(641, 100, 1_000, level=3, itemsize=8)
