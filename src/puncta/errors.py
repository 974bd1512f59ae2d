"""Every error that puncta raises on purpose.

Each is also the built-in that a stranger would catch. A message says what is wrong, how much of it, one example and
the remedy.
"""

__all__ = [
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
]


class PunctaError(Exception):
    """Base of all errors that puncta raises on purpose."""


class GridError(PunctaError, ValueError):
    """A grid, or a coordinate that does not fit it."""


class ColumnError(PunctaError, LookupError):
    """A column that is not there, or is not of a usable type."""


class SourceError(PunctaError, ValueError):
    """A source that was found but holds data that cannot be indexed."""


class MissingError(PunctaError, FileNotFoundError):
    """A path at which there is nothing."""


class OverwriteError(PunctaError, FileExistsError):
    """A target that exists, and that nobody asked to replace."""


class SpaceError(PunctaError, OSError):
    """A disk that has too little room for what was asked."""


class StoreError(PunctaError, OSError):
    """Bytes that could not be read or written, or are damaged."""


class MetadataError(PunctaError, ValueError):
    """Metadata that breaks its schema; the message lists every problem."""


class NotIndexedError(PunctaError, ValueError):
    """A points element without a spatial index."""


class StaleIndexError(PunctaError, ValueError):
    """An index that no longer agrees with the element it was built for."""


class QueryError(PunctaError, ValueError):
    """A question that cannot be answered as it was put."""


class RangeError(PunctaError, ValueError, IndexError):
    """Ranges or boxes that an array cannot answer: out of bounds, reversed, of the wrong shape or type."""


class UnsupportedError(PunctaError, NotImplementedError):
    """A form that puncta does not read or write yet."""
