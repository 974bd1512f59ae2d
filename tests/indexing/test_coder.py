"""Codes of values, against pandas."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puncta.indexing._coder import NULL, Coder, Coders, TooManyValuesError

VALUES = st.one_of(st.none(), st.text(alphabet="abcé ", max_size=3))
BATCHES = st.lists(st.lists(VALUES, max_size=30), min_size=1, max_size=4)


@given(batches=BATCHES, encoded=st.booleans())
def test_codes_give_the_values_back_whatever_the_batches(batches: list[list[str | None]], encoded: bool) -> None:
    coder = Coder(pa.string())
    arrays = [pa.array(batch, pa.string()) for batch in batches]
    codes = np.concatenate([coder.codes(array.dictionary_encode() if encoded else array) for array in arrays])
    values = [*coder.values().to_pylist(), None]
    assert [values[code] for code in codes] == [value for batch in batches for value in batch]


@given(batches=BATCHES)
def test_every_distinct_value_has_one_code_in_order_of_appearance(batches: list[list[str | None]]) -> None:
    coder = Coder(pa.string())
    codes = np.concatenate([coder.codes(pa.array(batch, pa.string())) for batch in batches])
    expected, values = pd.factorize(np.asarray([value for batch in batches for value in batch], dtype=object))
    np.testing.assert_array_equal(codes, expected)
    assert coder.values().to_pylist() == list(values)
    assert len(coder) == len(values)


def test_declared_categories_keep_their_codes_unused_ones_included() -> None:
    coder = Coder(pa.string(), pa.array(["z", "unused", "a"]))
    assert coder.codes(pa.array(["a", "z", None])).tolist() == [2, 0, NULL]
    assert coder.values().to_pylist() == ["z", "unused", "a"]
    assert coder.final_order() is None


def test_values_that_were_not_declared_follow_the_categories() -> None:
    coder = Coder(pa.string(), pa.array(["z", "a"]))
    assert coder.codes(pa.array(["new", "a"])).tolist() == [2, 1]
    assert coder.values().to_pylist() == ["z", "a", "new"]


def test_values_of_a_plain_column_are_sorted_in_the_end() -> None:
    coder = Coder(pa.string())
    coder.codes(pa.array(["b", "a", "c", None]))
    order = coder.final_order()
    assert order is not None
    assert coder.values().take(pa.array(order)).to_pylist() == ["a", "b", "c"]


def test_dictionaries_that_change_from_batch_to_batch_share_their_codes() -> None:
    coder = Coder(pa.string())
    first = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), ["b", "a"])
    second = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int8()), ["a", "c", "b"])
    assert coder.codes(first).tolist() == [0, 1]
    assert coder.codes(second).tolist() == [1, 2, 0]


def test_a_full_narrow_dictionary_with_nulls_is_read() -> None:
    names = [f"v{number}" for number in range(128)]
    indices = pa.array([127, None, 0], pa.int8())
    assert Coder(pa.string()).codes(pa.DictionaryArray.from_arrays(indices, names)).tolist() == [127, NULL, 0]


def test_a_null_inside_a_dictionary_is_a_null() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int8()), pa.array(["a", None, "b"]))
    coder = Coder(pa.string())
    codes = coder.codes(column)
    values = coder.values().to_pylist()
    assert [None if code == NULL else values[code] for code in codes] == ["a", None, "b"]


@pytest.mark.parametrize("values", [[5, 3, None, 5], [2**40, -1, 0, 2**40]])
def test_integers_are_values_like_any_other(values: list[int | None]) -> None:
    coder = Coder(pa.int64())
    codes = coder.codes(pa.array(values, pa.int64()))
    found = pc.take(pa.concat_arrays([coder.values(), pa.nulls(1, pa.int64())]), pa.array(codes % (len(coder) + 1)))
    assert found.to_pylist() == values


def text(values: list[str | None]) -> pa.Array:
    return pa.array(values, pa.string())


class Given:
    """What was given up, and the values that it had."""

    def __init__(self, most: int | None, needed: str = "") -> None:
        self.up: dict[str, list[str]] = {}
        self.coders = Coders(most, lambda name, coder: self.up.update({name: coder.values().to_pylist()}))
        for name in ("gene", "cell", "id"):
            self.coders.add(name, pa.string(), None, is_needed=name == needed)


def test_the_column_of_the_most_values_gives_up_whichever_of_them_overflows() -> None:
    given = Given(5)
    batch = {"gene": text(["a", "b"]), "cell": text(["1", "2"]), "id": text(["x", "x"])}
    assert {name: codes.to_pylist() for name, codes in given.coders.codes(batch).items()} == {
        "gene": [0, 1],
        "cell": [0, 1],
        "id": [0, 0],
    }
    batch = {"gene": text(["b", "a"]), "cell": text(["3", "4"]), "id": text(["x", "y"])}
    assert set(given.coders.codes(batch)) == {"gene", "id"}
    assert given.up == {"cell": ["1", "2"]}, "what was not taken in is no value"


def test_a_column_that_overflows_is_the_one_if_it_would_have_the_most() -> None:
    given = Given(4)
    codes = given.coders.codes({"gene": text(["a"] * 9), "cell": text(["c"] * 9), "id": text(list("123456789"))})
    assert set(codes) == {"gene", "cell"}
    assert given.up == {"id": []}


def test_needed_codes_outlive_those_of_all_others() -> None:
    given = Given(3, needed="gene")
    assert set(given.coders.codes({"id": text(["x"]), "gene": text(["a", "b", "c"]), "cell": text(["1"])})) == {"gene"}
    with pytest.raises(TooManyValuesError):
        given.coders.codes({"gene": text(["d"])})
    assert given.coders.codes({"gene": text(["c", "a"])})["gene"].to_pylist() == [2, 0]


@given(batches=BATCHES, most=st.integers(0, 8))
def test_a_bound_changes_which_columns_have_codes_and_nothing_else(batches: list[list[str | None]], most: int) -> None:
    given = Given(most)
    plain = {name: Coder(pa.string()) for name in ("gene", "cell", "id")}
    for batch in batches:
        columns = {"gene": text(batch[:3]), "cell": text(batch), "id": text(batch[::-1])}
        for name, codes in given.coders.codes(columns).items():
            np.testing.assert_array_equal(codes, plain[name].codes(columns[name]))
        assert sum(map(len, given.coders.by_name.values())) <= most
    for name, coder in given.coders.by_name.items():
        assert coder.values().to_pylist() == plain[name].values().to_pylist()


def test_more_declared_categories_than_may_be_held_are_given_up_unread() -> None:
    given = Given(3)
    given.coders.add("many", pa.string(), text(["a", "b", "c", "d"]))
    assert given.up == {"many": []}
    with pytest.raises(TooManyValuesError):
        given.coders.add("feature", pa.string(), text(["a", "b", "c", "d"]), is_needed=True)
