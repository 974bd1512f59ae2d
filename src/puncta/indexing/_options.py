"""How an index is built: what was asked for, and how long each stage took."""

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from puncta.errors import QueryError
from puncta.indexing._choose_grid import GridWishes
from puncta.indexing._metadata import FeatureLevels, Layout
from puncta.indexing._stage import Selection

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}

# Least memory that a build can promise: the libraries themselves and a few batches.
_MIN_MEMORY = 400 * 10**6

TILES_PER_PART = 256
"""Tiles of a part file (P6): a reader pays for the footers of the parts it touches, some hundred bytes a tile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """How an index is built; the defaults are those of the command line."""

    wishes: GridWishes
    """What was asked of the grid."""

    selection: Selection
    """Which rows are taken."""

    coordinate_type: pa.DataType | None
    """Type of the stored coordinates; None keeps the source's."""

    max_levels: int | None
    """Levels at the most, level 0 included; None goes down to a single tile."""

    feature_order: bool
    """Write feature-major copies."""

    feature_levels: FeatureLevels
    """Which levels get them, and of which features."""

    codes_column: bool
    """Write the codes of the feature columns as columns of their own."""

    seed: int
    """Seed of the sampling."""

    memory: int
    """Bytes that the build should stay below."""

    workers: int
    """Threads."""

    layouts: tuple[Layout, ...] = ("parquet",)
    """How the levels are stored; Parquet first where both are written."""


@dataclass(slots=True)
class Clock:
    """Wall seconds of each stage."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time one stage."""
        start = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


def bytes_of(memory: int | str) -> int:
    match = re.fullmatch(r"\s*([0-9.]+)\s*([kmgt]i?)?b?\s*", str(memory).lower())
    if match is None:
        raise QueryError(f"the memory {memory!r} is no number of bytes; write it like 1GB or 512MB")
    value = int(float(match[1]) * _UNITS[match[2] or ""])
    if value < _MIN_MEMORY:
        raise QueryError(f"the memory {memory!r} is too little to build with; give at least 400MB")
    return value


def processors() -> int:
    """Return how many processors this process may use; macOS does not say which, so all count there."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
