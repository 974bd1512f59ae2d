"""What the verbs share on the command line: their options, and the shapes of their values."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, override

import click

from puncta.cli._verb import Decorator, refuse_later, section
from puncta.errors import MissingError, QueryError, StoreError, UnsupportedError

type Box = dict[str, tuple[float, float]]
"""Half-open ranges by axis."""


class Numbers(click.ParamType[tuple[float, ...]]):
    """Numbers with commas between them."""

    name = "numbers"

    def __init__(self, *, counts: Sequence[int], positive: bool = False) -> None:
        self.counts = counts
        self.positive = positive

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        if isinstance(value, tuple):
            return value
        try:
            numbers = tuple(float(part) for part in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is not {_words(self.counts)} with commas between them", param, ctx)
        if len(numbers) not in self.counts:
            self.fail(f"{value!r} has {len(numbers)} numbers; give {_words(self.counts)}", param, ctx)
        wrong = [number for number in numbers if math.isnan(number) or (self.positive and not 0 < number < math.inf)]
        if wrong:
            self.fail(f"{wrong[0]:g} is not {'a size above zero' if self.positive else 'a number'}", param, ctx)
        return numbers


class Names(click.ParamType[tuple[str, ...]]):
    """Names with commas between them."""

    name = "names"

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        names = tuple(part.strip() for part in str(value).split(","))
        if not all(names):
            self.fail(f"{value!r} has an empty name", param, ctx)
        return names


class LocalPath(click.ParamType[Path]):
    """A path of this machine, where nothing need be yet."""

    name = "path"

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        if "://" in str(value):
            raise UnsupportedError(
                f"writing to URLs is not supported yet ({str(value)!r}); give a path of this machine"
            )
        if not str(value):
            self.fail("the path is empty", param, ctx)
        return Path(value)


def _pairs_of(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Return the options of a store by name."""
    wrong = [value for value in values if not value.partition("=")[0] or "=" not in value]
    if wrong:
        raise click.BadParameter(f"{wrong[0]!r} is not K=V, such as region=eu-central-1", ctx, parameter)
    return dict(value.split("=", 1) for value in values)


def require_url(path: str, storage_options: Mapping[str, str]) -> None:
    """Refuse options of a store that is no URL.

    Raises:
        click.UsageError: If there are any.

    """
    if storage_options and "://" not in path:
        raise click.UsageError(f"--storage-option is for URLs, and {path!r} is a path of this machine; leave it out")


path_argument = click.argument("path")

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of words.")

storage_option = click.option(
    "--storage-option",
    multiple=True,
    metavar="K=V",
    expose_value=False,
    callback=refuse_later("--storage-option", "stores are read from local paths"),
    help="For URLs; not supported yet.",
)

url_option = click.option(
    "--storage-option",
    "storage_options",
    multiple=True,
    metavar="K=V",
    callback=_pairs_of,
    help="For a URL: region, endpoint, token and others; may be repeated.",
)

region_options: Decorator = section(
    "Where",
    (("--box",), {"type": Numbers(counts=[4]), "metavar": "X0,Y0,X1,Y1", "help": "Lower and upper corner, half-open."}),
    (("--z",), {"type": Numbers(counts=[2]), "metavar": "Z0,Z1", "help": "Range of z, half-open."}),
    (
        ("--coordinate-system",),
        {"metavar": "NAME", "help": "That of the box; the stored coordinates unless given."},
    ),
)


def box_of(box: tuple[float, ...] | None, z: tuple[float, ...] | None) -> Box | None:
    """Return the ranges of `--box` and `--z` by axis; None where neither was given.

    Raises:
        click.UsageError: If a range ends before it begins.

    """
    ranges: Box = {}
    if box is not None:
        ranges = {"x": (box[0], box[2]), "y": (box[1], box[3])}
    if z is not None:
        ranges["z"] = (z[0], z[1])
    for axis, (low, high) in ranges.items():
        if low > high:
            form = "--z Z0,Z1" if axis == "z" else "--box X0,Y0,X1,Y1"
            raise click.UsageError(f"the box ends before it begins along {axis}: {low:g} to {high:g}; write {form}")
    return ranges or None


def text_of(path: Path) -> str:
    """Return the text of a polygon's file, for the reader to make sense of.

    Raises:
        MissingError: If there is no such file.
        StoreError: If the system does not let it be read.
        QueryError: If it holds no text.

    """
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise MissingError(f"nothing at {path}; --polygon takes a file of GeoJSON or WKT") from error
    except UnicodeDecodeError as error:
        raise QueryError(f"{path} holds no text; --polygon takes a file of GeoJSON or WKT") from error
    except OSError as error:
        raise StoreError(f"could not read {path}: {error.strerror}") from error


def _words(counts: Sequence[int]) -> str:
    return f"{' or '.join(str(count) for count in counts)} number{'' if list(counts) == [1] else 's'}"
