import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result

from puncta.cli._failures import exit_code_of, stopping_on_signals
from puncta.errors import MetadataError, MissingError, OverwriteError, PunctaError, UnsupportedError

type Run = Callable[..., Result]


def raising(error: BaseException) -> Callable[[], None]:
    def work() -> None:
        raise error

    return work


@pytest.mark.parametrize("error", [PunctaError("no"), MissingError("no"), OverwriteError("no"), MemoryError()])
def test_refused_data_is_exit_code_1(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code_of(raising(error)) == 1
    assert capsys.readouterr().err.startswith("error: ")


def test_a_form_that_is_not_supported_is_exit_code_2() -> None:
    assert exit_code_of(raising(UnsupportedError("URLs are not supported yet"))) == 2


def test_an_error_is_one_line_however_many_it_has(capsys: pytest.CaptureFixture[str]) -> None:
    exit_code_of(raising(PunctaError("first\n  second\nthird")))

    assert capsys.readouterr() == ("", "error: first second third\n")


def test_problems_of_metadata_keep_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    exit_code_of(raising(MetadataError("2 problems\n/a: one\n/b: two")))

    assert capsys.readouterr().err == "error: 2 problems\n/a: one\n/b: two\n"


def test_an_unexpected_error_says_that_it_is_a_bug(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code_of(raising(KeyError("x"))) == 1

    words = capsys.readouterr().err
    assert words.startswith("error: this is a bug in puncta: KeyError: 'x'")
    assert words.count("\n") == 1


def test_traceback_is_shown_only_when_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUNCTA_DEBUG", "1")

    assert exit_code_of(raising(KeyError("x"))) == 1
    assert "Traceback" in capsys.readouterr().err


def test_what_the_system_refuses_is_no_bug(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code_of(raising(PermissionError(13, "Permission denied", "/x"))) == 1
    assert capsys.readouterr().err == "error: the system refused: Permission denied: /x\n"


def test_an_interrupt_is_exit_code_130(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code_of(raising(KeyboardInterrupt())) == 130
    assert capsys.readouterr().err == "interrupted: stopped\n"


def test_exit_codes_that_are_asked_for_pass() -> None:
    assert exit_code_of(raising(click.exceptions.Exit(1))) == 1


def test_sigterm_unwinds_the_stack() -> None:
    unwound = []

    def work() -> None:
        with stopping_on_signals():
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(5)
            finally:
                unwound.append(True)

    with pytest.raises(SystemExit) as stop:
        work()

    assert (stop.value.code, unwound) == (143, [True])
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.parametrize(
    "arguments",
    [
        ["qury"],
        ["query"],
        ["query", "x.zarr", "--colour"],
        ["query", "x.zarr", "--box", "1,2,3"],
        ["query", "x.zarr", "--box", "1,2,3,four"],
        ["query", "x.zarr", "--box", "nan,0,1,1"],
        ["query", "x.zarr", "--box", "5,0,1,1"],
        ["query", "x.zarr", "--z", "2,1"],
        ["query", "x.zarr", "--level", "1", "--budget", "10"],
        ["query", "x.zarr", "--level", "-1"],
        ["query", "x.zarr", "--count", "--explain"],
        ["query", "x.zarr", "-o", "answer.xlsx"],
        ["query", "x.zarr", "--columns", "a,,b"],
        ["query", "ftp://example.org/x.zarr"],
        ["query", "s3://bucket/x.zarr", "--storage-option", "region"],
        ["query", "x.zarr", "--storage-option", "region=x"],
        ["plot", "x.zarr"],
        ["plot", "x.zarr", "-o", "picture.jpg"],
        ["index", "x.parquet"],
        ["index", "x.parquet", "-o", "x.zarr", "--in-place"],
        ["index", "x.parquet", "-o", "x.zarr", "--limit", "0"],
        ["index", "x.parquet", "-o", "x.zarr", "--tile-size", "0"],
        ["index", "x.parquet", "-o", "x.zarr", "--tile-size", "-3,5"],
        ["index", "https://example.org/x.parquet", "-o", "x.zarr"],
        ["info", "ftp://example.org/x.zarr"],
        ["validate", "az://bucket/x.zarr"],
        ["demo", "--points", "many"],
    ],
)
def test_wrong_use_is_exit_code_2_with_one_line(
    run: Run, arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    result = run(*arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", ["info", "query", "validate"])
def test_a_path_where_nothing_is_is_exit_code_1(run: Run, verb: str, tmp_path: Path) -> None:
    result = run(verb, tmp_path / "nothing.zarr")

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: nothing at ")
    assert result.stderr.count("\n") == 1


def test_a_wrong_verb_is_told_the_nearest(run: Run) -> None:
    assert "'query'" in run("qury").stderr


def test_a_closed_pipe_is_silent(store: Path) -> None:
    command = f"{sys.executable} -c 'from puncta.cli import main; main()' query {store} --json | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)

    assert done.stderr == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopped_indexing_leaves_nothing_but_what_it_goes_on_from(number: signal.Signals, tmp_path: Path) -> None:
    source = tmp_path / "transcripts.parquet"
    _write_long_source(source)
    code = "from puncta.cli import main; main()"
    command = [sys.executable, "-c", code, "index", str(source), "-o", str(tmp_path / "new.zarr"), "--workers", "1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        _wait_for_a_second_name(tmp_path)
        process.send_signal(number)
        _, words = process.communicate(timeout=60)

    assert process.returncode == 128 + number
    assert b"Traceback" not in words
    left = [path.name for path in tmp_path.iterdir() if path != source]
    assert all(name.startswith(".new.zarr.puncta-build-") for name in left)
    assert all(name.encode() in words for name in left)


def _write_long_source(path: Path) -> None:
    rows = 3_000_000
    at = pa.array(np.arange(rows, dtype=np.float32))
    pq.write_table(pa.table({"x": at, "y": at, "gene": pa.repeat("a", rows)}), path)


def _wait_for_a_second_name(folder: Path) -> None:
    end = time.monotonic() + 60
    while len(list(folder.iterdir())) == 1 and time.monotonic() < end:
        time.sleep(0.005)
