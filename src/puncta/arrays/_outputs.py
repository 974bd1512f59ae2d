"""The answers of a batch: allocated before anything is read, filled piece by piece, then given out.

Pure: opens nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from puncta.arrays._layout import Integers, Layout
from puncta.arrays._plan import Asked, Request
from puncta.arrays._requests import Boxes, BoxRequest

type Ranges = tuple[NDArray[Any], Integers]
type Crops = list[NDArray[Any]] | NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """Arrays to fill, and how they make up the answers."""

    values: list[NDArray[Any]]
    """Each output as a list of values, shape (n,): memory that nothing else holds."""

    sinks: list[memoryview | NDArray[Any]]
    """The same memory as what is written to it: bytes, or values where chunks do not decode to bytes."""

    answers: list[Ranges | Crops]
    """What each request is answered with; shows what is written to `values`."""


def prepare(requests: Sequence[Request]) -> tuple[list[Asked], Outputs]:
    """Check requests and allocate their answers.

    Raises:
        RangeError: If a request cannot be answered.

    """
    asked: list[Asked] = []
    values: list[NDArray[Any]] = []
    sinks: list[memoryview | NDArray[Any]] = []
    answers: list[Ranges | Crops] = []
    for request in requests:
        layout, boxes = request.array.layout, request.boxes()
        fresh, answer, offset = _allocate(request, boxes, layout)
        first = len(values)
        output = np.arange(first, first + len(fresh)) if isinstance(answer, list) else np.full(len(offset), first)
        source = (request.array.files.identity, layout.token)
        asked.append(Asked(layout=layout, source=source, boxes=boxes, output=output, offset=offset))
        values += fresh
        sinks += [array.view(np.uint8).data for array in fresh] if layout.codecs.as_bytes else fresh
        answers.append(answer)
    return asked, Outputs(values=values, sinks=sinks, answers=answers)


def _allocate(request: Request, boxes: Boxes, layout: Layout) -> tuple[list[NDArray[Any]], Ranges | Crops, Integers]:
    """Return the outputs of a request, its answer, and where in its output each box begins."""
    shapes, n = boxes.shapes, len(boxes.shapes)
    if not isinstance(request, BoxRequest):
        ends = np.cumsum(shapes)
        flat = np.empty(int(ends[-1]) if n else 0, layout.dtype)
        return [flat], (flat, shapes), ends - shapes
    if request.stack_uniform:
        shape = shapes[0].tolist() if n else _shape_of_nothing(request, layout)
        stacked = np.empty((n, *shape), layout.dtype)
        return [stacked.reshape(-1)], stacked, np.arange(n) * math.prod(shape)
    crops = [np.empty(shape, layout.dtype) for shape in shapes.tolist()]
    return [crop.reshape(-1) for crop in crops], crops, np.zeros(n, np.int64)


def _shape_of_nothing(request: BoxRequest, layout: Layout) -> list[int]:
    axes = np.shape(request.min_corners)[1]
    return [0] * axes + list(layout.shape[axes:])
