"""Products of operands in fixed point: each is cut into bytes, whose products are what the array computes.

x = sum over i of 256^i x_i, the highest byte with a sign where x has one. So every operator that is linear in
its operands is the sum of itself on bytes; those of 8 bits and constants are cut likewise.
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

#: Bits of the bytes of a word.
BYTE = 8


@dataclass(frozen=True)
class Bytes:
    """A real operand as a sum of values of 8 bits; `cut` is what each element is off by at most.

    Of constants `off` has it for every element.
    """

    parts: tuple[Dequantised, ...]
    known: Bound
    cut: float
    magnitudes: np.ndarray | None = None
    off: np.ndarray | None = None


def _cut(importer: Importer, node: OnnxNode, x: FixedPoint, limbs: int) -> Bytes:
    """A tensor in fixed point as so many bytes: their sum is the tensor, rounded."""
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
    count = -(-(reach.bit_length() + signed) // BYTE)
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


def _constant(importer: Importer, node: OnnxNode, array: np.ndarray, axis: int | None, limbs: int) -> Bytes:
    """Constants as bytes, with a scale for each element of an axis."""
    exact = array.astype(np.float64)
    others = tuple(a for a in range(array.ndim) if axis is None or a != axis % array.ndim)
    most = (1 << (limbs * BYTE - 1)) - 1
    scale = np.maximum(np.abs(exact).max(axis=others, keepdims=True) / most, 2.0**-60).astype(np.float32)
    whole = np.clip(np.rint(exact / scale), -most - 1, most).astype(np.int64)
    parts = []
    for i in range(limbs):
        last = i == limbs - 1
        byte = (whole >> BYTE * i).astype(np.int8) if last else (whole >> BYTE * i & 255).astype(np.uint8)
        view = importer.constant(byte, f"{node.outputs[0]}.weights{i}")
        wide = (scale * np.float32(2.0 ** (BYTE * i))).astype(np.float32)
        wide = wide.reshape(()) if wide.size == 1 else np.broadcast_to(wide, array.shape)
        parts.append(Dequantised(view, str(byte.dtype), wide, np.asarray(0, np.int64), 128 if last else 255))
    off = np.abs(exact - whole * scale.astype(np.float64))
    return Bytes(tuple(parts), bound(Constant(array)), 0.0, np.abs(exact), off)


def _operand(importer: Importer, node: OnnxNode, value: Value, axis: int | None) -> Bytes:
    """An operand of a product as bytes."""
    value = settled(importer, node, value)
    if isinstance(value, Dequantised) and value.element in BYTES:
        array = held(importer, value)
        magnitudes = None if array is None else np.abs(array.astype(np.float64))
        return Bytes((value,), bound(value), 0.0, magnitudes)
    array = held(importer, value)
    if array is not None:
        return _constant(importer, node, array, axis, max(2, importer.limbs))
    return _cut(importer, node, fixed(importer, node, value), importer.limbs)


@dataclass(frozen=True)
class Linear:
    """How an operator is linear in two operands: the channels of each, and the axes that are summed over.

    These are those of the operands as the node has them.
    """

    channels: Callable[[OnnxNode, int], int | None]
    summed: Callable[[OnnxNode, int, int], tuple[int, ...]]


def _matrix_axis(node: OnnxNode, index: int) -> int:
    """The axis of an operand of MatMul or Gemm that is not summed over, from the end."""
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
    """A product of operands in fixed point: the sum of those of their bytes, and the bias."""
    how = LINEAR[node.op]
    values = [importer.value(node, i) for i in range(2)]
    ranks = [len(v.shape) for v in values]
    axes = [None if rank < 2 else how.channels(node, i) for i, rank in enumerate(ranks)]
    operands = [_operand(importer, node, v, a) for i, (v, a) in enumerate(zip(values, axes, strict=True))]
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
    depth = math.prod(values[1].shape[a] for a in how.summed(node, 1, ranks[1]))
    known = _known(operands, [how.summed(node, i, rank) for i, rank in enumerate(ranks)], depth)
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


def _known(operands: Sequence[Bytes], summed: Sequence[tuple[int, ...]], depth: int) -> Bound:
    """What a sum of products may be, and what the errors of both operands add to it."""
    errors = [o.known.error + o.cut for o in operands]
    for own, other, axes in ((0, 1, summed[0]), (1, 0, summed[1])):
        weights, x = operands[own], operands[other]
        if weights.magnitudes is not None:
            total = float(weights.magnitudes.sum(axis=axes).max())
            off = 0.0 if weights.off is None else float(weights.off.sum(axis=axes).max())
            return Bound(
                -total * x.known.reach,
                total * x.known.reach,
                (total + off) * errors[other] + off * x.known.reach,
            )
    a, b = (o.known.reach for o in operands)
    return Bound(
        -depth * a * b, depth * a * b, depth * (a * errors[1] + b * errors[0] + errors[0] * errors[1])
    )


def summed(importer: Importer, node: OnnxNode, x: Dequantised, axes: Sequence[int]) -> Real:
    """Exact sums over axes, which stay with one element, of a tensor in fixed point or of 8 bits."""
    count = math.prod(x.shape[a] for a in axes)
    parts = _cut(importer, node, x, 4).parts if isinstance(x, FixedPoint) else (x,)
    found: list[Dequantised] = []
    for i, part in enumerate(parts):
        zero = int(part.zero.item())
        view: View = added(importer, node, part.view, axes, zero, f"{node.outputs[0]}.total{i}")
        found.append(Dequantised(view, "int32", part.scale.reshape(()), np.asarray(0), count * part.reach))
    # The sums of two bytes are one number where 32 bits hold it.
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
