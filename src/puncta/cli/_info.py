"""`puncta info`: what is at a path."""

from collections.abc import Mapping
from typing import Any

import click

from puncta.cli._levels import print_costs, print_levels
from puncta.cli._options import json_option, path_argument, require_url, url_option
from puncta.cli._print import (
    Column,
    print_facts,
    print_json,
    print_table,
    print_words,
    words_for_bytes,
)
from puncta.cli._verb import Verb

type Fact = tuple[str, str]


@click.command(
    cls=Verb, examples=["puncta info study.zarr/points/transcripts", "puncta info https://example.org/study.zarr"]
)
@path_argument
@json_option
@url_option
def info(path: str, *, as_json: bool, storage_options: dict[str, str]) -> None:
    """Say what is at a path, and how well the tiles fit.

    Of indexed points it shows the levels, their sizes, and what each way of writing the features would cost.
    """
    require_url(path, storage_options)
    # it loads zarr and pyarrow, and `--help` is for people who wait
    from puncta import kinds  # noqa: PLC0415

    document = kinds.info(path, storage_options=storage_options)
    if as_json:
        print_json(document)
    elif "levels" in document:
        _print_points(document)
    else:
        _print_other(document)


def _print_points(document: Mapping[str, Any]) -> None:
    print_facts(_facts_of_points(document))
    print_words()
    print_levels(document["levels"])
    if document.get("feature_level_costs"):
        print_words()
        print_costs(document["feature_level_costs"], n_rows=document["n_rows"], chosen=document["feature_levels"])


def _facts_of_points(document: Mapping[str, Any]) -> list[Fact]:
    key = document["feature_key"]
    facts = [
        ("path", document["path"]),
        ("points", f"{document['n_rows']:,} along {', '.join(document['axes'])}"),
        ("features", f"{document['n_features']:,} values of {key}" if key else "none"),
        ("system", document["coordinate_system"]),
        ("size", _size(document)),
    ]
    return [*facts, ("fit", document["fit_text"])] if document["fit_text"] else facts


def _size(document: Mapping[str, Any]) -> str:
    if document["bytes"] is None:
        return "unknown: a web server does not list its files"
    tiles, features = (sum(level[name] for level in document["levels"]) for name in ("bytes", "bytes_feature"))
    sizes = f"{words_for_bytes(tiles)} in tile order, {words_for_bytes(features)} in the order of the features"
    return f"{words_for_bytes(document['bytes'])}: {sizes}"


def _print_other(document: Mapping[str, Any]) -> None:
    """Print what any kind says of itself, and its elements as a table."""
    told = {name: value for name, value in document.items() if name != "elements" and value not in (None, [])}
    print_facts([(name.replace("_", " "), _words(name, value)) for name, value in told.items()])
    elements = document.get("elements")
    if elements:
        columns = [
            Column(title="element", align="left"),
            Column(title="kind", align="left"),
            Column(title="size"),
            Column(title="", align="left"),
        ]
        print_words()
        print_table(columns, [_row(element) for element in elements])


def _row(element: Mapping[str, Any]) -> tuple[str, ...]:
    index = {True: "indexed", False: "not indexed", None: ""}[element.get("indexed")]
    size = "" if element["bytes"] is None else words_for_bytes(element["bytes"])
    return element["path"], element["kind"], size, index


def _words(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return words_for_bytes(value) if name == "bytes" else f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(str(one) for one in value)
    return str(value)
