import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puncta.errors import (
    ColumnError,
    MetadataError,
    MissingError,
    PunctaError,
    SourceError,
    StoreError,
    UnsupportedError,
)
from puncta.indexing._source import Source, open_source

BREAST = "xenium_breast_points_sdata/xenium_rep1_io.points_only.spatialdata.zarr"
SEGTRAQ = "xenium_segtraq_sdata/xenium_sp_subset.zarr"
BLOBS = [
    "format_fixtures_blobs/spatialdataR_blobs.zarr",
    "format_fixtures_blobs/spatialdataR_blobs_v3.zarr",
    "format_fixtures_blobs/vitessce_spatialdata-0.3_blobs.sdata.zarr",
    "format_fixtures_blobs/vitessce_spatialdata-0.7_blobs.sdata.zarr",
]


def read(source: Source, columns: list[str] | None = None, batch_size: int = 2**20) -> pd.DataFrame:
    batches = list(source.batches(columns, batch_size))
    frame: pd.DataFrame = pa.concat_tables([pa.Table.from_batches([batch]) for batch in batches]).to_pandas()
    return frame


def table(n_rows: int = 6, **more: object) -> pa.Table:
    columns = {
        "x": np.arange(n_rows, dtype="f4"),
        "y": np.arange(n_rows, dtype="f4") * 2,
        "gene": ["a", "b"] * (n_rows // 2),
    }
    return pa.table(columns | more)


def written(folder: Path, *parts: pa.Table, names: list[str] | None = None) -> Path:
    folder.mkdir()
    for i, part in enumerate(parts):
        pq.write_table(part, folder / (names[i] if names else f"part.{i}.parquet"))
    return folder


def element(store: Path, name: str, parts: pa.Table, **attrs: object) -> Path:
    place = store / "points" / name
    written(place.parent, names=[]) if not place.parent.exists() else None
    place.mkdir()
    document = {"zarr_format": 3, "node_type": "group"}
    for group in (store, store / "points"):
        (group / "zarr.json").write_text(json.dumps(document | {"attributes": {}}))
    defaults = {"axes": ["x", "y"], "spatialdata_attrs": {"feature_key": "gene", "version": "0.2"}}
    (place / "zarr.json").write_text(json.dumps(document | {"attributes": defaults | attrs}))
    written(place / "points.parquet", parts)
    return place


# --- the measured data


def test_the_coronal_section_is_read_whole_and_in_order(shared_data: Path) -> None:
    path = shared_data / "iss_mouse_coronal/spots.parquet"
    source, expected = open_source(path), pd.read_parquet(path)
    assert (source.vendor, source.n_rows, source.axes, source.index_column) == ("iss", 1_528_575, ("x", "y"), None)
    pd.testing.assert_frame_equal(read(source).astype({"feature_name": str}), expected.astype({"feature_name": str}))
    assert source.bounds == {c: (expected[c].min(), expected[c].max()) for c in ("x", "y")}
    categories = source.categories("feature_name")
    assert categories is not None
    assert categories.to_pylist() == expected["feature_name"].cat.categories.tolist()


@pytest.mark.parametrize("place", ["xenium_lung_15k", "xenium_lung_15k/transcripts.parquet"])
def test_a_xenium_folder_and_its_file_are_the_same_source(shared_data: Path, place: str) -> None:
    source = open_source(shared_data / place)
    expected = pd.read_parquet(shared_data / "xenium_lung_15k/transcripts.parquet")
    assert (source.vendor, source.n_rows) == ("xenium", 15_000)
    assert source.words.startswith("Xenium transcripts, recognised by x_location, y_location, feature_name")
    assert source.index_column == "__index_level_0__"
    frame = read(source)
    np.testing.assert_array_equal(frame.pop("__index_level_0__"), expected.index)
    pd.testing.assert_frame_equal(frame.astype(expected.dtypes.to_dict()), expected.reset_index(drop=True))
    assert source.categories("feature_name") is None


@pytest.mark.parametrize("place", ["merscope_liver", "merscope_liver/detected_transcripts.csv"])
def test_a_merscope_folder_and_its_file_are_the_same_source(shared_data: Path, place: str) -> None:
    source = open_source(shared_data / place)
    expected = pd.read_csv(shared_data / "merscope_liver/detected_transcripts.csv").rename(
        columns={"Unnamed: 0": "index"}
    )
    assert (source.vendor, source.index_column, source.n_rows) == ("merscope", "index", None)
    assert source.columns.coordinates == ("global_x", "global_y", "global_z")
    pd.testing.assert_frame_equal(read(source).astype(expected.dtypes.to_dict()), expected)


def test_the_breast_store_is_read_as_its_only_element(shared_data: Path) -> None:
    source = open_source(shared_data / BREAST)
    parts = [shared_data / BREAST / f"points/transcripts/points.parquet/part.{i}.parquet" for i in range(8)]
    expected = pd.concat([pd.read_parquet(part) for part in parts]).reset_index()
    assert (source.kind, source.n_rows, source.axes) == ("element", 213_191, ("x", "y", "z"))
    assert source.index_column == "__null_dask_index__"
    frame = read(source)[expected.columns.tolist()]
    pd.testing.assert_frame_equal(frame.astype({"feature_name": str}), expected.astype({"feature_name": str}))
    categories = source.categories("feature_name")
    assert categories is not None
    assert categories.to_pylist() == expected["feature_name"].cat.categories.tolist()


def test_an_element_tells_its_keys_and_its_affine_to_global(shared_data: Path) -> None:
    found = open_source(shared_data / BREAST / "points/transcripts").element
    assert found is not None
    assert (found.name, found.zarr_format, found.axes) == ("transcripts", 2, ("x", "y", "z"))
    assert (found.feature_key, found.instance_key) == ("feature_name", "cell_id")
    assert found.root == (shared_data / BREAST).absolute()
    scale = 4.705882352941177
    expected = np.array([[scale, 0, 0, 0], [0, scale, 0, 0], [0, 0, 1, 0]])
    np.testing.assert_array_equal(found.affines["global"], expected)


def test_the_segtraq_store_is_read_as_its_only_element(shared_data: Path) -> None:
    source = open_source(shared_data / SEGTRAQ)
    expected = pd.read_parquet(shared_data / SEGTRAQ / "points/transcripts/points.parquet")
    assert (source.n_rows, source.columns.cell) == (23_691, None)
    np.testing.assert_array_equal(read(source, ["x", "y", "z"]), expected[["x", "y", "z"]])


@pytest.mark.parametrize("store", BLOBS)
@pytest.mark.parametrize("inner", ["", "points", "points/blobs_points"])
def test_blobs_of_every_version_are_read_as_elements(shared_data: Path, store: str, inner: str) -> None:
    source = open_source(shared_data / store / inner)
    expected = pd.read_parquet(shared_data / store / "points/blobs_points/points.parquet")
    assert (source.kind, source.columns.features, source.axes) == ("element", ("genes",), ("x", "y"))
    frame = read(source, ["x", "y", "genes"])
    pd.testing.assert_frame_equal(
        frame.astype({"genes": str}), expected[["x", "y", "genes"]].reset_index(drop=True).astype({"genes": str})
    )


# --- Parquet


def test_part_10_follows_part_2(tmp_path: Path) -> None:
    parts = [table(x=np.full(6, i, dtype="f4")) for i in range(12)]
    source = open_source(written(tmp_path / "parts", *parts))
    assert read(source, ["x"])["x"].tolist() == np.repeat(np.arange(12), 6).tolist()


def test_text_of_few_values_arrives_as_a_dictionary_and_is_no_categorical(tmp_path: Path) -> None:
    rows = table(2000, note=[f"row {i}" for i in range(2000)])
    source = open_source(written(tmp_path / "parts", rows))
    assert pa.types.is_dictionary(source.schema.field("gene").type)
    assert source.schema.field("note").type == pa.string()
    assert source.categories("gene") is None
    assert read(source)["note"].tolist() == rows["note"].to_pylist()


def test_categories_keep_their_order_and_the_unused_ones(tmp_path: Path) -> None:
    genes = pd.Categorical(["b", "z", "b"], categories=["z", "unused", "b"])
    frame = pd.DataFrame({"x": [0.0, 1, 2], "y": [0.0, 1, 2], "gene": genes})
    frame.to_parquet(tmp_path / "t.parquet")
    categories = open_source(tmp_path / "t.parquet").categories("gene")
    assert categories is not None
    assert categories.to_pylist() == ["z", "unused", "b"]


def test_parts_of_other_code_widths_and_categories_become_one(tmp_path: Path) -> None:
    first = pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int8()), ["b", "a"])
    second = pa.DictionaryArray.from_arrays(pa.array([1, 0, 1], pa.int16()), ["c", "a"])
    xy = {"x": [0.0, 1, 2], "y": [0.0, 1, 2]}
    parts = [pa.table(xy | {"gene": first}), pa.table(xy | {"gene": second})]
    source = open_source(written(tmp_path / "parts", *parts))
    assert [b.column("gene").type for b in source.batches()] == [source.schema.field("gene").type] * 2
    assert [v for b in source.batches() for v in b["gene"].to_pylist()] == ["b", "a", None, "a", "c", "a"]
    categories = source.categories("gene")
    assert categories is not None
    assert categories.to_pylist() == ["b", "a", "c"]


