"""What a model asks for: its nodes, and their products and convolutions once the operands are there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hw.errors import InputError
from sw.convolution import Convolution
from sw.frontend.zero_points import common_zero, deepened
from sw.patches import Axis
from sw.problem import TYPES, Product


@dataclass(frozen=True)
class Source:
    """Where an operand comes from: an input or constant by name, its last two axes swapped or not."""

    name: str
    swapped: bool = False


@dataclass(frozen=True)
class MatMulNode:
    """One MatMulInteger: operands, zero points where there are any, and the name of its result."""

    name: str
    a: Source
    b: Source
    zero_a: Source | None
    zero_b: Source | None
    output: str


@dataclass(frozen=True)
class ConvNode:
    """One ConvInteger: images, weights, zero points where there are any, name of the result, attributes."""

    name: str
    x: Source
    w: Source
    zero_x: Source | None
    zero_w: Source | None
    output: str
    attributes: dict[str, Any]


Node = MatMulNode | ConvNode


@dataclass(frozen=True)
class Bound:
    """A product or convolution with its operands as stored, and the shape that the model gives its result."""

    name: str
    op: str
    output: str
    problem: Product | Convolution
    a: np.ndarray
    b: np.ndarray
    shape: tuple[int, ...]


def bind_product(node: MatMulNode, values: Mapping[str, np.ndarray]) -> Bound:
    """The product of a node; raises `InputError` for operands that do not make one."""
    what = f"node {node.name} (MatMulInteger)"
    a, b = values[node.a.name], values[node.b.name]
    vector_a, vector_b = a.ndim == 1, b.ndim == 1
    a, b = (a[None, :] if vector_a else a), (b[:, None] if vector_b else b)
    for name, array in (("A", a), ("B", b)):
        if array.ndim < 2 or str(array.dtype) not in TYPES:
            raise InputError(
                f"{what}: {name} must be a tensor of {' or '.join(TYPES)}, "
                f"not {array.dtype} of {list(array.shape)}"
            )
    swapped_a, swapped_b = node.a.swapped and not vector_a, node.b.swapped and not vector_b
    m, k = a.shape[-2:][:: -1 if swapped_a else 1]
    depth, n = b.shape[-2:][:: -1 if swapped_b else 1]
    if depth != k:
        raise InputError(f"{what}: depths of A and B must be equal, not {k} and {depth}")
    zeros_a = _zero_points(node.zero_a, values, a.dtype, f"{what}: a_zero_point", (*a.shape[:-2], m, 1), -2)
    zeros_b = _zero_points(node.zero_b, values, b.dtype, f"{what}: b_zero_point", (*b.shape[:-2], 1, n), -1)
    (zero_a, fills_a), (zero_b, fills_b) = common_zero(zeros_a, a.dtype), common_zero(zeros_b, b.dtype)
    if fills_a or fills_b:
        a, b = (a.swapaxes(-1, -2) if swapped_a else a), (b.swapaxes(-1, -2) if swapped_b else b)
        swapped_a = swapped_b = False
        a, b = deepened(a, -1, b, -2, fills_a)
        b, a = deepened(b, -2, a, -1, fills_b)
    try:
        problem = Product(
            int(m),
            a.shape[-2 if swapped_a else -1],
            int(n),
            str(a.dtype),
            str(b.dtype),
            zero_a,
            zero_b,
            swapped_a,
            swapped_b,
            a.shape[:-2],
            b.shape[:-2],
        )
    except InputError as error:
        raise InputError(f"{what}: {error}") from None
    core = ((m,) if not vector_a else ()) + ((n,) if not vector_b else ())
    return Bound(node.name, "MatMulInteger", node.output, problem, a, b, (*problem.batch, *core))


def bind_convolution(node: ConvNode, values: Mapping[str, np.ndarray]) -> Bound:
    """The convolution of a node; raises `InputError` for operands that do not make one."""
    what = f"node {node.name} (ConvInteger)"
    x, w = values[node.x.name], values[node.w.name]
    if node.x.swapped or node.w.swapped:
        raise InputError(f"{what}: a Transpose before a convolution is not supported")
    for name, array in (("x", x), ("w", w)):
        if array.ndim not in (3, 4) or array.ndim != x.ndim or str(array.dtype) not in TYPES:
            raise InputError(
                f"{what}: {name} must be a tensor of {' or '.join(TYPES)} with one or two axes besides "
                f"images and channels, not {array.dtype} of {list(array.shape)}"
            )
    axes = [
        _axis(node.attributes, i, x.ndim - 2, x.shape[2 + i], w.shape[2 + i], what) for i in range(x.ndim - 2)
    ]
    shape = [axis.outputs for axis in axes]
    if x.ndim == 3:
        x, w, axes = x[:, :, None], w[:, :, None], [Axis(1, 1), *axes]
    groups = int(node.attributes.get("group", 1))
    if groups < 1 or w.shape[1] * groups != x.shape[1]:
        raise InputError(
            f"{what}: channels of x must be group ({groups}) times those of w ({w.shape[1]}), "
            f"not {x.shape[1]}"
        )
    out = w.shape[0]
    zeros_w = _zero_points(node.zero_w, values, w.dtype, f"{what}: w_zero_point", (out, 1, 1, 1), 0)
    zeros_x = _zero_points(node.zero_x, values, x.dtype, f"{what}: x_zero_point", (1, 1, 1, 1), None)
    zero_w, fills = common_zero(zeros_w, w.dtype)
    if fills:
        apart = x.reshape(x.shape[0], groups, -1, *x.shape[2:])
        w, apart = deepened(w, 1, apart, 2, fills)
        x = apart.reshape(x.shape[0], -1, *x.shape[2:])
    try:
        problem = Convolution(
            x.shape[0],
            x.shape[1],
            axes[0],
            axes[1],
            out,
            str(w.dtype),
            str(x.dtype),
            zero_w,
            int(zeros_x.flat[0]),
            groups,
        )
    except InputError as error:
        raise InputError(f"{what}: {error}") from None
    return Bound(node.name, "ConvInteger", node.output, problem, w, x, (x.shape[0], w.shape[0], *shape))


def _axis(attributes: Mapping[str, Any], i: int, count: int, size: int, kernel: int, what: str) -> Axis:
    """One axis of a convolution from the attributes of its node."""

    def given(name: str, default: int, length: int) -> list[int]:
        values = [int(v) for v in attributes.get(name) or [default] * length]
        if len(values) != length:
            raise InputError(f"{what}: {name} must hold {length} numbers, not {len(values)}")
        return values

    stride, dilation = given("strides", 1, count)[i], given("dilations", 1, count)[i]
    pads = given("pads", 0, 2 * count)
    before, after = pads[i], pads[count + i]
    if given("kernel_shape", kernel, count)[i] != kernel:
        raise InputError(f"{what}: kernel_shape must be that of w, not {attributes['kernel_shape']}")
    mode = attributes.get("auto_pad", b"NOTSET").decode()
    if mode in ("SAME_UPPER", "SAME_LOWER") and stride > 0:
        outputs = -(-size // stride)
        total = max(0, (outputs - 1) * stride + (kernel - 1) * dilation + 1 - size)
        small, large = total // 2, total - total // 2
        before, after = (small, large) if mode == "SAME_UPPER" else (large, small)
    elif mode == "VALID":
        before = after = 0
    elif mode != "NOTSET":
        raise InputError(f"{what}: auto_pad must be NOTSET, VALID, SAME_UPPER or SAME_LOWER, not {mode}")
    return Axis(size, kernel, stride, before, after, dilation)


def _zero_points(
    source: Source | None,
    values: Mapping[str, np.ndarray],
    dtype: np.dtype,
    what: str,
    shape: tuple[int, ...],
    axis: int | None,
) -> np.ndarray:
    """The zero points of an operand, of that shape or one for all; a vector lies along `axis`."""
    if source is None:
        return np.zeros(1, dtype)
    array = values[source.name]
    if array.dtype != dtype:
        raise InputError(f"{what} must be {dtype} like its operand, not {array.dtype}")
    if array.size == 1:
        return array.reshape(1)
    if array.shape == shape:
        return array
    if axis is None or array.shape != (shape[axis],):
        vector = f", a vector of {shape[axis]}" if axis is not None else ""
        raise InputError(
            f"{what} must be one value{vector} or of shape {list(shape)}, not {list(array.shape)}"
        )
    return array.reshape([-1 if i == axis % len(shape) else 1 for i in range(len(shape))])
