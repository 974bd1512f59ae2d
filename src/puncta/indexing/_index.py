"""The door of the builder: a source in, an indexed element of a SpatialData store out."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from puncta.errors import ColumnError, GridError, QueryError
from puncta.indexing._arrow_files import remove_unfinished
from puncta.indexing._build import Result, build_element, row_bytes_of, spare_memory
from puncta.indexing._build_folder import BuildFolder, digest_of, identity_of
from puncta.indexing._choose_grid import GridWishes
from puncta.indexing._columns import ColumnPlan, plan_columns
from puncta.indexing._crew import Crew, ThreadCrew
from puncta.indexing._dask import DaskCrew
from puncta.indexing._ledger import Ledger
from puncta.indexing._metadata import FeatureLevels, Layout, points_attributes
from puncta.indexing._options import TILES_PER_PART, BuildOptions, Clock, bytes_of, processors
from puncta.indexing._partition import Placement
from puncta.indexing._report import IndexReport
from puncta.indexing._source import Source, open_source, paths_of
from puncta.indexing._stage import Progress, Selection
from puncta.indexing._target import Target, other_elements, publish, require_new_store, resolve_target
from puncta.indexing._vendors import VENDORS, is_control
from puncta.points._fit import fit_of
from puncta.spec.points import Dropped
from puncta.spec.spatialdata import points_attrs
from puncta.spec.transformations import identity_transformation, is_identity
from puncta.store import Workspace, recover, require_space, says_disk_full, tree_bytes

_LAYOUTS: dict[str, tuple[Layout, ...]] = {"parquet": ("parquet",), "zarr": ("zarr",), "both": ("parquet", "zarr")}

# Rows in the result, as parts of the rows while building (compression included), measured: each copy, and the levels.
_RESULT_SHARE = 0.6
_COPIES = {"none": 2.0, "shared": 3.0, "all": 7.0}


def index_points(
    source: object,
    store: str | os.PathLike[str] | None = None,
    *,
    in_place: bool = False,
    name: str | None = None,
    x: str | None = None,
    y: str | None = None,
    z: str | None = None,
    feature_key: str | Sequence[str] | None = None,
    where: str | Sequence[str] = (),
    drop_controls: bool = False,
    tile_size: float | Sequence[float] | None = None,
    origin: float | Sequence[float] | None = None,
    limit: int = 10_000,
    max_levels: int | None = None,
    max_tiles: int = 65_536,
    axes: Sequence[str] | None = None,
    feature_order: bool = True,
    feature_levels: FeatureLevels = "all",
    coordinate_system: str = "global",
    coordinate_dtype: Literal["float32", "keep"] = "float32",
    invalid: Literal["error", "drop"] = "error",
    layout: Literal["parquet", "zarr", "both"] = "parquet",
    codes_column: bool = False,
    all_elements: bool = False,
    seed: int = 0,
    memory: int | str = "1GB",
    tmp: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    dask: object = None,
    storage_options: Mapping[str, object] | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> IndexReport:
    """Index points: write them as a tiled, multiscale points element of a SpatialData store (RFC 3).

    The result is, or stays, a store that `spatialdata.read_zarr` opens. A crash at any moment leaves the store as it
    was or as it will be. A build from files that is stopped goes on from its finished parts when it is run again with
    the same arguments.

    Args:
        source: A vendor's transcript table (Parquet, CSV, gzipped CSV) or output folder, a folder of parts or several
            files of one table, a points element of a SpatialData store (or a store that has one), or a table in memory.
        store: The SpatialData store to write to; a new one, or one to add the element to. A path, or an `s3://`,
            `gs://` or `az://` URL, to which a new element is put part by part, its metadata last. In the Zarr layout
            alone it is the element itself, outside of a store.
        in_place: Index the element in its own store instead.
        name: Name of the element; the source's own, or `transcripts`.
        x: Column of the x coordinate; recognised by default, as are `y`, `z` and the feature.
        y: As `x`.
        z: As `x`.
        feature_key: Feature column, or several, the primary first; each gets a feature-major copy.
        where: SQL expressions over the source's columns, such as `qv >= 20`; rows that fail one are left out.
        drop_controls: Leave out control features, by the vendor's naming rule.
        tile_size: Edge of a tile, in units of the coordinate system: one for all axes but z, or one per axis.
        origin: Lower corner of tile 0, one number per axis.
        limit: Points that the densest tile of a sampled level holds on average; from 1.
        max_levels: Levels at the most, level 0 included.
        max_tiles: Tiles of level 0 at the most.
        axes: Axes of the grid, the last one varying fastest in the tile id; the element's own.
        feature_order: Write feature-major copies; without them a table may lack a feature column.
        feature_levels: `all` as the RFC says, `shared` for the features whose fraction changed, `none` for level 0.
        coordinate_system: Coordinate system of the grid.
        coordinate_dtype: Type of the stored coordinates; `keep` keeps the source's.
        invalid: Refuse coordinates that are not finite, or leave such rows out.
        layout: How the levels are stored: `parquet`, which every reader of SpatialData knows, `zarr`, or `both`.
        codes_column: Add an integer column `<feature>_codes` for readers that need one.
        all_elements: Take the other elements of the source's store along into a new store.
        seed: Seed of the sampling.
        memory: What the build should stay below, in bytes or like `1GB`.
        tmp: Folder for buckets; beside the store by default.
        workers: Threads; one per processor by default.
        dask: Address of a dask scheduler, or a `distributed.Client`: its workers do the work on the buckets instead.
            They must share `tmp` and the folder of the store with this process. Needs `puncta[dask]`.
        storage_options: Where the store is a URL: what obstore takes for it, unchanged (region, endpoint, token).
        overwrite: Replace an element, or an index, that is there.
        progress: Called with a stage, the rows done and the rows to do.

    Returns:
        What was indexed, and how well the tiles fit.

    Raises:
        SourceError: If the source holds what cannot be indexed.
        ColumnError: If a column is missing or not of a usable type.
        GridError: If the grid does not cover the points, or is not one.
        OverwriteError: If the target exists.
        SpaceError: If a disk is too small.
        UnsupportedError: If the layout or the form of the source is not supported yet.

    """
    _check_numbers(limit=limit, max_levels=max_levels, max_tiles=max_tiles, workers=workers)
    _check_choice("layout", layout, ("parquet", "zarr", "both"))
    _check_choice("feature_levels", feature_levels, ("all", "shared", "none"))
    _check_choice("coordinate_dtype", coordinate_dtype, ("float32", "keep"))
    _check_choice("invalid", invalid, ("error", "drop"))
    for path in paths_of(source):
        recover(path)
    opened = open_source(
        source, x=x, y=y, z=z, feature_keys=_names(feature_key), axes=axes, needs_features=feature_order
    )
    target = resolve_target(
        opened,
        store,
        in_place=in_place,
        name=name,
        overwrite=overwrite,
        layouts=_LAYOUTS[layout],
        storage_options=storage_options,
        tmp=tmp,
    )
    if all_elements:
        require_new_store(target)
    recover(target.store)
    columns = _columns(opened, codes_column=codes_column)
    placement = Placement(axes=opened.axes, affine=_affine(opened, coordinate_system))
    options = BuildOptions(
        wishes=GridWishes(tile_size=_numbers(tile_size), origin=_numbers(origin), max_tiles=max_tiles, limit=limit),
        selection=Selection(
            where=_names(where),
            controls=_control_rule(opened) if drop_controls else None,
            drop_invalid=invalid == "drop",
        ),
        coordinate_type=pa.float32() if coordinate_dtype == "float32" else None,
        max_levels=max_levels,
        feature_order=feature_order and bool(opened.columns.features),
        feature_levels=feature_levels,
        codes_column=codes_column,
        seed=seed,
        memory=bytes_of(memory),
        workers=workers or processors(),
        layouts=_LAYOUTS[layout],
    )
    clock = Clock()
    with says_disk_full(target.store.parent), Workspace(target.store) as workspace:
        plan = _plan_of(opened, columns, placement, options) if opened.places else None
        with _site(workspace, target, plan, None if tmp is None else Path(tmp)) as site:
            if not site.goes_on:
                _require_space(opened, options, site.element, site.scratch)
            with _crew(dask, options, site) as crew:
                result = build_element(
                    opened,
                    columns,
                    placement,
                    options,
                    element=site.element,
                    scratch=site.scratch,
                    ledger=site.ledger,
                    crew=crew,
                    clock=clock,
                    progress=progress,
                )
            attrs = _attributes(opened, result, options, placement, coordinate_system)
            with clock.stage("publishing"):
                element = workspace.path / "element"
                site.element.rename(element)
                remove_unfinished(element)
                n_bytes = tree_bytes(element)
                others = other_elements(opened, workspace.path) if all_elements else None
                publish(workspace, element, attrs, target, others=others, progress=progress)
    return _report(opened, target, result, options, clock, notes=site.notes, n_bytes=n_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Site:
    """Where an element is built."""

    element: Path
    """Folder of the element, on the file system of the store."""

    scratch: Path
    """Folder for buckets."""

    ledger: Ledger | None = None
    """What has been finished; None where a build that is stopped begins anew."""

    goes_on: bool = False
    """Whether there is something finished."""

    notes: tuple[str, ...] = ()
    """What a user should know."""


@contextmanager
def _site(workspace: Workspace, target: Target, plan: Mapping[str, object] | None, tmp: Path | None) -> Iterator[_Site]:
    """Give folders to build in: those of a build that was stopped, where one with the same plan was."""
    if plan is not None:
        with BuildFolder(target.store, target.name, digest_of(plan), tmp=tmp) as folder:
            if folder.begin():
                yield _Site(
                    element=folder.element,
                    scratch=folder.scratch,
                    ledger=folder.ledger,
                    goes_on=folder.ledger.is_worth_keeping,
                    notes=tuple(folder.notes),
                )
                return
    element = workspace.path / "built"
    element.mkdir()
    with TemporaryDirectory(prefix="puncta-", dir=workspace.path if tmp is None else tmp) as made:
        yield _Site(element=element, scratch=Path(made))


def _plan_of(
    source: Source, columns: Sequence[ColumnPlan], placement: Placement, options: BuildOptions
) -> dict[str, object]:
    """Return all that a build depends on, as values whose text is the same in every process."""
    selection = options.selection
    return {
        "source": [identity_of(place) for place in source.places],
        "columns": [(plan.name, plan.source, plan.role) for plan in columns],
        "axes": placement.axes,
        "affine": None if placement.affine is None else placement.affine.tolist(),
        "selection": [selection.where, selection.controls is not None, selection.drop_invalid],
        "options": replace(options, selection=Selection()),
        "version": version("puncta"),
    }


@contextmanager
def _crew(dask: object, options: BuildOptions, site: _Site) -> Iterator[Crew]:
    """Give those who do the work: threads of this process, or the workers of a cluster."""
    if dask is None:
        yield ThreadCrew(options.workers, spare_memory(options.memory))
        return
    crew = DaskCrew(dask, [site.scratch, site.element])
    try:
        yield crew
    finally:
        crew.close()


def _columns(source: Source, *, codes_column: bool) -> tuple[ColumnPlan, ...]:
    coordinates = {"x": source.columns.x, "y": source.columns.y, "z": source.columns.z}
    extra = [f"{name}_codes" for name in source.columns.features] if codes_column else []
    pairs = [(axis, coordinates[axis] or axis) for axis in source.axes]
    # The columns stand in the files as x, y, z, whatever the order of the grid's axes.
    return plan_columns(
        source.schema,
        coordinates=sorted(pairs),
        features=source.columns.features,
        index_column=source.index_column,
        extra_names=extra,
    )


def _affine(source: Source, coordinate_system: str) -> NDArray[np.float64] | None:
    """Return the affine from stored coordinates to the grid's system, or None for the identity (P17)."""
    if source.element is None:
        return None
    affines = source.element.affines
    if coordinate_system not in affines:
        raise GridError(
            f"the element {source.path} has no transformation to {coordinate_system!r}; it has them to "
            f"{', '.join(sorted(affines)) or 'no coordinate system'}: name one with --coordinate-system"
        )
    affine = affines[coordinate_system]
    return None if is_identity(affine) else affine


