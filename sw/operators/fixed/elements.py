"""Elementwise operators in fixed point: sums, products, functions, maxima."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hw.errors import InputError
from sw.frontend.affine import Summand, affine
from sw.frontend.floats import apply_function
from sw.frontend.importer import Importer
from sw.frontend.lowering import Lowering, collapsed
from sw.frontend.node import OnnxNode
from sw.frontend.sums import in_fixed_point
from sw.frontend.values import Constant, Dequantised, FixedPoint, Quantisation, Real, Reals, Structured, Value
from sw.graph.accuracy import Accuracy
from sw.graph.expression import Apply, Argument, Expression
from sw.graph.network import View
from sw.graph.requantise import LIMITS, apply, lookup_of
from sw.graph.views import same_places
from sw.operators.fixed.bounds import KNOWN, Bound, bound
from sw.operators.fixed.tables import Steps, Table, interpolated, power

#: Operators whose result is one of their operands.
CHOICES = ("Max", "Min", "Relu", "Where")
#: Operators that fixed point computes directly, without tables.
_PLAIN = (*CHOICES, "Add", "Sum", "Sub", "Neg", "Mul")
_NO_RANGE = (
    "fixed point needs a range, and the range or the error of its result is not bounded; QuantizeLinear and "
    "DequantizeLinear before it bound both"
)
_GREATEST = float(np.finfo(np.float32).max)
#: Most operands of one addition.
_TOGETHER = 4
#: Rounding error in units of the last bit.
_HALF = 0.5


def fixed(importer: Importer, node: OnnxNode, value: Value) -> FixedPoint:
    """Converts a real value to fixed point, appended to the network if it is not there yet.

    Raises `InputError` if its range is not known or it has no form in fixed point.
    """
    if isinstance(value, Structured) and value.fixed is not None:
        value = value.fixed()
    if isinstance(value, FixedPoint):
        return value
    if not isinstance(value, Constant | Dequantised | Real):
        raise node.error("its operand is computed in float32 on the host; QuantizeLinear is needed before it")
    if isinstance(value, Constant):
        return _constant(importer, node, value)
    if isinstance(value, Dequantised):
        return _sum(importer, node, value)
    if value not in importer.points:
        importer.points[value] = _made(importer, value.node, value)
    found: FixedPoint = importer.points[value]
    return found


def in_steps(importer: Importer, node: OnnxNode, steps: Steps, x: View) -> tuple[Expression, list[View]]:
    """The last of several steps and its operands; the other steps are appended to the network."""
    views = [x]
    for step in steps[:-1]:
        name = f"{node.outputs[0]}.step"
        views[1:] = [importer.elementwise(node, step, views, x.shape, "int32", name).view]
    return steps[-1], views


def _constant(importer: Importer, node: OnnxNode, value: Constant) -> FixedPoint:
    known = bound(value)
    if not np.all(np.isfinite(value.array)):
        wrong = value.array[~np.isfinite(value.array)].flat[0]
        raise node.error(f"a constant must be numbers in fixed point, not {wrong}")
    words = np.rint(value.array.astype(np.float64) * 2.0**known.bits).astype(np.int32)
    view = importer.constant(words, f"{node.outputs[0]}.number")
    return _stated(view, Bound(known.low, known.high, _HALF * 2.0**-known.bits), known.bits)


def _stated(view: View, known: Bound, bits: int) -> FixedPoint:
    """A tensor of int32 as one in fixed point."""
    reach = min(math.ceil((known.reach + known.error) * 2.0**bits) + 1, 1 << 30)
    scale, none = np.asarray(2.0**-bits, np.float32), np.asarray(0, np.int64)
    return FixedPoint(view, "int32", scale, none, reach, known.low, known.high, known.error)


def number(
    importer: Importer,
    node: OnnxNode,
    value: Expression,
    operands: Sequence[View],
    shape: Sequence[int],
    known: Bound,
    bits: int,
    hint: str = "fixed",
) -> FixedPoint:
    """A new tensor in fixed point: an expression with its fractional bits and its bound."""
    _check_range(node, known)
    view = importer.elementwise(node, value, operands, shape, "int32", f"{node.outputs[0]}.{hint}").view
    importer.accuracy[view.tensor] = Accuracy(node.place, known.low, known.high, known.error, bits)
    return _stated(view, known, bits)


def _check_range(node: OnnxNode, known: Bound) -> None:
    if not math.isfinite(known.reach) or not math.isfinite(known.error):
        raise node.error(_NO_RANGE)
    if known.reach > _GREATEST:
        raise node.error(
            f"it may reach {known.reach:.3g}, beyond numbers of 32 bits; smaller scales are needed"
        )


def bits_of(x: Dequantised) -> int:
    """The fractional bits of a tensor in fixed point."""
    return 1 - math.frexp(float(x.scale.item()))[1]


def _made(importer: Importer, node: OnnxNode, value: Real) -> FixedPoint:
    value = _written(value)
    base, inputs, shape = base_of(value), value.inputs, value.shape
    if affine(value) is not None:
        return _sum(importer, node, value)
    function = not (base is None or _plain(value, base) or _root(value))
    if function and base is not value and isinstance(base, Dequantised | Real):
        return _function(importer, node, value, base)

    def again(op: str, *operands: Reals) -> FixedPoint:
        return _made(importer, node, Real(op, operands, shape, node))

    match value.op:
        case "Max" | "Min" | "Where":
            return _choice(importer, node, value)
        case "Sum" | "Add" | "Sub" | "Neg":
            return again(value.op, *(x if affine(x) else fixed(importer, node, x) for x in inputs))
        case "Mul" if not any(isinstance(x, Constant) for x in inputs):
            a, b = (fixed(importer, node, x) for x in inputs)
            return times(importer, node, a, b, shape)
        case "Div" if isinstance(inputs[1], Constant) and not np.all(inputs[1].array):
            raise node.error(f"the divisor {node.inputs[1]!r} must not be 0")
        case "Div" if not isinstance(inputs[1], Constant):
            by = f"the divisor {node.inputs[1]!r}" if node.op == "Div" else "its operand"
            return again("Mul", inputs[0], to_power(importer, node, fixed(importer, node, inputs[1]), -1, by))
        case "Mul" | "Div":
            return again(
                value.op, *(x if isinstance(x, Constant) else fixed(importer, node, x) for x in inputs)
            )
        case "Sqrt" | "Reciprocal" | "Pow" if _root(value):
            return to_power(importer, node, fixed(importer, node, inputs[0]), _exponent(value))
    raise node.error(f"{value.op} of several operands has no form in fixed point")


def _written(value: Real) -> Real:
    """A function that is not smooth, rewritten with simpler operators; any other value unchanged."""

    def number(name: str, default: float) -> Constant:
        return Constant(np.asarray(float(value.attributes.get(name, default)), np.float32))

    def made(op: str, *inputs: Reals) -> Real:
        return Real(op, inputs, value.shape, value.node)

    x, zero, one = value.inputs[0], number("", 0), number("", 1)
    match value.op:
        case "Relu":
            return made("Max", x, zero)
        case "Abs":
            return made("Max", x, made("Neg", x))
        case "LeakyRelu" | "PRelu":
            slope = value.inputs[1] if value.op == "PRelu" else number("alpha", 0.01)
            return made("Add", made("Max", x, zero), made("Mul", made("Min", x, zero), slope))
        case "HardSigmoid" | "HardSwish":
            own = value.op == "HardSigmoid"
            scaled = made("Mul", x, number("alpha", 0.2)) if own else made("Div", x, number("", 6))
            line = made("Add", scaled, number("beta" if own else "", 0.5))
            inner = made("Min", made("Max", line, zero), one)
            return inner if own else made("Mul", x, inner)
    return value


def _exponent(value: Real) -> float | None:
    """The power that a root or a reciprocal stands for."""
    if value.op == "Pow" and isinstance(value.inputs[1], Constant) and value.inputs[1].array.size == 1:
        found = float(value.inputs[1].array.item())
        return found if found in (0.5, -0.5, -1.0) else None
    return {"Sqrt": 0.5, "Reciprocal": -1.0, "Div": -1.0}.get(value.op)


def _root(value: Real) -> bool:
    """Whether a value is a root or quotient of something that is not a function itself."""
    operand = value.inputs[-1 if value.op == "Div" else 0]
    return _exponent(value) is not None and not isinstance(operand, Constant) and affine(operand) is not None


def base_of(value: Reals) -> Reals | None:
    """The only non-constant operand that a value is a function of; None for constants.

    With several such operands, it is the value itself.
    """
    if isinstance(value, Constant):
        return None if value.array.size == 1 else value
    if isinstance(value, Dequantised) or KNOWN in value.attributes:
        return value
    found = {id(b): b for x in value.inputs if (b := base_of(x)) is not None}
    return next(iter(found.values())) if len(found) == 1 else value


def _plain(value: Reals, base: Reals) -> bool:
    """Whether fixed point computes a function of one operand without tables."""
    if not isinstance(value, Real) or value is base:
        return True
    by_number = value.op == "Div" and isinstance(value.inputs[1], Constant)
    written = value.op in _PLAIN or by_number or _written(value) is not value
    return written and all(_plain(x, base) for x in value.inputs)


def _sum(importer: Importer, node: OnnxNode, value: Reals) -> FixedPoint:
    """A sum of parts and a constant."""
    total, known = affine(value), bound(value)
    assert total is not None
    parts = total.parts
    _check_range(node, known)
    if not all(np.isfinite(p.factor(np.float64)).all() for p in parts):
        raise node.error(_NO_RANGE)
    bits = known.bits
    # Each part is rounded, and so is the constant.
    roundings = len(parts) + bool(np.any(total.constant))
    error = known.error + _HALF * roundings * 2.0**-bits + sum(_of_mantissa(p, bits) for p in parts)
    known, constant = Bound(known.low, known.high, error), collapsed(np.asarray(total.constant))
    done: View | None = None
    for some in _groups(parts, constant):
        grid = Quantisation("int32", np.asarray(2.0**-bits, np.float32), np.asarray(0), node)
        to = Lowering(importer, value.shape, grid)
        expression = in_fixed_point(to, some, constant, bits)
        if done is not None:
            expression = apply("add", expression, to.operand(done))
        expression, constant = to.settled(expression), np.zeros(())
        last = number(importer, node, expression, to.views, value.shape, known, bits)
        done = last.view
    return last


def _groups(parts: Sequence[Summand], constant: np.ndarray) -> list[list[Summand]]:
    """Parts to add at once: few operands each, since small machines have few memory ports."""
    groups: list[list[Summand]] = [[]]
    count = int(constant.size > 1)
    for part in parts:
        # Factors per channel need a mantissa and a shift each.
        cost = 1 + 2 * (collapsed(part.factor(np.float64)).size > 1)
        if groups[-1] and count + cost > _TOGETHER:
            groups.append([])
            count = 1
        groups[-1].append(part)
        count += cost
    return groups


def _of_mantissa(part: Summand, bits: int) -> float:
    """How much a part changes if its factor is rounded to 30 bits."""
    factor = collapsed(part.factor(np.float64))
    mantissas = np.frexp(factor)[0] * 2.0**30
    relative = np.abs(np.rint(mantissas) - mantissas) * 2.0**-29
    apart = float((np.abs(factor) * relative).max()) * part.leaf.reach
    # Factors per channel have fewer bits: a quarter of the result's last bit.
    return apart if factor.size == 1 else max(apart, 2.0 ** -(bits + 2))


def times(
    importer: Importer, node: OnnxNode, a: FixedPoint, b: FixedPoint, shape: Sequence[int]
) -> FixedPoint:
    """The product of two values, rounded once."""
    known = bound(Real("Mul", (a, b), tuple(shape), node))
    if same_places(a.view, b.view):
        known = dataclasses.replace(known, low=0.0)
    bits = min(known.bits, bits_of(a) + bits_of(b))
    value = apply("mul_shift_round", Argument(0), Argument(1), bits_of(a) + bits_of(b) - bits)
    known = Bound(known.low, known.high, known.error + _HALF * 2.0**-bits)
    return number(importer, node, value, (a.view, b.view), shape, known, bits)


def _choice(importer: Importer, node: OnnxNode, value: Real) -> FixedPoint:
    """A maximum, a minimum or a conditional choice of operands, which get the same fractional bits."""
    condition, given = (value.inputs[:1], value.inputs[1:]) if value.op == "Where" else ((), value.inputs)
    parts = [x if isinstance(x, Constant) else fixed(importer, node, x) for x in given]
    known = bound(Real(value.op, (*condition, *parts), value.shape, node))
    bits = min(known.bits, *(bits_of(x) for x in parts if isinstance(x, FixedPoint)))
    grid = Quantisation("int32", np.asarray(2.0**-bits, np.float32), np.asarray(0), node)
    to = Lowering(importer, value.shape, grid)
    operands: list[Expression] = []
    for part in parts:
        if isinstance(part, FixedPoint):
            operands.append(in_fixed_point(to, _parts(part), np.zeros(()), bits))
        else:
            if np.isnan(part.array).any():
                raise node.error("a constant must be numbers in fixed point, not NaN")
            words = np.clip(np.rint(part.array.astype(np.float64) * 2.0**bits), -(1 << 31), (1 << 31) - 1)
            operands.append(to.numbers(words.astype(np.int64), "number"))
    if condition:
        (held,) = condition
        assert isinstance(held, Constant)
        chosen = importer.constant(np.asarray(held.array != 0, np.int8), f"{node.outputs[0]}.where")
        found: Expression = Apply("select", (to.operand(chosen), *operands))
    else:
        found = functools.reduce(lambda a, b: apply(value.op.lower(), a, b), operands)
    found = to.settled(found)
    known = Bound(known.low, known.high, known.error + _HALF * 2.0**-bits)
    return number(importer, node, found, to.views, value.shape, known, bits)


def _parts(x: FixedPoint) -> tuple[Summand, ...]:
    total = affine(x)
    assert total is not None
    return total.parts


def aligned(importer: Importer, node: OnnxNode, parts: Sequence[FixedPoint]) -> list[FixedPoint]:
    """Tensors converted to the fewest fractional bits that any of them has."""
    bits = min(bits_of(p) for p in parts)
    found = []
    for p in parts:
        if bits_of(p) > bits:
            value = apply("mul_shift_round", Argument(0), 1, bits_of(p) - bits)
            known = Bound(p.low, p.high, p.error + _HALF * 2.0**-bits)
            p = number(importer, node, value, [p.view], p.shape, known, bits, "rounded")
        found.append(p)
    return found


def to_power(
    importer: Importer, node: OnnxNode, x: FixedPoint, p: float | None, what: str = "its operand"
) -> FixedPoint:
    """A power (-1, -1/2, 1/2) of numbers, called `what`, that are all positive, or all negative for -1."""
    assert p is not None
    if p == -1 and x.high < 0:
        minus = _sum(importer, node, Real("Neg", (x,), x.shape, node))
        return _sum(importer, node, Real("Neg", (to_power(importer, node, minus, p, what),), x.shape, node))
    least = x.low - x.error
    if least * 2.0 ** bits_of(x) < 1:
        raise node.error(
            f"{what} must be above 0 in fixed point: it may be {x.low:.4g}, and its error is {x.error:.2g}"
        )
    low, high = sorted((least**p, (x.high + x.error) ** p))
    slope = abs(p) * least ** (p - 1)
    made = power(p, bits_of(x))
    bits = Bound(low, high).bits
    shift = apply("add", made.exponent, made.bits - bits)
    error = made.error * high + _HALF * 2.0**-bits + slope * x.error
    mantissa, views = in_steps(importer, node, made.mantissa, x.view)
    value = apply("mul_shift_round", mantissa, 1, apply("min", apply("max", shift, 0), 63))
    return number(importer, node, value, views, x.shape, Bound(low, high, error), bits)


def _function(importer: Importer, node: OnnxNode, value: Real, base: Dequantised | Real) -> FixedPoint:
    """A function of one operand: a table of all 8-bit values, or polynomials."""
    tree = _tree(value, base)
    try:
        if isinstance(base, Dequantised) and base.element != "int32" and base.uniform:
            return _bytes(importer, node, tree, base, value.shape)
        x = fixed(importer, node, base)
        # Round the ends to few bits, so that equal functions of similar ranges share a table. Words are below
        # 2^30.
        most = ((1 << 30) - 1) * 2.0 ** -bits_of(x)
        low, high = _outwards(x.low - x.error, -1), _outwards(x.high + x.error, 1)
        found = _table(tree, max(low, -most), min(high, most), bits_of(x))
    except InputError as error:
        text = str(error)
        raise (error if text.startswith("node ") else node.error(text)) from None
    known = Bound(found.low, found.high, found.error + found.slope * x.error)
    expression, views = in_steps(importer, node, found.steps, x.view)
    return number(importer, node, expression, views, value.shape, known, found.bits)


def _outwards(end: float, sign: int) -> float:
    """An 8-bit number next to an end of a range, on its outside; next to 0, the end itself."""
    exponent = math.frexp(end)[1] - 8
    found = sign * math.ceil(sign * end * 2.0**-exponent) * 2.0**exponent
    return end if end * found <= 0 or (end > 0) == (sign < 0) else found


#: A function of one operand: its name, attributes and operands, which are numbers, or None for the operand.
Tree = Any


def _tree(value: Reals, base: Reals) -> Tree:
    if value is base:
        return None
    if isinstance(value, Constant):
        return float(value.array.reshape(-1)[0])
    assert isinstance(value, Real)
    return value.op, tuple(sorted(value.attributes.items())), tuple(_tree(x, base) for x in value.inputs)


def _evaluated(tree: Tree, x: np.ndarray) -> np.ndarray:
    if tree is None:
        return x
    if isinstance(tree, float):
        return np.asarray(tree)
    op, attributes, inputs = tree
    return apply_function(op, [_evaluated(y, x) for y in inputs], dict(attributes), np.float64)


@functools.lru_cache(maxsize=256)
def _table(tree: Tree, low: float, high: float, bits: int) -> Table:
    return interpolated(lambda x: _evaluated(tree, x), low, high, bits)


def _bytes(
    importer: Importer, node: OnnxNode, tree: Tree, leaf: Dequantised, shape: Sequence[int]
) -> FixedPoint:
    """A function of an 8-bit value, from a table of all values."""
    least, most = LIMITS[leaf.element]
    x = (np.arange(least, most + 1) - leaf.zero.item()) * float(leaf.scale.item())
    with np.errstate(all="ignore"):
        y = np.broadcast_to(_evaluated(tree, x), x.shape)
    if not np.all(np.isfinite(y)):
        raise InputError(f"the function is not a number for some of the values {least} to {most}")
    bits = (known := Bound(float(y.min()), float(y.max()))).bits
    known = Bound(known.low, known.high, _HALF * 2.0**-bits)
    value = lookup_of(np.rint(y * 2.0**bits).astype(np.int64), Argument(0), leaf.element)
    return number(importer, node, value, [leaf.view], shape, known, bits)
