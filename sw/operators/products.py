"""Matrix products: MatMulInteger, and MatMul and Gemm of dequantised operands.

Operands are contiguous along one of their axes.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sw.compile.array_tiles import lowered
from sw.compile.matrices import merged_view, product_problem
from sw.compile.writer import row_compatible
from sw.frontend.importer import Importer
from sw.frontend.node import OnnxNode
from sw.frontend.quantised import BYTES, dequantised_operand
from sw.frontend.sums import WORD
from sw.frontend.values import Constant, Dequantised, Stored, Value
from sw.graph.expression import Argument, Expression
from sw.graph.host import SUMS
from sw.graph.network import MatrixProduct, View
from sw.graph.requantise import LIMITS, apply
from sw.graph.views import broadcast, reshaped, sliced
from sw.operators.copies import Copies, matrix_contiguous, rows_contiguous
from sw.operators.elementwise.reals import combined
from sw.operators.registry import LoweredOperator, LoweringContext, imports, legalise, lower, takes_padding
from sw.operators.shapes import moved, places_of
from sw.operators.zero_points import Zeros, at_edges, deepened, zero_points, zeros

_DEPTH = "must not differ along the depth of the product"
#: An 8-bit operand, as integers or as real numbers.
Bytes = Stored | Dequantised


def product(
    importer: Importer, node: OnnxNode, a: Bytes, b: Bytes, zero_a: Zeros, zero_b: Zeros
) -> tuple[Stored, int]:
    """The product of two operands, int32, and the largest magnitude of a sum before wrapping."""
    vector_a, vector_b = len(a.shape) == 1, len(b.shape) == 1
    view_a = importer.reshaped(node, a.view, (1, *a.shape)) if vector_a else a.view
    view_b = importer.reshaped(node, b.view, (*b.shape, 1)) if vector_b else b.view
    if min(len(view_a.shape), len(view_b.shape)) < 2:
        raise node.error("operands must have axes")
    if view_a.shape[-1] != view_b.shape[-2]:
        raise node.error(f"depths of A and B must be equal, not {view_a.shape[-1]} and {view_b.shape[-2]}")
    hint = node.outputs[0]
    total = sums(importer, node, view_a, view_b, zero_a.base, zero_b.base, hint)
    sides = (
        Side(view_a, a.element, zero_a.all(importer), (-1,)),
        Side(view_b, b.element, zero_b.all(importer), (-2,)),
    )
    limit = greatest_sum(importer, *(sides if importer.array(view_b) is None else sides[::-1]))
    corrected = _corrected(importer, node, total, view_a, view_b, zero_a, zero_b)
    core = ((view_a.shape[-2],) if not vector_a else ()) + ((view_b.shape[-1],) if not vector_b else ())
    shape = (*corrected.shape[:-2], *core)
    return Stored(importer.reshaped(node, corrected, shape), "int32"), limit


def sums(importer: Importer, node: OnnxNode, a: View, b: View, zero_a: int, zero_b: int, hint: str) -> View:
    """Sums of products of two stacks of matrices; stacks that share B become one matrix."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    output = importer.tensor(f"{hint}.sum", (*batch, m, n), "int32")
    flat = reshaped(b, (k, n)) if math.prod(b.shape[:-2]) == 1 else None
    rows = reshaped(a, (math.prod(batch) * m, k)) if a.shape[:-2] == batch else None
    if flat is not None and rows is not None:
        views = [rows, flat, reshaped(output, (rows.shape[0], n))]
    else:
        stack = tuple(s for s in batch if s != 1)
        views = [
            reshaped(broadcast(a, (*batch, m, k)), (*stack, m, k)),
            reshaped(broadcast(b, (*batch, k, n)), (*stack, k, n)),
            reshaped(output, (*stack, m, n)),
        ]
    left, right, result = (view for view in views if view is not None)
    importer.operators.append(
        MatrixProduct(node.name, node.op, (node.name,), result, left, right, zero_a, zero_b)
    )
    return output


