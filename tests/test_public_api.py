"""The public surface: what each door exports, and nothing else. A new name needs a line here, in the docs and in the
changelog.
"""

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import puncta

ROOT = Path(__file__).parents[1]

SURFACE = {
    "puncta": [
        "PunctaError",
        "__version__",
        "errors",
        "index_points",
        "info",
        "open_points",
        "validate",
    ],
    "puncta.arrays": [
        "BatchArray",
        "BatchAsyncArray",
        "BoxRequest",
        "RangeRequest",
        "read_batch",
        "read_batch_async",
    ],
    "puncta.cli": ["main"],
    "puncta.indexing": ["ConvertReport", "IndexReport", "convert_points", "index_points"],
    "puncta.kinds": ["Kind", "info", "kind_of", "validate", "validate_report"],
    "puncta.points": [
        "Box",
        "Count",
        "Explanation",
        "Fit",
        "Grid",
        "Level",
        "Points",
        "fit_of",
        "open_points",
    ],
    "puncta.spec": ["Problem", "ProblemKind", "describe"],
    "puncta.errors": [
        "ColumnError",
        "GridError",
        "MetadataError",
        "MissingError",
        "NotIndexedError",
        "OverwriteError",
        "PunctaError",
        "QueryError",
        "RangeError",
        "SourceError",
        "SpaceError",
        "StaleIndexError",
        "StoreError",
        "UnsupportedError",
    ],
    "puncta.example": [
        "Tissue",
        "make_tissue",
    ],
    "puncta.spec.points": [
        "ArrayReference",
        "ByFeature",
        "ConventionEntry",
        "Dropped",
        "ElementIndex",
        "Fractions",
        "Level",
        "LevelIndex",
        "MULTISCALES_CONVENTION",
        "Multiscales",
        "PointsAttrs",
        "RESAMPLING_METHOD",
        "SPATIAL_INDEX_CONVENTION",
        "Sampling",
        "Transform",
        "VERSION",
        "asset_of",
        "points_schema",
        "validate_points_attrs",
    ],
    "puncta.spec.spatialdata": [
        "FORMAT_VERSION",
        "pandas_metadata",
        "points_attrs",
        "root_attrs",
    ],
    "puncta.spec.transformations": [
        "affines",
        "apply_affine",
        "compose_affines",
        "identity_transformation",
        "invert_affine",
        "is_identity",
    ],
    "puncta.store": [
        "Answer",
        "Bucket",
        "FilesStore",
        "LocalFile",
        "LocalFiles",
        "Location",
        "Place",
        "Reads",
        "RemoteFiles",
        "Workspace",
        "add_remote_member",
        "children",
        "consolidated_below",
        "copy_tree",
        "exchange",
        "files_of_zarr",
        "free_bytes",
        "link_tree",
        "locate",
        "open_bucket",
        "open_place",
        "read_attributes",
        "read_remote_group",
        "recover",
        "refresh_consolidated",
        "require_free",
        "require_space",
        "says_disk_full",
        "tree_bytes",
        "upload",
        "write_file",
    ],
}


@pytest.mark.parametrize("door", SURFACE)
def test_a_door_exports_what_is_pinned(door: str) -> None:
    assert sorted(importlib.import_module(door).__all__) == sorted(SURFACE[door])


@pytest.mark.parametrize("door", SURFACE)
def test_every_exported_function_and_class_says_what_it_is(door: str) -> None:
    module = importlib.import_module(door)
    exported = {name: getattr(module, name) for name in SURFACE[door]}
    assert [name for name, value in exported.items() if callable(value) and not value.__doc__] == []


@pytest.mark.parametrize("door", SURFACE)
def test_every_door_has_a_page(door: str) -> None:
    pages = "\n".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference").glob("*.md"))
    assert re.search(rf"^::: {re.escape(door)}$", pages, re.MULTILINE)


def test_every_public_module_is_pinned() -> None:
    found = {
        module.name
        for module in pkgutil.walk_packages(puncta.__path__, "puncta.")
        if not any(part.startswith("_") for part in module.name.split("."))
    }
    assert found == set(SURFACE) - {"puncta"}
