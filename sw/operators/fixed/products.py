"""Products in fixed point: operands are split into bytes, whose products the array computes.

x = sum over i of 256^i x_i, with a signed highest byte if x is signed. So every operator that is linear in
its operands is a sum of the same operator on bytes. 8-bit operands and constants are split the same way.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sw.frontend.importer import Handler, Importer
from sw.frontend.node import OnnxNode
from sw.frontend.quantised import BYTES, settled
from sw.frontend.sums import WORD
from sw.frontend.values import Constant, Dequantised, FixedPoint, Real, Reals, Value
from sw.graph.expression import Argument
from sw.graph.network import View
from sw.graph.requantise import apply
from sw.operators.elementwise.reals import held
from sw.operators.fixed.bounds import KNOWN, Bound, bound
from sw.operators.fixed.elements import bits_of, fixed
from sw.operators.normalisation.centred import added

#: Bits per byte.
BYTE = 8


@dataclass(frozen=True)
class Bytes:
    """A real operand as a sum of 8-bit values; `cut` is the most by which an element differs from the sum.

    For constants, `total` is the largest sum of magnitudes over the summed axes, and `off` that of the
    differences.
    """

    parts: tuple[Dequantised, ...]
    known: Bound
    cut: float = 0.0
    total: float | None = None
    off: float = 0.0


def _cut(importer: Importer, node: OnnxNode, x: FixedPoint, limbs: int) -> Bytes:
    """A fixed-point tensor as this many bytes: their sum is the tensor, rounded."""
    key = (x.view, limbs)
    if key not in importer.points:
        importer.points[key] = _made(importer, node, x, limbs)
    found: Bytes = importer.points[key]
    return found


def _made(importer: Importer, node: OnnxNode, x: FixedPoint, limbs: int) -> Bytes:
    signed = x.low - x.error < 0
    most = limbs * BYTE - signed
    drop = max(0, x.reach.bit_length() - most)
    drop += (x.reach + (1 << drop >> 1)) >> drop >= 1 << most
    whole = apply("mul_shift_round", Argument(0), 1, drop) if drop else Argument(0)
    reach = (x.reach + (1 << drop >> 1)) >> drop
    count = -(-max(1, reach.bit_length() + signed) // BYTE)
    parts = []
    for i in range(count):
        last = i == count - 1
        element = "int8" if last and signed else "uint8"
        value = apply("shr", whole, BYTE * i)
        value = value if last else apply("and", value, 255)
        hint = f"{node.outputs[0]}.byte{i}"
        view = importer.elementwise(node, value, [x.view], x.shape, element, hint).view
        own = (reach >> BYTE * i) + 1 if last else 255
        scale = np.asarray(2.0 ** (BYTE * i + drop - bits_of(x)), np.float32)
        parts.append(Dequantised(view, element, scale, np.asarray(0, np.int64), own))
    cut = (1 << drop >> 1) * 2.0 ** -bits_of(x)
    return Bytes(tuple(parts), Bound(x.low, x.high, x.error), cut)


def _constant(
    importer: Importer, node: OnnxNode, array: np.ndarray, axis: int | None, summed: tuple[int, ...]
) -> Bytes:
    """Constants as bytes, with a scale for each element of an axis."""
    limbs = max(2, importer.limbs)
    others = tuple(a for a in range(array.ndim) if axis is None or a != axis % array.ndim)
    most = (1 << (limbs * BYTE - 1)) - 1
    greatest = np.abs(array).max(axis=others, keepdims=True).astype(np.float64)
    scale = np.maximum(greatest / most, 2.0**-60).astype(np.float32).astype(np.float64)
    whole = np.clip(np.rint(array / scale), -most - 1, most).astype(np.int32)
    parts = []
    for i in range(limbs):
        last = i == limbs - 1
        byte = (whole >> BYTE * i).astype(np.int8) if last else (whole >> BYTE * i & 255).astype(np.uint8)
        view = importer.constant(byte, f"{node.outputs[0]}.weights{i}")
        wide = (scale * 2.0 ** (BYTE * i)).astype(np.float32)
        wide = wide.reshape(()) if wide.size == 1 else np.broadcast_to(wide, array.shape)
        parts.append(Dequantised(view, str(byte.dtype), wide, np.asarray(0, np.int64), 128 if last else 255))
    off = _greatest_sum(array - whole * scale, summed)
    return Bytes(tuple(parts), bound(Constant(array)), 0.0, _greatest_sum(array, summed), off)


def _greatest_sum(array: np.ndarray, axes: tuple[int, ...]) -> float:
    return float(np.abs(array).sum(axis=axes, dtype=np.float64).max())


def _operand(
    importer: Importer, node: OnnxNode, value: Value, axis: int | None, summed: tuple[int, ...]
) -> Bytes:
    """An operand of a product as bytes."""
    value = settled(importer, node, value)
    array = held(importer, value)
    if isinstance(value, Dequantised) and value.element in BYTES:
        return Bytes((value,), bound(value), total=None if array is None else _greatest_sum(array, summed))
    if array is not None:
        return _constant(importer, node, array, axis, summed)
    return _cut(importer, node, fixed(importer, node, value), importer.limbs)


@dataclass(frozen=True)
class Linear:
    """An operator that is linear in two operands: the channels of each, and the summed axes.

    Axes are those of the operands of the node.
    """

    channels: Callable[[OnnxNode, int], int | None]
    summed: Callable[[OnnxNode, int, int], tuple[int, ...]]


def _matrix_axis(node: OnnxNode, index: int) -> int:
    """The axis of an operand of MatMul or Gemm that is not summed over, counted from the end."""
    turned = bool(node.attributes.get(("transA", "transB")[index], 0)) if node.op == "Gemm" else False
    return (-2, -1)[index] if not turned else (-1, -2)[index]


LINEAR: dict[str, Linear] = {
    **dict.fromkeys(
        ("MatMul", "Gemm"),
        Linear(
            _matrix_axis,
            lambda node, index, rank: (-1 if rank == 1 else -3 - _matrix_axis(node, index),),
        ),
    ),
    "Conv": Linear(
        lambda node, index: 0 if index else None,
        lambda node, index, rank: tuple(range(1, rank)) if index else tuple(range(rank)),
    ),
    "ConvTranspose": Linear(
        lambda node, index: None,
        lambda node, index, rank: (0, *range(2, rank)) if index else tuple(range(rank)),
    ),
}


def linear(importer: Importer, node: OnnxNode, handler: Handler) -> Real:
    """A product of operands in fixed point: the sum of the products of their bytes, plus the bias."""
    how = LINEAR[node.op]
    values = [importer.value(node, i) for i in range(2)]
    ranks = [len(v.shape) for v in values]
    axes = [None if rank < 2 else how.channels(node, i) for i, rank in enumerate(ranks)]
    over = [how.summed(node, i, rank) for i, rank in enumerate(ranks)]
    operands = [_operand(importer, node, *of) for of in zip(values, axes, over, strict=True)]
    found: list[Reals] = []
    for i, a in enumerate(operands[0].parts):
        for j, b in enumerate(operands[1].parts):
            names = [f"{node.outputs[0]}.operand{k}.{part}" for k, part in enumerate((i, j))]
            importer.values.update(zip(names, (a, b), strict=True))
            bias = node.inputs[2:] if not found else ()
            own = dataclasses.replace(
                node, inputs=(*names, *bias), outputs=(f"{node.outputs[0]}.{i}{j}", *node.outputs[1:])
            )
            made = handler(importer, own)
            assert isinstance(made, Dequantised | Real)
            found.append(made)
    known = _known(operands, math.prod(values[1].shape[a] for a in over[1]))
    alpha = abs(float(node.attributes.get("alpha", 1.0))) if node.op == "Gemm" else 1.0
    more = _bias(importer, node) if node.optional(2) else Bound(0.0, 0.0)
    known = Bound(
        alpha * known.low + more.low,
        alpha * known.high + more.high,
        alpha * known.error + more.error,
    )
    return Real("Sum", tuple(found), found[0].shape, node, {KNOWN: known})


def _bias(importer: Importer, node: OnnxNode) -> Bound:
    value = importer.value(node, 2)
    assert isinstance(value, Constant | Dequantised | Real)
    beta = float(node.attributes.get("beta", 1.0)) if node.op == "Gemm" else 1.0
    known = bound(value)
    low, high = sorted((beta * known.low, beta * known.high))
    return Bound(low, high, abs(beta) * known.error)


def _known(operands: Sequence[Bytes], depth: int) -> Bound:
    """The bound of a sum of `depth` products, with the errors of both operands."""
    errors = [o.known.error + o.cut for o in operands]
    first, second = operands
    for weights, x, error in ((first, second, errors[1]), (second, first, errors[0])):
        if weights.total is not None:
            reach = weights.total * x.known.reach
            return Bound(-reach, reach, (weights.total + weights.off) * error + weights.off * x.known.reach)
    a, b = (o.known.reach for o in operands)
    each = a * errors[1] + b * errors[0] + errors[0] * errors[1]
    return Bound(-depth * a * b, depth * a * b, depth * each)


def summed(importer: Importer, node: OnnxNode, x: Dequantised, axes: Sequence[int]) -> Real:
    """Exact sums of a fixed-point or 8-bit tensor over axes, which are kept with size 1."""
    count = math.prod(x.shape[a] for a in axes)
    parts = _cut(importer, node, x, 4).parts if isinstance(x, FixedPoint) else (x,)
    found: list[Dequantised] = []
    for i, part in enumerate(parts):
        zero = int(part.zero.item())
        view: View = added(importer, node, part.view, axes, zero, f"{node.outputs[0]}.total{i}")
        found.append(Dequantised(view, "int32", part.scale.reshape(()), np.asarray(0), count * part.reach))
    # The sums of two bytes are combined if 32 bits can hold the result.
    for i in range(len(found) // 2):
        low, high = found[i : i + 2]
        reach = (high.reach << BYTE) + low.reach
        if reach <= WORD:
            both = apply("add", apply("shl", Argument(1), BYTE), Argument(0))
            hint = f"{node.outputs[0]}.pair{i}"
            made = importer.elementwise(node, both, (low.view, high.view), low.shape, "int32", hint).view
            found[i : i + 2] = [dataclasses.replace(low, view=made, reach=reach)]
    one = bound(x)
    known = Bound(count * one.low, count * one.high, count * one.error)
    return Real("Sum", tuple(found), found[0].shape, node, {KNOWN: known})
