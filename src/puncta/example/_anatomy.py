"""What lives where: regions, cell types and the genes that mark them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["CELL_TYPES", "MARKERS", "REGIONS", "CellType", "mixture"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellType:
    """How the cells of one type look, and which genes give them away."""

    radius: float
    """Typical radius of a cell that has room, in micrometres."""
    elongation: float
    """Long axis divided by short axis."""
    lies: str
    """Direction of the long axis: `across` the layers, `along` them, or `any`."""
    richness: float
    """Molecules per cell, relative to the other types."""
    markers: tuple[str, ...]
    """Genes that this type expresses far above the others; a gene may mark several types."""


_EXCITATORY = ("Slc17a7", "Neurod6")
_INHIBITORY = ("Gad1", "Gad2")

CELL_TYPES: dict[str, CellType] = {
    "L2/3 IT": CellType(
        radius=9.5, elongation=1.3, lies="across", richness=1.2, markers=(*_EXCITATORY, "Cux2", "Otof", "Calb1")
    ),
    "L4 IT": CellType(
        radius=8.5, elongation=1.15, lies="across", richness=1.1, markers=(*_EXCITATORY, "Cux2", "Rorb", "Rspo1")
    ),
    "L5 ET": CellType(
        radius=12.0, elongation=1.55, lies="across", richness=1.7, markers=(*_EXCITATORY, "Fezf2", "Bcl11b", "Parm1")
    ),
    "L6 CT": CellType(
        radius=9.0, elongation=1.3, lies="across", richness=1.1, markers=(*_EXCITATORY, "Foxp2", "Syt6", "Rprm")
    ),
    "CA pyramidal": CellType(
        radius=10.5, elongation=1.4, lies="across", richness=1.5, markers=(*_EXCITATORY, "Fibcd1", "Wfs1", "Spink8")
    ),
    "DG granule": CellType(
        radius=8.0, elongation=1.1, lies="any", richness=1.0, markers=("Slc17a7", "Prox1", "C1ql2", "Dsp")
    ),
    "Thalamic": CellType(
        radius=10.0, elongation=1.2, lies="any", richness=1.3, markers=("Slc17a6", "Tcf7l2", "Prkcd", "Rora")
    ),
    "Pvalb": CellType(radius=10.5, elongation=1.15, lies="any", richness=1.4, markers=(*_INHIBITORY, "Pvalb", "Kcnc2")),
    "Sst": CellType(radius=9.5, elongation=1.3, lies="any", richness=1.2, markers=(*_INHIBITORY, "Sst", "Crhbp")),
    "Vip": CellType(radius=8.0, elongation=1.6, lies="across", richness=1.0, markers=(*_INHIBITORY, "Vip", "Penk")),
    "Astrocyte": CellType(
        radius=9.0, elongation=1.2, lies="any", richness=0.8, markers=("Aqp4", "Gja1", "Gfap", "Aldoc", "Slc1a3")
    ),
    "Oligodendrocyte": CellType(
        radius=7.5, elongation=2.0, lies="along", richness=0.9, markers=("Plp1", "Mbp", "Mog", "Opalin", "Sox10")
    ),
    "OPC": CellType(
        radius=7.5, elongation=1.4, lies="any", richness=0.7, markers=("Pdgfra", "Cspg4", "Olig1", "Sox10")
    ),
    "Microglia": CellType(
        radius=6.5, elongation=1.6, lies="any", richness=0.5, markers=("Cx3cr1", "Tmem119", "P2ry12", "Trem2")
    ),
    "Endothelial": CellType(
        radius=6.5, elongation=2.4, lies="any", richness=0.6, markers=("Cldn5", "Pecam1", "Flt1", "Ly6a")
    ),
    "VLMC": CellType(radius=7.0, elongation=2.2, lies="along", richness=0.8, markers=("Dcn", "Igf2", "Col1a1", "Lum")),
    "Ependymal": CellType(
        radius=7.5, elongation=1.2, lies="any", richness=0.9, markers=("Foxj1", "Tmem212", "Ccdc153", "Enkur")
    ),
}
"""Cell types by name; their order is that of the categories of `cell_type`."""

MARKERS: tuple[str, ...] = tuple(dict.fromkeys(gene for kind in CELL_TYPES.values() for gene in kind.markers))
"""Every marker gene once, in the order of the types."""

_GLIA = {"Astrocyte": 12.0, "Oligodendrocyte": 5.0, "OPC": 3.0, "Microglia": 5.0, "Endothelial": 7.0}
_INTERNEURONS = {"Pvalb": 6.0, "Sst": 4.0, "Vip": 3.0}

# Region -> (share of sites that hold a cell, relative numbers of the types).
REGIONS: dict[str, tuple[float, dict[str, float]]] = {
    "Pia": (0.90, {"VLMC": 75.0, "Astrocyte": 15.0, "Endothelial": 10.0}),
    "L1": (0.32, _GLIA | {"Astrocyte": 30.0, "Vip": 8.0, "Sst": 3.0}),
    "L2/3": (0.84, _GLIA | _INTERNEURONS | {"L2/3 IT": 62.0, "Vip": 6.0}),
    "L4": (0.95, _GLIA | _INTERNEURONS | {"L4 IT": 72.0}),
    "L5": (0.62, _GLIA | _INTERNEURONS | {"L5 ET": 48.0, "L6 CT": 4.0, "Sst": 8.0}),
    "L6": (0.80, _GLIA | _INTERNEURONS | {"L6 CT": 60.0, "Oligodendrocyte": 12.0}),
    "White matter": (
        0.85,
        {"Oligodendrocyte": 74.0, "Astrocyte": 11.0, "OPC": 7.0, "Microglia": 5.0, "Endothelial": 3.0},
    ),
    "CA": (1.00, {"CA pyramidal": 90.0, "Astrocyte": 4.0, "Pvalb": 4.0, "Oligodendrocyte": 2.0}),
    "DG": (1.00, {"DG granule": 94.0, "Astrocyte": 4.0, "Sst": 2.0}),
    "Neuropil": (0.36, _GLIA | {"Astrocyte": 26.0, "Sst": 5.0, "Pvalb": 4.0}),
    "Thalamus": (0.66, _GLIA | {"Thalamic": 52.0, "Oligodendrocyte": 22.0, "Sst": 2.0}),
    "Vessel wall": (0.95, {"Endothelial": 70.0, "VLMC": 25.0, "Microglia": 5.0}),
    "Ependyma": (1.00, {"Ependymal": 92.0, "Astrocyte": 8.0}),
}
"""Regions by name; a region's code is its position here."""


def mixture() -> NDArray[np.float64]:
    """Share of each cell type in each region, shape (regions, types); every row adds up to one."""
    shares = np.zeros((len(REGIONS), len(CELL_TYPES)))
    for row, (_, numbers) in enumerate(REGIONS.values()):
        shares[row] = [numbers.get(name, 0.0) for name in CELL_TYPES]
    totals = shares.sum(axis=1, keepdims=True)
    return np.asarray(shares / totals, dtype=np.float64)
