"""Elementwise operators on integers and booleans; results wrap as the type does."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sw.frontend.importer import Importer
from sw.frontend.node import OnnxNode
from sw.frontend.values import Stored, Value
from sw.graph.expression import Apply, Argument, Expression, Number
from sw.graph.network import ELEMENTS
from sw.graph.requantise import LIMITS, apply, lookup_of, wrapped
from sw.operators.registry import WHOLE_HANDLERS, imports

#: Integer types.
NUMBERS = (*ELEMENTS, "uint32")
_TOP = -(1 << 31)
#: Operators with two or more operands: how two are combined.
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
#: These functions of unsigned numbers.
_UNSIGNED: dict[str, Callable[[Expression], Expression]] = {
    "Relu": lambda x: x,
    "Abs": lambda x: x,
    "Sign": lambda x: apply("ne", x, 0),
}
#: Operators whose results fit the type of their operands.
_WITHIN = ("Max", "Min", "Relu", "Clip", "Sign", "BitwiseAnd", "BitwiseOr", "BitwiseXor")
_COMPARISONS = {"Equal": "eq", "Less": "lt", "LessOrEqual": "le", "Greater": "gt", "GreaterOrEqual": "ge"}
_LOGIC = {"And": "and", "Or": "or", "Xor": "xor"}
_FLOAT_SIGN, _FLOAT_REST, _INFINITE = _TOP, (1 << 31) - 1, 0x7F800000


def _operands(importer: Importer, node: OnnxNode, elements: Sequence[str] = NUMBERS) -> list[Stored]:
    found = [importer.stored(node, i, elements) for i in range(len(node.inputs))]
    if len({x.element for x in found}) > 1:
        raise node.error(f"operands must have one type, not {', '.join(x.element for x in found)}")
    for x in found:
        importer.check_movable(node, x.view)
    return found


def _ordered(value: Expression, element: str) -> Expression:
    """A signed number with the same order."""
    return apply("xor", value, _TOP) if element == "uint32" else value


@imports(*_FOLDED, into=WHOLE_HANDLERS)
def _folded(importer: Importer, node: OnnxNode) -> Value:
    operands = _operands(importer, node)
    shifted = operands[0].element if node.op in ("Max", "Min") else "int32"
    value = _ordered(Argument(0), shifted)
    for index in range(1, len(operands)):
        value = Apply(_FOLDED[node.op], (value, _ordered(Argument(index), shifted)))
    return _result(importer, node, _ordered(value, shifted), operands)


@imports(*_UNARY, into=WHOLE_HANDLERS)
def _unary(importer: Importer, node: OnnxNode) -> Value:
    operands = _operands(importer, node)
    table = {**_UNARY, **(_UNSIGNED if operands[0].element == "uint32" else {})}
    return _result(importer, node, table[node.op](Argument(0)), operands)


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


@imports("Div", "Mod", into=WHOLE_HANDLERS)
def _quotient(importer: Importer, node: OnnxNode) -> Value:
    """Quotients and remainders of 8-bit numbers by a constant, as a table."""
    operand, by = importer.stored(node, 0, ("int8", "uint8")), importer.fixed(node, 1, "the divisor")
    if by is None or by.size != 1 or not by.item():
        raise node.error(f"the divisor {node.optional(1)!r} must be one number other than 0")
    low, high = LIMITS[operand.element]
    x, divisor = np.arange(low, high + 1), int(by.item())
    towards_zero = np.fix(x / divisor).astype(np.int64)
    if node.op == "Div":
        y = towards_zero
    else:
        y = x - towards_zero * divisor if node.attributes.get("fmod", 0) else x % divisor
    table = lookup_of(y, Argument(0), operand.element)
    shape = np.broadcast_shapes(operand.shape, by.shape)
    return importer.elementwise(node, wrapped(table, operand.element), [operand.view], shape, operand.element)


@imports("BitShift", into=WHOLE_HANDLERS)
def _shift(importer: Importer, node: OnnxNode) -> Value:
    """Shifts; an amount of at least the width of the type gives 0."""
    x, by = _operands(importer, node, ("uint8", "uint32"))
    bits = 8 if x.element == "uint8" else 32
    operation = "shl" if node.attributes["direction"] == "LEFT" else "shr_logical"
    held = importer.array(by.view)
    if held is not None and held.size == 1:
        amount = int(held.item())
        value: Expression = Number(0) if amount >= bits else apply(operation, Argument(0), amount)
        shape = np.broadcast_shapes(x.shape, by.shape)
        return importer.elementwise(node, wrapped(value, x.element), [x.view], shape, x.element)
    inside = apply("lt", _ordered(Argument(1), x.element), bits + _TOP if bits == 32 else bits)
    value = apply("select", inside, apply(operation, Argument(0), Argument(1)), 0)
    return _result(importer, node, value, [x, by])


@imports("Not", *_LOGIC)
def _logic(importer: Importer, node: OnnxNode) -> Value:
    operands = _operands(importer, node, ("bool",))
    value = apply("xor", Argument(0), 1) if node.op == "Not" else None
    return _truth(importer, node, value or Apply(_LOGIC[node.op], (Argument(0), Argument(1))), operands)


def _truth(importer: Importer, node: OnnxNode, value: Expression, operands: list[Stored]) -> Stored:
    shape = np.broadcast_shapes(*(x.shape for x in operands))
    return importer.elementwise(node, value, [x.view for x in operands], shape, "bool")


@imports(*_COMPARISONS)
def _comparison(importer: Importer, node: OnnxNode) -> Value:
    """Comparisons of integers, booleans and float32; NaN compares as false."""
    operands = _operands(importer, node, (*NUMBERS, "bool", "float32"))
    operation, sides = _COMPARISONS[node.op], (Argument(0), Argument(1))
    element = operands[0].element
    if element != "float32":
        return _truth(importer, node, apply(operation, *(_ordered(x, element) for x in sides)), operands)
    # The bits of positive numbers are ordered, those of negative ones reversed; -0 becomes 0.
    keys = (apply("select", apply("lt", x, 0), apply("sub", _FLOAT_SIGN, x), x) for x in sides)
    value = apply(operation, *keys)
    for x in sides:
        value = apply("and", value, apply("le", apply("and", x, _FLOAT_REST), _INFINITE))
    return _truth(importer, node, value, operands)


#: Functions of float32 that are single operations on its bits.
FLOAT_BITS = {"Abs": ("and", _FLOAT_REST), "Neg": ("xor", _FLOAT_SIGN)}


def of_bits(importer: Importer, node: OnnxNode) -> Value:
    """One of `FLOAT_BITS`."""
    (operand,) = _operands(importer, node, ("float32",))
    operation, mask = FLOAT_BITS[node.op]
    value = apply(operation, Argument(0), mask)
    return importer.elementwise(node, value, [operand.view], operand.shape, "float32")


@imports("IsNaN", "IsInf")
def _unusual(importer: Importer, node: OnnxNode) -> Value:
    """Whether float32 is NaN or infinite."""
    operands = _operands(importer, node, ("float32",))
    if node.op == "IsNaN":
        value = apply("gt", apply("and", Argument(0), _FLOAT_REST), _INFINITE)
        return _truth(importer, node, value, operands)
    value = Number(0)
    for name, bits in (("detect_positive", _INFINITE), ("detect_negative", _INFINITE + _FLOAT_SIGN)):
        if node.attributes.get(name, 1):
            value = apply("or", value, apply("eq", Argument(0), bits))
    return _truth(importer, node, value, operands)


def where(importer: Importer, node: OnnxNode) -> Value:
    """One of two operands, unchanged; the condition is a constant or computed."""
    condition = importer.stored(node, 0, ("bool",))
    x, y = (importer.stored(node, i, (*NUMBERS, "bool", "float32")) for i in (1, 2))
    if x.element != y.element:
        raise node.error(f"operands must have one type, not {x.element} and {y.element}")
    for part in (condition, x, y):
        importer.check_movable(node, part.view)
    shape = np.broadcast_shapes(condition.shape, x.shape, y.shape)
    value = Apply("select", (Argument(0), Argument(1), Argument(2)))
    return importer.elementwise(node, value, [condition.view, x.view, y.view], shape, x.element)
