"""The tables of levels, which `info` and `demo` show alike."""

from collections.abc import Iterable, Mapping
from typing import Any

from puncta.cli._print import Column, print_table, words_for_bytes, words_for_fraction, words_for_shape

_LEVEL_COLUMNS = [
    Column(title=title) for title in ("level", "tile size", "tiles", "points", "share", "densest", "size")
]

_MODE_COLUMNS = [
    Column(title="--feature-levels", align="left"),
    Column(title="rows"),
    Column(title="of the points"),
    Column(title="features copied", align="left"),
]

_MODES = {
    "all": "all, at every level",
    "shared": "at each level those that changed",
    "none": "all, at level 0 alone",
}


def print_levels(levels: Iterable[Mapping[str, Any]]) -> None:
    """Print levels, each as `kinds.info` says it."""
    print_table(_LEVEL_COLUMNS, [_row(level) for level in levels])


def print_costs(costs: Mapping[str, int], *, n_rows: int, chosen: str | None) -> None:
    """Print how many rows the feature-major copies hold in each mode, and which mode is in use."""
    rows = [
        (
            f"{mode} (in use)" if mode == chosen else mode,
            f"{cost:,}",
            f"{cost / n_rows:.2f} times",
            _MODES[mode],
        )
        for mode, cost in costs.items()
    ]
    print_table(_MODE_COLUMNS, rows)


def _row(level: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        str(level["level"]),
        words_for_shape(float(size) for size in level["tile_size"]),
        words_for_shape(int(number) for number in level["grid_shape"]),
        f"{level['n_rows']:,}",
        words_for_fraction(level["P"]),
        f"{level['densest_tile']:,}",
        "" if level["bytes"] is None else words_for_bytes(level["bytes"]),
    )
