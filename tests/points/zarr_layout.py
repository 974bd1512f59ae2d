"""The Zarr layout of an index, written from its Parquet files by pyarrow and zarr-python: an oracle of the writer's."""

import base64
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import zarr
from numpy.typing import NDArray

_PLAIN_CHUNK = 1_000
"""Shorter than the format's 16,384 rows, so that small tissues have many chunks."""


def consolidate(element: Path) -> None:
    """Have the element's own metadata tell of everything below it."""
    document = json.loads((element / "zarr.json").read_text())
    nodes = sorted(path.parent for path in element.rglob("zarr.json") if path.parent != element)
    metadata = {node.relative_to(element).as_posix(): json.loads((node / "zarr.json").read_text()) for node in nodes}
    document["consolidated_metadata"] = {"kind": "inline", "must_understand": False, "metadata": metadata}
    (element / "zarr.json").write_text(json.dumps(document))


def unconsolidate(element: Path) -> None:
    """Take away what the element's own metadata tells of what is below it."""
    document = json.loads((element / "zarr.json").read_text())
    document.pop("consolidated_metadata", None)
    (element / "zarr.json").write_text(json.dumps(document))


def with_zarr_layout(source: Path, target: Path, *, only: bool = False) -> None:
    """Copy an element and add the Zarr layout; `only` takes away the Parquet files and their index."""
    shutil.copytree(source, target)
    unconsolidate(target)
    document = json.loads((target / "zarr.json").read_text())
    attrs = document["attributes"]
    root = zarr.open_group(target, mode="r+", zarr_format=3)
    for number, entry in enumerate(attrs["multiscales"]["layout"]):
        _level(target, root, number, entry["spatial_index"])
        entry["asset"] = str(number)
        if "derived_from" in entry:
            entry["derived_from"] = str(number - 1)
    attrs["spatial_index"]["layout"] = ["zarr"] if only else ["parquet", "zarr"]
    (target / "zarr.json").write_text(json.dumps(document))
    if only:
        for name in ("points.parquet", "levels", *(f"index/{at}" for at in range(len(attrs["multiscales"]["layout"])))):
            # fractions that the metadata names stay where it names them
            if not (target / name / "P_feature").exists():
                shutil.rmtree(target / name, ignore_errors=True)
        shutil.rmtree(target / "feature", ignore_errors=True)
    consolidate(target)


def _level(element: Path, root: zarr.Group, number: int, index: dict[str, Any]) -> None:
    group = root.require_group(str(number))
    spatial = group.create_group("spatial")
    folder = element / (f"levels/{number}/points.parquet" if number else "points.parquet")
    offsets = _values(root, f"index/{number}/tile_offsets")
    tiles = _Rows(element, folder, chunk=max(int(np.diff(offsets).max(initial=0)), 1), per_shard=64)
    _table(root, spatial, tiles, offsets)
    _copy_arrays(root, f"index/{number}", spatial, ["tile_offsets"])
    copies = {"feature": ""} if "n_rows_feature" in index else {}
    copies |= {f"by-{name}": f"by-{name}" for name in index.get("by", {})}
    for name, inside in copies.items():
        rows = _Rows(element, element / "feature" / str(number) / inside / "points.parquet", _PLAIN_CHUNK, 4)
        copy = group.create_group(name)
        _table(root, copy, rows, None)
        names = ["feature_offsets", "feature_offsets_own", "feature_level_of", "P_feature"]
        names += [f"feature_tiles/{one}" for one in ("indptr", "tiles", "starts")]
        _copy_arrays(root, f"index/{number}/{inside}".rstrip("/"), copy, names)


class _Rows:
    """All rows of one copy, in the order of its parts' numbers."""

    def __init__(self, element: Path, folder: Path, chunk: int, per_shard: int) -> None:
        parts = sorted(folder.glob("part.*.parquet"), key=lambda path: int(path.name.split(".")[1]))
        self.element = element
        self.schema = pq.read_schema(parts[0])
        self.table = pa.concat_tables([pq.ParquetFile(part).read() for part in parts])
        self.chunk = chunk
        self.per_shard = per_shard


