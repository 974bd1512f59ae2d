"""A table that is in memory already."""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from puncta.errors import SourceError, UnsupportedError
from puncta.indexing._source_types import as_text, conform, index_column_of

__all__ = ["MemoryTable", "as_table"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTable:
    """A table that is in memory already."""

    table: pa.Table
    """The rows."""
    schema: pa.Schema
    """What the batches give."""
    bounds: dict[str, tuple[float, float]] | None = None
    """Not known before the rows are looked at."""

    @classmethod
    def open(cls, table: pa.Table, text: AbstractSet[str]) -> "MemoryTable":
        """Take a table; bytes in the columns of `text` are read as text.

        Raises:
            SourceError: If it holds no row.

        """
        if not table.num_rows:
            raise SourceError("the table holds no rows; there is nothing to index")
        types = [(field.name, as_text(field.type) if field.name in text else field.type) for field in table.schema]
        return cls(table=table, schema=pa.schema(types))

    @property
    def stored(self) -> pa.Schema:
        """What the table itself says."""
        return self.table.schema

    @property
    def index_column(self) -> str | None:
        """Column that holds the pandas index."""
        return index_column_of(self.table.schema)

    @property
    def n_rows(self) -> int | None:
        """Number of rows."""
        return int(self.table.num_rows)

    @property
    def bytes(self) -> int:
        """Size in memory."""
        return int(self.table.nbytes)

    def batches(self, columns: Sequence[str], batch_size: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order, at most `batch_size` at a time, without copying them."""
        schema = pa.schema([self.schema.field(name) for name in columns])
        for batch in self.table.select(list(columns)).to_batches(max_chunksize=batch_size):
            try:
                arrays = [conform(array, kind) for array, kind in zip(batch.columns, schema.types, strict=True)]
            except pa.ArrowInvalid as error:
                raise SourceError(f"bytes of the table are not text: {error}; decode them first") from error
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def as_table(source: Any) -> pa.Table:  # noqa: ANN401 (whatever speaks Arrow)
    """Return a table in memory as Arrow: a pandas DataFrame with its index, or whatever has an Arrow stream.

    Raises:
        UnsupportedError: If the object is no table.

    """
    if isinstance(source, pa.Table):
        return source
    if type(source).__module__.partition(".")[0] == "pandas":
        # not by its Arrow stream, which leaves the index out
        return pa.Table.from_pandas(source)
    if hasattr(source, "__arrow_c_stream__"):
        return pa.table(source)
    raise UnsupportedError(
        f"a {type(source).__name__} cannot be indexed; give a path, a pyarrow Table or a pandas DataFrame"
    )
