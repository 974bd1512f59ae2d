"""Molecules: how many each patch of the tissue gives off, where they lie, and which genes they are of.

A patch is the quadrilateral between two consecutive rays of a site. It belongs to a cell (from the centre to the cell's
rim) or to the ground (from the cell's rim, or the centre where no cell grows, to the rim of the territory).
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from puncta.example._anatomy import CELL_TYPES
from puncta.example._cells import VERTICES, Cells, Sites
from puncta.example._genes import panel, profiles
from puncta.example._section import Section, fields_of

__all__ = ["BACKGROUND", "scatter_molecules"]

BACKGROUND = 0.12
"""Share of the molecules that lie outside any cell."""

_EXCESS = 3.0  # how much too densely the hotspot was read out
_BEST_QV = 40.0
_PLANE = np.array([0.6, -0.4]) / 1000  # how far the section tilts, in micrometres of z per micrometre


@dataclass(frozen=True, slots=True, kw_only=True)
class _Patches:
    """Quadrilaterals that give off molecules, and how many each."""

    inner: NDArray[np.float64]
    """Inner rim, shape (n, VERTICES, 2), micrometres; patch (i, j) lies between rays j and j + 1."""
    outer: NDArray[np.float64]
    """Outer rim, shape (n, VERTICES, 2), micrometres."""
    hollow: NDArray[np.float64]
    """Inner by outer radius of each patch, shape (n, VERTICES)."""
    weight: NDArray[np.float64]
    """Expected molecules of each patch, up to a factor, shape (n, VERTICES)."""


def scatter_molecules(
    sites: Sites, cells: Cells, *, section: Section, points: int, genes: int, rng: np.random.Generator
) -> pa.Table:
    """Return the table of molecules, in the order in which a microscope that goes from field to field reads them.

    Args:
        sites: All sites on the tissue.
        cells: The cells that grow on some of them.
        section: Where the hotspot is.
        points: Rows of the table.
        genes: Size of the panel.
        rng: Source of all chance.

    Returns:
        Columns x, y, z (float32, micrometres), gene (dictionary), cell_id (int32, -1 outside any cell), qv (float32).
        Memory is about 200 bytes per molecule at the peak.

    """
    patches = _patches(sites, cells, section, rng)
    patch = _draw(patches.weight.ravel(), points, rng)
    x, y = _positions(patches, patch, rng)
    order = _order_of_readout(x, y, rng)
    x, y, patch = x[order], y[order], patch[order]
    cell_id, row = _owners(patch, cells)
    gene = _draw_genes(profiles(genes, rng), row, rng)
    columns = {
        "x": pa.array(x.astype(np.float32)),
        "y": pa.array(y.astype(np.float32)),
        "z": pa.array(_depths(x, y, rng)),
        "gene": pa.DictionaryArray.from_arrays(pa.array(gene), pa.array(panel(genes), pa.string())),
        "cell_id": pa.array(cell_id),
        "qv": pa.array(_qualities(cell_id, rng)),
    }
    return pa.table(columns)


def _patches(sites: Sites, cells: Cells, section: Section, rng: np.random.Generator) -> _Patches:
    """Patches of the cells, in their order, followed by those of the ground, in the order of the sites."""
    richness = np.array([each.richness for each in CELL_TYPES.values()])[cells.kind]
    yields = richness * rng.lognormal(0, 0.3, len(richness))
    centre = np.broadcast_to(sites.centre[:, None], sites.territory.shape)
    middle, hole = centre[cells.site], centre.copy()
    hole[cells.site] = cells.polygons
    area, ground = _fan(cells.polygons, middle), _fan(sites.territory, centre) - _fan(hole, centre)
    hollow = np.sqrt(_fan(hole, centre) / _fan(sites.territory, centre))
    inside = area * (yields / area.sum(axis=1))[:, None]
    outer = np.concatenate([cells.polygons, sites.territory])
    excess = _excess(outer, section)
    inside *= (1 - BACKGROUND) / inside.sum()
    ground *= BACKGROUND / ground.sum()
    return _Patches(
        inner=np.concatenate([middle, hole]),
        outer=outer,
        hollow=np.concatenate([np.zeros_like(inside), hollow]),
        weight=np.concatenate([inside, ground]) * excess,
    )


def _fan(rim: NDArray[np.float64], centre: NDArray[np.float64]) -> NDArray[np.float64]:
    """Area of the triangle between the centre and each edge of the rim, shape (n, VERTICES), square micrometres."""
    here, there = rim - centre, np.roll(rim, -1, axis=1) - centre
    return np.asarray((here[..., 0] * there[..., 1] - here[..., 1] * there[..., 0]) / 2, dtype=np.float64)


def _excess(rim: NDArray[np.float64], section: Section) -> NDArray[np.float64]:
    column, row = fields_of(rim[..., 0], rim[..., 1])
    hot = (column == section.hotspot[0]) & (row == section.hotspot[1])
    return np.where(hot, _EXCESS, 1.0)


def _draw(weight: NDArray[np.float64], number: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw positions with these weights, with replacement; the result is sorted."""
    # Normalised sums of exponentials are sorted uniform numbers, without the sort.
    steps = np.cumsum(rng.standard_exponential(number + 1))
    ladder = np.cumsum(weight)
    drawn = np.searchsorted(ladder, steps[:-1] * (ladder[-1] / steps[-1]), side="right")
    return np.asarray(np.minimum(drawn, len(weight) - 1), dtype=np.int64)