def _control_rule(source: Source) -> Callable[[pa.Array], NDArray[np.bool_]]:
    if not source.columns.features:
        raise ColumnError(f"{source.path} has no feature column, so controls cannot be told apart; name one")
    vendor = next((vendor for vendor in VENDORS if vendor.name == source.vendor), None)
    return lambda names: is_control(names, vendor)


def _attributes(
    source: Source, result: Result, options: BuildOptions, placement: Placement, coordinate_system: str
) -> dict[str, Any]:
    features = result.layout.features
    dropped = {key: count for key, count in result.staged.dropped.items() if count or key != "invalid"}
    added = points_attributes(
        result.built,
        coordinate_system=coordinate_system,
        affine=placement.affine,
        features=features,
        feature_levels=options.feature_levels,
        layouts=options.layouts,
        tiles_per_part=TILES_PER_PART,
        limit=options.wishes.limit,
        seed=options.seed,
        where=options.selection.where,
        dropped=Dropped(**dropped),  # type: ignore[typeddict-item]  # its keys are those of `Staged.dropped`
        created_with=f"puncta {version('puncta')}",
    )
    if source.element is None:
        axes = sorted(source.axes)
        cell = next((plan.name for plan in result.layout.columns if plan.source == source.columns.cell), None)
        base = points_attrs(
            axes, features[0] if features else None, cell, [identity_transformation(axes, coordinate_system)]
        )
        return {**base, **added}
    element = source.element
    instance = element.instance_key if element.instance_key in result.layout.schema.names else None
    key = features[0] if features else element.feature_key
    base = points_attrs(element.axes, key, instance, element.transformations)
    # What other programs have left there is theirs to keep.
    kept = {name: value for name, value in element.attrs.items() if name not in base}
    return {**kept, **base, **added}


