"""Environments of the rivals: one each, in a folder of their own, made once and never the project's."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """A rival that is looked for in the package index."""

    name: str
    """Its distribution, and the name of its environment."""

    version: str
    """The version that the docs quote; empty for whatever there is."""

    module: str
    """Module beside this file that speaks to it; empty for one that was never there to speak to."""

    needs: tuple[str, ...] = ()
    """What its module needs besides."""


LIBRARIES = (
    Library(name="spatialdata", version="0.8.0", module="_points_rivals_spatialdata"),
    Library(name="celldega", version="0.27.0", module="_points_rivals_celldega", needs=("pyarrow",)),
    Library(name="spatiato", version="0.2.1", module="_points_rivals_spatiato"),
    Library(name="spatialdata-js-util", version="0.1.0", module="_points_rivals_js"),
    Library(name="zarr-vectors", version="0.9.2", module="_points_rivals_zarr_vectors", needs=("pyarrow",)),
    Library(name="tissue-map-tools", version="", module=""),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Where a rival runs, or why it does not."""

    library: Library
    python: Path
    """Its interpreter."""

    problem: str | None
    """Why the library could not be installed."""


def environment_of(library: Library, folder: Path, python: str) -> Environment:
    """Return the environment of a rival, made and filled where it is not there yet.

    Args:
        library: What is installed.
        folder: Folder of all environments.
        python: Interpreter, or its version, that a new one is made of.

    """
    place = folder.resolve() / library.name
    found = place / "bin" / "python"
    done = place / "installed"
    if done.exists():
        return Environment(library=library, python=found, problem=None)
    uv = shutil.which("uv")
    if uv is None:
        raise SystemExit("rivals are installed with uv, which is not on the path")
    shutil.rmtree(place, ignore_errors=True)
    pinned = f"{library.name}=={library.version}" if library.version else library.name
    # without the project's own constraints: rivals get the versions that they ask for
    problem = _problem_of([uv, "venv", "--no-config", "--no-project", "--python", python, str(place)]) or _problem_of(
        [uv, "pip", "install", "--no-config", "--python", str(found), pinned, *library.needs]
    )
    if problem is None:
        done.touch()
    return Environment(library=library, python=found, problem=problem)


def _problem_of(command: Sequence[str]) -> str | None:
    """Run a command, and return the first line of its complaint that says why; None if it had none."""
    print(f"  {' '.join(command[1:3])} {command[-1]}", file=sys.stderr)
    process = subprocess.run([*command, "--quiet"], capture_output=True, text=True, check=False)
    if process.returncode == 0:
        return None
    lines = [line.strip() for line in process.stderr.splitlines() if line.strip()]
    reasons = [line.removeprefix("cause:").strip() for line in lines if line.startswith("cause:")]
    reason = next(iter(reasons or lines[-1:]), f"exit code {process.returncode}")
    return reason.removeprefix("Because ").split(" and you require")[0]
