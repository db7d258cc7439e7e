"""Maximum and average over windows of an image, in whole numbers.

The steps and what they equal are in docs/operators.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
import numpy.typing as npt

from hw.errors import InputError
from sw.frontend.importer import Importer
from sw.frontend.node import OnnxNode
from sw.frontend.quantised import BYTES, on_grid, row_operand
from sw.frontend.values import Dequantised, Quantisation, Stored, Structured, Value, is_real
from sw.frontend.windows import axes, images, pixels, two
from sw.graph.expression import Integers, operate
from sw.graph.network import Operator, View
from sw.graph.requantise import LIMITS
from sw.graph.views import reshaped, transposed
from sw.operators.registry import imports
from sw.patches import Axis

#: Most pixels of a window: their sum is a signed word.
MOST_PIXELS = 1 << 22
#: Bits behind the point of an average before it is rounded to a whole number.
_MOST_ROUNDING, _LEAST_ROUNDING = 18, 4


@dataclass(frozen=True)
class Pool(Operator):
    """y[n, c, r, s] = maximum or average of the window of `x` [images, channels, rows, columns] at (r, s).

    Pixels outside of the image are `fill`: for a maximum the least number of the type, for an average the
    zero point. An average is (sum of the window - `fill` * window size) * `factors[r][s]`, shifted right by
    `shift`; of that, `rounding` bits are rounded off, half to even, before `zero` is added. `factors` is
    2^(`shift` + `rounding`) * input scale / (output scale * pixels that count), one row and column for all
    where all are equal.
    """

    x: View
    rows: Axis
    cols: Axis
    kind: Literal["max", "average"]
    element: str
    fill: int
    factors: tuple[tuple[int, ...], ...] = ((1,),)
    shift: int = 0
    rounding: int = 0
    zero: int = 0
    result: str = "int8"

    @property
    def inputs(self) -> tuple[View, ...]:
        """The images."""
        return (self.x,)

    @property
    def window(self) -> int:
        """Pixels of a window."""
        return self.rows.kernel * self.cols.kernel

    @property
    def bias(self) -> int:
        """What is added to the sum of a window, padding and all."""
        return -self.fill * self.window if self.kind == "average" else 0

    def reference(self, arrays: Sequence[npt.NDArray[np.generic]]) -> npt.NDArray[np.generic]:
        """The maximum or average of every window."""
        (x,) = arrays
        rows, cols = self.rows, self.cols
        pads = ((0, 0), (0, 0), (rows.before, rows.after), (cols.before, cols.after))
        image = np.pad(x, pads, constant_values=np.asarray(self.fill, x.dtype))
        windows = np.lib.stride_tricks.sliding_window_view(image, (rows.reach, cols.reach), (2, 3))
        windows = windows[:, :, :: rows.stride, :: cols.stride, :: rows.dilation, :: cols.dilation]
        if self.kind == "max":
            found: npt.NDArray[np.generic] = windows.max(axis=(4, 5))
            return found
        total = windows.sum(axis=(4, 5), dtype=np.int64) + self.bias
        scaled = operate("mul_shift_round", total, np.asarray(self.factors), self.shift)
        rounded = operate("mul_shift_round_even", scaled, 1, self.rounding) + self.zero
        return np.clip(rounded, *LIMITS[self.result]).astype(self.result)


def max_pool(
    name: str, op: str, nodes: tuple[str, ...], output: View, x: View, rows: Axis, cols: Axis, *, element: str
) -> Pool:
    """The greatest element of every window; the result has the type, scale and zero point of the input."""
    _check(name, x, output, rows, cols)
    return Pool(name, op, nodes, output, x, rows, cols, "max", element, LIMITS[element][0], result=element)


def average_pool(
    name: str,
    op: str,
    nodes: tuple[str, ...],
    output: View,
    x: View,
    rows: Axis,
    cols: Axis,
    *,
    element: str,
    x_scale: float,
    x_zero: int,
    y_scale: float,
    y_zero: int,
    result: str,
    include_pad: bool = False,
    uncounted: tuple[int, int] = (0, 0),
) -> Pool:
    """The average of every window.

    Without `include_pad` only pixels of the image count. With it, padding counts too, except the last
    `uncounted` rows and columns of it (those that a rounding up of the output's size adds). An average over
    whole rows of a matrix is one with a window as large as the image.
    """
    _check(name, x, output, rows, cols)
    for what, scale in (("input", x_scale), ("output", y_scale)):
        if not (scale > 0 and math.isfinite(scale)):
            raise InputError(f"{name}: the {what} scale must be a positive number, not {scale:g}")
    counts = np.outer(
        _counts(rows, include_pad, uncounted[0]), _counts(cols, include_pad, uncounted[1])
    ).astype(np.int64)
    if (counts == counts[0, 0]).all():
        counts = counts[:1, :1]
    ratio = Fraction(float(x_scale)) / Fraction(float(y_scale))
    reach = 256 * float(ratio)
    rounding = min(_MOST_ROUNDING, 30 - math.frexp(reach)[1])
    if rounding < _LEAST_ROUNDING:
        raise InputError(
            f"{name}: the input scale must be at most {2.0 ** (22 - _LEAST_ROUNDING):g} times the output "
            f"scale, not {float(ratio):g} times"
        )
    least = max(1, int(counts[counts > 0].min(initial=rows.kernel * cols.kernel)))
    bits = min(31 - math.frexp(float(ratio / least) * (1 + 2.0**-31))[1], 63 + rounding)
    factors = tuple(
        tuple(round(ratio / int(c) * Fraction(2) ** bits) if c else 0 for c in row) for row in counts
    )
    return Pool(
        *(name, op, nodes, output, x, rows, cols, "average", element, x_zero),
        *(factors, bits - rounding, rounding, y_zero, result),
    )


def _check(name: str, x: View, output: View, rows: Axis, cols: Axis) -> None:
    expected = (*x.shape[:2], rows.outputs, cols.outputs)
    if len(x.shape) != 4 or x.shape[2:] != (rows.size, cols.size) or output.shape != expected:
        raise InputError(
            f"{name}: images of {rows.size} x {cols.size} must give {expected}, "
            f"the shapes are {x.shape} and {output.shape}"
        )
    if not 1 <= rows.kernel * cols.kernel <= MOST_PIXELS:
        raise InputError(
            f"{name}: a window must have at most {MOST_PIXELS} pixels, not {rows.kernel * cols.kernel}"
        )


def _counts(axis: Axis, include_pad: bool, uncounted: int) -> Integers:
    """By place of the window: how many of its rows (columns) count."""
    place = np.arange(axis.outputs)[:, None] * axis.stride + np.arange(axis.kernel) * axis.dilation
    low, high = (
        (0, axis.before + axis.size + axis.after - uncounted)
        if include_pad
        else (
            axis.before,
            axis.before + axis.size,
        )
    )
    counted: Integers = ((place >= low) & (place < high)).sum(axis=1).astype(np.int64)
    return counted


@imports("MaxPool")
def _max_pool(importer: Importer, node: OnnxNode) -> Value:
    """The maximum of windows; of real numbers it is that of what they are on the grid."""
    if any(node.outputs[1:]):
        raise node.error("indices as an output are not supported")
    value = importer.value(node, 0)
    found, _ = axes(node, pixels(node, value), tuple(node.attributes["kernel_shape"]))
    rows, cols = two(found)
    shape = (*value.shape[:2], *(a.outputs for a in found))

    def pooled(view: View, element: str, name: str, nodes: tuple[str, ...]) -> View:
        output = importer.tensor(name, (*value.shape[:2], rows.outputs, cols.outputs), element)
        image = images(importer, node, view)
        operator: Operator = max_pool(node.name, node.op, nodes, output, image, rows, cols, element=element)
        importer.operators.append(operator)
        return importer.reshaped(node, output, shape)

    if not is_real(value):
        stored = importer.stored(node, 0, BYTES)
        return Stored(pooled(stored.view, stored.element, node.outputs[0], (node.name,)), stored.element)
    if isinstance(value, Dequantised) and value.element in BYTES and value.uniform:
        view = pooled(value.view, value.element, f"{node.outputs[0]}.whole", (node.name,))
        return Dequantised(view, value.element, value.scale, value.zero, value.reach)

    def make(name: str, grid: Quantisation) -> View:
        view = on_grid(importer, grid.node, value, grid, f"{name}.pixels")
        return pooled(view, grid.element, name, grid.nodes(node))

    return Structured(node, shape, shape, make)


@imports("AveragePool")
def _average_pool(importer: Importer, node: OnnxNode) -> Value:
    value = row_operand(importer, node)
    found, more = axes(node, pixels(node, value), tuple(node.attributes["kernel_shape"]))
    include = bool(node.attributes.get("count_include_pad", 0))
    shape = (*value.shape[:2], *(a.outputs for a in found))
    image = images(importer, node, value.view)
    uncounted = (0, more[0]) if len(more) == 1 else (more[0], more[1])
    return _averaged(importer, node, value, image, two(found), shape, include, uncounted)


def _averaged(
    importer: Importer,
    node: OnnxNode,
    value: Dequantised,
    image: View,
    window: tuple[Axis, Axis],
    shape: tuple[int, ...],
    include: bool = False,
    uncounted: tuple[int, int] = (0, 0),
) -> Structured:
    """The averages of windows of images, whose result is seen as `shape`."""
    inner = (*image.shape[:2], window[0].outputs, window[1].outputs)

    def make(name: str, grid: Quantisation) -> View:
        output = importer.tensor(name, shape, grid.element)
        four = reshaped(output, inner)
        assert four is not None
        operator = average_pool(
            *(node.name, node.op, grid.nodes(node), four, image, *window),
            x_zero=int(value.zero.item()),
            include_pad=include,
            uncounted=uncounted,
            **grid.scales(value),
        )
        importer.operators.append(operator)
        return output

    return Structured(node, shape, shape, make)


@imports("GlobalAveragePool", "ReduceMean")
def _mean(importer: Importer, node: OnnxNode) -> Value:
    """The mean over axes, as the average of a window as large as the image."""
    value = row_operand(importer, node)
    rank = len(value.shape)
    if node.op == "GlobalAveragePool":
        chosen, keep = list(range(2, rank)), True
    else:
        given = node.attributes.get("axes")
        array = None if given is not None else importer.fixed(node, 1, "axes")
        given = given if given is not None else (array if array is None else array.reshape(-1))
        none_means_none = given is None and bool(node.attributes.get("noop_with_empty_axes", 0))
        if none_means_none:
            return value
        chosen = sorted(node.axis(int(a), rank) for a in (range(rank) if given is None else given))
        keep = bool(node.attributes.get("keepdims", 1))
    return _meant(importer, node, value, chosen, keep)


def _meant(
    importer: Importer, node: OnnxNode, value: Dequantised, chosen: Sequence[int], keep: bool
) -> Structured:
    rest = [a for a in range(len(value.shape)) if a not in chosen]
    order = [*rest, *chosen]
    count = math.prod(value.shape[a] for a in chosen)
    kept = tuple(value.shape[a] for a in rest)
    image = _four(importer, node, transposed(value.view, order), kept, count)
    shape = tuple(1 if a in chosen else s for a, s in enumerate(value.shape)) if keep else kept
    rows, cols = (Axis(s, s) for s in image.shape[2:])
    return _averaged(importer, node, value, image, (rows, cols), shape)


def _four(importer: Importer, node: OnnxNode, view: View, kept: tuple[int, ...], count: int) -> View:
    """Images with one window each: what is kept, then the window as rows and columns if strides say so."""
    first = kept[:1] or (1,)
    before = (*first, math.prod(kept[1:]))
    window = view.shape[len(kept) :]
    for shape in ((*before, 1, count), (*before, window[0], count // window[0])):
        found = reshaped(view, shape)
        if found is not None:
            return found
    return importer.reshaped(node, view, (*before, 1, count))
