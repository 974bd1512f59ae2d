"""The door of conversion: an index in one layout in, the same index in the other out, without the original."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np

from puncta.errors import QueryError, UnsupportedError
from puncta.indexing._build import row_bytes_of, spare_memory
from puncta.indexing._convert_columns import categories_of, layout_of, sample_of
from puncta.indexing._convert_files import Work
from puncta.indexing._convert_levels import Conversion
from puncta.indexing._convert_metadata import converted_attributes
from puncta.indexing._convert_survey import survey
from puncta.indexing._convert_target import resolve_converted
from puncta.indexing._crew import ThreadCrew
from puncta.indexing._options import Clock, bytes_of, processors
from puncta.indexing._stage import Progress
from puncta.indexing._target import publish
from puncta.points import Points, open_points
from puncta.spec.spatialdata import points_attrs
from puncta.spec.transformations import identity_transformation
from puncta.store import Workspace, recover, require_space, says_disk_full, tree_bytes

# A window is held as it is stored, as it is read, as codes, and encoded.
_COPIES_OF_A_WINDOW = 5

_MIN_WINDOW_ROWS = 2**14
_MAX_WINDOW_ROWS = 2**20

# The distinct texts of a column are held as Arrow has them, as a table, and while they are written as Python objects.
_SHARE_OF_TEXTS = 32

# Either layout is within this of the other, measured on both.
_RESULT_SHARE = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertReport:
    """What was converted, and how long it took."""

    path: Path | str
    """The new element: its folder, or its URL."""

    source: str
    """Path or URL of the element that it was converted from."""

    layout: Literal["parquet", "zarr"]
    """Its layout."""

    n_rows: int
    """Points."""

    n_features: int
    """Values of the primary feature column; 0 without one."""

    levels: int
    """Levels."""

    bytes: int
    """Bytes of the new element, without its own metadata."""

    source_bytes: int | None
    """Bytes of the source; None where they cannot be listed."""

    seconds: dict[str, float] = field(default_factory=dict)
    """Wall seconds of each stage."""


def convert_points(
    source: str | os.PathLike[str],
    store: str | os.PathLike[str],
    *,
    layout: Literal["parquet", "zarr"],
    name: str | None = None,
    overwrite: bool = False,
    memory: int | str = "1GB",
    tmp: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    storage_options: Mapping[str, object] | None = None,
    progress: Progress | None = None,
) -> ConvertReport:
    """Convert an index from one layout into the other; nothing is sorted or sampled again, and no original is needed.

    The new element answers every question as the old one does, which is left as it is. Files that other programs have
    left beside the index do not come along.

    Args:
        source: The indexed element, or a store that has one: a path, a place in a zip archive, or a URL of either.
        store: Where it goes. In the Zarr layout the new element itself, which stands alone; in Parquet a SpatialData
            store, new or there already. A path, or the URL of an object store.
        layout: The layout to write: `parquet` or `zarr`.
        name: Name of the element in the SpatialData store; its own, or `transcripts`.
        overwrite: Replace an element that is there.
        memory: What the work should stay below, in bytes or like `1GB`.
        tmp: Folder to put the element together in that goes to a URL; the system's for temporary files.
        workers: Threads; one per processor by default.
        storage_options: For URLs, handed to obstore unchanged.
        progress: Called with a stage, the rows done and the rows to do.

    Returns:
        What was converted.

    Raises:
        UnsupportedError: If the source has the layout already, or nothing can be written to the target.
        NotIndexedError: If the source has no index.
        ColumnError: If a column has no form in the layout.
        GridError: If the tiles are too unequal for the padding of the Zarr layout.
        OverwriteError: If something is at the target that may not be replaced.
        QueryError: If an option has a wrong value.
        SpaceError: If a disk is too small.
        StoreError: If the source is damaged, or the target cannot be written.

    """
    if layout not in {"parquet", "zarr"}:
        raise QueryError(f"the layout is {layout!r}; it must be parquet or zarr")
    if workers is not None and workers < 1:
        raise QueryError(f"workers is {workers}; it must be at least 1")
    n_bytes = bytes_of(memory)
    options = dict(storage_options or {})
    points = _opened(source, layout, options)
    target = resolve_converted(
        points, store, name=name, layout=layout, overwrite=overwrite, storage_options=options, tmp=tmp
    )
    recover(target.store)
    work = _work(points, n_bytes, workers or processors(), progress)
    attrs = _attributes(points, layout)
    with says_disk_full(target.store.parent), Workspace(target.store) as workspace:
        source_bytes = _bytes_of(points)
        require_space(workspace.path, int((source_bytes or 0) * _RESULT_SHARE), "the converted index")
        element = workspace.path / "element"
        element.mkdir()
        _write(points, layout, element, work, max_text_bytes=n_bytes // _SHARE_OF_TEXTS)
        # of a target elsewhere it is not known later
        n_bytes_written = tree_bytes(element)
        with work.clock.stage("publishing"):
            publish(workspace, element, attrs, target, others=None, progress=progress)
    return ConvertReport(
        path=target.address,
        source=points.location,
        layout=layout,
        n_rows=points.n_rows,
        n_features=len(points.features),
        levels=len(points.levels),
        bytes=n_bytes_written,
        source_bytes=source_bytes,
        seconds=work.clock.seconds,
    )


def _work(points: Points, memory: int, workers: int, progress: Progress | None) -> Work:
    """Return who does the work, with as much memory as was promised."""
    spare, row_bytes = spare_memory(memory), row_bytes_of(points.schema) * _COPIES_OF_A_WINDOW
    return Work(
        crew=ThreadCrew(workers, spare),
        row_bytes=row_bytes,
        window_rows=int(np.clip(spare / workers / row_bytes, _MIN_WINDOW_ROWS, _MAX_WINDOW_ROWS)),
        clock=Clock(),
        progress=progress,
    )


def _opened(source: str | os.PathLike[str], layout: str, options: Mapping[str, object]) -> Points:
    """Return the points in the layout that is not asked for."""
    own: Mapping[str, object] | None = options if "://" in os.fspath(source) else None
    points = open_points(source, storage_options=own)
    other: Literal["parquet", "zarr"] = "zarr" if layout == "parquet" else "parquet"
    if other not in points.layout:
        raise UnsupportedError(f"{points.location} is in the {layout} layout already, and no other; copy it as it is")
    return points if points.layout == [other] else open_points(source, layout=other, storage_options=own)


def _write(
    points: Points, layout: Literal["parquet", "zarr"], element: Path, work: Work, *, max_text_bytes: int
) -> None:
    """Write everything of the new element but its own metadata."""
    sample = sample_of(points)
    values = categories_of(points, sample)
    codes_columns: tuple[str, ...] = ()
    if layout == "zarr":
        with work.clock.stage("reading texts"):
            found = survey(points, values, max_bytes=max_text_bytes, work=work)
        values, codes_columns = {**values, **found.texts}, found.codes_columns
    files = layout_of(points, sample, values, codes_columns)
    Conversion(points, files, layout, element=element, work=work).write()


def _attributes(points: Points, layout: Literal["parquet", "zarr"]) -> dict[str, Any]:
    attrs = converted_attributes(points.attrs, layout, created_with=f"puncta {version('puncta')}")
    if "encoding-type" in attrs or layout == "zarr":
        return attrs
    if "affine" in attrs["spatial_index"]:
        raise UnsupportedError(
            f"{points.location} has no transformation to {points.coordinate_system!r}, which its index was built "
            "with, so it cannot become an element of a SpatialData store; index the points again"
        )
    axes = sorted(points.axes)
    transformation = identity_transformation(axes, points.coordinate_system)
    return {**points_attrs(axes, points.feature_key, None, [transformation]), **attrs}


def _bytes_of(points: Points) -> int | None:
    try:
        return points.bytes
    except UnsupportedError:
        # a web server does not list its files
        return None
