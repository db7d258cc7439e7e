"""Transposed convolutions: one convolution for every offset of the outputs modulo the strides.

Output o of an axis is the sum of x[i] w[j] over i * stride + j * dilation = o + pads. Outputs that are equal
modulo the stride use the same j, and these meet pixels at equal distances. So they are a convolution with a
part of the kernel, reversed, without products of zeros between pixels.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sw.frontend.importer import Importer
from sw.frontend.node import OnnxNode
from sw.frontend.quantised import dequantised_operand
from sw.frontend.sums import WORD
from sw.frontend.values import Dequantised, Value
from sw.frontend.windows import given, images
from sw.graph.expression import Number
from sw.graph.network import ImageConvolution, View
from sw.graph.views import sliced
from sw.operators.elementwise.reals import combined
from sw.operators.products import Side, constant_along, greatest_sum, scales
from sw.operators.registry import imports
from sw.operators.shapes import moved, places_of
from sw.patches import Axis


@dataclass(frozen=True)
class Stretch:
    """One axis of a transposed convolution."""

    size: int
    kernel: int
    stride: int
    dilation: int
    before: int
    outputs: int

    def phases(self) -> list[Phase]:
        """The convolutions that give all outputs."""
        made = []
        for first in range(min(self.stride, self.outputs)):
            at = first + self.before
            taps = [j for j in range(self.kernel) if (j * self.dilation - at) % self.stride == 0]
            # Output `first + n * stride` uses pixels `n - distance`.
            distances = [(j * self.dilation - at) // self.stride for j in taps]
            made.append(Phase(self, first, tuple(taps[::-1]), tuple(distances[::-1])))
        return made


@dataclass(frozen=True)
class Phase:
    """Outputs from `first` on, a stride apart, and the kernel positions in the order of their pixels."""

    axis: Stretch
    first: int
    taps: tuple[int, ...]
    distances: tuple[int, ...]

    @property
    def count(self) -> int:
        """Number of outputs."""
        return -(-(self.axis.outputs - self.first) // self.axis.stride)

    def window(self) -> tuple[int, Axis] | None:
        """The first pixel that it reads, and how the kernel moves from there; None if it reads none."""
        if not self.taps:
            return None
        first, last = -self.distances[0], self.count - 1 - self.distances[-1]
        low, high = max(first, 0), min(last, self.axis.size - 1)
        if low > high:
            return None
        step = self.distances[0] - self.distances[1] if len(self.taps) > 1 else 1
        return low, Axis(high - low + 1, len(self.taps), 1, low - first, last - high, step)


def stretches(node: OnnxNode, shape: Sequence[int], kernel: Sequence[int]) -> list[Stretch]:
    """The axes of a transposed convolution for images of this shape."""
    sizes, count = shape[2:], len(shape) - 2
    if count not in (1, 2):
        raise node.error(f"images must have one or two axes besides images and channels, not {list(shape)}")
    strides, dilations, more = (
        given(node, name, [default] * count)
        for name, default in (("strides", 1), ("dilations", 1), ("output_padding", 0))
    )
    pads = given(node, "pads", [0] * 2 * count)
    mode, wanted = node.attributes.get("auto_pad", "NOTSET"), node.attributes.get("output_shape")
    if wanted is not None:
        wanted = list(wanted)[-count:]
    elif mode.startswith("SAME"):
        wanted = [n * s for n, s in zip(sizes, strides, strict=True)]
    made = []
    for axis, (size, k, stride, dilation) in enumerate(zip(sizes, kernel, strides, dilations, strict=True)):
        if min(stride, dilation, k) < 1 or min(pads) < 0 or more[axis] < 0:
            raise node.error("strides, dilations and kernel must be at least 1, pads at least 0")
        full = stride * (size - 1) + more[axis] + (k - 1) * dilation + 1
        before, outputs = pads[axis], full - pads[axis] - pads[count + axis]
        if mode == "VALID":
            before, outputs = 0, full
        if mode.startswith("SAME") and wanted is not None and wanted[axis] > full:
            raise node.error("auto_pad SAME with kernels below the strides differs in onnxruntime; give pads")
        if wanted is not None:
            total, outputs = max(0, full - wanted[axis]), int(wanted[axis])
            before = total // 2 if mode == "SAME_UPPER" else total - total // 2
        if outputs < 1:
            raise node.error(f"axis {axis + 2} of the result must have elements, it has {outputs}")
        made.append(Stretch(size, k, stride, dilation, before, outputs))
    return made


@imports("ConvTranspose")
def _conv_transpose(importer: Importer, node: OnnxNode) -> Value:
    x, w = (
        dequantised_operand(importer, node, importer.value(node, i), what)
        for i, what in ((0, "the images"), (1, "the weights"))
    )
    groups = int(node.attributes.get("group", 1))
    if not x.uniform:
        raise node.error("the images must have one scale and one zero point")
    if len(w.shape) != len(x.shape) or w.shape[0] != x.shape[1] or groups < 1 or w.shape[0] % groups:
        raise node.error(f"weights of shape {list(w.shape)} do not fit images of {list(x.shape)}")
    depth = (0, *range(2, len(w.shape)))
    scale = constant_along(node, w.scale, w.shape, depth, "scales of the weights must differ by channel only")
    if np.any(w.zero != w.zero.flat[0]):
        raise node.error("weights must have one zero point")
    held = importer.array(w.view)
    if held is None:
        raise node.error("the weights must be constants")
    total, limit = transposed(importer, node, x, held, int(w.zero.flat[0]), groups)
    channel = np.tile(scale.reshape(-1), groups).reshape(-1, *(1,) * (len(x.shape) - 2))
    wide = scales(importer, x.scale.reshape(()), scale) if scale.size == 1 else None
    if wide is None:
        wide = np.broadcast_to(scales(importer, x.scale.reshape(()), channel), total.shape)
    result = Dequantised(total, "int32", wide.reshape(()) if wide.size == 1 else wide, np.asarray(0), limit)
    if not node.optional(2):
        return result
    bias = importer.value(node, 2)
    bias = moved(importer, node, bias, places_of(bias).reshape(-1, *(1,) * (len(x.shape) - 2)))
    return combined(importer, node, "Add", [result, bias])


def transposed(
    importer: Importer, node: OnnxNode, x: Dequantised, w: np.ndarray, zero_w: int, groups: int
) -> tuple[View, int]:
    """Sums of products, int32, and their largest possible magnitude."""
    axes = stretches(node, x.shape, w.shape[2:])
    image, zero_x = images(importer, node, x.view), int(x.zero.item())
    if len(axes) == 1:
        axes = [Stretch(1, 1, 1, 1, 0, 1), *axes]
    inputs, outputs = w.shape[0] // groups, w.shape[1] * groups
    # Output channels first, those of a group together.
    grouped = w.reshape(groups, inputs, w.shape[1], axes[0].kernel, axes[1].kernel)
    weights = grouped.swapaxes(1, 2).reshape(outputs, inputs, axes[0].kernel, axes[1].kernel)
    shape = (x.shape[0], outputs, axes[0].outputs, axes[1].outputs)
    total, limit = importer.tensor(f"{node.outputs[0]}.sum", shape, "int32"), 0
    for phases in itertools.product(*(axis.phases() for axis in axes)):
        target, part = total, image
        windows: list[Axis] = []
        for axis, phase in enumerate(phases, start=2):
            target = sliced(target, axis, phase.first, phase.count, phase.axis.stride)
            found = phase.window()
            if found is not None:
                part = sliced(part, axis, found[0], found[1].size)
                windows.append(found[1])
        if len(windows) < len(axes):
            importer.write(node, target, Number(0))
            continue
        taps = weights[:, :, phases[0].taps][..., phases[1].taps]
        kernel = importer.constant(taps, f"{node.outputs[0]}.weights")
        sides = (
            Side(kernel, str(w.dtype), np.asarray(zero_w), (1, 2, 3)),
            Side(image, x.element, np.asarray(zero_x), ()),
        )
        limit = max(limit, greatest_sum(importer, *sides))
        rows, cols = windows
        importer.operators.append(
            ImageConvolution(
                *(node.name, node.op, (node.name,), target, part, kernel, rows, cols),
                *(groups, zero_x, zero_w),
            )
        )
    if limit > WORD:
        raise node.error(f"sums of products reach {limit}, more than {WORD}; smaller weights are needed")
    result = (*shape[:2], *(axis.outputs for axis in axes[-len(x.shape) + 2 :]))
    return importer.reshaped(node, total, result), limit