def test_a_part_of_nothing_but_nulls_takes_the_type_of_the_others(tmp_path: Path) -> None:
    parts = [table(note=pa.nulls(6)), table(note=["n"] * 6), table(note=pa.nulls(6))]
    frame = read(open_source(written(tmp_path / "parts", *parts)))
    assert frame["note"].dropna().tolist() == ["n"] * 6
    assert len(frame) == 18


def test_a_column_of_nothing_but_nulls_is_kept(tmp_path: Path) -> None:
    source = open_source(written(tmp_path / "parts", table(note=pa.nulls(6))))
    assert read(source)["note"].isna().all()


def test_names_stored_as_bytes_become_text(tmp_path: Path) -> None:
    columns = {
        "x_location": [0.0, 1],
        "y_location": [0.0, 1],
        "feature_name": [b"ACE", b"WSB1"],
        "cell_id": [b"1", b"2"],
    }
    source = open_source(written(tmp_path / "parts", pa.table(columns | {"raw": [b"\xff", b"\xfe"]})))
    assert read(source)["feature_name"].tolist() == ["ACE", "WSB1"]
    assert read(source)["cell_id"].tolist() == ["1", "2"]
    assert source.schema.field("raw").type == pa.binary()


def test_names_that_are_not_text_are_refused_with_the_file(tmp_path: Path) -> None:
    source = open_source(written(tmp_path / "parts", table(2, gene=[b"\xff", b"a"])))
    with pytest.raises(SourceError, match=r"'gene' of .*part\.0\.parquet cannot be read as"):
        read(source)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (table(gene=[1] * 6), r"column 'gene' is int64 in .*part\.1\.parquet and string"),
        (table(more=[1] * 6), r"part\.1\.parquet has a column 'more', unlike"),
        (table().drop_columns("y"), r"part\.1\.parquet lacks the column 'y'"),
    ],
)
def test_parts_of_two_tables_are_refused_with_file_and_column(tmp_path: Path, other: pa.Table, words: str) -> None:
    with pytest.raises(SourceError, match=words):
        open_source(written(tmp_path / "parts", table(), other))


