"""Window axes of convolutions and pooling over images."""

from __future__ import annotations

import numpy as np

from sw.frontend.importer import Importer
from sw.frontend.node import OnnxNode
from sw.frontend.values import Value
from sw.graph.expression import Integers
from sw.graph.network import View
from sw.patches import Axis

_MODES = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


def axes(node: OnnxNode, value: Value, kernel: tuple[int, ...]) -> tuple[list[Axis], list[int]]:
    """The axes of an image window, and the number of trailing pads that do not count.

    Rounding up the size of the result (`ceil_mode`) adds these.
    """
    if len(value.shape) not in (3, 4):
        raise node.error(
            f"images must have one or two axes besides images and channels, not {list(value.shape)}"
        )
    sizes = value.shape[2:]
    count = len(sizes)
    strides, dilations = (given(node, name, [1] * count) for name in ("strides", "dilations"))
    pads = given(node, "pads", [0] * 2 * count)
    if given(node, "kernel_shape", list(kernel)) != list(kernel):
        raise node.error(f"kernel_shape must be that of the weights, not {node.attributes['kernel_shape']}")
    found = [
        _axis(node, *numbers)
        for numbers in zip(sizes, kernel, strides, dilations, pads[:count], pads[count:], strict=True)
    ]
    return [axis for axis, _ in found], [more for _, more in found]


def given(node: OnnxNode, name: str, default: list[int]) -> list[int]:
    """The values of an attribute, which must be as many as the defaults."""
    values = [int(v) for v in node.attributes.get(name) or default]
    if len(values) != len(default):
        raise node.error(f"{name} must hold {len(default)} numbers, not {len(values)}")
    return values


def _axis(
    node: OnnxNode, size: int, kernel: int, stride: int, dilation: int, before: int, after: int
) -> tuple[Axis, int]:
    if min(stride, dilation, kernel) < 1 or min(before, after) < 0:
        raise node.error("strides, dilations and kernel must be at least 1, pads at least 0")
    mode = node.attributes.get("auto_pad", "NOTSET")
    reach = (kernel - 1) * dilation + 1
    more = 0
    if mode not in _MODES:
        raise node.error(f"auto_pad must be {', '.join(_MODES)}, not {mode}")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        outputs = -(-size // stride)
        total = (outputs - 1) * stride + reach - size
        shifted = total < 0 and node.attributes.get("count_include_pad", 0)
        if node.op.endswith("Pool") and (reach > kernel or shifted):
            raise node.error(f"auto_pad {mode} of such windows differs in ONNX and onnxruntime; give pads")
        small, large = max(0, total) // 2, max(0, total + 1) // 2
        before, after = (small, large) if mode == "SAME_UPPER" else (large, small)
    elif mode == "VALID":
        before = after = 0
    if node.attributes.get("ceil_mode", 0) and not mode.startswith("SAME"):
        outputs = -(-(size + before + after - reach) // stride) + 1
        if (outputs - 1) * stride >= size + before:
            # The last window would start after the image.
            outputs -= 1
        more = max(0, (outputs - 1) * stride + reach - size - before - after)
    axis = Axis(size, kernel, stride, before, after + more, dilation)
    if axis.outputs < 1:
        raise node.error(f"the kernel covers {reach} pixels, the padded image has {size + before + after}")
    return axis, more


def images(importer: Importer, node: OnnxNode, view: View) -> View:
    """Images with rows and columns; a single axis of pixels becomes one row."""
    shape = view.shape
    if len(shape) == 3:
        return importer.reshaped(node, view, (shape[0], shape[1], 1, shape[2]))
    return view


def counted(axis: Axis, include_pad: bool, uncounted: int) -> Integers:
    """By window position, the number of its rows (columns) that count.

    With `include_pad`, padding counts, except what rounding up the output's size adds at the end.
    """
    place = np.arange(axis.outputs)[:, None] * axis.stride + np.arange(axis.kernel) * axis.dilation
    low, high = axis.before, axis.before + axis.size
    if include_pad:
        low, high = 0, high + axis.after - uncounted
    found: Integers = ((place >= low) & (place < high)).sum(axis=1).astype(np.int64)
    return found


def two(found: list[Axis]) -> tuple[Axis, Axis]:
    """Row and column axis; a single axis is the column axis."""
    return (Axis(1, 1), found[0]) if len(found) == 1 else (found[0], found[1])


def reduced_axes(importer: Importer, node: OnnxNode, rank: int) -> list[int] | None:
    """The axes over which a tensor is reduced; None if it stays as it is."""
    array = importer.fixed(node, 1, "axes")
    found = node.attributes.get("axes") if array is None else array.reshape(-1).tolist()
    if not found and node.attributes.get("noop_with_empty_axes", 0):
        return None
    return sorted(node.axis(int(a), rank) for a in (found or range(rank)))
