"""Where an indexed element goes: into its own store, another one, or a new one; and how it gets there (P22, P27)."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from puncta.errors import OverwriteError, SourceError, UnsupportedError
from puncta.indexing._index_arrays import group_document
from puncta.indexing._source import Source
from puncta.spec.spatialdata import root_attrs
from puncta.store import Workspace, copy_tree, refresh_consolidated
from puncta.store._locate import is_there, local_path, locate, zarr_format_of

type Form = Literal["in place", "into a store", "new store"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where an element goes."""

    store: Path
    """The SpatialData store."""

    name: str
    """Name of the element."""

    form: Form
    """Replaces its own source, is added to a store, or comes with a store of its own."""

    replace: bool
    """Whether an element, or a store, at this place may be replaced."""

    @property
    def path(self) -> Path:
        """Folder of the element."""
        return self.store / "points" / self.name


def resolve_target(
    source: Source, store: str | os.PathLike[str] | None, *, in_place: bool, name: str | None, overwrite: bool
) -> Target:
    """Return where the indexed element goes.

    Raises:
        SourceError: If neither or both of a store and in place were asked for, or the source cannot be changed.
        OverwriteError: If something is there that may not be replaced.
        UnsupportedError: If the store is of Zarr format 2.

    """
    if in_place == (store is not None):
        raise SourceError("say where the index goes: either -o STORE (store=...) or --in-place (in_place=True)")
    if store is None:
        return _in_place(source, name, overwrite=overwrite)
    own_name = source.element.name if source.element is not None else "transcripts"
    element_name = own_name if name is None else name
    _check_name(element_name)
    place = local_path(store)
    is_own = source.element is not None and place.resolve() == source.element.root.resolve()
    if is_own and source.element is not None and element_name == source.element.name:
        raise OverwriteError(f"{place} is the store that the points come from; index them with --in-place")
    if not is_there(place):
        return Target(store=place, name=element_name, form="new store", replace=False)
    root = locate(place).root
    if root != place.resolve() and root != place:
        raise SourceError(f"{place} lies inside the store {root}; give the store itself, and the element as --name")
    return _into(place, element_name, overwrite=overwrite)


def _in_place(source: Source, name: str | None, *, overwrite: bool) -> Target:
    element = source.element
    if element is None:
        raise SourceError(
            f"{source.path} is no points element of a SpatialData store, so it cannot be indexed in place; "
            "give a new store with -o"
        )
    if name not in {None, element.name}:
        raise SourceError(f"an element indexed in place keeps its name {element.name!r}; leave out --name")
    if element.zarr_format == 2 or zarr_format_of(element.root) == 2:  # noqa: PLR2004  # the name of the format
        raise UnsupportedError(
            f"{element.root} is a Zarr v2 store, which puncta reads but never changes; write a new one with "
            f"-o NEW.zarr (--all-elements takes the other elements along)"
        )
    if "spatial_index" in element.attrs and not overwrite:
        raise OverwriteError(f"{element.path} has a spatial index already; give --overwrite to build it anew")
    return Target(store=element.root, name=element.name, form="in place", replace=True)


def _into(place: Path, name: str, *, overwrite: bool) -> Target:
    zarr_format = zarr_format_of(place)
    if zarr_format is None:
        raise OverwriteError(f"{place} exists and is no SpatialData store; give another -o")
    if zarr_format == 2:  # noqa: PLR2004  # the name of the format
        raise UnsupportedError(f"{place} is a Zarr v2 store, which puncta never changes; give a new -o")
    target = Target(store=place, name=name, form="into a store", replace=overwrite)
    if is_there(target.path) and not overwrite:
        raise OverwriteError(f"{target.path} exists; give --overwrite to replace it, or another --name")
    return target


def _check_name(name: str) -> None:
    # as spatialdata has it: other characters make names that it refuses to read
    allowed = all(letter.isalnum() or letter in "_-." for letter in name)
    if not name or not allowed or name.startswith("__") or name in {".", ".."}:
        raise SourceError(
            f"the name {name!r} cannot be that of an element; use letters, digits, '_', '-' and '.', not '__' in front"
        )


def publish(
    workspace: Workspace, element: Path, attrs: Mapping[str, Any], target: Target, *, others: Path | None
) -> None:
    """Put a finished element in its place; its `zarr.json` is written last of its files.

    Args:
        workspace: Where it was built.
        element: Folder of the element.
        attrs: Its attributes.
        target: Where it goes.
        others: A store whose other elements a new store takes along, if any.

    """
    document = {**group_document(), "attributes": dict(attrs)}
    (element / "zarr.json").write_text(json.dumps(document, indent=2, allow_nan=False))
    if target.form != "new store":
        workspace.publish_directory(element, target.path, replace=target.replace)
        return
    store = workspace.path / "store"
    if others is not None:
        copy_tree(others, store)
    else:
        store.mkdir()
        _write_root(store)
    points = store / "points"
    points.mkdir(exist_ok=True)
    if not is_there(points / "zarr.json"):
        (points / "zarr.json").write_text(json.dumps(group_document()))
    element.rename(points / target.name)
    refresh_consolidated(store)
    workspace.publish_directory(store, target.store, replace=False)


def _write_root(store: Path) -> None:
    consolidated = {"kind": "inline", "must_understand": False, "metadata": {}}
    document = {**group_document(), "attributes": root_attrs(), "consolidated_metadata": consolidated}
    (store / "zarr.json").write_text(json.dumps(document, indent=2))


def other_elements(source: Source, scratch: Path) -> Path:
    """Return a v3 store in a folder with all elements of the source's store but the one that is indexed.

    Raises:
        SourceError: If the source is no element of a store.
        UnsupportedError: If the store is of Zarr v2 and spatialdata, which converts it, is not installed.

    """
    element = source.element
    if element is None:
        raise SourceError(f"{source.path} is no store with other elements; leave out --all-elements")
    copy = scratch / "others.zarr"
    if zarr_format_of(element.root) == 3:  # noqa: PLR2004  # the name of the format
        copy_tree(element.root, copy)
        _remove(copy / "points" / element.name)
    else:
        _convert(element.root, element.name, copy)
    return copy


def _remove(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    folder.rmdir()


def _convert(root: Path, name: str, copy: Path) -> None:
    """Write all elements but one as Zarr v3; this is spatialdata's own work."""
    try:
        # takes seconds to import, and only stores of Zarr v2 need it
        import spatialdata  # noqa: PLC0415
    except ImportError as error:
        raise UnsupportedError(
            f"taking the other elements of the Zarr v2 store {root} along needs spatialdata; "
            "install puncta[spatialdata], or leave out --all-elements"
        ) from error
    data = spatialdata.read_zarr(root)
    del data.points[name]
    data.write(copy)
