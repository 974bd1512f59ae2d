"""A small indexed store, and a way to run the command."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from puncta.cli import main
from puncta.indexing import index_points

type Run = Callable[..., Result]


@pytest.fixture(scope="session")
def molecules() -> pa.Table:
    rng = np.random.default_rng(5)
    names = np.array(["Plp1", "Gad1", "Sst", "Vip"])[rng.choice(4, 5_000, p=[0.7, 0.2, 0.09, 0.01])]
    return pa.table(
        {
            "x": rng.uniform(0, 1000, 5_000).astype(np.float32),
            "y": rng.uniform(0, 500, 5_000).astype(np.float32),
            "gene": pa.array(names).dictionary_encode(),
            "qv": rng.uniform(0, 40, 5_000).astype(np.float32),
        }
    )


@pytest.fixture(scope="session")
def store(molecules: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An indexed store that no test changes."""
    path = tmp_path_factory.mktemp("cli") / "study.zarr"
    index_points(molecules, path, limit=400, feature_key="gene")
    return path


@pytest.fixture
def run() -> Run:
    """Run the command in this process, as the shell would."""

    def invoke(*arguments: object) -> Result:
        return CliRunner().invoke(main, [str(argument) for argument in arguments], prog_name="puncta")

    return invoke


@pytest.fixture
def run_json(run: Run) -> Callable[..., Any]:
    """Run the command with `--json`, and return what it says."""

    def invoke(*arguments: object) -> Any:  # noqa: ANN401 - JSON is anything
        result = run(*arguments, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    return invoke
