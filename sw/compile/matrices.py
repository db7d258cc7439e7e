"""Products of a network as the tiler sees them: which axes of the views are m, n, k and which are batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from hw.config import MachineConfig
from hw.errors import InputError
from sw.arrangement import Loop, Nest, extent_of
from sw.compile.memory import Home
from sw.graph.network import MatrixProduct, View
from sw.layout import Placement, coalesce
from sw.problem import Product
from sw.tiling.blocking import Blocking

Homes = Mapping[str, Home]


@dataclass(frozen=True)
class Matrices:
    """A product with at most the batch axes that it needs; `rest` are the operands of its epilogue."""

    a: View
    b: View
    c: View
    rest: tuple[View, ...]

    @property
    def views(self) -> tuple[View, ...]:
        """All of them."""
        return (self.a, self.b, self.c, *self.rest)


def matrices(operator: MatrixProduct) -> Matrices:
    """The views of a product, without batch axes of one and with those that are rows of one tall product."""
    rest = operator.epilogue.operands if operator.epilogue else ()
    made = Matrices(operator.a, operator.b, operator.output, rest)
    for axis in range(len(operator.output.shape) - 3, -1, -1):
        if made.c.shape[axis] == 1:
            made = _changed(made, lambda v, axis=axis: _without(v, axis))  # type: ignore[misc]
    while len(made.c.shape) > 2 and _joins(made):
        made = Matrices(
            _joined(made.a),
            _without(made.b, len(made.b.shape) - 3),
            _joined(made.c),
            tuple(_joined(v) for v in made.rest),
        )
    a, b, c = (_without_idle_strides(v) for v in (made.a, made.b, made.c))
    return Matrices(a, b, c, made.rest)


def _without_idle_strides(view: View) -> View:
    """Strides of axes of one element mean nothing: 0."""
    strides = tuple(s if n > 1 else 0 for n, s in zip(view.shape, view.strides, strict=True))
    return dataclasses.replace(view, strides=strides)


def _changed(m: Matrices, change: Callable[[View], View]) -> Matrices:
    return Matrices(change(m.a), change(m.b), change(m.c), tuple(change(v) for v in m.rest))


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


def problem_of(operator: MatrixProduct, m: Matrices, homes: Homes) -> Product:
    """The product as a problem of the tiler; raises `InputError` for views that are not contiguous."""
    rows, depth = m.a.shape[-2:]
    batch = m.c.shape[:-2]
    if m.c.shape[-1] > 1 and m.c.strides[-1] != 1:
        raise InputError(
            f"{operator.name}: the result must be contiguous along its last axis, "
            f"the stride is {m.c.strides[-1]}"
        )
    return Product(
        rows,
        depth,
        m.c.shape[-1],
        homes[m.a.tensor].tensor.element,
        homes[m.b.tensor].tensor.element,
        operator.zero_a,
        operator.zero_b,
        _transposed(operator.name, "A", m.a),
        _transposed(operator.name, "B", m.b),
        batch,
        batch,
    )


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


def line(view: View, transposed: bool) -> int:
    """Elements from one contiguous row of a matrix to the next."""
    return view.strides[-1] if transposed else view.strides[-2]


def placement(name: str, view: View, home: Home, step: int) -> Placement:
    """A view as the emitter of products knows operands: an address and a pitch."""
    address = home.address + home.offset(view.offset)
    return Placement(name, address, view.shape, np.dtype(home.tensor.element), home.offset(step))


def nest(
    operator: MatrixProduct, m: Matrices, problem: Product, t: Blocking, homes: Homes, config: MachineConfig
) -> Nest:
    """Loops, and bytes that operands move on."""
    steps_a, steps_b, steps_c = (
        line(m.a, problem.transposed_a),
        line(m.b, problem.transposed_b),
        m.c.strides[-2],
    )
    a = placement("A", m.a, homes[m.a.tensor], steps_a)
    b = placement("B", m.b, homes[m.b.tensor], steps_b)
    c = placement("C", m.c, homes[m.c.tensor], steps_c)
    size = homes[m.c.tensor].itemsize
    steps = {
        "a": {
            "m": t.partition_m * (1 if problem.transposed_a else a.pitch),
            "k": t.partition_k * (a.pitch if problem.transposed_a else 1),
        },
        "b": {
            "n": t.partition_n * (b.pitch if problem.transposed_b else 1),
            "k": t.partition_k * (1 if problem.transposed_b else b.pitch),
        },
        "c": {"m": t.partition_m * c.pitch, "n": size * t.partition_n},
    }
    extent = extent_of(problem)
    loops = []
    for i, (count, _, own) in enumerate(batches(m, homes)):
        loops.append(Loop(f"batch{i}", count))
        for tensor, step in zip("abc", own, strict=False):
            steps[tensor][f"batch{i}"] = step
    for axis in "mnk" if t.m_outermost else "nmk":
        count = -(-getattr(extent, axis) // getattr(t, f"partition_{axis}"))
        if count > 1:
            loops.append(Loop(axis, count))
    return Nest(config, problem, extent, t, tuple(loops), steps, {"a": a, "b": b, "c": c})


def batches(m: Matrices, homes: Homes) -> list[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    """Loops over batches: how often, and for every view the elements and the bytes that it moves on."""
    elements = tuple(v.strides[:-2] for v in m.views)
    moved = tuple(tuple(homes[v.tensor].offset(s) for s in v.strides[:-2]) for v in m.views)
    views = len(m.views)
    axes = coalesce(m.c.shape[:-2], (*elements, *moved))
    return [(count, steps[:views], steps[views:]) for count, steps in axes]
