"""An index from one layout into the other: what comes out is what indexing in that layout would have written."""

import json
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from tests.servers import BucketServer, FileServer

from puncta.errors import (
    ColumnError,
    GridError,
    NotIndexedError,
    OverwriteError,
    QueryError,
    SourceError,
    StoreError,
    UnsupportedError,
)
from puncta.indexing import convert_points, index_points
from puncta.points import Points, open_points

pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword in DataFrame:DeprecationWarning")

N_POINTS = 20_000
CASES: dict[str, dict[str, Any]] = {
    "all": {"feature_key": ["gene", "kind"], "tile_size": 6, "max_levels": 3},
    "shared": {"feature_key": "gene", "feature_levels": "shared", "codes_column": True, "tile_size": 20},
    "none": {"feature_key": "gene", "feature_levels": "none", "axes": ("y", "x"), "tile_size": 20},
    "no features": {"feature_order": False, "tile_size": 40},
    "many features": {"feature_key": ["many"], "tile_size": 20, "max_levels": 2},
}


def molecules(seed: int = 0) -> pa.Table:
    """Return points with a hotspot and columns of every kind, features and others partly null."""
    rng = np.random.default_rng(seed)
    hot = rng.random((N_POINTS, 1)) < 0.3
    places = np.where(hot, rng.normal(60, 6, (N_POINTS, 2)), rng.random((N_POINTS, 2)) * 100).astype(np.float32)
    names = np.asarray([f"g{number}" for number in range(9)])
    ids = rng.permutation(N_POINTS)
    whole = np.arange(1_500).astype(np.int32)
    return pa.table(
        {
            "x": places[:, 0],
            "y": places[:, 1],
            "gene": pa.array(names[np.minimum(rng.geometric(0.4, N_POINTS) - 1, 8)], mask=rng.random(N_POINTS) < 0.02),
            "kind": pa.DictionaryArray.from_arrays(rng.integers(0, 2, N_POINTS).astype(np.int8), ["b", "a", "unused"]),
            "many": pa.array([f"m{number % 300}" for number in ids]),
            "cell": pa.array([f"cell-{number}" for number in rng.integers(0, 700, N_POINTS)]),
            "text": pa.array([f"{number % 5}" for number in ids], mask=rng.random(N_POINTS) < 0.1).cast(
                pa.large_string()
            ),
            "whole": pa.DictionaryArray.from_arrays(rng.integers(0, 1_500, N_POINTS).astype(np.int32), whole),
            "gene_codes2": pa.array(ids, pa.int32()),
            "row": np.arange(N_POINTS),
            "sure": pa.array(rng.random(N_POINTS) < 0.5, mask=rng.random(N_POINTS) < 0.1),
            "count": pa.array(rng.integers(0, 9, N_POINTS), mask=rng.random(N_POINTS) < 0.1),
            "level": pa.array(rng.random(N_POINTS), mask=rng.random(N_POINTS) < 0.1),
            "when": pa.array(rng.integers(0, 10**6, N_POINTS), pa.timestamp("ms")),
            "__odd": np.arange(N_POINTS).astype(np.uint16),
            "tile_offsets": np.ones(N_POINTS),
        }
    )