def _report(
    source: Source,
    target: Target,
    result: Result,
    options: BuildOptions,
    clock: Clock,
    *,
    notes: tuple[str, ...],
    n_bytes: int,
) -> IndexReport:
    fit = fit_of(result.counts, options.wishes.limit)
    features = result.layout.features
    grid = result.built.grids[0]
    return IndexReport(
        path=target.address,
        words=source.words,
        n_rows=result.staged.n_rows,
        n_source_rows=result.staged.n_source_rows,
        dropped={reason: count for reason, count in result.staged.dropped.items() if count},
        n_features=len(result.layout.coded[features[0]].values) if features else 0,
        levels=len(result.built.grids),
        tile_size=grid.tile_size,
        grid_shape=grid.shape,
        bytes=n_bytes,
        source_bytes=source.bytes,
        seconds=clock.seconds,
        fit=fit.case,
        fit_text=fit.text,
        notes=(*notes, *result.notes),
    )


def _require_space(source: Source, options: BuildOptions, target: Path, scratch: Path) -> None:
    """Hold what the build needs against what is free, before anything is written (P22)."""
    rows = source.n_rows if source.n_rows is not None else source.bytes // 30
    row_bytes = row_bytes_of(source.schema)
    copies = _COPIES[options.feature_levels] if options.feature_order else 1.4
    buckets = int(rows * row_bytes * (2 + len(source.columns.features)))
    result = int(rows * row_bytes * _RESULT_SHARE * copies)
    if scratch.stat().st_dev == target.stat().st_dev:
        require_space(target, buckets + result, "the index with its buckets")
        return
    require_space(scratch, buckets, "the folder of buckets")
    require_space(target, result, "the index")


def _check_numbers(*, limit: int, max_levels: int | None, max_tiles: int, workers: int | None) -> None:
    named = {"limit": limit, "max_levels": max_levels, "max_tiles": max_tiles, "workers": workers}
    for name, value in named.items():
        if value is not None and value < 1:
            raise QueryError(f"{name} is {value}; it must be at least 1")


def _check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise QueryError(f"{name} is {value!r}; it must be one of {', '.join(choices)}")


def _names(value: str | Sequence[str] | None) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)


def _numbers(value: float | Sequence[float] | None) -> tuple[float, ...] | None:
    if value is None:
        return None
    return (float(value),) if isinstance(value, int | float) else tuple(float(one) for one in value)
