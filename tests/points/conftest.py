"""Small tissues, each indexed once, beside the table that they were made of."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import puncta
from puncta.points import Points

N_POINTS = 5_000
GENES = [*(f"Gene{number}" for number in range(12)), "Unused"]
LIMIT = 60
OPTIONS: dict[str, dict[str, Any]] = {
    "all": {"feature_key": ["gene", "kind"], "codes_column": True, "tile_size": 15},
    "shared": {"feature_key": ["gene", "kind"], "feature_levels": "shared", "tile_size": 15},
    "none": {"feature_key": ["gene", "kind"], "feature_levels": "none", "tile_size": 15},
    "no feature order": {"feature_order": False, "tile_size": (40, 25)},
    "volume": {"axes": ("z", "y", "x"), "tile_size": (30, 35, 30), "feature_levels": "shared"},
}


def tissue(n_points: int = N_POINTS, seed: int = 0) -> pd.DataFrame:
    """Return molecules: half of them in a hotspot, genes of Zipf abundance, nulls, and negative coordinates."""
    rng = np.random.default_rng(seed)
    dense = rng.random(n_points) < 0.5
    coordinates = {
        axis: np.where(dense, rng.normal(centre, 25, n_points), rng.uniform(low, high, n_points)).astype(np.float32)
        for axis, centre, low, high in (("x", 20, -100, 150), ("y", 90, -30, 200), ("z", 15, 0, 30))
    }
    weights = 1 / np.arange(1, 13) ** 2
    genes = np.where(rng.random(n_points) < 0.02, -1, rng.choice(12, n_points, p=weights / weights.sum()))
    return pd.DataFrame(
        {
            **coordinates,
            "gene": pd.Categorical.from_codes(genes, GENES),
            "kind": pd.Categorical.from_codes(rng.integers(0, 4, n_points), ["a", "b", "c", "d"]),
            "cell_id": pd.Categorical.from_codes(rng.integers(0, 1500, n_points), np.arange(1500) * 7 - 1),
            "qv": rng.uniform(0, 40, n_points).astype(np.float32),
            "row": np.arange(n_points),
        }
    )


type Built = tuple[Points, pd.DataFrame]
"""An indexed tissue, and the table that it was made of."""


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Built]:
    """Index a tissue in one of the ways of `OPTIONS`, once, and give both."""
    made: dict[str, Built] = {}

    def built(kind: str) -> Built:
        if kind not in made:
            frame = tissue()
            frame = frame if kind == "volume" else frame.drop(columns="z")
            options = {"feature_key": "gene", "limit": LIMIT, **OPTIONS[kind]}
            store = tmp_path_factory.mktemp("built") / "study.zarr"
            report = puncta.index_points(pa.Table.from_pandas(frame, preserve_index=False), store, **options)
            made[kind] = (puncta.open_points(report.path), frame)
        return made[kind]

    return built


@pytest.fixture(scope="session", params=list(OPTIONS))
def built(request: pytest.FixtureRequest, build: Callable[..., Built]) -> Built:
    """Give each of the indexed tissues in turn."""
    return build(request.param)


@pytest.fixture(scope="session")
def plain(build: Callable[..., Built]) -> Built:
    """Give the tissue that is indexed as the RFC says by default, with two feature columns."""
    return build("all")


def turned(path: Path) -> None:
    """Give an element, indexed already, transformations that do not leave points where they are."""
    document = json.loads((path / "zarr.json").read_text())
    cosine, sine = np.cos(np.pi / 6), np.sin(np.pi / 6)
    affines = {
        "global": [[4.70588, 0, 0], [0, 4.70588, 0]],
        "turned": [[cosine, -sine, 300.0], [sine, cosine, -20.5]],
        "swapped": [[0, 1, 0], [1, 0, 0]],
    }
    template = document["attributes"]["coordinateTransformations"][0]
    document["attributes"]["coordinateTransformations"] = [
        {
            "type": "affine",
            "affine": matrix,
            "input": template["input"],
            "output": {**template["output"], "name": name},
        }
        for name, matrix in affines.items()
    ]
    (path / "zarr.json").write_text(json.dumps(document))


TILE = {"global": 90, "turned": 25, "swapped": 30}


@pytest.fixture(scope="session", params=list(TILE))
def placed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Give a tissue whose grid stands in a system other than that of the stored coordinates."""
    frame = tissue(2_000).drop(columns="z")
    store = tmp_path_factory.mktemp("placed") / "study.zarr"
    table = pa.Table.from_pandas(frame, preserve_index=False)
    path = puncta.index_points(table, store, feature_key="gene", tile_size=300, feature_order=False).path
    turned(Path(path))
    puncta.index_points(
        path, in_place=True, overwrite=True, coordinate_system=request.param, tile_size=TILE[request.param]
    )
    return puncta.open_points(path), frame
