"""Products with quantised weights only: on request, activations are quantised at run time.

Weights are DequantizeLinear of a constant of 8 bits, or a Cast of it times a scale. Such a MatMul, Gemm or
Conv becomes DynamicQuantizeLinear, MatMulInteger or ConvInteger, and what scales the sums, as onnxruntime's
`quantize_dynamic` writes them. An element is then off by half a 255th of its tensor's range at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hw.errors import InputError
from sw.frontend.model import valid
from sw.frontend.node import fresh
from sw.frontend.protos import DEFAULT_DOMAINS, array, names

_BYTES = ("int8", "uint8")
#: The oldest opset with all operators that are written.
_OPSET = 11


@dataclass(frozen=True)
class _Weights:
    """Integers with their scales and zero points, each a single number or one per position along `axis`."""

    numbers: np.ndarray
    scale: np.ndarray
    zero: np.ndarray
    axis: int

    def along(self, axis: int) -> bool:
        """Whether scales and zero points are constant, or vary along that axis of a matrix or of images."""
        if self.scale.size == self.zero.size == 1:
            return True
        return self.numbers.ndim > 1 and self.axis == axis % self.numbers.ndim


@dataclass
class _Graph:
    """A graph with nodes and constants that are added."""

    graph: Any
    taken: set[str] = field(init=False)
    constants: dict[str, Any] = field(init=False)
    producers: dict[str, Any] = field(init=False)
    nodes: list[Any] = field(default_factory=list)
    quantised: dict[str, tuple[str, str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.taken = names(self.graph)
        self.constants = {t.name: t for t in self.graph.initializer}
        self.producers = {name: node for node in self.graph.node for name in node.output}

    def fresh(self, hint: str) -> str:
        """A unique tensor name, which is then reserved."""
        name = fresh(hint, self.taken)
        self.taken.add(name)
        return name

    def maker(self, name: str, op: str) -> Any:
        """The node of that operator that computes a tensor; None for any other."""
        node = self.producers.get(name)
        return node if node is not None and _is(node, op) else None

    def held(self, name: str) -> np.ndarray | None:
        """The elements of a constant."""
        found, node = self.constants.get(name), self.maker(name, "Constant")
        if found is None and node is not None:
            found = next((a.t for a in node.attribute if a.name == "value"), None)
        return None if found is None else array(found, f"constant {name!r}")

    def weights(self, name: str) -> _Weights | None:
        """The parts of quantised weights; None if they are anything else."""
        axis, zeros = 1, []
        if (node := self.maker(name, "DequantizeLinear")) is not None:
            numbers, scale, *zeros = (self.held(n) for n in node.input if n)
            how = {a.name: a.i for a in node.attribute}
            axis = how.get("axis", axis)
            if how.get("output_dtype", 1) not in (0, 1):
                return None
        elif (node := self.maker(name, "Mul")) is not None:
            numbers, scale, axis = self._scaled(*node.input)
        else:
            return None
        zero = zeros[0] if zeros else np.zeros((), np.int8)
        if numbers is None or scale is None or zero is None or scale.dtype != np.float32:
            return None
        if str(numbers.dtype) not in _BYTES or not numbers.ndim:
            return None
        # Other shapes are quantised in blocks.
        length = numbers.shape[axis] if -numbers.ndim <= axis < numbers.ndim else -1
        if any(x.size != 1 and x.shape != (length,) for x in (scale, zero)):
            return None
        return _Weights(numbers, scale, zero, axis % numbers.ndim)

    def _scaled(self, *factors: str) -> tuple[np.ndarray | None, np.ndarray | None, int]:
        """Integers times a scale: both, the scale as a vector, and its axis; None for anything else."""
        for one, other in (factors, factors[::-1]):
            cast, scale = self.maker(one, "Cast"), self.held(other)
            numbers = None if cast is None else self.held(cast.input[0])
            if numbers is None or scale is None or scale.ndim > numbers.ndim:
                continue
            shape = (1,) * (numbers.ndim - scale.ndim) + scale.shape
            axis = int(np.argmax(shape)) if shape else 0
            return numbers, scale.reshape(-1) if scale.size == max(shape, default=1) else None, axis
        return None, None, 0

    def add(self, op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> None:
        """Appends a node."""
        from onnx import helper

        made = helper.make_node(op, inputs, outputs, f"{outputs[0]}.{op}", **attributes)
        self.nodes.append(made)

    def part(self, op: str, inputs: Sequence[str], hint: str, **attributes: Any) -> str:
        """Appends a node and returns the name of its result."""
        self.add(op, inputs, [self.fresh(hint)], **attributes)
        return str(self.nodes[-1].output[0])

    def constant(self, values: np.ndarray, hint: str) -> str:
        """Adds a constant and returns its name."""
        from onnx import numpy_helper

        name = self.fresh(hint)
        self.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def quantise(self, name: str) -> tuple[str, str, str]:
        """A tensor quantised at run time: elements, scale, zero point."""
        if name not in self.quantised:
            made = [self.fresh(f"{name}.dynamic{what}") for what in ("", "_scale", "_zero")]
            self.quantised[name] = (made[0], made[1], made[2])
            self.add("DynamicQuantizeLinear", [name], made)
        return self.quantised[name]


def with_dynamic(proto: Any, place: str) -> Any:
    """A copy of a model in which products with quantised weights quantise activations at run time.

    Raises `InputError` if there is no such product, if the opset is too old, or if the model is invalid.
    """
    proto = valid(proto, place)
    opset = next((o.version for o in proto.opset_import if o.domain in DEFAULT_DOMAINS), 0)
    if opset < _OPSET:
        raise InputError(f"{place}: opset must be {_OPSET} or newer for dynamic quantisation, not {opset}")
    made = type(proto)()
    made.CopyFrom(proto)
    graph = _Graph(made.graph)
    changed = [_replaced(graph, node) for node in list(made.graph.node)]
    if not any(changed):
        raise InputError(
            f"{place}: no product has int8 or uint8 weights with a scale and float32 on its other side; "
            f"leave the option out, or quantise the weights"
        )
    del made.graph.node[:]
    made.graph.node.extend(graph.nodes)
    return made


def _is(node: Any, op: str) -> bool:
    return node.op_type == op and node.domain in DEFAULT_DOMAINS


def _replaced(graph: _Graph, node: Any) -> bool:
    """Appends a node, or the replacement of a product; returns whether it was one."""
    attributes = {a.name: a for a in node.attribute}
    product = any(_is(node, op) for op in ("MatMul", "Gemm", "Conv"))
    weights = graph.weights(node.input[1]) if product else None
    static = product and graph.maker(node.input[0], "DequantizeLinear") is not None
    plain = all(attributes[n].f == 1 for n in ("alpha", "beta") if n in attributes)
    plain = plain and not ("transA" in attributes and attributes["transA"].i)
    if node.op_type == "Gemm" and weights is not None and weights.numbers.ndim != 2:
        weights = None
    if weights is not None and node.op_type == "Gemm" and "transB" in attributes and attributes["transB"].i:
        weights = _Weights(weights.numbers.T, weights.scale, weights.zero, 1 - weights.axis)
    channels = 0 if node.op_type == "Conv" else -1
    if weights is None or static or not plain or not weights.along(channels):
        graph.nodes.append(node)
        return False
    zero = weights.zero if weights.zero.size > 1 and np.ptp(weights.zero) else weights.zero.reshape(-1)[:1]
    if zero.size > 1 and (node.op_type == "Conv" or weights.numbers.ndim != 2):
        graph.nodes.append(node)
        return False
    _product(graph, node, weights, zero if zero.size > 1 else zero.reshape(()))
    return True


def _product(graph: _Graph, node: Any, weights: _Weights, zero: np.ndarray) -> None:
    """An integer product, scaled, plus the bias."""
    name = node.output[0]
    x, scale, zero_x = graph.quantise(node.input[0])
    image = node.op_type == "Conv"
    form = (-1, *(1,) * (weights.numbers.ndim - 2)) if image else (-1,)
    w = graph.constant(weights.numbers, f"{name}.weights")
    zeros = graph.constant(zero.astype(weights.numbers.dtype), f"{name}.zero")
    step = weights.scale.astype(np.float32)
    steps = graph.constant(step.reshape(form) if step.size > 1 else step.reshape(()), f"{name}.scale")
    attributes = {a.name: a for a in node.attribute} if image else {}
    op = "ConvInteger" if image else "MatMulInteger"
    total = graph.part(op, [x, w, zero_x, zeros], f"{name}.sum")
    graph.nodes[-1].attribute.extend(attributes.values())
    factors = (
        graph.part("Cast", [total], f"{name}.real", to=1),
        graph.part("Mul", [scale, steps], f"{name}.step"),
    )
    bias = node.input[2] if len(node.input) > 2 else ""
    if not bias:
        graph.add("Mul", factors, [name])
        return
    scaled = graph.part("Mul", factors, f"{name}.scaled")
    if image:
        shape = graph.constant(np.array(form, np.int64), f"{name}.form")
        bias = graph.part("Reshape", [bias, shape], f"{name}.bias")
    graph.add("Add", [scaled, bias], [name])
