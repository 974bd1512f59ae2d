"""An indexed points element, opened for questions."""

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, Unpack

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from puncta.errors import ColumnError, GridError, QueryError
from puncta.points._arrow import numpy_of
from puncta.points._categories import Vocabulary
from puncta.points._columns import Columns
from puncta.points._element import Element
from puncta.points._find import Form, check_fresh, find_element, form_of, require_indexed, transformations_of
from puncta.points._footers import Footers
from puncta.points._grid import Box
from puncta.points._levels import Level, Source, levels_of
from puncta.points._query import Planner
from puncta.points._question import Asked, Count, Explanation, Question, Thinning
from puncta.points._region import region_of
from puncta.points._render import picture_shape, render_density, render_features
from puncta.spec.transformations import apply_affine, is_identity
from puncta.store._sizes import n_bytes_below

if TYPE_CHECKING:
    from pathlib import Path

    import dask.dataframe

# A picture shows a few points a pixel before they merge; more would only cost reading.
_POINTS_PER_PIXEL = 2


def open_points(
    path_or_url: str | os.PathLike[str],
    *,
    layout: Form | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> "Points":
    """Open an indexed points element for questions; reads its metadata, and no point.

    Args:
        path_or_url: The element (`study.zarr/points/transcripts`), or a store that has one: in a folder, in a zip
            archive (`study.zarr.zip/points/transcripts`), or at an `http(s)://`, `s3://`, `gs://` or `az://` URL of
            either.
        layout: `parquet` or `zarr`, for an element that has both; Parquet where it has it.
        storage_options: For a URL, handed to obstore unchanged: region, endpoint, token and others.

    Raises:
        MissingError: If nothing is there.
        NotIndexedError: If it has no spatial index; the message names the command that makes one.
        MetadataError: If its metadata breaks the schema; the message lists every problem.
        StaleIndexError: If the element's transformation has changed since it was indexed.
        QueryError: If it does not have the layout, or a storage option is unknown or given with a local path.
        StoreError: If it cannot be read.
        UnsupportedError: If it is of a form that is not read.

    """
    element = find_element(path_or_url, storage_options)
    require_indexed(element)
    return Points(element, form_of(element, layout))


class Points:
    """The points of a tissue, indexed: any region, feature or level at once.

    Reads are planned from the index and touch only the row groups that are needed. Every result is a `pyarrow.Table`
    whose schema metadata says, under `puncta` and as JSON, the level, the fraction, and whether it is complete.
    An object may be used from many threads, and pickled.
    """

    def __init__(self, element: Element, form: Form) -> None:
        index = element.attrs["spatial_index"]
        self._element = element
        self._source = Source(
            element=element, form=form, footers=Footers(element.files), vocabulary=Vocabulary(element)
        )
        self.location: str = element.location
        """Path or URL of the element."""
        self.attrs: dict[str, Any] = element.attrs
        """Attributes of the element, as stored."""
        self.axes: tuple[str, ...] = tuple(index["axes"])
        """Axes of the grid, in its order."""
        self.coordinate_system: str = index["coordinate_system"]
        """Coordinate system of the grid."""
        self.orders: list[str] = list(index["orders"])
        """Copies of the points: `spatial`, and `feature` where there is one."""
        self.layout: list[str] = list(index.get("layout", ["parquet"]))
        """How the points are stored."""
        self.feature_key: str | None = index.get("feature_key")
        """Primary feature column."""
        self.feature_levels: str | None = index.get("feature_levels", "all") if "feature" in self.orders else None
        """Which levels have a feature-major copy: `all`, `shared` or `none`."""
        self.limit: int | None = index.get("limit")
        """Points that the densest tile of a sampled level holds on average."""
        self.seed: int | None = index.get("seed")
        """Seed of the sampling."""
        self.systems: Mapping[str, NDArray[np.float64]] = transformations_of(element, self.axes)
        """Affine from stored coordinates to each coordinate system, shape (d, d + 1)."""
        self._to_grid = check_fresh(element, self.systems)
        self.levels: tuple[Level, ...] = levels_of(self._source)
        """The levels, the finest first."""
        self.feature_keys: tuple[str, ...] = tuple(
            dict.fromkeys([*([self.feature_key] if self.feature_key else []), *self.levels[0].by])
        )
        """Feature columns, the primary one first."""

    def __repr__(self) -> str:
        name = self.location.rstrip("/").rpartition("/")[2]
        return f"<Points {name!r}: {self.n_rows:,} points, {len(self.levels)} levels, axes {self.axes}>"

    def __reduce__(self) -> tuple[type["Points"], tuple[Element, Form]]:
        return Points, (self._element, self._source.form)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is held open; so that points can stand in a `with` as other readers do."""

    def __len__(self) -> int:
        return self.n_rows

    @property
    def path(self) -> "Path":
        """Folder of the element; `UnsupportedError` where it is no folder of this machine: see `location`."""
        return self._element.folder

    @property
    def store(self) -> "Path":
        """Folder of the store that it lies in; else as `path`."""
        return self._element.store or self._element.folder

    @property
    def bytes(self) -> int:
        """Bytes of all files of the element; `UnsupportedError` on a web server, which cannot list them."""
        return n_bytes_below(self._element.files, self._element.key)

    @property
    def n_rows(self) -> int:
        """Number of points."""
        return self.levels[0].n_rows

    @cached_property
    def schema(self) -> pa.Schema:
        """Arrow schema of the rows as they are stored."""
        return self.levels[0].stored.schema()

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns, in the order of the files."""
        return tuple(self.schema.names)

    @property
    def features(self) -> list[str]:
        """Values of the primary feature column in the order of its categories, unused ones included."""
        return [] if self.feature_key is None else list(self._columns.categories(self.feature_key).names)

    @cached_property
    def _columns(self) -> Columns:
        return Columns(self._element, self._source.vocabulary, lambda: self.schema, self.feature_keys)

    @cached_property
    def _planner(self) -> Planner:
        return Planner(self.levels, self._columns, primary=self.feature_key, system=self.coordinate_system)

    def query(
        self,
        *,
        box: Box | None = None,
        polygon: object | None = None,
        coordinate_system: str | None = None,
        features: str | Sequence[str] | None = None,
        feature_key: str | None = None,
        where: str | Sequence[str] = (),
        level: int | None = None,
        budget: int | None = None,
        thinning: Thinning = "equal",
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """Return the points of a region, of features, or of a zoom level.

        Holds the row groups that are touched, and the answer.

        Args:
            box: Half-open box: `{"x": (lo, hi), ...}`, an axis left out unbounded, or two corners.
            polygon: shapely geometry, WKT or GeoJSON over x and y; its border is part of it.
            coordinate_system: System that box and polygon are in; None for the stored coordinates. The coordinates
                that come back are always the stored ones.
            features: Values of the feature column.
            feature_key: Which feature column; the primary one.
            where: SQL expressions such as `qv >= 20`.
            level: Level to read; 0, the one with all points, unless there is a budget.
            budget: Rows to come back at the most: the finest level expected to fit, or the next finer one thinned.
            thinning: Show several features of a sampled level at one common fraction (`equal`), so that their
                relative abundance stands, or each at its own (`own`).
            columns: Columns to come back, in this order; all.

        Returns:
            The rows. The schema metadata says, under `puncta`, what they are.

        Raises:
            GridError: If the box is none.
            QueryError: If the question cannot be answered as it was put.
            ColumnError: If a column is not there.
            StoreError: If a file is missing or damaged.

        """
        asked = self._question(
            box=box,
            polygon=polygon,
            coordinate_system=coordinate_system,
            features=features,
            feature_key=feature_key,
            where=where,
            level=level,
            budget=budget,
            thinning=thinning,
            columns=columns,
        )
        return self._planner.answer(asked, self.columns)

    def count(self, **asked: Unpack[Asked]) -> Count:
        """Return how many points there are, reading as little as possible; arguments as in `query`, without a budget.

        Tiles that lie wholly inside a box are counted from the offsets. At a sampled level the number is an estimate.
        """
        if asked.get("budget") is not None:
            raise QueryError("a count has no budget: leave it out, or name a level to estimate from")
        return self._planner.count(self._question(**asked))

    def explain(self, **asked: Unpack[Asked]) -> Explanation:
        """Return what `query` would read with these arguments: from offsets and footers, without reading a point."""
        return self._planner.explain(self._question(**asked), self.columns)

    def read_tile(self, level: int, tile: int) -> pa.Table:
        """Return the points of one tile of a level, in the tile order.

        Raises:
            QueryError: If there is no such level or tile.

        """
        chosen = self._level(level)
        if not 0 <= tile < chosen.grid.n_tiles:
            raise QueryError(f"level {level} has tiles 0 to {chosen.grid.n_tiles - 1}; there is no tile {tile}")
        return self._planner.read_tile(chosen, tile, self.columns)

    def read_feature(self, level: int, name: str) -> pa.Table:
        """Return the points of one feature at a level, from the feature-major copy where there is one."""
        return self.query(features=[name], level=self._level(level).number, thinning="own")

    def render(
        self,
        *,
        box: Box | None = None,
        coordinate_system: str | None = None,
        features: str | Sequence[str] | None = None,
        width: int = 1600,
    ) -> NDArray[np.uint8]:
        """Return a picture of the points, drawn from the level that fits: density, or one colour a feature.

        Args:
            box: Region, in stored coordinates or in `coordinate_system`; everything.
            coordinate_system: System of the box and of the picture.
            features: Features to draw; density of all points without.
            width: Pixels across.

        Returns:
            RGBA, shape (height, width, 4), uint8; y grows downward.

        """
        lower, upper = self._frame(box, coordinate_system)
        height, _ = picture_shape(lower, upper, width)
        chosen = [features] if isinstance(features, str) else features
        names = None if chosen is None else list(chosen)
        key = [] if names is None or self.feature_key is None else [self.feature_key]
        table = self.query(
            box=box,
            coordinate_system=coordinate_system,
            features=names,
            budget=max(width * height * _POINTS_PER_PIXEL, 1),
            columns=[*sorted(self.axes), *key],
        )
        x, y = self._placed(table, coordinate_system)
        if names is None or self.feature_key is None:
            return render_density(x, y, lower=lower, upper=upper, width=width)
        codes = self._columns.categories(self.feature_key).codes(table.column(self.feature_key))
        position = np.full(len(self.features) + 1, -1)
        for at, name in enumerate(names):
            position[self._columns.categories(self.feature_key).code_of[name]] = at
        return render_features(x, y, position[codes], n_features=len(names), lower=lower, upper=upper, width=width)

    def to_element(self, table: pa.Table) -> "dask.dataframe.DataFrame":
        """Return a SpatialData points element of a result, with the transformations of this element.

        Needs `puncta[spatialdata]`.

        Raises:
            ColumnError: If the result lacks a coordinate.

        """
        missing = [axis for axis in sorted(self.axes) if axis not in table.column_names]
        if missing:
            raise ColumnError(
                f"the result lacks {len(missing)} of the coordinates {', '.join(sorted(self.axes))} (first: "
                f"{missing[0]!r}), so its points have no place; ask for these columns too"
            )
        # takes seconds to import, and only whoever goes on with spatialdata needs it
        from puncta.points._spatialdata import element_of  # noqa: PLC0415

        instance = self.attrs.get("spatialdata_attrs", {}).get("instance_key")
        return element_of(
            table, axes=self.axes, systems=self.systems, feature_key=self.feature_key, instance_key=instance
        )

    def _question(self, **asked: Unpack[Asked]) -> Question:
        """Return what is asked, checked."""
        level, budget, thinning = asked.get("level"), asked.get("budget"), asked.get("thinning", "equal")
        feature_key, where, system = asked.get("feature_key"), asked.get("where", ()), asked.get("coordinate_system")
        if level is not None:
            self._level(level)
        if level is not None and budget is not None:
            raise QueryError("a level and a budget were both given; give one of them")
        if budget is not None and budget < 1:
            raise QueryError(f"the budget is {budget}; it must be at least 1")
        if thinning not in {"equal", "own"}:
            raise QueryError(f"the thinning {thinning!r} is neither 'equal' nor 'own'")
        columns = _as_tuple(asked.get("columns"))
        if columns == ():
            raise QueryError("no column is asked for, and rows without columns cannot be counted; use count")
        key = feature_key if feature_key is not None else self.feature_key
        if feature_key is not None and feature_key not in self.feature_keys:
            raise QueryError(
                f"{feature_key!r} is no feature column of this index; it has {', '.join(self.feature_keys) or 'none'}"
            )
        return Question(
            region=region_of(
                self.axes,
                box=asked.get("box"),
                polygon=asked.get("polygon"),
                to_asked=self._affine_to(system),
                to_grid=self._to_grid,
            ),
            features=_as_tuple(asked.get("features")),
            feature_key=key,
            where=(where,) if isinstance(where, str) else tuple(where),
            level=level,
            budget=budget,
            thinning=thinning,
            columns=columns,
        )

    def _affine_to(self, coordinate_system: str | None) -> NDArray[np.float64] | None:
        if coordinate_system is None:
            return None
        if coordinate_system == self.coordinate_system:
            return self._to_grid
        if coordinate_system not in self.systems:
            raise QueryError(
                f"the element has no coordinate system {coordinate_system!r}; it has "
                f"{', '.join(sorted({*self.systems, self.coordinate_system}))}"
            )
        affine = self.systems[coordinate_system]
        return None if is_identity(affine) else affine

    def _level(self, number: int) -> Level:
        if not 0 <= number < len(self.levels):
            raise QueryError(f"there is no level {number}; the levels are 0 to {len(self.levels) - 1}")
        return self.levels[number]

    def _frame(self, box: Box | None, coordinate_system: str | None) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return the corners of a picture over x and y: the box, cut to where there are tiles."""
        grid = self.levels[0].grid
        whole = region_of(
            self.axes, box=box, polygon=None, to_asked=self._affine_to(coordinate_system), to_grid=self._to_grid
        ).within(grid)
        at = [self.axes.index(axis) for axis in ("x", "y")]
        lower, upper = ((float(corner[at[0]]), float(corner[at[1]])) for corner in whole)
        if not (upper[0] > lower[0] and upper[1] > lower[1]):
            raise GridError(f"the box from {lower} to {upper} shows nothing; the points lie elsewhere")
        return lower, upper

    def _placed(
        self, table: pa.Table, coordinate_system: str | None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return x and y of rows in a coordinate system."""
        stored = [numpy_of(table.column(axis)) for axis in self.axes]
        affine = self._affine_to(coordinate_system)
        placed = stored if affine is None else apply_affine(affine, stored)
        x, y = (placed[self.axes.index(axis)].astype(np.float64) for axis in ("x", "y"))
        return x, y


def _as_tuple(value: str | Sequence[str] | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    return (value,) if isinstance(value, str) else tuple(value)