@dataclass(frozen=True)
class Side:
    """An operand of sums of products: its elements, its zero points, and the summed axes.

    `zero` broadcasts to the elements; None if it is computed.
    """

    view: View
    element: str
    zero: np.ndarray | None
    depth: tuple[int, ...]

    @property
    def reach(self) -> int:
        """The largest magnitude of an element minus the zero point."""
        low, high = LIMITS[self.element]
        if self.zero is None:
            return high - low
        return max(high - int(self.zero.min()), int(self.zero.max()) - low)


def greatest_sum(importer: Importer, weights: Side, other: Side) -> int:
    """The largest magnitude of a sum, using the values of constant weights."""
    held = importer.array(weights.view)
    if held is None or weights.zero is None:
        each = math.prod(weights.view.shape[axis] for axis in weights.depth) * weights.reach
    else:
        magnitudes = np.abs(held.astype(np.float32) - weights.zero.astype(np.float32))
        each = int(magnitudes.sum(axis=weights.depth, dtype=np.float64).max())
    return each * other.reach


def depths(node: OnnxNode, limit: int, depth: int, each: int) -> list[tuple[int, int]]:
    """Start and length of the parts into which sums up to `limit` are split so that each fits 32 bits.

    `each` is the most that one step of depth adds. Raises `InputError` if sums cannot be split, or must not
    be because onnxruntime's wrap.
    """
    if limit <= WORD:
        return [(0, depth)]
    if node.attributes.get(SUMS):
        raise node.error(
            f"sums of products reach {limit}, more than {WORD}, where sums of 32 bits wrap; fewer or smaller "
            f"products, or DequantizeLinear and QuantizeLinear around the operator, are needed"
        )
    most = WORD // each
    if not most:
        raise node.error(f"sums of products reach {each} in each channel, more than the {WORD} of 32 bits")
    count = -(-depth // most)
    starts = [depth * i // count for i in range(count + 1)]
    return [(start, end - start) for start, end in itertools.pairwise(starts)]


def part_of(value: Dequantised, axis: int, start: int, count: int) -> Dequantised:
    """Successive elements of an axis along which scale and zero point are constant."""
    return dataclasses.replace(value, view=sliced(value.view, axis % len(value.shape), start, count))


def _corrected(
    importer: Importer, node: OnnxNode, total: View, a: View, b: View, zero_a: Zeros, zero_b: Zeros
) -> View:
    """Sums for zero points that differ.

    With a' = a - base and b' alike, and da, db what zero points add to it, the sum of (a' - da) (b' - db) is
    the sum of a' b' - da * sum of b' - db * sum of a' + k * da * db.
    """
    operands = [total]
    value: Expression = Argument(0)
    added: list[Expression] = []
    for own, other, zero, rows in ((zero_a, b, zero_b.base, False), (zero_b, a, zero_a.base, True)):
        if own.more is not None:
            added.append(Argument(len(operands)))
            factors = apply("mul", added[-1], Argument(len(operands) + 1))
            operands += [own.more, _depth_sums(importer, node, other, zero, rows)]
            value = apply("sub", value, factors)
    if not added:
        return total
    if len(added) == 2:
        value = apply("add", value, apply("mul", apply("mul", *added), a.shape[-1]))
    hint = f"{node.outputs[0]}.corrected"
    return importer.elementwise(node, value, operands, total.shape, "int32", hint).view


def _depth_sums(importer: Importer, node: OnnxNode, other: View, zero: int, rows: bool) -> View:
    """Sums of the rows (or columns) of an operand minus its zero point: constant, or a product with ones."""
    hint = f"{node.outputs[0]}.{'rows' if rows else 'columns'}"
    held = importer.array(other)
    if held is not None:
        total = (held.astype(np.int64) - zero).sum(axis=-1 if rows else -2, keepdims=True)
        return importer.constant(total.astype(np.int32), hint)
    shape = (other.shape[-1], 1) if rows else (1, other.shape[-2])
    ones = importer.constant(np.ones(shape, np.int8), f"{node.outputs[0]}.ones")
    if rows:
        return sums(importer, node, other, ones, zero, 0, hint)
    return sums(importer, node, ones, other, 0, zero, hint)


@imports("MatMulInteger")
def _mat_mul_integer(importer: Importer, node: OnnxNode) -> Value:
    a, b = importer.stored(node, 0, BYTES), importer.stored(node, 1, BYTES)
    rows = (*a.shape[:-2], a.shape[-2], 1) if len(a.shape) > 1 else (1,)
    columns = (*b.shape[:-2], 1, b.shape[-1]) if len(b.shape) > 1 else (1,)
    zero_a = zero_points(
        importer, node, 2, a, rows, lambda z: z[:, None] if z.ndim == 1 and z.size > 1 else z
    )
    zero_b = zero_points(importer, node, 3, b, columns, lambda z: z)
    if at_edges(importer, node, a, b):
        if (given := zero_a.array(importer)) is not None:
            a, zero_a, b = deepened(importer, node, a, given, -1, b, -2)
        if (given := zero_b.array(importer)) is not None:
            b, zero_b, a = deepened(importer, node, b, given, -2, a, -1)
    total, _ = product(importer, node, a, b, zero_a, zero_b)
    return total


def constant_along(
    node: OnnxNode, values: np.ndarray, shape: tuple[int, ...], axes: Sequence[int], text: str
) -> np.ndarray:
    """Scales or zero points of a shape, with size 1 along axes; an error if they vary there."""
    if values.size == 1:
        return values.reshape(())
    values = np.broadcast_to(values, shape)
    first = values[tuple(slice(0, 1) if axis in axes else slice(None) for axis in range(len(shape)))]
    if not np.array_equal(np.broadcast_to(first, shape), values):
        raise node.error(text)
    return first


def scales(importer: Importer, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Scales of sums of products, rounded to float32 as in onnxruntime; exact beside fixed point."""
    return np.asarray(a.astype(np.float64) * b if importer.limbs else (a * b).astype(np.float32))


def real_product(importer: Importer, node: OnnxNode, a: Value, b: Value) -> Value:
    """The product of two dequantised operands: integer sums with the product of the scales.

    Sums that exceed 32 bits become the sum of several.
    """
    left = dequantised_operand(importer, node, a, "A")
    right = dequantised_operand(importer, node, b, "B")
    vectors = len(left.shape) == 1 or len(right.shape) == 1
    if vectors and not (left.uniform and right.uniform):
        raise node.error("vectors must have one scale and one zero point")
    found = []
    for operand, depth, name in ((left, -1, "A"), (right, -2, "B")):
        shape, axes = operand.shape, (len(operand.shape) + depth,)
        scale, zero = (
            constant_along(node, values, shape, axes, f"{what} of {name} {_DEPTH}")
            for values, what in ((operand.scale, "scales"), (operand.zero, "zero points"))
        )
        found.append((scale, zeros(importer, zero, f"{node.outputs[0]}.{name}", lambda z: z)))
    (scale_a, zero_a), (scale_b, zero_b) = found
    scale = scales(importer, scale_a, scale_b)

    def made(x: Dequantised, y: Dequantised) -> tuple[Dequantised, int]:
        total, limit = product(importer, node, x, y, zero_a, zero_b)
        wide = scale if scale.size == 1 else np.broadcast_to(scale, total.shape)
        return Dequantised(total.view, "int32", wide, np.asarray(0), min(limit, WORD)), limit

    before = len(importer.operators)
    total, limit = made(left, right)
    reaches = [Side(x.view, x.element, x.zero, ()).reach for x in (left, right)]
    parts = depths(node, limit, left.shape[-1], math.prod(reaches))
    if len(parts) == 1:
        return total
    del importer.operators[before:]
    pieces = [made(part_of(left, -1, *p), part_of(right, -min(2, len(right.shape)), *p))[0] for p in parts]
    named = dataclasses.replace(node, inputs=tuple(piece.view.tensor for piece in pieces))
    return combined(importer, named, "Sum", pieces)


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

    result = real_product(importer, node, operand(0, "transA"), operand(1, "transB"))
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
    return row > 1 and row_compatible(merged_view(operator, view), row)


@lower.register
def _(operator: MatrixProduct, context: LoweringContext) -> LoweredOperator:
    """Raises `InputError` for operands that are not contiguous along an axis, and if no tile fits."""
    return lowered(product_problem(operator, context.homes, context.config), context.room, context.allowed)
