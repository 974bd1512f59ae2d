"""Fractions: the RFC's formulas computed from the levels as they came out, and the sample against its fractions.

Every statistical test is on a fixed seed, so it passes or fails for good; had the seed been drawn at random, each would
fail with a probability below 1e-6 (two-sided 4.9 sigma, or a chi-square tail of 1e-6).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from puncta.indexing import index_points

type Read = Callable[..., list[pa.Table]]
type Numbers = Callable[..., NDArray[np.int64]]
type Attributes = Callable[[Path], dict[str, Any]]

SIGMAS = 4.9
TAIL = 1e-6
GENES = ("g0", "g1", "g2", None)


def sampling_of(attrs: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the sampling of each level from level 1 on."""
    return [level["spatial_index"]["sampling"] for level in attrs["multiscales"]["layout"][1:]]


def next_fraction(fraction: float, tiles_of_rows_below: NDArray[np.int64], limit: int) -> float:
    """Return P(l) by the RFC: p = min(1, limit / c), c the fullest tile of level l with the points of level l - 1."""
    densest = max((tiles_of_rows_below.tolist().count(tile) for tile in set(tiles_of_rows_below.tolist())), default=0)
    return fraction * min(1.0, limit / densest) if densest else fraction


@settings(max_examples=12)
@given(
    n_rows=st.integers(1, 400),
    limit=st.integers(1, 60),
    seed=st.integers(0, 99),
    thick=st.booleans(),
    without=st.booleans(),
)
def test_fractions_are_those_of_the_formulas(  # noqa: PLR0917 (pytest and hypothesis pass by name)
    tmp_path_factory: pytest.TempPathFactory,
    molecules: Callable[..., pa.Table],
    tiles_of: Read,
    copy_of: Read,
    tile_numbers_of: Numbers,
    attributes_of: Attributes,
    n_rows: int,
    limit: int,
    seed: int,
    thick: bool,
    without: bool,
) -> None:
    table = molecules(n_rows, seed=seed, genes=4, thick=thick)
    genes = [GENES[int(name[1])] if without else name for name in table["gene"].to_pylist()]
    table = table.set_column(table.column_names.index("gene"), "gene", pa.array(genes, pa.string()))
    size = (12.5, 12.5, 4.0)[: 3 if thick else 2]
    options: dict[str, Any] = {"tile_size": size, "limit": limit, "seed": seed, "origin": (0.0,) * len(size)}
    element = Path(index_points(table, tmp_path_factory.mktemp("fractions") / "s.zarr", **options).path)

    fractions: dict[str | None, float] = dict.fromkeys(set(genes), 1.0)
    whole = 1.0
    for level, sampling in enumerate(sampling_of(attributes_of(element)), start=1):
        below = pa.concat_tables(tiles_of(element, level - 1))
        whole = next_fraction(whole, tile_numbers_of(element, below, level), limit)
        assert sampling["P"] == pytest.approx(whole, rel=1e-12)
        copy = pa.concat_tables(copy_of(element, level - 1))
        tiles, names = tile_numbers_of(element, copy, level), np.asarray(copy["gene"].to_pylist(), dtype=object)
        for name, fraction in fractions.items():
            fractions[name] = next_fraction(fraction, tiles[names == name], limit)
        expected = [fractions[name] for name in sorted(name for name in fractions if name is not None)]
        assert sampling["P_feature"] == pytest.approx(expected, rel=1e-12)
        assert sampling.get("P_null") == (pytest.approx(fractions[None], rel=1e-12) if None in fractions else None)


# --- the sample against its fractions


@pytest.fixture(scope="module")
def table(molecules: Callable[..., pa.Table]) -> pa.Table:
    """Return 120,000 molecules of 8 genes."""
    return molecules(120_000, genes=8, seed=5)


@pytest.fixture(scope="module")
def element(tmp_path_factory: pytest.TempPathFactory, table: pa.Table) -> Path:
    """Return their index, seven levels, thinned from level 1 on."""
    store = tmp_path_factory.mktemp("sampled") / "s.zarr"
    return Path(index_points(table, store, tile_size=2, origin=(0, 0), limit=700, seed=11).path)


