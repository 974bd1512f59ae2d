"""Bad input is refused with what is wrong, how much of it, and the remedy; and nothing is left behind."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from puncta.errors import (
    ColumnError,
    GridError,
    OverwriteError,
    PunctaError,
    QueryError,
    SourceError,
    SpaceError,
    StoreError,
)
from puncta.indexing import index_points

ROWS = 1_000


def molecules(**other: object) -> pa.Table:
    """Return a table of molecules with some columns replaced, or left out where None is given."""
    rng = np.random.default_rng(0)
    genes = pa.array([f"g{code}" for code in rng.integers(0, 5, ROWS)])
    columns: dict[str, Any] = {"x": rng.random(ROWS) * 100, "y": rng.random(ROWS) * 100, "gene": genes}
    return pa.table({name: value for name, value in (columns | other).items() if value is not None})


def with_values(at: dict[int, float]) -> np.ndarray[Any, Any]:
    values = np.linspace(0, 50, ROWS)
    values[list(at)] = list(at.values())
    return values


BAD_TABLES: dict[str, tuple[pa.Table, type[PunctaError], str]] = {
    "not a number": (molecules(x=with_values({5: np.nan, 9: np.inf})), SourceError, r"2 of 1000 rows.*row 5.*drop"),
    "a null": (molecules(y=pa.array([None, *np.ones(ROWS - 1)])), SourceError, r"1 of 1000 rows.*row 0"),
    "no x": (molecules(x=None, xx=np.ones(ROWS)), ColumnError, r"no column 'x'; nearest: 'xx'.*--x"),
    "no feature": (molecules(gene=None), ColumnError, r"--feature-key.*--no-feature-order"),
    "no rows": (molecules().slice(0, 0), SourceError, r"no rows"),
    "text as x": (molecules(x=pa.array(["a"] * ROWS)), ColumnError, r"not numbers.*--x"),
    "integers beyond 2**24": (molecules(x=np.full(ROWS, 2**24 + 1)), SourceError, r"1000 coordinates.*keep"),
    "large numbers": (molecules(x=np.full(ROWS, 1e8 + 0.3)), SourceError, r"1000 coordinates.*1/64.*keep"),
}


@pytest.mark.parametrize("case", BAD_TABLES)
def test_a_bad_table_is_refused(case: str, tmp_path: Path) -> None:
    table, error, words = BAD_TABLES[case]
    with pytest.raises(error, match=words):
        index_points(table, tmp_path / "new.zarr")
    assert list(tmp_path.iterdir()) == []


BAD_OPTIONS: dict[str, tuple[dict[str, Any], type[PunctaError], str]] = {
    "no size": ({"tile_size": 0}, GridError, r"0\.0; it must be a finite number above zero"),
    "negative size": ({"tile_size": -3}, GridError, r"-3\.0; it must be"),
    "sizes of another number": ({"tile_size": (1, 2, 3)}, GridError, r"3 tile sizes"),
    "too many tiles": ({"tile_size": 0.01}, GridError, r"more than 65536; choose larger tiles, or raise --max-tiles"),
    "origin inside": ({"origin": (50, 50), "tile_size": 10}, GridError, r"\d+ of 1000 points lie below the origin"),
    "limit of 0": ({"limit": 0}, QueryError, r"limit is 0; it must be at least 1"),
    "no levels": ({"max_levels": 0}, QueryError, r"max_levels is 0"),
    "unknown feature": ({"feature_key": "genes"}, ColumnError, r"no column 'genes'; nearest: 'gene'"),
    "unknown column in where": ({"where": "qv >= 20"}, ColumnError, r"reads 'qv', which is no column"),
    "no expression": ({"where": "x >="}, QueryError, r"no SQL expression"),
    "no condition": ({"where": "x + 1"}, QueryError, r"not true or false"),
    "nothing left": ({"where": "x > 1000"}, SourceError, r"all 1000 were left out \(1000 by where\)"),
    "unknown mode": ({"feature_levels": "some"}, QueryError, r"one of all, shared, none"),
    "little memory": ({"memory": "10MB"}, QueryError, r"too little"),
    "no number": ({"memory": "much"}, QueryError, r"no number of bytes"),
    "no others to take along": ({"all_elements": True}, SourceError, r"no store with other elements"),
}


@pytest.mark.parametrize("case", BAD_OPTIONS)
def test_a_bad_option_is_refused(case: str, tmp_path: Path) -> None:
    options, error, words = BAD_OPTIONS[case]
    with pytest.raises(error, match=words):
        index_points(molecules(), tmp_path / "new.zarr", **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda _: b"no Parquet at all"])
def test_a_damaged_file_is_named(damage: Any, tmp_path: Path) -> None:  # noqa: ANN401  # a function on bytes
    path = tmp_path / "transcripts.parquet"
    pq.write_table(molecules(), path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(StoreError, match=r"transcripts\.parquet"):
        index_points(path, tmp_path / "new.zarr")
    assert [path.name for path in tmp_path.iterdir()] == ["transcripts.parquet"]


def test_a_second_index_needs_a_word(tmp_path: Path) -> None:
    store = tmp_path / "study.zarr"
    index_points(molecules(), store)
    with pytest.raises(OverwriteError, match="--overwrite"):
        index_points(molecules(), store)
    with pytest.raises(OverwriteError, match="has a spatial index already; give --overwrite"):
        index_points(store, in_place=True)


def test_what_is_no_store_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years")
    with pytest.raises(OverwriteError, match="no SpatialData store"):
        index_points(molecules(), tmp_path, overwrite=True)
    assert (tmp_path / "thesis.txt").read_text() == "years"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 16 MB; making one takes root."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("this user may not mount a small disk")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_disk_that_is_too_small_is_said_before_anything_is_written(small_disk: Path) -> None:
    many = pa.concat_tables([molecules()] * 1_000)
    with pytest.raises(SpaceError, match=r"needs .* where .* are free"):
        index_points(many, small_disk / "new.zarr")
    assert list(small_disk.iterdir()) == []


def test_a_disk_that_fills_up_leaves_the_store_as_it_was(small_disk: Path) -> None:
    store, filler = small_disk / "study.zarr", small_disk / "filler"
    index_points(molecules(), store)
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}

    def fill(*_: object) -> None:
        with filler.open("ab") as file:
            file.write(bytes(shutil.disk_usage(small_disk).free - 4096))

    with pytest.raises(SpaceError):
        index_points(pa.concat_tables([molecules()] * 50), store, overwrite=True, progress=fill)

    assert {path: path.read_bytes() for path in store.rglob("*") if path.is_file()} == before
    assert sorted(path.name for path in small_disk.iterdir()) == ["filler", "study.zarr"]
