"""The release of spatialdata before the one that the environment has opens what we write."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import puncta
from puncta.example import make_tissue

OLDER = "spatialdata==0.7.3"

READ = """
import json, sys, warnings
warnings.simplefilter("ignore")
import spatialdata
frame = spatialdata.read_zarr(sys.argv[1]).points["transcripts"].compute()
print(json.dumps({
    "version": spatialdata.__version__,
    "rows": len(frame),
    "columns": list(frame.columns),
    "categories": list(frame["gene"].cat.categories),
}))
"""


@pytest.mark.slow
def test_the_release_before_opens_an_indexed_store(tmp_path: Path) -> None:
    uv = shutil.which("uv")
    if uv is None:
        pytest.skip("uv, which makes the environment of the older release, is not here")
    molecules = make_tissue(points=5_000).molecules
    puncta.index_points(molecules, tmp_path / "study.zarr", limit=500)

    isolated = [uv, "run", "--no-project", "--isolated", "--python", sys.executable, "--with", OLDER]
    done = subprocess.run(
        [*isolated, "python", "-c", READ, str(tmp_path / "study.zarr")], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["version"].startswith("0.7.")
    # puncta lays the gene beside the first two axes, whatever the order of the source
    assert (found["rows"], sorted(found["columns"])) == (molecules.num_rows, sorted(molecules.column_names))
    assert found["categories"] == molecules["gene"].chunk(0).dictionary.to_pylist()
