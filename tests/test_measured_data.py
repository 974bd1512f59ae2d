"""Every measured source is indexed, and asked, and holds what plain pandas finds in it."""

import json
import shutil
import warnings
from pathlib import Path

import pandas as pd
import pytest

import puncta
from puncta.errors import UnsupportedError
from puncta.points import Points


def write_with_spatialdata(source: Path, target: Path) -> None:
    """Read a store of any version with spatialdata, and write it as it writes today."""
    import spatialdata  # noqa: PLC0415  # takes seconds, and most tests here do without

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spatialdata.read_zarr(source).write(target)


def parquet_of(element: Path) -> pd.DataFrame:
    parts = sorted((element / "points.parquet").glob("*.parquet"), key=lambda part: int(part.name.split(".")[1]))
    return pd.concat([pd.read_parquet(part) for part in parts])


def inside(frame: pd.DataFrame, x0: float, y0: float, x1: float, y1: float) -> pd.Series:
    return (frame.x >= x0) & (frame.x < x1) & (frame.y >= y0) & (frame.y < y1)


def counts_of(points: Points) -> dict[str, int]:
    found = {name: points.count(features=[name]).count for name in points.features}
    return {name: count for name, count in found.items() if count}


@pytest.fixture(scope="module")
def coronal(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Points:
    store = tmp_path_factory.mktemp("coronal") / "coronal.zarr"
    puncta.index_points(shared_data / "iss_mouse_coronal" / "spots.parquet", store)
    return puncta.open_points(store)


@pytest.fixture(scope="session")
def breast(shared_data: Path) -> Path:
    return next((shared_data / "xenium_breast_points_sdata").glob("*.zarr"))


@pytest.mark.parametrize(
    ("corners", "features", "expected"),
    [
        ((10_000, 10_000, 12_000, 12_000), None, 11_559),
        ((10_000, 10_000, 12_000, 12_000), ["Plp1"], 5_279),
        ((16_000, 14_000, 18_000, 16_000), None, 39_107),
        ((0, 0, 256, 256), None, 0),
    ],
)
def test_the_boxes_of_the_coronal_section(
    coronal: Points, corners: tuple[float, ...], features: list[str] | None, expected: int
) -> None:
    box = {"x": (corners[0], corners[2]), "y": (corners[1], corners[3])}
    assert coronal.query(box=box, features=features).num_rows == expected
    assert coronal.count(box=box, features=features).count == expected


def test_the_coronal_section_keeps_every_gene(coronal: Points, shared_data: Path) -> None:
    frame = pd.read_parquet(shared_data / "iss_mouse_coronal" / "spots.parquet")
    assert coronal.n_rows == len(frame) == 1_528_575
    assert counts_of(coronal) == frame.feature_name.value_counts().loc[lambda count: count > 0].to_dict()


def test_a_section_is_validated_whole(coronal: Points) -> None:
    assert puncta.validate(coronal.path) == []


def test_the_breast_store_goes_into_a_new_store(breast: Path, tmp_path: Path) -> None:
    frame = parquet_of(breast / "points" / "transcripts")
    report = puncta.index_points(breast, tmp_path / "new.zarr", limit=1_000)
    points = puncta.open_points(tmp_path / "new.zarr")

    assert (points.n_rows, len(points.features)) == (213_191, 541)
    assert points.count(box={"x": (1000, 1500), "y": (1000, 1500)}).count == 1_855
    assert counts_of(points) == frame.feature_name.value_counts().loc[lambda count: count > 0].to_dict()
    assert any("position" in note for note in report.notes)  # its index repeats
    low, high = 1000 * 4.705882352941177, 1500 * 4.705882352941177
    scaled = points.count(box={"x": (low, high), "y": (low, high)}, coordinate_system="global").count
    moved = frame.assign(
        x=frame.x.astype("f4").astype("f8") * 4.705882352941177, y=frame.y.astype("f4").astype("f8") * 4.705882352941177
    )
    assert scaled == inside(moved, low, low, high, high).sum()


def test_the_breast_store_of_format_2_is_never_changed(breast: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.zarr"
    shutil.copytree(breast, copy)
    with pytest.raises(UnsupportedError, match=r"-o NEW\.zarr"):
        puncta.index_points(copy / "points" / "transcripts", in_place=True)
    assert not list(copy.rglob("zarr.json"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*inplace.*")
def test_a_copy_of_format_3_is_indexed_in_place(breast: Path, tmp_path: Path) -> None:
    import spatialdata  # noqa: PLC0415  # as above

    store = tmp_path / "copy.zarr"
    write_with_spatialdata(breast, store)
    before = parquet_of(store / "points" / "transcripts")
    puncta.index_points(store / "points" / "transcripts", in_place=True, limit=1_000)

    assert puncta.validate(store) == []
    after = spatialdata.read_zarr(store).points["transcripts"].compute()
    assert list(after.feature_name.cat.categories) == list(before.feature_name.cat.categories)
    rounded = before.astype(dict.fromkeys(("x", "y", "z"), "f4"))
    keys = sorted(before.columns)
    pd.testing.assert_frame_equal(
        rounded[keys].sort_values(keys, ignore_index=True), after[keys].sort_values(keys, ignore_index=True)
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_segtraq_store_comes_along_whole(shared_data: Path, tmp_path: Path) -> None:
    import spatialdata  # noqa: PLC0415  # as above

    source = next((shared_data / "xenium_segtraq_sdata").glob("*.zarr"))
    puncta.index_points(source, tmp_path / "new.zarr", all_elements=True, limit=500)

    old, new = spatialdata.read_zarr(source), spatialdata.read_zarr(tmp_path / "new.zarr")
    assert {name for _, name, _ in new.gen_elements()} == {name for _, name, _ in old.gen_elements()}
    points = puncta.open_points(tmp_path / "new.zarr")
    frame = parquet_of(source / "points" / "transcripts")
    assert points.n_rows == len(frame) == 23_691
    assert counts_of(points) == frame.feature_name.value_counts().loc[lambda count: count > 0].to_dict()


@pytest.mark.parametrize("inner", ["", "transcripts.parquet"])
def test_xenium_files_are_recognised(shared_data: Path, tmp_path: Path, inner: str) -> None:
    folder = shared_data / "xenium_lung_15k"
    report = puncta.index_points(folder / inner, tmp_path / "new.zarr", limit=500)
    points = puncta.open_points(tmp_path / "new.zarr")

    frame = pd.read_parquet(folder / "transcripts.parquet").rename(columns={"x_location": "x", "y_location": "y"})
    assert (report.words.split()[0], points.n_rows) == ("Xenium", 15_000)
    x0, y0 = float(frame.x.median()), float(frame.y.median())
    expected = inside(frame, x0, y0, x0 + 100, y0 + 100).sum()
    assert points.count(box={"x": (x0, x0 + 100), "y": (y0, y0 + 100)}).count == expected > 0


def test_controls_are_dropped_and_counted(shared_data: Path, tmp_path: Path) -> None:
    frame = pd.read_parquet(shared_data / "xenium_lung_15k" / "transcripts.parquet")
    names = frame.feature_name.map(lambda name: name.decode() if isinstance(name, bytes) else name)
    controls = names.str.contains(r"^(?:NegControl|BLANK|Unassigned|Deprecated|antisense|Intergenic)", regex=True)
    report = puncta.index_points(shared_data / "xenium_lung_15k", tmp_path / "new.zarr", drop_controls=True)

    assert report.n_rows == (~controls).sum()
    assert report.dropped.get("controls", 0) == controls.sum()
    attrs = json.loads((Path(report.path) / "zarr.json").read_text())["attributes"]
    assert attrs["spatial_index"]["dropped"]["controls"] == controls.sum()


@pytest.mark.parametrize("inner", ["", "detected_transcripts.csv"])
def test_merscope_files_are_recognised(shared_data: Path, tmp_path: Path, inner: str) -> None:
    folder = shared_data / "merscope_liver"
    report = puncta.index_points(folder / inner, tmp_path / "new.zarr", limit=500)
    points = puncta.open_points(tmp_path / "new.zarr")

    frame = pd.read_csv(folder / "detected_transcripts.csv", index_col=0, keep_default_na=False)
    assert (report.words.split()[0], points.n_rows, points.axes) == ("MERSCOPE", 5_936, ("x", "y", "z"))
    assert counts_of(points) == frame.gene.value_counts().to_dict()
    assert {"x_source", "y_source"} <= set(points.columns)
    layer = points.count(box={"z": (2, 4)}).count
    assert layer == ((frame.global_z >= 2) & (frame.global_z < 4)).sum()


def test_fixtures_of_every_version_are_indexed(shared_data: Path, tmp_path: Path) -> None:
    elements = sorted((shared_data / "format_fixtures_blobs").glob("*/points/*/points.parquet"))
    assert len(elements) >= 4
    for number, parquet in enumerate(elements):
        report = puncta.index_points(parquet.parent, tmp_path / f"{number}.zarr")
        assert report.n_rows == len(pd.read_parquet(parquet))
        assert puncta.validate(tmp_path / f"{number}.zarr") == []
