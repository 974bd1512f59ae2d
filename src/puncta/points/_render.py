"""Pictures of points, as arrays: how dense they lie, or which feature lies where.

Pure: arrays in, arrays out. The light that points add up to is kept in whole numbers until it becomes a colour, so that
the order of the points changes nothing, not even the last bit. Nothing loops over points.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from puncta.errors import QueryError

type Rgb = tuple[int, int, int]
"""Red, green and blue as sRGB, each from 0 to 255."""

type Corner = tuple[float, float]
"""A corner of a region: x, then y."""

# No screen is larger, and no region, however long, asks for more memory than a picture of this many pixels squared.
MAX_SIDE = 8192

# The ground of the viewer's dark canvas, so that a picture and the page look alike.
_GROUND = "101418"

# From the ground over deep sea and shallow water to warm light: the lightness only rises, so the map also reads in grey
# and with any colour vision. Equal steps of the map are equal distances in Oklab, wherever the anchors lie.
_ANCHORS = "161D2B 1F355C 295B8C 388AA6 7AB7A9 D2D5A8 FFF4D8"
_SHADES = 1024

# A pixel with a single point starts here on the map: apart from the ground, and quiet.
_FIRST_SHADE = 0.16

# A few hot pixels must not leave the rest in the dark.
_ROBUST = 0.995

# Where no pixel holds more than a few points, none is drawn in the colour of a crowd; and a point that stands for many
# is as bright as they would be, but short of the brightest, which needs neighbours.
_CROWD, _LONELY = 6.0, 2.0

# The viewer's eight colours of molecules, then eight more that keep apart from them and from one another under
# simulated deuteranopia, protanopia and tritanopia; all have at least 4:1 on the ground.
_PALETTE = (
    "72EAFC F04272 FCD200 AED896 D2901E BA9CFC FCFCF0 5A8AAE A058E8 70B8B8 A07010 D0B810 E858D0 E8E888 708858 D04088"
)

# How much of the ground a middling pixel with points covers, and what a single point covers at least.
_COVERED, _FAINTEST = 0.8, 0.3

# A dot has a radius of at most this many pixels, or this share of the width in a small picture.
_LARGEST_DOT, _LARGEST_DOT_SHARE = 3.0, 1 / 300
_SMALLEST_DOT = 1.0
# Dots shrink until this many of them lie on one another: several where they are to flow into a smooth density, hardly
# any where each is to keep its colour.
_DENSITY_OVERLAP, _FEATURE_OVERLAP = 5.0, 0.5
_NEIGHBOURHOOD = 16

# Whole numbers stand for the weights of a dot's pixels and for Oklab values, so that sums are exact.
_DOT_STEPS, _LAB_STEPS = 16, 4096

# What needs many bytes a pixel is done for so many at a time.
_BAND_PIXELS = 2**20

# Oklab (B. Ottosson, 2020): linear sRGB to cone responses, and their cube roots to lightness and two opponents.
_TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
_TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)
_FROM_CONES, _FROM_LAB = np.linalg.inv(_TO_CONES), np.linalg.inv(_TO_LAB)

# Below these sRGB is a straight line (IEC 61966-2-1): the signal of a screen, and its light.
_LINEAR_SIGNAL, _LINEAR_LIGHT = 0.04045, 0.0031308


def render_density(
    x: ArrayLike, y: ArrayLike, *, lower: Corner, upper: Corner, width: int, weight: float = 1.0
) -> NDArray[np.uint8]:
    """Picture of how densely points lie, light where there are many, on a dark ground.

    Each point is a soft dot around its pixel, large enough to be seen where points are few, and to flow into its
    neighbours where they are many. The colours follow the logarithm of the light that adds up, from the median of the
    occupied pixels to their 99.5th percentile; so they compare places within a picture, not two pictures. Takes about
    25 bytes a pixel, besides those for the points.

    Args:
        x: Coordinates along x, shape (n,), any real dtype; those outside the region, or not a number, are left out.
        y: Coordinates along y, likewise.
        lower: Lower corner of the region, inclusive; it is the upper left one of the picture, as y grows downwards.
        upper: Upper corner, exclusive. A region of no extent holds no point and is drawn empty.
        width: Pixels along x. The height follows the region's aspect ratio, from 1 to `MAX_SIDE`; a region too long
            for that is drawn shortened.
        weight: Points that each given one stands for, such as 1 / fraction of a sampled level. It tells a lonely point
            of a sample from a lonely point; where points are many it changes nothing.

    Returns:
        Shape (height, width, 4), uint8: red, green, blue (sRGB) and an opacity of 255.

    Raises:
        QueryError: If a size, the weight or a corner is not usable, or the coordinates differ in length.

    """
    if not (math.isfinite(weight) and weight > 0):
        raise QueryError(f"the weight of a point is {weight}; it must be a finite number above zero")
    counts = count_pixels(x, y, lower=lower, upper=upper, width=width)
    dot = _dot(counts, _DENSITY_OVERLAP)
    light = _light_of(counts, dot)
    table = np.concatenate([_parsed(_GROUND), _color_map()])
    return _opaque(table[_shades(light, counts > 0, weight)])


def render_features(
    x: ArrayLike,
    y: ArrayLike,
    codes: ArrayLike,
    *,
    n_features: int,
    lower: Corner,
    upper: Corner,
    width: int,
    colors: ArrayLike | None = None,
) -> NDArray[np.uint8]:
    """Picture of which feature lies where, one colour a feature, on a dark ground.

    Every point is a dot that covers part of the ground: the more points, the less of it is left. Where features share
    a pixel, their colours mix by the number of their points, whichever was given first. Past about ten features use
    fewer, or a legend that says which is which: nobody tells forty colours apart.

    Args:
        x: Coordinates along x, as for `render_density`, and likewise `y`, `lower`, `upper` and `width`.
        y: Coordinates along y.
        codes: Feature of each point, shape (n,), integers from 0 to `n_features - 1`.
        n_features: Number of features.
        lower: Lower corner of the region, inclusive.
        upper: Upper corner, exclusive.
        width: Pixels along x.
        colors: Colour of each feature, shape (n_features, 3), from 0 to 255; default is `feature_colors`.

    Returns:
        Shape (height, width, 4), uint8: red, green, blue (sRGB) and an opacity of 255.

    Raises:
        QueryError: If a size, a corner, a code or the colours are not usable, or the lengths differ.

    """
    palette = _checked_colors(colors, n_features)
    shape = picture_shape(lower, upper, width)
    pixels, inside = _pixels_of(x, y, lower=lower, upper=upper, shape=shape)
    chosen = _checked_codes(codes, len(inside), n_features)[inside]
    counts = _count(pixels, shape)
    dot = _dot(counts, _FEATURE_OVERLAP)
    opacity = _opacity(_light_of(counts, dot)[counts > 0])
    steps = np.rint(_to_oklab(palette) * _LAB_STEPS)
    image = np.empty((*shape, 3), dtype=np.uint8)
    for rows, around, inner in _bands(shape, dot):
        planes = _feature_planes(pixels, chosen, steps, around=around, width=shape[1])
        image[rows] = _mixed([_spread(plane, dot)[inner] for plane in planes], opacity)
    return _opaque(image)


def feature_colors(n_features: int) -> NDArray[np.uint8]:
    """Colours of the first features, shape (n_features, 3), sRGB: a palette of 16, and then generated hues.

    A colour depends on the place of its feature alone, so that one more feature recolours none.
    """
    fixed = _parsed(_PALETTE)
    places = np.arange(max(0, n_features - len(fixed)))
    lightness = np.array([0.66, 0.80, 0.73])[places % 3]
    # the golden angle: every next hue falls into the largest gap that is left
    hue = places * (math.pi * (3 - math.sqrt(5)))
    opponents = np.array([0.13, 0.09])[places % 2] * np.array([np.cos(hue), np.sin(hue)])
    generated = _from_oklab(np.stack([lightness, *opponents], axis=-1))
    return np.concatenate([fixed[: max(0, n_features)], generated])


def legend(names: Sequence[str], colors: ArrayLike | None = None) -> list[tuple[str, Rgb]]:
    """Name and colour of each feature, in the order of the codes and with the colours that `render_features` is given.

    Raises:
        QueryError: If there is not one colour for each name.

    """
    rows = _checked_colors(colors, len(names)).tolist()
    return [(name, (red, green, blue)) for name, (red, green, blue) in zip(names, rows, strict=True)]


def count_pixels(x: ArrayLike, y: ArrayLike, *, lower: Corner, upper: Corner, width: int) -> NDArray[np.int64]:
    """Return the number of points of each pixel, shape (height, width); the arguments are those of `render_density`."""
    shape = picture_shape(lower, upper, width)
    pixels, _ = _pixels_of(x, y, lower=lower, upper=upper, shape=shape)
    return _count(pixels, shape)


def picture_shape(lower: Corner, upper: Corner, width: int) -> tuple[int, int]:
    """Return height and width of a region's picture, in pixels.

    Raises:
        QueryError: If the width is not from 1 to `MAX_SIDE`, or the corners do not bound a region.

    """
    if not 1 <= width <= MAX_SIDE:
        raise QueryError(f"a picture of {width} pixels across cannot be drawn; its width is from 1 to {MAX_SIDE}")
    wide, high = (above - below for below, above in zip(lower, upper, strict=True))
    if not (0 <= wide < math.inf and 0 <= high < math.inf):
        raise QueryError(
            f"the region from {tuple(lower)} to {tuple(upper)} cannot be drawn; along x and y it needs a finite lower "
            "bound that is not above its upper one"
        )
    if not (wide and high):
        return 1, width
    # compared before it is multiplied: the quotient of a very thin region may be infinite
    longest = MAX_SIDE / width
    return max(1, round(width * min(high / wide, longest))), width


def _pixels_of(
    x: ArrayLike, y: ArrayLike, *, lower: Corner, upper: Corner, shape: tuple[int, int]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the pixel ids of the points inside, row by row of the image, and which points these are."""
    points = [np.asarray(values, dtype=np.float64).ravel() for values in (x, y)]
    if len(points[0]) != len(points[1]):
        raise QueryError(f"{len(points[0])} coordinates along x, but {len(points[1])} along y; each point needs both")
    borders = zip(points, lower, upper, strict=True)
    inside = np.logical_and(*((values >= low) & (values < high) for values, low, high in borders))
    column, row = (
        # a point just below the far border may be rounded onto it
        np.minimum(np.floor((values[inside] - low) / (high - low) * pixels), pixels - 1).astype(np.int64)
        for values, low, high, pixels in zip(points, lower, upper, shape[::-1], strict=True)
    )
    return row * shape[1] + column, inside


