"""Averages of 8-bit numbers: sums of products with ones, scaled and rounded (docs/operators.md).

Over whole axes, they are matrix products; over windows, they are convolutions. The scaling becomes the
epilogue.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from hw.errors import InputError
from sw.frontend.importer import Importer
from sw.frontend.node import OnnxNode
from sw.frontend.quantised import row_operand
from sw.frontend.values import Dequantised, Quantisation, Structured, Value
from sw.frontend.windows import axes, counted, images, reduced_axes, two
from sw.graph.expression import Argument, Integers
from sw.graph.network import Elementwise, ImageConvolution, View
from sw.graph.requantise import LIMITS, apply, clamped
from sw.graph.views import broadcast, reshaped
from sw.operators.float_windows import average
from sw.operators.normalisation.centred import columns, summed, variance
from sw.operators.registry import imports

#: Most elements of an average, so that their sum fits a signed word.
MOST_ELEMENTS = 1 << 22
#: Fractional bits of an average before it is rounded to an integer.
_MOST_ROUNDING, _LEAST_ROUNDING = 18, 4
#: Most channels whose windows form one convolution, and most of their outputs; larger outputs allow fewer.
_CHANNELS, _OUTPUTS = 8, 512


def _averaged(
    importer: Importer,
    node: OnnxNode,
    value: Dequantised,
    grid: Quantisation,
    total: View,
    counts: Integers,
    name: str,
    shape: Sequence[int],
) -> View:
    """Averages from sums of `counts` elements each; `counts` broadcasts to the sums, seen as `shape`.

    A sum is multiplied by 2^(shift + rounding) * ratio of scales / number of elements and shifted right by
    `shift`. Then `rounding` bits are rounded off, half to even.
    """
    ratio = Fraction(value.scale.item()) / Fraction(grid.scale.item())
    rounding = min(_MOST_ROUNDING, 30 - math.frexp(256 * float(ratio))[1])
    if rounding < _LEAST_ROUNDING:
        raise InputError(
            f"{node.name}: the input scale must be at most {2.0 ** (22 - _LEAST_ROUNDING):g} times the "
            f"output scale, not {float(ratio):g} times"
        )
    least = int(counts[counts > 0].min(initial=MOST_ELEMENTS))
    bits = min(31 - math.frexp(float(ratio / least) * (1 + 2.0**-31))[1], 63 + rounding)
    exact = [round(ratio / int(c) * Fraction(2) ** bits) if c else 0 for c in counts.flat]
    views, factor = [total], exact[0] if counts.size == 1 else Argument(1)
    if counts.size > 1:
        factors = np.array(exact, np.int32).reshape(counts.shape)
        views.append(broadcast(importer.constant(factors, f"{name}.factors"), total.shape))
    scaled = apply("mul_shift_round", Argument(0), factor, bits - rounding)
    whole = apply("add", apply("mul_shift_round_even", scaled, 1, rounding), int(grid.zero.item()))
    output = importer.tensor(name, shape, grid.element)
    target = reshaped(output, total.shape)
    assert target is not None
    expression = clamped(whole, *LIMITS[grid.element])
    operator = Elementwise(node.name, node.op, grid.nodes(node), target, expression, tuple(views))
    importer.operators.append(operator)
    return output


@imports("AveragePool")
def _average_pool(importer: Importer, node: OnnxNode) -> Value:
    """Averages of windows. Without `count_include_pad`, only pixels of the image count."""
    if (real := average(importer, node, importer.value(node, 0))) is not None:
        return real
    value = row_operand(importer, node)
    found, more = axes(node, value, tuple(node.attributes["kernel_shape"]))
    if all(axis.kernel == axis.size and axis.outputs == 1 and not axis.before for axis in found):
        return _mean_over(importer, node, value, range(2, len(value.shape)), True)
    include = bool(node.attributes.get("count_include_pad", 0))
    each = [counted(axis, include, added) for axis, added in zip(found, more, strict=True)]
    counts = each[0] if len(each) == 1 else np.outer(*each)
    _check(node, math.prod(axis.kernel for axis in found))
    if np.all(counts == counts.flat[0]):
        counts = counts.reshape(-1)[:1]
    elif counts.ndim == 1:
        counts = counts[None]
    image, (rows, cols) = images(importer, node, value.view), two(found)
    channels = image.shape[1]
    most = min(_CHANNELS, max(1, _OUTPUTS // (rows.outputs * cols.outputs)))
    together = max(n for n in range(1, most + 1) if channels % n == 0)
    same = np.arange(channels)[:, None] % together == np.arange(together)
    weights = np.broadcast_to(same[:, :, None, None], (channels, together, rows.kernel, cols.kernel))

    def make(name: str, grid: Quantisation) -> View:
        ones = importer.constant(weights.astype(np.int8), f"{name}.ones")
        total = importer.tensor(f"{name}.sum", (*image.shape[:2], rows.outputs, cols.outputs), "int32")
        convolution = ImageConvolution(
            *(node.name, node.op, (node.name,), total, image, ones, rows, cols),
            *(channels // together, int(value.zero.item())),
        )
        importer.operators.append(convolution)
        return _averaged(importer, node, value, grid, total, counts, name, shape)

    shape = (*value.shape[:2], *(a.outputs for a in found))
    return Structured(node, shape, make)


def _check(node: OnnxNode, elements: int) -> None:
    if elements > MOST_ELEMENTS:
        raise node.error(f"a window must have at most {MOST_ELEMENTS} pixels, not {elements}")


@imports("GlobalAveragePool", "ReduceMean")
def _mean(importer: Importer, node: OnnxNode) -> Value:
    if node.op == "ReduceMean" and (found := variance(importer, node, importer.value(node, 0))) is not None:
        return found
    if (real := average(importer, node, importer.value(node, 0))) is not None:
        return real
    value = row_operand(importer, node)
    rank = len(value.shape)
    if node.op == "GlobalAveragePool":
        return _mean_over(importer, node, value, range(2, rank), True)
    chosen = reduced_axes(importer, node, rank)
    if chosen is None:
        return value
    return _mean_over(importer, node, value, chosen, bool(node.attributes.get("keepdims", 1)))


def _mean_over(
    importer: Importer, node: OnnxNode, value: Dequantised, chosen: Sequence[int], keep: bool
) -> Structured:
    """The means over axes: a row of ones times a matrix whose columns are averaged."""
    rest = [a for a in range(len(value.shape)) if a not in chosen]
    kept = [value.shape[a] for a in rest]
    count = math.prod(value.shape[a] for a in chosen)
    _check(node, count)
    shape = tuple(1 if a in chosen else s for a, s in enumerate(value.shape)) if keep else tuple(kept)
    matrix = columns(importer, node, value.view, chosen)

    def make(name: str, grid: Quantisation) -> View:
        total = summed(importer, node, matrix, int(value.zero.item()), name)
        return _averaged(importer, node, value, grid, total, np.array([count]), name, shape)

    return Structured(node, shape, make)
