"""The element that comes out: laws of its levels on random tables, its files, its arrays and its metadata."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr_cm
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from puncta.indexing import index_points
from puncta.spec.points import validate_points_attrs

type Read = Callable[..., list[pa.Table]]
type Numbers = Callable[..., NDArray[np.int64]]


@dataclass(frozen=True)
class Case:
    """A random table, and how it is indexed."""

    table: pa.Table
    options: dict[str, Any]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw points in 2-D or 3-D, some on tile borders, some without a gene; and any grid that covers them."""
    axes = draw(st.sampled_from([("x", "y"), ("y", "x"), ("x", "y", "z"), ("z", "y", "x"), ("y", "z", "x")]))
    n_rows, rng = draw(st.integers(1, 300)), np.random.default_rng(draw(st.integers(0, 9999)))
    extents = [draw(st.sampled_from([0.0, 1.0, 37.0])) for _ in axes]
    lower = [draw(st.sampled_from([-100.0, 0.0, 0.3, 12_345.0])) for _ in axes]
    places = {
        a: (low + np.floor(rng.random(n_rows) ** 2 * 64) / 64 * size)
        for a, low, size in zip(axes, lower, extents, strict=True)
    }
    sizes = tuple(draw(st.sampled_from([3.0, 7.0, 37.0 / 4, 100.0])) * (size / 37 or 1) for size in extents)
    shift = draw(st.sampled_from([0.0, 0.5, 1.0]))
    stored = {axis: values.astype(np.float32) for axis, values in places.items()}
    origin = [float(stored[axis].min()) - shift * size for axis, size in zip(axes, sizes, strict=True)]
    genes = np.asarray(["a", "b", "c", None], dtype=object)[np.minimum(rng.geometric(0.5, n_rows) - 1, 3)]
    table = pa.table({**stored, "gene": pa.array(genes, pa.string()), "n": rng.random(n_rows), "id": np.arange(n_rows)})
    options = {"axes": axes, "tile_size": sizes, "origin": origin, "feature_key": "gene"}
    chosen = {
        "limit": draw(st.integers(1, 40)),
        "seed": draw(st.integers(0, 5)),
        "max_levels": draw(st.sampled_from([3, None])),
    }
    return Case(table, options | chosen | {"feature_levels": draw(st.sampled_from(["all", "shared", "none"]))})


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that indexes a table into a new store, and returns the element."""

    def built(table: object, **options: Any) -> Path:  # noqa: ANN401 (as index_points takes them)
        return Path(index_points(table, tmp_path_factory.mktemp("build") / "s.zarr", **options).path)

    return built


def frame(tables: list[pa.Table] | pa.Table) -> pd.DataFrame:
    """Return rows in the order of their ids, genes as text."""
    rows = tables if isinstance(tables, pa.Table) else pa.concat_tables(tables)
    found: pd.DataFrame = rows.to_pandas().astype({"gene": object}).sort_values("id", ignore_index=True)
    return found.where(found.notna(), None)[sorted(found.columns)]


def check_tiles(groups: list[pa.Table], numbers: NDArray[np.int64], n_tiles: int) -> None:
    """Every point lies in exactly one tile, the one that its coordinates name; and there is a row group for each."""
    sizes = [group.num_rows for group in groups]
    assert len(groups) == n_tiles
    np.testing.assert_array_equal(np.repeat(np.arange(n_tiles), sizes), numbers)


def check_nested(coarse: list[pa.Table], fine: pd.DataFrame) -> pd.DataFrame:
    """Every row of the coarse level is one of the fine level, in all columns, and no row is there twice."""
    found = frame(coarse)
    assert found["id"].is_unique
    expected = fine[fine["id"].isin(found["id"])].reset_index(drop=True)
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)
    return found


@settings(max_examples=18)
@given(case=cases())
def test_the_laws_of_levels_hold_for_any_points_and_grid(
    case: Case,
    build: Callable[..., Path],
    tiles_of: Read,
    tile_numbers_of: Numbers,
    attributes_of: Callable[..., Any],
    array_of: Callable[..., NDArray[Any]],
) -> None:
    element = build(case.table, **case.options)
    layout = attributes_of(element)["multiscales"]["layout"]

    below = frame(case.table)
    for level, entry in enumerate(layout):
        groups, index = tiles_of(element, level), entry["spatial_index"]
        rows = pa.concat_tables(groups)
        check_tiles(groups, tile_numbers_of(element, rows, level), int(np.prod(index["grid_shape"])))
        np.testing.assert_array_equal(array_of(element, f"{level}/tile_offsets"), np.cumsum([0, *map(len, groups)]))
        assert rows.num_rows == index["n_rows"]
        below = check_nested(groups, below)
        assert level or len(below) == len(case.table)
    shutil.rmtree(element.parents[1])


@settings(max_examples=18)
@given(case=cases())
def test_the_laws_of_feature_major_copies_hold_for_any_points_and_grid(
    case: Case,
    build: Callable[..., Path],
    copy_of: Read,
    tile_numbers_of: Numbers,
    attributes_of: Callable[..., Any],
    array_of: Callable[..., NDArray[Any]],
) -> None:
    element = build(case.table, **case.options)
    layout = attributes_of(element)["multiscales"]["layout"]
    names = array_of(element, "features/gene").tolist()

    below = frame(case.table)
    for level, entry in enumerate(layout if case.options["feature_levels"] != "none" else layout[:1]):
        groups = copy_of(element, level)
        assert sum(group.num_rows for group in groups) == entry["spatial_index"]["n_rows_feature"]
        if not groups:
            # a low limit may keep no point of any feature: what is coarser has none either
            break
        rows = pa.concat_tables(groups)
        codes = np.asarray([names.index(name) if name is not None else len(names) for name in rows["gene"].to_pylist()])
        tiles = tile_numbers_of(element, rows, level)
        np.testing.assert_array_equal(np.lexsort((tiles, codes)), np.arange(len(codes)))
        check_feature_arrays(partial(at_level, array_of, element, level), codes, tiles, len(names))
        found = check_nested(groups, below)
        below = found if case.options["feature_levels"] == "all" else below
        assert level or len(found) == len(case.table)
    shutil.rmtree(element.parents[1])


def at_level(array_of: Callable[..., NDArray[Any]], element: Path, level: int, path: str) -> NDArray[Any]:
    return array_of(element, f"{level}/{path}")


def check_feature_arrays(
    array: Callable[[str], NDArray[Any]], codes: NDArray[np.int64], tiles: NDArray[np.int64], n_features: int
) -> None:
    """The offsets and the feature tiles say where the rows of each feature, and of each tile of it, are."""
    try:
        offsets = array("feature_offsets")
    except FileNotFoundError:
        offsets = array("feature_offsets_own")
    np.testing.assert_array_equal(offsets, np.searchsorted(codes, np.arange(n_features + 1)))
    named = codes < n_features
    pairs, starts = np.unique(np.stack([codes[named], tiles[named]]), axis=1, return_index=True)
    np.testing.assert_array_equal(array("feature_tiles/indptr"), np.searchsorted(pairs[0], np.arange(n_features + 1)))
    np.testing.assert_array_equal(array("feature_tiles/tiles"), pairs[1])
    np.testing.assert_array_equal(array("feature_tiles/starts"), starts)


@settings(max_examples=6)
@given(case=cases())
def test_the_metadata_of_any_build_breaks_no_rule(
    case: Case, build: Callable[..., Path], attributes_of: Callable[..., dict[str, Any]]
) -> None:
    element = build(case.table, **case.options)
    attrs = attributes_of(element)
    assert validate_points_attrs(attrs, strict=True) == []
    zarr_cm.validate_all(attrs)
    zarr_cm.multiscales.validate_group_metadata(json.loads((element / "zarr.json").read_text()))


# --- files


@pytest.fixture(scope="module")
def element(build: Callable[..., Path], molecules: Callable[..., pa.Table]) -> Path:
    """Return an element of 900 tiles, of which many are empty."""
    return build(molecules(3000), limit=40, tile_size=(100 / 29.9, 100 / 29.9), origin=(0, 0))


def test_there_are_256_tiles_a_part_and_empty_ones_have_a_row_group(element: Path) -> None:
    parts = [pq.ParquetFile(element / "points.parquet" / f"part.{number}.parquet") for number in range(4)]
    assert [part.num_row_groups for part in parts] == [256, 256, 256, 132]
    sizes = [part.metadata.row_group(group).num_rows for part in parts for group in range(part.num_row_groups)]
    assert 0 in sizes
    assert sum(sizes) == 3000


def test_a_part_of_nothing_but_empty_tiles_has_its_schema(build: Callable[..., Path]) -> None:
    table = pa.table({"x": [0.0, 999.0], "y": [0.0, 0.5], "gene": ["a", "b"]})
    element = build(table, tile_size=(1, 1), origin=(0, 0))
    empty = pq.ParquetFile(element / "points.parquet/part.1.parquet")
    assert (empty.metadata.num_rows, empty.num_row_groups) == (0, 256)
    assert empty.schema_arrow.equals(pq.read_schema(element / "points.parquet/part.0.parquet"))


def test_every_part_has_the_pandas_metadata_and_the_whole_dictionary(element: Path) -> None:
    for part in element.rglob("part.*.parquet"):
        block = json.loads(pq.read_schema(part).metadata[b"pandas"])
        gene = next(column for column in block["columns"] if column["name"] == "gene")
        assert (gene["pandas_type"], gene["metadata"]["num_categories"]) == ("categorical", 5)
    filled = pq.ParquetFile(element / "points.parquet/part.0.parquet").read_row_group(0)["gene"].chunk(0)
    assert filled.dictionary.to_pylist() == ["g0", "g1", "g2", "g3", "g4"]


def test_coordinates_come_first_then_the_feature(element: Path) -> None:
    assert pq.read_schema(element / "points.parquet/part.0.parquet").names == ["x", "y", "gene", "qv", "id"]


def test_row_groups_and_parts_of_a_copy_are_where_the_arrays_say(
    build: Callable[..., Path], molecules: Callable[..., pa.Table], copy_of: Read, array_of: Callable[..., NDArray[Any]]
) -> None:
    element = build(molecules(60_000), limit=5000, tile_size=20, origin=(0, 0), feature_levels="none")
    groups = [group.num_rows for group in copy_of(element)]
    assert len(groups) > 3
    np.testing.assert_array_equal(array_of(element, "0/feature_row_groups"), np.cumsum([0, *groups]))
    assert array_of(element, "0/feature_parts").tolist() == [0, len(groups)]
    assert max(groups) <= 16_384 * 1.25


def test_groups_and_levels_are_zarr_groups_of_their_own(element: Path) -> None:
    for folder in ("feature", "feature/0", "feature/1", "levels", "levels/1", "index", "index/0", "index/1"):
        document = json.loads((element / folder / "zarr.json").read_text())
        assert (document["node_type"], document["zarr_format"]) == ("group", 3)


def test_there_is_nothing_else_in_the_element(element: Path) -> None:
    assert {path.name for path in element.iterdir()} == {"zarr.json", "points.parquet", "feature", "levels", "index"}
    assert [path.name for path in element.parents[2].iterdir()] == ["s.zarr"]


# --- options


def test_shared_levels_hold_the_features_whose_fraction_changed_there(
    build: Callable[..., Path],
    molecules: Callable[..., pa.Table],
    copy_of: Read,
    array_of: Callable[..., NDArray[Any]],
    attributes_of: Callable[..., Any],
) -> None:
    options = {"limit": 60, "tile_size": 10, "origin": (0, 0)}
    whole, shared = (build(molecules(3000), feature_levels=mode, **options) for mode in ("all", "shared"))
    fractions = [
        level["spatial_index"].get("sampling", {"P_feature": [1.0] * 5})["P_feature"]
        for level in attributes_of(shared)["multiscales"]["layout"]
    ]
    assert fractions == [
        level["spatial_index"].get("sampling", {"P_feature": [1.0] * 5})["P_feature"]
        for level in attributes_of(whole)["multiscales"]["layout"]
    ]
    for level in range(1, len(fractions)):
        level_of = array_of(shared, f"{level}/feature_level_of")
        for gene in range(5):
            own = max(
                [
                    0,
                    *(
                        number
                        for number in range(1, level + 1)
                        if fractions[number][gene] != fractions[number - 1][gene]
                    ),
                ]
            )
            assert level_of[gene] == own
            serving = pa.concat_tables(copy_of(shared, own)).to_pandas()
            expected = pa.concat_tables(copy_of(whole, level)).to_pandas()
            assert set(serving["id"][serving["gene"] == f"g{gene}"]) == set(
                expected["id"][expected["gene"] == f"g{gene}"]
            )
        assert not (shared / "index" / str(level) / "feature_offsets").exists()


def test_shared_levels_are_smaller_and_none_has_level_0_alone(
    build: Callable[..., Path], molecules: Callable[..., pa.Table]
) -> None:
    sizes = {}
    for mode in ("all", "shared", "none"):
        element = build(molecules(3000), feature_levels=mode, limit=60, tile_size=10, origin=(0, 0))
        sizes[mode] = {path.parent.parent.name for path in element.glob("feature/*/points.parquet/part.0.parquet")}
    assert sizes["none"] == {"0"}
    assert sizes["all"] == sizes["shared"] == {"0", "1", "2", "3", "4"}


def test_nulls_follow_the_last_feature_at_every_level_of_shared_copies(
    build: Callable[..., Path], copy_of: Read, array_of: Callable[..., NDArray[Any]]
) -> None:
    genes = pa.array((["a", None, "b", "a"]) * 50)
    table = pa.table({"x": np.arange(200.0), "y": np.arange(200.0), "gene": genes, "id": np.arange(200)})
    element = build(table, limit=500, tile_size=50, origin=(0, 0), feature_levels="shared")
    for level in range(1, 3):
        rows = pa.concat_tables(copy_of(element, level))
        assert rows["gene"].to_pylist() == [None] * 50
        assert array_of(element, f"{level}/feature_offsets_own").tolist() == [0, 0, 0]


def test_without_feature_order_there_is_no_copy(
    build: Callable[..., Path], molecules: Callable[..., pa.Table], attributes_of: Callable[..., Any]
) -> None:
    element = build(molecules(500), feature_order=False, limit=50, tile_size=25)
    assert not (element / "feature").exists()
    assert attributes_of(element)["spatial_index"]["orders"] == ["spatial"]
    assert validate_points_attrs(attributes_of(element), strict=True) == []


def test_a_further_feature_column_has_a_copy_of_its_own(
    build: Callable[..., Path],
    molecules: Callable[..., pa.Table],
    copy_of: Read,
    array_of: Callable[..., NDArray[Any]],
    attributes_of: Callable[..., Any],
) -> None:
    table = molecules(2000).append_column("kind", pa.array(["one", None, "two", "two"] * 500))
    element = build(table, feature_key=["gene", "kind"], limit=100, tile_size=20)
    rows = pa.concat_tables(copy_of(element, 0, by="kind"))
    assert rows["kind"].to_pylist() == ["one"] * 500 + ["two"] * 1000 + [None] * 500
    assert array_of(element, "0/by-kind/feature_offsets").tolist() == [0, 500, 1500]
    level = attributes_of(element)["multiscales"]["layout"][1]["spatial_index"]
    assert level["by"]["kind"]["n_rows_feature"] == sum(group.num_rows for group in copy_of(element, 1, by="kind"))
    assert validate_points_attrs(attributes_of(element), strict=True) == []


def test_the_same_copy_comes_out_for_a_feature_that_stands_first_or_further(
    build: Callable[..., Path], molecules: Callable[..., pa.Table], copy_of: Read
) -> None:
    table = molecules(2000).append_column("kind", pa.array(["one", None, "two", "two"] * 500))
    first, second = (
        build(table, feature_key=keys, limit=100, tile_size=20) for keys in (["kind", "gene"], ["gene", "kind"])
    )
    for level in range(3):
        one, other = pa.concat_tables(copy_of(first, level)), pa.concat_tables(copy_of(second, level, by="kind"))
        assert one["id"].equals(other["id"])


def test_codes_are_a_column_where_asked(
    build: Callable[..., Path], tiles_of: Read, array_of: Callable[..., NDArray[Any]]
) -> None:
    table = pa.table({"x": [0.0, 1, 2], "y": [0.0, 1, 2], "gene": ["b", None, "a"]})
    element = build(table, codes_column=True)
    rows = pa.concat_tables(tiles_of(element))
    assert rows.schema.names == ["x", "y", "gene", "gene_codes"]
    names = [*array_of(element, "features/gene").tolist(), None]
    assert [names[code] for code in rows["gene_codes"].to_pylist()] == rows["gene"].to_pylist()


@pytest.mark.parametrize(("n_genes", "is_array"), [(256, False), (257, True)])
def test_many_fractions_are_an_array_beside_the_offsets(
    build: Callable[..., Path],
    n_genes: int,
    is_array: bool,
    attributes_of: Callable[..., Any],
    array_of: Callable[..., NDArray[Any]],
) -> None:
    genes = [f"g{number:03d}" for number in range(n_genes)] + ["g000"] * 300
    table = pa.table({"x": np.arange(len(genes)) % 90, "y": np.arange(len(genes)) // 90, "gene": genes})
    element = build(table, tile_size=30, limit=100)
    found = attributes_of(element)["multiscales"]["layout"][-1]["spatial_index"]["sampling"]["P_feature"]
    level = len(attributes_of(element)["multiscales"]["layout"]) - 1
    fractions = array_of(element, found["array"].removeprefix("index/")) if is_array else found
    assert found == {"array": f"index/{level}/P_feature"} if is_array else isinstance(found, list)
    assert len(fractions) == n_genes
    assert fractions[0] < 1
    assert set(fractions[1:]) == {1.0}


@pytest.mark.parametrize("max_levels", [1, 2, None])
def test_levels_stop_where_asked_or_at_a_single_tile(
    build: Callable[..., Path],
    molecules: Callable[..., pa.Table],
    max_levels: int | None,
    attributes_of: Callable[..., Any],
) -> None:
    element = build(molecules(500), max_levels=max_levels, tile_size=20, origin=(0, 0))
    layout = attributes_of(element)["multiscales"]["layout"]
    assert len(layout) == (max_levels or 4)
    assert (layout[-1]["spatial_index"]["grid_shape"] == [1, 1]) == (max_levels is None)


# --- the same input, the same bytes


@pytest.fixture(scope="module")
def large(molecules: Callable[..., pa.Table]) -> pa.Table:
    """Return enough rows for several buckets, with words in every order of appearance."""
    table = molecules(50_000, genes=8)
    words = np.random.default_rng(1).choice(["p", "q", "r", None], 50_000)
    return table.append_column("word", pa.array(words.tolist()))


def digests(element: Path) -> dict[str, str]:
    """Return the digest of each file of an element."""
    files = (path for path in sorted(element.rglob("*")) if path.is_file())
    return {path.relative_to(element).as_posix(): sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def expected(build: Callable[..., Path], large: pa.Table) -> dict[str, str]:
    """Return the digests of an index of many rows, built by one thread in one bucket a part."""
    return digests(build(large, limit=2000, workers=1, seed=3, tile_size=3, origin=(0, 0)))


def pieces(table: pa.Table, size: int) -> pa.Table:
    return pa.concat_tables([table.slice(start, size) for start in range(0, len(table), size)])


@pytest.mark.parametrize(
    ("workers", "memory", "size"), [(2, "1GB", 50_000), (32, "400MB", 50_000), (3, "1GB", 1777), (32, "400MB", 20_011)]
)
def test_files_are_the_same_whatever_the_workers_the_memory_and_the_batches(
    build: Callable[..., Path], large: pa.Table, expected: dict[str, str], workers: int, memory: str, size: int
) -> None:
    options = {"limit": 2000, "seed": 3, "tile_size": 3, "origin": (0, 0)}
    found = build(pieces(large, size), workers=workers, memory=memory, **options)
    assert digests(found) == expected


def test_another_seed_gives_another_sample_of_the_same_points(
    build: Callable[..., Path], molecules: Callable[..., pa.Table], tiles_of: Read
) -> None:
    elements = [build(molecules(2000), limit=100, tile_size=20, seed=seed) for seed in (0, 1)]
    samples = [set(pa.concat_tables(tiles_of(element, 2))["id"].to_pylist()) for element in elements]
    assert samples[0] != samples[1]
    assert pa.concat_tables(tiles_of(elements[0])).equals(pa.concat_tables(tiles_of(elements[1])))


# --- which points are sampled


def sampled(element: Path, tiles_of: Read) -> set[int]:
    return set(pa.concat_tables(tiles_of(element, 2))["id"].to_pylist())


@pytest.fixture(scope="module")
def shuffles(molecules: Callable[..., pa.Table]) -> Callable[[str | None], pd.DataFrame]:
    """Return a function that shuffles molecules whose index, of some name, is their original number."""
    frame: pd.DataFrame = molecules(2000).to_pandas()

    def shuffled(name: str | None) -> pd.DataFrame:
        return frame.rename_axis(name).sample(frac=1, random_state=0)

    return shuffled


@pytest.mark.parametrize("name", ["__null_dask_index__", "transcript", None])
def test_unique_ids_give_the_sample_of_the_original_order(
    build: Callable[..., Path],
    molecules: Callable[..., pa.Table],
    shuffles: Callable[..., pd.DataFrame],
    tiles_of: Read,
    name: str | None,
) -> None:
    plain, shuffled = (
        build(table, limit=100, tile_size=20, origin=(0, 0)) for table in (molecules(2000), shuffles(name))
    )
    assert sampled(plain, tiles_of) == sampled(shuffled, tiles_of)


def test_ids_that_repeat_give_the_sample_by_position_and_are_said(
    tmp_path: Path,
    build: Callable[..., Path],
    shuffles: Callable[..., pd.DataFrame],
    tiles_of: Read,
) -> None:
    frame = shuffles("__null_dask_index__").assign(place=np.arange(2000))
    frame.index = pd.Index(np.where(frame.index == 5, 7, frame.index), name="__null_dask_index__")
    report = index_points(frame, tmp_path / "s.zarr", limit=100, tile_size=20, origin=(0, 0))
    by_position = build(frame.reset_index(drop=True), limit=100, tile_size=20, origin=(0, 0))
    assert sampled(Path(report.path), tiles_of) == sampled(by_position, tiles_of)
    assert any("not shown to hold unique integers" in note for note in report.notes)


def test_rows_that_a_filter_leaves_keep_their_place_in_the_sampling(
    build: Callable[..., Path], molecules: Callable[..., pa.Table], tiles_of: Read
) -> None:
    options = {"limit": 10**6, "tile_size": 20, "origin": (0, 0)}
    everything, chosen = build(molecules(2000), **options), build(molecules(2000), where="qv >= 20", **options)
    rows = pa.concat_tables(tiles_of(everything)).to_pandas()
    kept = pa.concat_tables(tiles_of(chosen)).to_pandas()
    assert kept["id"].tolist() == rows["id"][rows["qv"] >= 20].tolist()
