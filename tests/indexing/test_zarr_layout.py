"""Both layouts in one element: zarr-python reads from the arrays what pyarrow reads from the files."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

from puncta.errors import ColumnError, GridError
from puncta.indexing import index_points

N_POINTS = 6_000
OPTIONS: dict[str, dict[str, Any]] = {
    "all": {"feature_key": ["gene", "kind"]},
    "shared": {"feature_key": ["gene"], "feature_levels": "shared", "codes_column": True},
    "none": {"feature_key": ["gene"], "feature_levels": "none"},
    "no feature order": {"feature_order": False},
}


def molecules(seed: int = 0) -> pa.Table:
    """Return points with a hotspot, nulls in features and in plain columns, text and a categorical."""
    rng = np.random.default_rng(seed)
    places = np.where(
        rng.random((N_POINTS, 1)) < 0.3, rng.normal(60, 6, (N_POINTS, 2)), rng.random((N_POINTS, 2)) * 100
    )
    names = np.asarray([f"g{number}" for number in range(9)])
    genes = pa.array(names[np.minimum(rng.geometric(0.4, N_POINTS) - 1, 8)], mask=rng.random(N_POINTS) < 0.02)
    return pa.table(
        {
            "x": places[:, 0].astype(np.float32),
            "y": places[:, 1].astype(np.float32),
            "gene": genes,
            "kind": pa.array(rng.choice(["a", "b"], N_POINTS)).dictionary_encode(),
            "cell": pa.array([f"cell-{number}" for number in rng.integers(0, 700, N_POINTS)]),
            "row": np.arange(N_POINTS),
            "sure": pa.array(rng.random(N_POINTS) < 0.5),
            "count": pa.array(rng.integers(0, 9, N_POINTS), mask=rng.random(N_POINTS) < 0.1),
            "when": pa.array(rng.integers(0, 10**6, N_POINTS), pa.timestamp("ms")),
        }
    )


@pytest.fixture(scope="module", params=OPTIONS)
def element(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("both") / "study.zarr"
    index_points(molecules(), store, layout="both", tile_size=12, limit=80, **OPTIONS[request.param])
    return store / "points" / "transcripts"


def group_of(folder: Path) -> Any:  # noqa: ANN401  # zarr gives a union of a group and an array for each member
    return zarr.open_group(folder, mode="r")


def tables_of(folder: Path) -> list[pa.Table]:
    """Return the row groups of a folder of part files."""
    parts = sorted(folder.glob("part.*.parquet"), key=lambda path: int(path.name.split(".")[1]))
    files = [pq.ParquetFile(path) for path in parts]
    return [file.read_row_group(group) for file in files for group in range(file.num_row_groups)]


def values_of(element: Path, group: Any, name: str, rows: slice) -> list[Any]:  # noqa: ANN401  # as above
    """Return rows of a column as Python values, by what the array says of itself."""
    array = group[name]
    values = array[rows]
    if "categories" in array.attrs:
        texts = group_of(element)[str(array.attrs["categories"])][:].tolist()
        return [None if code < 0 else texts[code] for code in values.tolist()]
    if "validity" in group and name in group["validity"]:
        is_valid = group["validity"][name][rows]
        return [value if valid else None for value, valid in zip(values.tolist(), is_valid.tolist(), strict=True)]
    found: list[Any] = values.tolist()
    return found


def python_of(column: pa.ChunkedArray, name: str) -> list[Any]:
    """Return the same of a Parquet column."""
    found: list[Any] = (column.cast(pa.int64()) if name == "when" else column).to_pylist()
    return found


def levels_of(element: Path) -> range:
    return range(len(group_of(element).attrs["multiscales"]["layout"]))


def test_tile_k_is_chunk_k_at_every_level(element: Path) -> None:
    for level in levels_of(element):
        group = group_of(element / str(level) / "spatial")
        tiles = tables_of(element / (f"levels/{level}/points.parquet" if level else "points.parquet"))
        offsets = group["tile_offsets"][:]
        largest = max(tile.num_rows for tile in tiles)
        assert np.diff(offsets).tolist() == [tile.num_rows for tile in tiles]
        assert group["x"].chunks == (max(largest, 1),)
        for name in group.attrs["df"]["columns"]:
            if name.endswith("_codes"):
                continue
            for k, tile in enumerate(tiles):
                rows = slice(k * largest, k * largest + tile.num_rows)
                assert values_of(element, group, name, rows) == python_of(tile[name], name), (level, name, k)


def test_the_feature_order_has_plain_rows(element: Path) -> None:
    for home in sorted(element.glob("[0-9]*/feature")) + sorted(element.glob("[0-9]*/by-*")):
        level, group = home.parent.name, group_of(home)
        inner = "" if home.name == "feature" else f"{home.name}/"
        table = pa.concat_tables(tables_of(element / f"feature/{level}/{inner}points.parquet"))
        assert group.attrs["df"]["n_rows"] == table.num_rows == group["x"].shape[0]
        for name in table.column_names:
            found = values_of(element, group, name, slice(None)) if not name.endswith("_codes") else []
            assert found == (python_of(table[name], name) if found else []), (home, name)


def test_both_layouts_have_the_same_offsets(element: Path) -> None:
    index = group_of(element / "index")
    for home in sorted(element.glob("[0-9]*/feature")) + sorted(element.glob("[0-9]*/by-*")):
        group = group_of(home)
        other = index[home.parent.name] if home.name == "feature" else index[f"{home.parent.name}/{home.name}"]
        for name in ("feature_offsets", "feature_offsets_own", "feature_level_of"):
            assert (name in group) == (name in other)
            if name in group:
                np.testing.assert_array_equal(group[name][:], other[name][:])
        for name in ("indptr", "tiles", "starts"):
            np.testing.assert_array_equal(group[f"feature_tiles/{name}"][:], other[f"feature_tiles/{name}"][:])


def test_the_metadata_names_both_layouts_and_the_groups_of_the_levels(element: Path) -> None:
    attrs = group_of(element).attrs
    assert attrs["spatial_index"]["layout"] == ["parquet", "zarr"]
    assets = [level["asset"] for level in attrs["multiscales"]["layout"]]
    assert assets == [str(level) for level in levels_of(element)]
    assert all((element / asset / "zarr.json").exists() for asset in assets)


def test_tiles_too_unequal_for_padding_are_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.random(1_000), rng.random(100) * 500]).astype(np.float32)
    table = pa.table({"x": x, "y": x, "gene": pa.array(["a"] * len(x))})
    with pytest.raises(GridError, match=r"level 0 .*--layout parquet"):
        index_points(table, tmp_path / "s.zarr", layout="both", tile_size=5)
    assert list(tmp_path.iterdir()) == []


def test_a_column_without_a_form_as_an_array_is_refused(tmp_path: Path) -> None:
    table = molecules().append_column("tags", pa.array([[1]] * N_POINTS))
    with pytest.raises(ColumnError, match=r"'tags' holds list.*--layout parquet"):
        index_points(table, tmp_path / "s.zarr", layout="both", feature_key="gene")
    assert list(tmp_path.iterdir()) == []
