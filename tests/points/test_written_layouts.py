"""What `index_points` writes in each layout has the same answers, columns of every kind included."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.points.conftest import LIMIT
from tests.points.test_places import QUESTIONS, check_answers, odd_tissue

import puncta
from puncta.points._zarr import as_parquet

TYPES = [
    *(pa.int8(), pa.uint32(), pa.float16(), pa.float64(), pa.bool_(), pa.string(), pa.large_string()),
    *(pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"), pa.duration("s")),
    *(pa.timestamp(unit, tz=tz) for unit in ("s", "ms", "us", "ns") for tz in (None, "UTC", "Europe/Berlin")),
    *(pa.dictionary(pa.int8(), kind, ordered=kind == pa.string()) for kind in (pa.string(), pa.large_string())),
    *(pa.dictionary(pa.int16(), kind) for kind in (pa.int64(), pa.float32(), pa.bool_(), pa.timestamp("s"))),
]


@pytest.mark.parametrize("data_type", TYPES, ids=str)
def test_types_are_those_that_pyarrow_gives_back(tmp_path: Path, data_type: pa.DataType) -> None:
    pq.write_table(pa.schema([("a", data_type)]).empty_table(), tmp_path / "a.parquet")
    assert as_parquet(data_type) == pq.read_schema(tmp_path / "a.parquet").field("a").type


def odder_tissue() -> pa.Table:
    """Return a tissue with columns whose types Parquet does not give back as they were."""
    table = odd_tissue()
    rng = np.random.default_rng(1)
    moments = pa.array(rng.integers(0, 10**6, table.num_rows)).cast(pa.timestamp("s"))
    more = {
        "number": pa.array(pd.Categorical.from_codes(rng.integers(-1, 4, table.num_rows), [40, 10, 30, 20])),
        "since": moments,
        "day64": moments.cast(pa.date32()).cast(pa.date64()),
        "clock": pa.array(rng.integers(0, 86_400, table.num_rows).astype(np.int32)).cast(pa.time32("s")),
    }
    for name, column in more.items():
        table = table.append_column(name, column)
    return table


@pytest.mark.parametrize("mode", ["all", "shared", "none"])
def test_both_layouts_as_they_are_written_have_the_same_answers(
    tmp_path: Path, mode: Literal["all", "shared", "none"]
) -> None:
    options: dict[str, Any] = {"feature_key": ["gene", "kind"], "feature_levels": mode, "tile_size": 15, "limit": LIMIT}
    layouts: tuple[Literal["parquet", "both", "zarr"], ...] = ("parquet", "both", "zarr")
    paths = {
        layout: puncta.index_points(odder_tissue(), tmp_path / f"{layout}.zarr", layout=layout, **options).path
        for layout in layouts
    }
    plain = puncta.open_points(paths["parquet"])
    answers = [plain.query(**question) for question in QUESTIONS]
    for points in (puncta.open_points(paths["both"], layout="zarr"), puncta.open_points(paths["zarr"])):
        assert points.schema.equals(plain.schema, check_metadata=True)
        check_answers(points, answers)
    check_answers(puncta.open_points(paths["both"]), answers)