@pytest.fixture(scope="module", params=CASES)
def elements(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return one tissue indexed in either layout, each converted into the other, and one there and back."""
    folder = tmp_path_factory.mktemp("convert")
    options = {"limit": 80, "where": "level < 0.99 or level is null", **CASES[request.param]}
    parquet = Path(index_points(molecules(), folder / "p.zarr", layout="parquet", **options).path)
    # an element alone, whatever is around it
    both = Path(index_points(molecules(), folder / "b.zarr", layout="both", **options).path)
    return {
        "parquet": parquet,
        "both": both,
        "zarr": _converted(parquet, folder / "to.zarr", "zarr"),
        "zarr of both": _converted(both, folder / "of both.zarr", "zarr"),
        "parquet of both": _converted(both, folder / "parquet of both.zarr", "parquet"),
        "back": _converted(folder / "to.zarr", folder / "back.zarr", "parquet"),
    }


def _converted(source: Path, store: Path, layout: Any) -> Path:  # noqa: ANN401 (a literal)
    return Path(convert_points(source, store, layout=layout).path)


def group_of(folder: Path) -> Any:  # noqa: ANN401 (zarr gives a union of a group and an array for each member)
    return zarr.open_group(folder, mode="r")


def documents_of(element: Path) -> dict[str, Any]:
    """Return the metadata of all nodes below an element by their path, values of texts left out."""
    paths = {path.parent.relative_to(element).as_posix(): path for path in element.rglob("zarr.json")}
    return {name: json.loads(path.read_text()) for name, path in paths.items()}


def arrays_of(element: Path) -> Iterator[tuple[str, Any]]:
    """Yield path and values of every array, as zarr-python reads them; codes of texts as these texts."""
    root = group_of(element)
    for name, document in sorted(documents_of(element).items()):
        if document["node_type"] != "array" or name.startswith("index/values/"):
            continue
        values, place = root[name][:], document["attributes"].get("categories", "")
        if place.startswith("index/values/"):
            yield name, np.asarray([*root[place][:].tolist(), None], dtype=object)[values]
        else:
            yield name, values


def parts_of(element: Path) -> dict[str, list[pa.Table]]:
    """Return the row groups of every part file by its path, as pyarrow reads them."""
    files = {
        path.relative_to(element).as_posix(): pq.ParquetFile(path)
        for path in element.rglob("*.parquet")
        if path.is_file()
    }
    return {
        name: [file.read_row_group(number) for number in range(file.num_row_groups)] for name, file in files.items()
    }


def arrays_only(documents: dict[str, Any], layout: str) -> dict[str, Any]:
    """Return the documents of an element in both layouts that one in a single layout has, too."""
    own = ("points.parquet", "levels", "feature")
    kept = {}
    for name, document in documents.items():
        is_parquet = name.startswith(own) or (name.startswith("index/") and name.split("/")[1].isdigit())
        is_zarr = name.split("/")[0].isdigit()
        if name != "." and not (is_parquet if layout == "zarr" else is_zarr):
            kept[name] = document
    return kept


# --- what is written


def test_zarr_is_what_indexing_in_zarr_writes(elements: dict[str, Path]) -> None:
    expected = dict(arrays_of(elements["both"]))
    expected = {
        name: values for name, values in expected.items() if name in arrays_only(documents_of(elements["both"]), "zarr")
    }
    found = dict(arrays_of(elements["zarr"]))
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


def test_the_metadata_of_every_node_is_that_of_indexing(elements: dict[str, Path]) -> None:
    for layout, name in (("zarr", "zarr"), ("parquet", "back"), ("parquet", "parquet of both")):
        expected = arrays_only(documents_of(elements["both"]), layout)
        if layout == "parquet":
            expected = {path: document for path, document in expected.items() if (elements["parquet"] / path).exists()}
        found = documents_of(elements[name])
        del found["."]
        assert found == expected


def test_back_again_every_row_group_is_what_it_was(elements: dict[str, Path]) -> None:
    expected = parts_of(elements["parquet"])
    for name in ("back", "parquet of both"):
        found = parts_of(elements[name])
        assert found.keys() == expected.keys()
        for path, groups in expected.items():
            assert [group.schema.metadata for group in found[path]] == [group.schema.metadata for group in groups]
            assert all(one.equals(other) for one, other in zip(found[path], groups, strict=True)), path


def test_back_again_the_index_is_what_it_was(elements: dict[str, Path]) -> None:
    expected, found = dict(arrays_of(elements["parquet"])), dict(arrays_of(elements["back"]))
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


def test_back_again_the_element_says_what_it_said(elements: dict[str, Path]) -> None:
    assert documents_of(elements["back"])["."] == documents_of(elements["parquet"])["."]


def test_from_both_layouts_the_result_is_the_same(elements: dict[str, Path]) -> None:
    assert files_of(elements["zarr of both"]) == files_of(elements["zarr"])


def files_of(folder: Path) -> dict[str, bytes]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


QUESTIONS: dict[str, dict[str, Any]] = {
    "all": {},
    "box": {"box": {"x": (20, 61), "y": (33, 70.5)}},
    "coarse": {"level": 1},
    "budget": {"budget": 700},
    "columns": {"columns": ["text", "whole", "x"], "box": {"x": (0, 30)}},
    "where": {"where": "count > 3 and text = '2'"},
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_question_has_the_same_answer(elements: dict[str, Path], question: str) -> None:
    points = {name: open_points(path) for name, path in elements.items()}
    expected = points["parquet"].query(**QUESTIONS[question])
    for name, one in points.items():
        found = one.query(**QUESTIONS[question])
        assert found.schema.metadata == expected.schema.metadata, name
        assert found.equals(expected), name


def test_every_feature_has_the_same_rows(elements: dict[str, Path]) -> None:
    points: dict[str, Points] = {name: open_points(elements[name]) for name in ("parquet", "zarr", "back")}
    names = points["parquet"].features[:3]
    for level in range(len(points["parquet"].levels)) if names else ():
        expected = points["parquet"].query(features=names, level=level, thinning="own")
        assert all(one.query(features=names, level=level, thinning="own").equals(expected) for one in points.values())


# --- the ways of the work


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a small index in either layout, which no test changes."""
    folder = tmp_path_factory.mktemp("small")
    parquet = Path(index_points(molecules().slice(0, 2_000), folder / "p.zarr", limit=100, feature_key="gene").path)
    return {"parquet": parquet, "zarr": _converted(parquet, folder / "z.zarr", "zarr")}


@pytest.mark.parametrize("layout", ["parquet", "zarr"])
def test_neither_workers_nor_memory_change_a_byte(elements: dict[str, Path], tmp_path: Path, layout: Any) -> None:  # noqa: ANN401 (a literal)
    one = convert_points(elements["both"], tmp_path / "1.zarr", layout=layout, workers=1)
    other = convert_points(elements["both"], tmp_path / "2.zarr", layout=layout, workers=5, memory="400MB")
    assert files_of(Path(one.path)) == files_of(Path(other.path))


def test_the_source_stays_as_it_is(small: dict[str, Path], tmp_path: Path) -> None:
    before = files_of(small["parquet"].parents[1])
    convert_points(small["parquet"], tmp_path / "z.zarr", layout="zarr")
    assert files_of(small["parquet"].parents[1]) == before


def test_spatialdata_reads_what_comes_back(small: dict[str, Path], tmp_path: Path) -> None:
    spatialdata = pytest.importorskip("spatialdata")
    convert_points(small["zarr"], tmp_path / "s.zarr", layout="parquet", name="spots")
    frame = spatialdata.read_zarr(tmp_path / "s.zarr").points["spots"].compute()
    assert sorted(frame["row"]) == sorted(open_points(small["parquet"]).query()["row"].to_pylist())


def test_an_element_is_added_to_a_store(small: dict[str, Path], tmp_path: Path) -> None:
    store = tmp_path / "s.zarr"
    shutil.copytree(small["parquet"].parents[1], store)
    report = convert_points(small["zarr"], store, layout="parquet", name="more")
    assert report.path == store / "points" / "more"
    assert open_points(report.path).query().equals(open_points(store / "points" / "transcripts").query())


def test_an_element_is_converted_from_a_web_server(
    small: dict[str, Path], tmp_path: Path, http_server: FileServer
) -> None:
    url = f"{http_server.serve(small['parquet'].parents[1])}/points/transcripts"
    report = convert_points(url, tmp_path / "z.zarr", layout="zarr")
    assert (report.source, report.source_bytes) == (url, None)
    assert files_of(tmp_path / "z.zarr") == files_of(small["zarr"])


def test_an_element_in_a_zip_archive_is_converted(small: dict[str, Path], tmp_path: Path) -> None:
    archive = tmp_path / "study.zarr.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for name, content in files_of(small["parquet"].parents[1]).items():
            file.writestr(name, content)
    convert_points(f"{archive}/points/transcripts", tmp_path / "z.zarr", layout="zarr")
    assert files_of(tmp_path / "z.zarr") == files_of(small["zarr"])


@pytest.mark.parametrize(("source", "layout"), [("parquet", "zarr"), ("zarr", "parquet")])
def test_an_element_goes_to_an_object_store(
    small: dict[str, Path],
    tmp_path: Path,
    s3_server: BucketServer,
    source: str,
    layout: Any,  # noqa: ANN401 (a literal)
) -> None:
    (tmp_path / "scratch").mkdir()
    url = f"{s3_server.serve({'other': b''})}/new.zarr"
    report = convert_points(
        small[source], url, layout=layout, storage_options=s3_server.options, tmp=tmp_path / "scratch"
    )
    assert report.path == (url if layout == "zarr" else f"{url}/points/transcripts")
    found = open_points(report.path, storage_options=s3_server.options).query()
    assert found.equals(open_points(small[source]).query())


def test_tiles_of_nulls_are_found_in_the_system_of_the_grid(tmp_path: Path) -> None:
    parquet = Path(
        index_points(_scaled(tmp_path / "s.zarr"), in_place=True, coordinate_system="pixels", limit=500).path
    )
    convert_points(parquet, tmp_path / "z.zarr", layout="zarr")
    back = convert_points(tmp_path / "z.zarr", tmp_path / "back.zarr", layout="parquet")
    for name, values in arrays_of(parquet):
        np.testing.assert_array_equal(group_of(Path(back.path))[name][:], values, err_msg=name)


def _scaled(store: Path) -> Path:
    """Write an element whose points lie elsewhere in a second system, most of them without a feature."""
    axes = [{"name": axis, "type": "space", "unit": "unit"} for axis in ("x", "y")]
    to = {"input": {"name": "xy", "axes": axes}, "output": {"name": "pixels", "axes": axes}}
    attributes = {
        "encoding-type": "ngff:points",
        "axes": ["x", "y"],
        "coordinateTransformations": [{**to, "type": "scale", "scale": [2.0, 4.0]}],
        "spatialdata_attrs": {"feature_key": "gene", "version": "0.2"},
    }
    table = molecules().select(["x", "y", "gene", "row"])
    genes = pa.array([None if row % 10 else "g" for row in range(N_POINTS)])
    for folder, attrs in (("", {}), ("points", {}), ("points/spots", attributes)):
        (store / folder).mkdir(parents=True, exist_ok=True)
        document = {"zarr_format": 3, "node_type": "group", "attributes": attrs}
        (store / folder / "zarr.json").write_text(json.dumps(document))
    pq.write_table(table.set_column(2, "gene", genes), store / "points/spots/points.parquet")
    return store / "points/spots"


def test_a_column_that_is_only_called_like_codes_stays_what_it_is(tmp_path: Path) -> None:
    table = molecules().slice(0, 3_000).append_column("gene_codes", pa.array(range(3_000), pa.int32()))
    parquet = index_points(table, tmp_path / "p.zarr", feature_key="gene").path
    convert_points(parquet, tmp_path / "z.zarr", layout="zarr")
    assert open_points(tmp_path / "z.zarr").query().equals(open_points(parquet).query())


# --- what is refused


def test_the_layout_that_is_there_is_no_conversion(small: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="in the parquet layout already"):
        convert_points(small["parquet"], tmp_path / "s.zarr", layout="parquet")


def test_nothing_is_overwritten_unasked(small: dict[str, Path], tmp_path: Path) -> None:
    convert_points(small["parquet"], tmp_path / "z.zarr", layout="zarr")
    with pytest.raises(OverwriteError, match="--overwrite"):
        convert_points(small["parquet"], tmp_path / "z.zarr", layout="zarr")
    convert_points(small["parquet"], tmp_path / "z.zarr", layout="zarr", overwrite=True)
    assert files_of(tmp_path / "z.zarr") == files_of(small["zarr"])


def test_an_element_is_not_replaced_by_itself(elements: dict[str, Path]) -> None:
    before = files_of(elements["both"])
    with pytest.raises(OverwriteError, match="is what is converted"):
        convert_points(elements["both"], elements["both"].parents[1], layout="parquet", overwrite=True)
    assert files_of(elements["both"]) == before


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"layout": "both"}, QueryError, "parquet or zarr"),
        ({"layout": "zarr", "workers": 0}, QueryError, "at least 1"),
        ({"layout": "zarr", "memory": "much"}, QueryError, "no number of bytes"),
        ({"layout": "zarr", "name": "spots"}, SourceError, "leave out --name"),
        ({"layout": "zarr", "storage_options": {"region": "x"}}, QueryError, "nothing is at a URL"),
    ],
)
def test_wrong_options_are_refused(
    small: dict[str, Path], tmp_path: Path, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        convert_points(small["parquet"], tmp_path / "new.zarr", **options)
    assert list(tmp_path.iterdir()) == []


def test_an_element_without_an_index_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotIndexedError, match="puncta index"):
        convert_points(_scaled(tmp_path / "s.zarr"), tmp_path / "z.zarr", layout="zarr")


