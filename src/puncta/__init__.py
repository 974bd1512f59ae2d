"""Tissues measured molecule by molecule, usable at full size.

The few functions that a user needs first are here, and loaded when they are first used: `import puncta` itself loads
nothing but this file and the errors.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from puncta import errors
from puncta.errors import PunctaError

if TYPE_CHECKING:
    from puncta.indexing import index_points
    from puncta.kinds import info, validate
    from puncta.points import open_points

__version__ = "0.1.0.dev0"

__all__ = ["PunctaError", "__version__", "errors", "index_points", "info", "open_points", "validate"]

_DOORS = {
    "index_points": "puncta.indexing",
    "info": "puncta.kinds",
    "open_points": "puncta.points",
    "validate": "puncta.kinds",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401  # whatever the door gives
    if name not in _DOORS:
        raise AttributeError(f"module 'puncta' has no attribute {name!r}")
    return getattr(import_module(_DOORS[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
