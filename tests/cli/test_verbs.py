import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from PIL import Image

import puncta.points
from puncta import kinds

type Run = Callable[..., Result]
type RunJson = Callable[..., Any]

BOX = ["--box", "100,50,600,300"]
INSIDE = {"x": (100.0, 600.0), "y": (50.0, 300.0)}


@pytest.fixture
def source(molecules: pa.Table, tmp_path: Path) -> Path:
    path = tmp_path / "molecules.parquet"
    pq.write_table(molecules, path)
    return path


def in_box(table: pa.Table) -> np.ndarray[Any, np.dtype[np.bool_]]:
    x, y = (table.column(axis).to_numpy() for axis in ("x", "y"))
    return np.asarray((x >= 100) & (x < 600) & (y >= 50) & (y < 300))


# index


def test_index_reports_what_it_did(run: Run, source: Path, tmp_path: Path) -> None:
    result = run("index", source, "-o", tmp_path / "new.zarr")

    assert result.exit_code == 0
    assert result.stderr == ""
    assert "5,000, 4 features" in result.stdout
    assert puncta.points.open_points(tmp_path / "new.zarr").n_rows == 5_000


def test_index_json_holds_path_counts_seconds_bytes_and_dropped(
    run_json: RunJson, source: Path, tmp_path: Path
) -> None:
    report = run_json("index", source, "-o", tmp_path / "new.zarr", "--where", "qv >= 20", "--where", "x < 500")

    table = pq.read_table(source)
    kept = (table.column("qv").to_numpy() >= 20) & (table.column("x").to_numpy() < 500)
    assert report["path"] == str(tmp_path / "new.zarr/points/transcripts")
    assert report["n_rows"] == kept.sum()
    assert report["dropped"] == {"where": 5_000 - kept.sum()}
    assert report["bytes"] > 0
    assert report["seconds"].keys() >= {"reading", "placing"}


def test_index_passes_every_option_on(run_json: RunJson, source: Path, tmp_path: Path) -> None:
    options = (
        "--name spots --x y --y x --feature-key gene --tile-size 50,100 --origin -10,-20 --axes x,y --limit 300 "
        "--max-levels 2 --max-tiles 1000 --feature-levels none --coordinate-system microns --coordinate-dtype keep "
        "--invalid drop --layout parquet --seed 7 --memory 500MB --workers 1"
    )
    run_json("index", source, "-o", tmp_path / "new.zarr", *options.split(), "--tmp", tmp_path)

    points = puncta.points.open_points(tmp_path / "new.zarr/points/spots")
    grid = points.levels[0].grid
    assert (grid.axes, grid.tile_size, grid.origin) == (("x", "y"), (50, 100), (-10, -20))
    assert (len(points.levels), points.limit, points.seed) == (2, 300, 7)
    assert (points.coordinate_system, points.feature_levels) == ("microns", "none")


def test_index_adds_a_column_of_codes(run: Run, source: Path, tmp_path: Path) -> None:
    run("index", source, "-o", tmp_path / "new.zarr", "--codes-column")

    assert "gene_codes" in puncta.points.open_points(tmp_path / "new.zarr").columns


def test_index_lays_the_grid_along_the_axes_as_ordered(run: Run, source: Path, tmp_path: Path) -> None:
    run("index", source, "-o", tmp_path / "new.zarr", "--axes", "y,x", "--tile-size", "50,100")

    # y goes to 500, x to 1,000
    assert puncta.points.open_points(tmp_path / "new.zarr").levels[0].grid.shape == (10, 10)


def test_index_without_feature_order_writes_one_copy(run: Run, source: Path, tmp_path: Path) -> None:
    run("index", source, "-o", tmp_path / "new.zarr", "--no-feature-order")

    assert puncta.points.open_points(tmp_path / "new.zarr").orders == ["spatial"]


def test_index_replaces_only_when_asked(run: Run, source: Path, tmp_path: Path) -> None:
    target = tmp_path / "new.zarr"
    codes = [run("index", source, "-o", target, *extra).exit_code for extra in ([], [], ["--overwrite"])]

    assert codes == [0, 1, 0]


def test_a_second_index_in_place_needs_overwrite(run: Run, source: Path, tmp_path: Path) -> None:
    run("index", source, "-o", tmp_path / "new.zarr")
    element = tmp_path / "new.zarr/points/transcripts"

    assert run("index", element, "--in-place").exit_code == 1
    assert run("index", element, "--in-place", "--overwrite").exit_code == 0


# info and validate


def test_info_json_is_what_the_api_says(run_json: RunJson, store: Path) -> None:
    element = store / "points/transcripts"

    assert run_json("info", element) == json.loads(json.dumps(kinds.info(element)))


