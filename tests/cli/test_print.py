import pytest

from puncta.cli._print import words_for_bytes, words_for_fraction, words_for_seconds, words_for_shape


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.00 kB"),
        (9_996, "10.0 kB"),
        (99_960, "100 kB"),
        (999_600, "1.00 MB"),
        (1_234_567_890, "1.23 GB"),
        (5e15, "5000 TB"),
    ],
)
def test_sizes_have_three_digits(number: float, words: str) -> None:
    assert words_for_bytes(number) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.0012, "1.2 ms"), (0.25, "250 ms"), (3.21, "3.2 s"), (75, "1 min 15 s"), (7_500, "2 h 5 min")],
)
def test_durations_have_the_unit_that_suits(seconds: float, words: str) -> None:
    assert words_for_seconds(seconds) == words


def test_all_points_are_called_all() -> None:
    assert [words_for_fraction(share) for share in (1, 0.5, 0.00123)] == ["all", "50 %", "0.123 %"]


def test_shapes_stand_in_the_order_of_the_axes() -> None:
    assert words_for_shape([1200.0, 44.5]) == "1,200 \u00d7 44.5"