def test_bounds_are_unknown_without_statistics(tmp_path: Path) -> None:
    pq.write_table(table(), tmp_path / "t.parquet", write_statistics=False)
    assert open_source(tmp_path / "t.parquet").bounds is None


def test_bounds_skip_row_groups_without_values(tmp_path: Path) -> None:
    parts = [table(), table(0, gene=pa.array([], pa.string())), table(x=pa.nulls(6, pa.float32()))]
    assert open_source(written(tmp_path / "parts", *parts)).bounds == {"x": (0, 5), "y": (0, 10)}


@given(rows=st.integers(2, 60), group=st.integers(1, 20), batch=st.integers(1, 70))
def test_batches_are_no_longer_than_asked_and_lose_nothing(
    tmp_path_factory: pytest.TempPathFactory, rows: int, group: int, batch: int
) -> None:
    path = tmp_path_factory.mktemp("parts") / "t.parquet"
    expected = table(rows * 2)
    pq.write_table(expected, path, row_group_size=group)
    batches = list(open_source(path).batches(["gene", "x"], batch))
    assert max(b.num_rows for b in batches) <= batch
    assert batches[0].schema.names == ["gene", "x"]
    assert [v for b in batches for v in b["x"].to_pylist()] == expected["x"].to_pylist()
    assert [v for b in batches for v in b["gene"].to_pylist()] == expected["gene"].to_pylist()


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    folder = written(tmp_path / "parts", table(), table())
    whole = (folder / "part.1.parquet").read_bytes()
    (folder / "part.1.parquet").write_bytes(whole[:-10])
    with pytest.raises(StoreError, match=r"could not read .*part\.1\.parquet as Parquet"):
        open_source(folder)


