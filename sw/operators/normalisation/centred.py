"""Normalisation written with smaller operators and quantised in between: its sums are integers.

With n elements x along the axes, and S their sum, n times (x - mean) is n*x - S. With Q the sum of squares,
n^2 times the variance is n*Q - S^2. It is exact up to n = 362; for more elements, the lowest bits are dropped
so that it fits 32 bits.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np

from sw.frontend.importer import Importer
from sw.frontend.node import OnnxNode
from sw.frontend.quantised import BYTES, row_operand
from sw.frontend.sums import WORD
from sw.frontend.values import Constant, Dequantised, Real, Structured, Value
from sw.frontend.windows import reduced_axes
from sw.graph.expression import Argument, Expression
from sw.graph.network import View, whole
from sw.graph.requantise import apply, lookup_of
from sw.graph.views import broadcast, reshaped, same_places, transposed
from sw.operators.elementwise.reals import combined
from sw.operators.products import sums
from sw.operators.registry import REAL_HANDLERS, imports

#: Most elements of a mean, so that a difference has 24 bits.
_MOST = 1 << 15
#: Bits of the lower part of a squared byte, which is split in two.
_LOW = 7


def columns(importer: Importer, node: OnnxNode, view: View, chosen: Sequence[int]) -> View:
    """Elements along axes as columns of one or more matrices, one per position along the other axes."""
    rest = [a for a in range(len(view.shape)) if a not in chosen]
    kept, count = [view.shape[a] for a in rest], math.prod(view.shape[a] for a in chosen)
    moved = transposed(view, (*rest, *chosen))
    rows = reshaped(moved, (math.prod(kept), count))
    if rows is None:
        rows = importer.reshaped(node, moved, (*kept, count) if kept else (1, count))
    return transposed(rows, (*range(len(rows.shape) - 2), -1, -2))


def summed(importer: Importer, node: OnnxNode, matrix: View, zero: int, name: str) -> View:
    """The sums of columns of elements minus a number: a row of ones times the matrix."""
    ones = importer.constant(np.ones((1, matrix.shape[-2]), np.int8), f"{name}.ones")
    return sums(importer, node, ones, matrix, 0, zero, name)


def added(
    importer: Importer, node: OnnxNode, view: View, chosen: Sequence[int], zero: int, name: str
) -> View:
    """Sums of elements minus a number over axes, which are kept with size 1."""
    total = summed(importer, node, columns(importer, node, view, chosen), zero, name)
    shape = [1 if a in chosen else size for a, size in enumerate(view.shape)]
    return importer.reshaped(node, total, shape)


# Replaces the general subtraction of real numbers.
@imports("Sub", into=REAL_HANDLERS)
def _difference(importer: Importer, node: OnnxNode) -> Value:
    values = [importer.value(node, i) for i in range(2)]
    return _less_mean(importer, node, *values) or combined(importer, node, node.op, values)


def _less_mean(importer: Importer, node: OnnxNode, x: Value, mean: Value) -> Dequantised | None:
    """A value minus its mean; None if the other operand is something else."""
    if not (isinstance(x, Dequantised) and x.uniform and x.element in BYTES and isinstance(mean, Structured)):
        return None
    reduction = mean.node
    if reduction.op != "ReduceMean" or not reduction.attributes.get("keepdims", 1):
        return None
    averaged = importer.value(reduction, 0)
    if not (isinstance(averaged, Dequantised) and averaged.uniform and same_places(averaged.view, x.view)):
        return None
    if averaged.scale.item() != x.scale.item():
        return None
    chosen = reduced_axes(importer, reduction, len(x.shape))
    count = math.prod(x.shape[a] for a in chosen or ())
    if chosen is None or count > _MOST:
        return None
    name = node.outputs[0]
    total = broadcast(added(importer, node, x.view, chosen, 0, f"{name}.mean"), x.shape)
    value = apply("sub", apply("mul", Argument(0), count), Argument(1))
    view = importer.elementwise(node, value, [x.view, total], x.shape, "int32", f"{name}.centred").view
    importer.centred[view.tensor] = (x, tuple(chosen))
    scale = np.asarray(float(x.scale.item()) / count, np.float32)
    return Dequantised(view, "int32", scale, np.asarray(0), 255 * count)


def _origin(importer: Importer, d: Dequantised) -> tuple[Dequantised, list[int]] | None:
    """The value from which the mean was subtracted, and the mean's axes as seen by this view."""
    x, chosen = importer.centred.get(d.view.tensor, (None, ()))
    if x is None or len(d.shape) != len(x.shape):
        return None
    held = whole(importer.tensors[d.view.tensor])
    for order in itertools.permutations(range(len(d.shape))):
        if same_places(transposed(held, order), d.view):
            seen = dataclasses.replace(x, view=transposed(x.view, order))
            return seen, sorted(order.index(axis) for axis in chosen)
    return None


