"""Float32 between products, computed bit for bit on the machine, if it is quantised again at run time.

Each operator of the model becomes an expression on the bits (`sw.graph.float32`).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sw.frontend.importer import Importer
from sw.frontend.node import OnnxNode
from sw.frontend.values import Constant, Dequantised, Real, Stored, Value
from sw.graph import float32
from sw.graph.expression import Argument, Expression, Number
from sw.graph.float32 import SIGN, Parts, apply, number
from sw.graph.host import HostOperator
from sw.graph.network import Operator, View

Rule = Callable[[Sequence[Expression], Mapping[str, Any]], Expression]


def _folded(function: Callable[[Expression, Expression], Expression]) -> Rule:
    def rule(operands: Sequence[Expression], _: Mapping[str, Any]) -> Expression:
        value = operands[0]
        for other in operands[1:]:
            value = function(value, other)
        return value

    return rule


def _extreme(operation: str) -> Rule:
    """Maxima and minima; the bits of a non-negative number compare with all others like the numbers."""

    def chosen(x: Expression, y: Expression) -> Expression:
        if any(isinstance(v, Number) and v.value >= 0 for v in (x, y)):
            return apply(operation, x, y)
        keys = (apply("xor", v, apply("shr_logical", apply("shr", v, 31), 1)) for v in (x, y))
        return apply("select", apply("ge" if operation == "max" else "le", *keys), x, y)

    return _folded(chosen)


def _leaky(x: Expression, slope: Expression) -> Expression:
    return apply("select", apply("lt", x, 0), float32.product(x, slope), x)


def _quotient(x: Expression, y: Expression) -> Expression:
    """A quotient; infinite if the divisor is 0."""
    found, some = float32.quotient(x, float32.divisor(y), y), apply("and", y, float32.MAGNITUDE)
    if some == Number(0):
        return number(np.inf)
    return found if isinstance(some, Number) else apply("select", some, found, number(np.inf))


def _hard_sigmoid(x: Expression, alpha: float, beta: float) -> Expression:
    line = float32.total(float32.product(x, number(alpha)), number(beta))
    return apply("min", apply("max", line, 0), number(1))


#: Float32 operators as expressions on bits.
RULES: dict[str, Rule] = {
    "Add": _folded(float32.total),
    "Sum": _folded(float32.total),
    "Sub": _folded(lambda x, y: float32.total(x, apply("xor", y, SIGN))),
    "Mul": _folded(float32.product),
    "Div": _folded(_quotient),
    "Max": _extreme("max"),
    "Min": _extreme("min"),
    "Relu": lambda x, _: apply("max", x[0], 0),
    "Neg": lambda x, _: apply("xor", x[0], SIGN),
    "Abs": lambda x, _: apply("and", x[0], float32.MAGNITUDE),
    "Sigmoid": lambda x, _: float32.sigmoid(x[0]),
    "Tanh": lambda x, _: float32.tanh(x[0]),
    "HardSwish": lambda x, _: float32.product(x[0], _hard_sigmoid(x[0], 1 / 6, 0.5)),
    "PRelu": _folded(_leaky),
    "LeakyRelu": lambda x, given: _leaky(x[0], number(given.get("alpha", 0.01))),
    "HardSigmoid": lambda x, given: _hard_sigmoid(x[0], given.get("alpha", 0.2), given.get("beta", 0.5)),
}
#: Operators that pass their operands on, so the producers of these must be on the machine too.
_MOVING = (
    *("BatchNormalization", "Clip", "Concat", "DepthToSpace", "Dropout", "Expand", "Flatten", "Gather"),
    *("Identity", "Pad", "Reshape", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose"),
    *("Unsqueeze", "Resize", "Upsample", "MaxPool", "AveragePool", "GlobalAveragePool", "ReduceMean"),
)


def quantised_again(importer: Importer) -> frozenset[str]:
    """Float32 results of nodes that reach DynamicQuantizeLinear, directly or through each other."""
    if importer.quantised_again is None:
        nodes = importer.model.nodes
        producers = {name: node for node in nodes for name in node.outputs}
        waiting = [node.inputs[0] for node in nodes if node.op == "DynamicQuantizeLinear"]
        found: set[str] = set()
        while waiting:
            name = waiting.pop()
            node = producers.get(name)
            if node is not None and name not in found and (node.op in RULES or node.op in _MOVING):
                found.add(name)
                waiting += node.inputs
        importer.quantised_again = frozenset(found)
    return importer.quantised_again


def on_machine(importer: Importer, node: OnnxNode, op: str, values: Sequence[Value]) -> Stored | None:
    """An operator whose result is quantised at run time, in float32; None for others, and for the host's."""
    name = node.outputs[0].removesuffix(".part")
    if op not in RULES or name not in quantised_again(importer) or not any(map(_float, values)):
        return None
    if all(isinstance(v, Constant) or _at_edge(importer, v) for v in values):
        return None
    if len(values) > 2:
        return _one_by_one(importer, node, op, values)
    found = _scaled(importer, node, values) if op == "Mul" else None
    if found is not None:
        return found
    views: list[View] = []
    operands = [_operand(importer, node, value, views) for value in values]
    if any(x is None for x in operands):
        return None
    attributes = node.attributes if op == node.op else {}
    value = RULES[op]([x for x in operands if x is not None], attributes)
    shape = np.broadcast_shapes(*(v.shape for v in values))
    return importer.elementwise(node, value, views, shape, "float32")


