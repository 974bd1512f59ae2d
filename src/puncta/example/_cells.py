"""Cells and the ground between them: sites on a shaken lattice, their territories and the polygons of the cells.

A territory is a cell of the power diagram of the sites, so that no two overlap; a cell's polygon stays inside its
site's territory. Everything is star-shaped around its site, and therefore one array of radii.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from puncta.example._anatomy import CELL_TYPES, REGIONS, mixture
from puncta.example._section import Section

__all__ = ["SITE_AREA", "VERTICES", "Cells", "Sites", "grow_cells"]

VERTICES = 24
"""Vertices of every polygon."""

_PITCH = 24.0  # micrometres between neighbouring sites
_ROW = _PITCH * np.sqrt(0.75)
_REACH = 0.8 * _PITCH  # no territory reaches further than this from its site
_PAD = 2  # rows of sites around the frame, so that every site on tissue has all its neighbours

SITE_AREA = float(_PITCH * _ROW)
"""Mean area of a territory, in square micrometres."""

# The two rings of neighbours on a hexagonal lattice, in axial coordinates. A site of the third ring is at least 2.64
# pitches off before bends and shakes, and two territories together reach 1.6.
_NEIGHBOURS = [
    (q, r)
    for q in range(-2, 3)
    for r in range(-2, 3)
    if 0 < max(abs(q), abs(r), abs(q + r)) <= 2  # noqa: PLR2004
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """The cells of a tissue; row i of every array is the cell with cell_id i."""

    site: NDArray[np.int64]
    """Row of `Sites` that each cell grows on, shape (n,), int64."""
    kind: NDArray[np.int64]
    """Position of the cell's type in `CELL_TYPES`, shape (n,), int64."""
    polygons: NDArray[np.float64]
    """Vertices around each cell, the first not repeated, shape (n, VERTICES, 2), float64, micrometres."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sites:
    """All sites on the tissue, whether a cell grows there or not."""

    centre: NDArray[np.float64]
    """x and y of each site, shape (n, 2), float64, micrometres."""
    territory: NDArray[np.float64]
    """Vertices around each site's territory, shape (n, VERTICES, 2), float64, micrometres."""


def grow_cells(section: Section, number: int, rng: np.random.Generator) -> tuple[Sites, Cells]:
    """Return the sites of a section and the cells that grow on some of them.

    Args:
        section: Where there is tissue.
        number: Cells to grow; fewer grow where the tissue has fewer sites.
        rng: Source of all chance.

    Returns:
        Sites and cells. The polygons of the cells overlap neither each other nor another site's territory.

    """
    lattice = _shaken_lattice(section, rng)
    on_tissue = _has_room(section, lattice)
    centre = lattice[on_tissue]
    region = section.region_of(*_fray(centre, rng).T)
    kind = _kinds_of(region, rng)
    chosen = _choose(region, number, rng)
    size, stretch, direction = _looks(section, centre, kind, rng)
    weight = np.full(lattice.shape[:2], 25.0)
    weight[on_tissue] = np.where(chosen, size**2, 25.0)
    first = rng.uniform(0, 2 * np.pi, len(centre))
    angles = first[:, None] + np.arange(VERTICES) * (2 * np.pi / VERTICES)
    hard, soft = _radii(lattice, weight, on_tissue, angles)
    rim = _rim(soft[chosen], angles[chosen], size[chosen], stretch[chosen], direction[chosen])
    rim *= _wobble(angles[chosen], rng)
    sites = Sites(centre=centre, territory=_star(centre, angles, hard))
    polygons = _star(centre[chosen], angles[chosen], np.minimum(rim, 0.97 * hard[chosen]))
    return sites, Cells(site=np.flatnonzero(chosen), kind=kind[chosen], polygons=polygons)


def _shaken_lattice(section: Section, rng: np.random.Generator) -> NDArray[np.float64]:
    """Positions over the whole frame, shape (rows, columns, 2): a hexagonal lattice, bent and shaken."""
    columns = int(np.ceil(section.extent[0] / _PITCH)) + 2 * _PAD + 1
    rows = int(np.ceil(section.extent[1] / _ROW)) + 2 * _PAD
    row, column = np.mgrid[0:rows, 0:columns]
    shake = rng.uniform(-0.25, 0.25, (rows, columns, 2)) * _PITCH
    x = (column - _PAD + (row % 2) / 2) * _PITCH
    y = (row - _PAD) * _ROW
    # Without the bends the eye finds the rows of the lattice. They are long, so that neighbours stay neighbours.
    phase = rng.uniform(0, 2 * np.pi, 4)
    bent_x = 16 * np.sin(y / 71 + phase[0]) + 9 * np.sin((x + y) / 53 + phase[1])
    bent_y = 16 * np.sin(x / 83 + phase[2]) + 9 * np.sin((x - y) / 59 + phase[3])
    return np.asarray(np.stack([x + bent_x, y + bent_y], axis=-1) + shake, dtype=np.float64)


