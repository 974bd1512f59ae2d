"""`puncta convert` on the command line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import Result

from puncta.points import open_points

type Run = Callable[..., Result]


def test_convert_writes_an_element_that_answers_alike(run: Run, store: Path, tmp_path: Path) -> None:
    result = run("convert", store, "-o", tmp_path / "z.zarr", "--layout", "zarr")
    assert result.exit_code == 0, result.output
    assert "5,000, 4 features" in result.stdout
    assert open_points(tmp_path / "z.zarr").query().equals(open_points(store).query())


def test_convert_reports_as_json(run_json: Callable[..., Any], store: Path, tmp_path: Path) -> None:
    report = run_json("convert", store, "-o", tmp_path / "z.zarr", "--layout", "zarr", "--workers", 1)
    assert report["path"] == str(tmp_path / "z.zarr")
    assert (report["layout"], report["n_rows"], report["n_features"]) == ("zarr", 5_000, 4)
    sizes = {path: path.stat().st_size for path in (tmp_path / "z.zarr").rglob("*") if path.is_file()}
    others = sum(sizes.values()) - sizes[tmp_path / "z.zarr/zarr.json"]
    assert others <= report["bytes"] < others + 100


def test_convert_names_the_element_in_its_store(run_json: Callable[..., Any], store: Path, tmp_path: Path) -> None:
    run_json("convert", store, "-o", tmp_path / "z.zarr", "--layout", "zarr")
    report = run_json(
        "convert", tmp_path / "z.zarr", "-o", tmp_path / "s.zarr", "--layout", "parquet", "--name", "spots"
    )
    assert report["path"] == str(tmp_path / "s.zarr/points/spots")


def test_convert_asks_for_a_layout(run: Run, store: Path, tmp_path: Path) -> None:
    result = run("convert", store, "-o", tmp_path / "z.zarr")
    assert result.exit_code == 2
    assert "--layout" in result.stderr


def test_convert_says_in_one_line_that_the_layout_is_there(run: Run, store: Path, tmp_path: Path) -> None:
    result = run("convert", store, "-o", tmp_path / "z.zarr", "--layout", "parquet")
    assert result.exit_code == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert "in the parquet layout already" in result.stderr


def test_convert_overwrites_nothing_unasked(run: Run, store: Path, tmp_path: Path) -> None:
    arguments = ("convert", store, "-o", tmp_path / "z.zarr", "--layout", "zarr")
    assert run(*arguments).exit_code == 0
    assert run(*arguments).exit_code != 0
    assert run(*arguments, "--overwrite").exit_code == 0


def test_convert_refuses_an_empty_path(run: Run, store: Path) -> None:
    result = run("convert", store, "-o", "", "--layout", "zarr")
    assert (result.exit_code, "the path of -o is empty" in result.stderr) == (2, True)
