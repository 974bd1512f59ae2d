"""Samples against exact and slow implementations of what is documented, and against chance."""

import struct
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from puncta.points._sampling import is_kept, next_fraction, sample_numbers, thinning_numbers, threshold_of

# The tests of chance below have a fixed seed; a correct hash would fail one for a new seed once in a million times.
ERROR_RATE = 1e-6
IDS = np.arange(200_000, dtype=np.uint64)
M64, M32 = 2**64 - 1, 2**32 - 1


def slow_splitmix(z: int) -> int:
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & M64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & M64
    return z ^ (z >> 31)


@given(st.integers(0, M64), st.integers(-(2**70), 2**70))
def test_the_number_of_a_point_is_splitmix64_of_its_id_and_the_seed(row: int, seed: int) -> None:
    step = 0x9E3779B97F4A7C15
    expected = slow_splitmix((row * step + slow_splitmix((seed + step) & M64)) & M64) >> 32
    assert sample_numbers(np.asarray([row], dtype=np.uint64), seed).tolist() == [expected]


def test_the_slow_generator_gives_the_published_numbers() -> None:
    # the first outputs of the public-domain reference code for the seed 1234567
    state = [(1234567 + 0x9E3779B97F4A7C15 * step) & M64 for step in (1, 2, 3)]
    assert [slow_splitmix(z) for z in state] == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_numbers_do_not_depend_on_chunks_or_order() -> None:
    whole = sample_numbers(IDS, 3)
    np.testing.assert_array_equal(whole, np.concatenate([sample_numbers(part, 3) for part in np.split(IDS, 8)]))
    np.testing.assert_array_equal(whole[::-1], sample_numbers(IDS[::-1], 3))
    assert whole.dtype == np.uint32


@pytest.mark.parametrize("ids", [IDS, IDS * np.uint64(2**20), IDS + np.uint64(2**63)])
@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1])
def test_numbers_are_uniform(ids: np.ndarray[tuple[int], np.dtype[np.uint64]], seed: int) -> None:
    counts = np.bincount(sample_numbers(ids, seed) >> np.uint32(24), minlength=256)
    assert stats.chisquare(counts).pvalue > ERROR_RATE


def test_neighbouring_ids_and_neighbouring_seeds_are_unrelated() -> None:
    first, second = (sample_numbers(IDS, seed) / 2**32 for seed in (0, 1))
    bound = stats.norm.isf(ERROR_RATE / 2) / len(IDS) ** 0.5
    assert abs(np.corrcoef(first[1:], first[:-1])[0, 1]) < bound
    assert abs(np.corrcoef(first, second)[0, 1]) < bound


@given(st.floats(0, 1), st.floats(0, 1))
def test_samples_are_nested(one: float, other: float) -> None:
    u = sample_numbers(IDS[:2000], 0)
    small, large = is_kept(u, min(one, other)), is_kept(u, max(one, other))
    assert not (small & ~large).any()


@given(st.integers(0, M32), st.floats(0, 1))
@example(M32, 1.0)
@example(M32, np.nextafter(1, 0))
@example(0, 0.0)
@example(0, 5e-324)
@example(7, 7 / 2**32)
@example(7, np.nextafter(7 / 2**32, 1))
def test_a_point_is_kept_if_and_only_if_its_number_is_below_the_fraction(u: int, fraction: float) -> None:
    expected = Fraction(u, 2**32) < Fraction(fraction)
    assert is_kept(np.asarray([u], dtype=np.uint32), fraction).tolist() == [expected]
    assert (u < threshold_of(fraction)) == expected


@given(st.integers(0, M32), st.integers(-2, 2))
def test_the_threshold_is_exact_beside_every_number(u: int, steps: int) -> None:
    fraction = u / 2**32
    for _ in range(abs(steps)):
        fraction = float(np.nextafter(fraction, 2.0 if steps > 0 else -1.0))
    fraction = min(max(fraction, 0.0), 1.0)
    kept = is_kept(np.asarray([u], dtype=np.uint32), fraction)[0]
    assert kept == (Fraction(u, 2**32) < Fraction(fraction))


def slow_mix(h: int) -> int:
    h = (h ^ (h >> 16)) * 0x85EBCA6B & M32
    h = (h ^ (h >> 13)) * 0xC2B2AE35 & M32
    return h ^ (h >> 16)


def slow_thinning(coordinates: tuple[float, ...], code: int) -> int:
    h = slow_mix((code + 0x9E3779B9) & M32)
    for value in coordinates:
        bits = struct.unpack("<I", struct.pack("<f", 0.0 if value == 0 else value))[0]
        h = slow_mix((h * 31 + bits) & M32)
    return h


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=2, max_size=3), st.integers(-1, 2**31 - 1))
@example([-0.0, 0.0], -1)
@example([-1.5, 1e-45, 3e38], 0)
def test_the_thinning_hash_is_as_documented(values: list[float], code: int) -> None:
    arrays = [np.asarray([value], dtype=np.float32) for value in values]
    expected = slow_thinning(tuple(values), code)
    assert thinning_numbers(arrays, np.asarray([code], dtype=np.int32)).tolist() == [expected]


def test_zero_and_negative_zero_are_one_place() -> None:
    zeros = np.asarray([0.0, -0.0], dtype=np.float32)
    numbers = thinning_numbers([zeros, zeros[::-1].copy()], np.zeros(2, dtype=np.int16))
    assert numbers[0] == numbers[1]


def test_thinning_numbers_are_uniform_over_points_on_a_lattice() -> None:
    x, y = (axis.ravel().astype(np.float32) for axis in np.meshgrid(np.arange(400), np.arange(400)))
    for code in (-1, 0, 500):
        numbers = thinning_numbers([x, y], np.full(len(x), code, dtype=np.int32))
        counts = np.bincount(numbers >> np.uint32(24), minlength=256)
        assert stats.chisquare(counts).pvalue > ERROR_RATE


def test_the_next_fraction_is_the_one_of_the_rfc() -> None:
    assert next_fraction(1.0, 9_999, 10_000) == 1.0
    assert next_fraction(1.0, 10_000, 10_000) == 1.0
    assert next_fraction(1.0, 40_000, 10_000) == 0.25
    assert next_fraction(0.5, 20_000, 10_000) == 0.25
    assert next_fraction(1.0, 10_100, 10_000) == 10_000 / 10_100