def test_a_column_without_a_form_as_an_array_is_refused(tmp_path: Path) -> None:
    table = molecules().slice(0, 500).append_column("tags", pa.array([[1]] * 500))
    parquet = index_points(table, tmp_path / "p.zarr", feature_key="gene").path
    with pytest.raises(ColumnError, match="'tags' holds list"):
        convert_points(parquet, tmp_path / "z.zarr", layout="zarr")
    assert [path.name for path in tmp_path.iterdir()] == ["p.zarr"]


def test_tiles_too_unequal_for_padding_are_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.random(1_000), rng.random(100) * 500]).astype(np.float32)
    parquet = index_points(pa.table({"x": x, "y": x, "gene": ["a"] * len(x)}), tmp_path / "p.zarr", tile_size=5).path
    with pytest.raises(GridError, match="level 0"):
        convert_points(parquet, tmp_path / "z.zarr", layout="zarr")


def test_a_damaged_part_leaves_nothing_behind(small: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(small["parquet"].parents[1], tmp_path / "p.zarr")
    part = next((tmp_path / "p.zarr/points/transcripts/feature/0").rglob("part.0.parquet"))
    part.write_bytes(part.read_bytes()[:-100])
    with pytest.raises(StoreError, match=r"part\.0\.parquet"):
        convert_points(tmp_path / "p.zarr", tmp_path / "z.zarr", layout="zarr")
    assert [path.name for path in tmp_path.iterdir()] == ["p.zarr"]


def test_a_value_that_is_no_category_is_an_error(small: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(small["parquet"].parents[1], tmp_path / "p.zarr")
    path = tmp_path / "p.zarr/points/transcripts/index/features/gene"
    zarr.open_array(path, mode="r+")[0] = "another"
    with pytest.raises(StoreError, match=r"'gene' are not among the 9"):
        convert_points(tmp_path / "p.zarr", tmp_path / "z.zarr", layout="zarr")


def test_progress_is_told_to_the_end(small: dict[str, Path], tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    report: Callable[[str, int, int], None] = lambda *news: told.append(news)  # noqa: E731 (a list's append takes one)
    convert_points(small["parquet"], tmp_path / "z.zarr", layout="zarr", progress=report)
    assert {stage: done == total for stage, done, total in told} == dict.fromkeys([stage for stage, *_ in told], True)


def test_more_texts_than_are_counted_otherwise_are_the_same_texts(tmp_path: Path) -> None:
    table = molecules().append_column("id", pa.array([f"id-{number}" for number in range(N_POINTS)]))
    parquet = index_points(table, tmp_path / "p.zarr", feature_order=False).path
    convert_points(parquet, tmp_path / "z.zarr", layout="zarr")
    assert open_points(tmp_path / "z.zarr").query(columns=["id"]).equals(open_points(parquet).query(columns=["id"]))


def test_texts_that_memory_has_no_room_for_are_refused(tmp_path: Path) -> None:
    long = molecules().append_column("long", pa.array([f"{number:01000}" for number in range(N_POINTS)]))
    parquet = index_points(long, tmp_path / "p.zarr", feature_order=False).path
    with pytest.raises(ColumnError, match=r"'long' has .* distinct texts or more.*--memory"):
        convert_points(parquet, tmp_path / "z.zarr", layout="zarr", memory="400MB")
