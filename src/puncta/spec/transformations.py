"""SpatialData's `coordinateTransformations`, read into affine matrices, and the arithmetic of these.

Pure. An affine here has the shape (d, d + 1): rows and columns in the order of the axes, the translation last (P30).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from puncta.errors import MetadataError

type _Rows = dict[str, NDArray[np.float64]]
"""For each axis by name, how it follows from the input axes: the row of a matrix, shape (d + 1,)."""

# What SpatialData writes as a unit where it knows none.
_UNIT = "unit"


def affines(transformations: Sequence[Mapping[str, Any]], axes: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    """Return the affine to each coordinate system, as an element's attributes declare them.

    Axes go by name. One that a transformation does not mention stays as it is; one that is not among `axes`, like `c`,
    counts as zero and is left out of the result.

    Args:
        transformations: The list `coordinateTransformations` of the element.
        axes: Axes of the element, in its order.

    Returns:
        Name of the output coordinate system to its matrix, shape (d, d + 1), float64.

    Raises:
        MetadataError: If a transformation is of a type other than identity, scale, translation, affine, mapAxis and
            sequence, or is not well formed.

    """
    return {_name_of(one): _affine(one, axes) for one in transformations}


def identity_transformation(axes: Sequence[str], coordinate_system: str) -> dict[str, Any]:
    """Return the identity to a coordinate system, as spatialdata 0.8 writes it into an element's attributes."""

    def system(name: str) -> dict[str, Any]:
        return {"name": name, "axes": [{"name": axis, "type": "space", "unit": _UNIT} for axis in axes]}

    return {"type": "identity", "input": system("".join(axes)), "output": system(coordinate_system)}


def apply_affine(matrix: NDArray[np.float64], coordinates: Sequence[NDArray[Any]]) -> list[NDArray[np.float64]]:
    """Return transformed coordinates, one array per axis.

    Each is the sum from left to right of rounded products, the translation last, in float64 (P33). No product is left
    out, not even one by zero or one, and none is fused with a sum: another implementation finds the same bits, and so
    the same tile at a border.

    Args:
        matrix: Affine, shape (d, d + 1).
        coordinates: One array per axis in the order of the columns, shape (n,) each, any real dtype.

    Raises:
        MetadataError: If the number of arrays is not that of the matrix's axes.

    """
    if len(coordinates) != len(matrix):
        raise MetadataError(
            f"{len(coordinates)} coordinate arrays for an affine of {len(matrix)} axes; give one an axis"
        )
    exact = [np.asarray(values, dtype=np.float64) for values in coordinates]
    results = []
    for row in matrix:
        total = exact[0] * row[0]
        for values, factor in zip(exact[1:], row[1:-1], strict=True):
            total += values * factor
        total += row[-1]
        results.append(total)
    return results


