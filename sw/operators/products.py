"""Matrix products: MatMulInteger, and MatMul and Gemm of dequantised operands.

Operands are contiguous along one of their axes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sw.compile.array_tiles import lowered
from sw.compile.matrices import product_problem
from sw.compile.writer import row_compatible
from sw.frontend.importer import Importer
from sw.frontend.node import OnnxNode
from sw.frontend.quantised import BYTES, settled
from sw.frontend.values import Constant, Dequantised, Real, Stored, Structured, Value
from sw.graph.expression import Argument, Expression
from sw.graph.network import MatrixProduct, View
from sw.graph.requantise import LIMITS, apply
from sw.graph.views import broadcast, reshaped
from sw.operators.copies import Copies, matrix_contiguous, rows_contiguous
from sw.operators.elementwise.reals import combined
from sw.operators.registry import LoweredOperator, LoweringContext, imports, legalise, lower, takes_padding
from sw.operators.shapes import moved, places_of
from sw.operators.zero_points import at_edges, common_zero, extended, repeated


@dataclass(frozen=True)
class Zeros:
    """Zero points of an operand: one that is subtracted from all, and what each row or column adds to it.

    `more` broadcasts to the result; None where the zero points are all equal.
    """

    base: int
    more: View | None = None


def zeros(
    importer: Importer, array: np.ndarray | None, hint: str, along: Callable[[np.ndarray], np.ndarray]
) -> Zeros:
    """Zero points from an array; `along` gives it the axes with which it broadcasts to the result."""
    if array is None or array.size == 0:
        return Zeros(0)
    values = array.astype(np.int32)
    base = int(values.flat[0])
    if np.all(values == base):
        return Zeros(base)
    return Zeros(base, importer.constant(along(values - base), f"{hint}.more"))


def product(
    importer: Importer, node: OnnxNode, a: Stored, b: Stored, zero_a: Zeros, zero_b: Zeros, hint: str
) -> tuple[Stored, int]:
    """The product of two operands, int32, and the greatest magnitude that a sum can have."""
    view_a, view_b = a.view, b.view
    vector_a, vector_b = len(view_a.shape) == 1, len(view_b.shape) == 1
    view_a = importer.reshaped(node, view_a, (1, *view_a.shape)) if vector_a else view_a
    view_b = importer.reshaped(node, view_b, (*view_b.shape, 1)) if vector_b else view_b
    if min(len(view_a.shape), len(view_b.shape)) < 2:
        raise node.error("operands must have axes")
    if view_a.shape[-1] != view_b.shape[-2]:
        raise node.error(f"depths of A and B must be equal, not {view_a.shape[-1]} and {view_b.shape[-2]}")
    total = sums(importer, node, view_a, view_b, zero_a.base, zero_b.base, hint)
    limit = _limit(importer, view_a, a.element, zero_a.base, view_b, b.element, zero_b.base)
    corrected = _corrected(importer, node, total, view_a, view_b, zero_a, zero_b, hint)
    limit = limit if corrected is total else (1 << 31) - 1
    core = ((view_a.shape[-2],) if not vector_a else ()) + ((view_b.shape[-1],) if not vector_b else ())
    shape = (*corrected.shape[:-2], *core)
    return Stored(importer.reshaped(node, corrected, shape), "int32"), limit


def sums(importer: Importer, node: OnnxNode, a: View, b: View, zero_a: int, zero_b: int, hint: str) -> View:
    """Sums of products of two stacks of matrices; stacks that share B are one matrix."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    output = importer.tensor(f"{hint}.sum", (*batch, m, n), "int32")
    flat = reshaped(b, (k, n)) if math.prod(b.shape[:-2]) == 1 else None
    rows = reshaped(a, (math.prod(batch) * m, k)) if a.shape[:-2] == batch else None
    left: View | None
    right: View | None
    if flat is not None and rows is not None:
        left, right, result = rows, flat, reshaped(output, (rows.shape[0], n))
    else:
        stack = tuple(s for s in batch if s != 1)
        left = reshaped(broadcast(a, (*batch, m, k)), (*stack, m, k))
        right = reshaped(broadcast(b, (*batch, k, n)), (*stack, k, n))
        result = reshaped(output, (*stack, m, n))
    assert left is not None
    assert right is not None
    assert result is not None
    importer.operators.append(
        MatrixProduct(node.name, node.op, (node.name,), result, left, right, zero_a, zero_b)
    )
    return output


