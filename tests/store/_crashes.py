"""Run as a script: publishes numbered versions of a small element, to be killed from outside or by itself.

`loop STORE MODE` publishes for ever. `steps STORE MODE` forks one child for each step of one publication, which kills
itself there; prints for each the state that `recover` found and left, as a line of JSON. `recoveries` kills those too.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from puncta.store import Workspace, recover

STEPS = frozenset({"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "shutil.rmtree", "fcntl.flock"})


def build(folder: Path, version: int) -> None:
    """Write a group of which every file says the version."""
    document = {"zarr_format": 3, "node_type": "group", "attributes": {"version": version}}
    for name in ("", "a", "a/b"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "zarr.json").write_text(json.dumps(document))
        (folder / name / "points.bin").write_text(str(version) * 5000)


def publish(store: Path, mode: str, version: int) -> None:
    with Workspace(store, use_exchange=mode == "exchange") as workspace:
        build(workspace.path / "transcripts", version)
        workspace.publish_directory(workspace.path / "transcripts", store / "points" / "transcripts", replace=True)


def state(store: Path) -> dict[str, object]:
    """Return the versions found in the element, the one in the consolidated metadata, and what lies about."""
    element = store / "points" / "transcripts"
    versions = {json.loads(path.read_text())["attributes"]["version"] for path in element.rglob("zarr.json")}
    versions |= {int(path.read_text()[0]) for path in element.rglob("points.bin")}
    root = json.loads((store / "zarr.json").read_text())
    entry = root["consolidated_metadata"]["metadata"].get("points/transcripts", {"attributes": {"version": None}})
    return {
        "versions": sorted(versions),
        "files": sum(path.is_file() for path in element.rglob("*")),
        "consolidated": entry["attributes"]["version"],
        "around": sorted(path.name for folder in (store.parent, store) for path in folder.iterdir()),
    }


def loop(store: Path, mode: str) -> None:
    version = 0
    while True:
        version = version % 9 + 1
        publish(store, mode, version)
        _say(version)


def steps(store: Path, mode: str) -> None:
    publish(store, mode, 1)
    step, alive = 0, False
    while not alive:
        step += 1
        new = step % 8 + 2
        before = state(store)["versions"]
        alive = _survives(step, partial(publish, store, mode, new))
        missing = not (store / "points" / "transcripts").exists()
        report = {"missing": missing, "done": recover(store), "allowed": [before, [new]]}
        _say({**report, **state(store)})


def recoveries(store: Path, mode: str) -> None:
    """Kill publications, and then the recovery of each at one of its steps; print what a second one makes of it."""
    publish(store, mode, 1)
    for step in range(1, 120):
        new = step % 8 + 2
        before = state(store)["versions"]
        _survives(15 + step % 35, partial(publish, store, mode, new))
        _survives(1 + step // 5, partial(recover, store))
        _say({"done": recover(store), "allowed": [before, [new]], **state(store)})


def _survives(step: int, action: Callable[[], object]) -> bool:
    """Run an action in a process that kills itself at a step; return whether it ended before."""
    child = os.fork()
    if not child:
        _die_at(step)
        action()
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        sys.exit("the child failed of itself")
    return os.WIFEXITED(status)


def _say(document: object) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def _die_at(step: int) -> None:
    left = step

    def hook(event: str, _: object) -> None:
        nonlocal left
        left -= event in STEPS
        if event in STEPS and not left:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


if __name__ == "__main__":
    {"loop": loop, "steps": steps, "recoveries": recoveries}[sys.argv[1]](Path(sys.argv[2]), sys.argv[3])
