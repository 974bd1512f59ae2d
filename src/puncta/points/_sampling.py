"""Density-preserving sampling: the number u of each point, the fractions of the levels, and the client's thinning.

Pure: arrays in, arrays out. RFC 3, "Sampling" and "Showing several features together"; decisions P13 and P14.
"""

import numpy as np
from numpy.typing import NDArray

# Constants of the splitmix64 generator (Steele, Lea and Flood 2014): its increment and its two multipliers.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)

# Constants of the 32-bit finaliser of MurmurHash3 (Appleby), chosen because JavaScript's Math.imul computes the same.
_MIX_1 = np.uint32(0x85EBCA6B)
_MIX_2 = np.uint32(0xC2B2AE35)

U_SCALE = 2.0**-32
"""What one unit of a stored `u` is worth: u = stored / 2**32, in [0, 1)."""


def sample_numbers(row_ids: NDArray[np.uint64], seed: int) -> NDArray[np.uint32]:
    """Return the number u of each point, as an integer of 32 bits: u = value / 2**32.

    A point is kept at level l if and only if u < P(l): nested by construction, and the same whatever the order, the
    chunks or the number of workers (P13).

    Args:
        row_ids: Identity of each point, shape (n,), uint64.
        seed: Seed of the index, any integer; two seeds give unrelated samples.

    Returns:
        Shape (n,), uint32.

    """
    start = np.uint64(seed % 2**64)
    with np.errstate(over="ignore"):
        # The seed is mixed on its own first, so that seeds 0, 1, ... are not merely shifted copies of each other.
        z = row_ids * _STEP
        z += _splitmix(np.asarray([start + _STEP], dtype=np.uint64))[0]
        z = _splitmix(z)
    return (z >> np.uint64(32)).astype(np.uint32)


def _splitmix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = z ^ (z >> np.uint64(30))
    z *= _FIRST
    z ^= z >> np.uint64(27)
    z *= _SECOND
    z ^= z >> np.uint64(31)
    return z


def threshold_of(fraction: float) -> int:
    """Return the integer t with: a point is kept at this fraction if and only if its 32-bit u is below t."""
    # ceil: u / 2**32 < P and u < ceil(P * 2**32) say the same for integers u; the product is exact in float64.
    return int(np.ceil(fraction * 2.0**32))


def is_kept(u: NDArray[np.uint32], fraction: float) -> NDArray[np.bool_]:
    """Say for each point whether a level of this fraction holds it: u < P.

    Args:
        u: Numbers from `sample_numbers`, shape (n,), uint32.
        fraction: The level's fraction P, from 0 to 1.

    """
    threshold = threshold_of(fraction)
    if threshold > np.iinfo(np.uint32).max:
        return np.ones(len(u), dtype=bool)
    kept: NDArray[np.bool_] = u < np.uint32(threshold)
    return kept


def next_fraction(fraction: float, densest: int, limit: int) -> float:
    """Return the fraction of the next level: P(l) = P(l-1) * min(1, limit / c(l)) (RFC 3).

    Args:
        fraction: P of the level below.
        densest: c(l): the realised number of points of level l - 1 in the densest tile of level l.
        limit: Number of points that the densest tile is to hold.

    """
    return fraction if densest <= limit else fraction * (limit / densest)


def thinning_numbers(coordinates: list[NDArray[np.float32]], codes: NDArray[np.integer]) -> NDArray[np.uint32]:
    """Return the number by which a client thins the points it shows: keep a point where value / 2**32 < fraction.

    It depends on nothing but the point itself, so the same points stay shown when the view moves; JavaScript computes
    the same, bit for bit (P14). With `mix` the 32-bit finaliser of MurmurHash3 and all sums modulo 2**32:

        h = mix(code + 0x9E3779B9); for each axis in order: h = mix(h * 31 + bits(float32(coordinate) + 0))

    Args:
        coordinates: Stored coordinates, one array of shape (n,) per axis in the element's order; rounded to float32.
        codes: Feature code of each point, shape (n,); -1 for none.

    Returns:
        Shape (n,), uint32.

    """
    with np.errstate(over="ignore"):
        h = _murmur_mix(codes.astype(np.int64).astype(np.uint32) + np.uint32(0x9E3779B9))
        for values in coordinates:
            # Adding zero makes -0.0 and 0.0, which are one place, one bit pattern.
            bits = (values.astype(np.float32) + np.float32(0)).view(np.uint32)
            h = _murmur_mix(h * np.uint32(31) + bits)
    return h


def _murmur_mix(h: NDArray[np.uint32]) -> NDArray[np.uint32]:
    h = h ^ (h >> np.uint32(16))
    h *= _MIX_1
    h ^= h >> np.uint32(13)
    h *= _MIX_2
    h ^= h >> np.uint32(16)
    return h
