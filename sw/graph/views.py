"""Composes views: reshapes, transposes, slices and repeats that move no data."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from sw.graph.network import View, dense


def reshaped(view: View, shape: Sequence[int]) -> View | None:
    """The elements in the same order in another shape; None if strides cannot express it."""
    shape = tuple(int(s) for s in shape)
    if math.prod(shape) != view.elements:
        raise ValueError(f"{view.elements} elements cannot be an array of shape {list(shape)}")
    if view.elements == 0:
        return View(view.tensor, shape, dense(shape), view.offset)
    groups = _merged(view.shape, view.strides)
    strides: list[int] = [0] * len(shape)
    axis = len(shape) - 1
    for size, stride in reversed(groups):
        while size > 1:
            while axis >= 0 and shape[axis] == 1:
                axis -= 1
            if axis < 0 or size % shape[axis]:
                return None
            strides[axis] = stride
            stride *= shape[axis]
            size //= shape[axis]
            axis -= 1
    return View(view.tensor, shape, tuple(strides), view.offset)


def strided(tensor: str, numbers: np.ndarray) -> View | None:
    """The elements of a tensor with these numbers as a view; None if strides cannot express it."""
    first = int(numbers.flat[0])
    strides = [
        int(np.take(numbers, min(1, n - 1), axis).flat[0]) - first for axis, n in enumerate(numbers.shape)
    ]
    found = plain(View(tensor, numbers.shape, tuple(strides), first))
    return found if np.array_equal(found.numbers, numbers) else None


def plain(view: View) -> View:
    """The same elements; axes of size 1 get the stride that continues the next axis."""
    strides: list[int] = []
    for axis in reversed(range(len(view.shape))):
        following = strides[0] * view.shape[axis + 1] if strides else 1
        strides.insert(0, view.strides[axis] if view.shape[axis] > 1 else following)
    return dataclasses.replace(view, strides=tuple(strides))


def _merged(shape: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Axes as (size, stride) without those of size 1; neighbours that one stride covers are merged."""
    groups: list[tuple[int, int]] = []
    for size, stride in zip(shape, strides, strict=True):
        if size == 1:
            continue
        if groups and groups[-1][1] == stride * size:
            groups[-1] = (groups[-1][0] * size, stride)
        else:
            groups.append((size, stride))
    return groups


def transposed(view: View, order: Sequence[int]) -> View:
    """Permutes the axes, like NumPy's `transpose`."""
    return View(
        view.tensor, tuple(view.shape[a] for a in order), tuple(view.strides[a] for a in order), view.offset
    )


def sliced(view: View, axis: int, start: int, count: int, step: int = 1) -> View:
    """Selects `count` elements of an axis from `start` on; the step may be negative."""
    shape, strides = list(view.shape), list(view.strides)
    offset = view.offset + start * strides[axis]
    shape[axis], strides[axis] = count, strides[axis] * step
    return View(view.tensor, tuple(shape), tuple(strides), offset)


def broadcast(view: View, shape: Sequence[int]) -> View:
    """Repeats the view to a shape, like NumPy's `broadcast_to`."""
    shape = tuple(int(s) for s in shape)
    np.broadcast_shapes(view.shape, shape)
    more = len(shape) - len(view.shape)
    strides = [0] * more + [
        0 if size == 1 and want != 1 else stride
        for size, stride, want in zip(view.shape, view.strides, shape[more:], strict=True)
    ]
    return View(view.tensor, shape, tuple(strides), view.offset)


def repeats(view: View) -> bool:
    """Whether an element may occur more than once; unusual overlapping strides count as repeats."""
    reach = 0
    for stride, size in sorted((abs(stride), size) for size, stride in _merged(view.shape, view.strides)):
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


def same_places(a: View, b: View) -> bool:
    """Whether two views have the same elements at the same indices."""
    return (
        a.tensor == b.tensor
        and a.offset == b.offset
        and a.shape == b.shape
        and all(s == t for n, s, t in zip(a.shape, a.strides, b.strides, strict=True) if n > 1)
    )


def descending(view: View) -> tuple[int, ...]:
    """A permutation that sorts the strides in descending order; axes of size 1 come first."""
    return tuple(
        sorted(
            range(len(view.shape)),
            key=lambda a: (view.shape[a] > 1, -abs(view.strides[a]) if view.shape[a] > 1 else 0, a),
        )
    )


def covers(view: View, shape: tuple[int, ...]) -> bool:
    """Whether the view has every element of a tensor of that shape once, in row-major order."""
    flat = reshaped(view, (view.elements,))
    return (
        view.offset == 0
        and view.elements == math.prod(shape)
        and flat is not None
        and (view.elements == 1 or flat.strides == (1,))
    )
