"""One element in every place and in both layouts: any question has the same answer, and the same schema."""

import pickle
import shutil
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.points.conftest import LIMIT, tissue
from tests.points.zarr_layout import consolidate, unconsolidate, with_zarr_layout
from tests.servers import BucketServer, FileServer

import puncta
from puncta.errors import QueryError, UnsupportedError
from puncta.points import Points

type Question = dict[str, Any]

SOME_BOX = {"x": (-20.5, 45.25), "y": (60.0, 150.0)}
ALL_INSIDE = {"x": (-1e6, 1e6), "y": (-1e6, 1e6)}
TRIANGLE = "POLYGON ((-60 0, 90 20, 140 180, -60 0))"

QUESTIONS: list[Question] = [
    {},
    {"box": SOME_BOX},
    {"box": SOME_BOX, "columns": ["row", "y", "gene"]},
    {"box": {"x": (1e6, 2e6)}},
    {"box": ALL_INSIDE, "features": ["Gene3", "Gene11"]},
    {"features": ["Gene3", "Gene7"]},
    {"features": ["Gene0", "Unused"], "box": SOME_BOX},
    {"features": []},
    {"features": ["b", "d"], "feature_key": "kind", "box": SOME_BOX},
    {"features": ["Gene0", "Gene7"], "level": 2},
    {"features": ["Gene0", "Gene7"], "level": 2, "thinning": "own", "box": SOME_BOX},
    {"level": 3},
    {"budget": 500},
    {"budget": 700, "features": ["Gene0", "Gene1"], "columns": ["x", "y"]},
    {"polygon": TRIANGLE, "box": SOME_BOX},
    {"where": ["qv >= 20", "note = 'aa' OR note IS NULL"]},
    {"where": "cell_id != -1 AND flag", "features": ["Gene1"], "box": SOME_BOX},
]


def odd_tissue() -> pa.Table:
    """Return a tissue with a column of every kind that both layouts hold, nulls in most."""
    table = pa.Table.from_pandas(tissue().drop(columns="z"), preserve_index=False)
    n = table.num_rows // 5
    days = (np.datetime64("2020-01-01", "us") + np.arange(5 * n) * np.timedelta64(1, "h")).astype("datetime64[us]")
    stain = pd.Categorical.from_codes([0, 1, -1, 1, 2] * n, ["none", "faint", "deep"], ordered=True)
    more = {
        "note": pa.array(["aa", None, "", "dd", "éé"] * n),
        "long": pa.array(["one", "two", None, "one", "two"] * n, pa.large_string()),
        "flag": pa.array([True, None, False, True, True] * n),
        "sure": pa.array([True, False, False, True, True] * n),
        "small": pa.array([None, 1, -2, 3, 4] * n, pa.int16()),
        "wide": pa.array(range(5 * n), pa.uint64()),
        "score": pa.array([0.5, float("nan"), None, 1.5, 2.5] * n, pa.float64()),
        "day": pa.array([1, None, 3, 4, 5] * n, pa.date32()),
        "when": pa.array(days),
        "took": pa.array([1, 2, None, 4, 5] * n, pa.duration("ms")),
        "stain": pa.array(stain),
        "__odd": pa.array(range(5 * n), pa.int32()),
    }
    for name, column in more.items():
        table = table.append_column(name, column)
    return table


