"""Answers about measured tissues against plain pandas on the files that they were made of."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

import puncta
from puncta.points import Points

type Built = tuple[Points, pd.DataFrame]


@pytest.fixture(scope="module")
def section(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Index the coronal section; its table has the coordinates as they are stored."""
    source = shared_data / "iss_mouse_coronal" / "spots.parquet"
    store = tmp_path_factory.mktemp("section") / "section.zarr"
    puncta.index_points(source, store, feature_levels="shared")
    frame = pd.read_parquet(source, columns=["x", "y", "feature_name"])
    return puncta.open_points(store), frame.astype({"x": np.float32, "y": np.float32})


@pytest.fixture(scope="module")
def breast(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Index the Xenium breast store, tiled along z too, into a new store."""
    source = next((shared_data / "xenium_breast_points_sdata").glob("*.zarr"))
    store = tmp_path_factory.mktemp("breast") / "breast.zarr"
    puncta.index_points(source, store, limit=1_000, tile_size=(1_000, 1_000, 50))
    parts = sorted((source / "points" / "transcripts" / "points.parquet").glob("*.parquet"))
    frame = pd.concat([pd.read_parquet(part) for part in parts], ignore_index=True)
    return puncta.open_points(store), frame.astype(dict.fromkeys("xyz", np.float32))


def is_in(frame: pd.DataFrame, box: dict[str, tuple[float, float]], scale: float = 1.0) -> pd.Series:
    """Say which rows are in a box over coordinates that were scaled in float64."""
    inside = pd.Series(data=True, index=frame.index)
    for axis, (low, high) in box.items():
        values = frame[axis].astype(np.float64) * scale
        inside &= (values >= low) & (values < high)
    return inside


def test_the_boxes_that_were_counted_before(section: Built, breast: Built) -> None:
    boxes = {(10_000, 10_000): 11_559, (16_000, 14_000): 39_107}
    for (x, y), expected in boxes.items():
        assert section[0].query(box={"x": (x, x + 2_000), "y": (y, y + 2_000)}, columns=["x"]).num_rows == expected
    plp1 = section[0].query(box={"x": (10_000, 12_000), "y": (10_000, 12_000)}, features="Plp1")
    assert plp1.num_rows == 5_279
    assert section[0].query(box={"x": (0, 256), "y": (0, 256)}).num_rows == 0
    assert breast[0].query(box={"x": (1000, 1500), "y": (1000, 1500)}).num_rows == 1_855


@given(st.integers(-500, 21_000), st.integers(-500, 28_000), st.integers(1, 6_000), st.sampled_from(["Plp1", None]))
@settings(max_examples=8)
def test_any_box_of_the_section_holds_what_pandas_finds(
    section: Built, x: int, y: int, size: int, gene: str | None
) -> None:
    points, frame = section
    box = {"x": (float(x), float(x + size)), "y": (float(y), y + size * 1.5)}
    inside = frame[is_in(frame, box) & ((frame["feature_name"] == gene) | (gene is None))]
    table = points.query(box=box, features=None if gene is None else [gene])
    assert points.count(box=box, features=gene).count == table.num_rows == len(inside)
    found = table.to_pandas()[["x", "y", "feature_name"]].astype({"feature_name": object})
    expected = inside.astype({"feature_name": object})
    by = ["x", "y", "feature_name"]
    pd.testing.assert_frame_equal(found.sort_values(by, ignore_index=True), expected.sort_values(by, ignore_index=True))


def test_a_polygon_of_the_section_holds_what_shapely_finds(section: Built) -> None:
    points, frame = section
    shape = shapely.Polygon([(9_000, 9_500), (13_000, 10_000), (12_500, 13_700), (11_000, 11_000), (9_300, 12_900)])
    expected = shapely.intersects_xy(shape, frame["x"].to_numpy(np.float64), frame["y"].to_numpy(np.float64)).sum()
    assert expected > 10_000
    assert points.query(polygon=shape, columns=["x"]).num_rows == expected
    assert points.count(polygon=shape).count == expected


def test_the_whole_section_fills_a_budget_by_half_at_least(section: Built) -> None:
    points, _ = section
    for budget in (20_000, 200_000, 700_000):
        assert 0.5 * budget <= points.query(budget=budget, columns=["x"]).num_rows <= budget


def test_a_level_of_the_section_keeps_the_counts_of_its_tiles_in_proportion(section: Built) -> None:
    points, frame = section
    for level in points.levels[1:]:
        whole = np.bincount(level.grid.tile_ids(frame[["x", "y"]].to_numpy()), minlength=level.grid.n_tiles)
        spread = np.sqrt(whole * level.fraction * (1 - level.fraction))
        # Five standard deviations in some hundred tiles: a sound sample fails for one seed in ten thousand.
        assert (np.abs(level.tile_counts - whole * level.fraction) <= 5 * spread + 1e-9).all()


@pytest.mark.parametrize("system", [None, "global"])
def test_boxes_of_the_breast_in_both_systems(breast: Built, system: str | None) -> None:
    points, frame = breast
    # the scale as the store has it; 4.70588 is how it is printed
    scale = 1.0 if system is None else float(points.systems["global"][0, 0])
    assert scale == 1.0 or scale == pytest.approx(4.70588, abs=1e-5)
    for x, y, z in ((1_000, 1_000, 10), (1_500, 2_200, 18.5), (300, 4_000, 25)):
        box = {
            "x": (x * scale, (x + 700) * scale),
            "y": (y * scale, (y + 350) * scale),
            "z": (z * scale, (z + 9.5) * scale),
        }
        if system is not None:
            box["z"] = (box["z"][0] / scale, box["z"][1] / scale)
        inside = is_in(frame, {"x": box["x"], "y": box["y"]}, scale) & is_in(frame, {"z": box["z"]})
        table = points.query(box=box, coordinate_system=system)
        assert table.num_rows == inside.sum()
        assert points.count(box=box, coordinate_system=system).count == inside.sum()
        assert sorted(table.column("cell_id").to_pylist()) == sorted(frame["cell_id"][inside])


def test_a_filter_and_a_feature_of_the_breast(breast: Built) -> None:
    points, frame = breast
    gene = frame["feature_name"].value_counts().index[3]
    kept = (frame["feature_name"] == gene) & (frame["cell_id"] != -1) & (frame["z"] >= 20)
    where = "cell_id <> -1 AND z >= 20"
    assert points.query(features=gene, where=where, columns=["x"]).num_rows == kept.sum()
    assert points.count(features=gene, where=where).count == kept.sum()
