"""The lie of the land: the outline of the section, its holes, its regions and the field that was read out too densely.

Pure geometry. Shapes are drawn in units of the section's width, around its middle, with y pointing down as in an
image; `Section` carries them to micrometres.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from puncta.example._anatomy import REGIONS

__all__ = ["FIELD", "Blob", "Section", "cut_section", "fields_of"]

FIELD = 200.0
"""Side of one field of view, in micrometres; fields tile the plane from the origin."""

_CODES = {name: code for code, name in enumerate(REGIONS)}
# Lower edge of each band, as depth below the surface in shares of the way to the middle, where the cortex is thickest.
_BANDS = {"L1": 0.075, "L2/3": 0.17, "L4": 0.23, "L5": 0.325, "L6": 0.42, "White matter": 0.485}
# Micrometres from a rim that hold one row of cells: a site needs about 20 of them to keep clear of it.
_ONE_ROW = 44.0
_MARGIN = 60.0  # micrometres of empty slide around the section
_HEIGHT = 0.74  # of the width
_TISSUE_SHARE = 0.56  # of the square of the width, after the holes and the frayed rim


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """An ellipse whose radius waves: everything round in the section is one."""

    middle: tuple[float, float]
    """x and y of the middle, in widths of the section."""
    radii: tuple[float, float]
    """Semi-axes before the waves, in widths of the section."""
    turn: float = 0.0
    """Angle of the first axis from x, in radians."""
    waves: tuple[tuple[int, float, float], ...] = ()
    """Number per turn, amplitude and phase of each wave on the radius."""

    def level(self, x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
        """Distance from the middle as a share of the radius in that direction: below 1 is inside. Any shape."""
        along, aside = self._axes(x, y)
        angle = np.arctan2(aside, along)
        rim = np.ones_like(angle)
        for number, amplitude, phase in self.waves:
            rim += amplitude * np.cos(number * angle + phase)
        return np.asarray(np.hypot(along, aside) / rim, dtype=np.float64)

    def angle(self, x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
        """Direction from the middle in the frame of the axes, in radians; -pi/2 is up when there is no turn."""
        along, aside = self._axes(x, y)
        return np.asarray(np.arctan2(aside, along), dtype=np.float64)

    def _axes(self, x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        dx, dy = x - self.middle[0], y - self.middle[1]
        cos, sin = np.cos(self.turn), np.sin(self.turn)
        return (dx * cos + dy * sin) / self.radii[0], (dy * cos - dx * sin) / self.radii[1]


_VENTRICLE, _TEAR, _VESSEL = range(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arc:
    """A band of even thickness along part of the rim of a blob."""

    blob: Blob
    thickness: float
    facing: float
    spread: float

    def contains(self, x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.bool_]:
        aside = np.abs(_wrapped(self.blob.angle(x, y) - self.facing))
        return np.asarray((np.abs(self.blob.level(x, y) - 1) < self.thickness) & (aside < self.spread), dtype=np.bool_)


_CA = _Arc(blob=Blob(middle=(0.03, -0.005), radii=(0.19, 0.098), turn=0.10), thickness=0.12, facing=-1.75, spread=1.75)
_DG = _Arc(blob=Blob(middle=(0.045, 0.012), radii=(0.115, 0.042), turn=0.12), thickness=0.26, facing=np.pi, spread=2.4)
_HIPPOCAMPUS = Blob(middle=_CA.blob.middle, radii=(0.238, 0.123), turn=_CA.blob.turn)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Where there is tissue, and of which kind, in micrometres."""

    width: float
    """Width of the section, in micrometres."""
    outline: Blob
    """Rim of the tissue."""
    holes: tuple[Blob, ...]
    """A ventricle, a tear and a vessel; no cell and no molecule lies inside."""

    @property
    def extent(self) -> tuple[float, float]:
        """Largest x and y that the frame of the section reaches, in micrometres; its smallest are zero."""
        return self.width * 1.1 + 2 * _MARGIN, self.width * _HEIGHT * 1.1 + 2 * _MARGIN

    @property
    def hotspot(self) -> tuple[int, int]:
        """Column and row of the field of view that was read out about three times too densely."""
        column, row = fields_of(*self._micrometres(-0.20, -0.17))
        return int(column), int(row)

    def contains(self, x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Whether each point, in micrometres, lies on tissue. Any shape."""
        px, py = self._units(x, y)
        inside = self.outline.level(px, py) < 1
        for hole in self.holes:
            inside &= hole.level(px, py) > 1
        return np.asarray(inside, dtype=np.bool_)

    def region_of(self, x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.int64]:
        """Code of the region at each point of the tissue, in micrometres: a position in `REGIONS`. Shape (n,)."""
        px, py = self._units(x, y)
        depth = 1 - self.outline.level(px, py)
        from_top = np.abs(_wrapped(self.outline.angle(px, py) + np.pi / 2))
        # The cortex covers the top and thins out towards the bottom, where it is about a quarter as deep.
        thickness = 0.24 + 0.76 / (1 + np.exp((from_top - 1.95) / 0.22))
        code = np.full(px.shape, _CODES["Thalamus"])
        _paint(code, "Neuropil", _HIPPOCAMPUS.level(px, py) < 1)
        _paint(code, "CA", _CA.contains(px, py))
        _paint(code, "DG", _DG.contains(px, py))
        for name, edge in reversed(_BANDS.items()):
            _paint(code, name, depth < edge * thickness)
        _paint(code, "Pia", depth * _HEIGHT / 2 * self.width < _ONE_ROW)
        _paint(code, "Vessel wall", self._beside(_VESSEL, px, py))
        _paint(code, "Ependyma", self._beside(_VENTRICLE, px, py))
        return code

    def across(self, x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
        """Direction across the layers at each point, in radians. Shape (n,)."""
        px, py = self._units(x, y)
        return np.asarray(np.arctan2(py / self.outline.radii[1] ** 2, px / self.outline.radii[0] ** 2))

    def _beside(self, hole: int, px: NDArray[np.float64], py: NDArray[np.float64]) -> NDArray[np.bool_]:
        blob = self.holes[hole]
        return np.asarray(blob.level(px, py) < 1 + _ONE_ROW / (min(blob.radii) * self.width), dtype=np.bool_)

    def _units(self, x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        mx, my = self.extent[0] / 2, self.extent[1] / 2
        return (x - mx) / self.width, (y - my) / self.width

    def _micrometres(self, px: float, py: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        x, y = px * self.width + self.extent[0] / 2, py * self.width + self.extent[1] / 2
        return np.asarray(x), np.asarray(y)


def cut_section(area: float, rng: np.random.Generator) -> Section:
    """Return a section with about this much tissue, in square micrometres; its waves come from `rng`."""
    return Section(
        width=float(np.sqrt(area / _TISSUE_SHARE)),
        outline=Blob(middle=(0.0, 0.0), radii=(0.5, _HEIGHT / 2), waves=_waves(rng, (2, 3, 5, 8, 13), 0.028)),
        holes=(
            Blob(middle=(0.01, 0.165), radii=(0.085, 0.026), turn=-0.15, waves=_waves(rng, (2, 3, 5), 0.09)),
            Blob(middle=(-0.285, 0.02), radii=(0.075, 0.014), turn=1.05, waves=_waves(rng, (3, 4, 7), 0.13)),
            Blob(middle=(0.29, -0.125), radii=(0.024, 0.020), turn=0.4, waves=_waves(rng, (2, 3), 0.06)),
        ),
    )


def fields_of(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Column and row of the field of view that sees each point, in micrometres. Any shape."""
    return np.floor(x / FIELD).astype(np.int64), np.floor(y / FIELD).astype(np.int64)


def _waves(
    rng: np.random.Generator, numbers: tuple[int, ...], amplitude: float
) -> tuple[tuple[int, float, float], ...]:
    # Short waves are flatter than long ones, as in anything that a knife has cut.
    heights = amplitude * rng.uniform(0.5, 1.0, len(numbers)) * np.sqrt(numbers[0] / np.asarray(numbers))
    phases = rng.uniform(0, 2 * np.pi, len(numbers))
    return tuple(zip(numbers, heights.tolist(), phases.tolist(), strict=True))


def _wrapped(angle: NDArray[np.float64]) -> NDArray[np.float64]:
    """Carry angles to the half-open range from -pi to pi."""
    return np.asarray((angle + np.pi) % (2 * np.pi) - np.pi, dtype=np.float64)


def _paint(code: NDArray[np.int64], region: str, where: NDArray[np.bool_]) -> None:
    code[where] = _CODES[region]
