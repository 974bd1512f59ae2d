"""What is at a path, what it says of itself, and what is wrong with it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

from puncta.errors import MetadataError, MissingError, StoreError, UnsupportedError
from puncta.indexing._index import index_points
from puncta.kinds import info, kind_of, validate, validate_report
from puncta.points import Grid
from puncta.spec.spatialdata import points_attrs, root_attrs
from puncta.spec.transformations import identity_transformation

N_ROWS = 1500


def molecules() -> pa.Table:
    rng = np.random.default_rng(1)
    genes = rng.choice(["a", "b", "c", "d"], N_ROWS, p=[0.6, 0.3, 0.08, 0.02]).tolist()
    return pa.table(
        {
            "x": rng.uniform(0, 160, N_ROWS).astype("float32"),
            "y": rng.uniform(0, 80, N_ROWS).astype("float32"),
            "gene": pa.array([None if number % 100 == 0 else gene for number, gene in enumerate(genes)]),
        }
    )


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One store for each way of writing feature-major levels."""
    folder = tmp_path_factory.mktemp("modes")
    for mode in ("all", "shared", "none"):
        index_points(
            molecules(), folder / mode, x="x", y="y", feature_key="gene", tile_size=20.0, limit=60, feature_levels=mode
        )
    return {mode: folder / mode for mode in ("all", "shared", "none")}


@pytest.fixture
def store(stores: dict[str, Path], tmp_path: Path) -> Path:
    """A store to damage."""
    shutil.copytree(stores["none"], tmp_path / "store.zarr")
    return tmp_path / "store.zarr"


def add_plain_element(store: Path, name: str = "plain") -> Path:
    element = store / "points" / name
    (element / "points.parquet").mkdir(parents=True)
    attrs = points_attrs(["x", "y"], "gene", None, [identity_transformation(["x", "y"], "global")])
    document = {"zarr_format": 3, "node_type": "group", "attributes": attrs}
    (element / "zarr.json").write_text(json.dumps(document))
    pq.write_table(molecules(), element / "points.parquet" / "part.0.parquet")
    pq.write_table(molecules()[:10], element / "points.parquet" / "part.1.parquet")
    return element


def test_kind_of_a_store_and_of_its_elements(store: Path) -> None:
    assert kind_of(store) == "store"
    assert kind_of(store / "points" / "transcripts") == "points"
    assert kind_of(add_plain_element(store)) == "points"


def test_kind_is_known_although_the_metadata_is_damaged(store: Path) -> None:
    (store / "points" / "transcripts" / "zarr.json").write_text("{")
    (store / "zarr.json").write_text("[")
    assert (kind_of(store), kind_of(store / "points" / "transcripts")) == ("store", "points")


def test_store_of_an_old_format_is_a_store(tmp_path: Path) -> None:
    root = tmp_path / "old.zarr"
    (root / "points" / "t" / "points.parquet").mkdir(parents=True)
    for folder in (root, root / "points", root / "points" / "t"):
        (folder / ".zgroup").write_text('{"zarr_format": 2}')
    (root / "points" / "t" / ".zattrs").write_text('{"encoding-type": "ngff:points", "axes": ["x", "y"]}')
    assert (kind_of(root), kind_of(root / "points" / "t")) == ("store", "points")
    assert info(root)["elements"][0]["path"] == "points/t"


@pytest.mark.parametrize("inner", ["points", "points/transcripts/index", "points/transcripts/index/0/tile_offsets"])
def test_place_inside_a_store_that_is_no_element_is_refused(store: Path, inner: str) -> None:
    with pytest.raises(UnsupportedError, match="points elements"):
        kind_of(store / inner)


def test_what_is_not_there_or_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingError):
        kind_of(tmp_path / "nothing")
    (tmp_path / "table.csv").write_text("x,y\n")
    with pytest.raises(UnsupportedError, match="puncta index"):
        kind_of(tmp_path / "table.csv")
    (tmp_path / "a.zip").write_bytes(b"PK\x05\x06" + bytes(18))
    with pytest.raises(UnsupportedError, match="zip"):
        validate(tmp_path / "a.zip")
    with pytest.raises(UnsupportedError, match="URL"):
        info("ftp://example.org/a.zarr")


def test_info_has_the_keys_of_the_interface(stores: dict[str, Path]) -> None:
    told = json.loads(json.dumps(info(stores["all"] / "points" / "transcripts")))
    assert (told["kind"], told["n_rows"], told["axes"]) == ("points", N_ROWS, ["x", "y"])
    assert (told["feature_key"], told["n_features"], told["layout"]) == ("gene", 4, ["parquet"])
    assert (told["coordinate_system"], told["fit"] in "abcd", bool(told["fit_text"])) == ("global", True, True)
    level = {"level", "origin", "tile_size", "grid_shape", "n_rows", "n_rows_feature", "P", "bytes", "densest_tile"}
    assert all(level <= set(one) for one in told["levels"])


def test_info_counts_what_is_there(stores: dict[str, Path]) -> None:
    element = stores["all"] / "points" / "transcripts"
    told = info(element)["levels"][0]
    table = molecules()
    grid = Grid(axes=("x", "y"), origin=told["origin"], tile_size=told["tile_size"], shape=told["grid_shape"])
    counts = np.bincount(grid.tile_ids(np.stack([table["x"].to_numpy(), table["y"].to_numpy()], axis=1)))
    assert told["densest_tile"] == counts.max()
    assert told["bytes"] == sum(path.stat().st_size for path in (element / "points.parquet").iterdir())


