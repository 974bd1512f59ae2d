"""What the vendors call things: columns, files and control features of their transcript tables.

Pure: names in, names out. The facts are those of the vendors' own format pages and of spatialdata-io's readers.
"""

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from puncta.errors import ColumnError

__all__ = [
    "VENDORS",
    "Columns",
    "Vendor",
    "describe",
    "is_control",
    "match_columns",
    "missing_column",
    "recognise",
    "transcript_files",
]

_LISTED = 30
"""How many column names a message lists before it counts the rest: tables with thousands of columns exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor:
    """How one instrument or program writes its molecules."""

    name: str
    """Short name, lower case, for programs."""
    title: str
    """Name as its makers write it, for people."""
    x: str
    """Column of the x coordinate in the frame of the whole section."""
    y: str
    """Column of the y coordinate in the frame of the whole section."""
    z: str | None
    """Column of the z coordinate or slice; None where the format has none."""
    feature: str
    """Column of the gene or other target."""
    cell: str | None
    """Column of the cell that holds the molecule; None where the format has none."""
    also: tuple[str, ...] = ()
    """Further columns that must be there, where x, y and the feature alone would say nothing."""
    controls: tuple[str, ...] = ()
    """Regular expressions; a feature whose name begins with one of them is a control. Empty: no rule is known."""
    files: tuple[str, ...] = ()
    """File names of the table in the output folder, as patterns, the preferred one first."""

    @property
    def signature(self) -> tuple[str, ...]:
        """Columns by which a table of this vendor is known."""
        return (self.x, self.y, self.feature, *self.also)


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Which source columns are the coordinates, the features and the cell."""

    x: str
    """Column of the x coordinate."""
    y: str
    """Column of the y coordinate."""
    z: str | None
    """Column of the z coordinate; None for points in a plane."""
    features: tuple[str, ...]
    """Feature columns, the primary first; none where a points element declares none and none is recognised."""
    cell: str | None
    """Column of the cell; None where there is none."""

    @property
    def coordinates(self) -> tuple[str, ...]:
        """Coordinate columns in the order x, y, z; two of them for points in a plane."""
        return (self.x, self.y) if self.z is None else (self.x, self.y, self.z)


# The order matters: the first whose signature is there wins, so the formats with telling names come first.
VENDORS = (
    Vendor(
        name="xenium",
        title="Xenium",
        x="x_location",
        y="y_location",
        z="z_location",
        feature="feature_name",
        cell="cell_id",
        controls=(
            "NegControlProbe_",
            "NegControlCodeword_",
            "UnassignedCodeword_",
            "DeprecatedCodeword_",
            "BLANK_",
            "antisense_",
            "Intergenic_",
        ),
        files=("transcripts.parquet", "transcripts.csv.gz", "transcripts.csv"),
    ),
    Vendor(
        name="merscope",
        title="MERSCOPE",
        x="global_x",
        y="global_y",
        z="global_z",
        feature="gene",
        cell="cell_id",
        controls=("Blank-",),
        files=("detected_transcripts.parquet", "detected_transcripts.csv.gz", "detected_transcripts.csv"),
    ),
    Vendor(
        name="cosmx",
        title="CosMx",
        x="x_global_px",
        y="y_global_px",
        z="z",
        feature="target",
        cell="cell_ID",
        controls=("NegPrb", r"Negative ?\d", "SystemControl", "FalseCode"),
        files=("*tx_file.parquet", "*tx_file.csv.gz", "*tx_file.csv"),
    ),
    Vendor(
        name="g4x",
        title="G4X",
        x="x_pixel_coordinate",
        y="y_pixel_coordinate",
        z="z_level",
        feature="gene_name",
        cell="cell_id",
        files=("transcript_table.parquet", "transcript_table.csv.gz", "transcript_table.csv"),
    ),
    Vendor(name="starfish", title="starfish", x="xc", y="yc", z="zc", feature="target", cell="cell_id"),
    Vendor(
        name="seqfish",
        title="seqFISH",
        x="x",
        y="y",
        z="z",
        feature="name",
        cell="cell",
        also=("cell",),
        files=("*TranscriptList*.csv", "*TranscriptCoordinates*.csv"),
    ),
    Vendor(name="iss", title="ISS", x="x", y="y", z="z", feature="feature_name", cell="cell_id", also=("fov",)),
)
"""Formats that are recognised, in the order in which they are tried."""

