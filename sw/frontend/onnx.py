"""Reads ONNX models of MatMulInteger and ConvInteger nodes by the `onnx` package.

Supported are any number of these nodes on inputs and constants, with zero points for the tensor, for rows
of A, columns of B or output channels, and on the way to them Identity and, for products, a Transpose of the
last two axes, which becomes the operand's layout.
Everything else is refused with the node's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hw.errors import InputError
from sw.frontend.model import array, first_line, read_file, typed
from sw.frontend.nodes import Bound, ConvNode, MatMulNode, Node, Source, bind_convolution, bind_product
from sw.layout import MEMORY_BYTES

SUPPORTED = "MatMulInteger, ConvInteger, Identity, Constant and Transpose of the last two axes"


@dataclass(frozen=True)
class Model:
    """What a file holds: inputs with type and shape, constants, and products in the file's order."""

    name: str
    inputs: dict[str, tuple[np.dtype, tuple[int, ...]]]
    constants: dict[str, np.ndarray]
    nodes: tuple[Node, ...]


def read(path: Path) -> Model:
    """Read a model file; raises `InputError` for what cannot be read or is not supported."""
    return from_proto(_load(path), str(path))


def only_products(path: Path) -> bool:
    """Whether a file holds products and convolutions of inputs and constants and nothing else.

    Such a model is read by `read`, any other one is a network. Raises `InputError` for what is no model.
    """
    graph = _load(path).graph
    ranks = {tensor.name: len(tensor.dims) for tensor in graph.initializer}
    for value in graph.input:
        ranks.setdefault(value.name, len(value.type.tensor_type.shape.dim))
    results: set[str] = set()
    for node in graph.node:
        if node.domain not in ("", "ai.onnx") or results.intersection(node.input):
            return False
        if node.op_type in ("MatMulInteger", "ConvInteger"):
            results.update(node.output)
        elif node.op_type == "Constant":
            ranks[node.output[0]] = next((len(a.t.dims) for a in node.attribute if a.name == "value"), 0)
        elif node.op_type in ("Identity", "Transpose"):
            rank = ranks[node.output[0]] = ranks.get(node.input[0], 0)
            if node.op_type == "Transpose" and _order(node, rank) not in _kept_or_swapped(rank):
                return False
        else:
            return False
    return bool(results) and all(value.name in results for value in graph.output)


def _order(node: Any, rank: int) -> list[int]:
    """The order of axes of a Transpose, without attribute the reverse."""
    return next((list(a.ints) for a in node.attribute if a.name == "perm"), list(range(rank))[::-1])


def _kept_or_swapped(rank: int) -> tuple[list[int], list[int]]:
    """All axes in order, and the last two exchanged."""
    swap = [*range(rank - 2), rank - 1, rank - 2] if rank >= 2 else [0]
    return list(range(rank)), swap


def _load(path: Path) -> Any:
    import onnx

    proto = read_file(path)
    try:
        onnx.checker.check_model(proto, full_check=False)
    except Exception as error:
        raise InputError(f"{path}: not a valid ONNX model: {first_line(error)}") from None
    return proto


def from_proto(proto: Any, place: str = "model") -> Model:
    """The products of a model in memory (`onnx.ModelProto`); see `read`."""
    import onnx

    try:
        # Also finds operands that do not match; errors of many types, as above.
        graph = onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True).graph
    except Exception as error:
        raise InputError(f"{place}: shapes or types do not match: {first_line(error)}") from None
    reader = _Reader(place, graph)
    if not reader.nodes:
        raise InputError(f"{place}: the model must hold a MatMulInteger or ConvInteger node, none was found")
    return Model(str(graph.name), reader.inputs, reader.constants, tuple(reader.nodes))


