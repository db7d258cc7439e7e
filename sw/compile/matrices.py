"""Matrix products as problems of the array: which axes of their views are m, n, k, and which are batches."""

from __future__ import annotations

import math

from hw.config import MachineConfig
from hw.errors import InputError
from sw.compile.array import ArrayProblem, Homes, Key
from sw.compile.forms import Loop
from sw.compile.operands import source
from sw.graph.network import MatrixProduct, View
from sw.graph.views import reshaped, sliced
from sw.layout import coalesce
from sw.tiling.blocking import Extent


def matrices(operator: MatrixProduct) -> dict[Key, View]:
    """The views of a product, without batch axes of size 1 and with batches merged into one tall product."""
    views = _views(operator)
    batch = [n for n in operator.output.shape[:-2] if n > 1]
    found: dict[Key, View | None] = {k: reshaped(v, (*batch, *v.shape[-2:])) for k, v in views.items()}
    while all(found.values()):
        views = {key: view for key, view in found.items() if view is not None}
        if len(views["c"].shape) == 2:
            break
        found = {key: _taller(view, shared=key == "b") for key, view in views.items()}
    return views


def merged_view(operator: MatrixProduct, view: View) -> View:
    """A view of the product as `matrices` has it: its rows may be longer than those of the view."""
    keys = [key for key, own in _views(operator).items() if own == view]
    return matrices(operator)[keys[0]]


def _views(operator: MatrixProduct) -> dict[Key, View]:
    rest = operator.epilogue.operands if operator.epilogue else ()
    return {"a": operator.a, "b": operator.b, "c": operator.output, **dict(enumerate(rest, 1))}


def _taller(view: View, *, shared: bool) -> View | None:
    """The last batch axis as more rows, or dropped for a `shared` operand; None if that is impossible."""
    *batch, last, rows, columns = view.shape
    if not shared:
        return reshaped(view, (*batch, last * rows, columns))
    return reshaped(sliced(view, -3, 0, 1), (*batch, rows, columns)) if view.strides[-3] == 0 else None


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
    # Batches that are contiguous in elements and in bytes, and lie in rows alike, share a loop.
    elements, steps = tuple(v.strides[:-2] for v in views.values()), list[tuple[int, ...]]()
    for view, own in zip(views.values(), elements, strict=True):
        home = homes[view.tensor]
        steps += [tuple(home.offset(s) for s in own), tuple(s // home.row for s in own)]
    axes = coalesce(tuple(batch), (*elements, *steps))
    outer = tuple(Loop(f"batch{i}", count) for i, (count, _) in enumerate(axes))
    moves = {
        key: {loop.name: moved[i] for loop, (_, moved) in zip(outer, axes, strict=True)}
        for i, key in enumerate(views)
    }
    sources = {
        k: source(v, homes[v.tensor], any(v.strides[:-2])) for k, v in views.items() if isinstance(k, int)
    }
    zeros = operator.zero_a, operator.zero_b
    return ArrayProblem(operator, config, homes, extent, views, moves, outer, sources, zeros)


def _transposed(name: str, what: str, view: View) -> bool:
    """Whether the first of the last two axes is contiguous, not the second.

    Raises `InputError` if neither is.
    """
    (rows, columns), (row, column) = view.shape[-2:], view.strides[-2:]
    if column == 1 or columns == 1:
        return False
    if row == 1 or rows == 1:
        return True
    raise InputError(
        f"{name}: operand {what} must be contiguous along one of its axes, strides are {row} and {column}"
    )