def _limit(importer: Importer, a: View, type_a: str, zero_a: int, b: View, type_b: str, zero_b: int) -> int:
    """The greatest magnitude of a sum; what constants hold is looked at."""

    def reach(element: str, zero: int) -> int:
        low, high = LIMITS[element]
        return max(abs(low - zero), abs(high - zero))

    held_a, held_b = importer.array(a), importer.array(b)
    if held_b is not None:
        column = np.abs(held_b.astype(np.float32) - zero_b).sum(axis=-2, dtype=np.float64).max()
        limit = int(column) * reach(type_a, zero_a)
    elif held_a is not None:
        row = np.abs(held_a.astype(np.float32) - zero_a).sum(axis=-1, dtype=np.float64).max()
        limit = int(row) * reach(type_b, zero_b)
    else:
        limit = a.shape[-1] * reach(type_a, zero_a) * reach(type_b, zero_b)
    return min(limit, (1 << 31) - 1)


def _corrected(
    importer: Importer,
    node: OnnxNode,
    total: View,
    a: View,
    b: View,
    zero_a: Zeros,
    zero_b: Zeros,
    hint: str,
) -> View:
    """Sums for zero points that differ.

    With a' = a - base and b' alike, and da, db what zero points add to it, the sum of (a' - da) (b' - db) is
    the sum of a' b' - da * sum of b' - db * sum of a' + k * da * db.
    """
    if zero_a.more is None and zero_b.more is None:
        return total
    k = a.shape[-1]
    operands: list[View] = [total]

    def operand(view: View) -> Expression:
        operands.append(view)
        return Argument(len(operands) - 1)

    value: Expression = Argument(0)
    if zero_a.more is not None:
        more = operand(zero_a.more)
        ones = importer.constant(np.ones((1, k), np.int8), f"{hint}.ones")
        columns = operand(_row_sums(importer, node, ones, b, zero_b.base, f"{hint}.columns", False))
        value = apply("sub", value, apply("mul", more, columns))
    if zero_b.more is not None:
        more_b = operand(zero_b.more)
        ones = importer.constant(np.ones((k, 1), np.int8), f"{hint}.ones")
        rows = operand(_row_sums(importer, node, ones, a, zero_a.base, f"{hint}.rows", True))
        value = apply("sub", value, apply("mul", more_b, rows))
        if zero_a.more is not None:
            both = apply("mul", apply("mul", more, more_b), k)
            value = apply("add", value, both)
    return importer.elementwise(node, value, operands, total.shape, "int32", f"{hint}.corrected").view


def _row_sums(
    importer: Importer, node: OnnxNode, ones: View, other: View, zero: int, hint: str, rows: bool
) -> View:
    """Sums of the rows (or columns) of an operand less its zero point: a constant, or a product with ones."""
    held = importer.array(other)
    if held is not None:
        total = (held.astype(np.int64) - zero).sum(axis=-1 if rows else -2, keepdims=True)
        return importer.constant(total.astype(np.int32), hint)
    if rows:
        return sums(importer, node, other, ones, zero, 0, hint)
    return sums(importer, node, ones, other, 0, zero, hint)


def zero_points(
    importer: Importer,
    node: OnnxNode,
    index: int,
    operand: Stored,
    shape: tuple[int, ...],
    along: Callable[[np.ndarray], np.ndarray],
) -> Zeros:
    """The zero points that input `index` gives: one, a vector along `along`, or an array of `shape`."""
    if not node.optional(index):
        return Zeros(0)
    value = importer.value(node, index)
    found = value.array.dtype if isinstance(value, Constant) else getattr(value, "element", "real")
    if str(found) != operand.element:
        raise node.error(f"zero points must be {operand.element} like their operand, not {found}")
    size = math.prod(value.shape)
    if size != 1 and value.shape != shape and value.shape != (max(shape),):
        raise node.error(
            f"zero points must be one value, a vector of {max(shape)} or of shape {list(shape)}, "
            f"not {list(value.shape)}"
        )
    if isinstance(value, Constant):
        return zeros(importer, value.array, node.outputs[0], along)
    assert isinstance(value, Stored)
    pattern = along(np.zeros(value.shape, np.int8)).shape
    return Zeros(0, importer.reshaped(node, value.view, pattern))


def _deepened(
    importer: Importer, node: OnnxNode, x: Stored, own: Zeros, other: Stored, depth: int
) -> tuple[Stored, Zeros, Stored]:
    """An operand of one zero point, deeper where zero points differ, and the other operand as deep as it."""
    held = importer.array(own.more) if own.more is not None else None
    if held is None:
        return x, own, other
    zero, fills = common_zero(held + own.base, np.dtype(x.element))
    across = -3 - depth
    again = np.tile(np.arange(other.shape[across]), len(fills) + 1)
    deep = extended(importer, node, x, depth, fills)
    return deep, Zeros(zero), repeated(importer, node, other, across, again)


