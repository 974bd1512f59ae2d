"""Which files at a path hold the molecules."""

from pathlib import Path

from puncta.errors import MissingError, SourceError, UnsupportedError
from puncta.indexing._source_parquet import PARQUET_SUFFIXES, part_files
from puncta.indexing._vendors import transcript_files
from puncta.store._locate import children, is_group, is_there, zarr_format_of

__all__ = ["SEPARATED_SUFFIXES", "element_at", "table_files"]

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
    """Return the files of the table at a path: one of separated values, or one or more of Parquet."""
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
    files = table_files(place / tables[0]) if tables else part_files(place)
    if not files:
        held = sorted(entry.name for entry in place.iterdir())[:5]
        raise MissingError(
            f"{place} holds no transcript table of a known vendor and no Parquet part "
            f"({'it is empty' if not held else 'it holds ' + ', '.join(held)}); give the table itself"
        )
    return files