def _has_room(section: Section, lattice: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether all that a site's territory can reach is tissue, shape (rows, columns)."""
    room = section.contains(lattice[..., 0], lattice[..., 1])
    for angle in np.arange(12) * (np.pi / 6):
        # A little beyond the reach: between two of the twelve directions the rim may bulge inwards.
        at = lattice + 1.05 * _REACH * np.array([np.cos(angle), np.sin(angle)])
        room &= section.contains(at[..., 0], at[..., 1])
    room[:_PAD] = room[-_PAD:] = False
    room[:, :_PAD] = room[:, -_PAD:] = False
    return room


def _fray(centre: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    # Layers blend into each other over about the width of a cell.
    return centre + rng.normal(0, 9.0, centre.shape)


def _kinds_of(region: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    ladder = np.cumsum(mixture(), axis=1)[region]
    return np.asarray(np.minimum((rng.random(len(region))[:, None] > ladder).sum(axis=1), len(CELL_TYPES) - 1))


def _choose(region: NDArray[np.int64], number: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Pick exactly this many sites (or all), each region in proportion to how densely cells lie in it."""
    share = np.array([share for share, _ in REGIONS.values()])[region]
    order = np.argsort(rng.random(len(region)) / share, kind="stable")
    chosen = np.zeros(len(region), dtype=np.bool_)
    chosen[order[:number]] = True
    return chosen


def _looks(
    section: Section, centre: NDArray[np.float64], kind: NDArray[np.int64], rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Radius in micrometres, long axis by short axis, and direction of the long axis of each cell; each shape (n,)."""
    types = CELL_TYPES.values()
    size = np.array([each.radius for each in types])[kind] * rng.lognormal(0, 0.10, len(kind))
    stretch = np.array([each.elongation for each in types])[kind] * rng.lognormal(0, 0.12, len(kind))
    across = section.across(*centre.T) + rng.normal(0, 0.22, len(kind))
    lies = np.array([each.lies for each in types])[kind]
    chance = rng.uniform(0, np.pi, len(kind))
    direction = np.select([lies == "across", lies == "along"], [across, across + np.pi / 2], chance)
    return size, stretch, direction


def _radii(
    lattice: NDArray[np.float64],
    weight: NDArray[np.float64],
    on_tissue: NDArray[np.bool_],
    angles: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Way from each site to the rim of its territory, exact and with rounded corners, both shape (n, VERTICES).

    In direction u the bisector with a neighbour at offset v lies (v.v + w - w') / (2 u.v) away; the nearest counts.
    """
    row, column = np.nonzero(on_tissue)
    here, cos, sin = lattice[row, column], np.cos(angles), np.sin(angles)
    nearest = np.full(angles.shape, 1 / _REACH)
    rounded = nearest**8
    for q, r in _NEIGHBOURS:
        there = row + r, column + q + (row + r) // 2 - row // 2
        offset = lattice[there] - here
        square = (offset**2).sum(axis=1)
        # Limited alike seen from both sides: two big cells that lie very close still share one border.
        span = square + np.clip(weight[row, column] - weight[there], -0.6 * square, 0.6 * square)
        # The inverse of the way: zero or negative where the ray leads away from the neighbour.
        inverse = np.maximum((cos * offset[:, :1] + sin * offset[:, 1:]) * (2 / span)[:, None], 0)
        np.maximum(nearest, inverse, out=nearest)
        rounded += (inverse**2) ** 4
    return 1 / nearest, rounded**-0.125


def _rim(
    room: NDArray[np.float64],
    angles: NDArray[np.float64],
    size: NDArray[np.float64],
    stretch: NDArray[np.float64],
    direction: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Radius of each cell, shape (n, VERTICES): an ellipse, pressed flat where the neighbours leave it no room."""
    turned = angles - direction[:, None]
    long, short = size * np.sqrt(stretch), size / np.sqrt(stretch)
    inverse = np.hypot(np.cos(turned) / long[:, None], np.sin(turned) / short[:, None])
    return np.asarray((inverse**6 + (0.93 * room) ** -6) ** (-1 / 6), dtype=np.float64)


def _wobble(angles: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    factor = np.ones_like(angles)
    for number, amplitude in ((2, 0.05), (3, 0.05), (5, 0.025)):
        phase = rng.uniform(0, 2 * np.pi, (len(angles), 1))
        factor += amplitude * np.sin(number * angles + phase)
    return factor


def _star(centre: NDArray[np.float64], angles: NDArray[np.float64], radii: NDArray[np.float64]) -> NDArray[np.float64]:
    rays = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    return np.asarray(centre[:, None] + radii[..., None] * rays, dtype=np.float64)