# Plain names first; then what a vendor calls it, for tables that kept some of a vendor's columns and lost others.
_FALLBACKS: dict[str, tuple[str, ...]] = {
    "x": ("x", *(vendor.x for vendor in VENDORS)),
    "y": ("y", *(vendor.y for vendor in VENDORS)),
    "z": ("z", *(vendor.z for vendor in VENDORS if vendor.z is not None)),
    "feature": ("feature_name", "gene", "genes", "target", "gene_name", "feature", "symbol", "geneid", "name"),
    "cell": ("cell_id", "EntityID", "cell", "instance_id"),
}
_OPTIONS = {"x": "x= (--x)", "y": "y= (--y)", "z": "z= (--z)", "feature": "feature_key= (--feature-key)"}


def recognise(column_names: Iterable[str]) -> Vendor | None:
    """Return the vendor whose format has these columns, or None.

    A vendor's folder is found by file names, but its format is known by columns alone: files get renamed.
    """
    names = set(column_names)
    return next((vendor for vendor in VENDORS if names.issuperset(vendor.signature)), None)


def match_columns(
    names: Sequence[str],
    *,
    x: str | None = None,
    y: str | None = None,
    z: str | None = None,
    feature_keys: Sequence[str] = (),
    vendor: Vendor | None = None,
    needs_features: bool = True,
) -> Columns:
    """Choose the coordinate, feature and cell columns: the caller's word first, then the vendor's, then a usual name.

    Args:
        names: Column names of the table.
        x: Column of the x coordinate; None leaves the choice to the vendor and the usual names.
        y: As `x`.
        z: As `x`; without a z column anywhere the points lie in a plane.
        feature_keys: Feature columns, the primary first; empty leaves the choice.
        vendor: What `recognise` said.
        needs_features: Whether a table without a feature column is refused: its name is likelier to be misspelt.

    Raises:
        ColumnError: If a column is not there, stands twice in the table, or is given two roles.

    """
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ColumnError(
            f"{len(repeated)} column names stand more than once (first: {repeated[0]!r}, {names.count(repeated[0])} "
            "times), so it is not clear which is meant; rename or drop the copies"
        )
    theirs = _roles(vendor)
    columns = Columns(
        x=_required(names, "x", x, theirs["x"]),
        y=_required(names, "y", y, theirs["y"]),
        z=_present(names, "z", z) if z is not None else _usual(names, "z", theirs["z"]),
        features=tuple(_present(names, "feature", key) for key in feature_keys)
        or _recognised_features(names, theirs["feature"], needed=needs_features),
        cell=_usual(names, "cell", theirs["cell"]),
    )
    _check_roles(columns)
    return columns


def is_control(feature_names: Sequence[str | None] | pa.Array, vendor: Vendor | None) -> NDArray[np.bool_]:
    """Say for each feature name whether it is a control by the vendor's rule.

    Args:
        feature_names: Names; None stands for a missing one and is no control.
        vendor: Whose rule; None, as for an element of a SpatialData store that no longer says where it came from,
            applies the rules of all vendors, whose patterns are no gene's name.

    Returns:
        Shape (n,), bool.

    """
    rules = vendor.controls if vendor is not None else tuple(rule for each in VENDORS for rule in each.controls)
    if not rules:
        return np.zeros(len(feature_names), dtype=np.bool_)
    pattern = re.compile("|".join(f"(?:{rule})" for rule in rules))
    names = feature_names.to_pylist() if isinstance(feature_names, pa.Array) else feature_names
    return np.array([name is not None and pattern.match(str(name)) is not None for name in names], dtype=np.bool_)


