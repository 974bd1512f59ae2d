"""Grids against the RFC's worked tables, numpy's C order, and exact arithmetic."""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from puncta.errors import GridError
from puncta.points import Grid

type Draw = Callable[..., Any]
"""`draw` of a composite strategy, or of data."""

CUBES = """
0  32 32 32     7 8 8   -
1  64 64 64     4 4 4   zyx
2  128 128 128  2 2 2   zyx
3  256 256 256  1 1 1   zyx
"""
FLAT_TILES = """
0   1 10 100     10 10 10  -
1   2 10 100     5 10 10   z
2   4 10 100     3 10 10   z
3   8 10 100     2 10 10   z
4   16 20 100    1 5 10    zy
5   16 40 100    1 3 10    y
6   16 80 100    1 2 10    y
7   16 160 200   1 1 5     yx
8   16 160 400   1 1 3     x
9   16 160 800   1 1 2     x
10  16 160 1600  1 1 1     x
"""
CUBES_IN_A_SLAB = """
0  10 10 10     1 10 100  -
1  10 20 20     1 5 50    yx
2  10 40 40     1 3 25    yx
3  10 80 80     1 2 13    yx
4  10 160 160   1 1 7     yx
5  10 160 320   1 1 4     x
6  10 160 640   1 1 2     x
7  10 160 1280  1 1 1     x
"""


def row_of(line: str) -> tuple[tuple[float, ...], tuple[int, ...], str]:
    """Return tile size, number of tiles and merged axes of a row of a table."""
    words = line.split()
    return tuple(map(float, words[1:4])), tuple(map(int, words[4:7])), words[7].strip("-")


def grid(shape: Sequence[int], size: Sequence[float], origin: Sequence[float] | None = None) -> Grid:
    axes = ("z", "y", "x")[-len(shape) :]
    return Grid(
        axes=axes, origin=tuple(origin or [0.0] * len(shape)), tile_size=tuple(size), shape=tuple(map(int, shape))
    )


@pytest.mark.parametrize("table", [CUBES, FLAT_TILES, CUBES_IN_A_SLAB])
def test_the_worked_tables_of_the_rfc_follow_from_their_first_row(table: str) -> None:
    rows = [row_of(line) for line in table.strip().splitlines()]
    levels = list(grid(rows[0][1], rows[0][0]).pyramid())
    assert [(level.tile_size, level.shape) for level in levels] == [(size, shape) for size, shape, _ in rows]
    merged = ["".join(np.compress(level.merged_axes(), level.axes)) for level in levels]
    assert ["", *merged[:-1]] == [axes for _, _, axes in rows]
    assert merged[-1] == ""


@pytest.mark.parametrize("table", [CUBES, FLAT_TILES, CUBES_IN_A_SLAB])
def test_the_worked_tables_hold_in_any_order_of_the_axes(table: str) -> None:
    rows = [row_of(line) for line in table.strip().splitlines()]
    first = Grid(axes=("x", "y", "z"), origin=(0, 0, 0), tile_size=rows[0][0][::-1], shape=rows[0][1][::-1])
    assert [level.tile_size[::-1] for level in first.pyramid()] == [size for size, _, _ in rows]


def test_scales_are_two_along_merged_axes_and_one_along_others() -> None:
    levels = list(grid((10, 10, 10), (1, 10, 100)).pyramid())
    assert levels[4].scale_from(levels[3]) == (2.0, 2.0, 1.0)
    assert levels[1].scale_from(levels[0]) == (2.0, 1.0, 1.0)


def test_a_pyramid_stops_earlier_when_asked() -> None:
    assert len(list(grid((8, 8), (1, 1)).pyramid(2))) == 2
    assert len(list(grid((8, 8), (1, 1)).pyramid(1))) == 1
    assert len(list(grid((8, 8), (1, 1)).pyramid(9))) == 4


shapes = st.lists(st.integers(1, 6), min_size=1, max_size=3)


