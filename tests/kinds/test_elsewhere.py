"""What is said of elements and stores in archives, on servers and in buckets."""

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.servers import BucketServer, FileServer

import puncta
from puncta.errors import MissingError, UnsupportedError

ELEMENT = "points/transcripts"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store with one indexed element."""
    rng = np.random.default_rng(0)
    columns = {axis: rng.uniform(0, 100, 2_000).astype(np.float32) for axis in ("x", "y")}
    table = pa.table({**columns, "gene": pa.array(rng.choice(["a", "b", "c"], 2_000).tolist())})
    store = tmp_path_factory.mktemp("elsewhere") / "study.zarr"
    puncta.index_points(table, store, feature_key="gene", limit=200)
    return store


@pytest.fixture
def archive(store: Path, tmp_path: Path) -> Path:
    path = tmp_path / "study.zarr.zip"
    with zipfile.ZipFile(path, "w") as target:
        for file in sorted(file for file in store.rglob("*") if file.is_file()):
            target.write(file, file.relative_to(store).as_posix())
    return path


def told_but_path(told: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in json.loads(json.dumps(told)).items() if key != "path"}


@pytest.mark.parametrize("inner", ["", f"/{ELEMENT}"])
def test_an_archive_and_a_bucket_tell_what_the_folder_tells(
    store: Path, archive: Path, s3_server: BucketServer, inner: str
) -> None:
    expected = told_but_path(puncta.info(f"{store}{inner}"))
    bucket = s3_server.serve(store)
    assert told_but_path(puncta.info(f"{archive}{inner}")) == expected
    assert told_but_path(puncta.info(f"{bucket}{inner}", storage_options=s3_server.options)) == expected
    assert puncta.info(f"{archive}{inner}")["path"] == f"{archive}{inner}"


def test_a_web_server_tells_all_but_sizes(store: Path, http_server: FileServer) -> None:
    told = puncta.info(f"{http_server.serve(store)}/{ELEMENT}")
    expected = puncta.info(store / ELEMENT)
    assert told["bytes"] is None
    assert all(level["bytes"] is level["bytes_feature"] is None for level in told["levels"])
    unsized = {key: expected[key] for key in expected if key not in {"bytes", "path", "levels"}}
    assert {key: told[key] for key in unsized} == unsized


def test_points_without_an_index_say_what_to_do(store: Path, tmp_path: Path, http_server: FileServer) -> None:
    shutil.copytree(store, tmp_path / "study.zarr")
    path = tmp_path / "study.zarr" / ELEMENT / "zarr.json"
    document = json.loads(path.read_text())
    document["attributes"].pop("spatial_index")
    path.write_text(json.dumps(document))
    told = puncta.info(f"{http_server.serve(tmp_path)}/study.zarr/{ELEMENT}")
    assert (told["indexed"], told["n_rows"], told["feature_key"]) == (False, None, "gene")
    assert "puncta index" in told["remedy"]


def test_nothing_and_something_else_are_refused(store: Path, http_server: FileServer, tmp_path: Path) -> None:
    url = http_server.serve(store)
    with pytest.raises(MissingError, match="nothing at"):
        puncta.info(f"{url}/points/transcript")
    (tmp_path / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group"}')
    with zipfile.ZipFile(tmp_path / "else.zip", "w") as target:
        target.write(tmp_path / "zarr.json", "zarr.json")
    with pytest.raises(UnsupportedError, match="something else"):
        puncta.info(tmp_path / "else.zip")
