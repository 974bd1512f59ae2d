"""The gene panel: names, how abundant each gene is, and which cell types express it."""

import numpy as np
from numpy.typing import NDArray

from puncta.example._anatomy import CELL_TYPES, MARKERS

__all__ = ["panel", "profiles", "unused_gene"]

_OWN, _FOREIGN = 14.0, 0.04  # how far a marker is over- and under-expressed in the types it marks, and in the others


def panel(genes: int) -> list[str]:
    """Return the names of the genes, markers first; a gene's code is its position."""
    return [*MARKERS[:genes], *(f"Gene{number:03d}" for number in range(len(MARKERS) + 1, genes + 1))]


def unused_gene(genes: int) -> int:
    """Return the code of the gene that was on the panel and never seen."""
    return genes // 2


def profiles(genes: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Share of each gene among the molecules of each cell type.

    Args:
        genes: Size of the panel.
        rng: Source of all chance.

    Returns:
        Shape (types + 1, genes), float64; rows add up to one. The last row is the mean of the others, for molecules
        outside any cell.

    """
    fold = rng.lognormal(0, 0.35, (len(CELL_TYPES), genes))
    fold[:, : len(MARKERS)] *= _FOREIGN
    code = {name: position for position, name in enumerate(panel(genes))}
    for row, kind in enumerate(CELL_TYPES.values()):
        own = [code[name] for name in kind.markers if name in code]
        fold[row, own] *= _OWN / _FOREIGN
    shares = fold * _abundance(genes, rng)
    shares[:, unused_gene(genes)] = 0
    shares /= shares.sum(axis=1, keepdims=True)
    return np.concatenate([shares, shares.mean(axis=0, keepdims=True)])


def _abundance(genes: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Abundance of each gene by the law of Zipf and Mandelbrot, shape (genes,): few genes hold most molecules."""
    chance = rng.random(genes)
    # Markers were chosen for the panel because they are seen well: none of them is among the rarest.
    chance[: len(MARKERS)] *= 0.6
    rank = np.argsort(np.argsort(chance, kind="stable"), kind="stable")
    return np.asarray((rank + 1 + genes / 18) ** -3.0, dtype=np.float64)