class _Reader:
    """Follows the nodes of a graph in order, remembering where every tensor comes from."""

    def __init__(self, place: str, graph: Any):
        self.place = place
        self.inputs: dict[str, tuple[np.dtype, tuple[int, ...]]] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.sources: dict[str, Source] = {}
        self.ranks: dict[str, int] = {}
        self.nodes: list[Node] = []
        for tensor in graph.initializer:
            self._constant(tensor.name, tensor)
        for value in graph.input:
            if value.name not in self.constants:
                self._input(value)
        for number, node in enumerate(graph.node):
            self._node(node, f"node {node.name or f'#{number}'} ({node.op_type})", node.name or f"#{number}")

    def _constant(self, name: str, tensor: Any) -> None:
        made = self.constants[name] = array(tensor, f"{self.place}: constant {name!r}")
        self.sources[name], self.ranks[name] = Source(name), made.ndim

    def _input(self, value: Any) -> None:
        dtype, shape = typed(value, self.place, MEMORY_BYTES)
        self.inputs[value.name] = (dtype, shape)
        self.sources[value.name], self.ranks[value.name] = Source(value.name), len(shape)

    def _node(self, node: Any, what: str, name: str) -> None:
        from onnx import helper

        what = f"{self.place}: {what}"
        if node.domain not in ("", "ai.onnx"):
            raise InputError(
                f"{what}: operators of domain {node.domain!r} are not supported, only {SUPPORTED}"
            )
        if node.op_type == "Constant":
            if len(node.attribute) != 1 or node.attribute[0].name != "value":
                raise InputError(f"{what}: a constant must be given by attribute 'value'")
            self._constant(node.output[0], node.attribute[0].t)
        elif node.op_type == "Identity":
            source = self._source(node.input[0], what)
            self.sources[node.output[0]], self.ranks[node.output[0]] = source, self.ranks[node.input[0]]
        elif node.op_type == "Transpose":
            self._transpose(node, what)
        elif node.op_type in ("MatMulInteger", "ConvInteger"):
            given = [self._source(i, what) if i else None for i in node.input]
            a, b, zero_a, zero_b = (*given, None, None)[:4]
            if a is None or b is None:
                raise InputError(f"{what}: both operands are needed")
            if node.op_type == "MatMulInteger":
                self.nodes.append(MatMulNode(name, a, b, zero_a, zero_b, node.output[0]))
            else:
                attributes = {x.name: helper.get_attribute_value(x) for x in node.attribute}
                self.nodes.append(ConvNode(name, a, b, zero_a, zero_b, node.output[0], attributes))
        else:
            raise InputError(f"{what}: the operator is not supported, only {SUPPORTED}")

    def _transpose(self, node: Any, what: str) -> None:
        source, rank = self._source(node.input[0], what), self.ranks[node.input[0]]
        order, (kept, swap) = _order(node, rank), _kept_or_swapped(rank)
        if order not in (swap, kept):
            raise InputError(f"{what}: perm must exchange the last two axes, {swap}, not {order}")
        swapped = source.swapped ^ (order == swap and rank >= 2)
        self.sources[node.output[0]], self.ranks[node.output[0]] = Source(source.name, swapped), rank

    def _source(self, name: str, what: str) -> Source:
        if name not in self.sources:
            made = next((n.name for n in self.nodes if n.output == name), None)
            kind = f"the result of node {made}" if made else "unknown"
            raise InputError(f"{what}: {name!r} is {kind}; it must be an input or a constant of the model")
        return self.sources[name]


def random_inputs(model: Model, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Inputs over the whole range of their types, the same for the same seed."""
    arrays: dict[str, np.ndarray] = {}
    for name, (dtype, shape) in model.inputs.items():
        if dtype.kind not in "iu":
            raise InputError(f"input {name!r} must be of a whole-number type, not {dtype}")
        limits = np.iinfo(dtype)
        arrays[name] = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return arrays


def bind(model: Model, inputs: Mapping[str, np.ndarray]) -> list[Bound]:
    """The products of a model for given inputs; raises `InputError` for arrays that do not fit."""
    values = dict(model.constants)
    for name, given in inputs.items():
        if name not in model.inputs:
            known = ", ".join(model.inputs) or "none"
            raise InputError(f"input {name!r} is not one of the model's inputs ({known})")
        dtype, shape = model.inputs[name]
        if given.dtype != dtype or given.shape != shape:
            raise InputError(
                f"input {name!r} must be {dtype} of shape {list(shape)}, "
                f"not {given.dtype} of {list(given.shape)}"
            )
        values[name] = given
    missing = [name for name in model.inputs if name not in values]
    if missing:
        raise InputError(f"input {missing[0]!r} is needed and was not given")
    return [
        bind_product(node, values) if isinstance(node, MatMulNode) else bind_convolution(node, values)
        for node in model.nodes
    ]
