"""Constant folding of a model, including everything that depends only on shapes, before import.

One pass in the order of the nodes suffices: the shapes of inputs are fixed, so every shape and condition that
follows from constants is a constant when its node is reached.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

import numpy as np

from hw.errors import InputError
from sw.frontend.contrib import expanded
from sw.frontend.node import OnnxNode, fresh
from sw.frontend.protos import array, constant, node_of_proto
from sw.frontend.sizes import Kind, inferred
from sw.graph.host import known_opset, node_of, run_node

#: Constants with more elements than this are not computed.
MOST_FOLDED = 1 << 26
#: Weights stay integers, unless they are quantised again.
KEPT = ("DequantizeLinear",)


class Folding:
    """The nodes and constants so far, and aliases of tensors (`alias`)."""

    def __init__(
        self, opset: int, kinds: Mapping[str, Kind], constants: dict[str, np.ndarray], taken: set[str]
    ):
        self.opset, self.constants = opset, constants
        #: Names in use.
        self._taken = taken
        self.nodes: list[OnnxNode] = []
        self.makers: dict[str, OnnxNode] = {}
        self.alias: dict[str, str] = {}
        #: By node name, its operator in the file, and the If whose branch contains it.
        self.origins: dict[str, tuple[str, str]] = {}
        #: Tensors that follow from constants but were not computed.
        self._fixed: set[str] = set()
        self._kinds: dict[str, Kind | None] = dict(kinds)

    def graph(
        self, nodes: Iterable[Any], names: Mapping[str, str] | None = None, prefix: str = "", inside: str = ""
    ) -> None:
        """Adds the nodes of a graph; for a branch, its own `names` get a prefix."""
        names = names or {}
        for number, proto in enumerate(nodes):
            domain, node = node_of_proto(proto, number)
            node = dataclasses.replace(
                node,
                name=f"{prefix}{node.name}",
                inputs=tuple(self._held(names.get(name, name)) for name in node.inputs),
                outputs=tuple(names.get(name, name) for name in node.outputs),
            )
            self.origins[node.name] = (node.op, inside)
            if node.op == "If" and not domain:
                self._branch(node, names)
                continue
            try:
                parts = expanded(node, domain, self.constants, self.fresh)
            except InputError as error:
                # The host may implement it.
                op = f"{domain}::{node.op}" if domain else node.op
                reason = str(error).removeprefix(f"{node.place}: ")
                parts = [dataclasses.replace(node, op=op, refused=reason)]
            for part in parts:
                self._add(part)

    def result(self, outputs: Iterable[str]) -> tuple[OnnxNode, ...]:
        """The nodes that outputs need, in order; an aliased output becomes a copy."""
        for name in outputs:
            held = self._held(name)
            if held != name and held in self.constants:
                self.constants[name] = self.constants[held]
            elif held != name:
                self.nodes.append(OnnxNode(f"{name}.output", "Identity", (held,), (name,)))
        read, kept = set(outputs), []
        for node in reversed(self.nodes):
            if not read.isdisjoint(node.outputs):
                read.update(node.inputs)
                kept.append(_without_unread(node, read))
        return tuple(reversed(kept))

    def kind(self, name: str) -> Kind | None:
        """Type and shape of a tensor; None if unknown."""
        waiting = [name]
        while waiting:
            last = waiting[-1]
            maker = self.makers.get(last)
            if last in self._kinds or last in self.constants or maker is None:
                waiting.pop()
                continue
            missing = [n for n in maker.inputs if n in self.makers and n not in self._kinds]
            waiting += missing
            if not missing:
                self._kinds.update(zip(maker.outputs, self._made(maker), strict=True))
        if name in self.constants:
            held = self.constants[name]
            return held.dtype, held.shape
        return self._kinds.get(name)

    def fresh(self, hint: str) -> str:
        """A unique tensor name, which is then reserved."""
        name = fresh(hint, self._taken)
        self._taken.add(name)
        return name

    def _held(self, name: str) -> str:
        return self.alias.get(name, name)

    def _made(self, node: OnnxNode) -> list[Kind | None]:
        known: dict[str, Kind | np.ndarray] = {}
        for name in filter(None, node.inputs):
            found = self.constants[name] if name in self.constants else self._kinds.get(name)
            if found is None:
                return [None] * len(node.outputs)
            known[name] = found
        try:
            return inferred(node, self.opset, known)
        except InputError:
            # The reader of the node reports the error.
            return [None] * len(node.outputs)

    def _branch(self, node: OnnxNode, names: Mapping[str, str]) -> None:
        """Adds the branch that an If takes."""
        if node.inputs[0] not in self.constants:
            reason = "its condition must follow from constants and shapes"
            self._add(dataclasses.replace(node, refused=reason))
            return
        taken = "then_branch" if self.constants[node.inputs[0]].all() else "else_branch"
        graph, prefix = node.attributes[taken], f"{node.outputs[0]}/"
        inner = dict(names)
        made = [name for item in graph.node for name in item.output if name]
        inner |= {n: self.fresh(prefix + n) for n in (*made, *(t.name for t in graph.initializer))}
        for tensor in graph.initializer:
            self.constants[inner[tensor.name]] = array(tensor, f"{node.place}: constant {tensor.name!r}")
        self.graph(graph.node, inner, prefix, node.name)
        for outer, value in zip(node.outputs, graph.output, strict=True):
            self.alias[outer] = self._held(inner.get(value.name, value.name))

    def _add(self, node: OnnxNode) -> None:
        """Adds a standard node, or its replacement."""
        node = dataclasses.replace(node, inputs=tuple(map(self._held, node.inputs)))
        rule = _RULES.get(node.op)
        found = rule(self, node) if rule is not None and not node.refused else None
        match found:
            case str(name):
                self.alias[node.outputs[0]] = name
            case np.ndarray():
                self.constants[node.outputs[0]] = found
            case OnnxNode() | None:
                node = found or node
                arrays = computed(node, self.opset, self.constants)
                if arrays is None and node.op == "QuantizeLinear":
                    arrays = self._quantised_again(node)
                if arrays is not None:
                    self.constants.update((n, a) for n, a in zip(node.outputs, arrays, strict=True) if n)
                    return
                if all(not name or name in self.constants or name in self._fixed for name in node.inputs):
                    self._fixed.update(node.outputs)
                self.nodes.append(node)
                self.makers.update(dict.fromkeys(filter(None, node.outputs), node))

    def _quantised_again(self, node: OnnxNode) -> list[np.ndarray] | None:
        """The result of quantising dequantised constants again; None for anything else."""
        if node.inputs[0] not in self._fixed:
            return None
        waiting, needed = [node.inputs[0]], set[str]()
        while waiting:
            name = waiting.pop()
            if name in self.makers and name not in needed:
                needed.update(self.makers[name].outputs)
                waiting += self.makers[name].inputs
        held = dict(self.constants)
        for maker in [n for n in self.nodes if not needed.isdisjoint(n.outputs)]:
            arrays = computed(maker, self.opset, held, kept=())
            if arrays is None:
                return None
            held.update(zip(maker.outputs, arrays, strict=True))
        return computed(node, self.opset, held)


def computed(
    node: OnnxNode, opset: int, held: Mapping[str, np.ndarray], kept: Container[str] = KEPT
) -> list[np.ndarray] | None:
    """The results of a node whose inputs are all constants; None if it is not to be computed.

    That applies to nodes that are random, too large, refused by onnxruntime, or operators of `kept`.
    """
    given = [name for name in node.inputs if name]
    if node.refused or node.op in kept or not given or any(name not in held for name in given):
        return None
    if not _deterministic(node) or any(held[n].size > MOST_FOLDED for n in given):
        return None
    try:
        kinds = inferred(node, opset, {name: held[name] for name in given})
        if sum(math.prod(kind[1]) for kind in kinds if kind is not None) > MOST_FOLDED:
            return None
        present = [bool(name) for name in node.inputs]
        proto = node_of(node.op, present, node.attributes, len(node.outputs))
        arrays = {f"i{i}": held[name] for i, name in enumerate(given)}
        return run_node(proto, known_opset(node.op, opset, node.attributes), arrays, node.place)
    except InputError:
        # The reader of the node reports the error.
        return None


def shape_of(node: OnnxNode, shape: tuple[int, ...]) -> np.ndarray:
    """The result of Shape or Size for a tensor of that shape."""
    if node.op == "Size":
        return np.asarray(math.prod(shape), np.int64)
    return np.asarray(shape[node.attributes.get("start", 0) : node.attributes.get("end")], np.int64)


#: Replacement of a node: another name for its input, a constant, another node, or None to keep it.
Rule = Callable[[Folding, OnnxNode], "str | np.ndarray | OnnxNode | None"]


def _deterministic(node: OnnxNode) -> bool:
    """Whether a node always computes the same result, and contains no graph."""
    from onnx import defs

    if not defs.has(node.op) or any(hasattr(v, "node") for v in node.attributes.values()):
        return False
    return not defs.get_schema(node.op).non_deterministic


def _without_unread(node: OnnxNode, read: set[str]) -> OnnxNode:
    """A node without the names of optional outputs that nothing reads."""
    from onnx import defs

    if len(node.outputs) < 2 or not defs.has(node.op):
        return node
    options = [o.option for o in defs.get_schema(node.op).outputs]
    optional = defs.OpSchema.FormalParameterOption.Optional
    named = [
        "" if name not in read and i < len(options) and options[i] == optional else name
        for i, name in enumerate(node.outputs)
    ]
    while not named[-1]:
        named.pop()
    return dataclasses.replace(node, outputs=tuple(named))


def _constant(folding: Folding, node: OnnxNode) -> np.ndarray:
    return constant(node)


def _identity(folding: Folding, node: OnnxNode) -> str:
    return node.inputs[0]


def _dropout(folding: Folding, node: OnnxNode) -> OnnxNode | None:
    """Dropout does nothing outside training, or with a ratio of 0."""
    training = folding.constants.get(node.optional(2), np.asarray(bool(node.optional(2))))
    ratio = folding.constants.get(node.optional(1))
    if training.any() and (ratio is None or ratio.any()):
        return None
    return dataclasses.replace(node, inputs=node.inputs[:1])


def _shape(folding: Folding, node: OnnxNode) -> np.ndarray | None:
    kind = folding.kind(node.inputs[0])
    return None if kind is None else shape_of(node, kind[1])


def _cast(folding: Folding, node: OnnxNode) -> str | OnnxNode | None:
    """Removes a cast that changes nothing, or only undoes a lossless cast before it."""
    from onnx import helper

    kind = folding.kind(node.inputs[0])
    if kind is None:
        return None
    if kind[0] == helper.tensor_dtype_to_np_dtype(int(node.attributes["to"])):
        return node.inputs[0]
    before = folding.makers.get(node.inputs[0])
    first = folding.kind(before.inputs[0]) if before is not None and before.op == "Cast" else None
    if before is None or first is None or kind[0].kind == "O" or not np.can_cast(first[0], kind[0], "safe"):
        return None
    return _cast(folding, dataclasses.replace(node, inputs=before.inputs)) or dataclasses.replace(
        node, inputs=before.inputs
    )


def _sum(folding: Folding, node: OnnxNode) -> str | OnnxNode:
    """A sum of several operands becomes additions, from left to right."""
    total = node.inputs[0]
    for number, other in enumerate(node.inputs[1:], 1):
        last = number == len(node.inputs) - 1
        output = node.outputs[0] if last else folding.fresh(f"{node.outputs[0]}.{number}")
        added = OnnxNode(node.name, "Add", (total, other), (output,))
        if last:
            return added
        folding._add(added)
        total = output
    return total


def _resize(folding: Folding, node: OnnxNode) -> OnnxNode:
    """Empty inputs count as missing."""
    held = [folding.constants.get(name) for name in node.inputs]
    inputs = ["" if a is not None and not a.size else n for n, a in zip(node.inputs, held, strict=True)]
    return dataclasses.replace(node, inputs=tuple(inputs))


def _never(folding: Folding, node: OnnxNode) -> np.ndarray | None:
    """Dequantised numbers are never NaN or infinite."""
    maker, kind = folding.makers.get(node.inputs[0]), folding.kind(node.inputs[0])
    scale = folding.constants.get(maker.inputs[1]) if maker is not None else None
    if maker is None or maker.op != "DequantizeLinear" or kind is None or kind[0] != np.float32:
        return None
    # 2^32 steps must stay finite.
    if scale is None or scale.dtype != np.float32 or not np.all(np.isfinite(scale) & (np.abs(scale) < 1e28)):
        return None
    return np.zeros(kind[1], bool)


def _where(folding: Folding, node: OnnxNode) -> str | None:
    """A constant condition that takes all elements from one side."""
    condition = folding.constants.get(node.inputs[0])
    if condition is None or not condition.size or condition.min() != condition.max():
        return None
    taken = node.inputs[1 if condition.all() else 2]
    kinds = [folding.kind(name) for name in node.inputs]
    mine = folding.kind(taken)
    if mine is None or any(kind is None for kind in kinds):
        return None
    shapes = [kind[1] for kind in kinds if kind is not None]
    return taken if np.broadcast_shapes(*shapes) == mine[1] else None


_RULES: dict[str, Rule] = {
    "Constant": _constant,
    "Identity": _identity,
    "Dropout": _dropout,
    "Shape": _shape,
    "Size": _shape,
    "Cast": _cast,
    "Sum": _sum,
    "Resize": _resize,
    "IsNaN": _never,
    "IsInf": _never,
    "Where": _where,
}
