"""Matrix products as problems of the array: which axes of their views are m, n, k and which are batches."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

from hw.config import MachineConfig
from hw.errors import InputError
from sw.compile.array import ArrayProblem, Homes, Key
from sw.compile.forms import Loop
from sw.compile.operands import source
from sw.graph.network import MatrixProduct, View
from sw.layout import coalesce
from sw.tiling.blocking import Extent


@dataclass(frozen=True)
class Matrices:
    """A product with at most the batch axes that it needs; `rest` are the operands of its epilogue."""

    a: View
    b: View
    c: View
    rest: tuple[View, ...]

    def changed(self, change: Callable[[View], View]) -> Matrices:
        """All of them changed alike."""
        return Matrices(change(self.a), change(self.b), change(self.c), tuple(map(change, self.rest)))


def matrices(operator: MatrixProduct) -> Matrices:
    """The views of a product, without batch axes of one and with those that are rows of one tall product."""
    rest = operator.epilogue.operands if operator.epilogue else ()
    made = Matrices(operator.a, operator.b, operator.output, rest)
    for axis in range(len(operator.output.shape) - 3, -1, -1):
        if made.c.shape[axis] == 1:
            made = made.changed(lambda v, axis=axis: _without(v, axis))  # type: ignore[misc]
    while len(made.c.shape) > 2 and _joins(made):
        made = dataclasses.replace(made.changed(_joined), b=_without(made.b, len(made.b.shape) - 3))
    a, b, c = (_without_idle_strides(v) for v in (made.a, made.b, made.c))
    return Matrices(a, b, c, made.rest)


def _without_idle_strides(view: View) -> View:
    """Strides of axes of one element mean nothing: 0."""
    strides = tuple(s if n > 1 else 0 for n, s in zip(view.shape, view.strides, strict=True))
    return dataclasses.replace(view, strides=strides)


def _without(view: View, axis: int) -> View:
    """The first along an axis."""
    shape = view.shape[:axis] + view.shape[axis + 1 :]
    return dataclasses.replace(view, shape=shape, strides=view.strides[:axis] + view.strides[axis + 1 :])


def _joins(m: Matrices) -> bool:
    """Whether the last batch axis goes on where the rows of a matrix end, and B is the same for all."""
    rows = m.c.shape[-2]
    tall = all(v.strides[-3] == rows * v.strides[-2] for v in (m.a, m.c, *m.rest))
    return tall and m.b.strides[-3] == 0


def _joined(view: View) -> View:
    *batch, outer, rows, columns = view.shape
    strides = view.strides[:-3] + view.strides[-2:]
    return dataclasses.replace(view, shape=(*batch, outer * rows, columns), strides=strides)


def product_problem(operator: MatrixProduct, homes: Homes, config: MachineConfig) -> ArrayProblem:
    """The product as the array executes it; raises `InputError` for views that are not contiguous."""
    m = matrices(operator)
    views: dict[Key, View] = {"a": m.a, "b": m.b, "c": m.c} | dict(enumerate(m.rest, 1))
    if m.c.shape[-1] > 1 and m.c.strides[-1] != 1:
        raise InputError(
            f"{operator.name}: the result must be contiguous along its last axis, "
            f"the stride is {m.c.strides[-1]}"
        )
    *batch, rows, columns = m.c.shape
    turned_a, turned_b = (_transposed(operator.name, x.upper(), views[x]) for x in "ab")
    extent = Extent(rows, columns, m.a.shape[-1], turned_a, turned_b, math.prod(batch))
    # Batches that follow each other in elements and in bytes are one loop.
    elements = tuple(v.strides[:-2] for v in views.values())
    moved = tuple(tuple(homes[v.tensor].offset(s) for s in v.strides[:-2]) for v in views.values())
    axes = coalesce(tuple(batch), (*elements, *moved))
    outer = tuple(Loop(f"batch{i}", count) for i, (count, _) in enumerate(axes))
    moves = {
        key: {loop.name: steps[i] for loop, (_, steps) in zip(outer, axes, strict=True)}
        for i, key in enumerate(views)
    }
    sources = {k: source(v, homes[v.tensor], any(v.strides[:-2])) for k, v in enumerate(m.rest, 1)}
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