def test_info_shows_a_row_for_each_level(run: Run, store: Path) -> None:
    lines = run("info", store / "points/transcripts").stdout.splitlines()

    shown = [line.split()[0] for line in lines if line.strip() and line.split()[0].isdigit()]
    assert shown == [str(level.number) for level in puncta.points.open_points(store).levels]
    assert any("shared" in line for line in lines)


def test_info_of_a_store_lists_its_elements(run: Run, store: Path) -> None:
    assert "points/transcripts   points" in run("info", store).stdout


def test_output_to_a_file_has_no_colour_and_no_trailing_space(run: Run, store: Path) -> None:
    text = run("info", store / "points/transcripts").stdout

    assert "\x1b" not in text
    assert [line for line in text.splitlines() if line != line.rstrip()] == []


def test_a_sound_store_is_exit_code_0(run: Run, run_json: RunJson, store: Path) -> None:
    assert run("validate", store).exit_code == 0
    assert run_json("validate", store) == kinds.validate_report(store)


def test_an_unsound_element_is_exit_code_1_and_lists_every_problem(run: Run, source: Path, tmp_path: Path) -> None:
    run("index", source, "-o", tmp_path / "new.zarr")
    element = tmp_path / "new.zarr/points/transcripts"
    _break(element / "zarr.json", limit=-3, orders="x")

    told, as_json = run("validate", element), run("validate", element, "--json")

    assert (told.exit_code, as_json.exit_code) == (1, 1)
    assert json.loads(as_json.stdout) == kinds.validate_report(element)
    assert "/spatial_index/limit" in told.stdout
    assert "/spatial_index/orders" in told.stdout


def _break(path: Path, **values: object) -> None:
    document = json.loads(path.read_bytes())
    document["attributes"]["spatial_index"] |= values
    path.write_text(json.dumps(document))


# query


def test_count_is_a_bare_number(run: Run, store: Path, molecules: pa.Table) -> None:
    result = run("query", store, *BOX, "--count")

    assert (result.stdout, result.stderr) == (f"{in_box(molecules).sum()}\n", "")


def test_count_json_says_whether_it_is_exact(run_json: RunJson, store: Path, molecules: pa.Table) -> None:
    assert run_json("query", store, *BOX, "--count") == {"count": in_box(molecules).sum(), "exact": True}
    assert run_json("query", store, "--level", "1", "--count")["exact"] is False
    assert run_json("query", store, "--budget", "1000", "--count")["exact"] is False


def test_explain_json_is_what_the_api_says(run_json: RunJson, store: Path) -> None:
    said = run_json("query", store, *BOX, "--feature", "Sst", "--explain")

    assert said == puncta.points.open_points(store).explain(box=INSIDE, features=["Sst"]).as_dict()


@pytest.mark.parametrize("arguments", [[], ["--explain"], ["--count", "--level", "1"], ["--feature", "Vip"]])
def test_every_answer_for_people_is_printed(run: Run, store: Path, arguments: list[str]) -> None:
    result = run("query", store, *BOX, *arguments)

    assert (result.exit_code, bool(result.stdout)) == (0, True)


def test_preview_says_how_many_points_there_are_and_what_they_are(run: Run, store: Path, molecules: pa.Table) -> None:
    text = run("query", store, *BOX).stdout

    assert f"{in_box(molecules).sum():,} points" in text
    assert "level 0, complete" in text


def test_a_sample_is_called_one(run: Run, store: Path) -> None:
    assert "a sample: " in run("query", store, "--budget", "500").stdout


def test_query_json_says_what_the_table_says(run_json: RunJson, store: Path) -> None:
    table = puncta.points.open_points(store).query(budget=500)

    said = run_json("query", store, "--budget", "500")

    assert said == {"rows": table.num_rows, **json.loads(table.schema.metadata[b"puncta"])}


READERS: dict[str, Callable[[Path], pa.Table]] = {
    ".parquet": pq.read_table,
    ".csv": pa_csv.read_csv,
    ".arrow": lambda path: pa.ipc.open_file(path).read_all(),
}


@pytest.mark.parametrize("ending", READERS)
def test_files_hold_the_rows_that_were_asked_for(
    run: Run, store: Path, molecules: pa.Table, tmp_path: Path, ending: str
) -> None:
    path = tmp_path / f"answer{ending}"
    result = run("query", store, *BOX, "--feature", "Sst", "--columns", "qv,gene", "-o", path)

    table = READERS[ending](path)
    is_asked = in_box(molecules) & (np.array(molecules.column("gene").to_pylist()) == "Sst")
    assert result.exit_code == 0
    assert table.column_names == ["qv", "gene"]
    assert set(table.column("gene").to_pylist()) == {"Sst"}
    expected = np.sort(molecules.column("qv").to_numpy()[is_asked])
    np.testing.assert_allclose(np.sort(table.column("qv").to_numpy()), expected, rtol=1e-6)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_a_file_is_replaced_only_when_asked(run: Run, store: Path, tmp_path: Path) -> None:
    path = tmp_path / "answer.csv"
    path.write_text("mine")

    assert run("query", store, "-o", path).exit_code == 1
    assert path.read_text() == "mine"
    assert run("query", store, "-o", path, "--overwrite").exit_code == 0
    assert path.read_text() != "mine"


