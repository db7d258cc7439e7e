"""Operators that move no element, or only move them: they become views, and copies where views do not do."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from sw.frontend.importer import Importer
from sw.frontend.node import OnnxNode
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
from sw.graph.network import ELEMENTS, View
from sw.graph.views import broadcast, sliced, transposed
from sw.operators.registry import imports

OnView = Callable[[View], View]
OnArray = Callable[[np.ndarray], np.ndarray]


def viewed(value: Value, on_view: OnView, on_array: OnArray) -> Value:
    """A value seen through a view; `on_array` does to an array what `on_view` does to a view."""
    match value:
        case Constant(array):
            return Constant(on_array(array))
        case Stored(view, element):
            return Stored(on_view(view), element)
        case Structured():
            shape = on_array(np.broadcast_to(np.int8(0), value.shape)).shape
            return Structured(value.node, value.inner, shape, value.make, (*value.steps, on_view))
        case _:
            return _real(value, on_view, on_array)


def _real(value: Reals, on_view: OnView, on_array: OnArray) -> Reals:
    def array(x: np.ndarray) -> np.ndarray:
        return x if x.size == 1 else on_array(x)

    match value:
        case Constant(held):
            return Constant(array(held))
        case Dequantised(view, element, scale, zero, reach):
            return Dequantised(on_view(view), element, array(scale), array(zero), reach)
        case Real(op, inputs, shape, node, attributes):
            seen = tuple(_real(x, on_view, on_array) for x in inputs)
            return Real(op, seen, on_array(np.broadcast_to(np.int8(0), shape)).shape, node, attributes)


def spread(value: Reals, shape: tuple[int, ...]) -> Reals:
    """A real value repeated to a shape; what has one element everywhere stays."""
    if value.shape == shape:
        return value
    return _real(value, lambda v: broadcast(v, shape), lambda a: np.broadcast_to(a, shape))


def _ints(importer: Importer, node: OnnxNode, index: int, attribute: str, what: str = "") -> list[int] | None:
    """Whole numbers that are an attribute or, in newer versions, an input."""
    given = node.attributes.get(attribute)
    if given is not None:
        return [int(given)] if np.ndim(given) == 0 else [int(v) for v in given]
    array = importer.fixed(node, index, what or attribute)
    return None if array is None else [int(v) for v in array.reshape(-1)]


def _axis(node: OnnxNode, axis: int, rank: int) -> int:
    """An axis counted from 0; a single number has axis 0 too."""
    return node.axis(axis, rank) if rank or axis else 0


def _to_shape(importer: Importer, node: OnnxNode, value: Value, shape: Sequence[int]) -> Value:
    wanted = tuple(int(s) for s in shape)
    if math.prod(wanted) != math.prod(value.shape):
        raise node.error(f"{list(value.shape)} cannot become {list(wanted)}")
    return viewed(value, lambda v: importer.reshaped(node, v, wanted), lambda a: a.reshape(wanted))


@imports("Reshape")
def _reshape(importer: Importer, node: OnnxNode) -> Value:
    value = importer.value(node, 0)
    shape = _ints(importer, node, 1, "shape")
    if shape is None:
        raise node.error("a shape is needed")
    if not node.attributes.get("allowzero", 0):
        if any(size == 0 and axis >= len(value.shape) for axis, size in enumerate(shape)):
            raise node.error(f"shape {shape} takes axes from {list(value.shape)} that are not there")
        shape = [value.shape[axis] if size == 0 else size for axis, size in enumerate(shape)]
    if -1 in shape:
        rest = math.prod(size for size in shape if size != -1)
        shape[shape.index(-1)] = math.prod(value.shape) // max(rest, 1)
    return _to_shape(importer, node, value, shape)


@imports("Flatten")
def _flatten(importer: Importer, node: OnnxNode) -> Value:
    value = importer.value(node, 0)
    axis = int(node.attributes.get("axis", 1))
    axis = axis + len(value.shape) if axis < 0 else axis
    return _to_shape(importer, node, value, (math.prod(value.shape[:axis]), math.prod(value.shape[axis:])))


@imports("Squeeze")
def _squeeze(importer: Importer, node: OnnxNode) -> Value:
    value = importer.value(node, 0)
    given = _ints(importer, node, 1, "axes")
    rank = len(value.shape)
    axes = {_axis(node, a, rank) for a in given} if given is not None else set(range(rank))
    if given is not None and any(value.shape[a] != 1 for a in axes):
        raise node.error(f"axes {given} of {list(value.shape)} must have size 1")
    return _to_shape(importer, node, value, [s for a, s in enumerate(value.shape) if s != 1 or a not in axes])


@imports("Unsqueeze")
def _unsqueeze(importer: Importer, node: OnnxNode) -> Value:
    value = importer.value(node, 0)
    axes = _ints(importer, node, 1, "axes") or []
    rank = len(value.shape) + len(axes)
    places = {_axis(node, a, rank) for a in axes}
    rest = iter(value.shape)
    return _to_shape(importer, node, value, [1 if a in places else next(rest) for a in range(rank)])


@imports("Transpose")
def _transpose(importer: Importer, node: OnnxNode) -> Value:
    value = importer.value(node, 0)
    order = [int(a) for a in node.attributes.get("perm", range(len(value.shape))[::-1])]
    return viewed(value, lambda v: transposed(v, order), lambda a: a.transpose(order))


@imports("Expand")
def _expand(importer: Importer, node: OnnxNode) -> Value:
    value = importer.value(node, 0)
    given = _ints(importer, node, 1, "shape") or []
    shape = np.broadcast_shapes(value.shape, tuple(given))
    return viewed(value, lambda v: broadcast(v, shape), lambda a: np.broadcast_to(a, shape))


def _part(value: Value, axis: int, start: int, count: int, step: int = 1) -> Value:
    places = start + step * np.arange(count)
    return viewed(value, lambda v: sliced(v, axis, start, count, step), lambda a: np.take(a, places, axis))


@imports("Slice")
def _slice(importer: Importer, node: OnnxNode) -> Value:
    value = importer.value(node, 0)
    starts, ends = _ints(importer, node, 1, "starts"), _ints(importer, node, 2, "ends")
    if starts is None or ends is None:
        raise node.error("starts and ends are needed")
    axes = _ints(importer, node, 3, "axes") or list(range(len(starts)))
    steps = _ints(importer, node, 4, "steps") or [1] * len(starts)
    for start, end, given, step in zip(starts, ends, axes, steps, strict=True):
        axis = _axis(node, given, len(value.shape))
        places = range(*slice(start, end, step).indices(value.shape[axis]))
        if not places:
            raise node.error(f"the part of axis {axis} must have elements, [{start}:{end}:{step}] has none")
        value = _part(value, axis, places.start, len(places), places.step)
    return value


@imports("Split")
def _split(importer: Importer, node: OnnxNode) -> list[Value]:
    value = importer.value(node, 0)
    axis = _axis(node, int(node.attributes.get("axis", 0)), len(value.shape))
    size, count = value.shape[axis], len(node.outputs)
    each = -(-size // count)
    sizes = _ints(importer, node, 1, "split") or [min(each, size - i * each) for i in range(count)]
    if sum(sizes) != size or min(sizes) < 1 or len(sizes) != count:
        raise node.error(f"axis {axis} has {size} elements, parts {sizes} must make that up")
    starts = np.cumsum([0, *sizes[:-1]])
    return [_part(value, axis, int(s), n) for s, n in zip(starts, sizes, strict=True)]


@imports("Gather")
def _gather(importer: Importer, node: OnnxNode) -> Value:
    value = importer.value(node, 0)
    indices = importer.fixed(node, 1, "indices")
    if indices is None:
        raise node.error("indices are needed")
    axis = _axis(node, int(node.attributes.get("axis", 0)), len(value.shape))
    size = value.shape[axis]
    if indices.size == 0 or indices.min() < -size or indices.max() >= size:
        raise node.error(f"indices must be {-size} to {size - 1}")
    if isinstance(value, Constant):
        return Constant(np.take(value.array, indices, axis))
    places = (indices.reshape(-1) % size).astype(np.int64)
    step = int(places[1] - places[0]) if places.size > 1 else 1
    if not np.array_equal(places, places[0] + step * np.arange(places.size)):
        raise node.error("indices must be successive, or have one distance")
    part = _part(value, axis, int(places[0]), places.size, step)
    shape = (*value.shape[:axis], *indices.shape, *value.shape[axis + 1 :])
    return _to_shape(importer, node, part, shape)


@imports("Concat")
def _concat(importer: Importer, node: OnnxNode) -> Value:
    parts = [importer.value(node, i) for i in range(len(node.inputs))]
    axis = _axis(node, int(node.attributes["axis"]), len(parts[0].shape))
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    starts = [int(s) for s in np.cumsum([0, *(part.shape[axis] for part in parts[:-1])])]
    if not any(is_real(part) for part in parts):
        stored = [importer.stored(node, i) for i in range(len(parts))]
        if len({s.element for s in stored}) > 1:
            raise node.error("all parts must have one type")
        output = importer.tensor(node.outputs[0], shape, stored[0].element)
        for part, start in zip(stored, starts, strict=True):
            importer.copy(node, part.view, sliced(output, axis, start, part.shape[axis]))
        return Stored(output, stored[0].element)

    def make(name: str, grid: Quantisation) -> View:
        from sw.frontend.quantised import on_grid

        if not grid.uniform:
            raise grid.node.error("the parts of a Concat need one scale and zero point")
        views = [on_grid(importer, node, part, grid, f"{name}.{i}") for i, part in enumerate(parts)]
        output = importer.tensor(name, shape, grid.element)
        for view, start in zip(views, starts, strict=True):
            importer.copy(node, view, sliced(output, axis, start, view.shape[axis]))
        return output

    first = parts[0]
    if all(same_grid(first, part) for part in parts):
        assert isinstance(first, Dequantised)
        grid = Quantisation(first.element, first.scale, first.zero, node)
        return Dequantised(
            make(f"{node.outputs[0]}.whole", grid), first.element, first.scale, first.zero, first.reach
        )
    return Structured(node, tuple(shape), tuple(shape), make)


def same_grid(a: Value, b: Value) -> bool:
    """Whether two dequantised values of 8 bits have one scale and one zero point for all elements."""
    return (
        isinstance(a, Dequantised)
        and isinstance(b, Dequantised)
        and a.uniform
        and b.uniform
        and a.element == b.element
        and bool(a.scale.item() == b.scale.item() and a.zero.item() == b.zero.item())
    )


@imports("Pad")
def _pad(importer: Importer, node: OnnxNode) -> Value:
    value = importer.value(node, 0)
    rank = len(value.shape)
    pads = _ints(importer, node, 1, "pads") or []
    axes = [_axis(node, a, rank) for a in _ints(importer, node, 3, "axes") or range(rank)]
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
                importer.fill(node, int(number), sliced(inner, axis, start, count))
        inner = sliced(inner, axis, before[axis], value.shape[axis])
    importer.copy(node, value.view, inner)
    if isinstance(value, Dequantised):
        return Dequantised(output, value.element, value.scale, value.zero, value.reach)
    return Stored(output, value.element)


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
    n, c, h, w = value.shape
    b = int(node.attributes["blocksize"])
    if node.op == "SpaceToDepth":
        six, order = (n, c, h // b, b, w // b, b), (0, 3, 5, 1, 2, 4)
        shape = (n, c * b * b, h // b, w // b)
    else:
        column = node.attributes.get("mode", "DCR") == "CRD"
        six = (n, c // b // b, b, b, h, w) if column else (n, b, b, c // b // b, h, w)
        order = (0, 1, 4, 2, 5, 3) if column else (0, 3, 4, 1, 5, 2)
        shape = (n, c // b // b, h * b, w * b)
    parts = _to_shape(importer, node, value, six)
    moved = viewed(parts, lambda v: transposed(v, order), lambda a: a.transpose(order))
    return _to_shape(importer, node, moved, shape)


@imports("Shape", "Size")
def _shape(importer: Importer, node: OnnxNode) -> Value:
    shape = np.asarray(importer.value(node, 0).shape, np.int64)
    if node.op == "Size":
        return Constant(np.asarray(shape.prod(), np.int64))
    start, end = node.attributes.get("start", 0), node.attributes.get("end")
    return Constant(shape[start:end])
