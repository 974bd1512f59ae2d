"""What a target is: the place of an indexed element, what surrounds it there, and what it may replace."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from puncta.errors import SourceError

if TYPE_CHECKING:
    from puncta.store import Bucket  # obstore is not loaded where all is local

__all__ = ["Form", "RemotePlace", "Target", "check_name", "is_element"]

type Form = Literal["in place", "into a store", "new store", "element"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotePlace:
    """A place in an object store."""

    bucket: "Bucket"
    """The bucket."""

    key: str
    """Name of the store in it, or of the element where this has none around it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where an element goes."""

    store: Path
    """The SpatialData store, or the element where it stands alone; of a URL, where its parts are put together."""

    name: str
    """Name of the element."""

    form: Form
    """Replaces its own source, is added to a store, comes with a store of its own, or stands alone."""

    replace: bool
    """Whether an element, or a store, at this place may be replaced."""

    keeps_parquet: bool = False
    """Whether the `points.parquet` that is there stays as it is, since the index is beside it (P31)."""

    remote: RemotePlace | None = None
    """Where it goes from there; None where the target is on this machine."""

    @property
    def inner(self) -> str:
        """The place of the element in the store; empty where it stands alone."""
        return "" if self.form == "element" else f"points/{self.name}"

    @property
    def path(self) -> Path:
        """Folder of the element."""
        return self.store / self.inner

    @property
    def address(self) -> Path | str:
        """Path or URL of the element, for people and for `open_points`."""
        if self.remote is None:
            return self.path
        return self.remote.bucket.path(f"{self.remote.key}/{self.inner}".strip("/"))


def check_name(name: str) -> None:
    """Check that spatialdata would read an element of that name.

    Raises:
        SourceError: If it would not.

    """
    # other characters make names that it refuses
    allowed = all(letter.isalnum() or letter in "_-." for letter in name)
    if not name or not allowed or name.startswith("__") or name in {".", ".."}:
        raise SourceError(
            f"the name {name!r} cannot be that of an element; use letters, digits, '_', '-' and '.', not '__' in front"
        )


def is_element(attributes: Mapping[str, Any]) -> bool:
    """Whether attributes are those of a points element, and not of a store that may have some."""
    return attributes.get("encoding-type") == "ngff:points" or "spatial_index" in attributes
