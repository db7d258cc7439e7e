"""Layer and RMS normalisation written with smaller operators, recognised before the nodes are read."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np

from sw.frontend.model import OnnxModel
from sw.frontend.node import OnnxNode
from sw.operators.registry import rewrites


@rewrites
def recognised(model: OnnxModel) -> OnnxModel:
    """The model with normalisations as one node each.

    ReduceMean, Sub, Pow, ReduceMean, Add, Sqrt, Div, Mul, Add are LayerNormalization; without the first two
    and the last one they are RMSNormalization. Reciprocal and Mul may stand for Div.
    """
    makers = {name: node for node in model.nodes for name in node.outputs}
    uses = Counter(name for node in model.nodes for name in node.inputs)
    uses.update(model.outputs)
    replaced: dict[str, OnnxNode] = {}
    gone: set[str] = set()
    for node in model.nodes:
        found = _normalization(node, model, makers, uses)
        if found is not None:
            made, parts = found
            replaced[made.outputs[0]] = made
            gone.update(part.outputs[0] for part in parts)
    if not replaced:
        return model
    nodes = [
        replaced.get(node.outputs[0], node)
        for node in model.nodes
        if node.outputs[0] in replaced or node.outputs[0] not in gone
    ]
    return dataclasses.replace(model, nodes=tuple(nodes))


def _normalization(
    node: OnnxNode, model: OnnxModel, makers: dict[str, OnnxNode], uses: Counter[str]
) -> tuple[OnnxNode, list[OnnxNode]] | None:
    """A normalisation whose division is `node`, and its nodes; None where it is none."""
    found = _divided(node, makers)
    if found is None:
        return None
    dividend, root, parts = found
    shifted = _made(root, "Sqrt", makers, 0)
    if root is None or shifted is None or shifted.op != "Add":
        return None
    variance, epsilon = _with_constant(shifted, model, makers)
    square = _made(variance, "ReduceMean", makers, 0)
    if variance is None or square is None or epsilon is None or epsilon.size != 1:
        return None
    if not _means(variance, square.outputs[0], model) or not _squares(square, dividend, model):
        return None
    parts = [square, variance, shifted, root, *parts]
    sub, op, x, following = makers.get(dividend), "RMSNormalization", dividend, ["Mul"]
    mean = makers.get(sub.inputs[1]) if sub is not None and sub.op == "Sub" else None
    if sub is not None and mean is not None and _means(mean, sub.inputs[0], model):
        parts = [mean, sub, *parts]
        op, x, following = "LayerNormalization", sub.inputs[0], ["Mul", "Add"]
    inner = Counter(name for part in parts for name in part.inputs)
    if any(uses[part.outputs[0]] > inner[part.outputs[0]] for part in parts[:-1]):
        return None
    last, given = node, [x]
    for step in following:
        reader = _reader(last, model, uses, step)
        constant = None if reader is None else _other(reader, last.outputs[0])
        if reader is None or constant is None or not _constant(constant, model, makers):
            break
        parts.append(reader)
        given.append(constant)
        last = reader
    if len(given) == 1:
        model.constants.setdefault(f"{node.outputs[0]}.one", np.ones((), np.float32))
        given.append(f"{node.outputs[0]}.one")
    attributes = {"axis": -1, "epsilon": float(epsilon.item())}
    return OnnxNode(last.name, op, tuple(given), last.outputs, attributes), parts


def _divided(
    node: OnnxNode, makers: dict[str, OnnxNode]
) -> tuple[str, OnnxNode | None, list[OnnxNode]] | None:
    """What is divided, who makes the divisor, and the nodes of the division; None where there is none."""
    if node.op == "Div":
        return node.inputs[0], makers.get(node.inputs[1]), [node]
    if node.op == "Mul":
        for one, other in (node.inputs, node.inputs[::-1]):
            inverse = makers.get(other)
            if inverse is not None and inverse.op == "Reciprocal":
                return one, makers.get(inverse.inputs[0]), [inverse, node]
    return None


def _made(node: OnnxNode | None, op: str, makers: dict[str, OnnxNode], index: int) -> OnnxNode | None:
    """Who makes an input of a node of that operator."""
    return makers.get(node.inputs[index]) if node is not None and node.op == op else None


def _with_constant(
    node: OnnxNode, model: OnnxModel, makers: dict[str, OnnxNode]
) -> tuple[OnnxNode | None, np.ndarray | None]:
    """Who makes one operand, and the other, a constant."""
    for one, other in (node.inputs, node.inputs[::-1]):
        if other in model.constants:
            return makers.get(one), model.constants[other]
    return None, None


def _means(node: OnnxNode, name: str, model: OnnxModel) -> bool:
    """Whether a node is the mean of a tensor over its last axis, which stays."""
    if node.op != "ReduceMean" or node.inputs[0] != name or not node.attributes.get("keepdims", 1):
        return False
    given = node.attributes.get("axes")
    axes = model.constants.get(node.optional(1)) if given is None else np.asarray(given)
    return axes is not None and axes.reshape(-1).tolist() == [-1]


def _squares(node: OnnxNode, name: str, model: OnnxModel) -> bool:
    """Whether a node is the square of a tensor."""
    if node.op == "Mul":
        return node.inputs == (name, name)
    power = model.constants.get(node.optional(1))
    return node.op == "Pow" and node.inputs[0] == name and power is not None and bool(np.all(power == 2))


def _reader(node: OnnxNode, model: OnnxModel, uses: Counter[str], op: str) -> OnnxNode | None:
    """The only reader of a node's result, if it is of that operator."""
    name = node.outputs[0]
    if uses[name] != 1:
        return None
    return next((n for n in model.nodes if name in n.inputs and n.op == op), None)


def _other(node: OnnxNode, name: str) -> str | None:
    return next((x for x in node.inputs if x != name), None)


def _constant(name: str, model: OnnxModel, makers: dict[str, OnnxNode]) -> bool:
    """Whether a tensor is held by the model, quantised or not."""
    maker = makers.get(name)
    dequantised = maker is not None and maker.op == "DequantizeLinear" and maker.inputs[0] in model.constants
    return name in model.constants or dequantised
