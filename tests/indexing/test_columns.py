"""What becomes of each column: order, names and types (P20, P25, P26, P34)."""

import pyarrow as pa
import pytest

from puncta.errors import ColumnError
from puncta.indexing._columns import DASK_INDEX, ColumnPlan, code_type, plan_columns, written_type

XY = (("x", "x"), ("y", "y"))
SCHEMA = pa.schema(
    {
        "cell": pa.dictionary(pa.int32(), pa.string()),
        "gene": pa.string(),
        "note": pa.large_string(),
        "y": pa.float32(),
        "qv": pa.int16(),
        "x": pa.float32(),
    }
)


def planned(schema: pa.Schema, index: str | None = None, **more: object) -> tuple[ColumnPlan, ...]:
    options: dict[str, object] = {"coordinates": XY, "features": ["gene"], **more}
    return plan_columns(schema, index_column=index, **options)  # type: ignore[arg-type] # as given by the test


def test_coordinates_come_first_then_features_then_the_rest_in_their_order() -> None:
    assert [plan.name for plan in planned(SCHEMA)] == ["x", "y", "gene", "cell", "note", "qv"]


def test_the_columns_of_a_view_lie_together() -> None:
    schema = pa.schema({"z": pa.float32(), **{field.name: field.type for field in SCHEMA}})
    plans = planned(schema, coordinates=[*XY, ("z", "z")], features=["gene", "cell"])
    assert [plan.name for plan in plans] == ["x", "y", "gene", "z", "cell", "note", "qv"]


def test_text_and_categoricals_are_coded_and_numbers_are_not() -> None:
    roles = {plan.name: plan.role for plan in planned(SCHEMA)}
    assert roles == {
        "x": "coordinate",
        "y": "coordinate",
        "gene": "feature",
        "cell": "coded",
        "note": "coded",
        "qv": "plain",
    }


def test_coordinate_columns_take_the_names_of_their_axes() -> None:
    schema = pa.schema({"global_x": pa.float64(), "global_y": pa.float64(), "gene": pa.string()})
    plans = planned(schema, coordinates=[("x", "global_x"), ("y", "global_y")])
    assert [(plan.name, plan.source) for plan in plans[:2]] == [("x", "global_x"), ("y", "global_y")]


def test_a_column_that_bears_the_name_of_an_axis_is_kept_under_another() -> None:
    schema = pa.schema({"x": pa.int32(), "global_x": pa.float64(), "global_y": pa.float64(), "gene": pa.string()})
    plans = planned(schema, coordinates=[("x", "global_x"), ("y", "global_y")])
    assert [(plan.name, plan.source) for plan in plans if plan.role == "plain"] == [("x_source", "x")]


@pytest.mark.parametrize(("name", "kept"), [("__tile", "__tile_source"), ("gene_codes", "gene_codes_source")])
def test_names_that_the_build_needs_are_not_taken(name: str, kept: str) -> None:
    schema = pa.schema({"x": pa.float32(), "y": pa.float32(), "gene": pa.string(), name: pa.int8()})
    assert planned(schema, extra_names=["gene_codes"])[-1].name == kept


@pytest.mark.parametrize(("index", "kept"), [(DASK_INDEX, DASK_INDEX), ("__index_level_0__", "index"), ("id", "id")])
def test_the_index_comes_last_under_a_name_of_its_own(index: str, kept: str) -> None:
    schema = pa.schema({index: pa.int64(), "x": pa.float32(), "y": pa.float32(), "gene": pa.string(), "q": pa.int8()})
    assert [plan.name for plan in planned(schema, index=index)] == ["x", "y", "gene", "q", kept]


def test_two_columns_of_one_name_are_refused() -> None:
    schema = pa.schema({"x": pa.float32(), "y": pa.float32(), "gene": pa.string(), "index": pa.int8(), "u": pa.int64()})
    schema = schema.append(pa.field("__index_level_0__", pa.int64()))
    with pytest.raises(ColumnError, match=r"1 names would stand for two columns each \(first: 'index'\); rename"):
        planned(schema, index="__index_level_0__")


@pytest.mark.parametrize(
    ("n_values", "role", "is_categorical", "is_dictionary"),
    [
        (65_536, "feature", False, True),
        (65_537, "feature", True, False),
        (1024, "coded", True, True),
        (1025, "coded", True, False),
        (2, "coded", False, False),
    ],
)
def test_only_short_dictionaries_are_written(
    n_values: int,
    role: str,
    is_categorical: bool,
    is_dictionary: bool,
) -> None:
    found = written_type(pa.string(), n_values, role=role, is_categorical=is_categorical)  # type: ignore[arg-type] # a case
    assert pa.types.is_dictionary(found) == is_dictionary
    assert (found.value_type if is_dictionary else found) == pa.string()


@pytest.mark.parametrize(("n_values", "bits"), [(0, 8), (127, 8), (128, 16), (32_767, 16), (32_768, 32), (65_536, 32)])
def test_codes_are_as_narrow_as_their_number_allows(n_values: int, bits: int) -> None:
    assert code_type(n_values).bit_width == bits
