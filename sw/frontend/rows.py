"""Operators on whole rows and windows: softmax, layer normalisation, pools and means."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sw.frontend.importer import Handler, Importer
from sw.frontend.node import Node
from sw.frontend.products import BYTES
from sw.frontend.quantised import on_grid, settled
from sw.frontend.reals import held
from sw.frontend.values import Dequantised, Grid, Real, Stored, Structured, Value, is_real
from sw.frontend.windows import axes, images, pixels, two
from sw.graph.layernorm import layer_normalisation
from sw.graph.network import Operator, View
from sw.graph.pool import average_pool, max_pool
from sw.graph.softmax import softmax
from sw.graph.views import reshaped, transposed
from sw.patches import Axis


def _operand(importer: Importer, node: Node) -> Dequantised:
    value = settled(importer, node, importer.value(node, 0))
    if not isinstance(value, Dequantised) or value.element not in BYTES or not value.uniform:
        made = f", not from {value.node.place}" if isinstance(value, Real | Structured) else ""
        raise node.error(f"its input must come from DequantizeLinear of int8 or uint8 with one scale{made}")
    return value


def _axis(node: Node, axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise node.error(f"axis must be {-rank} to {rank - 1}, not {axis}")
    return axis % rank


def _behind(importer: Importer, view: View, axis: int) -> View:
    """The view with an axis as its last."""
    order = [a for a in range(len(view.shape)) if a != axis] + [axis]
    return transposed(view, order)


def _in_place(view: View, axis: int) -> View:
    """The view with its last axis at a place: what `_behind` does, undone."""
    order = list(range(len(view.shape) - 1))
    order.insert(axis, len(view.shape) - 1)
    return transposed(view, order)


def _names(node: Node, grid: Grid) -> tuple[str, ...]:
    return tuple(dict.fromkeys((node.name, grid.node.name)))


def _softmax(importer: Importer, node: Node) -> Value:
    value = _operand(importer, node)
    rank = len(value.shape)
    old = int(node.attributes.get("opset", importer.model.opset)) < 13
    axis = _axis(node, int(node.attributes.get("axis", 1 if old else -1)), rank)
    if old and math.prod(value.shape[axis:]) != value.shape[-1]:
        raise node.error(f"before opset 13, all axes from {axis} on are one row; only the last can be")
    axis = rank - 1 if old else axis
    view = _behind(importer, value.view, axis)

    def make(name: str, grid: Grid) -> View:
        output = importer.tensor(name, value.shape, grid.element)
        operator = softmax(
            node.name,
            node.op,
            _names(node, grid),
            _behind(importer, output, axis),
            view,
            **_scales(value, grid),
        )
        importer.operators.append(operator)
        return output

    return Structured(node, value.shape, value.shape, make)


def _scales(value: Dequantised, grid: Grid) -> dict[str, Any]:
    """Types and scales of operand and result, as operators on rows take them."""
    return {
        "element": value.element,
        "x_scale": float(value.scale.item()),
        "y_scale": float(grid.scale.item()),
        "y_zero": int(grid.zero.item()),
        "result": grid.element,
    }


def _layer_normalization(importer: Importer, node: Node) -> Value:
    value = _operand(importer, node)
    if any(node.outputs[1:]):
        raise node.error("mean and deviation as outputs are not supported")
    axis = _axis(node, int(node.attributes.get("axis", -1)), len(value.shape))
    columns = math.prod(value.shape[axis:])
    given = []
    for index, neutral in ((1, 1.0), (2, 0.0)):
        array = held(importer, importer.value(node, index)) if node.optional(index) else np.asarray(neutral)
        if array is None:
            raise node.error("scale and bias must be constants")
        given.append(np.broadcast_to(array, value.shape[axis:]).reshape(-1))
    flat = (*value.shape[:axis], columns)
    view = importer.reshaped(node, value.view, flat)

    def make(name: str, grid: Grid) -> View:
        output = importer.tensor(name, value.shape, grid.element)
        rows = reshaped(output, flat)
        assert rows is not None
        operator = layer_normalisation(
            node.name,
            node.op,
            _names(node, grid),
            rows,
            view,
            gamma=given[0],
            beta=given[1],
            epsilon=float(node.attributes.get("epsilon", 1e-5)),
            **_scales(value, grid),
        )
        importer.operators.append(operator)
        return output

    return Structured(node, value.shape, value.shape, make)


def _max_pool(importer: Importer, node: Node) -> Value:
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

    def make(name: str, grid: Grid) -> View:
        view = on_grid(importer, grid.node, value, grid, f"{name}.pixels")
        return pooled(view, grid.element, name, _names(node, grid))

    return Structured(node, shape, shape, make)


def _average_pool(importer: Importer, node: Node) -> Value:
    value = _operand(importer, node)
    found, more = axes(node, pixels(node, value), tuple(node.attributes["kernel_shape"]))
    include = bool(node.attributes.get("count_include_pad", 0))
    shape = (*value.shape[:2], *(a.outputs for a in found))
    image = images(importer, node, value.view)
    uncounted = (0, more[0]) if len(more) == 1 else (more[0], more[1])
    return _averaged(importer, node, value, image, two(found), shape, include, uncounted)


def _averaged(
    importer: Importer,
    node: Node,
    value: Dequantised,
    image: View,
    window: tuple[Axis, Axis],
    shape: tuple[int, ...],
    include: bool = False,
    uncounted: tuple[int, int] = (0, 0),
) -> Structured:
    """The averages of windows of images, whose result is seen as `shape`."""
    inner = (*image.shape[:2], window[0].outputs, window[1].outputs)

    def make(name: str, grid: Grid) -> View:
        output = importer.tensor(name, shape, grid.element)
        four = reshaped(output, inner)
        assert four is not None
        operator = average_pool(
            node.name,
            node.op,
            _names(node, grid),
            four,
            image,
            *window,
            element=value.element,
            x_scale=float(value.scale.item()),
            x_zero=int(value.zero.item()),
            y_scale=float(grid.scale.item()),
            y_zero=int(grid.zero.item()),
            result=grid.element,
            include_pad=include,
            uncounted=uncounted,
        )
        importer.operators.append(operator)
        return output

    return Structured(node, shape, shape, make)


def _mean(importer: Importer, node: Node) -> Value:
    """The mean over axes, as the average of a window as large as the image."""
    value = _operand(importer, node)
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
        chosen = sorted(_axis(node, int(a), rank) for a in (range(rank) if given is None else given))
        keep = bool(node.attributes.get("keepdims", 1))
    return _meant(importer, node, value, chosen, keep)


def _meant(
    importer: Importer, node: Node, value: Dequantised, chosen: Sequence[int], keep: bool
) -> Structured:
    rest = [a for a in range(len(value.shape)) if a not in chosen]
    order = [*rest, *chosen]
    count = math.prod(value.shape[a] for a in chosen)
    kept = tuple(value.shape[a] for a in rest)
    image = _four(importer, node, transposed(value.view, order), kept, count)
    shape = tuple(1 if a in chosen else s for a, s in enumerate(value.shape)) if keep else kept
    rows, cols = (Axis(s, s) for s in image.shape[2:])
    return _averaged(importer, node, value, image, (rows, cols), shape)


def _four(importer: Importer, node: Node, view: View, kept: tuple[int, ...], count: int) -> View:
    """Images with one window each: what is kept, then the window as rows and columns if strides say so."""
    first = kept[:1] or (1,)
    before = (*first, math.prod(kept[1:]))
    window = view.shape[len(kept) :]
    for shape in ((*before, 1, count), (*before, window[0], count // window[0])):
        found = reshaped(view, shape)
        if found is not None:
            return found
    return importer.reshaped(node, view, (*before, 1, count))


_RULES: dict[str, Callable[[Importer, Node], Value]] = {
    "Softmax": _softmax,
    "LayerNormalization": _layer_normalization,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "GlobalAveragePool": _mean,
    "ReduceMean": _mean,
}
HANDLERS: dict[str, Handler] = dict(_RULES)