@given(st.permutations(["x", "y", "z"]), st.tuples(*[st.integers(1, 6)] * 3))
def test_tile_ids_are_in_c_order_of_the_declared_axes(axes: list[str], shape: tuple[int, int, int]) -> None:
    made = Grid(axes=tuple(axes), origin=(5, 6, 7), tile_size=(1, 2, 3), shape=shape)
    tiles = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), axis=-1).reshape(-1, 3)
    centres = (tiles + 0.5) * [1, 2, 3] + [5, 6, 7]
    np.testing.assert_array_equal(made.tile_ids(centres), np.ravel_multi_index(tuple(tiles.T), shape))
    np.testing.assert_array_equal(made.tile_coordinates(np.arange(made.n_tiles)), tiles)
    assert made.n_tiles == math.prod(shape)


@st.composite
def dyadic_grids(draw: st.DrawFn) -> Grid:
    """Return a grid whose tile borders are exact in float64, negative origins included."""
    shape = draw(shapes)
    size = [draw(st.sampled_from([0.25, 0.5, 1.0, 2.0, 8.0])) for _ in shape]
    origin = [draw(st.integers(-64, 64)) / 4 for _ in shape]
    return grid(shape, size, origin)


@st.composite
def any_grids(draw: st.DrawFn) -> Grid:
    """Return a grid whose tile borders are not exact."""
    shape = draw(shapes)
    size = [draw(st.floats(0.01, 300)) for _ in shape]
    origin = [draw(st.floats(-1e5, 1e5)) for _ in shape]
    return grid(shape, size, origin)


def edges(made: Grid, axis: int) -> list[float]:
    return [made.origin[axis] + made.tile_size[axis] * step for step in range(made.shape[axis] + 1)]


