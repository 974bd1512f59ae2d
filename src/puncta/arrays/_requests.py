"""What is asked of arrays: ranges of their values and boxes of their axes, checked. Pure: opens nothing."""

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from puncta.arrays._layout import Integers, Layout
from puncta.errors import RangeError, UnsupportedError


class HasIdentity(Protocol):
    """Where bytes are."""

    @property
    def identity(self) -> Hashable:
        """Equal for two objects that read the same files in the same way."""
        ...


class HasLayout(Protocol):
    """An array that can be asked."""

    @property
    def files(self) -> HasIdentity:
        """Where its bytes are."""
        ...

    @property
    def layout(self) -> Layout:
        """Where its values are."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Boxes:
    """Boxes of one array, all axes given, along with the axes that were taken for one."""

    low: Integers
    """First corners, shape (n, d); d is 1 where the array is read like a list of values."""

    high: Integers
    """Last corners, exclusive, shape (n, d)."""

    folded: bool
    """Whether the last axis stands for all axes of the array from `Layout.fold` on."""

    shapes: Integers
    """What the answer to each has: its length, shape (n,), for ranges; its extents, shape (n, axes), for boxes."""


@dataclass(frozen=True, slots=True)
class RangeRequest:
    """Half-open ranges of the values of an array in C order.

    A range of an array of several axes lies within one row of the last axis, or covers whole rows of the first.
    """

    array: HasLayout
    """A `BatchArray` or `BatchAsyncArray`."""

    starts: ArrayLike
    """First value of each range, shape (n,), integers."""

    ends: ArrayLike
    """End of each range, exclusive, shape (n,), integers."""

    def boxes(self) -> Boxes:
        """Return the same values as boxes.

        Raises:
            RangeError: If a range is reversed, leaves the array, or crosses a row.

        """
        layout = self.array.layout
        starts, ends = _pair(self.starts, self.ends, names=("starts", "ends"), ndim=1)
        _require_ranges(starts, ends, layout)
        if layout.fold == 0:
            return Boxes(low=starts[:, None], high=ends[:, None], folded=True, shapes=ends - starts)
        return _boxes_of_ranges(starts, ends, layout)


@dataclass(frozen=True, slots=True)
class BoxRequest:
    """Half-open boxes over the leading axes of an array; the axes that their corners leave out are read whole."""

    array: HasLayout
    """A `BatchArray` or `BatchAsyncArray`."""

    min_corners: ArrayLike
    """First corner of each box, shape (n, k), 1 <= k <= number of axes, integers."""

    max_corners: ArrayLike
    """Last corner of each box, exclusive, shape (n, k), integers."""

    stack_uniform: bool = False
    """Whether the crops, all of one shape, come as one array of shape (n, *box, *trailing), and not as a list."""

    def boxes(self) -> Boxes:
        """Return the boxes with all axes given.

        Raises:
            RangeError: If a box is reversed or leaves the array, or boxes to be stacked differ in shape.

        """
        layout = self.array.layout
        low, high = self._corners()
        _require_boxes(low, high, layout)
        if self.stack_uniform:
            _require_uniform(high - low, layout)
        return _folded(low, high, layout)

    def _corners(self) -> tuple[Integers, Integers]:
        layout = self.array.layout
        low, high = _pair(self.min_corners, self.max_corners, names=("min_corners", "max_corners"), ndim=2)
        axes, ndim = low.shape[1], len(layout.shape)
        if not 1 <= axes <= ndim:
            raise RangeError(
                f"boxes have {axes} axes, and {layout.name} has {ndim}; give corners of 1 to {ndim} leading axes"
            )
        n = low.shape[0]
        rest = np.asarray(layout.shape[axes:], np.int64)
        low = np.concatenate([low, np.zeros((n, rest.size), np.int64)], axis=1)
        return low, np.concatenate([high, np.broadcast_to(rest, (n, rest.size))], axis=1)


def _pair(first: ArrayLike, second: ArrayLike, *, names: tuple[str, str], ndim: int) -> tuple[Integers, Integers]:
    starts, ends = _integers(first, name=names[0], ndim=ndim), _integers(second, name=names[1], ndim=ndim)
    if starts.shape != ends.shape:
        raise RangeError(f"{names[0]} have shape {starts.shape} and {names[1]} {ends.shape}; give one for each other")
    return starts, ends


def _integers(values: ArrayLike, *, name: str, ndim: int) -> Integers:
    try:
        array: NDArray[Any] = np.asarray(values)
    except ValueError as error:
        raise RangeError(f"{name} are no array ({error}); give {ndim} axes of integers") from error
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise RangeError(f"{name} are masked at {int(np.ma.count_masked(values))} places; leave these out")
    if array.ndim != ndim:
        raise RangeError(f"{name} have shape {array.shape}; give {ndim} axes, not {array.ndim}")
    if array.size and array.dtype.kind not in "iu":
        raise RangeError(
            f"{name} are {array.dtype}, not integers (first: {array.flat[0]!r}); round them as you mean it"
        )
    if array.dtype == np.uint64 and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise RangeError(f"{name} reach {array.max()}, beyond any array; check for negative numbers made unsigned")
    return array.astype(np.int64, copy=False)


def _require_ranges(starts: Integers, ends: Integers, layout: Layout) -> None:
    size = math.prod(layout.shape)
    if size > np.iinfo(np.int64).max:
        raise UnsupportedError(f"{layout.name} has {size} values, too many to be numbered; read boxes of it with zarr")
    if not ((ends < starts) | (starts < 0) | (ends > size)).any():
        return
    _refuse(ends < starts, "are reversed", remedy="a range is [start, end) with start <= end", values=(starts, ends))
    _refuse(
        (starts < 0) | (ends > size),
        f"leave {layout.name}",
        remedy=f"it has {size} values",
        values=(starts, ends),
    )


def _require_boxes(low: Integers, high: Integers, layout: Layout) -> None:
    if not ((high < low) | (low < 0) | (high > np.asarray(layout.shape, np.int64))).any():
        return
    _refuse((high < low).any(axis=1), "are reversed", remedy="a box is [min, max) on each axis", values=(low, high))
    _refuse(
        ((low < 0) | (high > np.asarray(layout.shape, np.int64))).any(axis=1),
        f"leave {layout.name}",
        remedy=f"its shape is {layout.shape}",
        values=(low, high),
    )


def _require_uniform(shapes: Integers, layout: Layout) -> None:
    if len(shapes):
        other = (shapes != shapes[0]).any(axis=1)
        if other.any():
            first = int(np.flatnonzero(other)[0])
            raise RangeError(
                f"{int(other.sum())} of {len(shapes)} boxes of {layout.name} have another shape than the first, "
                f"{tuple(shapes[0].tolist())} (first: number {first}, {tuple(shapes[first].tolist())}); "
                "leave out stack_uniform to get a list of crops"
            )


def _refuse(wrong: NDArray[np.bool_], what: str, *, remedy: str, values: tuple[Integers, Integers]) -> None:
    if wrong.any():
        first = int(np.flatnonzero(wrong)[0])
        start, end = (value[first].tolist() for value in values)
        noun = "ranges" if values[0].ndim == 1 else "boxes"
        raise RangeError(
            f"{int(wrong.sum())} of {wrong.size} {noun} {what} (first: number {first}, [{start}, {end})); {remedy}"
        )


def _boxes_of_ranges(starts: Integers, ends: Integers, layout: Layout) -> Boxes:
    """Return ranges of an array whose chunks split its rows as boxes; the last axis from `fold` on is one."""
    fold = layout.fold
    shape = (*layout.shape[:fold], math.prod(layout.shape[fold:]))
    row, first = layout.shape[-1], math.prod(layout.shape[1:])
    lengths = ends - starts
    # A range of no values lies anywhere, even behind the last; the first value stands for where.
    inside = np.where(lengths > 0, starts, 0)
    within = (lengths == 0) | (inside // max(row, 1) == (np.maximum(ends, 1) - 1) // max(row, 1))
    whole = (starts % max(first, 1) == 0) & (ends % max(first, 1) == 0)
    _refuse(
        ~(within | whole),
        f"of {layout.name} cross a row",
        remedy=f"a range lies within {row} values of the last axis, or covers whole rows of {first} values",
        values=(starts, ends),
    )
    if math.prod(shape) == 0:
        nothing = np.zeros((starts.size, len(shape)), np.int64)
        return Boxes(low=nothing, high=nothing, folded=True, shapes=lengths)
    low = np.stack(np.unravel_index(inside, shape), axis=1).astype(np.int64)
    high = low + 1
    high[:, -1] = low[:, -1] + lengths
    many = whole & ~within
    high[many, 0] = low[many, 0] + lengths[many] // first
    high[many, 1:] = shape[1:]
    return Boxes(low=low, high=high, folded=True, shapes=lengths)


def _folded(low: Integers, high: Integers, layout: Layout) -> Boxes:
    """Take the axes that lie whole in every chunk for one, where the boxes do not split them either."""
    fold, shapes = layout.fold, high - low
    rest = np.asarray(layout.shape[fold + 1 :], np.int64)
    if not ((low[:, fold + 1 :] == 0).all() and (high[:, fold + 1 :] == rest).all()):
        return Boxes(low=low, high=high, folded=False, shapes=shapes)
    size = int(np.prod(rest))
    low = np.concatenate([low[:, :fold], low[:, fold : fold + 1] * size], axis=1)
    high = np.concatenate([high[:, :fold], high[:, fold : fold + 1] * size], axis=1)
    return Boxes(low=low, high=high, folded=True, shapes=shapes)