@pytest.mark.parametrize(
    "text",
    [
        "POLYGON ((100 50, 600 50, 600 300, 100 300, 100 50))",
        '{"type": "Polygon", "coordinates": [[[100, 50], [600, 50], [600, 300], [100, 300], [100, 50]]]}',
    ],
)
def test_a_polygon_is_read_from_a_file(
    run_json: RunJson, store: Path, molecules: pa.Table, tmp_path: Path, text: str
) -> None:
    (tmp_path / "region.txt").write_text(text)

    counted = run_json("query", store, "--polygon", tmp_path / "region.txt", "--count")

    assert counted["count"] == in_box(molecules).sum()


def test_filters_add_up(run_json: RunJson, store: Path, molecules: pa.Table) -> None:
    said = run_json("query", store, "--where", "qv >= 20", "--where", "x < 100")

    kept = (molecules.column("qv").to_numpy() >= 20) & (molecules.column("x").to_numpy() < 100)
    assert said["rows"] == kept.sum()


def test_names_with_brackets_are_data(run: Run, molecules: pa.Table, tmp_path: Path) -> None:
    names = pa.array(["[red]a[/red]"] * len(molecules))
    path = tmp_path / "odd.parquet"
    pq.write_table(molecules.drop(["gene"]).append_column("gene", names), path)
    run("index", path, "-o", tmp_path / "odd.zarr")

    assert "[red]a[/red]" in run("query", tmp_path / "odd.zarr").stdout


# plot and demo


def test_plot_writes_a_picture_and_its_legend(run: Run, store: Path, tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    result = run("plot", store, "-o", path, *BOX, "--feature", "Sst", "--feature", "Vip", "--width", "200")

    with Image.open(path) as picture:
        assert picture.size == (200, 100)
    assert [line.split()[-1] for line in result.stdout.splitlines()[1:]] == ["Sst", "Vip"]


def test_a_picture_is_replaced_only_when_asked(run: Run, store: Path, tmp_path: Path) -> None:
    arguments = ["plot", store, "-o", tmp_path / "picture.png", "--width", "50"]
    codes = [run(*arguments, *extra).exit_code for extra in ([], [], ["--overwrite"])]

    assert codes == [0, 1, 0]


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-c", "from puncta.cli import main; main()", "demo", "--points", "5000"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    # a pipe is no terminal
    assert done.stderr == ""
    return folder, done.stdout


def test_demo_writes_a_sound_store_and_a_picture(demo: tuple[Path, str]) -> None:
    folder, text = demo

    assert kinds.validate(folder / "demo.zarr") == []
    with Image.open(folder / "demo.png") as picture:
        assert picture.width == 1600
    assert "5,000" in text


def test_commands_that_the_demo_names_work(run: Run, demo: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, text = demo
    monkeypatch.chdir(folder)

    commands = [line.strip() for line in text.splitlines() if line.startswith("  puncta ")]

    assert len(commands) == 3
    assert [run(*shlex.split(command)[1:]).exit_code for command in commands] == [0, 0, 0]


def test_demo_replaces_an_earlier_demo(run: Run, demo: tuple[Path, str], tmp_path: Path) -> None:
    shutil.copytree(demo[0], tmp_path / "again")

    result = run("demo", "--dir", tmp_path / "again", "--points", "2000")

    assert result.exit_code == 0, result.stderr
    assert puncta.points.open_points(tmp_path / "again/demo.zarr").n_rows == 2_000


@pytest.mark.parametrize("name", ["demo.zarr", "demo.png"])
def test_demo_replaces_nothing_else(run: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")

    assert run("demo", "--dir", tmp_path, "--points", "2000").exit_code == 1
    assert [path.name for path in tmp_path.iterdir()] == [name]


# terminal


def test_progress_is_shown_on_a_terminal_and_gone_at_the_end(source: Path, tmp_path: Path) -> None:
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    code = "from puncta.cli import main; main()"
    command = [sys.executable, "-c", code, "index", str(source), "-o", str(tmp_path / "new.zarr")]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, env=environment, check=True)
    os.close(theirs)
    shown = os.read(ours, 2**20)
    os.close(ours)

    assert b"\x1b" not in done.stdout
    assert b"writing features" in shown
    assert shown.endswith(b"\x1b[2K")
