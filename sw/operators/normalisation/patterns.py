"""Recognises layer and RMS normalisation written with smaller operators, before nodes are imported."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from sw.frontend.model import OnnxModel
from sw.frontend.node import OnnxNode, fresh
from sw.operators.registry import rewrites

#: An operator with patterns for its first inputs, or a name that matches anything.
Pattern = tuple["str | Pattern", ...]
#: Bindings of a pattern's names, and the nodes covered, last one first.
Match = tuple[dict[str, str], list[OnnxNode]]


def _patterns() -> Iterator[tuple[str, Pattern]]:
    """The patterns of normalisations, largest first."""
    kinds: tuple[tuple[str, str | Pattern], ...] = (
        ("LayerNormalization", ("Sub", "x", ("ReduceMean", "x"))),
        ("RMSNormalization", "x"),
    )
    for op, centred in kinds:
        found: list[Pattern] = []
        for square in (("Pow", centred, "two"), ("Mul", centred, centred)):
            added: Pattern = ("Add", ("ReduceMean", square), "epsilon")
            root: Pattern = ("Sqrt", added)
            found += [("Div", centred, root), ("Mul", centred, ("Reciprocal", root))]
            found.append(("Mul", centred, ("Pow", added, "half")))
        scaled: list[Pattern] = [("Mul", one, "scale") for one in found]
        if op == "LayerNormalization":
            yield from ((op, ("Add", one, "bias")) for one in scaled)
        yield from ((op, one) for one in (*scaled, *found))


@rewrites
def recognised(model: OnnxModel) -> OnnxModel:
    """The model with each normalisation as one node.

    ReduceMean, Sub, Pow, ReduceMean, Add, Sqrt, Div, Mul, Add are LayerNormalization; without the first two
    and the last one, they are RMSNormalization. Reciprocal and Mul, or a power of -0.5, may replace Div.
    """
    made: dict[str, OnnxNode] = {}
    gone: set[str] = set()
    graph = _Matcher(model)
    for op, pattern in _patterns():
        for node in model.nodes:
            names, nodes = graph.match(node, pattern)
            covered = {n.outputs[0] for n in nodes}
            if nodes and not covered & gone:
                made[node.outputs[0]] = graph.normalisation(node, op, names)
                gone |= covered
    nodes = [
        made.get(n.outputs[0], n) for n in model.nodes if n.outputs[0] in made or n.outputs[0] not in gone
    ]
    return dataclasses.replace(model, nodes=tuple(nodes)) if made else model


class _Matcher:
    """The nodes of a model by result, and how often each result is read."""

    def __init__(self, model: OnnxModel) -> None:
        self.constants, self.shapes = model.constants, model.shapes
        self.makers = {name: node for node in model.nodes for name in node.outputs if name}
        self.uses = Counter(name for node in model.nodes for name in node.inputs)
        self.uses.update(model.outputs)

    def match(self, node: OnnxNode, pattern: Pattern) -> Match:
        """The pattern that ends with this node, if nothing else reads its inner results; else no nodes."""
        for names, found in self._matches(node.outputs[0], pattern, {}):
            nodes = list({n.outputs[0]: n for n in found}.values())
            inner = Counter(name for n in nodes for name in n.inputs)
            alone = all(self.uses[n.outputs[0]] <= inner[n.outputs[0]] for n in nodes[1:])
            if alone and self._suits(names, nodes):
                return names, nodes
        return {}, []

    def _matches(self, name: str, pattern: str | Pattern, names: Mapping[str, str]) -> Iterator[Match]:
        """All ways in which a tensor matches a pattern, given some known names."""
        if isinstance(pattern, str):
            if names.get(pattern, name) == name:
                yield {**names, pattern: name}, []
            return
        op, *operands = pattern
        node = self.makers.get(name)
        if node is None or node.op != op:
            return
        orders = (node.inputs, node.inputs[::-1]) if op in ("Add", "Mul") else (node.inputs,)
        for given in orders:
            found: list[Match] = [(dict(names), [node])]
            for one, operand in zip(given, operands, strict=False):
                found = [
                    (more, [*nodes, *others])
                    for known, nodes in found
                    for more, others in self._matches(one, operand, known)
                ]
            yield from found

    def _suits(self, names: Mapping[str, str], nodes: list[OnnxNode]) -> bool:
        """Whether constants are constant, and means are over the last axis and keep it."""
        two, epsilon, half = (self.constants.get(names.get(n, "")) for n in ("two", "epsilon", "half"))
        return (
            epsilon is not None
            and epsilon.size == 1
            and ("two" not in names or (two is not None and bool(np.all(two == 2))))
            and ("half" not in names or (half is not None and bool(np.all(half == -0.5))))
            and all(self._last_axis(n) for n in nodes if n.op == "ReduceMean")
            and all(self._held(names[name]) for name in ("scale", "bias") if name in names)
        )

    def _last_axis(self, mean: OnnxNode) -> bool:
        axes = mean.attributes.get("axes", self.constants.get(mean.optional(1), ()))
        last = len(self.shapes[mean.inputs[0]]) - 1 if mean.inputs[0] in self.shapes else -1
        return np.ravel(axes).tolist() in ([-1], [last]) and bool(mean.attributes.get("keepdims", 1))

    def _held(self, name: str) -> bool:
        """Whether a tensor is a constant of the model, quantised or not."""
        maker = self.makers.get(name)
        dequantised = maker is not None and maker.op == "DequantizeLinear"
        return (maker.inputs[0] if maker is not None and dequantised else name) in self.constants

    def normalisation(self, last: OnnxNode, op: str, names: Mapping[str, str]) -> OnnxNode:
        """The single node that replaces a pattern."""
        if "scale" not in names:
            one = fresh(f"{last.outputs[0]}.one", {*self.makers, *self.uses, *self.constants})
            self.constants[one] = np.ones((), np.float32)
            names = {**names, "scale": one}
        given = [names["x"], names["scale"], *(names[name] for name in ("bias",) if name in names)]
        attributes = {"axis": -1, "epsilon": float(self.constants[names["epsilon"]].item())}
        return OnnxNode(last.name, op, tuple(given), last.outputs, attributes)
