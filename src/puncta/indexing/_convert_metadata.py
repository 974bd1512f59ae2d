"""The metadata of an index in another layout. Pure."""

import copy
from collections.abc import Mapping
from typing import Any

from puncta.indexing._metadata import Layout, copy_home
from puncta.spec.points import asset_of


def converted_attributes(attrs: Mapping[str, Any], layout: Layout, *, created_with: str) -> dict[str, Any]:
    """Return the attributes of an element as they are in another layout; everything else in them stays.

    Args:
        attrs: Attributes of the indexed element.
        layout: The layout.
        created_with: What wrote it.

    """
    converted: dict[str, Any] = copy.deepcopy(dict(attrs))
    converted["spatial_index"] |= {"layout": [layout], "created_with": created_with}
    for number, level in enumerate(converted["multiscales"]["layout"]):
        level["asset"] = asset_of(number, [layout])
        if "derived_from" in level:
            level["derived_from"] = asset_of(number - 1, [layout])
        index = level["spatial_index"]
        _move_fractions(index.get("sampling", {}), copy_home(number, None, layout))
        for name, further in index.get("by", {}).items():
            _move_fractions(further, copy_home(number, name, layout))
    return converted


def _move_fractions(copy_metadata: dict[str, Any], home: str) -> None:
    """Name the array of fractions that stands at home, where there is one and not a list."""
    if isinstance(copy_metadata.get("P_feature"), Mapping):
        copy_metadata["P_feature"] = {"array": f"{home}/P_feature"}
