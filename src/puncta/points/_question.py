"""What is asked, how it is answered, and what is said about it, as data. It opens nothing itself.

RFC 3, "Reading"; decisions P24 and P28.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypedDict

from puncta.points._copy import Piece
from puncta.points._grid import Box
from puncta.points._region import Region

type Thinning = Literal["equal", "own"]
"""Several features of a sampled level at one common fraction, or each at its own."""

type Order = Literal["spatial", "feature"]


class Asked(TypedDict, total=False):
    """What a question may say; see `Points.query`."""

    box: Box | None
    polygon: object | None
    coordinate_system: str | None
    features: str | Sequence[str] | None
    feature_key: str | None
    where: str | Sequence[str]
    level: int | None
    budget: int | None
    thinning: Thinning
    columns: Sequence[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked."""

    region: Region
    """Where."""

    features: tuple[str, ...] | None
    """Which features; None for all points."""

    feature_key: str | None
    """Feature column that the features are values of."""

    where: tuple[str, ...]
    """SQL expressions that must hold."""

    level: int | None
    """Level to read; None for level 0, or for what the budget allows."""

    budget: int | None
    """Rows to come back at the most."""

    thinning: Thinning
    """How several features of a sampled level are shown together."""

    columns: tuple[str, ...] | None
    """Columns to come back; None for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a question is answered."""

    level: int
    """Level that answers."""

    order: Order
    """Copy that is read."""

    pieces: tuple[Piece, ...]
    """What is read."""

    tiles: int
    """Tiles that hold rows of the answer."""

    fractions: dict[str, float] | float
    """Fraction of all points that the answer keeps: one, or one a feature where they differ."""

    kept: dict[str, float] | float
    """Share of the rows read that is shown: one, or one a feature; the rest is thinned away."""

    note: str
    """What a reader of the answer should know; empty for nothing."""

    @property
    def rows(self) -> int:
        """Rows read."""
        return sum(piece.n_rows for piece in self.pieces)

    @property
    def is_complete(self) -> bool:
        """Say whether the answer holds every point that was asked for."""
        fractions = self.fractions.values() if isinstance(self.fractions, dict) else [self.fractions]
        return all(fraction >= 1 for fraction in fractions)

    def thinned(self, share: float) -> "Plan":
        """Return a plan that shows only a share of what this one shows, of every feature alike."""
        return replace(self, fractions=_scaled(self.fractions, share), kept=_scaled(self.kept, share))


def _scaled(values: dict[str, float] | float, share: float) -> dict[str, float] | float:
    if isinstance(values, dict):
        return {name: value * share for name, value in values.items()}
    return values * share


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What a question would read, known without reading a point."""

    level: int
    """Level that answers."""

    tiles: int
    """Tiles that are touched."""

    rows: int
    """Rows in the row ranges that are read, before the exact filter."""

    requests: int
    """Reads, or requests to a server: chunks that lie near each other in one file are merged and count once."""

    bytes: int
    """Compressed bytes of the chunks that are needed; merged requests bring some more."""

    fraction: float | dict[str, float]
    """Fraction of all points that the answer keeps."""

    complete: bool
    """Whether the answer holds every point that was asked for."""

    order: Order
    """Copy that is read."""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields by name, as the command line prints them."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """How many points there are."""

    count: int
    """The number, estimated from the fraction where the level is sampled."""

    exact: bool
    """Whether it is exact."""
