"""Regions in any coordinate system against brute force by numpy and shapely."""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from puncta.errors import GridError, QueryError
from puncta.points import Grid
from puncta.points._region import Region, polygon_of, region_of

type Draw = Callable[..., Any]
"""`draw` of a composite strategy, or of data."""

type Floats = NDArray[np.float64]

COSINE, SINE = np.cos(np.pi / 6), np.sin(np.pi / 6)
AFFINES: dict[str, Floats | None] = {
    "stored": None,
    "scaled": np.asarray([[4.70588, 0, 0], [0, 4.70588, 0]], dtype=np.float64),
    "turned": np.asarray([[COSINE, -SINE, 300], [SINE, COSINE, -20.5]], dtype=np.float64),
    "swapped": np.asarray([[0, 1, 0], [1, 0, 0]], dtype=np.float64),
    "far": np.asarray([[0.2125, 0, -1e6], [0.01, -0.2125, 1e6]], dtype=np.float64),
}
SYSTEMS = list(product(AFFINES, AFFINES))
RNG = np.random.default_rng(0)
STORED = np.concatenate([RNG.uniform(-500, 700, (400, 2)), RNG.normal(40, 3, (200, 2))]).astype(np.float32)


def placed(affine: Floats | None) -> Floats:
    """Return the points in a system: products are summed from left to right, the translation last (P33)."""
    x, y = STORED.T.astype(np.float64)
    if affine is None:
        return np.stack([x, y], axis=1)
    return np.stack([x * row[0] + y * row[1] + row[2] for row in affine], axis=1)


def grid_over(points: Floats) -> Grid:
    lower, upper = points.min(axis=0), points.max(axis=0)
    return Grid.covering(lower.tolist(), upper.tolist(), axes=("x", "y"), tile_size=((upper - lower) / 7.3).tolist())


def region(asked: str, of_grid: str, **where: object) -> Region:
    return region_of(
        ("x", "y"),
        box=where.get("box"),  # type: ignore[arg-type]  # given by the tests below
        polygon=where.get("polygon"),
        to_asked=AFFINES[asked],
        to_grid=AFFINES[of_grid],
    )


def check(asked: Region, expected: NDArray[np.bool_], of_grid: str) -> None:
    """Hold a region against the points that brute force finds in it."""
    in_grid = placed(AFFINES[of_grid])
    grid = grid_over(in_grid)
    tiles = grid.tile_ids(in_grid)
    listed = asked.tiles_in(grid)
    if asked.tested_axes:
        np.testing.assert_array_equal(
            asked.contains([STORED[:, "xy".index(axis)] for axis in asked.tested_axes]), expected
        )
    else:
        assert expected.all()
    assert set(tiles[expected]) <= set(listed)
    inside = listed[asked.is_inside(grid, listed)]
    assert expected[np.isin(tiles, inside)].all()
    shares = asked.shares(grid, listed)
    assert ((shares >= 0) & (shares <= 1)).all()


def bounds(draw: Draw, values: Floats) -> tuple[float, float]:
    """Return two bounds: coordinates of points, floats right beside them, anything between, or infinite."""
    near = st.sampled_from(values.tolist()).flatmap(
        lambda value: st.sampled_from([value, np.nextafter(value, np.inf), np.nextafter(value, -np.inf)])
    )
    edge = st.sampled_from([values.min(), values.max(), np.nextafter(values.min(), np.inf)])
    free = st.floats(float(values.min()), float(values.max()))
    low, high = sorted([draw(near | edge | free), draw(near | edge | free | st.just(np.inf))])
    return (-np.inf if draw(st.integers(0, 4)) == 0 else float(low)), float(high)


@pytest.mark.parametrize(("asked", "of_grid"), SYSTEMS)
@given(st.data())
def test_a_box_holds_the_points_that_brute_force_finds(asked: str, of_grid: str, data: st.DataObject) -> None:
    points = placed(AFFINES[asked])
    box = {axis: bounds(data.draw, points[:, at]) for at, axis in enumerate("xy")}
    (x0, x1), (y0, y1) = box["x"], box["y"]
    expected = (points[:, 0] >= x0) & (points[:, 0] < x1) & (points[:, 1] >= y0) & (points[:, 1] < y1)
    check(region(asked, of_grid, box=box), expected, of_grid)


@pytest.mark.parametrize(("asked", "of_grid"), SYSTEMS)
@pytest.mark.parametrize("corner", ["lower", "upper"])
def test_the_outermost_point_is_in_the_smallest_box_around_it(asked: str, of_grid: str, corner: str) -> None:
    points = placed(AFFINES[asked])
    in_grid = placed(AFFINES[of_grid])
    for axis in (0, 1):
        row = int(in_grid[:, axis].argmin() if corner == "lower" else in_grid[:, axis].argmax())
        box = {name: (points[row, at], np.nextafter(points[row, at], np.inf)) for at, name in enumerate("xy")}
        check(region(asked, of_grid, box=box), (points == points[row]).all(axis=1), of_grid)


@pytest.mark.parametrize(("asked", "of_grid"), SYSTEMS)
def test_a_polygon_holds_the_points_that_shapely_finds(asked: str, of_grid: str) -> None:
    points = placed(AFFINES[asked])
    middle, span = np.median(points, axis=0), np.ptp(points, axis=0)
    corners = middle + np.asarray([[-0.4, -0.1], [0.3, -0.35], [0.05, 0.0], [0.3, 0.4], [-0.2, 0.2]]) * span
    shape = shapely.Polygon(corners, [middle + np.asarray([[-0.1, 0], [0, 0.02], [-0.05, 0.05]]) * span])
    expected = np.asarray([shape.intersects(shapely.Point(point)) for point in points])
    assert expected.any()
    check(region(asked, of_grid, polygon=shape), expected, of_grid)
    box = {"x": (float(middle[0]), np.inf)}
    check(region(asked, of_grid, polygon=shape, box=box), expected & (points[:, 0] >= middle[0]), of_grid)


