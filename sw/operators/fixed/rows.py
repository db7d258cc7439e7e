"""Sums, means, maxima, softmax and normalisation over axes, in fixed point."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from sw.frontend.importer import Importer
from sw.frontend.node import OnnxNode
from sw.frontend.quantised import BYTES
from sw.frontend.values import Constant, Dequantised, FixedPoint, Real, Reals, Value
from sw.frontend.windows import reduced_axes
from sw.graph.expression import Argument, Expression
from sw.graph.fuse import substitute
from sw.graph.network import View
from sw.graph.requantise import apply
from sw.graph.views import sliced
from sw.operators.elementwise.reals import combined, held
from sw.operators.fixed.bounds import Bound
from sw.operators.fixed.elements import bits_of, fixed, in_steps, number
from sw.operators.fixed.products import summed
from sw.operators.fixed.tables import exponential, power

#: Fractional bits of exponentials, and of squares in rows scaled to their largest element.
_POWERS, _SQUARES = 29, 30
#: Elements that are smaller than a row's maximum by this do not count in its softmax.
_NOTHING = 40.0


def reduced(importer: Importer, node: OnnxNode) -> Reals:
    """The sum, mean or maximum over axes."""
    value = importer.value(node, 0)
    bytes_ = isinstance(value, Dequantised) and value.element in BYTES and value.uniform
    x = value if bytes_ and "Max" not in node.op else fixed(importer, node, value)
    assert isinstance(x, Dequantised)
    rank = len(x.shape)
    if node.op in ("GlobalAveragePool", "GlobalMaxPool"):
        axes: list[int] | None = list(range(2, rank))
    else:
        axes = reduced_axes(importer, node, rank)
    if axes is None:
        return x
    if node.op in ("ReduceMax", "GlobalMaxPool"):
        found: Reals = dataclasses.replace(x, view=_greatest(importer, node, x.view, axes))
    else:
        found = _total(importer, node, x, axes, node.op != "ReduceSum")
    if node.attributes.get("keepdims", 1) or node.op.startswith("Global"):
        return found
    one = fixed(importer, node, found)
    shape = [size for a, size in enumerate(x.shape) if a not in axes]
    return dataclasses.replace(one, view=importer.reshaped(node, one.view, shape))


def _total(importer: Importer, node: OnnxNode, x: Dequantised, axes: Sequence[int], mean: bool) -> Real:
    """The sum over axes, or the mean."""
    total = summed(importer, node, x, axes)
    if not mean:
        return total
    count = Constant(np.asarray(math.prod(x.shape[a] for a in axes), np.float32))
    return Real("Div", (total, count), total.shape, node)


def _greatest(importer: Importer, node: OnnxNode, view: View, axes: Sequence[int]) -> View:
    """The maxima over axes, which are kept with size 1: by halves, quarters, and so on."""
    for axis in axes:
        while (size := view.shape[axis]) > 1:
            half = -(-size // 2)
            halves = [sliced(view, axis, start, half) for start in (0, size - half)]
            value = apply("max", Argument(0), Argument(1))
            hint = f"{node.outputs[0]}.most"
            view = importer.elementwise(node, value, halves, halves[0].shape, "int32", hint).view
    return view


def softmax(importer: Importer, node: OnnxNode) -> Reals:
    """exp(x - m) / sum of exp(x - m) over an axis, where m is the maximum.

    An error common to all x changes a result by at most half of it; so does the relative error of the
    exponentials.
    """
    x = fixed(importer, node, _masked(importer, node, importer.value(node, 0)))
    rank = len(x.shape)
    old = int(node.attributes.get("opset", importer.model.opset)) < 13
    axis = node.axis(int(node.attributes.get("axis", 1 if old else -1)), rank)
    axes = list(range(axis, rank)) if old else [axis]
    count = math.prod(x.shape[a] for a in axes)
    most = _greatest(importer, node, x.view, axes)
    value, relative, absolute = exponential(bits_of(x))
    value = substitute(value, {0: apply("sub", Argument(0), Argument(1))})
    name = f"{node.outputs[0]}.powers"
    view = importer.elementwise(node, value, (x.view, most), x.shape, "int32", name).view
    scale = np.asarray(2.0**-_POWERS, np.float32)
    powers = FixedPoint(view, "int32", scale, x.zero, 1 << _POWERS, 0.0, 1.0, 0.0)
    total = fixed(importer, node, summed(importer, node, powers, axes))
    # The largest exponential is 1, so the sum is at least 1.
    made = power(-1, bits_of(total))
    inverse = _row(importer, node, *in_steps(importer, node, made.mantissa, total.view), "inverse")
    shift = _row(importer, node, made.exponent, [total.view], "shift")
    bits = _POWERS
    scaled = apply("add", Argument(2), _POWERS + made.bits - bits)
    result = apply("mul_shift_round", Argument(0), Argument(1), scaled)
    sums = count * absolute + total.error
    error = x.error / 2 + relative + made.error + absolute + sums + 0.5 * 2.0**-bits
    return number(importer, node, result, (view, inverse, shift), x.shape, Bound(0.0, 1.0, error), bits)


def _masked(importer: Importer, node: OnnxNode, value: Value) -> Value:
    """A value whose mask is closer to the values that it masks, but still far enough below to vanish.

    A mask is the smallest number of a constant that is added, or chosen instead of an element.
    """
    if not isinstance(value, Real) or value.op not in ("Add", "Where"):
        return value
    *before, a, b = value.inputs
    if isinstance(a, Constant) == isinstance(b, Constant):
        return value
    constant, other = (a, b) if isinstance(a, Constant) else (b, a)
    assert isinstance(constant, Constant)
    x, mask = fixed(importer, node, other), constant.array
    wide = x.high - x.low + 2 * x.error + _NOTHING
    rest = mask[mask > mask.min()]
    end = (float(rest.min(initial=math.inf)) - wide) if value.op == "Add" else x.low - x.error - _NOTHING
    if (value.op == "Where" and rest.size) or not math.isfinite(end) or mask.min() > end:
        return value
    nearer = Constant(np.maximum(mask, np.float32(end)))
    pair = (nearer, x) if constant is a else (x, nearer)
    return dataclasses.replace(value, inputs=(*before, *pair))


def _row(importer: Importer, node: OnnxNode, value: Expression, operands: Sequence[View], hint: str) -> View:
    """One integer per row."""
    shape = np.broadcast_shapes(*(v.shape for v in operands))
    return importer.elementwise(node, value, operands, shape, "int32", f"{node.outputs[0]}.{hint}").view


def normalisation(importer: Importer, node: OnnxNode) -> Reals:
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta; RMS normalisation has no mean."""
    x = fixed(importer, node, importer.value(node, 0))
    rank = len(x.shape)
    if any(node.outputs[1:]):
        raise node.error("mean and deviation as outputs are not supported")
    axes = list(range(node.axis(int(node.attributes.get("axis", -1)), rank), rank))
    each = root = x.error
    if node.op == "LayerNormalization":
        mean = fixed(importer, node, _total(importer, node, x, axes, True))
        x = _difference(importer, node, x, mean)
        # Subtracting the mean of the errors does not increase their root mean square.
        each, root = x.error, x.error - each
    found: Reals = _normalised(importer, node, x, axes, each, root)
    for index, op in ((1, "Mul"), (2, "Add")):
        if node.optional(index):
            array = held(importer, importer.value(node, index))
            if array is None:
                raise node.error("scale and bias must be constants")
            part = combined(
                importer, dataclasses.replace(node, inputs=("", "")), op, [found, Constant(array)]
            )
            assert isinstance(part, Real)
            found = part
    return found


