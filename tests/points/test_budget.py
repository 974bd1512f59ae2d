"""A budget is never exceeded, and filled at least by half where there are points enough."""

import json

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from puncta.points import Points

type Built = tuple[Points, pd.DataFrame]


@given(budget=st.integers(1, 8_000), side=st.sampled_from([None, 40, 90, 1_000]))
def test_a_budget_holds_for_all_points(plain: Built, budget: int, side: int | None) -> None:
    points, frame = plain
    box = None if side is None else {"x": (20 - side, 20 + side), "y": (90 - side, 90 + side)}
    table = points.query(box=box, budget=budget, columns=["x", "y"])

    there = points.count(box=box).count
    assert table.num_rows <= budget
    if budget >= 200:  # below that, half of the budget lies within the noise
        assert table.num_rows >= min(there, budget / 2) * 0.8
    assert there <= len(frame)


@given(budget=st.integers(1, 8_000), names=st.lists(st.integers(0, 11), min_size=1, max_size=4, unique=True))
def test_a_budget_holds_for_features(plain: Built, budget: int, names: list[int]) -> None:
    points, _ = plain
    features = [points.features[number] for number in names]
    assert points.query(features=features, budget=budget).num_rows <= budget


def test_a_budget_for_everything_is_complete(plain: Built) -> None:
    points, frame = plain
    table = points.query(budget=len(frame))
    assert table.num_rows == len(frame)
    assert json.loads(table.schema.metadata[b"puncta"])["complete"]


def test_a_thinned_level_keeps_densities(plain: Built) -> None:
    points, frame = plain
    table = points.query(budget=1_500, columns=["x", "y"])
    fraction = json.loads(table.schema.metadata[b"puncta"])["fraction"]
    edges = [np.linspace(-110, 160, 4), np.linspace(-40, 210, 4)]
    whole = np.histogramdd(frame[["x", "y"]].to_numpy(), bins=edges)[0]
    shown = np.histogramdd(table.to_pandas()[["x", "y"]].to_numpy(), bins=edges)[0]

    # Five standard deviations in nine places: a sound sample fails once in 200,000 runs, and the seed is fixed.
    spread = np.sqrt(whole * fraction * (1 - fraction)) + 1
    assert (np.abs(shown - whole * fraction) < 5 * spread).all()
