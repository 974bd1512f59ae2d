"""Where a converted element goes: an element that stands alone, or one of a SpatialData store (P18)."""

import os
from collections.abc import Mapping

from puncta.errors import OverwriteError, QueryError, SourceError
from puncta.indexing._destination import Target
from puncta.indexing._target import alone_at, in_store, refuse_inside
from puncta.points import Points
from puncta.points._find import is_url
from puncta.store._locate import local_path
from puncta.store._open import path_of_url

__all__ = ["resolve_converted"]

_NAME = "transcripts"


def resolve_converted(
    points: Points,
    store: str | os.PathLike[str],
    *,
    name: str | None,
    layout: str,
    overwrite: bool,
    storage_options: Mapping[str, object],
    tmp: str | os.PathLike[str] | None,
) -> Target:
    """Return where a converted element goes.

    Args:
        points: The element that is converted.
        store: Path or URL of the element in the Zarr layout, of a SpatialData store in the Parquet layout.
        name: Name of the element in the store; its own by default.
        layout: `parquet` or `zarr`.
        overwrite: Whether what is there may be replaced.
        storage_options: For a URL: what obstore takes for it, unchanged.
        tmp: Where an element is put together that goes to a URL.

    Raises:
        SourceError: If an element that stands alone is to have a name, or the target lies inside a store.
        OverwriteError: If something is there that may not be replaced.
        UnsupportedError: If nothing can be written there.
        QueryError: If a storage option is of no use.

    """
    text, is_alone = os.fspath(store), layout == "zarr"
    if is_alone and name is not None:
        raise SourceError(
            f"{text} becomes the element itself in the Zarr layout, so it needs no name; leave out --name"
        )
    own_name = _own_name(points.location)
    if is_url(text):
        from puncta.indexing._target_url import resolve_url  # noqa: PLC0415 (obstore is not loaded where all is local)

        return resolve_url(text, name, own_name, is_alone=is_alone, storage_options=storage_options, tmp=tmp)
    if storage_options and not is_url(points.location):
        names = ", ".join(map(repr, storage_options))
        raise QueryError(f"storage options ({names}) are given, and nothing is at a URL; leave them out")
    place = local_path(path_of_url(text) if "://" in text else text)
    refuse_inside(place)
    target = (
        alone_at(place, overwrite=overwrite)
        if is_alone
        else in_store(place, own_name if name is None else name, overwrite=overwrite)
    )
    if not is_url(points.location) and target.path.resolve() == local_path(points.location).resolve():
        raise OverwriteError(f"{target.path} is what is converted; give another -o")
    return target


def _own_name(location: str) -> str:
    """Return the name that an element has in its store; one that stands alone has none."""
    folder, _, name = location.rstrip("/").rpartition("/")
    return name if folder.rpartition("/")[2] == "points" else _NAME
