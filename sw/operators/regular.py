"""Reshapes, slices, concatenations etc. of tensors of any size, without an element map."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from sw.frontend.importer import Importer
from sw.frontend.node import OnnxNode
from sw.frontend.sizes import inferred
from sw.frontend.values import Constant, Dequantised, Value
from sw.graph.network import View
from sw.graph.views import plain, sliced, transposed
from sw.operators.places import Boxes
from sw.operators.registry import imports
from sw.operators.shapes import check_size, joined, moved, places_of, viewed


def _seen(
    value: Value, on_view: Callable[[View], View], on_array: Callable[[np.ndarray], np.ndarray]
) -> Value:
    """A value seen through a view; axes of size 1 are repeated first."""
    return viewed(value, lambda v: plain(on_view(v)), lambda a: on_array(np.broadcast_to(a, value.shape)))


def _shapes(importer: Importer, node: OnnxNode) -> list[tuple[int, ...]]:
    """The shapes of a node's results."""
    from onnx import defs

    names = [x.name for x in defs.get_schema(node.op).inputs]
    operands: dict[str, np.ndarray | tuple[np.dtype, tuple[int, ...]]] = {
        node.inputs[0]: (np.dtype(np.int8), importer.value(node, 0).shape)
    }
    for index, name in enumerate(node.inputs[1:], 1):
        held = importer.fixed(node, index, names[index])
        if held is not None:
            operands[name] = held
    found = [kind[1] for kind in inferred(node, importer.model.opset, operands) if kind is not None]
    if len(found) != len(node.outputs) or any(0 in shape for shape in found):
        raise node.error("the result must have elements, it has none")
    return found