def test_damage_inside_a_file_is_found_when_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(table(2000, n=np.random.default_rng(0).random(2000)), path, compression="zstd")
    whole = bytearray(path.read_bytes())
    whole[4:2000] = b"\0" * 1996
    path.write_bytes(whole)
    with pytest.raises(StoreError, match=r"could not read .*t\.parquet as Parquet"):
        read(open_source(path))


def test_a_file_that_is_not_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_bytes(b"x,y,gene\n1,2,a\n" * 5)
    with pytest.raises(StoreError, match=r"t\.parquet as Parquet"):
        open_source(tmp_path / "t.parquet")


def test_a_table_without_rows_is_refused(tmp_path: Path) -> None:
    folder = written(tmp_path / "parts", table().slice(0, 0))
    with pytest.raises(SourceError, match="no rows"):
        open_source(folder)


def test_columns_of_the_same_name_are_refused(tmp_path: Path) -> None:
    doubled = pa.Table.from_arrays([pa.array([1.0])] * 3 + [pa.array(["a"])], names=["x", "y", "x", "gene"])
    pq.write_table(doubled, tmp_path / "t.parquet")
    with pytest.raises(ColumnError, match="'x', 2 times"):
        open_source(tmp_path / "t.parquet")


def test_a_feature_column_of_fractions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ColumnError, match=r"'x' holds .*features are text or integers"):
        open_source(written(tmp_path / "parts", table(u=[0.5] * 6, v=[0.5] * 6)), x="u", y="v", feature_keys=["x"])


def test_an_unknown_column_asked_of_batches_is_an_error_at_once(tmp_path: Path) -> None:
    source = open_source(written(tmp_path / "parts", table()))
    with pytest.raises(ColumnError, match=r"'genes'; nearest: 'gene'"):
        source.batches(["genes"])


# --- separated values


@pytest.mark.parametrize(
    ("name", "delimiter", "opened"),
    [("t.csv", ",", open), ("t.csv", ";", open), ("t.tsv", "\t", open), ("t.csv.gz", ",", gzip.open)],
)
def test_separated_values_equal_the_parquet_of_the_same_table(
    tmp_path: Path, name: str, delimiter: str, opened: Callable[..., object]
) -> None:
    rows = table(1000, fov=np.arange(1000) % 7, cell=["", "c1"] * 500)
    pq.write_table(rows, tmp_path / "t.parquet")
    with opened(tmp_path / name, "wb") as file:  # type: ignore[attr-defined] # either kind of file
        pacsv.write_csv(rows, file, pacsv.WriteOptions(delimiter=delimiter))
    one, other = read(open_source(tmp_path / name)), read(open_source(tmp_path / "t.parquet"))
    other["cell"] = other["cell"].astype(object).replace("", None)
    pd.testing.assert_frame_equal(one.astype(str), other.astype({"x": "f8", "y": "f8"}).astype(str))


def test_features_are_text_and_coordinates_numbers_whatever_the_first_rows_show(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,y,gene\n1,2,17\n1.5,nan,NA\n3,4,None\n5,6,\n")
    frame = read(open_source(tmp_path / "t.csv"))
    assert frame["x"].tolist() == [1, 1.5, 3, 5]
    assert [None if pd.isna(v) else v for v in frame["gene"]] == ["17", "NA", "None", None]


def test_a_value_that_breaks_its_column_is_told_with_file_row_and_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("puncta.indexing._source_csv._BLOCK_BYTES", 1000)
    (tmp_path / "t.csv").write_text("x,y,gene,n\n" + "1,2,a,3\n" * 500 + "1,2,a,oops\n")
    source = open_source(tmp_path / "t.csv")
    with pytest.raises(SourceError, match=r"column 'n' of .*t\.csv .*Row #502: .*'oops'; .*write the table as Parquet"):
        read(source)


def test_a_column_empty_at_first_is_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("puncta.indexing._source_csv._BLOCK_BYTES", 1000)
    (tmp_path / "t.csv").write_text("x,y,gene,cell\n" + "1,2,a,\n" * 500 + "1,2,a,c1\n")
    cells = read(open_source(tmp_path / "t.csv"))["cell"]
    assert cells.isna().sum() == 500
    assert cells.iloc[500] == "c1"


@pytest.mark.parametrize(
    ("content", "error", "words"),
    [
        ("", SourceError, "no header line"),
        ("x,y,gene\n", SourceError, "no rows"),
        ("x,y,gene", SourceError, "no rows"),
        ("x,y,gene,\n1,2,a,\n", ColumnError, "1 of 4 columns .* no name .*column 4"),
        ("x,y,gene\n1,2,a\n1,2\n", SourceError, r"Row #3: Expected 3 columns, got 2"),
        ("x,y,x,gene\n1,2,3,a\n", ColumnError, "'x', 2 times"),
        ("x,y,gene\n1,2,\xff\n", SourceError, "'gene' of .*invalid UTF8"),
        ("x,y,gene\nleft,2,a\n", SourceError, r"column 'x' of .*Row #2.*'left'"),
    ],
)
def test_bad_separated_values_are_told(tmp_path: Path, content: str, error: type[PunctaError], words: str) -> None:
    (tmp_path / "t.csv").write_text(content, encoding="latin-1")
    with pytest.raises(error, match=words):
        open_source(tmp_path / "t.csv")


def test_a_truncated_gzip_file_is_named(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    body = "x,y,gene\n" + "".join(f"{x},{y},a\n" for x, y in rng.random((2000, 2)))
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(body.encode())[:-5000])
    with pytest.raises(StoreError, match=r"could not read .*t\.csv\.gz"):
        open_source(tmp_path / "t.csv.gz")


# --- elements and folders


def test_a_store_with_two_elements_lists_them(tmp_path: Path) -> None:
    (tmp_path / "s.zarr").mkdir()
    for name in ("one", "two"):
        element(tmp_path / "s.zarr", name, table())
    with pytest.raises(SourceError, match=r"2 points elements \(one, two\)"):
        open_source(tmp_path / "s.zarr")


def test_an_element_in_one_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "s.zarr").mkdir()
    place = element(tmp_path / "s.zarr", "one", table())
    part = (place / "points.parquet/part.0.parquet").read_bytes()
    (place / "points.parquet/part.0.parquet").unlink()
    (place / "points.parquet").rmdir()
    (place / "points.parquet").write_bytes(part)
    assert open_source(place).n_rows == 6


