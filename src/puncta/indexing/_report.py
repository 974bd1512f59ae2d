"""What indexing reports."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexReport:
    """What was indexed, into what, and how long it took."""

    path: Path | str
    """The indexed element."""

    words: str
    """What the source was recognised as."""

    n_rows: int
    """Points indexed."""

    n_source_rows: int
    """Rows read from the source."""

    dropped: dict[str, int]
    """Rows left out, by reason."""

    n_features: int
    """Values of the primary feature column; 0 without one."""

    levels: int
    """Levels written."""

    tile_size: tuple[float, ...]
    """Tile size of level 0, in the order of the axes."""

    grid_shape: tuple[int, ...]
    """Tiles along each axis at level 0."""

    bytes: int
    """Bytes of the element on disk."""

    source_bytes: int
    """Bytes of the source: on disk, or in memory for a table that is there."""

    seconds: dict[str, float] = field(default_factory=dict)
    """Wall seconds of each stage."""

    fit: str
    """How well the tiles fit the points: RFC case a, b, c or d."""

    fit_text: str
    """The same in words and numbers."""

    notes: tuple[str, ...] = ()
    """What else a user should know."""
