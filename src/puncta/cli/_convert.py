"""`puncta convert`: an index from one layout into the other."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from puncta.cli._options import LocalPath, json_option, path_argument, url_option
from puncta.cli._print import plural, print_facts, print_json, words_for_bytes, words_for_seconds
from puncta.cli._progress import showing_progress
from puncta.cli._verb import Verb, section

if TYPE_CHECKING:
    from puncta.indexing import ConvertReport


@click.command(
    cls=Verb,
    examples=[
        "puncta convert study.zarr/points/transcripts -o transcripts.zarr --layout zarr",
        "puncta convert transcripts.zarr -o study.zarr --layout parquet",
    ],
)
@path_argument
@section(
    "Result",
    (
        ("-o", "--output", "store"),
        {
            "required": True,
            "metavar": "STORE",
            "help": "Zarr: the element to write, which stands alone. Parquet: a store to write, or to add to.",
        },
    ),
    (
        ("--layout",),
        {"type": click.Choice(["parquet", "zarr"]), "required": True, "help": "The layout to write."},
    ),
    (("--name",), {"metavar": "NAME", "help": "Name of the element in the store.  [default: its own]"}),
    (("--overwrite",), {"is_flag": True, "help": "Replace the element where there is one."}),
)
@section(
    "Work",
    (("--memory",), {"default": "1GB", "metavar": "SIZE", "help": "What the work should stay below."}),
    (("--tmp",), {"type": LocalPath(), "metavar": "DIR", "help": "For what goes to a URL.  [default: the system's]"}),
    (("--workers",), {"type": click.IntRange(min=1), "metavar": "N", "help": "Threads.  [default: one per processor]"}),
)
@json_option
@url_option
def convert(
    path: str,
    *,
    store: str,
    layout: Literal["parquet", "zarr"],
    tmp: Path | None,
    storage_options: dict[str, str],
    as_json: bool,
    **options: Any,  # noqa: ANN401 - click has checked them, and they go on by name
) -> None:
    """Write an index in the other layout; the original is not needed.

    PATH is an indexed element, or a store that has one. Nothing is sorted or sampled again, and every question gets the
    same answer.
    """
    if not store:
        raise click.UsageError("the path of -o is empty")
    # it loads zarr and pyarrow, and `--help` is for people who wait
    from puncta.indexing import convert_points  # noqa: PLC0415

    with showing_progress() as progress:
        report = convert_points(
            path, store, layout=layout, tmp=tmp, storage_options=storage_options, progress=progress, **options
        )
    if as_json:
        print_json(asdict(report))
    else:
        print_facts(_facts(report))


def _facts(report: "ConvertReport") -> list[tuple[str, str]]:
    features = f", {plural(report.n_features, 'feature')}" if report.n_features else ""
    size = words_for_bytes(report.bytes)
    if report.source_bytes:
        size += f"; the source {words_for_bytes(report.source_bytes)} ({report.bytes / report.source_bytes:.1f} times)"
    return [
        ("converted", str(report.path)),
        ("source", report.source),
        ("layout", report.layout),
        ("points", f"{report.n_rows:,}{features}"),
        ("levels", str(report.levels)),
        ("size", size),
        ("time", words_for_seconds(sum(report.seconds.values()))),
    ]
