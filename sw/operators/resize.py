"""Resize and Upsample: nearest neighbours move elements; linear ones are transposed convolutions."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable

import numpy as np

from hw.errors import InputError
from sw.frontend.importer import Importer
from sw.frontend.node import OnnxNode
from sw.frontend.quantised import dequantised_operand
from sw.frontend.values import Dequantised, Value
from sw.operators.registry import imports
from sw.operators.shapes import check_size, moved, places_of
from sw.operators.transposed import transposed

#: Rounding of a position between two pixels, by nearest_mode; "simple" is that of opset 10 and before.
_NEAREST: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round_prefer_floor": lambda x: np.ceil(x - np.float32(0.5)),
    "round_prefer_ceil": lambda x: np.floor(x + np.float32(0.5)),
    "floor": np.floor,
    "ceil": np.ceil,
}


@imports("Resize", "Upsample")
def _resize(importer: Importer, node: OnnxNode) -> Value:
    """Nearest neighbours as onnxruntime finds them, in float32."""
    value = importer.value(node, 0)
    mode, old = node.attributes.get("mode", "nearest"), _old(importer, node)
    sizes, scales = _sizes(importer, node, value.shape, old)
    check_size(node, sizes)
    if sizes == list(value.shape):
        # onnxruntime copies in this case, whatever the scales are.
        return value
    if mode == "linear":
        return _linear(importer, node, value, scales, _places(node, old))
    if mode != "nearest":
        raise node.error(f"mode must be nearest or linear, not {mode}")
    lines = [_pixels(node, old, *axis) for axis in zip(value.shape, sizes, scales, strict=True)]
    try:
        return moved(importer, node, value, places_of(value)[np.ix_(*lines)])
    except InputError:
        # One axis after the other takes fewer copies.
        for axis, line in enumerate(lines):
            if len(line) != value.shape[axis]:
                value = moved(importer, node, value, np.take(places_of(value), line, axis))
        return value


def _old(importer: Importer, node: OnnxNode) -> bool:
    """Whether the node is of opset 10 or older: scales are the second input, coordinates are fixed."""
    return node.op == "Upsample" or importer.model.opset < 11


def _places(node: OnnxNode, old: bool) -> str:
    """The position of a pixel of the result among the input's."""
    return "asymmetric" if old else str(node.attributes.get("coordinate_transformation_mode", "half_pixel"))


def _sizes(
    importer: Importer, node: OnnxNode, shape: tuple[int, ...], old: bool
) -> tuple[list[int], list[float]]:
    """Size of the result and scale along every axis."""
    chosen = node.attributes.get("axes") or range(len(shape))
    axes = [node.axis(int(a), len(shape)) for a in chosen]
    factors = node.attributes.get("scales")
    if factors is None:
        factors = importer.fixed(node, 1 if old else 2, "scales")
    wanted = None if old else importer.fixed(node, 3, "sizes")
    given = wanted if factors is None or not np.size(factors) else factors
    if given is None or np.size(given) != len(axes):
        raise node.error(f"scales or sizes must be {len(axes)} numbers")
    sizes, scales = list(shape), [1.0] * len(shape)
    numbers = [float(x) for x in np.reshape(given, -1)]
    if given is not wanted:
        for axis, factor in zip(axes, numbers, strict=True):
            sizes[axis], scales[axis] = math.floor(shape[axis] * np.float32(factor)), factor
        return sizes, scales
    ratios = [number / shape[axis] for axis, number in zip(axes, numbers, strict=True)]
    policy = node.attributes.get("keep_aspect_ratio_policy", "stretch")
    one = {"not_larger": min, "not_smaller": max}.get(policy)
    if one is not None and any(int(a) < 0 for a in chosen):
        raise node.error("negative axes with a policy differ in ONNX and onnxruntime; count axes from 0")
    for axis, number, ratio in zip(axes, numbers, ratios, strict=True):
        scale = ratio if one is None else one(ratios)
        sizes[axis] = int(number) if one is None else math.floor(shape[axis] * scale + 0.5)
        scales[axis] = scale
    return sizes, scales