def _one_by_one(importer: Importer, node: OnnxNode, op: str, values: Sequence[Value]) -> Stored | None:
    """An operator with several operands as operators with two; the last gives the result."""
    part = dataclasses.replace(node, outputs=(f"{node.outputs[0]}.part",))
    found: Value | None = values[0]
    for count, other in enumerate(values[1:], 2):
        if found is not None:
            found = on_machine(importer, node if count == len(values) else part, op, [found, other])
    return found if isinstance(found, Stored) else None


def _float(value: Value) -> bool:
    return isinstance(value, Stored) and value.element == "float32"


def _at_edge(importer: Importer, value: Value) -> bool:
    return isinstance(value, Stored) and value.view.tensor in importer.edges


def readable(importer: Importer, view: View) -> bool:
    """Whether the machine can read a float32 value: it computes it, or it exists before the run."""
    return made_here(importer, view) or _early(importer, view)


def made_here(importer: Importer, view: View) -> bool:
    """Whether the machine's operators compute a tensor."""
    writers = _writers(importer, view.tensor)
    return bool(writers) and not any(isinstance(o, HostOperator) for o in writers)


def _early(importer: Importer, view: View) -> bool:
    """Whether a tensor is given, or computed at an edge from given ones."""
    known: dict[str, bool] = {}

    def early(name: str) -> bool:
        if name not in known:
            known[name] = all(
                isinstance(o, HostOperator) and o.edge and all(early(v.tensor) for v in o.inputs)
                for o in _writers(importer, name)
            )
        return known[name]

    return early(view.tensor)


def _writers(importer: Importer, name: str) -> list[Operator]:
    return [o for o in importer.operators if o.output.tensor == name]


def float_view(importer: Importer, node: OnnxNode, value: Value) -> View | None:
    """A value as float32 that the machine has or computes; None if it cannot."""
    if isinstance(value, Stored):
        return value.view if _float(value) and readable(importer, value.view) else None
    views: list[View] = []
    found = _operand(importer, node, value, views)
    if found is None:
        return None
    return importer.elementwise(node, found, views, value.shape, "float32", f"{node.inputs[0]}.real").view


def _operand(importer: Importer, node: OnnxNode, value: Value, views: list[View]) -> Expression | None:
    """The bits of a value as an expression of operands, which are appended to `views`."""
    match value:
        case Constant(array):
            if array.size == 1:
                return number(array.item())
            held = importer.constant(array.astype(np.float32), f"{node.outputs[0]}.number")
            return _argument(held, views)
        case Stored(view, "float32") if readable(importer, view):
            return _argument(view, views)
        case Dequantised(view, _, scale, zero):
            whole: Expression = _argument(view, views)
            if np.any(zero):
                whole = apply("sub", whole, _whole(importer, node, zero, views))
            found = float32.converted(whole)
            if np.all(scale == 1):
                return found
            by = _operand(importer, node, Constant(scale), views)
            return None if by is None else float32.product(found, by)
        case Real(op=op, inputs=inputs) if op in RULES:
            given = [_operand(importer, node, x, views) for x in inputs]
            known = [x for x in given if x is not None]
            return RULES[op](known, value.attributes) if len(known) == len(given) else None
    return None


def _argument(view: View, views: list[View]) -> Argument:
    if view not in views:
        views.append(view)
    return Argument(views.index(view))


def _whole(importer: Importer, node: OnnxNode, array: np.ndarray, views: list[View]) -> Expression:
    if array.size == 1:
        return Number(int(array.item()))
    return _argument(importer.constant(array.astype(np.int32), f"{node.outputs[0]}.zero"), views)


def _scaled(importer: Importer, node: OnnxNode, values: Sequence[Value]) -> Stored | None:
    """Sums of products times a scale of few elements, which is decomposed first; None for others."""
    for (total, _), (scale, name) in itertools.permutations(zip(values, node.inputs, strict=False), 2):
        match total, scale:
            case Dequantised(view, "int32", ones), Stored(by, "float32"):
                if by.elements < view.elements and np.all(ones == 1) and not_negative(importer, name):
                    parts = float32.scale(Argument(0))
                    found = [
                        importer.elementwise(node, part, [by], by.shape, "int32", f"{name}.{what}").view
                        for part, what in ((parts.mantissa, "mantissa"), (parts.exponent, "exponent"))
                    ]
                    value = float32.scaled(Argument(0), Parts(Argument(1), Argument(2)))
                    shape = np.broadcast_shapes(total.shape, scale.shape)
                    return importer.elementwise(node, value, [view, *found], shape, "float32")
    return None


def not_negative(importer: Importer, name: str) -> bool:
    """Whether float32 is never negative for any input: computed scales, results of Relu."""
    known: dict[str, bool] = {}

    def found(name: str) -> bool:
        if name not in known:
            known[name] = _not_negative(importer, name, found)
        return known[name]

    return found(name)


def _not_negative(importer: Importer, name: str, known: Callable[[str], bool]) -> bool:
    value, node = importer.values.get(name), importer.producers.get(name)
    held = value.array if isinstance(value, Constant) else importer.model.constants.get(name)
    if held is not None:
        return bool(np.all(held >= 0))
    if node is None or node.op in ("BatchNormalization", "Pad"):
        return False
    if node.op == "Clip":
        return float(node.attributes.get("min", -1)) >= 0 or (
            bool(node.optional(1)) and known(node.inputs[1])
        )
    if node.op == "DynamicQuantizeLinear":
        return name == node.outputs[1]
    if node.op in ("Mul", "Add", "Max", "Concat"):
        return all(known(x) for x in node.inputs)
    return node.op in ("Relu", "Sigmoid") or (node.op in _MOVING and known(node.inputs[0]))
