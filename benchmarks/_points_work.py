"""The pieces of work that `points.py` measures, each in a process of its own; prints one JSON object."""

import json
import math
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from puncta.points import Points

# Copies are shifted by less than the section, and by no whole number of pixels: they overlap, as in a denser tissue.
# Side by side, each row group of the source would cover a small place of its own, and its statistics would be an index.
_SHIFT = (101.137, 53.211)

# Corner of the square of one unit that holds a tenth of the points of a `hot` table: in the middle of the section.
_HOT = (10_000.25, 13_000.25)

_VIEWS = 15

_PICTURE_WIDTH = 1600

# Of a budget, this much must come back; less is shown beyond the bar of 1, as what it lacks.
_LEAST_SHARE = 0.5

type Layout = Literal["parquet", "zarr", "both"]

type Figure = tuple[str, float, float, float, float | None, str]
"""A row of the table: what it says, median, smallest, largest, bar and unit."""


def make(section: str, target: str, n_rows: str, kind: str) -> dict[str, Any]:
    """Write the section repeated with shifts: as it is, `hot` in one place, or as a vendor's table of seven columns."""
    table = pq.read_table(section)
    left, writer = int(n_rows), None
    for copy in range(math.ceil(int(n_rows) / table.num_rows)):
        x, y = (table[axis].to_numpy() + copy * shift for axis, shift in zip(("x", "y"), _SHIFT, strict=True))
        part = _FORMS[kind](table, x, y, copy).slice(0, left)
        left -= part.num_rows
        writer = writer or pq.ParquetWriter(target, part.schema, compression="zstd")
        writer.write_table(part)
    if writer is not None:
        writer.close()
    return {}


def _section_like(table: pa.Table, x: np.ndarray, y: np.ndarray, copy: int) -> pa.Table:
    del copy
    columns = {"x": pa.array(x), "y": pa.array(y)}
    return pa.table({**columns, "feature_name": table["feature_name"].combine_chunks(), "fov": table["fov"]})


def _hot_like(table: pa.Table, x: np.ndarray, y: np.ndarray, copy: int) -> pa.Table:
    """Return the section with every tenth point moved into one square that is smaller than any tile."""
    rng = np.random.default_rng(copy)
    chosen = np.arange(0, table.num_rows, 10)
    for axis, corner in zip((x, y), _HOT, strict=True):
        axis[chosen] = corner + rng.random(len(chosen))
    return _section_like(table, x, y, copy)