@imports("ReduceSum", into=REAL_HANDLERS)
def _sum(importer: Importer, node: OnnxNode) -> Value:
    """The sum over axes of values with one scale, as integers."""
    x = row_operand(importer, node)
    chosen = reduced_axes(importer, node, len(x.shape))
    if chosen is None:
        return x
    reach = x.reach * math.prod(x.shape[a] for a in chosen)
    if reach > WORD:
        raise node.error(f"sums reach {reach}, more than the {WORD} of 32 bits")
    view = added(importer, node, x.view, chosen, int(x.zero.item()), node.outputs[0])
    if not node.attributes.get("keepdims", 1):
        view = importer.reshaped(node, view, [n for a, n in enumerate(view.shape) if a not in chosen])
    return Dequantised(view, "int32", x.scale.reshape(()), np.asarray(0), reach)


def variance(importer: Importer, node: OnnxNode, value: Value) -> Dequantised | None:
    """The mean of squares of a value minus its mean; None for the mean of anything else."""
    match value:
        case Real(op="Pow", inputs=(Dequantised() as d, Constant(two))) if np.all(two == 2):
            pass
        case Real(op="Mul", inputs=(Dequantised() as d, Dequantised() as other)) if same_places(
            d.view, other.view
        ):
            pass
        case _:
            return None
    found = _origin(importer, d)
    if found is None or reduced_axes(importer, node, len(d.shape)) != found[1]:
        return None
    x, chosen = found
    count, name = math.prod(x.shape[a] for a in chosen), node.outputs[0]
    zero = 128 if x.element == "uint8" else 0
    numbers = np.arange(-128, 128)
    parts = []
    for half in (numbers**2 >> _LOW, numbers**2 & (1 << _LOW) - 1):
        table = lookup_of(half, Argument(0), x.element)
        squares = importer.elementwise(node, table, [x.view], x.shape, "uint8", f"{name}.squares").view
        parts.append(added(importer, node, squares, chosen, 0, f"{name}.square"))
    total = added(importer, node, x.view, chosen, zero, f"{name}.sum")
    drop = max(0, math.ceil(2 * math.log2(count) + 14 - 30))
    squared: Expression = apply("add", apply("shl", Argument(0), _LOW), Argument(1))
    square = apply("mul_shift_round", Argument(2), Argument(2), drop)
    difference = apply("sub", apply("mul_shift_round", squared, count, drop), square)
    operands = [*parts, total]
    view = importer.elementwise(node, difference, operands, total.shape, "int32", f"{name}.variance").view
    if not node.attributes.get("keepdims", 1):
        kept = [size for a, size in enumerate(view.shape) if a not in chosen]
        view = importer.reshaped(node, view, kept)
    scale = np.asarray(float(x.scale.item()) ** 2 * 2.0**drop / count**2, np.float32)
    return Dequantised(view, "int32", scale, np.asarray(0), min(count * count << 14 >> drop, WORD))
