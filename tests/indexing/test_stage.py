"""Reading a source once: which rows are laid down, how they are rounded, and what is refused."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from puncta.errors import ColumnError, QueryError, SourceError
from puncta.indexing._arrow_files import read_batch, write_batch
from puncta.indexing._columns import ROW, plan_columns
from puncta.indexing._source import open_source
from puncta.indexing._stage import Selection, Staged, stage


def staged(
    table: pa.Table,
    folder: Path,
    *,
    keep: bool = False,
    max_values: int | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    **selected: object,
) -> Staged:
    source = open_source(table)
    coordinates = [(axis, axis) for axis in source.axes]
    columns = plan_columns(
        source.schema, coordinates=coordinates, features=source.columns.features, index_column=source.index_column
    )
    selection = Selection(**selected)  # type: ignore[arg-type] # as given by the test
    coordinate_type = None if keep else pa.float32()
    return stage(
        source,
        columns,
        folder,
        selection=selection,
        coordinate_type=coordinate_type,
        max_values=max_values,
        progress=progress,
    )


def rows_of(found: Staged) -> pd.DataFrame:
    """Return what was laid down, codes as values again."""
    frame: pd.DataFrame = pa.Table.from_batches([batch for _, batch in found.batches()]).to_pandas()
    for name, coder in found.coders.items():
        values = np.asarray([*coder.values().to_pylist(), None], dtype=object)
        frame[name] = values[frame[name]]
    return frame


def test_rows_are_laid_down_in_their_order_with_bounds(tmp_path: Path, molecules: Callable[..., pa.Table]) -> None:
    table = molecules(1000)
    found = staged(table, tmp_path)
    pd.testing.assert_frame_equal(rows_of(found)[table.column_names], table.to_pandas(), check_dtype=False)
    assert (found.n_rows, found.n_source_rows, found.dropped) == (1000, 1000, {})
    assert found.lower is not None
    np.testing.assert_array_equal(found.lower, [min(table[axis].to_pylist()) for axis in ("x", "y")])
    np.testing.assert_array_equal(found.upper, [max(table[axis].to_pylist()) for axis in ("x", "y")])


def test_batches_keep_the_row_they_start_at(tmp_path: Path, molecules: Callable[..., pa.Table]) -> None:
    table = pa.concat_tables([molecules(300), molecules(200), molecules(1)])
    found = staged(table, tmp_path)
    assert found.starts == [0, 300, 500]
    assert [batch.num_rows for _, batch in found.batches()] == [300, 200, 1]


def test_filters_controls_and_bad_places_are_counted_apart(tmp_path: Path) -> None:
    table = pa.table(
        {"x": [0.0, 1, np.nan, 3, np.inf], "y": [0.0] * 5, "gene": ["a", "bad", "a", "a", "bad"], "q": range(5)}
    )
    is_bad = lambda names: np.asarray([name == "bad" for name in names.to_pylist()])  # noqa: E731
    found = staged(table, tmp_path, where=("q < 4", "q > 0"), controls=is_bad, drop_invalid=True)
    assert found.dropped == {"where": 2, "controls": 1, "invalid": 1}
    assert rows_of(found)[["q", ROW]].to_numpy().tolist() == [[3, 3]]


def test_a_null_feature_is_no_control(tmp_path: Path) -> None:
    table = pa.table({"x": [0.0, 1], "y": [0.0, 1], "gene": pa.array([None, "a"])})
    assert staged(table, tmp_path, controls=lambda names: np.ones(len(names), dtype=bool)).n_rows == 1


def test_float64_is_rounded_to_the_nearest_float32(tmp_path: Path) -> None:
    values = np.random.default_rng(0).random(100) * 1e4
    table = pa.table({"x": values, "y": values, "gene": ["a"] * 100})
    np.testing.assert_array_equal(rows_of(staged(table, tmp_path))["x"], values.astype(np.float32))


@pytest.mark.parametrize("dtype", ["f8", "i4", "u2", "i8"])
def test_coordinates_that_are_kept_keep_their_type(tmp_path: Path, dtype: str) -> None:
    values = np.arange(10, dtype=dtype)
    found = staged(pa.table({"x": values, "y": values, "gene": ["a"] * 10}), tmp_path, keep=True)
    assert rows_of(found)["x"].dtype == np.dtype(dtype)


def test_half_floats_become_float32_since_readers_lack_them(tmp_path: Path) -> None:
    values = np.arange(10, dtype="f2")
    found = staged(pa.table({"x": values, "y": values, "gene": ["a"] * 10}), tmp_path, keep=True)
    assert rows_of(found)["x"].dtype == np.float32


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
def test_integers_of_every_width_become_float32(tmp_path: Path, dtype: str) -> None:
    values = np.asarray([0, 1, 127], dtype=dtype)
    found = staged(pa.table({"x": values, "y": values, "gene": ["a"] * 3}), tmp_path)
    assert rows_of(found)["x"].tolist() == [0, 1, 127]


@pytest.mark.parametrize("value", [2**24, -(2**24)])
def test_the_largest_exact_integer_is_taken(tmp_path: Path, value: int) -> None:
    found = staged(pa.table({"x": [value, 0], "y": [0, 0], "gene": ["a"] * 2}), tmp_path)
    assert rows_of(found)["x"].tolist() == [value, 0]


@pytest.mark.parametrize("value", [2**24 + 1, -(2**24) - 1])
def test_a_larger_integer_is_refused_with_the_remedy(tmp_path: Path, value: int) -> None:
    table = pa.table({"x": [value, 0, value], "y": [0, 0, 0], "gene": ["a"] * 3})
    with pytest.raises(SourceError, match=rf"2 coordinates .* 1/64 .*\(first: x = {value}\).*coordinate_dtype='keep'"):
        staged(table, tmp_path)


@pytest.mark.parametrize(
    ("value", "is_lost"), [(2.0**19 + 1 / 64, False), (2.0**20 + 0.03, True), (-(2.0**23) - 0.3, True)]
)
def test_fractions_of_large_numbers_are_refused_where_they_would_be_lost(
    tmp_path: Path,
    value: float,
    is_lost: bool,
) -> None:
    table = pa.table({"x": [value, 0.0], "y": [0.0, 0.0], "gene": ["a"] * 2})
    if is_lost:
        with pytest.raises(SourceError, match=r"1 coordinates .*coordinate_dtype='keep'"):
            staged(table, tmp_path)
    else:
        assert abs(rows_of(staged(table, tmp_path))["x"][0] - value) <= 1 / 64


def test_a_null_coordinate_is_not_finite(tmp_path: Path) -> None:
    table = pa.table({"x": pa.array([1.0, None, 2.0]), "y": [0.0] * 3, "gene": ["a"] * 3})
    with pytest.raises(SourceError, match=r"1 of 3 rows .*\(first: row 1, x = nan, y = 0.0\)"):
        staged(table, tmp_path)


def test_integers_with_nulls_are_refused_like_floats(tmp_path: Path) -> None:
    table = pa.table({"x": pa.array([1, None, 2]), "y": [0] * 3, "gene": ["a"] * 3})
    with pytest.raises(SourceError, match=r"1 of 3 rows .*row 1, x = nan"):
        staged(table, tmp_path)


def test_large_coordinates_that_are_not_finite_are_said_to_be_that(tmp_path: Path) -> None:
    table = pa.table({"x": [1e6, np.nan, np.inf], "y": [0.0] * 3, "gene": ["a"] * 3})
    with pytest.raises(SourceError, match="2 of 3 rows"):
        staged(table, tmp_path)


def test_a_coordinate_column_of_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ColumnError, match=r"'x' holds string, not numbers, .* --x"):
        staged(pa.table({"x": ["1"], "y": [1.0], "gene": ["a"]}), tmp_path)


def test_a_filter_that_leaves_nothing_is_an_error_that_counts(tmp_path: Path) -> None:
    table = pa.table({"x": [0.0], "y": [0.0], "gene": ["a"]})
    with pytest.raises(SourceError, match=r"no rows to index: all 1 were left out \(1 by where\)"):
        staged(table, tmp_path, where=("x > 5",))


@pytest.mark.parametrize(
    ("where", "error", "words"),
    [
        ("import os; os.getcwd()", QueryError, "no SQL expression"),
        ("x +", QueryError, "no SQL expression"),
        ("x + 1", QueryError, "not true or false"),
        ("nothing > 1", ColumnError, "reads 'nothing', which is no column; the columns are"),
        ("gene > 5", QueryError, "does not fit its columns"),
    ],
)
def test_filters_that_say_nothing_are_refused(tmp_path: Path, where: str, error: type[Exception], words: str) -> None:
    table = pa.table({"x": [0.0, 1], "y": [0.0, 1], "gene": ["a", "b"]})
    with pytest.raises(error, match=words):
        staged(table, tmp_path, where=(where,))


def test_progress_counts_the_rows_read(tmp_path: Path, molecules: Callable[..., pa.Table]) -> None:
    seen: list[tuple[str, int, int]] = []
    staged(
        pa.concat_tables([molecules(10)] * 3),
        tmp_path,
        progress=lambda name, done, total: seen.append((name, done, total)),
    )
    assert seen == [("reading", 10, 30), ("reading", 20, 30)]


@pytest.mark.parametrize("n_rows", [0, 1, 5])
def test_a_staged_file_gives_its_rows_back(tmp_path: Path, molecules: Callable[..., pa.Table], n_rows: int) -> None:
    table = molecules(5).slice(0, n_rows)
    write_batch(tmp_path / "t.arrow", table)
    assert pa.Table.from_batches([read_batch(tmp_path / "t.arrow")]).equals(table)


def ids_in_three_batches() -> pa.Table:
    """Return rows whose ids are text, more different ones with each batch, and some of them missing."""
    ids = ["a", None, "b", *(f"id-{number}" for number in range(6)), None, "a"]
    return pa.concat_tables(
        pa.table({"x": [0.0] * len(part), "y": [0.0] * len(part), "gene": ["g"] * len(part), "id": pa.array(part)})
        for part in (ids[:3], ids[3:6], ids[6:])
    )


@pytest.mark.parametrize("as_categories", [False, True])
@pytest.mark.parametrize("max_values", [1, 2, 3, 5, 8, 9])
def test_text_of_more_values_than_may_be_held_is_laid_down_as_text(
    tmp_path: Path, max_values: int, as_categories: bool
) -> None:
    table = ids_in_three_batches()
    if as_categories:
        table = table.set_column(3, "id", table["id"].combine_chunks().dictionary_encode())
    found = staged(table, tmp_path, max_values=max_values)
    roles = {plan.name: plan.role for plan in found.columns}
    assert (roles["id"] == "plain", "id" in found.coders) == ((False, True) if max_values == 9 else (True, False))
    assert [batch.schema.field("id").type for _, batch in found.batches()] == [
        pa.int32() if max_values == 9 else pa.string()
    ] * len(found.paths)
    assert [None if pd.isna(one) else one for one in rows_of(found)["id"]] == table["id"].to_pylist()
    assert ("id" in found.text_bytes) == (max_values < 9)


def test_features_of_more_values_than_may_be_held_are_refused_with_the_remedy(tmp_path: Path) -> None:
    table = pa.table({"x": [0.0] * 3, "y": [0.0] * 3, "gene": ["a", "b", "c"]})
    with pytest.raises(
        ColumnError, match=r"feature column 'gene' .* more than 2 different values.*--feature-key.*--memory"
    ):
        staged(table, tmp_path, max_values=2)