@imports("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def _reshape(importer: Importer, node: OnnxNode) -> Value:
    (shape,) = _shapes(importer, node)
    return _seen(
        importer.value(node, 0), lambda v: importer.reshaped(node, v, shape), lambda a: a.reshape(shape)
    )


@imports("Transpose")
def _transpose(importer: Importer, node: OnnxNode) -> Value:
    value = importer.value(node, 0)
    axes = range(len(value.shape))
    order = list(node.attributes.get("perm", axes[::-1]))
    if sorted(order) != list(axes):
        raise node.error(f"perm must name each of {len(axes)} axes once, not {order}")
    return _seen(value, lambda v: transposed(v, order), lambda a: a.transpose(order))


@imports("Split")
def _split(importer: Importer, node: OnnxNode) -> list[Value]:
    value = importer.value(node, 0)
    axis = node.axis(int(node.attributes.get("axis", 0)), len(value.shape))
    ends = np.cumsum([0, *(shape[axis] for shape in _shapes(importer, node))]).tolist()
    if ends[-1] != value.shape[axis]:
        raise node.error(f"the parts of axis {axis} must have {value.shape[axis]} elements, not {ends[-1]}")
    return [
        cut(value, [range(a, b) if n == axis else range(size) for n, size in enumerate(value.shape)])
        for a, b in itertools.pairwise(ends)
    ]


@imports("Slice")
def _slice(importer: Importer, node: OnnxNode) -> Value:
    value = importer.value(node, 0)
    ranges = [range(size) for size in value.shape]

    def numbers(index: int, name: str) -> list[int] | None:
        found = importer.fixed(node, index, name)
        return node.attributes.get(name) if found is None else found.reshape(-1).tolist()

    starts, ends = numbers(1, "starts") or [], numbers(2, "ends") or []
    axes = numbers(3, "axes") or range(len(starts))
    steps = numbers(4, "steps") or [1] * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise node.error("starts, ends, axes and steps must be equally many, and steps not 0")
    for axis, *ends_of in zip(axes, starts, ends, steps, strict=True):
        place = node.axis(int(axis), len(ranges))
        ranges[place] = range(value.shape[place])[slice(*ends_of)]
    return cut(value, ranges, node)


def cut(value: Value, ranges: Sequence[range], node: OnnxNode | None = None) -> Value:
    """A part of every axis; raises `InputError` at the node if it is empty."""
    if node is not None and not all(ranges):
        raise node.error("the result must have elements, it has none")

    def on_view(view: View) -> View:
        for axis, some in enumerate(ranges):
            view = sliced(view, axis, some.start, len(some), some.step)
        return view

    slices = tuple(slice(r.start, r.stop if r.stop >= 0 else None, r.step) for r in ranges)
    return _seen(value, on_view, lambda a: a[slices])


@imports("Concat")
def _concat(importer: Importer, node: OnnxNode) -> Value:
    parts = [importer.value(node, i) for i in range(len(node.inputs))]
    axis = node.axis(int(node.attributes["axis"]), len(parts[0].shape))
    for part in parts:
        if part.shape[:axis] + part.shape[axis + 1 :] != parts[0].shape[:axis] + parts[0].shape[axis + 1 :]:
            shapes = ", ".join(str(list(p.shape)) for p in (parts[0], part))
            raise node.error(f"shapes must be equal except along axis {axis}, not {shapes}")
    # Empty parts contribute nothing; a cache may be empty at first.
    parts = [p for p in parts if p.shape[axis]] or parts
    ends = np.cumsum([p.shape[axis] for p in parts]).tolist()
    shape = (*parts[0].shape[:axis], ends[-1], *parts[0].shape[axis + 1 :])
    starts = tuple(tuple(end * (n == axis) for n in range(len(shape))) for end in (0, *ends[:-1]))
    return joined(importer, node, parts, Boxes(shape, starts))


#: Modes of Pad other than "constant", by NumPy's names.
_PADS: dict[str, Literal["edge", "reflect", "wrap"]] = {"edge": "edge", "reflect": "reflect", "wrap": "wrap"}


@imports("Pad")
def _pad(importer: Importer, node: OnnxNode) -> Value:
    value = importer.value(node, 0)
    rank = len(value.shape)
    found, chosen = importer.fixed(node, 1, "pads"), importer.fixed(node, 3, "axes")
    pads = list(node.attributes.get("pads", ())) if found is None else found.reshape(-1).tolist()
    axes = [node.axis(int(a), rank) for a in (range(rank) if chosen is None else chosen.reshape(-1))]
    mode = node.attributes.get("mode", "constant")
    if mode != "constant" and mode not in _PADS:
        raise node.error(f"mode must be constant, {', '.join(_PADS)}, not {mode}")
    if len(pads) != 2 * len(axes):
        raise node.error(f"pads must be {2 * len(axes)} numbers, not {pads}")
    around = np.zeros((rank, 2), np.int64)
    around[axes] = np.reshape(pads, (2, -1)).T
    shape = (np.asarray(value.shape) + around.sum(axis=1)).tolist()
    # Negative pads crop.
    inside = [range(n)[max(0, -b) : n + min(0, a)] for n, (b, a) in zip(value.shape, around, strict=True)]
    if mode == "constant" and (around > 0).any() and all(inside):
        start = tuple(np.maximum(around[:, 0], 0).tolist())
        whole = value if (around >= 0).all() else cut(value, inside)
        return joined(importer, node, [whole], Boxes(tuple(shape), (start,)), _fill_value(importer, node))
    check_size(node, shape)
    places = places_of(value)[np.ix_(*inside)]
    return moved(importer, node, value, np.pad(places, np.maximum(around, 0), _PADS.get(mode, "edge")))


def _fill_value(importer: Importer, node: OnnxNode) -> float:
    if "value" in node.attributes:
        return float(node.attributes["value"])
    if not node.optional(2):
        return 0.0
    value = importer.value(node, 2)
    if isinstance(value, Dequantised):
        array = importer.array(value.view)
        if array is not None:
            return float(np.float32(array.item() - value.zero.item()) * np.float32(value.scale.item()))
    if not isinstance(value, Constant):
        raise node.error("the padding value must be a constant")
    return float(value.array.item())
