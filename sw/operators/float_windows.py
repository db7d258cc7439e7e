"""Max and average pooling of float32 on the machine, if the result is quantised at run time.

Windows are reduced along rows first, then along columns, each with one operator on strided views. Averages
use sums in fixed point, whose unit depends on the largest magnitude of the tensor.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from sw.frontend.importer import Importer
from sw.frontend.node import OnnxNode
from sw.frontend.values import Stored, Value
from sw.frontend.windows import axes, counted, images, reduced_axes, two
from sw.graph import float32
from sw.graph.expression import Argument, Expression, Number
from sw.graph.float32 import SIGN, Parts, apply
from sw.graph.network import View
from sw.graph.views import sliced
from sw.operators.extremes import extreme
from sw.operators.floats import RULES, not_negative, quantised_again, readable
from sw.operators.places import FILL, assembled
from sw.patches import Axis

#: Most views of an operator, and most pixels of a window along an axis that has several positions.
_VIEWS, _PIXELS = 6, 64
#: Bits of -infinity.
_LEAST = 0xFF800000 - (1 << 32)
#: Smallest exponent of the largest magnitude that is distinguished: 2^-87.
_EXPONENT = 40

Combined = Callable[[Expression, Expression], Expression]


def _wanted(importer: Importer, node: OnnxNode, value: Value) -> bool:
    """Whether the machine has this float32 value, and the result is quantised at run time."""
    found = isinstance(value, Stored) and value.element == "float32" and readable(importer, value.view)
    return found and node.outputs[0] in quantised_again(importer)


def maximum(importer: Importer, node: OnnxNode, value: Value, found: Sequence[Axis]) -> Stored | None:
    """The maxima of windows; None if the host has the images, or the result stays real."""
    if not isinstance(value, Stored) or not _wanted(importer, node, value) or not _small(found):
        return None
    positive = not_negative(importer, node.inputs[0])

    def combined(x: Expression, y: Expression) -> Expression:
        return apply("max", x, y) if positive else RULES["Max"]([x, y], {})

    fill, name = 0 if positive else _LEAST, node.outputs[0]
    return Stored(_reduced(importer, node, value.view, found, combined, fill, name), "float32")


def average(importer: Importer, node: OnnxNode, value: Value) -> Stored | None:
    """The averages of windows or whole images; None if the host has them, or the result stays real."""
    if not isinstance(value, Stored) or not _wanted(importer, node, value):
        return None
    found, more = [Axis(size, size) for size in value.shape[2:]], [0] * (len(value.shape) - 2)
    if node.op == "AveragePool":
        found, more = axes(node, value, tuple(node.attributes["kernel_shape"]))
    chosen = reduced_axes(importer, node, len(value.shape)) if node.op == "ReduceMean" else None
    if not found or not _small(found) or chosen not in (None, list(range(2, len(value.shape)))):
        return None
    made = _averaged(importer, node, value, found, more)
    if chosen is None or node.attributes.get("keepdims", 1):
        return made
    return Stored(importer.reshaped(node, made.view, value.shape[:2]), "float32")


def _averaged(
    importer: Importer, node: OnnxNode, value: Stored, found: Sequence[Axis], more: Sequence[int]
) -> Stored:
    """The averages of windows; `more` pixels after each axis do not count."""
    include = bool(node.attributes.get("count_include_pad", 0))
    each = [counted(axis, include, added) for axis, added in zip(found, more, strict=True)]
    counts = functools.reduce(np.multiply.outer, each).astype(np.float32)
    name, bits = node.outputs[0], math.ceil(math.log2(math.prod(axis.kernel for axis in found)))
    reach = _greatest(importer, node, value.view)
    fixed = importer.elementwise(
        node, _fixed(bits), [value.view, reach], value.shape, "int32", f"{name}.fixed"
    )
    total = _reduced(importer, node, fixed.view, found, functools.partial(apply, "add"), 0, f"{name}.sum")
    exponent = apply("add", apply("max", apply("shr", Argument(1), 23), _EXPONENT), bits + 1)
    mean = float32.scaled(Argument(0), Parts(Number(1 << 23), exponent))
    operands = [total, reach]
    if np.all(counts == counts.flat[0]):
        mean = float32.quotient(mean, float32.divisor(float32.number(counts.flat[0])), Number(0))
        return importer.elementwise(node, mean, operands, total.shape, "float32", name)
    sums = importer.elementwise(node, mean, operands, total.shape, "float32", f"{name}.real")
    operands = [sums.view, importer.constant(counts, f"{name}.counts")]
    mean = float32.quotient(Argument(0), float32.divisor(Argument(1)), Number(0))
    return importer.elementwise(node, mean, operands, total.shape, "float32", name)


def _small(found: Sequence[Axis]) -> bool:
    return all(axis.kernel <= _PIXELS or axis.outputs == 1 for axis in found)


def _greatest(importer: Importer, node: OnnxNode, x: View) -> View:
    """The largest magnitude of a tensor."""
    flat, name = importer.reshaped(node, x, (x.elements,)), node.outputs[0]
    most = extreme(importer, node, flat, 0, f"{name}.most")
    if not_negative(importer, node.inputs[0]):
        return most
    least = extreme(importer, node, flat, SIGN, f"{name}.least")
    value = apply("max", Argument(0), Argument(1))
    return importer.elementwise(node, value, [most, least], (), "float32", f"{name}.reach").view


def _fixed(bits: int) -> Expression:
    """A number in integer units; 2^(30 - bits) units exceed the largest magnitude, operand 1."""
    x = float32.parts(Argument(0))
    top = apply("max", apply("shr", Argument(1), 23), _EXPONENT)
    shift = apply("min", apply("add", apply("sub", top, x.exponent), bits), 63)
    found = apply("mul_shift_round_even", x.mantissa, 1 << 6, shift)
    minus = apply("shr", Argument(0), 31)
    found = apply("sub", apply("xor", found, minus), minus)
    return apply("select", x.exponent, found, 0)


def _reduced(
    importer: Importer,
    node: OnnxNode,
    view: View,
    found: Sequence[Axis],
    combined: Combined,
    fill: int,
    name: str,
) -> View:
    """The reduction of windows; pixels outside the image are `fill`."""
    element, image = importer.tensors[view.tensor].element, images(importer, node, view)
    rows, cols = two(list(found))
    if any((rows.before, rows.after, cols.before, cols.after)):
        places = np.arange(image.elements).reshape(image.shape)
        around = [(0, 0), (0, 0), (rows.before, rows.after), (cols.before, cols.after)]
        places = np.pad(places, around, constant_values=FILL)
        image = assembled(importer, node, [image], places, element, f"{name}.padded", fill)

    def joined(views: list[View], hint: str) -> View:
        operands: list[Expression] = [Argument(i) for i in range(len(views))]
        value = functools.reduce(combined, operands)
        return importer.elementwise(node, value, views, views[0].shape, element, hint).view

    for number, axis in ((2, rows), (3, cols)):
        rest: list[View] = []
        while axis.outputs == 1 and image.shape[number] == axis.kernel > _VIEWS:
            # The window covers the whole axis: add up its parts one after the other.
            each = axis.kernel // _VIEWS
            rest += [sliced(image, number, i, 1) for i in range(each * _VIEWS, axis.kernel)]
            parts = [sliced(image, number, i * each, each) for i in range(_VIEWS)]
            image, axis = joined(parts, f"{name}.part"), Axis(each, each)
        views = [
            sliced(image, number, i * axis.dilation, axis.outputs, axis.stride) for i in range(axis.kernel)
        ]
        views += rest
        while len(views) > 1:
            taken, views = views[:_VIEWS], views[_VIEWS:]
            last = number == 3 and not views and len(view.shape) == 4
            views.insert(0, joined(taken, name if last else f"{name}.part"))
        image = views[0]
    return importer.reshaped(node, image, (*view.shape[:2], *(axis.outputs for axis in found)))
