"""What reading from a server costs, and what becomes of its faults: a clear error, or the right answer."""

import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.points.zarr_layout import consolidate, unconsolidate, with_zarr_layout
from tests.servers import BucketServer, FileServer

import puncta
from puncta.errors import MissingError, PunctaError, StoreError
from puncta.points import Points
from puncta.points._find import Form

ELEMENT = "points/transcripts"
N_POINTS = 300_000
TILE = 25.0

# Without retries, so that what fails for good fails at once.
AT_ONCE: dict[str, Any] = {"retry_config": {"max_retries": 0}}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store with as many columns as vendors have, in both layouts: tiles of some hundred points."""
    rng = np.random.default_rng(3)
    columns = {
        **{axis: rng.uniform(0, 500, N_POINTS).astype(np.float32) for axis in ("x", "y")},
        "z": rng.normal(20, 5, N_POINTS).astype(np.float32),
        "gene": pa.array([f"Gene{number}" for number in rng.integers(0, 300, N_POINTS)]).dictionary_encode(),
        "transcript_id": np.cumsum(rng.integers(1, 4, N_POINTS)),
        "cell_id": rng.integers(0, 3_000, N_POINTS),
        "qv": rng.normal(32, 5, N_POINTS).round(1).astype(np.float32),
    }
    top = tmp_path_factory.mktemp("remote")
    options: dict[str, Any] = {"axes": ("x", "y", "z"), "tile_size": (TILE, TILE, 999.0), "origin": (0, 0, -500)}
    path = puncta.index_points(pa.table(columns), top / "plain.zarr", feature_key="gene", limit=1_000, **options).path
    (top / "study.zarr" / "points").mkdir(parents=True)
    shutil.copy(top / "plain.zarr" / "zarr.json", top / "study.zarr" / "zarr.json")
    with_zarr_layout(Path(path), top / "study.zarr" / ELEMENT)
    return top / "study.zarr"


@pytest.fixture
def url(store: Path, http_server: FileServer) -> str:
    return f"{http_server.serve(store)}/{ELEMENT}"


def look_around(points: Points) -> None:
    """Ask what there is, as whoever opens points does first."""
    assert points.n_rows == N_POINTS
    assert len(points.features) == 300
    assert points.levels[0].grid.shape == (20, 20, 1)


def sixteen_tiles(column: int = 7, row: int = 5) -> dict[str, tuple[float, float]]:
    return {"x": (column * TILE, (column + 4) * TILE), "y": (row * TILE, (row + 4) * TILE)}


@pytest.mark.parametrize("layout", ["parquet", "zarr"])
@pytest.mark.parametrize("is_consolidated", [True, False])
def test_opening_takes_at_most_five_requests(
    store: Path, tmp_path: Path, http_server: FileServer, layout: Form, is_consolidated: bool
) -> None:
    shutil.copytree(store / ELEMENT, tmp_path / "element")
    (consolidate if is_consolidated else unconsolidate)(tmp_path / "element")
    look_around(puncta.open_points(f"{http_server.serve(tmp_path)}/element", layout=layout))
    assert len(http_server.requests) <= (2 if is_consolidated else 3)


def test_opening_in_an_archive_takes_at_most_five_requests(
    store: Path, tmp_path: Path, http_server: FileServer
) -> None:
    with zipfile.ZipFile(tmp_path / "study.zarr.zip", "w") as target:
        for file in sorted(file for file in store.rglob("*") if file.is_file()):
            target.write(file, file.relative_to(store).as_posix())
    look_around(puncta.open_points(f"{http_server.serve(tmp_path)}/study.zarr.zip/{ELEMENT}"))
    assert len(http_server.requests) <= 5


@pytest.mark.parametrize("inner", ["", f"/{ELEMENT}"])
def test_opening_in_a_bucket_takes_at_most_five_requests(store: Path, s3_server: BucketServer, inner: str) -> None:
    names = ["zarr.json", "points/zarr.json", f"{ELEMENT}/zarr.json"]
    names += [file.relative_to(store).as_posix() for file in (store / ELEMENT / "index/features").rglob("*")]
    files = {name: (store / name).read_bytes() for name in names if (store / name).is_file()}
    look_around(puncta.open_points(s3_server.serve(files) + inner, storage_options=s3_server.options))
    assert len(s3_server.requests) <= 5


def test_a_footer_is_read_once_for_each_part_that_is_touched(url: str, http_server: FileServer) -> None:
    points = puncta.open_points(url)
    points.query(box=sixteen_tiles())
    points.query(box=sixteen_tiles(column=8))
    points.explain()
    footers = [request.path for request in http_server.requests if (request.range or "").startswith("bytes=-")]
    assert len(footers) == len(set(footers)) == 2


@pytest.mark.parametrize(("columns", "most"), [(None, (6, 1.3)), (["x", "y", "gene"], (12, 2.0)), (["qv"], (12, 2.0))])
@pytest.mark.parametrize("corner", [(7, 5), (0, 0), (11, 16), (16, 3)])
def test_a_view_of_sixteen_tiles_keeps_to_its_budget(
    store: Path,
    url: str,
    http_server: FileServer,
    columns: list[str] | None,
    most: tuple[int, float],
    corner: tuple[int, int],
) -> None:
    points = puncta.open_points(url)
    points.query(box=sixteen_tiles(*corner))
    http_server.requests.clear()

    answer = points.query(box=sixteen_tiles(*corner), columns=columns)

    read = {"x", "y", *(columns or answer.column_names)}
    needed = 0
    for tile in points.levels[0].grid.tiles_in(sixteen_tiles(*corner)).tolist():
        part = store / ELEMENT / "points.parquet" / f"part.{tile // 256}.parquet"
        group = pq.read_metadata(part).row_group(tile % 256)
        chunks = [group.column(at) for at in range(group.num_columns)]
        needed += sum(chunk.total_compressed_size for chunk in chunks if chunk.path_in_schema in read)
    assert len(http_server.requests) <= most[0]
    assert sum(request.nbytes for request in http_server.requests) <= most[1] * needed
    told = points.explain(box=sixteen_tiles(*corner), columns=columns)
    assert (told.requests, told.bytes) == (len(http_server.requests), needed)


def test_an_explanation_of_arrays_says_the_requests_that_are_made(url: str, http_server: FileServer) -> None:
    points = puncta.open_points(url, layout="zarr")
    told = points.explain(box=sixteen_tiles(), columns=["x", "y", "gene"])
    assert not any(
        "/c/" in request.path and "spatial/x" in request.path and request.nbytes > 20_000
        for request in http_server.requests
    )
    http_server.requests.clear()
    points.query(box=sixteen_tiles(), columns=["x", "y", "gene"])
    assert len(http_server.requests) == told.requests
    assert sum(request.nbytes for request in http_server.requests) >= told.bytes


@pytest.mark.parametrize("layout", ["parquet", "zarr"])
def test_whole_tiles_of_a_feature_are_counted_without_opening_a_file_of_points(
    url: str, http_server: FileServer, layout: Form
) -> None:
    points = puncta.open_points(url, layout=layout)
    box = {"x": (0, 20 * TILE), "y": (0, 5 * TILE)}
    names = points.features[3:5]
    counted = points.count(box=box, features=names).count
    touched = [request.path for request in http_server.requests]
    assert not [path for path in touched if ".parquet" in path or "/0/feature/x/" in path or "/0/spatial/x/" in path]
    assert counted == points.query(box=box, features=names, columns=["x"]).num_rows > 0


def test_a_gene_reads_less_than_its_index(url: str, store: Path, http_server: FileServer) -> None:
    points = puncta.open_points(url)
    assert points.query(features=["Gene7"]).num_rows > 500
    whole = sum(file.stat().st_size for file in (store / ELEMENT / "feature/0").rglob("part.*"))
    parts = [request for request in http_server.requests if "part." in request.path]
    assert sum(request.nbytes for request in parts) < whole / 4


@pytest.mark.parametrize("layout", ["parquet", "zarr"])
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"status": {f"{ELEMENT}/": 401}}, r"the server refuses it .*401"),
        ({"status": {f"{ELEMENT}/": 403}}, r"the server refuses it .*403"),
        ({"status": {f"{ELEMENT}/": 503}}, r"the server answered 503"),
        ({"shorter_by": 5}, r"the server sent bytes"),
        ({"breaks_off": True}, r"could not read"),
        ({"seconds": 0.8}, r"no answer came in time"),
        ({"moved_by": 3}, r"the server sent bytes|whole file|could not read"),
    ],
)
def test_a_fault_of_the_server_while_points_are_read_is_named(
    url: str, http_server: FileServer, layout: Form, fault: dict[str, Any], words: str
) -> None:
    options = {**AT_ONCE, "timeout": "300ms"}
    points = puncta.open_points(url, layout=layout, storage_options=options)
    points.query(box=sixteen_tiles())
    for name, value in fault.items():
        setattr(http_server.faults, name, value)
    with pytest.raises(StoreError, match=words):
        points.query(box=sixteen_tiles(column=12))


@pytest.mark.parametrize("status", [401, 403, 500])
def test_a_refusal_is_never_taken_for_absence(url: str, http_server: FileServer, status: int) -> None:
    http_server.faults.status = {ELEMENT: status}
    with pytest.raises(StoreError, match=str(status)) as caught:
        puncta.open_points(url, storage_options=AT_ONCE)
    assert not isinstance(caught.value, MissingError)


def test_nothing_at_a_url_is_said_to_be_missing(http_server: FileServer, store: Path) -> None:
    with pytest.raises(MissingError, match=r"nothing at .*points/transcript:"):
        puncta.open_points(f"{http_server.serve(store)}/points/transcript")


def test_a_server_without_ranges_is_named(url: str, http_server: FileServer) -> None:
    points = puncta.open_points(url, storage_options=AT_ONCE)
    http_server.faults.ignores_range = True
    with pytest.raises(StoreError, match="answers range requests, or download it"):
        points.query(box=sixteen_tiles())


def test_a_server_without_suffixes_is_read_all_the_same(url: str, http_server: FileServer, store: Path) -> None:
    http_server.faults.ignores_suffix = True
    expected = puncta.open_points(store / ELEMENT).query(box=sixteen_tiles())
    assert puncta.open_points(url).query(box=sixteen_tiles()).equals(expected)


def test_a_passing_fault_is_tried_again(url: str, http_server: FileServer, store: Path) -> None:
    class Once(dict[str, int]):
        def items(self) -> Any:  # noqa: ANN401 (as dict has it)
            return [(key, self.pop(key)) for key in list(self)]

    points = puncta.open_points(url)
    http_server.faults.status = Once({f"{ELEMENT}/points.parquet": 503})
    expected = puncta.open_points(store / ELEMENT).query(box=sixteen_tiles())
    assert points.query(box=sixteen_tiles()).equals(expected)
    assert [request.status for request in http_server.requests].count(503) == 1


@pytest.mark.parametrize("layout", ["parquet", "zarr"])
@pytest.mark.parametrize("is_local", [True, False])
def test_a_file_that_is_replaced_while_it_is_read_is_named(
    store: Path, tmp_path: Path, http_server: FileServer, layout: Form, is_local: bool
) -> None:
    element = tmp_path / "study" / "element"
    shutil.copytree(store / ELEMENT, element)
    points = puncta.open_points(element if is_local else f"{http_server.serve(element.parent)}/element", layout=layout)
    expected = points.query(box=sixteen_tiles())
    for file in [*element.glob("points.parquet/part.*"), *element.glob("0/spatial/*/c/*")]:
        content = file.read_bytes()
        file.unlink()
        file.write_bytes(content + b" " if layout == "zarr" else b"PAR1 " + content[5:])
    if is_local and layout == "zarr":
        # the index of a shard is looked at anew where that costs nothing: it is damaged now
        with pytest.raises(StoreError, match=r"damaged|changed"):
            points.query(box=sixteen_tiles())
        return
    with pytest.raises(StoreError, match=r"changed while it was read; (open|read) it again"):
        points.query(box=sixteen_tiles())
    assert expected.num_rows > 0


def test_after_a_replaced_file_was_named_the_new_one_is_read(
    store: Path, tmp_path: Path, http_server: FileServer
) -> None:
    shutil.copytree(store / ELEMENT, tmp_path / "element")
    points = puncta.open_points(f"{http_server.serve(tmp_path)}/element")
    expected = points.query(box=sixteen_tiles())
    http_server.faults.tag = '"another"'
    with pytest.raises(StoreError, match="changed while it was read"):
        points.query(box=sixteen_tiles())
    assert points.query(box=sixteen_tiles()).equals(expected)


def test_a_server_that_tells_no_version_is_read(url: str, http_server: FileServer, store: Path) -> None:
    http_server.faults.tag = http_server.faults.date = ""
    expected = puncta.open_points(store / ELEMENT).query(box=sixteen_tiles())
    assert puncta.open_points(url).query(box=sixteen_tiles()).equals(expected)


def removed(element: Path, path: str) -> None:
    shutil.rmtree(element / path)


@pytest.mark.parametrize(
    ("layout", "path", "question"),
    [
        ("parquet", "index/0/tile_offsets", {"box": sixteen_tiles()}),
        ("parquet", "index/0/feature_offsets", {"features": ["Gene1"]}),
        ("parquet", "index/0/feature_tiles/tiles", {"features": ["Gene1"]}),
        ("parquet", "index/0/feature_row_groups", {"features": ["Gene1"]}),
        ("parquet", "index/features/gene", {"features": ["Gene1"]}),
        ("zarr", "0/spatial/tile_offsets", {"box": sixteen_tiles()}),
        ("zarr", "0/feature/feature_tiles/starts", {"features": ["Gene1"]}),
        ("zarr", "0/spatial/x/c", {"box": sixteen_tiles()}),
    ],
)
@pytest.mark.parametrize("is_local", [True, False])
def test_what_is_gone_although_the_metadata_has_it_is_never_read_as_nothing(  # noqa: PLR0917 (two tables)
    store: Path,
    tmp_path: Path,
    http_server: FileServer,
    layout: Form,
    path: str,
    question: dict[str, Any],
    is_local: bool,
) -> None:
    shutil.copytree(store / ELEMENT, tmp_path / "element")
    removed(tmp_path / "element", path)
    place = tmp_path / "element" if is_local else f"{http_server.serve(tmp_path)}/element"
    with pytest.raises(StoreError, match=r"missing|changed while"):
        puncta.open_points(place, layout=layout).query(**question)


@pytest.mark.parametrize("change", [lambda path: path.unlink(), lambda path: path.write_bytes(b"PAR1 short PAR1")])
def test_a_part_that_is_missing_or_damaged_on_a_server_is_named(
    store: Path, tmp_path: Path, http_server: FileServer, change: Callable[[Path], object]
) -> None:
    shutil.copytree(store / ELEMENT, tmp_path / "element")
    change(tmp_path / "element" / "points.parquet" / "part.0.parquet")
    points = puncta.open_points(f"{http_server.serve(tmp_path)}/element")
    with pytest.raises(StoreError, match=r"points\.parquet/part\.0\.parquet"):
        points.query(box=sixteen_tiles())


def test_a_long_footer_takes_a_second_request(tmp_path: Path, http_server: FileServer) -> None:
    rng = np.random.default_rng(0)
    columns = {f"column {number}": rng.random(2_000) for number in range(60)}
    table = pa.table({"x": rng.uniform(0, 99, 2_000), "y": rng.uniform(0, 99, 2_000), **columns})
    path = Path(puncta.index_points(table, tmp_path / "wide.zarr", tile_size=10.0, feature_order=False).path)
    points = puncta.open_points(f"{http_server.serve(path)}")
    assert points.query(columns=["x", "y"]).num_rows == 2_000
    suffixes = [request for request in http_server.requests if (request.range or "").startswith("bytes=-")]
    assert len(suffixes) == 2
    assert pq.read_metadata(path / "points.parquet/part.0.parquet").serialized_size > suffixes[0].nbytes


def test_a_wrong_option_is_refused(url: str) -> None:
    with pytest.raises(PunctaError, match="correct the options"):
        puncta.open_points(url, storage_options={"timeout": "soon"})
