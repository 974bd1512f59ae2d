"""Results as points elements of SpatialData, so that squidpy and spatialdata-plot go on from there.

This file needs spatialdata, and is imported only when such an element is asked for.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from puncta.errors import UnsupportedError
from puncta.spec.transformations import is_identity

if TYPE_CHECKING:
    import dask.dataframe

try:
    from spatialdata.models import PointsModel
    from spatialdata.transformations import Affine, BaseTransformation, Identity
except ImportError as error:
    raise UnsupportedError("a SpatialData element needs spatialdata; install puncta[spatialdata]") from error


def element_of(
    table: pa.Table,
    *,
    axes: Sequence[str],
    systems: Mapping[str, NDArray[np.float64]],
    feature_key: str | None,
    instance_key: str | None,
) -> "dask.dataframe.DataFrame":
    """Return a SpatialData points element of some rows.

    Args:
        table: Rows with their coordinates; other columns may be left out.
        axes: Axes of the grid.
        systems: Affine to each coordinate system, rows and columns in the order of the axes.
        feature_key: Feature column of the element.
        instance_key: Cell column of the element.

    """
    transformations: dict[str, BaseTransformation] = {
        name: _transformation(matrix, axes) for name, matrix in systems.items()
    }
    names = table.column_names
    return PointsModel.parse(
        table.to_pandas(),
        coordinates={axis: axis for axis in sorted(axes)},
        feature_key=feature_key if feature_key in names else None,
        instance_key=instance_key if instance_key in names else None,
        transformations=transformations or None,
    )


def _transformation(matrix: NDArray[np.float64], axes: Sequence[str]) -> BaseTransformation:
    if is_identity(matrix):
        return Identity()
    square = np.vstack([matrix, np.eye(len(axes) + 1)[-1]])
    return Affine(square, input_axes=tuple(axes), output_axes=tuple(axes))
