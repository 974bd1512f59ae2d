"""Nothing heavy is loaded by the import, by the help, or by opening and reading an index."""

import subprocess
import sys
from pathlib import Path

import pytest

from puncta.example import make_tissue

HEAVY = {"spatialdata", "anndata", "lancedb", "dask", "matplotlib", "pandas", "scanpy", "torch", "xarray", "geopandas"}

HELP = """
import sys
from puncta.cli import main
sys.argv = ["puncta", "--help"]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
"""

# Everything that reading means: boxes, features, budgets, filters, counts, plans, pictures.
READING = """
import puncta
points = puncta.open_points({element!r})
box = {{"x": (0, 1000), "y": (0, 1000)}}
gene = points.features[0]
assert points.query(box=box, features=[gene], where="qv >= 20").num_rows >= 0
assert points.query(budget=500).num_rows > 0
assert points.count(box=box, features=[gene]).count >= 0
assert points.read_tile(0, 0).num_rows >= 0
assert points.read_feature(0, gene).num_rows >= 0
points.explain(box=box)
points.render(width=64)
"""


def modules_after(script: str) -> set[str]:
    """Return the libraries that a fresh process has loaded after the script, by their top-level names."""
    report = "\nimport sys\nprint('\\n'.join(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script + report], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[0] for name in done.stderr.splitlines()}


def heavy_after(script: str) -> list[str]:
    return sorted(modules_after(script) & HEAVY)


@pytest.fixture(scope="module")
def element(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import puncta  # noqa: PLC0415  # so that the modules of the door do not count as loaded by the import of this file

    store = tmp_path_factory.mktemp("light") / "study.zarr"
    puncta.index_points(make_tissue(points=5_000).molecules, store=store, feature_key="gene", limit=500)
    return store / "points" / "transcripts"


def test_no_door_loads_anything_heavy() -> None:
    doors = (
        "errors",
        "spec.points",
        "spec.spatialdata",
        "spec.transformations",
        "store",
        "points",
        "indexing",
        "kinds",
    )
    assert heavy_after("\n".join(f"import puncta.{door}" for door in doors)) == []


def test_the_package_alone_loads_no_library_at_all() -> None:
    assert not modules_after("import puncta") & {"pyarrow", "polars", "zarr", "shapely", "jsonschema", "click", "rich"}


def test_help_loads_nothing_heavy() -> None:
    assert heavy_after(HELP) == []


def test_reading_an_index_loads_nothing_heavy(element: Path) -> None:
    assert heavy_after(READING.format(element=str(element))) == []
