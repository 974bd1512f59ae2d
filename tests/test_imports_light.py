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


# Both orders and all levels, of a table with nulls everywhere but in the coordinates, in both forms.
INDEXING = """
import gzip
import pathlib
import pyarrow as pa
import pyarrow.parquet as pq
import puncta
place = pathlib.Path({place!r})
text = "x,y,gene,cell,n\\n" + "0.5,1,a,,1\\n2,3,,c,\\n" * 50
(place / "t.csv.gz").write_bytes(gzip.compress(text.encode()))
puncta.index_points(place / "t.csv.gz", place / "csv.zarr", feature_key="gene", limit=5)
import pyarrow.csv
pq.write_table(pyarrow.csv.read_csv(place / "t.csv.gz"), place / "t.parquet")
for layout in ("parquet", "zarr"):
    store = place / (layout + ".zarr")
    puncta.index_points(place / "t.parquet", store, feature_key="gene", tile_size=2, limit=5, layout=layout)
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


def test_indexing_loads_nothing_heavy(tmp_path: Path) -> None:
    assert heavy_after(INDEXING.format(place=str(tmp_path))) == []


def test_reading_an_index_loads_nothing_heavy(element: Path) -> None:
    assert heavy_after(READING.format(element=str(element))) == []
