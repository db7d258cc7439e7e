"""Operators that only move elements: they become views, or copies if necessary."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from sw.frontend.fold import shape_of
from sw.frontend.importer import Importer
from sw.frontend.lowering import Lowering
from sw.frontend.node import OnnxNode
from sw.frontend.quantised import on_grid
from sw.frontend.values import (
    Constant,
    Dequantised,
    FixedPoint,
    Quantisation,
    Real,
    Reals,
    Stored,
    Structured,
    Value,
)
from sw.graph.network import View, word
from sw.graph.requantise import LIMITS
from sw.graph.views import broadcast, strided
from sw.operators import host
from sw.operators.places import Boxes, assembled
from sw.operators.registry import imports

#: Most elements of a result that is larger than its operand.
MOST_ELEMENTS = 1 << 25

OnView = Callable[[View], View]
OnArray = Callable[[np.ndarray], np.ndarray]


def viewed(value: Value, on_view: OnView, on_array: OnArray) -> Value:
    """A value through a view; `on_array` does to an array what `on_view` does to a view."""
    match value:
        case Stored(view, element):
            return Stored(on_view(view), element)
        case Structured(node, shape, make, fixed):
            shape = on_array(np.broadcast_to(np.int8(0), shape)).shape
            seen = None if fixed is None else lambda: _real(fixed(), on_view, on_array)
            return Structured(node, shape, lambda name, grid: on_view(make(name, grid)), seen)
        case _:
            return _real(value, on_view, on_array)


def _real(value: Reals, on_view: OnView, on_array: OnArray) -> Reals:
    match value:
        case Constant(held):
            return Constant(on_array(held))
        case Dequantised(view, _, scale, zero):
            scale, zero = (x if x.size == 1 else on_array(x) for x in (scale, zero))
            return dataclasses.replace(value, view=on_view(view), scale=scale, zero=zero)
        case Real(op, inputs, shape, node, attributes):
            seen = tuple(
                x if isinstance(x, Constant) and x.array.size == 1 else _real(x, on_view, on_array)
                for x in inputs
            )
            return Real(op, seen, on_array(np.broadcast_to(np.int8(0), shape)).shape, node, attributes)


def spread(value: Reals, shape: tuple[int, ...]) -> Reals:
    """A real value repeated to a shape; a value with a single element stays as it is."""
    if value.shape == shape:
        return value
    return _real(value, lambda v: broadcast(v, shape), lambda a: np.broadcast_to(a, shape))


def moved(importer: Importer, node: OnnxNode, value: Value, places: np.ndarray) -> Value:
    """The elements at these positions of a value, counted row by row: a view of it, or a copy."""

    def on_view(view: View) -> View:
        found = strided(view.tensor, view.numbers.reshape(-1)[places])
        if found is not None:
            return found
        dense = strided("", places)
        if dense is not None:
            return dataclasses.replace(dense, tensor=importer.dense(node, view).tensor)
        element = importer.tensors[view.tensor].element
        hint = node.outputs[0] if isinstance(value, Stored) else f"{node.outputs[0]}.whole"
        return assembled(importer, node, [view], places, element, hint)

    return viewed(value, on_view, lambda x: np.broadcast_to(x, value.shape).reshape(-1)[places])


def joined(
    importer: Importer, node: OnnxNode, values: Sequence[Value], places: np.ndarray | Boxes, fill: float = 0.0
) -> Value:
    """The elements at these positions of several values, counted one after the other; a number at `FILL`."""

    def make(name: str, grid: Quantisation) -> View:
        if not grid.uniform:
            raise grid.node.error(f"one scale and zero point are needed after {node.place}")
        views = [on_grid(importer, node, part, grid, f"{name}.{i}") for i, part in enumerate(values)]
        number = int(Lowering(importer, places.shape, grid).on_grid(np.asarray(fill)).item())
        return assembled(importer, node, views, places, grid.element, name, number)

    name = node.outputs[0]
    if any(isinstance(value, Stored) for value in values):
        views, element = _words(importer, node, values)
        bits = int(np.asarray(fill).astype(element).view(word(element)))
        return Stored(assembled(importer, node, views, places, element, name, bits), element)
    uniform = [p for p in values if isinstance(p, Dequantised) and p.uniform]
    grids = {(p.element, p.scale.item(), p.zero.item()) for p in uniform}
    if len(uniform) == len(values) and len(grids) == 1:
        moved_all = math.prod(places.shape) == sum(math.prod(v.shape) for v in values)
        filled = not moved_all if isinstance(places, Boxes) else bool((places < 0).any())
        first = united(uniform, *([fill] if filled else []))
        low, high = LIMITS[first.element]
        number = fill / float(first.scale.item()) + int(first.zero.item())
        if number.is_integer() and low <= number <= high:
            grid = Quantisation(first.element, first.scale, first.zero, node)
            return dataclasses.replace(first, view=make(f"{name}.whole", grid))
    return Structured(node, places.shape, make)


def united(parts: Sequence[Dequantised], *numbers: float) -> Dequantised:
    """A part of several values and numbers: in fixed point, it gets the combined range and error of all."""
    fixed = [p for p in parts if isinstance(p, FixedPoint)]
    if not fixed:
        return parts[0]
    low, high = min([*numbers, *(p.low for p in fixed)]), max([*numbers, *(p.high for p in fixed)])
    reach, error = max(p.reach for p in parts), max(p.error for p in fixed)
    return dataclasses.replace(fixed[0], reach=reach, error=error, low=low, high=high)


def _words(importer: Importer, node: OnnxNode, values: Sequence[Value]) -> tuple[list[View], str]:
    """Values of one type as views, and the type."""
    (element, *_) = [v.element for v in values if isinstance(v, Stored)]
    views = []
    for value in values:
        if isinstance(value, Constant):
            value = Stored(importer.constant(value.array, f"{node.outputs[0]}.part"), str(value.array.dtype))
        if not isinstance(value, Stored) or value.element != element:
            found = value.element if isinstance(value, Stored) else "real numbers"
            raise node.error(f"all parts must have one type, not {element} and {found}")
        views.append(value.view)
    return views, element


def check_size(node: OnnxNode, shape: Sequence[int]) -> None:
    """Raises `InputError` for a result that is empty, or too large for an element map."""
    elements = math.prod(int(n) for n in shape)
    if elements < 1:
        raise node.error("the result must have elements, it has none")
    if elements > MOST_ELEMENTS:
        raise node.error(f"the result must have at most {MOST_ELEMENTS} elements, not {elements}")


def numbered(values: Sequence[Value]) -> list[np.ndarray]:
    """The numbers of all elements of values, counted one after the other."""
    starts = np.cumsum([0, *(math.prod(v.shape) for v in values)])
    return [places_of(v) + start for v, start in zip(values, starts, strict=False)]


def places_of(value: Value) -> np.ndarray:
    """The numbers of all elements."""
    return np.arange(math.prod(value.shape)).reshape(value.shape)


#: Operators that move elements of their first input only; the others are constants.
_MOVING = (
    *("Expand", "Tile", "SpaceToDepth", "DepthToSpace", "Gather", "GatherND", "GatherElements"),
    *("Compress", "ReverseSequence", "Trilu", "CenterCropPad"),
)
#: Operators that also take elements of their third input.
_SCATTERING = ("Scatter", "ScatterElements", "ScatterND")


@imports(*_MOVING, *_SCATTERING)
def _moved(importer: Importer, node: OnnxNode) -> list[Value]:
    """The elements that these operators select, and those they fill with 0, according to onnxruntime."""
    from onnx import defs

    names = [x.name for x in defs.get_schema(node.op).inputs]
    data = (0, 2) if node.op in _SCATTERING else (0,)
    if node.attributes.get("reduction", "none") != "none":
        raise node.error(f"reduction must be none, not {node.attributes['reduction']}")
    values = [importer.value(node, i) for i in data]
    given = {i: importer.fixed(node, i, names[i]) for i in range(1, len(node.inputs)) if i not in data}
    by = given.get(1)
    if node.op == "Tile" and by is not None:
        check_size(node, [size * int(n) for size, n in zip(values[0].shape, by.reshape(-1), strict=False)])
    if node.op == "Expand" and by is not None:
        check_size(node, np.broadcast_shapes(values[0].shape, tuple(by.reshape(-1).tolist())))
    # Numbered from 1, so that 0 marks filled elements, in the one type that onnxruntime supports for all of
    # them.
    arrays = {i: (numbers + 1).astype(np.float64) for i, numbers in zip(data, numbered(values), strict=True)}
    made = host.run(importer, node, arrays | {i: x for i, x in given.items() if x is not None})
    found = [places.astype(np.int64) for places in made]
    if any(not places.size for places in found):
        raise node.error("the result must have elements, it has none")
    if len(values) == 1 and all(places.min() > 0 for places in found):
        return [moved(importer, node, values[0], places - 1) for places in found]
    return [joined(importer, node, values, places - 1) for places in found]


@imports("Identity", "Dropout")
def _same(importer: Importer, node: OnnxNode) -> list[Value]:
    if len(node.outputs) > 1 and any(node.outputs[1:]):
        raise node.error("the mask is not supported as an output")
    if node.optional(2) and bool(np.any(importer.fixed(node, 2, "training_mode"))):
        raise node.error("training mode is not supported")
    return [importer.value(node, 0)]


@imports("Shape", "Size")
def _shape(importer: Importer, node: OnnxNode) -> Value:
    return Constant(shape_of(node, importer.value(node, 0).shape))
