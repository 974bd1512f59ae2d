"""Answers of built indexes against pandas on the table that was indexed."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import puncta
from puncta.errors import ColumnError, GridError, QueryError, StoreError
from puncta.points import Points

type Built = tuple[Points, pd.DataFrame]
type Box = dict[str, tuple[float, float]]

SOME_BOX = {"x": (-20.5, 45.25), "y": (60.0, 150.0)}


def rows(table: pa.Table) -> list[int]:
    """Return the ids of the rows, ascending, repeated ones included."""
    return sorted(table.column("row").to_pylist())


def says(table: pa.Table) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(table.schema.metadata[b"puncta"])
    return document


def is_in(frame: pd.DataFrame, box: Box) -> NDArray[np.bool_]:
    kept = np.ones(len(frame), dtype=bool)
    for axis, (low, high) in box.items():
        values = frame[axis].to_numpy().astype(np.float64)
        kept &= (values >= low) & (values < high)
    return kept


def found(frame: pd.DataFrame, kept: NDArray[np.bool_] | pd.Series) -> list[int]:
    return sorted(frame["row"][kept].tolist())


@st.composite
def boxes(draw: st.DrawFn, frame: pd.DataFrame, points: Points) -> Box:
    """Return a box whose bounds are coordinates of points, tile borders, infinite or anything between."""
    box = {}
    for axis in draw(st.lists(st.sampled_from(sorted(points.axes)), unique=True)):
        at, grid = points.axes.index(axis), points.levels[0].grid
        borders = [grid.origin[at] + step * grid.tile_size[at] for step in range(grid.shape[at] + 1)]
        known = st.sampled_from([*borders, -np.inf, np.inf]) | st.sampled_from(frame[axis].to_numpy().tolist())
        low, high = sorted(draw(st.tuples(*[known | st.floats(-120, 220)] * 2)))
        box[axis] = (float(low), float(high))
    return box


@given(st.data())
@settings(max_examples=25)
def test_a_box_gives_the_points_in_it(built: Built, data: st.DataObject) -> None:
    points, frame = built
    box = data.draw(boxes(frame, points))
    table = points.query(box=box, columns=["row"])
    assert rows(table) == found(frame, is_in(frame, box))
    assert says(table)["complete"]
    count = points.count(box=box)
    assert (count.count, count.exact) == (table.num_rows, True)


@given(st.data())
@settings(max_examples=25)
def test_features_in_a_box_are_the_points_of_both(built: Built, data: st.DataObject) -> None:
    points, frame = built
    box = data.draw(boxes(frame, points))
    names = data.draw(st.lists(st.sampled_from(points.features), max_size=4))
    table = points.query(box=box, features=names, columns=["row", "gene"])
    kept = is_in(frame, box) & frame["gene"].isin(names).to_numpy()
    assert rows(table) == found(frame, kept)
    assert points.count(box=box, features=names).count == table.num_rows


def test_corners_are_in_the_order_of_the_axes(built: Built) -> None:
    points, frame = built
    box = {**SOME_BOX, "z": (3.0, 22.0)} if "z" in points.axes else SOME_BOX
    lower, upper = ([box[axis][end] for axis in points.axes] for end in (0, 1))
    assert rows(points.query(box=(lower, upper))) == found(frame, is_in(frame, box))


def test_everything_comes_back_as_it_went_in(built: Built) -> None:
    points, frame = built
    answer = points.query().to_pandas().sort_values("row", ignore_index=True)
    pd.testing.assert_frame_equal(answer[list(frame.columns)], frame, check_column_type=False)
    assert points.n_rows == len(points) == len(frame)


def test_a_column_of_many_categories_is_text_in_the_files_and_categorical_in_answers(plain: Built) -> None:
    points, frame = plain
    assert not pa.types.is_dictionary(points.schema.field("cell_id").type)
    cells = points.query(box=SOME_BOX, columns=["cell_id"]).column("cell_id")
    assert pa.types.is_dictionary(cells.type)
    assert cells.chunk(0).dictionary.to_pylist() == frame["cell_id"].cat.categories.tolist()


def test_codes_are_the_positions_of_the_categories(plain: Built) -> None:
    points, frame = plain
    answer = points.query(columns=["gene_codes", "row"]).to_pandas().sort_values("row")
    np.testing.assert_array_equal(answer["gene_codes"], frame["gene"].cat.codes)


def test_features_are_in_category_order_with_unused_ones(built: Built) -> None:
    points, frame = built
    assert points.features == frame["gene"].cat.categories.tolist()
    assert points.query(features=["Unused"]).num_rows == 0
    assert points.count(features="Unused").count == 0


@pytest.mark.parametrize("name", ["all", "shared", "none"])
def test_a_further_feature_column_is_asked_by_its_name(build: Callable[..., Built], name: str) -> None:
    points, frame = build(name)
    table = points.query(box=SOME_BOX, features=["b", "d"], feature_key="kind")
    assert rows(table) == found(frame, is_in(frame, SOME_BOX) & frame["kind"].isin(["b", "d"]))
    assert points.count(features=["b"], feature_key="kind").count == (frame["kind"] == "b").sum()
    assert points.feature_keys == ("gene", "kind")


@pytest.mark.parametrize(
    ("where", "query"),
    [
        ("qv >= 20", "qv >= 20"),
        ("cell_id != -1 AND qv < 12.5", "cell_id != -1 and qv < 12.5"),
        ("gene = 'Gene2' OR gene = 'Gene5'", "gene in ['Gene2', 'Gene5']"),
        ("y > 3 * x", "y > 3 * x"),
        (["qv >= 20", "row < 4000"], "qv >= 20 and row < 4000"),
        ("gene IS NULL", "gene.isnull()"),
    ],
)
def test_filters_are_sql(plain: Built, where: str | list[str], query: str) -> None:
    points, frame = plain
    plain_frame = frame.astype({"cell_id": int, "gene": object})
    expected = found(frame, plain_frame.eval(query).to_numpy() & is_in(frame, SOME_BOX))
    assert expected
    assert rows(points.query(box=SOME_BOX, where=where)) == expected
    assert points.count(box=SOME_BOX, where=where).count == len(expected)


def test_a_filter_and_features_hold_together(built: Built) -> None:
    points, frame = built
    kept = is_in(frame, SOME_BOX) & (frame["gene"] == "Gene1") & (frame["qv"] >= 20)
    assert rows(points.query(box=SOME_BOX, features="Gene1", where="qv >= 20", columns=["row"])) == found(frame, kept)
    assert points.count(box=SOME_BOX, features="Gene1", where="qv >= 20").count == kept.sum()


def test_a_polygon_gives_the_points_in_it(built: Built) -> None:
    points, frame = built
    shape = shapely.Polygon([(-60, 0), (90, 20), (140, 180), (30, 90), (-40, 190)])
    kept = np.asarray([shape.intersects(shapely.Point(x, y)) for x, y in zip(frame["x"], frame["y"], strict=True)])
    assert rows(points.query(polygon=shape)) == found(frame, kept)
    assert rows(points.query(polygon=shape.wkt, box=SOME_BOX)) == found(frame, kept & is_in(frame, SOME_BOX))
    assert points.count(polygon=shapely.to_geojson(shape)).count == kept.sum()


def test_columns_come_back_in_the_order_asked(plain: Built) -> None:
    points, _ = plain
    assert points.query(box=SOME_BOX, columns=["row", "y", "gene"]).column_names == ["row", "y", "gene"]
    assert points.query(box=SOME_BOX, features="Gene1", where="qv > 3", columns=["row"]).column_names == ["row"]
    assert points.query(box=SOME_BOX).column_names == list(points.columns)


def test_no_columns_are_refused(plain: Built) -> None:
    points, _ = plain
    with pytest.raises(QueryError, match="use count"):
        points.query(box=SOME_BOX, columns=[])


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ({"features": ["Gne1"]}, r"1 of 1 features are no values of 'gene' \(first: 'Gne1'\); the nearest are Gene1"),
        ({"features": ["a"], "feature_key": "cell_id"}, "no feature column of this index; it has gene, kind"),
        ({"level": 99}, "no level 99; the levels are 0 to"),
        ({"level": -1}, "no level -1"),
        ({"level": 1, "budget": 5}, "give one of them"),
        ({"budget": 0}, "budget is 0"),
        ({"thinning": "some"}, "neither 'equal' nor 'own'"),
        ({"coordinate_system": "globl"}, "it has global"),
        ({"where": "qv >"}, "no SQL expression"),
        ({"where": "qv + 1"}, "not true or false"),
        ({"where": "gene > 7"}, "does not fit"),
    ],
)
def test_a_question_that_cannot_be_answered_is_refused(plain: Built, question: dict[str, Any], words: str) -> None:
    with pytest.raises(QueryError, match=words):
        plain[0].query(**question)


def test_a_column_that_is_not_there_is_refused_with_those_that_are(plain: Built) -> None:
    for question in ({"columns": ["qw"]}, {"where": "qw > 1"}):
        with pytest.raises(ColumnError, match=r"first: 'qw'.*qv"):
            plain[0].query(**question)


def test_a_box_over_an_axis_that_is_not_there_is_refused_with_those_that_are(plain: Built) -> None:
    with pytest.raises(GridError, match="names the axis 'z'; the axes are x, y"):
        plain[0].query(box={"z": (0, 1)})


def test_a_tile_that_is_not_there_is_refused(plain: Built) -> None:
    n_tiles = plain[0].levels[0].grid.n_tiles
    for tile in (-1, n_tiles):
        with pytest.raises(QueryError, match=f"0 to {n_tiles - 1}"):
            plain[0].read_tile(0, tile)
    with pytest.raises(QueryError, match="no level 50"):
        plain[0].read_tile(50, 0)


def test_explain_says_what_pyarrow_finds_in_the_footers(built: Built) -> None:
    points, frame = built
    level = points.levels[0]
    ids = level.grid.tile_ids(frame[list(points.axes)].to_numpy())
    listed = level.grid.tiles_in(SOME_BOX)
    told = points.explain(box=SOME_BOX, columns=["qv"])
    assert (told.level, told.order, told.complete, told.fraction) == (0, "spatial", True, 1.0)
    assert told.rows == np.isin(ids, listed).sum()
    assert told.tiles == len(set(ids) & set(listed))
    expected = 0
    for tile in sorted(set(ids) & set(listed)):
        footer = pq.read_metadata(points.path / "points.parquet" / f"part.{tile // 256}.parquet").row_group(tile % 256)
        columns = [footer.column(at) for at in range(footer.num_columns)]
        expected += sum(c.total_compressed_size for c in columns if c.path_in_schema in {"qv", *SOME_BOX})
    assert told.bytes == expected
    assert set(told.as_dict()) == {"level", "tiles", "rows", "requests", "bytes", "fraction", "complete", "order"}


def test_a_column_may_have_dots_in_its_name(tmp_path: Path) -> None:
    values = np.arange(50) / 7
    table = pa.table({"x": values, "y": values, "gene.name": ["a"] * 50, "q.v": values})
    points = puncta.open_points(puncta.index_points(table, tmp_path / "s.zarr", feature_key="gene.name").path)
    assert points.query(features="a", where='"q.v" < 1', columns=["q.v"]).column_names == ["q.v"]
    assert points.count(features="a", where='"q.v" < 1').count == 7
    assert points.explain(columns=["x", "q.v"]).bytes > points.explain(columns=["x"]).bytes


def wiped(element: Path, target: Path, keep: Callable[[Path, int], bool]) -> Points:
    """Return a copy of an element of which the column data of all row groups but some is overwritten."""
    shutil.copytree(element, target)
    for path in target.rglob("part.*.parquet"):
        footer = pq.read_metadata(path)
        content = bytearray(path.read_bytes())
        for number in range(footer.num_row_groups):
            if keep(path.relative_to(target), number):
                continue
            for column in (footer.row_group(number).column(at) for at in range(footer.num_columns)):
                start = column.dictionary_page_offset or column.data_page_offset
                content[start : start + column.total_compressed_size] = b"\xff" * column.total_compressed_size
        path.write_bytes(content)
    return puncta.open_points(target)


QUESTIONS: list[dict[str, Any]] = [
    {"box": SOME_BOX},
    {"features": ["Gene3", "Gene7"]},
    {"budget": 500},
    {"level": 2, "features": ["Gene0", "Gene7"], "box": SOME_BOX},
]


def test_explaining_and_counting_whole_tiles_reads_no_point(built: Built, tmp_path: Path) -> None:
    points, frame = built
    bare = wiped(points.path, tmp_path / "bare", lambda _path, _group: False)
    with pytest.raises(StoreError, match=r"points\.parquet/part\.[0-9]+\.parquet"):
        bare.query(box=SOME_BOX)
    for question in QUESTIONS:
        assert bare.explain(**question) == points.explain(**question)
    assert bare.count().count == len(frame)
    assert [level.densest_tile for level in bare.levels] == [level.densest_tile for level in points.levels]


def test_a_box_reads_no_row_group_but_those_of_its_tiles(built: Built, tmp_path: Path) -> None:
    points, frame = built
    tiles = set(points.levels[0].grid.tiles_in(SOME_BOX).tolist())

    def is_needed(path: Path, group: int) -> bool:
        return path.parts[0] == "points.parquet" and int(path.name.split(".")[1]) * 256 + group in tiles

    bare = wiped(points.path, tmp_path / "bare", is_needed)
    assert rows(bare.query(box=SOME_BOX)) == found(frame, is_in(frame, SOME_BOX))


def test_a_feature_reads_its_copy_alone(plain: Built, tmp_path: Path) -> None:
    points, frame = plain
    bare = wiped(points.path, tmp_path / "bare", lambda path, _group: path.parts[:2] == ("feature", "0"))
    assert points.explain(features="Gene3").order == "feature"
    assert rows(bare.query(features="Gene3")) == found(frame, frame["gene"] == "Gene3")
    assert bare.count(features="Gene3").count == (frame["gene"] == "Gene3").sum()


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"PAR1 no more PAR1")])
def test_a_damaged_or_missing_part_is_named(plain: Built, tmp_path: Path, damage: Callable[[Path], object]) -> None:
    shutil.copytree(plain[0].path, tmp_path / "copy")
    damage(tmp_path / "copy" / "levels" / "1" / "points.parquet" / "part.0.parquet")
    points = puncta.open_points(tmp_path / "copy")
    with pytest.raises(StoreError, match=r"levels/1/points\.parquet/part\.0\.parquet"):
        points.query(level=1)
    assert rows(points.query(level=0)) == rows(plain[0].query(level=0))


def test_a_part_of_another_index_is_noticed(plain: Built, build: Callable[..., Built], tmp_path: Path) -> None:
    shutil.copytree(plain[0].path, tmp_path / "copy")
    foreign = build("volume")[0].path / "points.parquet" / "part.0.parquet"
    shutil.copy(foreign, tmp_path / "copy" / "points.parquet" / "part.0.parquet")
    points = puncta.open_points(tmp_path / "copy")
    with pytest.raises(StoreError, match=r"part\.0\.parquet"):
        points.query(columns=["row"])


def test_a_system_other_than_the_stored_one_is_asked_exactly(placed: Built) -> None:
    points, frame = placed
    x, y = (frame[axis].to_numpy().astype(np.float64) for axis in "xy")
    shape = shapely.Polygon([(-60, 0), (390, 20), (340, 380), (130, 90), (-40, 190)])
    assert set(points.systems) == {"global", "turned", "swapped"}
    for name in (None, "global", "turned", "swapped"):
        at = (x, y) if name is None else [x * row[0] + y * row[1] + row[2] for row in points.systems[name].tolist()]
        box = {"x": tuple(np.quantile(at[0], [0.3, 0.8])), "y": (float(at[1][7]), np.inf)}
        kept = (at[0] >= box["x"][0]) & (at[0] < box["x"][1]) & (at[1] >= box["y"][0])
        answer = points.query(box=box, coordinate_system=name)
        assert rows(answer) == found(frame, kept)
        assert points.count(box=box, coordinate_system=name).count == kept.sum()
        assert says(answer)["coordinate_system"] == points.coordinate_system
        kept = np.asarray([shape.intersects(shapely.Point(point)) for point in zip(*at, strict=True)])
        assert rows(points.query(polygon=shape, coordinate_system=name)) == found(frame, kept)


def test_a_result_says_what_it_is(plain: Built) -> None:
    points, _ = plain
    assert says(points.query(box=SOME_BOX)) == {
        "level": 0,
        "fraction": 1.0,
        "complete": True,
        "order": "spatial",
        "coordinate_system": "global",
        "note": "",
    }
    coarse = says(points.query(level=3))
    assert (coarse["level"], coarse["fraction"], coarse["complete"]) == (3, points.levels[3].fraction, False)


def test_a_fallback_to_the_tile_order_says_that_rare_features_may_be_missing(build: Callable[..., Built]) -> None:
    for name in ("none", "no feature order"):
        points, _ = build(name)
        said = says(points.query(features=["Gene11"], level=2))
        assert said["order"] == "spatial"
        assert "rare features may be missing" in said["note"]
        assert says(points.query(features=["Gene11"]))["note"] == ""