def _count(pixels: NDArray[np.int64], shape: tuple[int, int]) -> NDArray[np.int64]:
    return np.bincount(pixels, minlength=shape[0] * shape[1]).reshape(shape)


def _checked_codes(codes: ArrayLike, n_points: int, n_features: int) -> NDArray[np.int64]:
    found = np.asarray(codes).ravel()
    if len(found) != n_points:
        raise QueryError(f"{len(found)} codes for {n_points} points; each point needs one")
    if not len(found):
        return np.zeros(0, dtype=np.int64)
    if found.dtype.kind not in "iu":
        raise QueryError(f"the codes are {found.dtype}; they must be integers from 0 to {n_features - 1}")
    wrong = (found < 0) | (found >= n_features)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise QueryError(
            f"{int(wrong.sum())} of {len(found)} codes name no feature (first: row {row}, code {found[row]}); with "
            f"{n_features} features they go from 0 to {n_features - 1}: leave the other points out"
        )
    return found.astype(np.int64)


def _checked_colors(colors: ArrayLike | None, n_features: int) -> NDArray[np.uint8]:
    if n_features < 0:
        raise QueryError(f"{n_features} features cannot be drawn; give their number")
    if colors is None:
        return feature_colors(n_features)
    found = np.asarray(colors)
    if found.shape != (n_features, 3) or found.dtype.kind not in "iu" or (found != found.astype(np.uint8)).any():
        raise QueryError(
            f"the colours have shape {found.shape} and type {found.dtype}; {n_features} features need shape "
            f"({n_features}, 3), integers from 0 to 255"
        )
    return found.astype(np.uint8)


