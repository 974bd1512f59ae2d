"""Filter expressions: SQL over the columns of a table, never Python. Opens nothing; polars evaluates them."""

from collections.abc import Iterable

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from puncta.errors import ColumnError, QueryError


def columns_of(expressions: Iterable[str]) -> list[str]:
    """Return the names of the columns that the expressions read.

    Raises:
        QueryError: If an expression is no SQL expression.

    """
    return sorted({name for text in expressions for name in _parsed(text).meta.root_names()})


def rows_meeting(table: pa.Table, expressions: Iterable[str]) -> NDArray[np.bool_]:
    """Say for each row whether all expressions hold; where one is null it does not hold.

    Args:
        table: Rows with the columns that the expressions read.
        expressions: SQL expressions such as `qv >= 20` or `cell_id != 'UNASSIGNED'`.

    Raises:
        QueryError: If an expression is no SQL expression, or does not give true or false.
        ColumnError: If an expression reads a column that is not there.

    """
    texts = list(expressions)
    kept = np.ones(table.num_rows, dtype=bool)
    for text in texts:
        kept &= _evaluated(table, text)
    return kept


def _evaluated(table: pa.Table, text: str) -> NDArray[np.bool_]:
    expression = _parsed(text)
    names = list(dict.fromkeys(expression.meta.root_names()))
    missing = [name for name in names if name not in table.column_names]
    if missing:
        raise ColumnError(
            f"the filter {text!r} reads {missing[0]!r}, which is no column; the columns are "
            f"{', '.join(table.column_names)}"
        )
    frame = pl.DataFrame(pl.from_arrow(table.select(names or table.column_names[:1])))
    # Arrow dictionaries become categoricals, which SQL compares with text only as text.
    frame = frame.with_columns(pl.col(pl.Categorical, pl.Enum).cast(pl.String))
    try:
        result = frame.select(expression.alias("kept"))["kept"]
    except (pl.exceptions.PolarsError, TypeError) as error:
        raise QueryError(f"the filter {text!r} does not fit its columns: {error}") from error
    if result.dtype != pl.Boolean or len(result) not in {1, table.num_rows}:
        raise QueryError(f"the filter {text!r} gives {result.dtype}, not true or false for each row; compare something")
    kept: NDArray[np.bool_] = result.fill_null(value=False).to_numpy()
    return np.broadcast_to(kept, table.num_rows) if len(kept) == 1 else kept


def _parsed(text: str) -> pl.Expr:
    try:
        return pl.sql_expr(text)
    except (pl.exceptions.PolarsError, ValueError) as error:
        raise QueryError(f'the filter {text!r} is no SQL expression ({error}); write it like "qv >= 20"') from error