def test_a_point_on_the_border_of_a_polygon_is_in_it() -> None:
    x, y = STORED.astype(np.float64).T
    shape = shapely.box(x[0], y[0], x[0] + 10, y[0] + 10)
    asked = region("stored", "scaled", polygon=shape)
    expected = (x >= x[0]) & (x <= x[0] + 10) & (y >= y[0]) & (y <= y[0] + 10)
    check(asked, expected, "scaled")
    other = shapely.box(x[0] - 10, y[0] - 10, x[0], y[0])
    assert region("stored", "stored", polygon=other).contains([STORED[:1, 0], STORED[:1, 1]]).tolist() == [True]


def test_an_axis_without_a_bound_is_not_looked_at() -> None:
    assert region("stored", "turned").tested_axes == ()
    assert region("stored", "turned", box={"y": (0, np.inf)}).tested_axes == ("y",)
    assert region("turned", "stored", box={"y": (0, np.inf)}).tested_axes == ("x", "y"), "both are turned into one y"
    assert region("stored", "stored", polygon=SQUARE).tested_axes == ("x", "y")


def test_no_region_is_everything() -> None:
    asked = region("stored", "turned")
    assert asked.is_everything
    check(asked, np.ones(len(STORED), dtype=bool), "turned")
    assert region("stored", "stored", box={"x": (-np.inf, np.inf)}).is_everything


@pytest.mark.parametrize("of_grid", list(AFFINES))
def test_a_box_beside_the_points_is_empty(of_grid: str) -> None:
    asked = region("stored", of_grid, box={"x": (5e5, 6e5)})
    check(asked, np.zeros(len(STORED), dtype=bool), of_grid)
    assert len(asked.tiles_in(grid_over(placed(AFFINES[of_grid])))) == 0


def test_tiles_within_a_box_are_known_to_be_inside() -> None:
    grid = Grid(axes=("x", "y"), origin=(0, 0), tile_size=(10, 10), shape=(6, 6))
    asked = region("stored", "stored", box={"x": (5, 45), "y": (0, 60)})
    tiles = asked.tiles_in(grid)
    inside = grid.tile_coordinates(tiles[asked.is_inside(grid, tiles)])
    assert sorted({tuple(tile) for tile in inside.tolist()}) == [(x, y) for x in (1, 2, 3) for y in range(6)]


SQUARE = shapely.box(0, 0, 2, 3)


@pytest.mark.parametrize(
    "form",
    [
        SQUARE,
        SQUARE.wkt,
        shapely.to_geojson(SQUARE),
        {"type": "Polygon", "coordinates": [[[0, 0], [2, 0], [2, 3], [0, 3], [0, 0]]]},
        {"type": "Feature", "properties": {}, "geometry": SQUARE.__geo_interface__},
        {
            "type": "FeatureCollection",
            "features": [{"type": "Feature", "geometry": SQUARE.__geo_interface__, "properties": None}],
        },
    ],
)
def test_a_polygon_may_come_in_any_of_the_documented_forms(form: object) -> None:
    assert polygon_of(form).equals(SQUARE)


@pytest.mark.parametrize(
    "form", ["POLYGON ((0 0", "{not json", '{"type": "Point"}', 7, "LINESTRING (0 0, 1 1)", "POLYGON EMPTY", {"a": 1}]
)
def test_what_is_no_polygon_is_refused(form: object) -> None:
    with pytest.raises(QueryError, match=r"no area|neither WKT nor GeoJSON"):
        polygon_of(form)


def test_a_box_over_an_unknown_axis_is_refused() -> None:
    with pytest.raises(GridError, match="the axes are x, y"):
        region("stored", "stored", box={"z": (0, 1)})


@given(st.integers(0, 2**32))
def test_a_tile_is_inside_if_and_only_if_no_number_in_it_lies_outside_of_the_box(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, origin = float(rng.choice([0.1, 0.3, 7.0, 25.0])), round(float(rng.uniform(-3, 3)), 2)
    grid = Grid(axes=("x", "y"), origin=(origin, 0.0), tile_size=(size, 1.0), shape=(8, 1))
    lower, upper = sorted(origin + size * rng.integers(0, 9, 2) + rng.choice([0.0, 0.0, size / 3]))
    region = region_of(("x", "y"), box={"x": (lower, upper)}, polygon=None, to_asked=None, to_grid=None)
    borders = origin + size * np.arange(9)
    near = np.concatenate([borders, np.nextafter(borders, -np.inf), np.nextafter(borders, np.inf), [lower, upper]])
    steps = [np.nextafter(near, direction) for direction in (-np.inf, np.inf)]
    numbers = np.concatenate([near, *steps, borders + size / 2])
    tiles = grid.unbounded_tiles_of(np.stack([numbers, np.zeros_like(numbers)], axis=1))[:, 0]
    found = region.is_inside(grid, np.arange(8))
    for tile in range(8):
        own = numbers[tiles == tile]
        # the numbers next to the borders decide: what lies between them is inside where these are
        assert found[tile] == bool(((own >= lower) & (own < upper)).all())