@dataclass(frozen=True, kw_only=True)
class Where:
    """Where an element is, and what is needed to open it."""

    url: str
    options: dict[str, Any] = field(default_factory=dict)

    def open(self, layout: Any = None) -> Points:  # noqa: ANN401 (a literal of the door)
        return puncta.open_points(self.url, layout=layout, storage_options=self.options or None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store with one element, in both layouts, whose metadata is consolidated."""
    top = tmp_path_factory.mktemp("places")
    options: dict[str, Any] = {"feature_key": ["gene", "kind"], "feature_levels": "shared", "tile_size": 15}
    path = puncta.index_points(odd_tissue(), top / "plain.zarr", limit=LIMIT, **options).path
    (top / "study.zarr" / "points").mkdir(parents=True)
    for inner in ("", "points"):
        (top / "study.zarr" / inner / "zarr.json").write_bytes((top / "plain.zarr" / inner / "zarr.json").read_bytes())
    with_zarr_layout(Path(path), top / "study.zarr" / "points" / "transcripts")
    return top / "study.zarr"


@pytest.fixture(scope="module")
def archive(folder: Path) -> Path:
    path = folder.with_name("study.zarr.zip")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as target:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                target.write(file, file.relative_to(folder).as_posix())
    return path


@pytest.fixture(scope="module")
def bare(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the element in the Zarr layout alone, outside of any store, its metadata not consolidated."""
    path = tmp_path_factory.mktemp("bare") / "transcripts.zarr"
    with_zarr_layout(folder.with_name("plain.zarr") / "points" / "transcripts", path, only=True)
    unconsolidate(path)
    return path


@pytest.fixture(params=["folder", "zip", "http", "zip on http"])
def place(request: pytest.FixtureRequest, folder: Path, archive: Path, http_server: FileServer) -> Where:
    inner = "points/transcripts"
    match request.param:
        case "folder":
            return Where(url=f"{folder}/{inner}")
        case "zip":
            return Where(url=f"{archive}/{inner}")
        case "http":
            return Where(url=f"{http_server.serve(folder.parent)}/study.zarr/{inner}")
        case _:
            return Where(url=f"{http_server.serve(folder.parent)}/study.zarr.zip/{inner}")


@pytest.fixture(scope="module")
def answers(folder: Path) -> list[pa.Table]:
    """Return what is answered from the folder and its Parquet files, which other tests hold against pandas."""
    points = puncta.open_points(folder.with_name("plain.zarr"))
    return [points.query(**question) for question in QUESTIONS]


def check_answers(points: Points, answers: list[pa.Table]) -> None:
    for question, expected in zip(QUESTIONS, answers, strict=True):
        answer = points.query(**question)
        assert answer.schema.equals(expected.schema, check_metadata=True), question
        # pandas tells NaN from null and takes both as equal to themselves, which Arrow's `equals` does not
        pd.testing.assert_frame_equal(frame_of(answer), frame_of(expected))


def frame_of(table: pa.Table) -> pd.DataFrame:
    return table.to_pandas(types_mapper=pd.ArrowDtype)


@pytest.mark.parametrize("layout", ["parquet", "zarr"])
def test_every_question_has_the_same_answer_in_every_place_and_layout(
    place: Where, layout: str, answers: list[pa.Table]
) -> None:
    check_answers(place.open(layout), answers)


def test_a_bucket_answers_alike_and_tells_sizes(folder: Path, s3_server: BucketServer, answers: list[pa.Table]) -> None:
    whole = Where(url=s3_server.serve(folder), options=s3_server.options)
    for layout in ("parquet", "zarr"):
        check_answers(whole.open(layout), answers)
    points = whole.open("zarr")
    assert points.location == f"{whole.url}/points/transcripts"
    assert points.levels[0].bytes == n_bytes(folder / "points/transcripts/0/spatial")


def n_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def test_an_element_on_its_own_without_consolidated_metadata_answers_alike(
    bare: Path, http_server: FileServer, answers: list[pa.Table]
) -> None:
    for url in (str(bare), http_server.serve(bare.parent) + "/transcripts.zarr"):
        check_answers(puncta.open_points(url), answers)


def test_parquet_is_read_where_an_element_has_both(place: Where) -> None:
    assert place.open().explain(box=SOME_BOX) == place.open("parquet").explain(box=SOME_BOX)
    assert place.open().layout == ["parquet", "zarr"]


@pytest.mark.parametrize("layout", ["parquet", "zarr"])
def test_counts_and_explanations_are_the_same(place: Where, layout: str, folder: Path) -> None:
    points, plain = place.open(layout), puncta.open_points(folder.with_name("plain.zarr"))
    for question in QUESTIONS:
        told, expected = points.explain(**question), plain.explain(**question)
        same = ("level", "tiles", "rows", "fraction", "complete", "order")
        assert [getattr(told, name) for name in same] == [getattr(expected, name) for name in same]
        if "budget" not in question:
            assert points.count(**question) == plain.count(**question)


@pytest.mark.parametrize("layout", ["parquet", "zarr"])
def test_tiles_features_and_pictures_are_the_same(place: Where, layout: str, folder: Path) -> None:
    points, plain = place.open(layout), puncta.open_points(folder.with_name("plain.zarr"))
    tile = int(np.argmax(plain.levels[1].tile_counts))
    pd.testing.assert_frame_equal(frame_of(points.read_tile(1, tile)), frame_of(plain.read_tile(1, tile)))
    pd.testing.assert_frame_equal(frame_of(points.read_feature(1, "Gene3")), frame_of(plain.read_feature(1, "Gene3")))
    np.testing.assert_array_equal(points.render(width=64), plain.render(width=64))
    assert points.schema.equals(plain.schema, check_metadata=True)
    assert (points.features, points.columns) == (plain.features, plain.columns)


@pytest.mark.parametrize("layout", ["parquet", "zarr"])
def test_points_may_be_pickled_and_asked_from_many_threads(place: Where, layout: str) -> None:
    points = place.open(layout)
    again = pickle.loads(pickle.dumps(points))  # noqa: S301 (our own)
    ask = partial(again.query, box=SOME_BOX, columns=["row"])
    expected = points.query(box=SOME_BOX, columns=["row"])
    with ThreadPoolExecutor(4) as threads:
        assert all(answer.equals(expected) for answer in threads.map(lambda _: ask(), range(8)))


def test_a_store_with_one_element_is_opened_by_its_own_path(folder: Path, archive: Path) -> None:
    for path in (folder, archive):
        points = puncta.open_points(path)
        assert points.location.endswith("points/transcripts")
        assert points.n_rows == 5_000


def test_a_store_on_a_web_server_is_opened_where_its_metadata_says_what_is_in_it(
    folder: Path, http_server: FileServer, tmp_path: Path
) -> None:
    for file in folder.rglob("zarr.json"):
        (tmp_path / file.relative_to(folder)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, tmp_path / file.relative_to(folder))
    consolidate(tmp_path)
    points = puncta.open_points(http_server.serve(tmp_path))
    assert (points.n_rows, points.location) == (5_000, f"{http_server.url}/points/transcripts")
    unconsolidate(tmp_path)
    with pytest.raises(UnsupportedError, match=r"name the element: .*/points/NAME"):
        puncta.open_points(http_server.url)


def test_a_layout_that_is_not_there_is_refused(folder: Path, bare: Path) -> None:
    with pytest.raises(QueryError, match="has the layout parquet, not 'zarr'"):
        puncta.open_points(folder.with_name("plain.zarr"), layout="zarr")
    with pytest.raises(QueryError, match="has the layout zarr, not 'parquet'"):
        puncta.open_points(bare, layout="parquet")


def test_what_is_no_folder_has_a_location_and_no_path(archive: Path, folder: Path) -> None:
    points = puncta.open_points(archive / "points" / "transcripts")
    assert points.location == f"{archive}/points/transcripts"
    with pytest.raises(UnsupportedError, match="no folder of this machine"):
        _ = points.path
    assert puncta.open_points(folder).path == folder / "points" / "transcripts"


def test_sizes_are_those_of_the_files(place: Where, folder: Path) -> None:
    points = place.open("zarr")
    expected = n_bytes(folder / "points/transcripts/0/spatial")
    if place.url.startswith("http") and ".zip" not in place.url:
        with pytest.raises(UnsupportedError, match="cannot list"):
            _ = points.levels[0].bytes
    else:
        assert points.levels[0].bytes == expected
