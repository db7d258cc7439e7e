"""Products of which only the weights are quantised: the other side is quantised at run time, where asked for.

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
from sw.frontend.protos import DEFAULT_DOMAINS, array

_BYTES = ("int8", "uint8")
#: The opset that has all operators that are written.
_OPSET = 11


@dataclass(frozen=True)
class _Weights:
    """Whole numbers, scales and zero points along `axis`, of one element each where they are equal."""

    numbers: np.ndarray
    scale: np.ndarray
    zero: np.ndarray
    axis: int

    def along(self, axis: int) -> bool:
        """Whether scales and zero points do not differ, or along that axis."""
        return self.scale.size == self.zero.size == 1 or self.axis % self.numbers.ndim == axis


@dataclass
class _Graph:
    """A graph with nodes and constants that are added."""

    graph: Any
    constants: dict[str, Any] = field(init=False)
    producers: dict[str, Any] = field(init=False)
    nodes: list[Any] = field(default_factory=list)
    quantised: dict[str, tuple[str, str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.constants = {t.name: t for t in self.graph.initializer}
        self.producers = {name: node for node in self.graph.node for name in node.output}

    def held(self, name: str) -> np.ndarray | None:
        """The elements of a constant."""
        found = self.constants.get(name)
        node = self.producers.get(name)
        if found is None and node is not None and node.op_type == "Constant":
            found = next((a.t for a in node.attribute if a.name == "value"), None)
        return None if found is None else array(found, f"constant {name!r}")

    def weights(self, name: str) -> _Weights | None:
        """What weights are made of; None where they are something else."""
        node = self.producers.get(name)
        if node is None or node.domain not in DEFAULT_DOMAINS:
            return None
        axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
        if node.op_type == "DequantizeLinear":
            numbers, scale = (self.held(n) for n in node.input[:2])
            zero = self.held(node.input[2]) if len(node.input) > 2 else np.zeros((), np.int8)
        elif node.op_type == "Mul":
            numbers = scale = None
            for one, other in (node.input, node.input[::-1]):
                cast = self.producers.get(one)
                if cast is not None and cast.op_type == "Cast":
                    numbers, scale = self.held(cast.input[0]), self.held(other)
                    break
            zero = None if numbers is None else np.zeros((), numbers.dtype)
            if numbers is not None and scale is not None and scale.size > 1:
                wide = scale.reshape((1,) * (numbers.ndim - scale.ndim) + scale.shape)
                axis = int(np.argmax(wide.shape))
                scale = scale.reshape(-1) if wide.size == wide.shape[axis] else None
        else:
            return None
        if numbers is None or scale is None or zero is None or str(numbers.dtype) not in _BYTES:
            return None
        return _Weights(numbers, scale, zero, int(axis))

    def add(self, op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> None:
        """Append a node."""
        from onnx import helper

        made = helper.make_node(op, inputs, outputs, f"{outputs[0]}.{op}", **attributes)
        self.nodes.append(made)

    def constant(self, values: np.ndarray, name: str) -> str:
        """Add a constant; gives its name."""
        from onnx import numpy_helper

        self.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def quantise(self, name: str) -> tuple[str, str, str]:
        """A tensor quantised at run time: elements, scale, zero point."""
        if name not in self.quantised:
            self.quantised[name] = (f"{name}.dynamic", f"{name}.dynamic_scale", f"{name}.dynamic_zero")
            self.add("DynamicQuantizeLinear", [name], self.quantised[name])
        return self.quantised[name]


def with_dynamic(proto: Any, place: str) -> Any:
    """A copy of a model whose products with quantised weights quantise their other side at run time.

    Raises `InputError` where there is no such product, and for an opset that is too old.
    """
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


def _replaced(graph: _Graph, node: Any) -> bool:
    """Append a node, or what a product becomes; whether it was one."""
    attributes = {a.name: a for a in node.attribute}
    weights = graph.weights(node.input[1]) if node.op_type in ("MatMul", "Gemm", "Conv") else None
    before = graph.producers.get(node.input[0]) if node.input else None
    static = before is not None and before.op_type == "DequantizeLinear"
    plain = all(attributes[n].f == 1 for n in ("alpha", "beta") if n in attributes)
    plain = plain and not ("transA" in attributes and attributes["transA"].i)
    if weights is not None and node.op_type == "Gemm" and "transB" in attributes and attributes["transB"].i:
        weights = _Weights(weights.numbers.T, weights.scale, weights.zero, 1 - weights.axis)
    channels = 0 if node.op_type == "Conv" else -1
    if weights is None or static or not plain or not weights.along(channels % weights.numbers.ndim):
        graph.nodes.append(node)
        return False
    zero = weights.zero if weights.zero.size > 1 and np.ptp(weights.zero) else weights.zero.reshape(-1)[:1]
    if node.op_type == "Conv" and zero.size > 1:
        graph.nodes.append(node)
        return False
    _product(graph, node, weights, zero if zero.size > 1 else zero.reshape(()))
    return True


def _product(graph: _Graph, node: Any, weights: _Weights, zero: np.ndarray) -> None:
    """A product of whole numbers, scaled, plus the bias."""
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
    graph.add(op, [x, w, zero_x, zeros], [f"{name}.sum"])
    graph.nodes[-1].attribute.extend(attributes.values())
    graph.add("Cast", [f"{name}.sum"], [f"{name}.real"], to=1)
    graph.add("Mul", [scale, steps], [f"{name}.step"])
    bias = node.input[2] if len(node.input) > 2 else ""
    graph.add("Mul", [f"{name}.real", f"{name}.step"], [f"{name}.scaled" if bias else name])
    if bias and image:
        shape = graph.constant(np.array(form, np.int64), f"{name}.form")
        graph.add("Reshape", [bias, shape], [f"{name}.bias"])
    if bias:
        graph.add("Add", [f"{name}.scaled", f"{name}.bias" if image else bias], [name])
