"""`puncta validate`: every problem of what is at a path."""

import click

from puncta.cli._options import json_option, path_argument, storage_option
from puncta.cli._print import plural, print_json, print_words
from puncta.cli._verb import Verb


@click.command(cls=Verb, examples=["puncta validate study.zarr"])
@path_argument
@json_option
@storage_option
@click.pass_context
def validate(ctx: click.Context, path: str, *, as_json: bool) -> None:
    """List every problem of what is at a path.

    The exit code is 1 where there is one.
    """
    # it loads zarr and pyarrow, and `--help` is for people who wait
    from puncta import kinds  # noqa: PLC0415

    report = kinds.validate_report(path)
    if as_json:
        print_json(report)
    elif report["valid"]:
        print_words(f"valid {report['kind']}: {report['path']}")
    else:
        problems = report["problems"]
        for problem in problems:
            print_words(f"{problem['loc'] or '(document)'}: {problem['message']} [{problem['kind']}]")
        print_words(f"{plural(len(problems), 'problem')} in the {report['kind']} at {report['path']}")
    if not report["valid"]:
        ctx.exit(1)
