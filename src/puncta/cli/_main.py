"""The command `puncta`: its verbs, and the exit code of each outcome."""

from functools import partial
from typing import Any, override

import click

import puncta
from puncta.cli._convert import convert
from puncta.cli._demo import demo
from puncta.cli._failures import INTERRUPTED, exit_code_of, say_wrong_use, stopping_on_signals
from puncta.cli._index import index
from puncta.cli._info import info
from puncta.cli._plot import plot
from puncta.cli._query import query
from puncta.cli._validate import validate
from puncta.cli._verb import use_printable_streams, write_examples

_EXAMPLES = (
    "puncta demo",
    "puncta index transcripts.parquet -o study.zarr",
    "puncta query study.zarr --box 0,0,500,500 --feature Plp1",
)


class _Puncta(click.Group):
    """The verbs in the order in which people meet them, and one line for every failure."""

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    @override
    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(_EXAMPLES, formatter)
        super().format_options(ctx, formatter)

    @override
    def main(self, *args: Any, standalone_mode: bool = True, **settings: Any) -> Any:
        use_printable_streams()
        run: Any = super().main
        try:
            with stopping_on_signals():
                code = run(*args, standalone_mode=False, **settings)
        except click.ClickException as error:
            code = say_wrong_use(error)
        except click.Abort:
            code = INTERRUPTED
        if standalone_mode:
            raise SystemExit(code)
        return code

    @override
    def invoke(self, ctx: click.Context) -> int:
        return exit_code_of(partial(super().invoke, ctx))


@click.group(
    "puncta",
    cls=_Puncta,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(puncta.__version__, prog_name="puncta", message="%(prog)s %(version)s")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Index RNA molecules so that any region, gene or zoom level loads at once."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


for _verb in (demo, index, convert, info, query, plot, validate):
    main.add_command(_verb)
