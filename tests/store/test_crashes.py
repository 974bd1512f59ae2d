"""A process that is killed at any moment of a publication leaves the store as it was or as it will be."""

import importlib.util
import json
import random
import subprocess
import sys
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from puncta.store import Workspace, recover

SCRIPT = Path(__file__).with_name("_crashes.py")
MODES = ("exchange", "renames")
EMPTY = {"kind": "inline", "must_understand": False, "metadata": {}}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = tmp_path / "study.zarr"
    root.mkdir()
    document = {"zarr_format": 3, "node_type": "group", "attributes": {}, "consolidated_metadata": EMPTY}
    (root / "zarr.json").write_text(json.dumps(document))
    return root


def run(command: str, store: Path, mode: str) -> list[dict[str, Any]]:
    arguments = [sys.executable, str(SCRIPT), command, str(store), mode]
    done = subprocess.run(arguments, check=True, capture_output=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def is_whole(state: dict[str, Any]) -> bool:
    """Whether there is one complete version, the consolidated metadata agrees, and nothing lies about."""
    clean = state["around"] == ["points", "study.zarr", "zarr.json"]
    return bool(clean and state["files"] == 6 and state["versions"] == [state["consolidated"]])


@pytest.mark.parametrize("mode", MODES)
def test_a_kill_at_every_step_leaves_the_old_or_the_new(store: Path, mode: str) -> None:
    states = run("steps", store, mode)

    assert len(states) > 50
    assert [state for state in states if not is_whole(state)] == []
    assert [state for state in states if state["versions"] not in state["allowed"]] == []
    assert {state["versions"] == state["allowed"][1] for state in states} == {True, False}
    assert any(state["missing"] for state in states) == (mode == "renames")


@pytest.mark.parametrize("mode", MODES)
def test_a_kill_at_every_step_of_the_recovery_is_recovered_from(store: Path, mode: str) -> None:
    states = run("recoveries", store, mode)

    assert [state for state in states if not is_whole(state)] == []
    assert [state for state in states if state["versions"] not in state["allowed"]] == []


@pytest.mark.parametrize("mode", MODES)
def test_a_kill_at_any_time_from_outside_leaves_one_version(store: Path, mode: str) -> None:
    crashes = _load_crashes()
    delays = random.Random(0)  # noqa: S311 (moments, not secrets)
    for _ in range(20):
        with subprocess.Popen([sys.executable, SCRIPT, "loop", store, mode], stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.readline()
            sleep(delays.uniform(0, 0.03))
            child.kill()
        recover(store)
        assert is_whole(crashes.state(store))


def test_the_workspace_of_a_live_process_is_left_alone(store: Path) -> None:
    with Workspace(store) as workspace:
        (workspace.path / "half").write_text("done")
        assert recover(store) == []
        assert (workspace.path / "half").read_text() == "done"


def _load_crashes() -> Any:  # noqa: ANN401 (a module that is a script)
    spec = importlib.util.spec_from_file_location("_crashes", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