def _table(root: zarr.Group, group: zarr.Group, rows: _Rows, offsets: NDArray[np.int64] | None) -> None:
    names = []
    for at, field in enumerate(rows.schema):
        name = field.name.lstrip("_") if not field.name.startswith("_") or field.name.lstrip("_") else f"column-{at}"
        names.append(name)
        column = rows.table.column(field.name)
        values, fill, place = _encoded(root, rows.element, column, field)
        array = _written(group, name, values, fill, rows, offsets)
        if place is not None:
            array.attrs["categories"] = place
        elif column.null_count:
            _written(group, f"validity/{name}", np.asarray(column.is_valid()), False, rows, offsets)  # noqa: FBT003
    group.attrs["df"] = {"columns": names, "n_rows": rows.table.num_rows}
    group.attrs["arrow_schema"] = base64.b64encode(rows.schema.serialize().to_pybytes()).decode()


def _encoded(
    root: zarr.Group, element: Path, column: pa.ChunkedArray, field: pa.Field
) -> tuple[NDArray[Any], Any, str | None]:
    """Return the values to store, their fill value, and where their categories are, if they are codes."""
    places = [f"index/{kind}/{field.name}" for kind in ("features", "categories", "values")]
    place = next((one for one in places if (element / one).exists()), None)
    is_text = pa.types.is_string(field.type) or pa.types.is_large_string(field.type)
    if place is None and pa.types.is_dictionary(field.type):
        names = column.chunk(0).dictionary.cast(pa.string()).to_pylist()
        place = _strings(root, f"index/categories/{field.name}", names)
    elif place is None and is_text:
        place = _strings(root, f"index/values/{field.name}", sorted(column.drop_null().unique().to_pylist()))
    if place is not None:
        value_set = pa.array([str(name) for name in _values(root, place).tolist()], pa.string())
        plain = column.cast(field.type.value_type) if pa.types.is_dictionary(field.type) else column
        found = pc.index_in(plain.cast(pa.string()), value_set=value_set).fill_null(-1).to_numpy()
        kinds = (np.int8, np.int16, np.int32)
        kind = next(one for one in kinds if len(value_set) <= np.iinfo(one).max)
        return found.astype(kind), -1, place
    if pa.types.is_boolean(field.type):
        return column.fill_null(False).to_numpy().astype(bool), False, None  # noqa: FBT003 (a value)
    if pa.types.is_temporal(field.type):
        column = column.cast(pa.int64() if field.type.bit_width == 64 else pa.int32())
    if pa.types.is_floating(column.type):
        return column.fill_null(np.nan).to_numpy(), np.nan, None
    return column.fill_null(0).to_numpy(), 0, None


def _strings(root: zarr.Group, path: str, names: list[str]) -> str:
    array = root.create_array(path, shape=(len(names),), chunks=(max(len(names), 1),), dtype="string")
    if names:
        array[:] = np.asarray(names, dtype=object)
    return path


def _written(
    group: zarr.Group,
    name: str,
    values: NDArray[Any],
    fill: Any,  # noqa: ANN401 (a value of the dtype)
    rows: _Rows,
    offsets: NDArray[np.int64] | None,
) -> zarr.Array[Any]:
    placed = values
    if offsets is not None:
        placed = np.full((len(offsets) - 1) * rows.chunk, fill, dtype=values.dtype)
        for tile, (start, end) in enumerate(_pairs(offsets)):
            placed[tile * rows.chunk : tile * rows.chunk + end - start] = values[start:end]
    array = group.create_array(
        name,
        shape=placed.shape,
        dtype=placed.dtype,
        chunks=(rows.chunk,),
        shards=(rows.chunk * rows.per_shard,),
        fill_value=fill,
    )
    if len(placed):
        array[:] = placed
    return array


def _values(root: zarr.Group, path: str) -> NDArray[Any]:
    array = root[path]
    assert isinstance(array, zarr.Array)
    return np.asarray(array[:])


def _pairs(offsets: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    return zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)


def _copy_arrays(root: zarr.Group, source: str, group: zarr.Group, names: list[str]) -> None:
    for name in names:
        if f"{source}/{name}" in root:
            group.create_array(name, data=_values(root, f"{source}/{name}"))
