"""How answers look: tables, facts and JSON on stdout, numbers for people."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal

import click

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

# Wide enough that nothing is cut or folded where no one looks: a file, a pipe.
_WIDE = 4096

_TIMES = "\u00d7"

_MINUTE = 60
_TEN_MS = 0.01
_THOUSAND = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table."""

    title: str
    """What stands above it."""

    align: Literal["left", "right"] = "right"
    """Numbers stand at the right, so that their digits do."""


def print_json(document: Mapping[str, Any]) -> None:
    """Print a document for machines."""
    click.echo(json.dumps(document, indent=2, allow_nan=False, default=_plain))


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
    """Print rows under titles, with a thin line between."""
    # rich takes as long to import as all the rest, and most runs print no table
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="dim", border_style="dim")
    for column in columns:
        table.add_column(column.title, justify=column.align, overflow="fold")
    for row in rows:
        table.add_row(*row)
    _print(table)


def print_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Print what is known, one fact a line: its name, then its value, folded to the width of the terminal."""
    # as above
    from rich.table import Table  # noqa: PLC0415

    table = Table.grid(padding=(0, 2), pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(name, value)
    _print(table)


def print_swatches(colors: Iterable[tuple[str, tuple[int, int, int]]]) -> None:
    """Print names beside their colours."""
    # as above
    from rich.text import Text  # noqa: PLC0415

    for name, (red, green, blue) in colors:
        code = f"#{red:02x}{green:02x}{blue:02x}"
        _print(Text.assemble(("●", code), " ", (code, "dim"), " ", name))


def print_words(text: str = "") -> None:
    """Print a sentence, folded to the width of the terminal."""
    # as above
    from rich.text import Text  # noqa: PLC0415

    _print(Text(text))


def words_for_bytes(number: float) -> str:
    """Return a size in decimal units, to three digits."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < _THOUSAND - 0.5:
            return f"{_three_digits(number) if unit != 'B' else f'{number:.0f}'} {unit}"
        number /= _THOUSAND
    return f"{_three_digits(number)} TB"


def words_for_seconds(seconds: float) -> str:
    """Return a duration in the unit that suits it."""
    if seconds < 1:
        return f"{seconds * _THOUSAND:.{0 if seconds >= _TEN_MS else 1}f} ms"
    if seconds < _MINUTE:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), _MINUTE)
    hours, minutes = divmod(minutes, _MINUTE)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def words_for_fraction(fraction: float) -> str:
    """Return a share of the points as a percentage."""
    return "all" if fraction == 1 else f"{fraction * 100:.3g} %"


def words_for_shape(numbers: Iterable[float]) -> str:
    """Return numbers, one an axis, with a times sign between."""
    return f" {_TIMES} ".join(f"{number:,.6g}" if isinstance(number, float) else f"{number:,}" for number in numbers)


def plural(count: int, thing: str) -> str:
    """Return a count and what it counts."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def _three_digits(number: float) -> str:
    return f"{number:.2f}" if number < 9.995 else f"{number:.1f}" if number < 99.95 else f"{number:.0f}"  # noqa: PLR2004 - digits


def _print(thing: "RenderableType") -> None:
    console = _console()
    with console.capture() as captured:
        console.print(thing)
    # rich fills each line up to its width
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


def _console() -> "Console":
    # as above
    from rich.console import Console  # noqa: PLC0415

    # names are data: brackets in them are no markup, colons no emoji, digits nothing to colour
    return Console(
        file=sys.stdout,
        width=None if sys.stdout.isatty() else _WIDE,
        markup=False,
        emoji=False,
        highlight=False,
        soft_wrap=False,
    )


def _plain(value: object) -> object:
    """Return what JSON has for a value that it does not know."""
    if isinstance(value, PurePath):
        return str(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no form in JSON")