def invert_affine(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the affine that undoes this one, shape (d, d + 1).

    Raises:
        MetadataError: If there is none, because the matrix maps different points to one.

    """
    linear = matrix[:, :-1]
    try:
        inverse = np.linalg.inv(linear)
    except np.linalg.LinAlgError as error:
        raise MetadataError(
            f"the affine {matrix.tolist()} cannot be inverted, because it maps different points to one; "
            "correct the element's transformation"
        ) from error
    return np.column_stack([inverse, -(inverse @ matrix[:, -1])]) + 0.0


def compose_affines(second: NDArray[np.float64], first: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the affine that applies `first`, then `second`, shape (d, d + 1)."""
    composed: NDArray[np.float64] = second[:, :-1] @ first
    composed[:, -1] += second[:, -1]
    return composed


def is_identity(matrix: NDArray[np.float64]) -> bool:
    """Say whether the affine leaves every point exactly where it is."""
    return np.array_equal(matrix, np.eye(*matrix.shape))


def _affine(transformation: Mapping[str, Any], axes: Sequence[str]) -> NDArray[np.float64]:
    rows = dict(zip(axes, np.eye(len(axes), len(axes) + 1), strict=True))
    rows = _transformed(rows, transformation, _axes_of(transformation, "input", axes))
    # + 0.0 makes a zero of a negative zero, which would be written as "-0.0".
    return np.stack([rows[axis] for axis in axes]) + 0.0


def _transformed(rows: _Rows, transformation: Mapping[str, Any], inputs: Sequence[str]) -> _Rows:
    """Return the rows after one more transformation; `inputs` are its axes where it does not name them itself."""
    kind = transformation.get("type")
    inputs = _axes_of(transformation, "input", inputs)
    match kind:
        case "identity":
            return rows
        case "scale":
            factors = _numbers(transformation, "scale", (len(inputs),))
            return rows | {axis: rows[axis] * factors[i] for i, axis in enumerate(inputs) if axis in rows}
        case "translation":
            steps = _numbers(transformation, "translation", (len(inputs),))
            return rows | {axis: _moved(rows[axis], steps[i]) for i, axis in enumerate(inputs) if axis in rows}
        case "affine":
            return rows | _mixed(rows, transformation, inputs)
        case "mapAxis":
            return rows | _renamed(rows, transformation)
        case "sequence":
            return _in_turn(rows, transformation, inputs)
    raise MetadataError(
        f"a coordinate transformation of type {kind!r} cannot be expressed as an affine; "
        "use identity, scale, translation, affine, mapAxis or a sequence of these"
    )


def _moved(row: NDArray[np.float64], step: float) -> NDArray[np.float64]:
    moved = row.copy()
    moved[-1] += step
    return moved


def _mixed(rows: _Rows, transformation: Mapping[str, Any], inputs: Sequence[str]) -> _Rows:
    outputs = _axes_of(transformation, "output", inputs)
    matrix = _numbers(transformation, "affine", (len(outputs), len(inputs) + 1))
    known = [i for i, axis in enumerate(inputs) if axis in rows]
    width = len(next(iter(rows.values())))
    mixed = {}
    for axis, factors in zip(outputs, matrix, strict=True):
        total = sum((rows[inputs[i]] * factors[i] for i in known), np.zeros(width))
        mixed[axis] = _moved(total, factors[-1])
    return mixed


def _renamed(rows: _Rows, transformation: Mapping[str, Any]) -> _Rows:
    """Map output axes to input axes, as `mapAxis` has them: {output: input}."""
    named = transformation.get("mapAxis")
    if not isinstance(named, Mapping):
        raise MetadataError(f"a mapAxis transformation needs an object 'mapAxis', not {named!r}; correct the element")
    unknown = [f"{output} from {axis}" for output, axis in named.items() if axis not in rows and output in rows]
    if unknown:
        raise MetadataError(
            f"a mapAxis transformation makes {len(unknown)} axes from axes that the element does not have "
            f"(first: {unknown[0]}); correct the element's transformation"
        )
    return {output: rows[axis] for output, axis in named.items() if axis in rows}


def _in_turn(rows: _Rows, transformation: Mapping[str, Any], inputs: Sequence[str]) -> _Rows:
    steps = transformation.get("transformations")
    if not isinstance(steps, Sequence) or not steps or not all(isinstance(step, Mapping) for step in steps):
        raise MetadataError(f"a sequence needs a list of 'transformations', not {steps!r}; correct the element")
    for step in steps:
        rows = _transformed(rows, step, inputs)
        inputs = _axes_of(step, "output", inputs)
    return rows


def _axes_of(transformation: Mapping[str, Any], side: str, default: Sequence[str]) -> Sequence[str]:
    """Return the axes of one side; steps of a sequence may leave them to their neighbours."""
    system = transformation.get(side)
    if not isinstance(system, Mapping) or "axes" not in system:
        return default
    try:
        return [str(axis["name"]) for axis in system["axes"]]
    except (TypeError, KeyError) as error:
        raise MetadataError(f"axes = {system['axes']!r} do not each have a 'name'; correct the element") from error


def _name_of(transformation: Mapping[str, Any]) -> str:
    output = transformation.get("output")
    name = output.get("name") if isinstance(output, Mapping) else None
    if not isinstance(name, str):
        raise MetadataError(
            f"a coordinate transformation of type {transformation.get('type')!r} does not name its output coordinate "
            "system; give it an 'output' with a 'name'"
        )
    return name


def _numbers(transformation: Mapping[str, Any], key: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    try:
        values = np.asarray(transformation.get(key), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise MetadataError(
            f"{key} = {transformation.get(key)!r} is not made of numbers; correct the element"
        ) from error
    if values.shape != shape or not np.isfinite(values).all():
        raise MetadataError(
            f"{key} = {transformation.get(key)!r} is not of {' x '.join(map(str, shape))} finite numbers, "
            "as the axes of the transformation ask; correct the element"
        )
    return values


__all__ = ["affines", "apply_affine", "compose_affines", "identity_transformation", "invert_affine", "is_identity"]
