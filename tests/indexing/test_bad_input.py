"""Bad input that may be left out, kept or named by an option; and names that cannot be written."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from puncta.errors import ColumnError, GridError, SourceError, SpaceError, StoreError
from puncta.indexing import index_points
from puncta.points import open_points
from puncta.spec.points import validate_points_attrs


@pytest.fixture
def spoilt(molecules: Callable[..., pa.Table]) -> pa.Table:
    """Return 500 molecules of which four have no place: not a number, both infinities, and a null."""
    table = molecules(500)
    x = table["x"].to_pylist()
    x[3], x[77], x[78], x[499] = float("nan"), float("inf"), float("-inf"), None
    return table.set_column(0, "x", pa.array(x, pa.float32()))


@pytest.mark.parametrize("form", ["memory", "parquet", "csv", "parts"])
def test_rows_without_a_place_are_counted_in_every_form(tmp_path: Path, spoilt: pa.Table, form: str) -> None:
    source: Any = tmp_path / f"t.{form}"
    if form == "memory":
        source = spoilt
    elif form == "csv":
        pacsv.write_csv(spoilt, source)
    elif form == "parquet":
        pq.write_table(spoilt, source)
    else:
        source.mkdir()
        for part in range(5):
            pq.write_table(spoilt.slice(part * 100, 100), source / f"part.{part}.parquet")
    words = r"4 of 500 rows .* \(first: row 3, x = nan, y = [0-9.]+\); correct them, .* --invalid drop"
    with pytest.raises(SourceError, match=words):
        index_points(source, tmp_path / "new.zarr")


def test_rows_without_a_place_are_left_out_where_asked_and_recorded(
    tmp_path: Path, spoilt: pa.Table, attributes_of: Callable[[Path], dict[str, Any]]
) -> None:
    report = index_points(spoilt, tmp_path / "new.zarr", invalid="drop")
    assert (report.n_rows, report.n_source_rows, report.dropped) == (496, 500, {"invalid": 4})
    assert attributes_of(Path(report.path))["spatial_index"]["dropped"] == {"invalid": 4}
    assert validate_points_attrs(attributes_of(Path(report.path)), strict=True) == []
    assert sorted(open_points(Path(report.path)).query()["id"].to_pylist()) == sorted(
        set(range(500)) - {3, 77, 78, 499}
    )


def test_nothing_is_recorded_where_nothing_was_left_out(
    tmp_path: Path, molecules: Callable[..., pa.Table], attributes_of: Callable[[Path], dict[str, Any]]
) -> None:
    report = index_points(molecules(50), tmp_path / "new.zarr", invalid="drop")
    assert report.dropped == {}
    assert "dropped" not in attributes_of(Path(report.path))["spatial_index"]


def test_filters_are_recorded_with_what_they_left_out(
    tmp_path: Path, molecules: Callable[..., pa.Table], attributes_of: Callable[[Path], dict[str, Any]]
) -> None:
    table = molecules(500)
    report = index_points(table, tmp_path / "new.zarr", where=["qv >= 20", "gene != 'g0'"])
    frame = table.to_pandas()
    expected = frame["id"][(frame["qv"] >= 20) & (frame["gene"] != "g0")].tolist()
    assert sorted(open_points(Path(report.path)).query()["id"].to_pylist()) == expected
    index = attributes_of(Path(report.path))["spatial_index"]
    assert (index["where"], index["dropped"]) == (["qv >= 20", "gene != 'g0'"], {"where": 500 - len(expected)})


@pytest.mark.parametrize("value", [2**24 + 1, 1e9 + 0.5])
def test_numbers_that_float32_would_spoil_are_kept_where_asked(tmp_path: Path, value: float) -> None:
    table = pa.table({"x": [value, value + 1], "y": [0.0, 0.0], "gene": ["a", "a"]})
    with pytest.raises(SourceError, match=r"coordinate_dtype='keep'"):
        index_points(table, tmp_path / "new.zarr")
    points = open_points(Path(index_points(table, tmp_path / "new.zarr", coordinate_dtype="keep").path))
    assert points.query(box={"x": (value, value + 1)})["x"].to_pylist() == [value]


# --- columns


@pytest.mark.parametrize(
    ("names", "options", "words"),
    [
        (("xx", "y", "gene"), {}, r"no column 'x'; nearest: 'xx'; the 3 columns are .*--x"),
        (("x", "y", "gene"), {"x": "xs"}, r"no column 'xs'; nearest: 'x'"),
        (("x", "y", "gene"), {"z": "depth"}, r"no column 'depth'.*--z"),
        (("x", "y", "gene"), {"axes": ("x", "y", "z")}, r"no column 'z'.*leave z out of the axes"),
        (("x", "y", "gene"), {"axes": ("x",)}, r"the axes 'x' are not x and y"),
        (("x", "y", "gene"), {"feature_key": ["gene", "gene"]}, r"'gene' is given two roles"),
    ],
)
def test_columns_that_are_not_there_are_named_with_the_nearest(
    tmp_path: Path, names: tuple[str, ...], options: dict[str, Any], words: str
) -> None:
    table = pa.table({name: ["a"] if name == "gene" else [0.0] for name in names})
    with pytest.raises(ColumnError, match=words):
        index_points(table, tmp_path / "new.zarr", **options)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../../up", "zarr.json", "__x"])
@pytest.mark.parametrize("place", [0, 1])
def test_a_feature_column_whose_name_is_no_name_of_an_array_is_refused(tmp_path: Path, name: str, place: int) -> None:
    table = pa.table({"x": [0.0], "y": [0.0], "gene": ["a"], name: ["a"]})
    keys = [name, "gene"] if place == 0 else ["gene", name]
    with pytest.raises(ColumnError, match=r"no array may be called that; rename the column"):
        index_points(table, tmp_path / "new.zarr", feature_key=keys)
    assert list(tmp_path.iterdir()) == []


def test_other_columns_may_have_such_names(tmp_path: Path) -> None:
    table = pa.table({"x": [0.0], "y": [0.0], "gene": ["a"], "a/b": ["p"], "..": ["q"]})
    element = Path(index_points(table, tmp_path / "new.zarr").path)
    assert open_points(element).query().select(["a/b", ".."]).to_pylist() == [{"a/b": "p", "..": "q"}]


def test_categories_that_cannot_be_compared_are_refused_with_the_remedy(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [0.0, 1], "y": [0.0, 1], "gene": ["a", "b"], "bin": pd.cut([1, 2], 2)})
    with pytest.raises(ColumnError, match=r"categories of column 'bin' .* write them as text"):
        index_points(frame, tmp_path / "new.zarr")


# --- files


def test_a_foreign_parquet_file_is_refused_by_its_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"when": [1], "price": [2.5]}), tmp_path / "t.parquet")
    with pytest.raises(ColumnError, match=r"no column 'x'.*the 2 columns are when, price"):
        index_points(tmp_path / "t.parquet", tmp_path / "new.zarr")


def test_damage_in_the_middle_of_a_source_leaves_nothing_behind(
    tmp_path: Path, molecules: Callable[..., pa.Table]
) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(molecules(5000), path, row_group_size=1000, use_dictionary=False)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 500] = bytes(500)
    path.write_bytes(data)
    with pytest.raises(StoreError, match=r"t\.parquet"):
        index_points(path, tmp_path / "new.zarr")
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.parquet"]


# --- grids


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tile_size": float("nan")}, "must be a finite number above zero"),
        ({"tile_size": float("inf")}, "must be a finite number above zero"),
        ({"tile_size": (10, 0)}, "the tile size along y is 0.0"),
        ({"tile_size": 10, "origin": (0,)}, r"the origin \(0.0,\) has 1 values; the axes are x, y"),
        ({"tile_size": 10, "origin": (float("nan"), 0)}, "must be a finite number"),
        ({"origin": (0, 50)}, r"\d+ of 500 points lie below the origin \(0.0, 50.0\) \(first: "),
        ({"tile_size": 1e-9}, r"tiles"),
        ({"tile_size": 1, "max_tiles": 50}, r"more than 50; choose larger tiles, or raise --max-tiles"),
    ],
)
def test_grids_that_are_none_are_refused(
    tmp_path: Path, molecules: Callable[..., pa.Table], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(GridError, match=words):
        index_points(molecules(500), tmp_path / "new.zarr", **options)
    assert list(tmp_path.iterdir()) == []


def test_points_below_the_origin_are_counted(tmp_path: Path) -> None:
    table = pa.table({"x": [5.0, 15.0, 2.0], "y": [0.0, 0.0, 0.0], "gene": ["a"] * 3})
    words = r"2 of 3 points lie below the origin \(10.0, 0.0\) \(first: \(5.0, 0.0\)\); the lowest .* \(2.0, 0.0\)"
    with pytest.raises(GridError, match=words):
        index_points(table, tmp_path / "new.zarr", tile_size=10, origin=(10, 0))


# --- disks


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Return a disk of 4 MB; making one takes root."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"this user may not mount a small disk: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_disk_for_buckets_that_is_too_small_is_said_before_anything_is_written(
    tmp_path: Path, small_disk: Path, molecules: Callable[..., pa.Table]
) -> None:
    with pytest.raises(SpaceError, match=r"the folder of buckets needs .* where .* are free; .*--tmp"):
        index_points(molecules(60_000), tmp_path / "new.zarr", tmp=small_disk)
    assert [entry.name for entry in tmp_path.iterdir()] == ["disk"]
    assert list(small_disk.iterdir()) == []


def test_a_disk_for_buckets_that_fills_up_is_said(
    tmp_path: Path, small_disk: Path, molecules: Callable[..., pa.Table]
) -> None:
    def fill(*_: object) -> None:
        with suppress(OSError):
            (small_disk / "filler").write_bytes(bytes(4_000_000))

    # Two batches, so that there is progress between them.
    table = pa.concat_tables([molecules(10_000)] * 2)
    with pytest.raises(SpaceError, match="became full"):
        index_points(table, tmp_path / "new.zarr", tmp=small_disk, progress=fill)
    assert [entry.name for entry in tmp_path.iterdir()] == ["disk"]
    assert [entry.name for entry in small_disk.iterdir()] == ["filler"]