def _vendor_like(table: pa.Table, x: np.ndarray, y: np.ndarray, copy: int) -> pa.Table:
    """Return a table like Xenium's: growing ids, text cell ids by place, depth, and a quality with a cap."""
    rng = np.random.default_rng(copy)
    n = table.num_rows
    ids = (np.uint64(copy + 1) << np.uint64(40)) + np.cumsum(rng.integers(1, 4, n)).astype(np.uint64)
    cells = (x // 120).astype(np.int64) * 4000 + (y // 120).astype(np.int64)
    names, codes = np.unique(cells, return_inverse=True)
    labels = pa.array([f"{name:08x}-1" for name in names.tolist()])
    return pa.table(
        {
            "transcript_id": ids,
            "cell_id": labels.take(pa.array(codes)),
            "feature_name": table["feature_name"].cast(pa.string()),
            "x_location": x.astype(np.float32),
            "y_location": y.astype(np.float32),
            "z_location": rng.normal(20, 5, n).astype(np.float32),
            "qv": np.clip(rng.normal(32, 9, n), 0, 40).round(2).astype(np.float32),
        }
    )


_FORMS = {"section": _section_like, "hot": _hot_like, "vendor": _vendor_like}


def densest(store: str) -> dict[str, Any]:
    """Return which share of all points the densest tile holds."""
    from puncta.points import open_points  # noqa: PLC0415  # each piece of work loads what it measures, and nothing else

    level = open_points(Path(store) / "points" / "transcripts").levels[0]
    return {"share": float(level.tile_counts.max()) / level.n_rows}


def copy_table(source: str, target: str) -> dict[str, Any]:
    """Read a table and write it again, as pyarrow does by default but for zstd."""
    pq.write_table(pq.read_table(source), target, compression="zstd")
    return {}


def polars_sort(source: str, target: str) -> dict[str, Any]:
    """Sort the table by tiles of 800 units with polars, and sink it: the rival's tile order without an index."""
    import polars as pl  # noqa: PLC0415  # as above

    tiles = [(pl.col(axis) // 800).cast(pl.Int32) for axis in ("x", "y")]
    pl.scan_parquet(source).sort(tiles).sink_parquet(target, compression="zstd", compression_level=1)
    return {}


def index(source: str, target: str, mode: str, layout: Layout = "parquet", memory: str = "1GB") -> dict[str, Any]:
    """Index a table: the tile order of level 0 alone, or everything."""
    from puncta.indexing import index_points  # noqa: PLC0415  # as above

    only_tiles: dict[str, Any] = {"feature_order": False, "max_levels": 1}
    levels: dict[str, Any] = {"feature_levels": "shared" if mode == "shared" else "all"}
    chosen = only_tiles if mode == "tile" else levels
    report = index_points(source, target, layout=layout, memory=memory, **chosen)
    return {"bytes": report.bytes, "seconds": report.seconds, "rows": report.n_rows}


def n_bytes(source: str, store: str, copy: str) -> dict[str, Any]:
    """Return bytes a point of the tile order, and of pyarrow's file of the same table after the cast to float32."""
    table = pq.read_table(source)
    coordinates = ("x", "y", "x_location", "y_location", "z_location")
    fields = [field.with_type(pa.float32()) if field.name in coordinates else field for field in table.schema]
    pq.write_table(table.cast(pa.schema(fields)), copy, compression="zstd", compression_level=1)
    parts = (Path(store) / "points" / "transcripts" / "points.parquet").glob("*.parquet")
    ours = sum(part.stat().st_size for part in parts)
    return {"ours": ours / table.num_rows, "pyarrow": Path(copy).stat().st_size / table.num_rows}


def questions(source: str, store: str) -> dict[str, Any]:
    """Ask both the index and its rivals: views of 16 tiles, a gene, the whole section; returns rows of the table."""
    from puncta.points import open_points  # noqa: PLC0415  # as above

    points = open_points(Path(store) / "points" / "transcripts")
    grid, counts = points.levels[0].grid, points.levels[0].tile_counts.reshape(points.levels[0].grid.shape)
    boxes = views(grid.origin, grid.tile_size, counts)
    first = _cpu(lambda: points.query(box=boxes[0]))
    ours = statistics.median(_cpu(partial(points.query, box=box)) for box in boxes)
    parts = str(Path(store) / "points" / "transcripts" / "points.parquet" / "*.parquet")
    rows: list[Figure] = []
    for name, bar, rival, n in (
        ("spatialdata.bounding_box_query of the source", 1 / 100, _spatialdata(source), 2),
        ("polars box filter of the source", 1 / 20, _polars_box(source), 5),
        ("polars box filter of our file", 1 / 1.5, _polars_box(parts), 5),
    ):
        times = []
        for box in boxes[:n]:
            rows_found = rival(box)
            times.append(_cpu(partial(rival, box)))
            # the source is not rounded to float32: a point on the border may fall on either side
            _check_close(rows_found, points.query(box=box).num_rows)
        ratios = [ours / time_ for time_ in times]
        rows.append((f"16 tiles, CPU / {name}", statistics.median(ratios), min(ratios), max(ratios), bar, ""))
    rows.append(("16 tiles, CPU", ours * 1e3, ours * 1e3, ours * 1e3, None, "ms"))
    rows.append(("16 tiles, first call after opening, CPU", first * 1e3, first * 1e3, first * 1e3, None, "ms"))
    rows += _gene_rows(points, parts)
    rows += _overview_rows(points)
    rows += _picture_rows(points, source)
    return {"rows": rows}


def views(origin: tuple[float, ...], size: tuple[float, ...], counts: np.ndarray) -> list[dict[str, Any]]:
    """Return boxes of 4 x 4 whole tiles over tissue, far apart."""
    rng = np.random.default_rng(0)
    boxes: list[dict[str, Any]] = []
    while len(boxes) < _VIEWS:
        at = [int(rng.integers(0, n - 4)) for n in counts.shape[:2]]
        if (counts[at[0] : at[0] + 4, at[1] : at[1] + 4] > counts[counts > 0].mean() / 2).all():
            corner = [o + s * t for o, s, t in zip(origin, size, at, strict=False)]
            boxes.append({a: (c, c + 4 * s) for a, c, s in zip(("x", "y"), corner, size, strict=False)})
    return boxes


def _gene_rows(points: "Points", parts: str) -> list[Figure]:
    """Compare reading the gene of median count with a polars filter of the tile order."""
    import polars as pl  # noqa: PLC0415  # as above

    found = {name: points.count(features=[name]).count for name in points.features}
    gene = sorted(found, key=lambda name: found[name])[len(found) // 2]
    key = str(points.feature_key)
    names = ["x", "y", key]
    points.query(features=[gene], columns=names)
    ours = statistics.median(_cpu(lambda: points.query(features=[gene], columns=names)) for _ in range(7))

    def rival() -> int:
        column = pl.col(key).cast(pl.String)
        return pl.scan_parquet(parts).filter(column == gene).select(names).collect().height

    _check_close(rival(), found[gene], exact=True)
    ratios = [ours / _cpu(rival) for _ in range(3)]
    label = "the gene of median count, CPU / polars filter of the tile order"
    return [
        (label, statistics.median(ratios), min(ratios), max(ratios), 1 / 100, ""),
        (f"the gene of median count ({found[gene]:,} points), CPU", ours * 1e3, ours * 1e3, ours * 1e3, None, "ms"),
    ]


def _overview_rows(points: "Points") -> list[Figure]:
    """Ask for the whole section within 200,000 rows: how much of the budget comes back, and how true it is."""
    from puncta.indexing._levels import ancestors_of  # noqa: PLC0415  # as above

    budget = 200_000
    table = points.query(budget=budget, columns=["x", "y"])
    says = json.loads(table.schema.metadata[b"puncta"])
    cpu = statistics.median(_cpu(lambda: points.query(budget=budget, columns=["x", "y"])) for _ in range(5))
    grid = points.levels[-3].grid
    finest = points.levels[0].tile_counts
    at = ancestors_of([level.grid for level in points.levels[:-2]])[-1]
    expected = np.bincount(at, weights=finest, minlength=grid.n_tiles) * says["fraction"]
    shown = np.stack([table[axis].to_numpy() for axis in ("x", "y")], axis=1)
    found = np.bincount(grid.tile_ids(shown), minlength=grid.n_tiles)
    spread = np.sqrt(np.maximum(expected * (1 - says["fraction"]), 1e-9))
    worst = float((np.abs(found - expected)[expected > 0] / spread[expected > 0]).max())
    share = table.num_rows / budget
    below = share if share >= _LEAST_SHARE else 2.0 - share
    return [
        (f"whole section, budget {budget:,}: share that comes back (0.5 to 1)", below, share, share, 1.0, ""),
        (
            f"whole section: largest of {int((expected > 0).sum())} tiles' deviations, in sigma",
            worst,
            worst,
            worst,
            4.0,
            "",
        ),
        (f"whole section, level {says['level']}, CPU", cpu * 1e3, cpu * 1e3, cpu * 1e3, None, "ms"),
    ]


def _picture_rows(points: "Points", source: str) -> list[Figure]:
    """Render the whole section from the level that fits, and from all points read with polars, by the same pixels."""
    import polars as pl  # noqa: PLC0415  # as above

    from puncta.points._render import render_density  # noqa: PLC0415  # as above

    grid = points.levels[0].grid
    lower = (grid.origin[0], grid.origin[1])
    upper = (lower[0] + grid.tile_size[0] * grid.shape[0], lower[1] + grid.tile_size[1] * grid.shape[1])

    def rival() -> np.ndarray:
        frame = pl.scan_parquet(source).select("x", "y").collect()
        x, y = (frame[axis].to_numpy().astype(np.float64) for axis in ("x", "y"))
        return render_density(x, y, lower=lower, upper=upper, width=_PICTURE_WIDTH)

    ours, theirs = points.render(width=_PICTURE_WIDTH), rival()
    if ours.shape != theirs.shape:
        raise SystemExit(f"the pictures are of {ours.shape} and {theirs.shape}: the comparison is void")
    times = [(_cpu(lambda: points.render(width=_PICTURE_WIDTH)), _cpu(rival)) for _ in range(3)]
    ratios = [own / other for own, other in times]
    own = statistics.median(own for own, _ in times)
    label = f"whole section, picture of {_PICTURE_WIDTH} pixels"
    return [
        (f"{label}, CPU / polars reads all points", statistics.median(ratios), min(ratios), max(ratios), None, ""),
        (f"{label}, CPU", own * 1e3, own * 1e3, own * 1e3, None, "ms"),
    ]


def _polars_box(source: str) -> Callable[[dict[str, Any]], int]:
    import polars as pl  # noqa: PLC0415  # as above

    names = pl.scan_parquet(source).collect_schema().names()

    def rows_in(box: dict[str, Any]) -> int:
        inside = [pl.col(axis).is_between(box[axis][0], box[axis][1], closed="left") for axis in ("x", "y")]
        return pl.scan_parquet(source).filter(*inside).select(names).collect().height

    return rows_in


def _spatialdata(source: str) -> Callable[[dict[str, Any]], int]:
    """Return spatialdata's own box query of the source, the element already open."""
    warnings.simplefilter("ignore")
    import dask.dataframe as dd  # noqa: PLC0415  # as above
    from spatialdata import bounding_box_query  # noqa: PLC0415
    from spatialdata.models import PointsModel  # noqa: PLC0415

    frame = dd.read_parquet(source, split_row_groups=1)
    element = PointsModel.parse(frame, coordinates={"x": "x", "y": "y"}, feature_key="feature_name")

    def rows_in(box: dict[str, Any]) -> int:
        lower, upper = (list(corner) for corner in zip(box["x"], box["y"], strict=True))
        found = bounding_box_query(
            element, axes=("x", "y"), min_coordinate=lower, max_coordinate=upper, target_coordinate_system="global"
        )
        return 0 if found is None else len(found.compute())

    return rows_in


def _cpu(function: Callable[[], Any]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def _check_close(rival: int, ours: int, *, exact: bool = False) -> None:
    if abs(rival - ours) > (0 if exact else max(ours // 200, 20)):
        raise SystemExit(f"the rival found {rival} rows and puncta {ours}: the comparison is void")


def versions() -> dict[str, Any]:
    """Return the versions of what is measured."""
    return {name: version(name) for name in ("puncta", "pyarrow", "polars", "spatialdata", "zarr", "numpy")}


WORK: dict[str, Callable[..., dict[str, Any]]] = {
    "make": make,
    "copy": copy_table,
    "polars-sort": polars_sort,
    "index": index,
    "densest": densest,
    "bytes": n_bytes,
    "questions": questions,
    "versions": versions,
}

if __name__ == "__main__":
    print(json.dumps(WORK[sys.argv[1]](*sys.argv[2:])))
