"""What the tests of the builder share: a table of molecules, and a reader of the files that knows nothing of puncta."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from numpy.typing import NDArray


def _molecules(n_rows: int, *, seed: int = 0, genes: int = 5, extent: float = 100.0, thick: bool = False) -> pa.Table:
    """Return random molecules, half of them in one corner, with genes of very unequal abundance and a unique id."""
    rng = np.random.default_rng(seed)
    places = rng.random((n_rows, 2)) * extent
    places[: n_rows // 2] /= 4
    names = np.asarray([f"g{number}" for number in range(genes)])
    columns = {
        "x": places[:, 0].astype(np.float32),
        "y": places[:, 1].astype(np.float32),
        **({"z": (rng.random(n_rows) * 9).astype(np.float32)} if thick else {}),
        "gene": names[np.minimum(rng.geometric(0.5, n_rows) - 1, genes - 1)],
        "qv": rng.integers(0, 40, n_rows).astype(np.int16),
        "id": np.arange(n_rows),
    }
    return pa.table(columns)


def _row_groups(folder: Path) -> list[pa.Table]:
    """Return the row groups of a folder of part files, parts in the order of their numbers."""
    parts = sorted(folder.glob("part.*.parquet"), key=lambda path: int(path.name.split(".")[1]))
    files = [pq.ParquetFile(path) for path in parts]
    return [file.read_row_group(group) for file in files for group in range(file.num_row_groups)]


def _tiles(element: Path, level: int = 0) -> list[pa.Table]:
    """Return the row groups of the tile order of a level: tile k is the one with number k."""
    return _row_groups(element / (f"levels/{level}/points.parquet" if level else "points.parquet"))


def _copy(element: Path, level: int = 0, by: str | None = None) -> list[pa.Table]:
    """Return the row groups of a feature-major copy, of the primary feature column or a further one."""
    group = element / "feature" / str(level)
    return _row_groups((group / f"by-{by}" if by else group) / "points.parquet")


def _array(element: Path, path: str) -> NDArray[Any]:
    """Return an array of the index."""
    return np.asarray(zarr.open_array(element / "index" / path, mode="r")[:])


def _attributes(element: Path) -> dict[str, Any]:
    """Return the attributes of the element, as stored."""
    attributes: dict[str, Any] = json.loads((element / "zarr.json").read_text())["attributes"]
    return attributes


def _tile_numbers(element: Path, rows: pa.Table, level: int = 0) -> NDArray[np.int64]:
    """Return the tile of each row by the RFC's words and P1 to P3: floor, then halves, then C order."""
    index = _attributes(element)["spatial_index"]
    grids = [one["spatial_index"] for one in _attributes(element)["multiscales"]["layout"]]
    affine = np.asarray(index.get("affine", np.eye(len(index["axes"]), len(index["axes"]) + 1)))
    stored = np.stack([rows.column(axis).to_numpy().astype(np.float64) for axis in index["axes"]])
    placed = (affine[:, :-1] @ stored).T + affine[:, -1]
    fine = np.floor((placed - grids[0]["origin"]) / grids[0]["tile_size"]).astype(np.int64)
    halves = np.asarray(grids[level]["tile_size"]) / grids[0]["tile_size"]
    coarse = fine // halves.astype(np.int64)
    numbers: NDArray[np.int64] = np.ravel_multi_index(tuple(coarse.T), grids[level]["grid_shape"]).astype(np.int64)
    return numbers


@pytest.fixture(scope="session")
def molecules() -> Callable[..., pa.Table]:
    """Return a function that makes a table of molecules."""
    return _molecules


@pytest.fixture(scope="session")
def tiles_of() -> Callable[..., list[pa.Table]]:
    """Return a function that reads the tiles of a level with pyarrow alone."""
    return _tiles


@pytest.fixture(scope="session")
def copy_of() -> Callable[..., list[pa.Table]]:
    """Return a function that reads the row groups of a feature-major copy with pyarrow alone."""
    return _copy


@pytest.fixture(scope="session")
def array_of() -> Callable[[Path, str], NDArray[Any]]:
    """Return a function that reads an array of the index with zarr alone."""
    return _array


@pytest.fixture(scope="session")
def attributes_of() -> Callable[[Path], dict[str, Any]]:
    """Return a function that reads the attributes of an element."""
    return _attributes


@pytest.fixture(scope="session")
def tile_numbers_of() -> Callable[..., NDArray[np.int64]]:
    """Return a function that computes the tile of each row."""
    return _tile_numbers
