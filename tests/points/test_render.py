"""Pictures of points against counts made point by point, and the laws that every picture keeps."""

import stat
from fractions import Fraction
from math import floor
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from puncta.errors import MissingError, OverwriteError, QueryError
from puncta.points._picture import write_png
from puncta.points._render import (
    MAX_SIDE,
    count_pixels,
    feature_colors,
    legend,
    picture_shape,
    render_density,
    render_features,
)

GROUND = (0x10, 0x14, 0x18, 255)

coordinates = st.lists(st.floats(-2, 12) | st.floats(), max_size=30)
points = st.lists(st.tuples(st.floats(-2, 12), st.floats(-2, 12)), max_size=30)


def lit(image: NDArray[np.uint8]) -> NDArray[np.bool_]:
    return np.asarray((image != np.array(GROUND, dtype=np.uint8)).any(axis=2))


def brightness(image: NDArray[np.uint8]) -> NDArray[np.int64]:
    return image[..., :3].astype(np.int64).sum(axis=2)


def columns(pairs: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in pairs], [y for _, y in pairs]


def scattered(n: int, seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    x, y = np.random.default_rng(seed).normal(50, 15, size=(2, n))
    return x, y


@given(points, st.integers(1, 40))
def test_each_pixel_counts_the_points_that_exact_arithmetic_puts_there(
    pairs: list[tuple[float, float]], width: int
) -> None:
    eighths = [(round(x * 8) / 8, round(y * 8) / 8) for x, y in pairs]
    counts = count_pixels(*columns(eighths), lower=(0, 0), upper=(8, 4), width=width)
    expected = np.zeros_like(counts)
    for x, y in eighths:
        if 0 <= x < 8 and 0 <= y < 4:
            row, column = (Fraction(y) * counts.shape[0] / 4, Fraction(x) * width / 8)
            expected[floor(row), floor(column)] += 1
    # where the border of a pixel is no binary fraction, float64 may put a point that lies on it to either side
    assert counts.sum() == expected.sum()
    if width in {1, 2, 4, 8, 16, 32}:
        np.testing.assert_array_equal(counts, expected)


def test_counts_agree_with_a_histogram_by_numpy() -> None:
    x, y = scattered(5000)
    counts = count_pixels(x, y, lower=(0, 0), upper=(100, 50), width=60)
    inside = (x >= 0) & (x < 100) & (y >= 0) & (y < 50)
    expected, *_ = np.histogram2d(y[inside], x[inside], bins=(30, 60), range=((0, 50), (0, 100)))
    np.testing.assert_array_equal(counts, expected)


@given(points, st.integers(1, 64))
def test_each_point_lights_its_own_pixel(pairs: list[tuple[float, float]], width: int) -> None:
    x, y = columns(pairs)
    counts = count_pixels(x, y, lower=(0, 0), upper=(10, 7), width=width)
    density = render_density(x, y, lower=(0, 0), upper=(10, 7), width=width)
    features = render_features(x, y, [0] * len(x), n_features=1, lower=(0, 0), upper=(10, 7), width=width)
    assert lit(density)[counts > 0].all()
    assert lit(features)[counts > 0].all()


def test_y_grows_downwards_and_x_to_the_right() -> None:
    counts = count_pixels([1.5], [0.5], lower=(0, 0), upper=(4, 3), width=4)
    assert np.argwhere(counts).tolist() == [[0, 1]]


@pytest.mark.parametrize("point", [(10.0, 5.0), (5.0, 10.0), (10.0, 10.0), (-1e-9, 5.0), (np.nan, 5.0), (5.0, np.inf)])
def test_a_point_on_the_far_border_or_outside_is_not_drawn(point: tuple[float, float]) -> None:
    image = render_density(*columns([point]), lower=(0, 0), upper=(10, 10), width=20)
    assert not lit(image).any()


def test_the_last_float_below_the_far_border_lies_in_the_last_pixel() -> None:
    last = float(np.nextafter(0.7, 0))
    counts = count_pixels([last], [last], lower=(0.1, 0.1), upper=(0.7, 0.7), width=7)
    assert counts[-1, -1] == 1


def test_no_points_give_the_ground_alone() -> None:
    density = render_density([], [], lower=(0, 0), upper=(3, 2), width=30)
    features = render_features([], [], [], n_features=0, lower=(0, 0), upper=(3, 2), width=30)
    assert density.shape == features.shape == (20, 30, 4)
    assert not lit(density).any()
    assert not lit(features).any()


@given(st.permutations(range(40)), st.integers(1, 50))
def test_the_order_of_points_changes_nothing(order: list[int], width: int) -> None:
    x, y = scattered(40)
    codes = np.arange(40) % 7
    given_order, other_order = (
        [
            render_density(x[rows], y[rows], lower=(20, 20), upper=(80, 70), width=width),
            render_features(x[rows], y[rows], codes[rows], n_features=7, lower=(20, 20), upper=(80, 70), width=width),
        ]
        for rows in (slice(None), order)
    )
    np.testing.assert_array_equal(given_order[0], other_order[0])
    np.testing.assert_array_equal(given_order[1], other_order[1])


@given(coordinates, st.floats(0, 1e9), st.floats(0, 1e9), st.integers(1, 50), st.floats(0.001, 1e12))
def test_any_region_gives_an_opaque_picture(
    values: list[float], wide: float, high: float, width: int, weight: float
) -> None:
    image = render_density(values, values, lower=(0, 0), upper=(wide, high), width=width, weight=weight)
    assert image.shape == (*picture_shape((0, 0), (wide, high), width), 4)
    assert image.shape[1] == width
    assert 1 <= len(image) <= MAX_SIDE
    assert (image[..., 3] == 255).all()


@pytest.mark.parametrize("upper", [(0.0, 5.0), (5.0, 0.0), (0.0, 0.0)])
def test_a_region_of_no_extent_is_drawn_empty(upper: tuple[float, float]) -> None:
    density = render_density([0.0], [0.0], lower=(0, 0), upper=upper, width=9)
    features = render_features([0.0], [0.0], [0], n_features=1, lower=(0, 0), upper=upper, width=9)
    assert not lit(density).any()
    assert not lit(features).any()


def test_points_all_in_one_place_light_one_dot() -> None:
    image = render_density([5.0] * 100_000, [5.0] * 100_000, lower=(0, 0), upper=(10, 10), width=101)
    assert lit(image)[50, 50]
    assert lit(image).sum() <= 9


def test_a_lonely_point_is_seen_beyond_its_pixel() -> None:
    image = render_density([5.0], [5.0], lower=(0, 0), upper=(10, 10), width=1000)
    assert 9 <= lit(image).sum() <= 49


def test_more_points_are_never_darker() -> None:
    x = np.repeat(np.arange(8) + 0.5, 2 ** np.arange(8))
    image = render_density(x, np.full(len(x), 0.5), lower=(0, 0), upper=(8, 1), width=800)
    row = brightness(image)[50, 50::100]
    assert (np.diff(row) >= 0).all()
    assert row[-1] > row[0]


def test_a_hot_pixel_leaves_the_rest_visible() -> None:
    x, y = scattered(20_000)
    hot_x, hot_y = np.append(x, [5.0] * 10**6), np.append(y, [5.0] * 10**6)
    plain = render_density(x, y, lower=(0, 0), upper=(100, 100), width=100)
    hot = render_density(hot_x, hot_y, lower=(0, 0), upper=(100, 100), width=100)
    assert np.abs(brightness(plain)[40:60, 40:60] - brightness(hot)[40:60, 40:60]).max() <= 40


def test_a_lonely_point_of_a_sample_is_brighter() -> None:
    one, many = (
        render_density([5.0], [5.0], lower=(0, 0), upper=(10, 10), width=100, weight=weight) for weight in (1.0, 40.0)
    )
    assert brightness(many).max() > brightness(one).max()


@pytest.mark.parametrize(
    ("upper", "width", "height"),
    [((4, 3), 400, 300), ((3, 4), 1, 1), ((1e9, 1), 50, 1), ((1, 1e9), 1600, MAX_SIDE), ((5e-324, 1e308), 7, MAX_SIDE)],
)
def test_the_height_follows_the_region_within_bounds(upper: tuple[float, float], width: int, height: int) -> None:
    assert picture_shape((0, 0), upper, width) == (height, width)


@pytest.mark.parametrize("width", [0, -5, MAX_SIDE + 1, 10**12])
def test_a_width_that_cannot_be_drawn_is_refused(width: int) -> None:
    with pytest.raises(QueryError, match=f"{width} pixels"):
        render_density([], [], lower=(0, 0), upper=(1, 1), width=width)


@pytest.mark.parametrize("upper", [(-1.0, 1.0), (np.nan, 1.0), (np.inf, 1.0)])
def test_corners_that_bound_no_region_are_refused(upper: tuple[float, float]) -> None:
    with pytest.raises(QueryError, match="region"):
        render_density([], [], lower=(0, 0), upper=upper, width=5)


@pytest.mark.parametrize("weight", [0.0, -1.0, np.nan, np.inf])
def test_a_weight_that_is_no_number_of_points_is_refused(weight: float) -> None:
    with pytest.raises(QueryError, match="weight"):
        render_density([], [], lower=(0, 0), upper=(1, 1), width=5, weight=weight)


def test_coordinates_of_unequal_length_are_refused() -> None:
    with pytest.raises(QueryError, match="2 coordinates along x, but 1"):
        render_density([1, 2], [1], lower=(0, 0), upper=(3, 3), width=5)


@pytest.mark.parametrize(
    ("codes", "message"),
    [([0, 2], "1 of 2 .*row 1, code 2"), ([-1, 0], "row 0, code -1"), ([0], "1 codes for 2"), ([0.0, 1.0], "float64")],
)
def test_codes_that_name_no_feature_are_refused(codes: list[float], message: str) -> None:
    with pytest.raises(QueryError, match=message):
        render_features([1, 2], [1, 2], codes, n_features=2, lower=(0, 0), upper=(3, 3), width=5)


@pytest.mark.parametrize("colors", [[[0, 0, 0]], [[0, 0, 256], [0, 0, 0]], [[0.5, 0, 0], [0, 0, 0]]])
def test_colours_that_do_not_fit_the_features_are_refused(colors: list[list[float]]) -> None:
    with pytest.raises(QueryError, match="colours"):
        render_features([], [], [], n_features=2, lower=(0, 0), upper=(3, 3), width=5, colors=colors)


def test_many_points_of_one_feature_have_its_colour() -> None:
    image = render_features(
        [0.5] * 99 + [1.5] * 99, [0.5] * 198, [0] * 99 + [5] * 99, n_features=6, lower=(0, 0), upper=(2, 1), width=200
    )
    got = image[50, [50, 150], :3].astype(int)
    assert np.abs(got - feature_colors(6)[[0, 5]]).max() <= 2


def test_more_points_cover_more_of_the_ground() -> None:
    x = np.repeat([0.5, 1.5, 2.5, 3.5], [1, 2, 4, 8])
    image = render_features(x, [0.5] * 15, [0] * 15, n_features=1, lower=(0, 0), upper=(4, 1), width=400)
    assert (np.diff(brightness(image)[50, 50::100]) > 0).all()


def test_two_features_in_a_pixel_mix() -> None:
    red, blue = (230, 40, 40), (40, 40, 230)
    image = render_features(
        [0.5] * 100, [0.5] * 100, [0, 1] * 50, n_features=2, lower=(0, 0), upper=(1, 1), width=1, colors=[red, blue]
    )
    mixed = image[0, 0]
    assert red[0] > mixed[0] > blue[0]
    assert red[2] < mixed[2] < blue[2]


@pytest.mark.parametrize("n_features", [0, 1, 12, 16, 17, 100])
def test_features_have_colours_of_their_own(n_features: int) -> None:
    colors = feature_colors(n_features)
    assert colors.shape == (n_features, 3)
    assert len({tuple(color) for color in colors.tolist()}) == n_features


def test_one_more_feature_recolours_none() -> None:
    np.testing.assert_array_equal(feature_colors(40)[:25], feature_colors(25))


def test_every_colour_reads_on_the_ground() -> None:
    signal = np.concatenate([[GROUND[:3]], feature_colors(60)]) / 255
    light = np.where(signal <= 0.04045, signal / 12.92, ((signal + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]
    assert ((light[1:] + 0.05) / (light[0] + 0.05)).min() >= 4


def test_the_legend_names_the_colours_that_are_drawn() -> None:
    assert legend(["Plp1", "Cux2"]) == [("Plp1", (0x72, 0xEA, 0xFC)), ("Cux2", (0xF0, 0x42, 0x72))]
    assert legend(["Plp1"], [[1, 2, 3]]) == [("Plp1", (1, 2, 3))]


def test_bands_of_a_large_picture_leave_no_seams(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = scattered(3000)
    whole = render_features(x, y, np.arange(3000) % 3, n_features=3, lower=(0, 0), upper=(100, 100), width=600)
    monkeypatch.setattr("puncta.points._render._BAND_PIXELS", 600 * 7)
    banded = render_features(x, y, np.arange(3000) % 3, n_features=3, lower=(0, 0), upper=(100, 100), width=600)
    np.testing.assert_array_equal(whole, banded)


def test_the_coronal_section_is_counted_whole(shared_data: Path) -> None:
    spots = pl.read_parquet(shared_data / "iss_mouse_coronal" / "spots.parquet", columns=["x", "y"])
    x, y = spots["x"].to_numpy(), spots["y"].to_numpy()
    counts = count_pixels(x, y, lower=(10000, 10000), upper=(12000, 12000), width=300)
    image = render_density(x, y, lower=(0, 0), upper=(20400, 27500), width=300)
    assert counts.sum() == 11_559
    assert 0.5 < lit(image).mean() < 0.99


def test_a_written_picture_reads_back_the_same(tmp_path: Path) -> None:
    image = render_density(*scattered(100), lower=(0, 0), upper=(100, 100), width=40)
    write_png(tmp_path / "a.png", image)
    write_png(tmp_path / "b.png", image)
    with Image.open(tmp_path / "a.png") as picture:
        np.testing.assert_array_equal(np.asarray(picture), image)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "b.png"]


def test_a_picture_is_replaced_only_on_request(tmp_path: Path) -> None:
    image = np.zeros((2, 3, 4), dtype=np.uint8)
    path = tmp_path / "a.png"
    path.write_text("precious")
    with pytest.raises(OverwriteError, match="--overwrite"):
        write_png(path, image)
    assert path.read_text() == "precious"
    write_png(path, image, overwrite=True)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_picture_may_be_read_by_those_who_may_read_other_new_files(tmp_path: Path) -> None:
    write_png(tmp_path / "a.png", np.zeros((2, 3, 3), dtype=np.uint8))
    (tmp_path / "other").touch()
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a.png", "other")]
    assert modes[0] == modes[1]


def test_a_picture_for_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="no folder"):
        write_png(tmp_path / "nowhere" / "a.png", np.zeros((2, 3, 4), dtype=np.uint8))


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 2), (0, 3, 4)])
def test_an_array_that_is_no_picture_is_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    with pytest.raises(QueryError, match="no picture"):
        write_png(tmp_path / "a.png", np.zeros(shape, dtype=np.uint8))
    assert not list(tmp_path.iterdir())
