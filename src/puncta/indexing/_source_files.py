"""Which files at a path hold the molecules."""

import re
from collections.abc import Sequence
from pathlib import Path

from puncta.errors import MissingError, SourceError, UnsupportedError
from puncta.indexing._source_parquet import PARQUET_SUFFIXES
from puncta.indexing._vendors import transcript_files
from puncta.store._locate import children, is_group, is_there, locate, zarr_format_of

__all__ = ["SEPARATED_SUFFIXES", "element_at", "files_of_one_table", "table_files"]

SEPARATED_SUFFIXES = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")
"""Ends of the names of tables of separated values, lower case."""


def element_at(place: Path) -> Path | None:
    """Return the points element at a place, that of a store with one, or None where there is no store."""
    if place.parent.name == "points" and is_group(place):
        return place
    points = place if place.name == "points" and zarr_format_of(place.parent) else place / "points"
    if zarr_format_of(points.parent) is None:
        return None
    names = children(points) if is_there(points) else []
    if not names:
        raise MissingError(f"{place} is a Zarr group without points elements; give a place such as STORE/points/NAME")
    if len(names) > 1:
        raise SourceError(
            f"{place} has {len(names)} points elements ({', '.join(names)}); give one: {points / names[0]}"
        )
    return points / names[0]


def table_files(place: Path) -> list[Path]:
    """Return the files of the table at a path, in the order of the rows: all of Parquet, or all of separated values."""
    name = place.name.lower()
    if not place.is_dir():
        if name.endswith((*PARQUET_SUFFIXES, *SEPARATED_SUFFIXES)):
            return [place]
        raise UnsupportedError(
            f"{place} is not a form of table that puncta reads; write it as .parquet, .csv, .csv.gz or .tsv"
        )
    tables = transcript_files(entry.name for entry in place.iterdir())
    if len(tables) > 1:
        raise SourceError(f"{place} has {len(tables)} transcript tables ({', '.join(tables)}); give one of them")
    files = table_files(place / tables[0]) if tables else _part_files(place)
    if not files:
        held = sorted(entry.name for entry in place.iterdir())[:5]
        raise MissingError(
            f"{place} holds no transcript table of a known vendor and no part of a table, as Parquet or CSV "
            f"({'it is empty' if not held else 'it holds ' + ', '.join(held)}); give the table itself"
        )
    return files


def files_of_one_table(paths: Sequence[Path]) -> list[Path]:
    """Return the files of a table that is given file by file, in that order.

    Raises:
        MissingError: If one is not there.
        SourceError: If one is a folder, is given twice, or is of another form than the first.
        UnsupportedError: If the form of one is not read.

    """
    places = [locate(path).path for path in paths]
    for place in places:
        if place.is_dir():
            raise SourceError(
                f"{place} is a folder among {len(places)} sources; give it alone, or the files of one table"
            )
        table_files(place)
    if len(set(places)) < len(places):
        twice = next(place for place in places if places.count(place) > 1)
        raise SourceError(f"{twice} is given {places.count(twice)} times, and its points would be; give it once")
    odd = [place for place in places if _is_separated(place) != _is_separated(places[0])]
    if odd:
        raise SourceError(
            f"{len(odd)} of {len(places)} files are of another form than {places[0]} (first: {odd[0]}); give files of "
            "one table: all Parquet, or all separated values"
        )
    return places


def _is_separated(place: Path) -> bool:
    return place.name.lower().endswith(SEPARATED_SUFFIXES)


def _part_files(folder: Path) -> list[Path]:
    """Return the parts of a table in a folder, `part.2` before `part.10` (P7): Parquet, else the first other form."""
    entries = [entry for entry in folder.iterdir() if not entry.name.startswith((".", "_")) and entry.is_file()]
    for ending in ("parquet", "csv", "tsv", "txt"):
        suffixes = PARQUET_SUFFIXES if ending == "parquet" else (f".{ending}", f".{ending}.gz")
        parts = [entry for entry in entries if entry.name.lower().endswith(suffixes)]
        plain = {entry.name for entry in parts}
        twice = [entry.name for entry in parts if entry.name.endswith(".gz") and entry.name[: -len(".gz")] in plain]
        if twice:
            raise SourceError(
                f"{folder} holds {len(twice)} tables both plain and as gzip (first: {twice[0]}), and their points "
                "would be taken twice; give the files of one form"
            )
        if parts:
            return sorted(parts, key=lambda part: _by_number(part.name))
    return []


def _by_number(name: str) -> list[tuple[int, str]]:
    return [(int(piece), "") if piece.isdecimal() else (-1, piece) for piece in re.split(r"(\d+)", name)]
