"""The base install alone indexes, informs, queries, draws and validates, in an environment made for it."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[1]

# None of these may come with the base install.
HEAVY = ["spatialdata", "anndata", "lancedb", "dask", "matplotlib", "pandas", "scipy", "geopandas", "torch"]

N_ROWS = 20_000


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command that has to succeed; return what it wrote to stdout."""
    environment = {name: value for name, value in os.environ.items() if name not in {"VIRTUAL_ENV", "PYTHONPATH"}}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, f"$ {' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
    return done.stdout


def bare_environment(folder: Path) -> Path:
    """Install the checkout without extras, at the tested versions, and return the folder of its programs."""
    uv = os.environ.get("UV") or shutil.which("uv")
    if uv is None:
        pytest.skip("uv is not installed")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(project["tool"]["uv"]["constraint-dependencies"]), encoding="utf-8")
    environment = folder / "bare"
    # From inside the checkout: a pyenv shim of uv answers only there.
    run(uv, "venv", "--quiet", "--python", Path(sys.executable).resolve(), environment, cwd=ROOT)
    python = environment / "bin" / "python"
    run(uv, "pip", "install", "--quiet", "--python", python, "--constraints", constraints, ROOT, cwd=ROOT)
    return environment / "bin"


def write_molecules(path: Path) -> pa.Table:
    """Write a table with the columns of a Xenium transcript file."""
    rng = np.random.default_rng(0)
    table = pa.table(
        {
            "transcript_id": pa.array(np.arange(N_ROWS, dtype=np.uint64)),
            "feature_name": pa.array(rng.choice(["Actb", "Plp1", "Sox9"], N_ROWS)),
            "x_location": pa.array(rng.uniform(0, 400, N_ROWS).astype(np.float32)),
            "y_location": pa.array(rng.uniform(0, 300, N_ROWS).astype(np.float32)),
            "z_location": pa.array(rng.uniform(0, 20, N_ROWS).astype(np.float32)),
            "qv": pa.array(rng.uniform(0, 40, N_ROWS).astype(np.float32)),
        }
    )
    pq.write_table(table, path)
    return table


def rows_in_box(table: pa.Table) -> int:
    """Count the Plp1 molecules of the box that the test asks for."""
    x, y = table["x_location"].to_numpy(), table["y_location"].to_numpy()
    is_gene = np.asarray(table["feature_name"].to_pylist()) == "Plp1"
    return int((is_gene & (x >= 0) & (x < 100) & (y >= 50) & (y < 150)).sum())


@pytest.mark.slow
def test_the_base_install_does_the_main_job(tmp_path: Path) -> None:
    programs = bare_environment(tmp_path)
    puncta, element = programs / "puncta", "study.zarr/points/transcripts"
    expected = rows_in_box(write_molecules(tmp_path / "molecules.parquet"))
    question = ("--box", "0,50,100,150", "--feature", "Plp1")

    run(puncta, "index", "molecules.parquet", "-o", "study.zarr", "--limit", "1000", cwd=tmp_path)
    info = json.loads(run(puncta, "info", element, "--json", cwd=tmp_path))
    run(puncta, "query", element, *question, "-o", "found.parquet", cwd=tmp_path)
    count = json.loads(run(puncta, "query", element, *question, "--count", "--json", cwd=tmp_path))
    run(puncta, "plot", element, "-o", "picture.png", cwd=tmp_path)
    verdict = json.loads(run(puncta, "validate", element, "--json", cwd=tmp_path))

    assert info["n_rows"] == N_ROWS
    assert pq.read_table(tmp_path / "found.parquet").num_rows == count["count"] == expected
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert verdict["valid"], verdict["problems"]
    installed = f"import importlib.util as u; print(*[n for n in {HEAVY} if u.find_spec(n)])"
    assert run(programs / "python", "-c", installed, cwd=tmp_path).split() == []
