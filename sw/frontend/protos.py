"""Reads parts of an ONNX file: tensors, types, nodes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hw.errors import InputError
from sw.frontend.node import OnnxNode
from sw.frontend.sizes import Kind

#: Most elements of a tensor in a model; the machine addresses less.
MOST_ELEMENTS = 1 << 31
#: The default domain of ONNX, under both its names.
DEFAULT_DOMAINS = ("", "ai.onnx")
#: Operators that show how a model is quantised; the first one found counts.
_SIGNS = (
    (r"DynamicQuantize", "dynamic"),
    (r"QLinear|QGemm", "qoperator"),
    (r"QuantizeLinear", "qdq"),
    (r"DequantizeLinear", "weights"),
    (r"MatMulInteger|ConvInteger", "dynamic"),
)


def first_line(error: Exception) -> str:
    """An exception's message in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    # If the first line ends with a colon, the message continues in the next.
    text = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
    return re.sub(r"\[\w*Error\] |Inference error\(s\): ", "", text)[:220]


def tensors(graph: Any) -> Iterator[Any]:
    """All constants of a graph, including those in attributes and in nested graphs."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield from (*([attribute.t] if attribute.HasField("t") else []), *attribute.tensors)
        for inner in _graphs(node):
            yield from tensors(inner)


def _graphs(node: Any) -> Iterator[Any]:
    """The graphs nested in a node."""
    for attribute in node.attribute:
        yield from (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs)


def form(graph: Any) -> str:
    """How a model is quantised: `float` (not at all), `qdq`, `qoperator`, `dynamic`, or `weights` only."""
    found = _operators(graph)
    told = next((f for sign, f in _SIGNS if any(re.match(sign, op) for op in found)), "float")
    held = {t.name for t in graph.initializer}
    # Numbers that no node quantised were stored that way.
    stored = (
        n
        for n in graph.node
        if n.op_type == "DequantizeLinear" and n.input[0] in {v.name for v in graph.input}
    )
    return "qdq" if told == "weights" and any(n.input[0] not in held for n in stored) else told


def _operators(graph: Any) -> set[str]:
    inner = (_operators(g) for node in graph.node for g in _graphs(node))
    return {str(node.op_type) for node in graph.node}.union(*inner)


def names(graph: Any) -> set[str]:
    """The names of all tensors of a graph, including those in nested graphs."""
    found = {value.name for value in (*graph.input, *graph.output, *graph.initializer)}
    for node in graph.node:
        found.update(node.input, node.output, *(names(inner) for inner in _graphs(node)))
    return found


def outer_names(node: OnnxNode) -> set[str]:
    """The tensors that nested graphs of a node read from enclosing graphs."""
    values = node.attributes.values()
    graphs = [g for v in values for g in (v if isinstance(v, Sequence) else [v]) if hasattr(g, "node")]
    return set[str]().union(*map(_outer, graphs))


def _outer(graph: Any) -> set[str]:
    own = {value.name for value in (*graph.input, *graph.initializer)}
    own.update(name for node in graph.node for name in node.output)
    read = {value.name for value in graph.output}
    for node in graph.node:
        read |= _reads(node)
    return read - own - {""}


def in_order(proto: Any) -> Any:
    """The model with every node after those that it reads, which quantisers do not always ensure."""
    nodes = list(proto.graph.node)
    made = {name for node in nodes for name in node.output if name}
    needs = [_reads(node) & made for node in nodes]
    done: set[str] = set()
    found: list[int] = []
    left = list(range(len(nodes)))
    while left:
        later = []
        for number in left:
            if needs[number] <= done:
                found.append(number)
                done.update(nodes[number].output)
            else:
                later.append(number)
        if len(later) == len(left):
            # A cycle, which the checker reports.
            return proto
        left = later
    if found == sorted(found):
        return proto
    moved = type(proto)()
    moved.CopyFrom(proto)
    del moved.graph.node[:]
    moved.graph.node.extend(nodes[number] for number in found)
    return moved


def _reads(node: Any) -> set[str]:
    """The tensors that a node and its nested graphs read."""
    return set(node.input).union(*map(_outer, _graphs(node)))


def array(tensor: Any, what: str) -> np.ndarray:
    """The elements of a `TensorProto`."""
    from onnx import numpy_helper

    try:
        # Data that does not match the shape raises errors of several types.
        return np.asarray(numpy_helper.to_array(tensor))
    except Exception as error:
        raise InputError(f"{what} cannot be read: {first_line(error)}") from None


def constant(node: OnnxNode) -> np.ndarray:
    """The array of a Constant."""
    for name, value in node.attributes.items():
        if name == "value":
            return array(value, node.place)
        if name.startswith(("value_float", "value_int")):
            return np.asarray(value, np.float32 if name.startswith("value_float") else np.int64)
    raise node.error(f"a constant must hold numbers, not {', '.join(node.attributes) or 'nothing'}")


def typed(value: Any, place: str) -> Kind:
    """Type and shape of an input; raises `InputError` if it is not a tensor with a fixed shape."""
    from onnx import helper

    what = f"{place}: input {value.name!r}"
    if not value.type.HasField("tensor_type"):
        raise InputError(f"{what} must be a tensor, not {value.type.WhichOneof('value') or 'untyped'}")
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        raise InputError(f"{what} must have a fixed shape, it has none")
    sizes = []
    for axis, size in enumerate(tensor.shape.dim):
        if size.WhichOneof("value") != "dim_value" or size.dim_value < 1:
            found = size.dim_param or size.dim_value if size.WhichOneof("value") else "nothing"
            raise InputError(f"{what}: axis {axis} must have a fixed size of at least 1, not {found!r}")
        sizes.append(int(size.dim_value))
    if math.prod(sizes) > MOST_ELEMENTS:
        raise InputError(f"{what} must have at most {MOST_ELEMENTS} elements, not {math.prod(sizes)}")
    try:
        return np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type)), tuple(sizes)
    except KeyError:
        raise InputError(f"{what}: unknown element type {tensor.elem_type}") from None


def node_of_proto(proto: Any, number: int) -> tuple[str, OnnxNode]:
    """A node and its domain; missing names are replaced by the node's number."""
    from onnx import helper

    attributes = {}
    for attribute in proto.attribute:
        value = helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            value = value.decode(errors="replace")
        attributes[attribute.name] = value
    name = proto.name or f"#{number}"
    domain = "" if proto.domain in DEFAULT_DOMAINS else str(proto.domain)
    return domain, OnnxNode(name, str(proto.op_type), tuple(proto.input), tuple(proto.output), attributes)