def _pixels(node: OnnxNode, old: bool, before: int, after: int, factor: float) -> np.ndarray:
    """The input pixel of each pixel of the result."""
    if before == after and factor == 1:
        return np.arange(before)
    x, half, scale = np.arange(after, dtype=np.float32), np.float32(0.5), np.float32(factor)
    match mode := _places(node, old):
        case "half_pixel":
            place = (x + half) / scale - half
        case "pytorch_half_pixel":
            place = (x + half) / scale - half if after > 1 else np.zeros(1, np.float32)
        case "asymmetric":
            place = x / scale
        case "align_corners":
            place = x * np.float32(before - 1) / np.float32(max(after - 1, 1))
        case "tf_half_pixel_for_nn":
            place = (x + half) / scale
        case _:
            raise node.error(f"coordinate_transformation_mode {mode} is not supported")
    # Opset 10 and before: round down, or up when shrinking.
    default = "round_prefer_floor" if not old else "floor" if factor >= 1 else "ceil"
    found = _NEAREST[node.attributes.get("nearest_mode", default)](place)
    return np.asarray(np.clip(found, 0, before - 1).astype(np.int64))


def _linear(importer: Importer, node: OnnxNode, value: Value, factors: list[float], mode: str) -> Value:
    """Linear interpolation by integer factors: every pixel spreads, with integer weights, to neighbours."""
    x = dequantised_operand(importer, node, value, "its input", uniform=True)
    if len(factors) not in (3, 4) or factors[:2] != [1, 1] or any(f != int(f) for f in factors):
        found = ", ".join(f"{f:g}" for f in factors)
        raise node.error(f"linear factors must be whole, and 1 for images and channels, not {found}")
    strides = [int(f) for f in factors[2:]]
    lines = [_spread(node, mode, stride) for stride in strides]
    weights = functools.reduce(np.multiply.outer, [numerators for numerators, _, _ in lines])
    if weights.max() > np.iinfo(np.uint8).max:
        raise node.error(f"linear factors must be at most 8, not {max(strides)}")
    # Edge pixels continue outside the image.
    padding = [(0, 0), (0, 0), *((1, 1) if stride > 1 else (0, 0) for stride in strides)]
    edges = moved(importer, node, x, np.pad(places_of(x), padding, "edge"))
    assert isinstance(edges, Dequantised)
    before = [place for _, _, place in lines]
    after = [
        stride + numerators.size - place if stride > 1 else 0
        for stride, (numerators, _, place) in zip(strides, lines, strict=True)
    ]
    made = dataclasses.replace(node, attributes={"strides": strides, "pads": [*before, *after]})
    each = np.broadcast_to(weights.astype(np.uint8), (x.shape[1], 1, *weights.shape))
    total, limit = transposed(importer, made, edges, np.ascontiguousarray(each), 0, x.shape[1])
    scale = float(x.scale.item()) / math.prod(divisor for _, divisor, _ in lines)
    return Dequantised(total, "int32", np.asarray(scale, np.float32), np.asarray(0), limit)


def _spread(node: OnnxNode, mode: str, factor: int) -> tuple[np.ndarray, int, int]:
    """Integer weights of a pixel, their divisor, and the position of the first result."""
    if factor == 1:
        return np.ones(1, np.int64), 1, 0
    if mode not in ("half_pixel", "pytorch_half_pixel", "asymmetric"):
        raise node.error(f"coordinate_transformation_mode {mode} is not supported for linear")
    if mode == "asymmetric" or factor % 2:
        rising = np.arange(1, factor + 1)
        start = factor - 1 if mode == "asymmetric" else (factor - 1) // 2
        return np.concatenate([rising, rising[-2::-1]]), factor, start + factor
    rising = np.arange(1, 2 * factor, 2)
    return np.concatenate([rising, rising[::-1]]), 2 * factor, factor // 2 + factor