def _dot(counts: NDArray[np.int64], overlap: float) -> NDArray[np.float64]:
    """Return how the light of a point is spread: a soft disc, the larger the lonelier points are; whole numbers."""
    radius = _dot_radius(counts, overlap)
    reach = math.ceil(radius - 0.5)
    steps = np.arange(-reach, reach + 1)
    distance = np.hypot(steps[:, None], steps)
    return np.rint(np.clip(radius + 0.5 - distance, 0, 1) * _DOT_STEPS)


def _dot_radius(counts: NDArray[np.int64], overlap: float) -> float:
    """Return the radius in pixels at which that many dots lie on one another in an average peopled neighbourhood."""
    starts = [np.arange(0, side, _NEIGHBOURHOOD) for side in counts.shape]
    neighbourhoods = np.add.reduceat(np.add.reduceat(counts, starts[0], axis=0), starts[1], axis=1)
    room = int(np.count_nonzero(neighbourhoods)) * _NEIGHBOURHOOD**2
    if not room:
        return _SMALLEST_DOT
    largest = max(_SMALLEST_DOT, min(_LARGEST_DOT, counts.shape[1] * _LARGEST_DOT_SHARE))
    radius = math.sqrt(overlap * room / (math.pi * int(neighbourhoods.sum())))
    return float(np.clip(radius, _SMALLEST_DOT, largest))


