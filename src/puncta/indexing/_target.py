"""Where an indexed element goes: into its own store, another one, or a new one; and how it gets there (P22, P27)."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from puncta.errors import OverwriteError, QueryError, SourceError, UnsupportedError
from puncta.indexing._destination import Target, check_name, is_element
from puncta.indexing._index_arrays import group_document
from puncta.indexing._source import Source
from puncta.spec.spatialdata import root_attrs
from puncta.store import Workspace, consolidated_below, copy_tree, link_tree, read_attributes, refresh_consolidated
from puncta.store._locate import URL, is_there, local_path, locate, zarr_format_of
from puncta.store._open import path_of_url

__all__ = ["Target", "other_elements", "publish", "require_new_store", "resolve_target"]

_ZARR_ALONE = ("zarr",)


def resolve_target(
    source: Source,
    store: str | os.PathLike[str] | None,
    *,
    in_place: bool,
    name: str | None,
    overwrite: bool,
    layouts: Sequence[str] = ("parquet",),
    storage_options: Mapping[str, object] | None = None,
    tmp: str | os.PathLike[str] | None = None,
) -> Target:
    """Return where the indexed element goes.

    An element in the Zarr layout alone is no element that spatialdata can read: it stands alone, or beside a
    `points.parquet` that is there already (P18).

    Args:
        source: What is indexed.
        store: Path or URL of a store, there or new; or of an element that stands alone.
        in_place: Whether the element replaces its own source.
        name: Name of the element; the source's own by default.
        overwrite: Whether what is there may be replaced.
        layouts: `parquet`, `zarr`, or both.
        storage_options: For a URL: what obstore takes for it, unchanged.
        tmp: Where an element is built that goes to a URL; the system's folder for temporary files.

    Raises:
        SourceError: If neither or both of a store and in place were asked for, or the source cannot be changed.
        OverwriteError: If something is there that may not be replaced.
        UnsupportedError: If the store is of Zarr format 2, or nothing can be written to such a URL.
        QueryError: If a storage option is of no use.

    """
    if in_place == (store is not None):
        raise SourceError("say where the index goes: either -o STORE (store=...) or --in-place (in_place=True)")
    is_alone = tuple(layouts) == _ZARR_ALONE
    text = "" if store is None else os.fspath(store)
    if is_alone and name is not None and store is not None:
        raise SourceError(
            f"{text} becomes the element itself with --layout zarr, so it needs no name; leave out --name"
        )
    own_name = source.element.name if source.element is not None else "transcripts"
    url = URL.match(text)
    if url and url["scheme"].lower() != "file":
        from puncta.indexing._target_url import resolve_url  # noqa: PLC0415 (obstore is not loaded where all is local)

        return resolve_url(text, name, own_name, is_alone=is_alone, storage_options=storage_options or {}, tmp=tmp)
    if storage_options:
        names = ", ".join(map(repr, storage_options))
        raise QueryError(f"storage options ({names}) are given, and the target is on this machine; leave them out")
    if store is None:
        return _in_place(source, name, overwrite=overwrite, keeps_parquet=is_alone)
    place = local_path(path_of_url(text) if url else text)
    _refuse_own_store(source, place, own_name if name is None else name)
    refuse_inside(place)
    if is_alone:
        return alone_at(place, overwrite=overwrite)
    return in_store(place, own_name if name is None else name, overwrite=overwrite)


def require_new_store(target: Target) -> None:
    """Check that the other elements of a source's store can come along.

    Raises:
        SourceError: If the target is a store that is there, which has its own.
        UnsupportedError: If it is no store.

    """
    if target.form == "element":
        raise UnsupportedError(
            f"{target.address} becomes an element without a store, so no others can come along; give --layout both, "
            "or leave out --all-elements"
        )
    if target.form != "new store":
        there = target.store if target.remote is None else target.remote.bucket.path(target.remote.key)
        raise SourceError(f"{there} is there already, so no other elements can come along; give a new store")


def _refuse_own_store(source: Source, place: Path, name: str) -> None:
    element = source.element
    if element is not None and place.resolve() == element.root.resolve() and name == element.name:
        raise OverwriteError(f"{place} is the store that the points come from; index them with --in-place")


def refuse_inside(place: Path) -> None:
    nearest = next((folder for folder in (place, *place.parents) if is_there(folder)), place)
    root = locate(nearest).root
    if zarr_format_of(root) is not None and root not in {place, place.resolve()}:
        raise SourceError(f"{place} lies inside the store {root}; give the store itself, and the element as --name")


def in_store(place: Path, name: str, *, overwrite: bool) -> Target:
    check_name(name)
    if not is_there(place):
        return Target(store=place, name=name, form="new store", replace=False)
    return _into(place, name, overwrite=overwrite)


def alone_at(place: Path, *, overwrite: bool) -> Target:
    if is_there(place):
        if zarr_format_of(place) is None:
            raise OverwriteError(f"{place} exists and is no element; give another -o")
        if not is_element(read_attributes(place)):
            raise UnsupportedError(
                f"{place} is a store, and spatialdata cannot read an element without points.parquet in it; give "
                "--layout both, or a new -o for the element alone"
            )
        if not overwrite:
            raise OverwriteError(f"{place} exists; give --overwrite to replace it, or another -o")
    return Target(store=place, name=place.name, form="element", replace=overwrite)


def _in_place(source: Source, name: str | None, *, overwrite: bool, keeps_parquet: bool) -> Target:
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
    return Target(store=element.root, name=element.name, form="in place", replace=True, keeps_parquet=keeps_parquet)


def _into(place: Path, name: str, *, overwrite: bool) -> Target:
    zarr_format = zarr_format_of(place)
    if zarr_format is None:
        raise OverwriteError(f"{place} exists and is no SpatialData store; give another -o")
    if zarr_format == 2:  # noqa: PLR2004  # the name of the format
        raise UnsupportedError(f"{place} is a Zarr v2 store, which puncta never changes; give a new -o")
    if is_element(read_attributes(place)):
        raise OverwriteError(f"{place} is a points element without a store; give another -o")
    target = Target(store=place, name=name, form="into a store", replace=overwrite)
    if is_there(target.path) and not overwrite:
        raise OverwriteError(f"{target.path} exists; give --overwrite to replace it, or another --name")
    return target


def publish(
    workspace: Workspace,
    element: Path,
    attrs: Mapping[str, Any],
    target: Target,
    *,
    others: Path | None,
    progress: Callable[[str, int, int], None] | None = None,
) -> None:
    """Put a finished element in its place; its `zarr.json` is written last of its files.

    That document also repeats the metadata of all that is below it, so that a remote reader needs no other. Other files
    that are in a folder of an element that is replaced go, but for a `points.parquet` that is to stay.

    Args:
        workspace: Where it was built.
        element: Folder of the element.
        attrs: Its attributes.
        target: Where it goes.
        others: A store whose other elements a new store takes along, if any.
        progress: Called with what is done of an upload, in bytes.

    """
    if target.keeps_parquet:
        link_tree(target.path / "points.parquet", element / "points.parquet")
    document = {**group_document(), "attributes": dict(attrs), "consolidated_metadata": consolidated_below(element)}
    (element / "zarr.json").write_text(json.dumps(document, allow_nan=False))
    built = _with_store(workspace.path / "store", element, target, others) if target.form == "new store" else element
    if target.remote is not None:
        from puncta.indexing._target_url import put_there  # noqa: PLC0415 (as above)

        put_there(built, target, progress)
        return
    place = target.store if target.form == "new store" else target.path
    workspace.publish_directory(built, place, replace=target.replace)


def _with_store(store: Path, element: Path, target: Target, others: Path | None) -> Path:
    """Make a store around an element, which is moved there."""
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
    return store


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