def transcript_files(file_names: Iterable[str]) -> list[str]:
    """Return the transcript tables among the files of a vendor's output folder, sorted by name.

    Where one table is there in several forms (`transcripts.parquet` beside `transcripts.csv.gz`), only the preferred
    form is returned; more than one name therefore means more than one table.
    """
    best: dict[str, tuple[int, str]] = {}
    for name in file_names:
        ranks = [rank for vendor in VENDORS for rank, rule in enumerate(vendor.files) if fnmatchcase(name, rule)]
        if ranks:
            stem = re.sub(r"\.(parquet|csv(\.gz)?)$", "", name)
            best[stem] = min(best.get(stem, (len(VENDORS) + 99, "")), (min(ranks), name))
    return sorted(name for _, name in best.values())


def describe(columns: Columns, vendor: Vendor | None) -> str:
    """Return one line that says what was recognised, by which columns."""
    used = ", ".join((*columns.coordinates, *columns.features))
    if vendor is None:
        return f"a table of no known vendor, read by its columns {used}"
    return f"{vendor.title} transcripts, recognised by {', '.join(vendor.signature)}; read by {used}"


def missing_column(names: Sequence[str], wanted: str, remedy: str) -> ColumnError:
    """Return the error for a column that is not there: the nearest names, and what there is."""
    by_lower = {name.lower(): name for name in names}
    near = difflib.get_close_matches(wanted.lower(), list(by_lower), n=3, cutoff=0.5)
    nearest = f"; nearest: {', '.join(repr(by_lower[name]) for name in near)}" if near else ""
    listed = ", ".join(names[:_LISTED]) + (f" and {len(names) - _LISTED} more" if len(names) > _LISTED else "")
    return ColumnError(f"there is no column {wanted!r}{nearest}; the {len(names)} columns are {listed}; {remedy}")


def _roles(vendor: Vendor | None) -> dict[str, str | None]:
    if vendor is None:
        return dict.fromkeys(_FALLBACKS)
    return {"x": vendor.x, "y": vendor.y, "z": vendor.z, "feature": vendor.feature, "cell": vendor.cell}


def _present(names: Sequence[str], role: str, wanted: str) -> str:
    if wanted not in names:
        raise missing_column(names, wanted, f"name another with {_OPTIONS[role]}")
    return wanted


def _required(names: Sequence[str], role: str, wanted: str | None, vendors: str | None) -> str:
    if wanted is not None:
        return _present(names, role, wanted)
    found = _usual(names, role, vendors)
    if found is None:
        what = "the features" if role == "feature" else f"the {role} coordinate"
        usual = _FALLBACKS[role][0]
        remedy = f"name the column of {what} with {_OPTIONS[role]}"
        if role == "feature":
            remedy += ", or index the points without one with feature_order=False (--no-feature-order)"
        raise missing_column(names, usual, remedy)
    return found


def _recognised_features(names: Sequence[str], vendors: str | None, *, needed: bool) -> tuple[str, ...]:
    found = _required(names, "feature", None, vendors) if needed else _usual(names, "feature", vendors)
    return () if found is None else (found,)


def _usual(names: Sequence[str], role: str, vendors: str | None) -> str | None:
    if vendors is not None and vendors in names:
        return vendors
    exact = next((name for name in _FALLBACKS[role] if name in names), None)
    by_lower = {name.lower(): name for name in names}
    return exact or next((by_lower[name.lower()] for name in _FALLBACKS[role] if name.lower() in by_lower), None)


def _check_roles(columns: Columns) -> None:
    used = (*columns.coordinates, *columns.features)
    twice = next((name for name in used if used.count(name) > 1), None)
    if twice is not None:
        raise ColumnError(
            f"column {twice!r} is given two roles among x, y, z and the features ({', '.join(used)}); name each once"
        )