def _bands(shape: tuple[int, int], dot: NDArray[np.float64]) -> Iterator[tuple[slice, slice, slice]]:
    """Yield the rows of one band after the other, these with those whose light reaches in, and where it lies there."""
    height, width = shape
    reach = len(dot) // 2
    step = max(1, _BAND_PIXELS // width)
    for start in range(0, height, step):
        stop, first = min(start + step, height), max(0, start - reach)
        yield slice(start, stop), slice(first, min(stop + reach, height)), slice(start - first, stop - first)


def _spread(plane: NDArray[np.int64] | NDArray[np.float64], dot: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return each pixel's light after every pixel has become a dot; exact as long as the plane holds whole numbers."""
    height, width = plane.shape
    wide = np.pad(plane, len(dot) // 2)
    spread = np.zeros(plane.shape)
    for row, column in np.argwhere(dot).tolist():
        spread += dot[row, column] * wide[row : row + height, column : column + width]
    return spread / _DOT_STEPS


def _light_of(counts: NDArray[np.int64], dot: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return how many points each pixel is lit by, in parts of a point around its centre."""
    light = np.empty(counts.shape, dtype=np.float32)
    for rows, around, inner in _bands(counts.shape, dot):
        light[rows] = _spread(counts[around], dot)[inner]
    return light


def _opacity(light: NDArray[np.float32]) -> float:
    """Return how much of the ground one point covers: the less, the more of them lie on one another."""
    if not len(light):
        return _COVERED
    typical = float(np.median(light))
    return float(max(_FAINTEST, 1 - (1 - _COVERED) ** (1 / typical)))


def _shades(light: NDArray[np.float32], occupied: NDArray[np.bool_], weight: float) -> NDArray[np.uint16]:
    """Return the entry of the colour table for each pixel; 0 is the ground."""
    knee, crowd = 1.0, max(_CROWD / weight, _LONELY)
    if occupied.any():
        middle, most = np.quantile(light[occupied], [0.5, _ROBUST]).tolist()
        knee, crowd = max(knee, middle), max(crowd, most)
    level = np.log1p(light / np.float32(knee)) * np.float32((1 - _FIRST_SHADE) / math.log1p(crowd / knee))
    level += np.minimum(light, 1) * np.float32(_FIRST_SHADE)
    return np.ceil(np.minimum(level, 1) * _SHADES).astype(np.uint16)


def _feature_planes(
    pixels: NDArray[np.int64], codes: NDArray[np.int64], steps: NDArray[np.float64], *, around: slice, width: int
) -> list[NDArray[np.float64]]:
    """Return, for some rows of the image, the number of points and the sums of their three Oklab values."""
    start, stop = around.start * width, around.stop * width
    here = (pixels >= start) & (pixels < stop)
    places, colors = pixels[here] - start, steps[codes[here]]
    planes = (np.bincount(places, weights=values, minlength=stop - start) for values in (None, *colors.T))
    return [plane.reshape(-1, width).astype(np.float64) for plane in planes]


def _mixed(planes: list[NDArray[np.float64]], opacity: float) -> NDArray[np.uint8]:
    """Lay the mean colour of each pixel over the ground, the more opaque the more points."""
    number = planes[0]
    lit = number > 0
    mean = np.stack([plane[lit] for plane in planes[1:]], axis=-1) / (number[lit][:, None] * _LAB_STEPS)
    covered = 1 - (1 - opacity) ** number[lit][:, None]
    ground = _parsed(_GROUND)
    image = np.tile(ground, (*number.shape, 1))
    image[lit] = _from_oklab((1 - covered) * _to_oklab(ground) + covered * mean)
    return image


def _color_map() -> NDArray[np.uint8]:
    """Return the colours of the density map, dark to light, at equal distances in Oklab."""
    anchors = _to_oklab(_parsed(_ANCHORS))
    lengths = np.linalg.norm(np.diff(anchors, axis=0), axis=1)
    places = np.concatenate([[0.0], np.cumsum(lengths)])
    even = np.linspace(0, places[-1], _SHADES)
    return _from_oklab(np.stack([np.interp(even, places, values) for values in anchors.T], axis=-1))


def _parsed(colors: str) -> NDArray[np.uint8]:
    return np.array([list(bytes.fromhex(color)) for color in colors.split()], dtype=np.uint8)


def _to_oklab(colors: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Return Oklab lightness and opponents, shape (n, 3), of sRGB colours, shape (n, 3)."""
    signal = colors / 255
    linear = np.where(signal <= _LINEAR_SIGNAL, signal / 12.92, ((signal + 0.055) / 1.055) ** 2.4)
    lab: NDArray[np.float64] = np.cbrt(linear @ _TO_CONES.T) @ _TO_LAB.T
    return lab


def _from_oklab(lab: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Return the nearest sRGB colours, shape (n, 3); what a screen cannot show is cut at its limits."""
    linear = np.clip((lab @ _FROM_LAB.T) ** 3 @ _FROM_CONES.T, 0, 1)
    signal = np.where(linear <= _LINEAR_LIGHT, linear * 12.92, 1.055 * linear ** (1 / 2.4) - 0.055)
    return np.rint(signal * 255).astype(np.uint8)


def _opaque(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.pad(image, ((0, 0), (0, 0), (0, 1)), constant_values=255)