def draw_points(draw: Draw, made: Grid) -> NDArray[np.float32]:
    """Return float32 points of the grid, many of them as near to a tile border as float32 goes."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    columns = []
    for axis in range(len(made.shape)):
        low, high = edges(made, axis)[0], edges(made, axis)[-1]
        near = rng.choice(np.asarray(edges(made, axis), dtype=np.float32), 40)
        columns.append(np.where(rng.random(40) < 0.5, near, rng.uniform(low, high, 40).astype(np.float32)))
    points: NDArray[np.float32] = np.stack(columns, axis=1).astype(np.float32)
    tiles = np.floor((points.astype(np.float64) - made.origin) / made.tile_size)
    return points[((tiles >= 0) & (tiles < made.shape)).all(axis=1)]


def draw_box(draw: Draw, made: Grid, points: NDArray[np.float32]) -> tuple[list[float], list[float]]:
    """Return a box whose bounds are tile borders, coordinates of points, infinite or anything else."""
    lower, upper = [], []
    for axis in range(len(made.shape)):
        known = [*edges(made, axis), *points[:, axis].tolist(), -math.inf, math.inf]
        span = edges(made, axis)[-1] - edges(made, axis)[0]
        free = st.floats(edges(made, axis)[0] - span, edges(made, axis)[-1] + span)
        bounds = sorted(draw(st.tuples(*[st.sampled_from(known) | free] * 2)))
        lower.append(bounds[0])
        upper.append(bounds[1])
    return lower, upper


@given(st.data(), dyadic_grids() | any_grids())
def test_no_point_of_a_box_lies_in_a_tile_that_is_not_listed(data: st.DataObject, made: Grid) -> None:
    points = draw_points(data.draw, made)
    lower, upper = draw_box(data.draw, made, points)
    inside = ((points.astype(np.float64) >= lower) & (points.astype(np.float64) < upper)).all(axis=1)
    listed = made.tiles_in((lower, upper))
    assert listed.dtype == np.int64
    assert (np.diff(listed) > 0).all()
    assert set(made.tile_ids(points[inside])) <= set(listed)


@given(st.data(), dyadic_grids())
def test_the_listed_tiles_are_those_that_meet_the_box(data: st.DataObject, made: Grid) -> None:
    lower, upper = draw_box(data.draw, made, np.zeros((0, len(made.shape)), dtype=np.float32))
    meeting, touching = set(), set()
    for tile, place in enumerate(product(*map(range, made.shape))):
        begin = [o + s * t for o, s, t in zip(made.origin, made.tile_size, place, strict=True)]
        end = [o + s * (t + 1) for o, s, t in zip(made.origin, made.tile_size, place, strict=True)]
        sides = list(zip(begin, end, lower, upper, strict=True))
        meeting |= {tile for _ in range(all(max(b, lo) < min(e, up) for b, e, lo, up in sides))}
        # the last float below a border may be rounded onto it: a point there would lie in the tile behind (P1)
        touching |= {tile for _ in range(all(lo < up and lo < e and b <= up for b, e, lo, up in sides))}
    assert meeting <= set(made.tiles_in((lower, upper)).tolist()) <= touching


def test_a_box_that_ends_on_a_tile_border_leaves_out_the_tile_behind_it() -> None:
    made = grid((1, 4), (1, 10))
    assert made.tiles_in({"x": (0, 10)}).tolist() == [0]
    assert made.tiles_in({"x": (0, np.nextafter(10, 11))}).tolist() == [0, 1]
    assert made.tiles_in({"x": (10, 30)}).tolist() == [1, 2]
    assert made.tiles_in({"x": (-10, -1)}).tolist() == []
    assert made.tiles_in({}).tolist() == [0, 1, 2, 3]
    assert made.tiles_in({"x": (5, 5)}).tolist() == []
    assert made.tiles_in({"x": (100, math.inf)}).tolist() == []


@given(st.data(), dyadic_grids())
def test_every_point_lies_in_exactly_one_tile_of_half_open_intervals(data: st.DataObject, made: Grid) -> None:
    points = draw_points(data.draw, made)
    for point, tile in zip(points, made.tiles_of(points), strict=True):
        for axis, value in enumerate(point.tolist()):
            origin, size = Fraction(made.origin[axis]), Fraction(made.tile_size[axis])
            holds = [origin + size * t <= Fraction(value) < origin + size * (t + 1) for t in range(made.shape[axis])]
            assert np.flatnonzero(holds).tolist() == [tile[axis]]


@given(st.data(), any_grids())
def test_tiles_are_computed_in_float64_with_a_true_division(data: st.DataObject, made: Grid) -> None:
    points = draw_points(data.draw, made)
    expected = [
        [math.floor((float(p) - o) / s) for p, o, s in zip(point, made.origin, made.tile_size, strict=True)]
        for point in points
    ]
    assert made.tiles_of(points).tolist() == expected


@given(st.integers(1, 3).flatmap(lambda d: st.lists(st.tuples(*[st.floats(-1e3, 1e3, width=32)] * d), min_size=1)))
@example([(0.0,), (30.0,)])
def test_far_corner_lies_in_the_last_tile(points: list[tuple[float, ...]]) -> None:
    values = np.asarray(points, dtype=np.float32)
    lower, upper = values.min(axis=0).tolist(), values.max(axis=0).tolist()
    axes = ("x", "y", "z")[: values.shape[1]]
    made = Grid.covering(lower, upper, axes=axes, tile_size=(10.0,) * len(axes))
    assert made.tile_ids([upper]).tolist() == [made.n_tiles - 1]
    assert made.tile_ids([lower]).tolist() == [0]
    assert made.tile_ids(values).max() < made.n_tiles


def test_a_point_on_a_multiple_of_the_tile_size_needs_one_more_tile() -> None:
    assert Grid.covering((0,), (30,), axes=("x",), tile_size=(10,)).shape == (4,)
    assert Grid.covering((0,), (np.nextafter(30, 0),), axes=("x",), tile_size=(10,)).shape == (3,)
    assert Grid.covering((5,), (5,), axes=("x",), tile_size=(10,)).shape == (1,)
    assert Grid.covering((5,), (31,), axes=("x",), tile_size=(10,), origin=(-7,)).shape == (4,)


def test_a_grid_that_begins_above_a_point_is_refused() -> None:
    with pytest.raises(GridError, match="lower the origin"):
        Grid.covering((0, 0), (9, 9), axes=("x", "y"), tile_size=(3, 3), origin=(0, 1))


@given(st.tuples(*[st.integers(1, 9)] * 3), st.tuples(*[st.sampled_from([1.0, 1.5, 2.0, 5.0])] * 3))
@example((7, 8, 8), (32.0, 32.0, 32.0))
def test_parents_are_the_halves_of_the_coordinates_along_merged_axes(
    shape: tuple[int, ...], size: tuple[float, ...]
) -> None:
    made = grid(shape, size)
    if made.n_tiles == 1:
        with pytest.raises(GridError, match="single tile"):
            made.parents()
        return
    coarser, merged = made.coarser(), made.merged_axes()
    expected = [
        np.ravel_multi_index([t // 2 if m else t for t, m in zip(place, merged, strict=True)], coarser.shape)
        for place in product(*map(range, shape))
    ]
    assert made.parents().tolist() == expected
    assert made.parents().dtype == np.uint32


@given(st.data(), dyadic_grids())
def test_a_parent_holds_the_points_of_its_children(data: st.DataObject, made: Grid) -> None:
    points = draw_points(data.draw, made)
    for finer, coarser in zip(list(made.pyramid()), list(made.pyramid())[1:], strict=False):
        np.testing.assert_array_equal(finer.parents()[finer.tile_ids(points)], coarser.tile_ids(points))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tile_size": (0, 1)}, "tile size along y is 0"),
        ({"tile_size": (1, -2)}, "tile size along x is -2"),
        ({"tile_size": (1, math.nan)}, "tile size along x is nan"),
        ({"tile_size": (math.inf, 1)}, "tile size along y is inf"),
        ({"origin": (0, math.inf)}, "origin along x is inf"),
        ({"shape": (0, 1)}, "0 tiles along y"),
        ({"shape": (1,)}, "one origin, tile size and number"),
        ({"axes": ("x", "x")}, "repeat a name"),
        ({"axes": (), "origin": (), "tile_size": (), "shape": ()}, "its axes"),
        ({"shape": (2**16, 2**17)}, "use larger tiles"),
    ],
)
def test_a_bad_grid_is_refused(changes: dict[str, tuple[float, ...]], words: str) -> None:
    good = {"axes": ("y", "x"), "origin": (0, 0), "tile_size": (1, 1), "shape": (1, 1)}
    with pytest.raises(GridError, match=words):
        Grid(**{**good, **changes})  # type: ignore[arg-type]  # what a caller without types may do


@pytest.mark.parametrize("bad", [[-0.5, 1], [1, 40], [math.nan, 1], [1, math.inf]])
def test_points_outside_the_grid_are_counted_and_one_is_named(bad: list[float]) -> None:
    with pytest.raises(GridError, match=r"2 of 3 points lie outside the grid.*first: row 1"):
        grid((2, 4), (10, 10)).tiles_of(np.asarray([[1, 1], bad, bad]))


def test_integer_coordinates_have_tiles_too() -> None:
    assert grid((2, 4), (10, 10)).tile_ids(np.asarray([[19, 39], [0, 10]], dtype=np.int16)).tolist() == [7, 1]


@pytest.mark.parametrize(
    ("box", "words"),
    [
        ({"t": (0, 1)}, "names the axis 't'; the axes are y, x"),
        (([0, 0, 0], [1, 1, 1]), "2 x 2"),
        ({"x": (1, 0)}, "along x"),
        ({"y": (math.nan, 1)}, "along y"),
        ({"y": (0, 1, 2)}, "along y"),
        ({"y": 5}, "pairs of numbers"),
        ({"y": ("a", "b")}, "pairs of numbers"),
        ((0, 0, 5, 5), "pairs of numbers"),
        (7, "pairs of numbers"),
    ],
)
def test_a_bad_box_is_refused(box: object, words: str) -> None:
    with pytest.raises(GridError, match=words):
        grid((2, 4), (10, 10)).tiles_in(box)  # type: ignore[arg-type]  # what a caller without types may do
