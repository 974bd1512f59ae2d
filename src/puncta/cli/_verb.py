"""A verb of the command line: its help with examples and sections, and options that are not supported yet."""

import io
import sys
from collections.abc import Callable, Sequence
from typing import Any, override

import click

from puncta.errors import UnsupportedError

_DEFAULT_SECTION = "Options"


class Section(click.Option):
    """An option that stands under a heading of its own in the help."""

    def __init__(self, names: Sequence[str], *, section: str, **settings: Any) -> None:  # noqa: ANN401 - click's own
        super().__init__(names, **settings)
        self.section = section


class Verb(click.Command):
    """A command whose help shows examples first, then the options under headings, those without one last."""

    def __init__(self, name: str | None, *, examples: Sequence[str] = (), **settings: Any) -> None:  # noqa: ANN401 - click's own
        super().__init__(name, **settings)
        self.examples = tuple(examples)

    @override
    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(self.examples, formatter)
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and not isinstance(parameter, click.Argument):
                sections.setdefault(getattr(parameter, "section", _DEFAULT_SECTION), []).append(record)
        for heading in sorted(sections, key=lambda name: name == _DEFAULT_SECTION):
            with formatter.section(heading):
                formatter.write_dl(sections[heading])


type Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
"""What an option is: it takes a command's function, and gives it back."""


def write_examples(examples: Sequence[str], formatter: click.HelpFormatter) -> None:
    """Write commands that can be typed as they stand: one a line, never folded."""
    with formatter.section("Example" if len(examples) == 1 else "Examples"):
        for example in examples:
            formatter.write(f"{'':>{formatter.current_indent}}{example}\n")


def section(heading: str, *options: tuple[tuple[str, ...], dict[str, Any]]) -> Decorator:
    """Return a decorator that adds options, in this order, under one heading of the help."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for names, settings in reversed(options):
            shown = {"show_default": settings.get("default") is not None, **settings}
            function = click.option(*names, cls=Section, section=heading, **shown)(function)
        return function

    return decorate


def use_printable_streams() -> None:
    """Let a terminal that lacks a character show its number, instead of failing in the middle of an answer."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def refuse_later(name: str, remedy: str) -> Callable[[click.Context, click.Parameter, object], object]:
    """Return a callback for an option of the interface whose work comes in a later version."""

    def refuse(ctx: click.Context, parameter: click.Parameter, value: object) -> object:  # noqa: ARG001 - click's own
        if value:
            raise UnsupportedError(f"{name} is not supported yet; {remedy}")
        return value

    return refuse
