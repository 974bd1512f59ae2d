"""`puncta index`: a source in, an indexed element of a SpatialData store out."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from puncta.cli._options import LocalPath, Names, Numbers, json_option, url_option
from puncta.cli._print import (
    plural,
    print_facts,
    print_json,
    words_for_bytes,
    words_for_seconds,
    words_for_shape,
)
from puncta.cli._progress import showing_progress
from puncta.cli._verb import Verb, section

if TYPE_CHECKING:
    from puncta.indexing import IndexReport

_REASONS = {
    "invalid": "with a coordinate that is no number",
    "where": "by --where",
    "controls": "control features",
}

_SIZES = Numbers(counts=[1, 2, 3], positive=True)
_COUNT = click.IntRange(min=1)


@click.command(
    cls=Verb,
    examples=[
        'puncta index transcripts.parquet -o study.zarr --where "qv >= 20"',
        "puncta index study.zarr/points/transcripts --in-place",
        "puncta index fov_*.csv.gz -o study.zarr",
    ],
)
@click.argument("source", nargs=-1, required=True)
@section(
    "Result",
    (("-o", "--output", "store"), {"metavar": "STORE", "help": "Store to write or add to; s3://, gs://, az:// too."}),
    (("--in-place",), {"is_flag": True, "help": "Index the element in its own store instead."}),
    (("--name",), {"metavar": "NAME", "help": "Name of the element.  [default: the source's, or transcripts]"}),
    (("--overwrite",), {"is_flag": True, "help": "Replace the element, or its index, where there is one."}),
    (("--all-elements",), {"is_flag": True, "help": "Take the other elements of the source's store along."}),
)
@section(
    "Columns (recognised unless named)",
    (("--x",), {"metavar": "COLUMN"}),
    (("--y",), {"metavar": "COLUMN"}),
    (("--z",), {"metavar": "COLUMN"}),
    (("--feature-key",), {"multiple": True, "metavar": "COLUMN", "help": "May be repeated; the first is primary."}),
    (
        ("--coordinate-dtype",),
        {"type": click.Choice(["float32", "keep"]), "default": "float32", "help": "Type of the stored coordinates."},
    ),
    (("--codes-column",), {"is_flag": True, "help": "Add <feature>_codes, for readers that need integers."}),
)
@section(
    "Rows",
    (("--where",), {"multiple": True, "metavar": "EXPR", "help": "SQL, such as 'qv >= 20'; may be repeated."}),
    (("--drop-controls",), {"is_flag": True, "help": "Leave out controls, by the vendor's naming rule."}),
    (
        ("--invalid",),
        {"type": click.Choice(["error", "drop"]), "default": "error", "help": "Coordinates that are not finite."},
    ),
)
@section(
    "Grid and levels",
    (
        ("--tile-size",),
        {"type": _SIZES, "metavar": "S[,S[,S]]", "help": "Edge of a tile.  [default: from the density]"},
    ),
    (("--origin",), {"type": Numbers(counts=[1, 2, 3]), "metavar": "O[,O[,O]]", "help": "Corner of the first tile."}),
    (("--axes",), {"type": Names(), "metavar": "x,y[,z]", "help": "Axes of the grid.  [default: the element's]"}),
    (("--coordinate-system",), {"default": "global", "metavar": "NAME", "help": "That of the grid."}),
    (
        ("--limit",),
        {"type": _COUNT, "metavar": "N", "default": 10_000, "help": "Points that the densest tile should hold."},
    ),
    (("--max-levels",), {"type": _COUNT, "metavar": "N", "help": "Levels at the most, level 0 included."}),
    (("--max-tiles",), {"type": _COUNT, "metavar": "N", "default": 65_536, "help": "Tiles of level 0 at the most."}),
    (("--no-feature-order",), {"is_flag": True, "help": "Write no copy in the order of the features."}),
    (
        ("--feature-levels",),
        {
            "type": click.Choice(["all", "shared", "none"]),
            "default": "all",
            "help": "Levels of that copy: of every feature, of those that changed, or level 0 alone.",
        },
    ),
    (
        ("--layout",),
        {
            "type": click.Choice(["parquet", "zarr", "both"]),
            "default": "parquet",
            "help": "How levels are stored; zarr alone is an element on its own, outside a SpatialData store.",
        },
    ),
    (("--seed",), {"type": int, "metavar": "N", "default": 0, "help": "Seed of the sampled levels."}),
)
@section(
    "Work",
    (("--memory",), {"default": "1GB", "metavar": "SIZE", "help": "What the work should stay below."}),
    (("--tmp",), {"type": LocalPath(), "metavar": "DIR", "help": "For temporary files.  [default: beside the store]"}),
    (("--workers",), {"type": _COUNT, "metavar": "N", "help": "Threads.  [default: one per processor]"}),
    (
        ("--dask",),
        {
            "metavar": "ADDRESS",
            "help": "Scheduler of a dask cluster that shares --tmp and the folder of the store.",
        },
    ),
)
@json_option
@url_option
def index(
    source: tuple[str, ...],
    *,
    store: str | None,
    in_place: bool,
    no_feature_order: bool,
    seed: int,
    as_json: bool,
    **options: Any,  # noqa: ANN401 - click has checked them, and they go on by name
) -> None:
    """Index points, so that any region or gene loads at once.

    SOURCE is a vendor's transcript table (.parquet, .csv, .csv.gz) or output folder, a folder of parts or several files
    of one table, or a points element of a SpatialData store. The result is, or stays, a store that
    spatialdata.read_zarr opens.
    """
    if store == "":
        raise click.UsageError("the path of -o is empty")
    if in_place == (store is not None):
        raise click.UsageError("say where the index goes: either -o STORE or --in-place")
    # it loads zarr and pyarrow, and `--help` is for people who wait
    from puncta.indexing import index_points  # noqa: PLC0415

    with showing_progress() as progress:
        report = index_points(
            source,
            store,
            in_place=in_place,
            feature_order=not no_feature_order,
            seed=seed,
            progress=progress,
            **{name: value for name, value in options.items() if value is not None},
        )
    if as_json:
        print_json(asdict(report))
    else:
        print_report(report)


def print_report(report: "IndexReport") -> None:
    """Print what was indexed, and how well it went."""
    print_facts(_facts(report))


def _facts(report: "IndexReport") -> list[tuple[str, str]]:
    left_out = [
        (
            "left out" if position == 0 else "",
            f"{count:,} {_REASONS.get(reason, reason)} ({count / report.n_source_rows:.1%})",
        )
        for position, (reason, count) in enumerate(report.dropped.items())
    ]
    features = f", {plural(report.n_features, 'feature')}" if report.n_features else ""
    levels = f"{report.levels}; tiles of {words_for_shape(report.tile_size)} at level 0"
    return [
        ("indexed", str(report.path)),
        ("source", report.words),
        ("points", f"{report.n_rows:,}{features}"),
        *left_out,
        ("levels", f"{levels} ({words_for_shape(report.grid_shape)} of them)"),
        ("fit", report.fit_text),
        ("size", _size(report)),
        ("time", words_for_seconds(sum(report.seconds.values()))),
        *[("note", note) for note in report.notes],
    ]


def _size(report: "IndexReport") -> str:
    size = words_for_bytes(report.bytes)
    if not report.source_bytes:
        return size
    return f"{size}; the source {words_for_bytes(report.source_bytes)} ({report.bytes / report.source_bytes:.1f} times)"