def test_levels_hold_as_many_points_as_their_fractions_say(
    element: Path, tiles_of: Read, attributes_of: Attributes
) -> None:
    fractions = [1.0, *(sampling["P"] for sampling in sampling_of(attributes_of(element)))]
    sizes = [sum(map(len, tiles_of(element, level))) for level in range(len(fractions))]
    assert min(fractions) < 0.02
    for level in range(1, len(fractions)):
        # Given the level below, the number of points is binomial.
        kept = fractions[level] / fractions[level - 1]
        spread = np.sqrt(sizes[level - 1] * kept * (1 - kept))
        assert abs(sizes[level] - sizes[level - 1] * kept) <= SIGMAS * spread


@pytest.mark.parametrize("level", [3, 4, 5])
@pytest.mark.parametrize("of", ["gene", "place", "quality"])
def test_a_level_is_thinned_alike_everywhere(
    element: Path, table: pa.Table, tiles_of: Read, attributes_of: Attributes, level: int, of: str
) -> None:
    fraction = sampling_of(attributes_of(element))[level - 1]["P"]
    ids = np.sort(pa.concat_tables(tiles_of(element, level))["id"].to_numpy())
    frame = table.to_pandas()
    places = (frame["x"] // 12.5 * 8 + frame["y"] // 12.5).astype(int).to_numpy()
    strata = {"gene": frame["gene"].to_numpy(), "place": places, "quality": frame["qv"].to_numpy()}[of]
    names, of_row = np.unique(strata, return_inverse=True)
    every, kept = np.bincount(of_row), np.bincount(of_row[ids], minlength=len(names))
    enough = every * fraction > 5
    excess = (kept - every * fraction)[enough] ** 2 / (every * fraction * (1 - fraction))[enough]
    assert stats.chi2.sf(excess.sum(), enough.sum()) > TAIL
    # A sample more even than chance would not be one of independent points either.
    assert stats.chi2.cdf(excess.sum(), enough.sum()) > TAIL


@pytest.mark.parametrize("level", [2, 4, 6])
def test_each_feature_of_a_copy_is_thinned_at_its_own_fraction(
    element: Path, copy_of: Read, attributes_of: Attributes, level: int
) -> None:
    fractions = [np.ones(8), *(np.asarray(sampling["P_feature"]) for sampling in sampling_of(attributes_of(element)))]
    below, here = (pa.concat_tables(copy_of(element, at))["gene"].value_counts() for at in (level - 1, level))
    sizes, found = ({one["values"].as_py(): one["counts"].as_py() for one in counts} for counts in (below, here))
    for code in range(8):
        kept, size = fractions[level][code] / fractions[level - 1][code], sizes[f"g{code}"]
        assert abs(found[f"g{code}"] - size * kept) <= SIGMAS * np.sqrt(size * kept * (1 - kept))


def test_the_densest_tile_of_every_thinned_level_holds_about_the_limit(element: Path, tiles_of: Read) -> None:
    for level in range(3, 7):
        densest = max(map(len, tiles_of(element, level)))
        # The largest of at most 300 tiles, each about Poisson around at most the limit.
        assert 700 - 6 * np.sqrt(700) < densest < 700 + 6 * np.sqrt(700)


def test_seeds_give_unrelated_samples(
    tmp_path: Path, element: Path, table: pa.Table, tiles_of: Read, attributes_of: Attributes
) -> None:
    other = Path(index_points(table, tmp_path / "s.zarr", tile_size=2, origin=(0, 0), limit=700, seed=12).path)
    ids = [set(pa.concat_tables(tiles_of(one, 4))["id"].to_pylist()) for one in (element, other)]
    fractions = [sampling_of(attributes_of(one))[3]["P"] for one in (element, other)]
    expected = len(table) * fractions[0] * fractions[1]
    assert abs(len(ids[0] & ids[1]) - expected) <= SIGMAS * np.sqrt(expected)


def test_both_copies_are_thinned_by_the_same_number_of_each_point(
    element: Path, tiles_of: Read, copy_of: Read, attributes_of: Attributes
) -> None:
    for level, sampling in enumerate(sampling_of(attributes_of(element)), start=1):
        in_tiles, in_copy = (pa.concat_tables(read(element, level)) for read in (tiles_of, copy_of))
        # Kept is whoever is below the fraction, so the copy with the larger fractions holds all of the other one.
        assert min(sampling["P_feature"]) >= sampling["P"]
        assert set(in_tiles["id"].to_pylist()) <= set(in_copy["id"].to_pylist())