def test_the_callers_axes_leave_z_an_ordinary_column(tmp_path: Path) -> None:
    (tmp_path / "s.zarr").mkdir()
    place = element(tmp_path / "s.zarr", "one", table(z=[1.0] * 6), axes=["x", "y", "z"])
    assert open_source(place).columns.z == "z"
    flat = open_source(place, axes=["x", "y"])
    assert (flat.axes, flat.columns.z, "z" in flat.schema.names) == (("x", "y"), None, True)


@pytest.mark.parametrize(
    ("attrs", "error", "words"),
    [
        ({"axes": ["x", "q"]}, MetadataError, "axes of the points element"),
        ({"axes": ["x", "y", "z"]}, ColumnError, "no column 'z'"),
        ({"spatialdata_attrs": {"feature_key": "genes"}}, ColumnError, "no column 'genes'; nearest: 'gene'"),
    ],
)
def test_an_element_that_contradicts_itself_is_refused(
    tmp_path: Path, attrs: dict[str, object], error: type[PunctaError], words: str
) -> None:
    (tmp_path / "s.zarr").mkdir()
    with pytest.raises(error, match=words):
        open_source(element(tmp_path / "s.zarr", "one", table(), **attrs))


def test_an_element_takes_no_other_coordinates(tmp_path: Path) -> None:
    (tmp_path / "s.zarr").mkdir()
    place = element(tmp_path / "s.zarr", "one", table())
    with pytest.raises(SourceError, match="cannot name others"):
        open_source(place, x="y")


def test_a_folder_with_two_tables_names_them(tmp_path: Path) -> None:
    for name in ("S1_tx_file.csv", "S2_tx_file.csv"):
        (tmp_path / name).write_text("x_global_px,y_global_px,target\n1,2,a\n")
    with pytest.raises(SourceError, match=r"2 transcript tables \(S1_tx_file\.csv, S2_tx_file\.csv\)"):
        open_source(tmp_path)


def test_a_folder_without_a_table_says_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("")
    with pytest.raises(MissingError, match=r"it holds notes\.md"):
        open_source(tmp_path)


def test_other_forms_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.h5ad").write_text("")
    with pytest.raises(UnsupportedError, match=r"\.parquet, \.csv"):
        open_source(tmp_path / "t.h5ad")


