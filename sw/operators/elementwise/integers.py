"""Operators on whole numbers as the model states them: results wrap as the type does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sw.frontend.importer import Importer
from sw.frontend.node import OnnxNode
from sw.frontend.values import Stored, Value
from sw.graph.expression import Apply, Argument, Expression, Number
from sw.graph.requantise import apply, wrapped
from sw.operators.registry import WHOLE_HANDLERS, imports

#: Operators of two or more operands: how two become one.
_FOLDED = {
    "Add": "add",
    "Sub": "sub",
    "Mul": "mul",
    "Max": "max",
    "Min": "min",
    "Sum": "add",
    "BitwiseAnd": "and",
    "BitwiseOr": "or",
    "BitwiseXor": "xor",
}
_UNARY: dict[str, Callable[[Expression], Expression]] = {
    "Relu": lambda x: apply("max", x, 0),
    "Abs": lambda x: apply("abs", x),
    "Neg": lambda x: apply("sub", 0, x),
    "Sign": lambda x: apply("sub", apply("gt", x, 0), apply("lt", x, 0)),
    "BitwiseNot": lambda x: apply("xor", x, -1),
}
#: Operators whose results the type of their operands holds.
_WITHIN = ("Max", "Min", "Relu", "Clip", "Sign", "BitwiseAnd", "BitwiseOr", "BitwiseXor")


def _operands(importer: Importer, node: OnnxNode) -> list[Stored]:
    found = [importer.stored(node, i) for i in range(len(node.inputs))]
    if len({x.element for x in found}) > 1:
        raise node.error(f"operands must have one type, not {', '.join(x.element for x in found)}")
    return found


@imports(*_FOLDED, into=WHOLE_HANDLERS)
def _folded(importer: Importer, node: OnnxNode) -> Value:
    operands = _operands(importer, node)
    value: Expression = Argument(0)
    for index in range(1, len(operands)):
        value = Apply(_FOLDED[node.op], (value, Argument(index)))
    return _result(importer, node, value, operands)


@imports(*_UNARY, into=WHOLE_HANDLERS)
def _unary(importer: Importer, node: OnnxNode) -> Value:
    return _result(importer, node, _UNARY[node.op](Argument(0)), _operands(importer, node))


def _result(importer: Importer, node: OnnxNode, value: Expression, operands: list[Stored]) -> Stored:
    shape = np.broadcast_shapes(*(x.shape for x in operands))
    element = operands[0].element
    value = value if node.op in _WITHIN else wrapped(value, element)
    return importer.elementwise(node, value, [x.view for x in operands], shape, element)


@imports("Clip", into=WHOLE_HANDLERS)
def _clip(importer: Importer, node: OnnxNode) -> Value:
    operand = importer.stored(node, 0)
    value: Expression = Argument(0)
    for index, operation, what in ((1, "max", "min"), (2, "min", "max")):
        limit = importer.fixed(node, index, what)
        if limit is not None:
            value = apply(operation, value, int(limit.item()))
    return _result(importer, node, value, [operand])


@imports("BitShift", into=WHOLE_HANDLERS)
def _shift(importer: Importer, node: OnnxNode) -> Value:
    """Shifts by constants; amounts of the type's bits and more give 0."""
    operand = importer.stored(node, 0, ("uint8",))
    by = importer.fixed(node, 1, "the amount")
    if by is None or by.size != 1:
        raise node.error("the amount must be one number")
    amount = min(int(by.item()), 31)
    operation = "shl" if node.attributes["direction"] == "LEFT" else "shr"
    value: Expression = Number(0) if amount > 7 else apply(operation, Argument(0), amount)
    return _result(importer, node, value, [operand])


@imports("Where", into=WHOLE_HANDLERS)
def _where(importer: Importer, node: OnnxNode) -> Value:
    condition = importer.fixed(node, 0, "the condition")
    if condition is None:
        raise node.error("a condition is needed")
    x, y = importer.stored(node, 1), importer.stored(node, 2)
    if x.element != y.element:
        raise node.error(f"operands must have one type, not {x.element} and {y.element}")
    shape = np.broadcast_shapes(condition.shape, x.shape, y.shape)
    held = importer.constant((condition != 0).astype(np.int8), f"{node.outputs[0]}.condition")
    value = Apply("select", (Argument(0), Argument(1), Argument(2)))
    return importer.elementwise(node, value, [held, x.view, y.view], shape, x.element)
