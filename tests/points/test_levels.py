"""Levels of built indexes: nested, at the fractions of the RFC, and the same whatever is stored of them."""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import stats

from puncta.points import Points

type Built = tuple[Points, pd.DataFrame]

# The tests of chance below have a fixed seed; a correct sample would fail one for a new seed once in a million times.
ERROR_RATE = 1e-6
LIMIT = 60


def rows(table: pa.Table) -> list[int]:
    return sorted(table.column("row").to_pylist())


def says(table: pa.Table) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(table.schema.metadata[b"puncta"])
    return document


def tile_ids(points: Points, table: pa.Table, level: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    coordinates = np.stack([table.column(axis).to_numpy() for axis in points.axes], axis=1)
    ids: np.ndarray[tuple[int], np.dtype[np.int64]] = points.levels[level].grid.tile_ids(coordinates)
    return ids


def is_likely(count: int, total: int, fraction: float) -> bool:
    return total == 0 or stats.binomtest(count, total, min(fraction, 1.0)).pvalue > ERROR_RATE


def test_there_are_levels_down_to_a_single_tile(built: Built) -> None:
    levels = built[0].levels
    assert len(levels) > 3
    assert [level.number for level in levels] == list(range(len(levels)))
    assert levels[-1].grid.n_tiles == 1
    assert [level.grid for level in levels] == list(levels[0].grid.pyramid())


def test_tiles_hold_their_points_and_together_all_of_the_level(built: Built) -> None:
    points, _ = built
    for level in points.levels:
        tiles = [points.read_tile(level.number, tile) for tile in range(level.grid.n_tiles)]
        assert [tile.num_rows for tile in tiles] == level.tile_counts.tolist()
        for number, tile in enumerate(tiles):
            assert set(tile_ids(points, tile, level.number)) <= {number}
        assert sorted(row for tile in tiles for row in rows(tile)) == rows(points.query(level=level.number))
        assert sum(tile.num_rows for tile in tiles) == level.n_rows


def test_each_level_lies_within_the_one_below_it(built: Built) -> None:
    points, frame = built
    below = Counter(frame["row"].tolist())
    for level in points.levels:
        here = Counter(rows(points.query(level=level.number)))
        assert here <= below
        below = here


def test_each_level_of_a_feature_lies_within_the_one_below_it(built: Built) -> None:
    points, frame = built
    for name in points.features:
        below = Counter(frame["row"][frame["gene"] == name].tolist())
        for level in points.levels:
            here = Counter(rows(points.read_feature(level.number, name)))
            assert here <= below
            assert level.number or here == below
            below = here


def test_fractions_are_those_of_the_rfc_with_realised_counts(built: Built) -> None:
    points, _ = built
    assert points.levels[0].fraction == 1
    for finer, level in zip(points.levels, points.levels[1:], strict=False):
        ids = tile_ids(points, points.query(level=finer.number), level.number)
        assert level.fraction == finer.fraction * min(1, LIMIT / np.bincount(ids).max())
        assert is_likely(level.n_rows, points.n_rows, level.fraction)


@pytest.mark.parametrize("name", ["all", "shared", "volume"])
def test_fractions_of_features_are_those_of_the_rfc_with_realised_counts(
    build: Callable[..., Built], name: str
) -> None:
    points, frame = build(name)
    for feature in points.features:
        fraction, table = 1.0, points.read_feature(0, feature)
        for level in points.levels[1:]:
            densest = int(np.bincount(tile_ids(points, table, level.number), minlength=1).max())
            fraction *= min(1, LIMIT / max(densest, 1))
            table = points.read_feature(level.number, feature)
            assert says(table)["fraction"] == pytest.approx(fraction, rel=1e-14)
            assert is_likely(table.num_rows, int((frame["gene"] == feature).sum()), fraction)


def test_a_rare_feature_keeps_all_its_points_at_every_level(plain: Built) -> None:
    points, frame = plain
    rare = frame["gene"].value_counts().loc[lambda counts: (counts > 0) & (counts <= LIMIT)].index
    assert len(rare)
    for name in rare:
        kept = rows(points.read_feature(len(points.levels) - 1, name))
        assert kept == frame["row"][frame["gene"] == name].tolist()


def test_nulls_are_in_the_tile_order_and_in_no_feature(built: Built) -> None:
    points, frame = built
    nulls = frame["row"][frame["gene"].isna()].tolist()
    assert rows(points.query(where="gene IS NULL")) == nulls
    assert rows(points.query(features=points.features)) == sorted(set(frame["row"]) - set(nulls))


def test_shared_levels_answer_as_full_ones(build: Callable[..., Built]) -> None:
    full, shared = build("all")[0], build("shared")[0]
    assert [level.grid for level in full.levels] == [level.grid for level in shared.levels]
    assert sum(level.n_rows_feature or 0 for level in shared.levels) < sum(
        level.n_rows_feature or 0 for level in full.levels
    )
    for level in range(len(full.levels)):
        for key, names in (("gene", full.features), ("kind", ["a", "b", "c", "d"])):
            for name in names:
                one, other = (
                    points.query(features=[name], feature_key=key, level=level, thinning="own")
                    for points in (full, shared)
                )
                assert rows(one) == rows(other)
                assert says(one) == says(other)


@pytest.mark.parametrize("name", ["all", "shared", "volume"])
def test_equal_thinning_shows_every_feature_at_the_lowest_fraction(build: Callable[..., Built], name: str) -> None:
    points, frame = build(name)
    names = ["Gene0", "Gene2", "Gene9"]
    for level in range(1, len(points.levels)):
        own = [says(points.read_feature(level, gene))["fraction"] for gene in names]
        table = points.query(features=names, level=level)
        assert says(table)["fraction"] == pytest.approx(min(own), rel=1e-12)
        shown = table.to_pandas()["gene"].value_counts()
        for gene in names:
            assert is_likely(int(shown[gene]), int((frame["gene"] == gene).sum()), min(own))


@pytest.mark.parametrize("name", ["all", "shared", "volume", "none"])
def test_the_same_points_stay_shown_when_the_box_moves(build: Callable[..., Built], name: str) -> None:
    points, _ = build(name)
    names = ["Gene0", "Gene3", "Gene9"]
    for level in range(len(points.levels)):
        whole = points.query(features=names, level=level).to_pandas()
        for low in (-50.0, -10.0, 15.5):
            part = points.query(features=names, level=level, box={"x": (low, low + 70), "y": (0, 100)})
            kept = whole["x"].between(low, low + 70, inclusive="left") & whole["y"].between(0, 100, inclusive="left")
            assert rows(part) == sorted(whole["row"][kept].tolist())


def test_own_thinning_gives_all_that_is_stored(built: Built) -> None:
    points, _ = built
    names = ["Gene0", "Gene3", "Gene9"]
    for level in range(len(points.levels)):
        table = points.query(features=names, level=level, thinning="own")
        assert rows(table) == sorted(row for name in names for row in rows(points.read_feature(level, name)))


def test_own_thinning_says_the_fraction_of_each_feature(plain: Built) -> None:
    points, _ = plain
    last = len(points.levels) - 1
    said = says(points.query(features=["Gene0", "Gene9"], level=last, thinning="own"))
    assert set(said["fraction"]) == {"Gene0", "Gene9"}
    assert said["fraction"]["Gene9"] == 1.0 > said["fraction"]["Gene0"]
    assert not said["complete"]


@pytest.mark.parametrize("question", [{}, {"box": {"x": (-20.0, 60.0)}}, {"where": "qv >= 10"}])
@pytest.mark.parametrize("features", [None, ["Gene0"], ["Gene0", "Gene9"]])
@pytest.mark.parametrize("name", ["all", "shared", "none"])
def test_counts_at_a_sampled_level_are_estimates_of_the_whole(
    build: Callable[..., Built], name: str, features: list[str] | None, question: dict[str, Any]
) -> None:
    points, frame = build(name)
    kept = frame["gene"].isin(features) if features else pd.Series(data=True, index=frame.index)
    kept &= (frame["x"] >= -20) & (frame["x"] < 60) if "box" in question else True
    kept &= frame["qv"] >= 10 if "where" in question else True
    for level in range(1, len(points.levels)):
        counted = points.count(features=features, level=level, **question)
        # the least fraction at this level bounds the spread of the estimate
        fraction = min(points.levels[level].fraction, 1.0)
        spread = (kept.sum() * (1 / fraction - 1)) ** 0.5
        assert not counted.exact
        assert abs(counted.count - kept.sum()) <= stats.norm.isf(ERROR_RATE / 2) * spread + 1


def test_sizes_are_those_of_the_files(built: Built) -> None:
    points, _ = built
    for level in points.levels:
        folder = f"levels/{level.number}/points.parquet" if level.number else "points.parquet"
        assert level.bytes == sum(path.stat().st_size for path in (points.path / folder).iterdir())
        feature = points.path / "feature" / str(level.number) / "points.parquet"
        stored = sum(path.stat().st_size for path in feature.iterdir()) if feature.exists() else 0
        assert level.bytes_feature == stored
