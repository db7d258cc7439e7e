"""Matrix products as problems of the array: which axes of their views are m, n, k and which are batches."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from hw.config import MachineConfig
from hw.errors import InputError
from sw.compile.array import ArrayProblem, Homes, Key
from sw.compile.forms import Loop
from sw.compile.operands import source
from sw.graph.network import MatrixProduct, View
from sw.layout import coalesce
from sw.tiling.blocking import Extent


def matrices(operator: MatrixProduct) -> dict[Key, View]:
    """The views of a product, without batch axes of one and with those that are rows of one tall product."""
    rest = operator.epilogue.operands if operator.epilogue else ()
    views: dict[Key, View] = {"a": operator.a, "b": operator.b, "c": operator.output}
    views |= dict(enumerate(rest, 1))
    for axis in range(len(operator.output.shape) - 3, -1, -1):
        if views["c"].shape[axis] == 1:
            views = {key: _without(view, axis) for key, view in views.items()}
    while len(views["c"].shape) > 2 and _joins(views):
        axis = len(views["c"].shape) - 3
        views = {k: _without(view, axis) if k == "b" else _joined(view) for k, view in views.items()}
    return views | {key: _without_idle_strides(views[key]) for key in "abc"}


def _without_idle_strides(view: View) -> View:
    """Strides of axes of one element mean nothing: 0."""
    strides = tuple(s if n > 1 else 0 for n, s in zip(view.shape, view.strides, strict=True))
    return dataclasses.replace(view, strides=strides)


def _without(view: View, axis: int) -> View:
    """The first along an axis."""
    shape = view.shape[:axis] + view.shape[axis + 1 :]
    return dataclasses.replace(view, shape=shape, strides=view.strides[:axis] + view.strides[axis + 1 :])


def _joins(views: Mapping[Key, View]) -> bool:
    """Whether the last batch axis goes on where the rows of a matrix end, and B is the same for all."""
    rows = views["c"].shape[-2]
    return all(v.strides[-3] == (0 if k == "b" else rows * v.strides[-2]) for k, v in views.items())


def _joined(view: View) -> View:
    *batch, outer, rows, columns = view.shape
    strides = view.strides[:-3] + view.strides[-2:]
    return dataclasses.replace(view, shape=(*batch, outer * rows, columns), strides=strides)


def product_problem(operator: MatrixProduct, homes: Homes, config: MachineConfig) -> ArrayProblem:
    """The product as the array executes it; raises `InputError` for views that are not contiguous."""
    views = matrices(operator)
    *batch, rows, columns = views["c"].shape
    if columns > 1 and views["c"].strides[-1] != 1:
        raise InputError(
            f"{operator.name}: the result must be contiguous along its last axis, "
            f"the stride is {views['c'].strides[-1]}"
        )
    turned_a, turned_b = (_transposed(operator.name, x.upper(), views[x]) for x in "ab")
    extent = Extent(rows, columns, views["a"].shape[-1], turned_a, turned_b, math.prod(batch))
    # Batches that follow each other in elements and in bytes are one loop.
    elements = tuple(v.strides[:-2] for v in views.values())
    moved = tuple(tuple(homes[v.tensor].offset(s) for s in v.strides[:-2]) for v in views.values())
    axes = coalesce(tuple(batch), (*elements, *moved))
    outer = tuple(Loop(f"batch{i}", count) for i, (count, _) in enumerate(axes))
    moves = {
        key: {loop.name: steps[i] for loop, (_, steps) in zip(outer, axes, strict=True)}
        for i, key in enumerate(views)
    }
    sources = {
        k: source(v, homes[v.tensor], any(v.strides[:-2])) for k, v in views.items() if isinstance(k, int)
    }
    zeros = operator.zero_a, operator.zero_b
    return ArrayProblem(operator, config, homes, extent, views, moves, outer, sources, zeros)


def _transposed(name: str, what: str, view: View) -> bool:
    """Whether the first of the last two axes is contiguous, not the second.

    Raises `InputError` where neither is.
    """
    (rows, columns), (row, column) = view.shape[-2:], view.strides[-2:]
    if column == 1 or columns == 1:
        return False
    if row == 1 or rows == 1:
        return True
    raise InputError(
        f"{name}: operand {what} must be contiguous along one of its axes, strides are {row} and {column}"
    )