@pytest.mark.parametrize("mode", ["all", "shared", "none"])
def test_cost_of_the_written_mode_is_counted(stores: dict[str, Path], mode: str) -> None:
    element = stores[mode] / "points" / "transcripts"
    files = (element / "feature").rglob("*.parquet")
    rows = sum(pq.read_metadata(path).num_rows for path in files if path.is_file())
    assert info(element)["feature_level_costs"][mode] == rows


@pytest.mark.parametrize("written", ["all", "shared", "none"])
def test_cost_of_the_other_modes_is_expected_well(stores: dict[str, Path], written: str) -> None:
    told = info(stores[written] / "points" / "transcripts")["feature_level_costs"]
    true = {mode: info(store / "points" / "transcripts")["feature_level_costs"][mode] for mode, store in stores.items()}
    assert told == pytest.approx(true, rel=0.1)


def test_info_of_an_element_without_an_index_says_how_to_make_one(store: Path) -> None:
    told = info(add_plain_element(store))
    assert (told["indexed"], told["n_rows"], told["columns"]) == (False, N_ROWS + 10, ["x", "y", "gene"])
    assert "puncta index" in told["remedy"]


def test_info_of_a_store_lists_its_elements(store: Path) -> None:
    add_plain_element(store)
    listed = [(one["path"], one["kind"], one["indexed"]) for one in info(store)["elements"]]
    assert listed == [("points/plain", "points", False), ("points/transcripts", "points", True)]


def test_info_of_damaged_metadata_is_an_error(store: Path) -> None:
    path = store / "points" / "transcripts" / "zarr.json"
    document = json.loads(path.read_text())
    document["attributes"]["spatial_index"].pop("axes")
    path.write_text(json.dumps(document))
    with pytest.raises(MetadataError, match="axes"):
        info(path.parent)
    path.write_text("{")
    with pytest.raises(StoreError, match="JSON"):
        info(path.parent)


def test_reading_the_door_and_validating_loads_nothing_heavy(store: Path) -> None:
    code = "import sys, puncta.kinds as k; k.info(sys.argv[1]); k.validate(sys.argv[1]); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, store], capture_output=True, text=True, check=True)
    assert not {"spatialdata", "anndata", "dask", "matplotlib", "pandas"} & set(done.stdout.split())


def test_sound_store_is_valid(store: Path) -> None:
    assert validate(store) == validate(store / "points" / "transcripts") == []
    report = {"path": str(store), "kind": "store", "valid": True, "hash": None, "problems": []}
    assert validate_report(store) == report


def test_stale_consolidated_metadata_is_found(store: Path) -> None:
    path = store / "points" / "transcripts" / "zarr.json"
    document = json.loads(path.read_text())
    document["attributes"]["note"] = "by hand"
    path.write_text(json.dumps(document))
    assert [(one.loc, one.kind) for one in validate(store)] == [("zarr.json", "stale")]
    assert [(one.loc, one.kind) for one in validate(path.parent)] == [("../../zarr.json", "stale")]


def test_element_that_consolidated_metadata_does_not_know_makes_it_stale(store: Path) -> None:
    add_plain_element(store)
    assert [(one.loc, one.kind) for one in validate(store)] == [("zarr.json", "stale")]
    # it repeats all that it should of the other element
    assert validate(store / "points" / "transcripts") == []


# zarr warns about the folder of Parquet files in every points element, and that the format has no such metadata yet
@pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning")
def test_consolidated_metadata_that_zarr_wrote_is_not_stale(store: Path) -> None:
    add_plain_element(store)
    zarr.consolidate_metadata(store, zarr_format=3)
    assert validate(store) == []


def test_store_without_consolidated_metadata_is_valid(store: Path) -> None:
    document = json.loads((store / "zarr.json").read_text())
    document.pop("consolidated_metadata")
    (store / "zarr.json").write_text(json.dumps(document))
    assert validate(store) == []


def test_problems_of_a_store_name_their_element(store: Path) -> None:
    element = store / "points" / "transcripts"
    (element / "points.parquet" / "part.0.parquet").unlink()
    document = json.loads((element / "zarr.json").read_text())
    document["attributes"]["coordinateTransformations"][0] |= {"type": "scale", "scale": [3.0, 3.0]}
    (element / "zarr.json").write_text(json.dumps(document))
    found = {(one["loc"], one["kind"]) for one in validate_report(store)["problems"]}
    assert ("points/transcripts/points.parquet/part.0.parquet", "missing") in found
    assert ("points/transcripts#/coordinateTransformations", "stale") in found


def test_damaged_documents_of_a_store_are_all_reported(store: Path) -> None:
    (store / "zarr.json").write_text("{")
    (store / "points" / "transcripts" / "zarr.json").write_text("{")
    found = {(one.loc, one.kind) for one in validate(store)}
    assert found == {("zarr.json", "json"), ("points/transcripts/zarr.json", "json")}


def test_store_without_points_is_valid(tmp_path: Path) -> None:
    (tmp_path / "empty.zarr").mkdir()
    document = {"zarr_format": 3, "node_type": "group", "attributes": root_attrs()}
    (tmp_path / "empty.zarr" / "zarr.json").write_text(json.dumps(document))
    assert validate_report(tmp_path / "empty.zarr")["valid"]
    assert info(tmp_path / "empty.zarr")["elements"] == []
