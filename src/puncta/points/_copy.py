"""What a stored copy of the points can do, whatever its layout; and several copies read as one plan."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import pyarrow as pa

from puncta.points._plan import Ranges

__all__ = ["Copy", "Cost", "Piece", "read_pieces"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a read takes, known without reading a point."""

    requests: int
    """Reads or requests, after those that lie near each other are merged."""

    bytes: int
    """Compressed bytes that are needed."""


class Copy(Protocol):
    """One copy of the points of a level: its tile order, or a feature-major copy."""

    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the rows, with the pandas metadata."""
        ...

    def n_bytes(self) -> int:
        """Return the bytes of its files; `UnsupportedError` where the place cannot list them."""
        ...

    def read(self, ranges: Ranges, columns: Sequence[str]) -> pa.Table:
        """Return the rows of some ranges, in their order, with some columns.

        A column whose categories the index keeps may come as a dictionary of them; `cast` makes the schema's type of
        it.
        """
        ...

    def read_with(self, pieces: Sequence[tuple[Self, Ranges]], columns: Sequence[str]) -> list[pa.Table]:
        """Return what `read` returns of several copies of this kind, read as one plan."""
        ...

    def cost(self, ranges: Ranges, columns: Sequence[str]) -> Cost:
        """Return what `read` takes, without reading a point."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Rows of one copy to read."""

    copy: Copy
    """The copy."""

    ranges: Ranges
    """Its rows."""

    @property
    def n_rows(self) -> int:
        """Rows wanted."""
        return int((self.ranges[:, 1] - self.ranges[:, 0]).sum())


def read_pieces(pieces: Sequence[Piece], columns: Sequence[str]) -> pa.Table:
    """Return the rows of some pieces of one element, at least one, read as one plan."""
    return pa.concat_tables(pieces[0].copy.read_with([(piece.copy, piece.ranges) for piece in pieces], columns))
