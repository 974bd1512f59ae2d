"""`puncta query`: the points of a region, of features, at a level."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from puncta.cli._options import (
    LocalPath,
    Names,
    box_of,
    json_option,
    path_argument,
    region_options,
    require_url,
    text_of,
    url_option,
)
from puncta.cli._print import (
    Column,
    plural,
    print_facts,
    print_json,
    print_table,
    print_words,
    words_for_bytes,
    words_for_fraction,
)
from puncta.cli._verb import Verb, section

if TYPE_CHECKING:
    import pyarrow as pa

    from puncta.points import Count

PREVIEW_ROWS = 8
"""Rows that are shown where no file was asked for."""

FORMATS = (".parquet", ".csv", ".arrow")
"""Endings of the files that can be written."""

_COUNT = click.IntRange(min=0)

# More would fill the terminal with fractions.
_MANY_FEATURES = 6


@click.command(
    cls=Verb,
    examples=[
        "puncta query study.zarr/points/transcripts --box 0,0,500,500 --feature Plp1 -o plp1.parquet",
        "puncta query study.zarr/points/transcripts --budget 200000 --count",
        "puncta query s3://bucket/study.zarr/points/transcripts --box 0,0,500,500 --storage-option region=eu-central-1",
    ],
)
@path_argument
@region_options
@section(
    "Where",
    (("--polygon",), {"type": Path, "metavar": "FILE", "help": "GeoJSON or WKT, over x and y."}),
)
@section(
    "Which",
    (("--feature", "features"), {"multiple": True, "metavar": "NAME", "help": "Only this one; may be repeated."}),
    (("--feature-key",), {"metavar": "COLUMN", "help": "Column of the features.  [default: the primary]"}),
    (("--where",), {"multiple": True, "metavar": "EXPR", "help": "SQL, such as 'qv >= 20'; may be repeated."}),
    (("--columns",), {"type": Names(), "metavar": "A,B", "help": "Only these columns."}),
    (("--level",), {"type": _COUNT, "metavar": "N", "help": "From this level.  [default: 0, every point]"}),
    (("--budget",), {"type": click.IntRange(min=1), "metavar": "ROWS", "help": "About as many rows at the most."}),
    (
        ("--thinning",),
        {
            "type": click.Choice(["equal", "own"]),
            "default": "equal",
            "help": "Several features at one fraction, or each at its own.",
        },
    ),
)
@section(
    "Answer",
    (("-o", "--output"), {"type": LocalPath(), "metavar": "FILE", "help": "Write .parquet, .csv or .arrow."}),
    (("--overwrite",), {"is_flag": True, "help": "Replace the file where it exists."}),
    (("--count",), {"is_flag": True, "help": "Print only how many points there are."}),
    (("--explain",), {"is_flag": True, "help": "Print what would be read, without reading a point."}),
)
@json_option
@url_option
def query(
    path: str,
    *,
    box: tuple[float, ...] | None,
    z: tuple[float, ...] | None,
    coordinate_system: str | None,
    polygon: Path | None,
    features: tuple[str, ...],
    feature_key: str | None,
    where: tuple[str, ...],
    level: int | None,
    budget: int | None,
    thinning: Literal["equal", "own"],
    columns: tuple[str, ...] | None,
    output: Path | None,
    count: bool,
    explain: bool,
    overwrite: bool,
    as_json: bool,
    storage_options: dict[str, str],
) -> None:
    """Return the points of a region, of genes, at a zoom level.

    Boxes are half-open, in stored coordinates unless --coordinate-system says otherwise. Without -o the first rows are
    shown.
    """
    if level is not None and budget is not None:
        raise click.UsageError("--level and --budget both choose a level; give one of them")
    _check_answer(output=output, count=count, explain=explain)
    require_url(path, storage_options)
    # they load zarr and pyarrow, and `--help` is for people who wait
    from puncta.cli._save import check_target, save_table  # noqa: PLC0415
    from puncta.points import open_points  # noqa: PLC0415

    if output is not None:
        check_target(output, overwrite=overwrite)
    asked: dict[str, Any] = {
        "box": box_of(box, z),
        "polygon": None if polygon is None else text_of(polygon),
        "features": features or None,
        "where": where,
        "coordinate_system": coordinate_system,
        "feature_key": feature_key,
    }
    detail: dict[str, Any] = {"level": level, "budget": budget, "thinning": thinning, "columns": columns}
    points = open_points(path, storage_options=storage_options)
    if count:
        # a budget says how much may be read: the level that it allows gives an estimate
        counted = level if budget is None else points.explain(**asked, **detail).level
        _print_count(points.count(**asked, level=counted), as_json=as_json)
    elif explain:
        _print_explanation(points.explain(**asked, **detail).as_dict(), as_json=as_json)
    else:
        table = points.query(**asked, **detail)
        if output is not None:
            save_table(output, table)
        _print_answer(table, output, as_json=as_json)


def _check_answer(*, output: Path | None, count: bool, explain: bool) -> None:
    asked = [("--count", count), ("--explain", explain), ("-o", output is not None)]
    chosen = [name for name, given in asked if given]
    if len(chosen) > 1:
        raise click.UsageError(f"{' and '.join(chosen)} are different answers; ask for one of them")
    if output is not None and output.suffix not in FORMATS:
        raise click.UsageError(f"cannot write {output.name!r}; the name must end in {', '.join(FORMATS)}")


def _print_count(count: "Count", *, as_json: bool) -> None:
    if as_json:
        print_json({"count": count.count, "exact": count.exact})
        return
    click.echo(count.count)
    if not count.exact:
        click.echo("an estimate from a sampled level; without --level and --budget it is exact", err=True)


def _print_explanation(explanation: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(explanation)
        return
    reads = f"{plural(explanation['requests'], 'request')}, {words_for_bytes(explanation['bytes'])}"
    order = "tile order" if explanation["order"] == "spatial" else "order of the features"
    print_facts(
        [
            ("level", str(explanation["level"])),
            ("answer", _completeness(explanation)),
            ("copy", order),
            ("tiles", f"{explanation['tiles']:,}"),
            ("rows", f"{explanation['rows']:,} read, before the exact filter"),
            ("reads", reads),
        ]
    )


def _print_answer(table: "pa.Table", output: Path | None, *, as_json: bool) -> None:
    says = json.loads((table.schema.metadata or {}).get(b"puncta", b"{}"))
    if as_json:
        path = {} if output is None else {"path": str(output)}
        print_json({"rows": table.num_rows, **path, **says})
        return
    if output is None and table.num_rows:
        _print_preview(table)
        print_words()
    place = "" if output is None else f", written to {output}"
    print_words(f"{plural(table.num_rows, 'point')}{place}")
    print_words(f"level {says['level']}, {_completeness(says)}")
    if says.get("note"):
        print_words(f"note: {says['note']}")


def _print_preview(table: "pa.Table") -> None:
    head = table.slice(0, PREVIEW_ROWS)
    columns = [Column(title=field.name, align=_align(field.type)) for field in table.schema]
    print_table(columns, [[_cell(value) for value in row.values()] for row in head.to_pylist()])


def _align(kind: "pa.DataType") -> Literal["left", "right"]:
    # the names of Arrow's types, so that this file need not load it
    return "right" if str(kind).startswith(("int", "uint", "float", "double", "half", "decimal")) else "left"


def _cell(value: object) -> str:
    if value is None:
        return ""
    # as many digits as float32 has
    return f"{value:.7g}" if isinstance(value, float) else str(value)


def _completeness(says: Mapping[str, Any]) -> str:
    """Return whether an answer is all there is, or which share of it."""
    if says["complete"]:
        return "complete"
    fraction = says["fraction"]
    if isinstance(fraction, Mapping):
        if len(fraction) > _MANY_FEATURES:
            low, high = (words_for_fraction(one) for one in (min(fraction.values()), max(fraction.values())))
            return f"a sample: {low} to {high} of the points of {len(fraction)} features"
        return f"a sample: {', '.join(f'{words_for_fraction(one)} of {name}' for name, one in fraction.items())}"
    return f"a sample: {words_for_fraction(fraction)} of the points"