def _difference(importer: Importer, node: OnnxNode, x: FixedPoint, mean: FixedPoint) -> FixedPoint:
    """A tensor minus its mean; exact if it fits 30 bits."""
    wide = x.high - x.low + x.error + mean.error
    bits = min(bits_of(x), bits_of(mean), Bound(-wide, wide).bits)
    drops = [bits_of(operand) - bits for operand in (x, mean)]
    a, b = (apply("mul_shift_round", Argument(i), 1, d) if d else Argument(i) for i, d in enumerate(drops))
    error = x.error + mean.error + 0.5 * sum(d > 0 for d in drops) * 2.0**-bits
    known = Bound(x.low - x.high, x.high - x.low, error)
    return number(importer, node, apply("sub", a, b), (x.view, mean.view), x.shape, known, bits, "centred")


def _normalised(
    importer: Importer, node: OnnxNode, x: FixedPoint, axes: Sequence[int], each: float, root_error: float
) -> FixedPoint:
    """Rows divided by the root of the mean of their squares plus epsilon.

    Elements are off by at most `each`; the root of the mean of the squared errors is at most `root_error`.
    They are scaled by a power of two so that the largest element of a row has 30 bits: c = x * 2^k. With v
    the mean of c^2, and e epsilon in the same unit, results are c / sqrt(v + e).
    """
    count, bits = math.prod(x.shape[a] for a in axes), bits_of(x)
    epsilon = float(np.float32(node.attributes.get("epsilon", 1e-5)))
    if epsilon <= 0:
        raise node.error("epsilon must be greater than 0 in fixed point: it limits the error")
    name = node.outputs[0]
    # Epsilon as mantissa * 2^-fall in the unit of squares for k = 0; for other k, 2^(2k) times as much.
    mantissa, exponent = math.frexp(epsilon * 2.0 ** (2 * bits - 60))
    fall = 30 - exponent - (_SQUARES - 1)
    if fall < 0:
        raise node.error(f"epsilon {epsilon:g} is too large for the range of its input, {x.high:g}")
    size = importer.elementwise(node, apply("abs", Argument(0)), [x.view], x.shape, "int32", f"{name}.size")
    most = _greatest(importer, node, size.view, axes)
    up = apply("min", apply("sub", apply("clz", Argument(0)), 2), min(29, fall // 2))
    shift = _row(importer, node, up, [most], "shift")
    shl = apply("shl", Argument(0), Argument(1))
    scaled = importer.elementwise(node, shl, (x.view, shift), x.shape, "int32", f"{name}.scaled").view
    square = apply("mul_shift_round", Argument(0), Argument(0), 60 - _SQUARES)
    rounding = 0.5 * 2.0**-_SQUARES
    squares = number(
        importer, node, square, [scaled], x.shape, Bound(0.0, 1.0, rounding), _SQUARES, "squares"
    )
    variance = fixed(importer, node, _total(importer, node, squares, axes, True))
    added = apply("sub", fall, apply("shl", Argument(1), 1))
    added = apply("min", added, 63)
    total = apply("add", Argument(0), apply("mul_shift_round", round(mantissa * 2**30), 1, added))
    assert bits_of(variance) == _SQUARES - 1
    root = power(-0.5, bits_of(variance))
    total = apply("max", total, 1)
    whole = _row(importer, node, total, [variance.view, shift], "total")
    inverse = _row(importer, node, *in_steps(importer, node, root.mantissa, whole), "inverse")
    fall_ = _row(importer, node, root.exponent, [whole], "exponent")
    most_ = math.sqrt(max(count, 1))
    out = Bound(-most_, most_).bits
    value = apply(
        "mul_shift_round", Argument(0), Argument(1), apply("add", Argument(2), 30 + root.bits - out)
    )
    # Error of the sum v + e. If epsilon is small, v is at least 1/(4 count).
    wrong = variance.error + 2.0 ** -bits_of(variance)
    error = 2 * count**1.5 * wrong + root.error * most_ + 0.5 * 2.0**-out
    # The element's own error plus that of its row's root, for the worst variance.
    error += (each + 0.385 * most_ * root_error) / math.sqrt(epsilon)
    known = Bound(-most_, most_, error)
    return number(importer, node, value, (scaled, inverse, fall_), x.shape, known, out)
