"""Operators that move no element, or only move them: they become views, and copies where views do not do."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from sw.frontend.importer import Importer
from sw.frontend.node import OnnxNode
from sw.frontend.quantised import on_grid
from sw.frontend.values import (
    Constant,
    Dequantised,
    Quantisation,
    Real,
    Reals,
    Stored,
    Structured,
    Value,
    is_real,
)
from sw.graph.expression import Number
from sw.graph.network import ELEMENTS, View
from sw.graph.views import broadcast, sliced, strided
from sw.operators import host
from sw.operators.registry import imports

OnView = Callable[[View], View]
OnArray = Callable[[np.ndarray], np.ndarray]


def viewed(value: Value, on_view: OnView, on_array: OnArray) -> Value:
    """A value seen through a view; `on_array` does to an array what `on_view` does to a view."""
    match value:
        case Stored(view, element):
            return Stored(on_view(view), element)
        case Structured(node, shape, make):
            shape = on_array(np.broadcast_to(np.int8(0), shape)).shape
            return Structured(node, shape, lambda name, grid: on_view(make(name, grid)))
        case _:
            return _real(value, on_view, on_array)


def _real(value: Reals, on_view: OnView, on_array: OnArray) -> Reals:
    match value:
        case Constant(held):
            return Constant(on_array(held))
        case Dequantised(view, element, scale, zero, reach):
            scale, zero = (x if x.size == 1 else on_array(x) for x in (scale, zero))
            return Dequantised(on_view(view), element, scale, zero, reach)
        case Real(op, inputs, shape, node, attributes):
            seen = tuple(
                x if isinstance(x, Constant) and x.array.size == 1 else _real(x, on_view, on_array)
                for x in inputs
            )
            return Real(op, seen, on_array(np.broadcast_to(np.int8(0), shape)).shape, node, attributes)


def spread(value: Reals, shape: tuple[int, ...]) -> Reals:
    """A real value repeated to a shape; what has one element everywhere stays."""
    if value.shape == shape:
        return value
    return _real(value, lambda v: broadcast(v, shape), lambda a: np.broadcast_to(a, shape))


def moved(importer: Importer, node: OnnxNode, value: Value, places: np.ndarray) -> Value:
    """The elements at these places of a value, counted row by row: a view of them, or a copy."""

    def on_view(view: View) -> View:
        found = strided(view.tensor, view.numbers.reshape(-1)[places])
        if found is not None:
            return found
        dense = strided("", places)
        if dense is None:
            raise node.error("indices must be successive, or have one distance")
        return dataclasses.replace(dense, tensor=importer.dense(node, view).tensor)

    return viewed(value, on_view, lambda x: np.broadcast_to(x, value.shape).reshape(-1)[places])


def places_of(value: Value) -> np.ndarray:
    """The numbers of all elements."""
    return np.arange(math.prod(value.shape)).reshape(value.shape)


@imports("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Expand", "Slice", "Split", "Gather")
def _moved(importer: Importer, node: OnnxNode) -> list[Value]:
    """Which elements these operators give, onnxruntime says."""
    from onnx import defs

    value = importer.value(node, 0)
    names = [x.name for x in defs.get_schema(node.op).inputs]
    given = {i: importer.fixed(node, i, names[i]) for i in range(1, len(node.inputs))}
    arrays = {0: places_of(value), **{i: x for i, x in given.items() if x is not None}}
    found = host.run(importer, node, arrays)
    if any(not places.size for places in found):
        raise node.error("the result must have elements, it has none")
    return [moved(importer, node, value, places) for places in found]


@imports("Concat")
def _concat(importer: Importer, node: OnnxNode) -> Value:
    parts = [importer.value(node, i) for i in range(len(node.inputs))]
    axis = node.axis(int(node.attributes["axis"]), len(parts[0].shape))
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)

    def joined(views: Sequence[View], name: str, element: str) -> View:
        output, start = importer.tensor(name, shape, element), 0
        for view in views:
            importer.copy(node, view, sliced(output, axis, start, view.shape[axis]))
            start += view.shape[axis]
        return output

    def make(name: str, grid: Quantisation) -> View:
        if not grid.uniform:
            raise grid.node.error("the parts of a Concat need one scale and zero point")
        views = [on_grid(importer, node, part, grid, f"{name}.{i}") for i, part in enumerate(parts)]
        return joined(views, name, grid.element)

    if not any(is_real(part) for part in parts):
        stored = [importer.stored(node, i) for i in range(len(parts))]
        element = stored[0].element
        if any(s.element != element for s in stored):
            raise node.error("all parts must have one type")
        return Stored(joined([s.view for s in stored], node.outputs[0], element), element)
    uniform = [p for p in parts if isinstance(p, Dequantised) and p.uniform]
    grids = {(p.element, p.scale.item(), p.zero.item()) for p in uniform}
    if len(uniform) == len(parts) and len(grids) == 1:
        first = uniform[0]
        grid = Quantisation(first.element, first.scale, first.zero, node)
        return dataclasses.replace(first, view=make(f"{node.outputs[0]}.whole", grid))
    return Structured(node, tuple(shape), make)


@imports("Pad")
def _pad(importer: Importer, node: OnnxNode) -> Value:
    value = importer.value(node, 0)
    rank = len(value.shape)
    found, chosen = importer.fixed(node, 1, "pads"), importer.fixed(node, 3, "axes")
    pads = list(node.attributes.get("pads", ())) if found is None else found.reshape(-1).tolist()
    axes = [node.axis(int(a), rank) for a in (range(rank) if chosen is None else chosen.reshape(-1))]
    if node.attributes.get("mode", "constant") != "constant":
        raise node.error(f"mode must be constant, not {node.attributes['mode']}")
    if len(pads) != 2 * len(axes) or min(pads, default=0) < 0:
        raise node.error(f"pads must be {2 * len(axes)} numbers of at least 0, not {pads}")
    before, after = [0] * rank, [0] * rank
    for i, axis in enumerate(axes):
        before[axis], after[axis] = pads[i], pads[len(axes) + i]
    given = _fill_value(importer, node)
    if isinstance(value, Dequantised) and value.uniform:
        number = given / float(value.scale.item()) + int(value.zero.item())
        if number != int(number):
            raise node.error(f"{given} must be a multiple of the scale {value.scale.item()}")
    elif isinstance(value, Stored) and value.element in ELEMENTS:
        number = given
    else:
        raise node.error("whole numbers, or real ones of one scale, are needed")
    shape = [b + s + a for b, s, a in zip(before, value.shape, after, strict=True)]
    output = importer.tensor(node.outputs[0], shape, value.element)
    inner = output
    for axis in range(rank):
        for start, count in ((0, before[axis]), (before[axis] + value.shape[axis], after[axis])):
            if count:
                importer.write(node, sliced(inner, axis, start, count), Number(int(number)))
        inner = sliced(inner, axis, before[axis], value.shape[axis])
    importer.copy(node, value.view, inner)
    return dataclasses.replace(value, view=output)


def _fill_value(importer: Importer, node: OnnxNode) -> float:
    if "value" in node.attributes:
        return float(node.attributes["value"])
    if not node.optional(2):
        return 0.0
    value = importer.value(node, 2)
    if isinstance(value, Dequantised):
        array = importer.array(value.view)
        if array is not None:
            return float((array.item() - value.zero.item()) * value.scale.item())
    if not isinstance(value, Constant):
        raise node.error("the number to pad with must be a constant")
    return float(value.array.item())


@imports("Identity", "Dropout")
def _same(importer: Importer, node: OnnxNode) -> list[Value]:
    if len(node.outputs) > 1 and any(node.outputs[1:]):
        raise node.error("the mask is not supported as an output")
    if node.optional(2) and bool(np.any(importer.fixed(node, 2, "training_mode"))):
        raise node.error("training mode is not supported")
    return [importer.value(node, 0)]


@imports("SpaceToDepth", "DepthToSpace")
def _space(importer: Importer, node: OnnxNode) -> Value:
    value = importer.value(node, 0)
    # onnxruntime has these operators for float64, but not for int64.
    (found,) = host.run(importer, node, {0: places_of(value).astype(np.float64)})
    places = found.astype(np.int64)
    n, c, h, w = places.shape
    b = int(node.attributes["blocksize"])
    six = (n, b, b, c // b // b, h, w) if node.op == "SpaceToDepth" else (n, c, h // b, b, w // b, b)
    parts = moved(importer, node, value, places.reshape(six))
    return moved(importer, node, parts, places_of(parts).reshape(places.shape))


@imports("Shape", "Size")
def _shape(importer: Importer, node: OnnxNode) -> Value:
    return Constant(host.run(importer, node, {0: places_of(importer.value(node, 0))})[0])
