"""An index that is built into an object store: all of it or nothing, and read from there like any other."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import spatialdata
from tests.servers import BucketServer

import puncta
from puncta.errors import OverwriteError, SourceError, StoreError, UnsupportedError
from puncta.indexing import convert_points, index_points

ROWS = 3_000
STORE = "s3://tissue/a/study.zarr"


@pytest.fixture
def server(s3_server: BucketServer) -> BucketServer:
    s3_server.serve({})
    return s3_server


@pytest.fixture(scope="module")
def molecules() -> pa.Table:
    rng = np.random.default_rng(0)
    genes = pa.array([f"g{code}" for code in rng.integers(0, 9, ROWS)])
    return pa.table({"x": rng.random(ROWS) * 100, "y": rng.random(ROWS) * 100, "gene": genes, "id": np.arange(ROWS)})


def build(molecules: pa.Table, store: str | Path, **options: Any) -> str | Path:  # noqa: ANN401  # options of the door
    return index_points(molecules, store, feature_key="gene", tile_size=10, limit=50, **options).path


def names(server: BucketServer) -> set[str]:
    return set(server.files())


def downloaded(server: BucketServer, folder: Path) -> Path:
    for name, content in server.files().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder / "a/study.zarr"


@pytest.mark.parametrize("layout", ["parquet", "both", "zarr"])
def test_what_is_put_is_what_a_folder_would_hold(
    layout: str, server: BucketServer, molecules: pa.Table, tmp_path: Path
) -> None:
    build(molecules, STORE, layout=layout, storage_options=server.options)
    build(molecules, tmp_path / "local.zarr", layout=layout)
    local = tmp_path / "local.zarr"
    expected = {f"a/study.zarr/{path.relative_to(local)}": path for path in local.rglob("*") if path.is_file()}
    assert names(server) == set(expected)
    assert all(server.files()[name] == path.read_bytes() for name, path in expected.items() if "zarr.json" not in name)


def test_it_is_asked_where_it_is(server: BucketServer, molecules: pa.Table, tmp_path: Path) -> None:
    path = build(molecules, STORE, storage_options=server.options)
    assert path == f"{STORE}/points/transcripts"
    here = puncta.open_points(Path(build(molecules, tmp_path / "local.zarr")))
    there = puncta.open_points(path, storage_options=server.options)
    box = {"x": (20.0, 60.0), "y": (0.0, 50.0)}
    assert there.query(box=box).equals(here.query(box=box), check_metadata=True)


@pytest.mark.filterwarnings("ignore:The inplace keyword:DeprecationWarning")
def test_spatialdata_reads_what_is_downloaded(server: BucketServer, molecules: pa.Table, tmp_path: Path) -> None:
    build(molecules, STORE, storage_options=server.options)
    data = spatialdata.read_zarr(downloaded(server, tmp_path))
    assert sorted(data.points["transcripts"]["id"].compute()) == list(range(ROWS))


def test_a_second_element_is_added_to_the_store(server: BucketServer, molecules: pa.Table, tmp_path: Path) -> None:
    build(molecules, STORE, storage_options=server.options)
    build(molecules, STORE, name="more", storage_options=server.options)
    data = spatialdata.read_zarr(downloaded(server, tmp_path))
    assert set(data.points) == {"transcripts", "more"}


@pytest.mark.parametrize("overwrite", [False, True])
def test_an_element_that_is_there_is_never_replaced(overwrite: bool, server: BucketServer, molecules: pa.Table) -> None:
    build(molecules, STORE, storage_options=server.options)
    before = server.files()
    with pytest.raises(OverwriteError, match=r"transcripts exists.*give another --name or -o"):
        build(molecules, STORE, overwrite=overwrite, storage_options=server.options)
    assert server.files() == before


def test_a_build_that_fails_commits_nothing(server: BucketServer, molecules: pa.Table, tmp_path: Path) -> None:
    seen: list[str] = []

    def fail(method: str, path: str) -> int | None:
        seen.append(path)
        return 500 if method == "PUT" and len(seen) > 20 else None

    server.faults.before = fail
    options = {**server.options, "retry_config": {"max_retries": 0}}
    with pytest.raises(StoreError) as caught:
        build(molecules, STORE, storage_options=options, tmp=tmp_path)
    server.faults.before = None
    assert "a/study.zarr/zarr.json" not in names(server)
    assert any("the same command replaces them" in note for note in caught.value.__notes__)


def test_a_converted_element_goes_there_too(server: BucketServer, molecules: pa.Table, tmp_path: Path) -> None:
    local = build(molecules, tmp_path / "local.zarr")
    convert_points(str(local), "s3://tissue/alone.zarr", layout="zarr", storage_options=server.options)
    there = puncta.open_points("s3://tissue/alone.zarr", storage_options=server.options)
    assert there.query(features=["g3"]).num_rows == puncta.open_points(local).query(features=["g3"]).num_rows > 0


@pytest.mark.parametrize(
    ("store", "options", "error"),
    [
        ("https://example.org/study.zarr", {}, UnsupportedError),
        ("s3://tissue/a/study.zarr/points/transcripts", {}, SourceError),
        ("s3://tissue/new.zarr", {"name": "a/b"}, SourceError),
        ("s3://tissue/new.zarr", {"layout": "zarr", "all_elements": True}, UnsupportedError),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is_built(
    store: str, options: dict[str, Any], error: type[Exception], server: BucketServer, molecules: pa.Table
) -> None:
    given = {} if store.startswith("https") else {"storage_options": server.options}
    with pytest.raises(error):
        build(molecules, store, **given, **options)
    assert names(server) == set()