@imports("MatMulInteger")
def _mat_mul_integer(importer: Importer, node: OnnxNode) -> Value:
    a, b = importer.stored(node, 0, BYTES), importer.stored(node, 1, BYTES)
    rows = (*a.shape[:-2], a.shape[-2], 1) if len(a.shape) > 1 else (1,)
    columns = (*b.shape[:-2], 1, b.shape[-1]) if len(b.shape) > 1 else (1,)
    zero_a = zero_points(
        importer, node, 2, a, rows, lambda z: z[:, None] if z.ndim == 1 and z.size > 1 else z
    )
    zero_b = zero_points(importer, node, 3, b, columns, lambda z: z)
    if (zero_a.more or zero_b.more) and at_edges(importer, node, a, b):
        a, zero_a, b = _deepened(importer, node, a, zero_a, b, -1)
        b, zero_b, a = _deepened(importer, node, b, zero_b, a, -2)
    total, _ = product(importer, node, a, b, zero_a, zero_b, node.outputs[0])
    return total


def dequantised_operand(importer: Importer, node: OnnxNode, value: Value, what: str) -> Dequantised:
    """An operand of 8 bits; raises `InputError` for real numbers that are not dequantised ones."""
    value = settled(importer, node, value)
    if not isinstance(value, Dequantised) or value.element not in BYTES:
        made = f", not from {value.node.place}" if isinstance(value, Real | Structured) else ""
        raise node.error(f"{what} must come from DequantizeLinear of int8 or uint8{made}")
    return value


def _along(values: np.ndarray, shape: tuple[int, ...], depth: int, node: OnnxNode, what: str) -> np.ndarray:
    """Scales or zero points as they broadcast to the result; they must not differ along the depth."""
    if values.size == 1:
        return values.reshape(())
    values = np.broadcast_to(values, shape)
    first = np.take(values, [0], depth)
    if not np.array_equal(np.broadcast_to(first, shape), values):
        raise node.error(f"{what} must not differ along the depth of the product")
    return first


def real_product(importer: Importer, node: OnnxNode, a: Value, b: Value) -> Dequantised:
    """The product of two dequantised operands: sums of whole numbers with the product of the scales."""
    left, right = (dequantised_operand(importer, node, value, what) for value, what in ((a, "A"), (b, "B")))
    vectors = len(left.shape) == 1 or len(right.shape) == 1
    if vectors and not (left.uniform and right.uniform):
        raise node.error("vectors must have one scale and one zero point")
    found = []
    for operand, depth, what in ((left, -1, "A"), (right, -2, "B")):
        scale = _along(operand.scale, operand.shape, depth, node, f"scales of {what}")
        zero = _along(operand.zero, operand.shape, depth, node, f"zero points of {what}")
        found.append((scale, zeros(importer, zero, f"{node.outputs[0]}.{what}", lambda z: z)))
    (scale_a, zero_a), (scale_b, zero_b) = found
    total, limit = product(
        importer,
        node,
        Stored(left.view, left.element),
        Stored(right.view, right.element),
        zero_a,
        zero_b,
        node.outputs[0],
    )
    scale = (scale_a * scale_b).astype(np.float32)
    scale = scale if scale.size == 1 else np.broadcast_to(scale, total.shape)
    return Dequantised(total.view, "int32", scale, np.asarray(0), limit)


@imports("MatMul")
def _mat_mul(importer: Importer, node: OnnxNode) -> Value:
    return real_product(importer, node, importer.value(node, 0), importer.value(node, 1))


@imports("Gemm")
def _gemm(importer: Importer, node: OnnxNode) -> Value:
    def operand(index: int, attribute: str) -> Value:
        value = importer.value(node, index)
        return (
            moved(importer, node, value, places_of(value).T) if node.attributes.get(attribute, 0) else value
        )

    result: Value = real_product(importer, node, operand(0, "transA"), operand(1, "transB"))
    alpha, beta = (float(node.attributes.get(name, 1.0)) for name in ("alpha", "beta"))
    if alpha != 1:
        result = combined(importer, node, "Mul", [result, Constant(np.asarray(alpha, np.float32))])
    if node.optional(2) and beta != 0:
        bias = importer.value(node, 2)
        if beta != 1:
            bias = combined(importer, node, "Mul", [bias, Constant(np.asarray(beta, np.float32))])
        result = combined(importer, node, "Add", [result, bias])
    return result


@legalise.register
def _(operator: MatrixProduct, copies: Copies) -> None:
    a, b = (
        view if matrix_contiguous(view) else copies.copy(operator, view, what, matrices=True)
        for view, what in ((operator.a, "A"), (operator.b, "B"))
    )
    copies.append(dataclasses.replace(operator, a=a, b=b), rows_contiguous(operator.output))


@takes_padding.register
def _(operator: MatrixProduct, view: View, row: int) -> bool:
    # Rows of one element would be taken for neighbours.
    return row > 1 and row_compatible(view, row)


@lower.register
def _(operator: MatrixProduct, context: LoweringContext) -> LoweredOperator:
    """Raises `InputError` for operands that are contiguous along no axis, and where no tile fits."""
    return lowered(product_problem(operator, context.homes, context.config), context.room, context.allowed)