@pytest.mark.parametrize("opened", [open, gzip.open])
def test_a_folder_of_separated_values_is_one_table_with_part_10_after_part_2(
    tmp_path: Path, opened: Callable[..., object]
) -> None:
    ending = ".csv" if opened is open else ".csv.gz"
    for number, content in {2: "x,y,gene\n1,2,a\n", 10: "gene;x;y\nb;3;4\n", 1: "x,y,gene\n", 11: "x,y,gene\n"}.items():
        with opened(tmp_path / f"part-{number}{ending}", "wb") as file:  # type: ignore[attr-defined] # either kind
            file.write(content.encode())
    (tmp_path / "notes.txt").write_text("not a table")
    (tmp_path / f".part-3{ending}").write_text("nor this")
    source = open_source(tmp_path)
    expected = pd.DataFrame({"x": [1.0, 3], "y": [2.0, 4], "gene": ["a", "b"]})
    pd.testing.assert_frame_equal(read(source).astype({"gene": object}), expected.astype({"gene": object}))
    assert source.bytes == sum(path.stat().st_size for path in tmp_path.glob(f"part-*{ending}"))


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_several_files_are_one_table_in_the_order_they_are_given(tmp_path: Path, form: str) -> None:
    paths = [tmp_path / f"{name}.{form}" for name in "cab"]
    for number, path in enumerate(paths):
        rows = table(6, fov=[number] * 6)
        if form == "csv":
            pacsv.write_csv(rows, path)
        else:
            pq.write_table(rows, path)
    source = open_source([str(paths[0]), *paths[1:]])
    assert read(source)["fov"].tolist() == [0] * 6 + [1] * 6 + [2] * 6
    assert (source.places, source.path) == (tuple(paths), f"{paths[0]} and 2 more")
    with pytest.raises(SourceError, match=rf"{paths[1].name} is given 2 times"):
        open_source([paths[1], paths[0], paths[1]])


def test_several_files_that_are_no_one_table_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y,gene\n1,2,a\n")
    (tmp_path / "b.csv").write_text("x,y,cell\n1,2,a\n")
    (tmp_path / "c.csv").write_text("x,y,gene,gene\n1,2,a,a\n")
    (tmp_path / "empty").mkdir()
    pq.write_table(table(), tmp_path / "d.parquet")
    named = {path.name: path for path in tmp_path.iterdir()}
    for others, error, words in [
        (["b.csv"], SourceError, r"b\.csv has a column 'cell', unlike .*a\.csv \(2 columns differ\)"),
        (["c.csv"], ColumnError, r"c\.csv has columns of the same name"),
        (["d.parquet"], SourceError, r"1 of 2 files are of another form than .*a\.csv"),
        (["empty"], SourceError, "is a folder among 2 sources"),
    ]:
        with pytest.raises(error, match=words):
            open_source([named["a.csv"], *(named[name] for name in others)])
    with pytest.raises(MissingError):
        open_source([named["a.csv"], tmp_path / "f.csv"])


def test_a_table_that_lies_there_plain_and_as_gzip_is_not_taken_twice(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y,gene\n1,2,a\n")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"x,y,gene\n1,2,a\n"))
    with pytest.raises(SourceError, match=r"1 tables both plain and as gzip \(first: a\.csv\.gz\)"):
        open_source(tmp_path)


def test_files_of_nothing_but_headers_are_refused(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text("x,y,gene\n")
    with pytest.raises(SourceError, match=r"a\.csv holds no rows.*nor do the 1 other files"):
        open_source(tmp_path)


@pytest.mark.parametrize("axes", [["x"], ["x", "y", "y"], ["x", "y", "q"]])
def test_axes_that_are_none_are_refused(axes: list[str]) -> None:
    with pytest.raises(ColumnError, match="the axes"):
        open_source(table(), axes=axes)


def test_the_z_axis_needs_a_column() -> None:
    with pytest.raises(ColumnError, match="leave z out of the axes"):
        open_source(table(), axes=["x", "y", "z"])


# --- in memory


def test_a_table_in_memory_is_a_source() -> None:
    source = open_source(table())
    assert (source.kind, source.n_rows, source.path) == ("table", 6, "the table in memory")
    pd.testing.assert_frame_equal(read(source, batch_size=4), table().to_pandas())


def test_a_data_frame_keeps_its_index_and_categories() -> None:
    genes = pd.Categorical(["b", "a"], categories=["b", "unused", "a"])
    frame = pd.DataFrame({"x": [0.0, 1], "y": [0.0, 1], "gene": genes}, index=pd.Index([7, 9], name="spot"))
    source = open_source(frame)
    assert source.index_column == "spot"
    assert read(source)["spot"].tolist() == [7, 9]
    categories = source.categories("gene")
    assert categories is not None
    assert categories.to_pylist() == ["b", "unused", "a"]


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="a list cannot be indexed"):
        open_source([1, 2])
