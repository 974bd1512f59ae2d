"""Positions of texts among many: as a dictionary of Python finds them."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puncta.indexing._text_table import TextTable, hashes_of

texts = st.text(max_size=20)
unique_texts = st.lists(texts, unique=True, max_size=50)


@given(values=unique_texts, asked=st.lists(st.one_of(texts, st.none()), max_size=50), is_large=st.booleans())
def test_positions_are_those_of_a_dictionary(values: list[str], asked: list[str | None], is_large: bool) -> None:
    kind = pa.large_string() if is_large else pa.string()
    asked = [*asked, *values]
    expected = {value: position for position, value in enumerate(values)}
    found = TextTable(pa.array(values, kind)).positions(pa.array(asked, kind))
    assert found.tolist() == [expected.get(value, len(values)) if value is not None else len(values) for value in asked]


@given(values=unique_texts, start=st.integers(0, 50), count=st.integers(0, 50))
def test_a_slice_is_found_like_a_copy(values: list[str], start: int, count: int) -> None:
    array = pa.array(values, pa.string())
    found = TextTable(array).positions(array.slice(start, count))
    assert found.tolist() == list(range(len(values)))[start : start + count]


def test_a_hundred_thousand_texts_are_found() -> None:
    values = pa.array([f"cell-{number}" for number in range(100_000)])
    assert TextTable(values).positions(values).tolist() == list(range(100_000))


@pytest.mark.parametrize("pair", [("a", "a\0"), ("", "\0"), ("abcdefgh", "abcdefgh\0"), ("aaaaaaaab", "aaaaaaaac")])
def test_texts_that_share_their_words_have_hashes_of_their_own(pair: tuple[str, str]) -> None:
    one, other = hashes_of(pa.array(pair), 0).tolist()
    assert one != other


def test_another_seed_gives_other_hashes() -> None:
    texts = pa.array(["", "a", "cell-1"])
    assert not (hashes_of(texts, 0) == hashes_of(texts, 1)).any()