def _positions(
    patches: _Patches, patch: NDArray[np.int64], rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Evenly spread positions, x and y in micrometres, each shape (n,), one in each of the given patches."""
    side, chance = rng.random(len(patch)), rng.random(len(patch))
    hollow = patches.hollow.ravel()[patch]
    # Area grows with the square of the radius: the square of a position is uniform, from the hollow's to one.
    outward = (np.sqrt(hollow**2 + chance * (1 - hollow**2)) - hollow) / (1 - hollow)
    ahead = np.where(patch % VERTICES == VERTICES - 1, patch - (VERTICES - 1), patch + 1)
    found = []
    for axis in range(2):
        inner, outer = patches.inner[..., axis].ravel(), patches.outer[..., axis].ravel()
        near = inner[patch] + side * (inner[ahead] - inner[patch])
        far = outer[patch] + side * (outer[ahead] - outer[patch])
        found.append(near + outward * (far - near))
    # Rounded as they are stored, so that a stored molecule lies in the field that it is filed under.
    x, y = (axis.astype(np.float32).astype(np.float64) for axis in found)
    return x, y


def _order_of_readout(x: NDArray[np.float64], y: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Order by field of view, to and fro, and by chance within a field."""
    column, row = fields_of(x, y)
    columns = int(column.max()) + 1
    turned = np.where(row % 2 == 0, column, columns - 1 - column)
    return np.argsort(row * columns + turned + rng.random(len(x)), kind="stable")


def _owners(patch: NDArray[np.int64], cells: Cells) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """cell_id of each molecule, and the row of the expression profiles that its gene is drawn from."""
    owner = patch // VERTICES
    in_cell = owner < len(cells.kind)
    cell_id = np.where(in_cell, owner, -1)
    profile = np.where(in_cell, cells.kind[cell_id], len(CELL_TYPES))
    return cell_id.astype(np.int32), profile


def _draw_genes(shares: NDArray[np.float64], row: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int16]:
    """Draw a gene for each molecule from its row of the profiles, shape (n,), int16."""
    ladder = np.cumsum(shares, axis=1)
    # Exactly one at the end of each row, also where its last gene has no share, so that a draw stays in its row.
    ladder /= ladder[:, -1:]
    rungs = (ladder + np.arange(len(shares))[:, None]).ravel()
    # Kept off one: `row + chance` must not round up to the next row.
    chance = rng.random(len(row)) * (1 - 1e-9)
    found = np.searchsorted(rungs, row + chance, side="right")
    return np.asarray(found - row * shares.shape[1], dtype=np.int16)


def _depths(x: NDArray[np.float64], y: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float32]:
    # Two uniform numbers: dense in the middle of the section, thin at its faces, and never outside them.
    within = rng.random(len(x)) + rng.random(len(x))
    tilt = _PLANE[0] * x + _PLANE[1] * y
    return np.asarray(4.0 + tilt + 5.0 * within, dtype=np.float32)


def _qualities(cell_id: NDArray[np.int32], rng: np.random.Generator) -> NDArray[np.float32]:
    """Quality of each call on the scale of Phred, capped at 40; molecules outside cells are called less surely."""
    spread = np.where(cell_id < 0, 8.0, 6.0)
    doubt = rng.standard_gamma(2.0, len(cell_id)) * spread
    return np.asarray(np.clip(46.0 - doubt, 0.0, _BEST_QV), dtype=np.float32)
