"""QuantizeLinear: rounds real numbers to integers, as expressions of 32-bit operations.

| what is quantised | how | result |
| --- | --- | --- |
| functions of one value of 8 bits | a table of 256 elements | float32, operator by operator |
| sums of products, scaled | the exact product with the float32 scale | rounded once |
| sums and products of two values of 8 bits | fixed point, compared for all pairs | exact, rounded once |
| maximum, minimum, limits | each operand on the grid | as if they were taken before |
| sums of products plus other values | fixed point | off by one at most next to a tie |
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from sw.frontend.affine import Affine, Summand, affine
from sw.frontend.floats import apply_function
from sw.frontend.importer import Importer
from sw.frontend.lowering import Lowering, collapsed
from sw.frontend.node import OnnxNode
from sw.frontend.sums import one_part, several_parts, wholes
from sw.frontend.values import Constant, Dequantised, Quantisation, Real, Reals, Stored, Structured, Value
from sw.graph.expression import Apply, Argument, Expression, Number, evaluate
from sw.graph.fixed_point import Term, exact_product, exact_sum
from sw.graph.network import Elementwise, View
from sw.graph.requantise import LIMITS, apply, clamped, lookup_of, multiplier, requantised
from sw.graph.views import same_places

BYTES = ("int8", "uint8")
#: A scale with which every nonzero integer exceeds the 8-bit types, and the largest integer used with it.
_BEYOND, _MOST_RESULT = 1 << 10, 1 << 20


def on_grid(importer: Importer, node: OnnxNode, value: Value, grid: Quantisation, name: str) -> View:
    """The integers of a value on a grid, appended to the network if they must be computed."""
    match value:
        case Structured():
            if not grid.uniform:
                raise node.error("one scale and zero point are needed after this operator")
            return value.make(name, grid)
        case Stored():
            raise node.error(f"real numbers are needed, not {value.element}")
        case Constant(array):
            found = Lowering(importer, value.shape, grid).on_grid(array)
            return importer.constant(found.astype(grid.element), name)
    lowering = Lowering(importer, value.shape, grid)
    expression = lowering.settled(lowered(lowering, value))
    if expression == Argument(0) and importer.tensors[lowering.views[0].tensor].element == grid.element:
        return lowering.views[0]
    nodes = tuple(dict.fromkeys((*_names(value), node.name)))
    output = importer.tensor(name, value.shape, grid.element)
    op = value.op if isinstance(value, Real) else "QuantizeLinear"
    importer.operators.append(Elementwise(node.name, op, nodes, output, expression, tuple(lowering.views)))
    return output


def _names(value: Reals) -> tuple[str, ...]:
    if not isinstance(value, Real):
        return ()
    return (*(n for x in value.inputs for n in _names(x)), value.node.name)


def lowered(to: Lowering, value: Reals) -> Expression:
    """The expression of a real value on the grid; raises `InputError` if there is none."""
    leaf = _single_leaf(value)
    if leaf is not None and to.grid.uniform and leaf.element in BYTES:
        return _table(to, value, leaf)
    match value:
        case Constant(array):
            return to.numbers(to.on_grid(array), "limit", to.grid.element)
        case Real(op="Max" | "Min" | "Relu" as op, inputs=inputs):
            given = (*inputs, Constant(np.zeros((), np.float32))) if op == "Relu" else inputs
            return _extreme(to, "min" if op == "Min" else "max", given)
        case Real(op="Where", inputs=(Constant(condition), x, y)):
            held = to.importer.constant(np.asarray(condition != 0, np.int8), f"{to.node.outputs[0]}.where")
            return apply("select", to.operand(held), lowered(to, x), lowered(to, y))
        case Real(op="Mul", inputs=(x, y)) if (found := _product(to, x, y)) is not None:
            return found
        case Real(op="Mul" | "Div") if (found := _times_function(to, value)) is not None:
            return found
    total = affine(value)
    if total is None or not total.parts:
        what = value.op if isinstance(value, Real) else "this"
        place = value.node.place if isinstance(value, Real) else to.node.place
        raise to.node.error(
            f"{place}: {what} of these operands has no exact form in whole numbers; "
            f"QuantizeLinear and DequantizeLinear are needed between it and what comes before"
        )
    return _sum(to, total)


def _extreme(to: Lowering, operation: str, inputs: Sequence[Reals]) -> Expression:
    """Maxima and minima commute with rounding."""
    numbers = [isinstance(x, Constant) for x in inputs]
    inputs = [x for _, x in sorted(zip(numbers, inputs, strict=True), key=lambda pair: pair[0])]
    value = lowered(to, inputs[0])
    for other in inputs[1:]:
        found = lowered(to, other)
        match value, found:
            case Apply("max", (Apply("min"), Number())), Number(number):
                low, high = (number, to.high) if operation == "max" else (to.low, number)
                value = clamped(value, low, high)
            case _:
                value = apply(operation, value, found)
    return value


def _single_leaf(value: Reals) -> Dequantised | None:
    """The only dequantised operand of an elementwise function; None if there are others."""
    leaves: list[Dequantised] = []

    def visit(x: Reals) -> bool:
        match x:
            case Constant(array):
                return array.size == 1
            case Dequantised():
                leaves.append(x)
                return x.uniform
            case Real(inputs=inputs):
                return all(visit(y) for y in inputs)

    if not visit(value) or not leaves:
        return None
    first = leaves[0]
    same = all(same_places(first.view, x.view) and first.scale.item() == x.scale.item() for x in leaves)
    return first if same and all(x.zero.item() == first.zero.item() for x in leaves) else None


def _table(to: Lowering, value: Reals, leaf: Dequantised) -> Expression:
    """A function of one 8-bit value: its table, or fewer equivalent operations."""
    low, high = LIMITS[leaf.element]
    x = np.arange(low, high + 1)
    _, steps = _on_all(value, leaf, to.grid.scale.reshape(()))
    if np.isnan(steps).any():
        raise to.node.error(f"the function is not a number for some of the values {low} to {high}")
    y = np.clip(steps.astype(np.float64) + int(to.grid.zero.item()), to.low, to.high).astype(np.int64)
    operand = to.operand(leaf.view)
    least, most = int(y.min()), int(y.max())
    if np.array_equal(y, np.clip(x, least, most)):
        # Omit limits that the type implies.
        limited = operand if most == high else apply("min", operand, most)
        return limited if least == low else apply("max", limited, least)
    scaled = _scaled(to, leaf, operand, value, least, most)
    if scaled is not None and np.array_equal(evaluate(scaled, [x] * (operand.index + 1)), y):
        return scaled
    return lookup_of(y, operand, leaf.element)


def _on_all(value: Reals, leaf: Dequantised, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A function of one 8-bit value, evaluated for all values and quantised."""
    low, high = LIMITS[leaf.element]
    x = np.arange(low, high + 1) - leaf.zero.item()
    real = _evaluated(value, x.astype(np.float32) * leaf.scale.reshape(()))
    with np.errstate(all="ignore"):
        return real, np.rint(real / scale)


def settled(importer: Importer, node: OnnxNode, value: Value) -> Value:
    """Real numbers as dequantised ones, if they lie on the grid of their only operand.

    This includes the results of Relu and Clip on a dequantised tensor. Other values stay as they are.
    """
    if not isinstance(value, Real):
        return value
    leaf = _single_leaf(value)
    if leaf is None or leaf.element not in BYTES:
        return value
    scale, zero = leaf.scale.reshape(()), leaf.zero.reshape(())
    real, steps = _on_all(value, leaf, scale)
    if np.isnan(steps).any() or not np.array_equal((steps * scale).astype(np.float32), real):
        return value
    low, high = LIMITS[leaf.element]
    if steps.min() < low - zero or steps.max() > high - zero:
        return value
    grid = Quantisation(leaf.element, scale, zero, node)
    view = on_grid(importer, node, value, grid, f"{node.outputs[0]}.settled")
    return Dequantised(view, leaf.element, scale, zero, leaf.reach)


def _rescaled(value: Value) -> Value:
    """A dequantised value times, or divided by, a positive number, as one with another float32 scale."""
    part = _single_part(value) if isinstance(value, Real) else None
    if part is None or part.leaf.shape != value.shape or part.exact() is None:
        return value
    with np.errstate(all="ignore"):
        scale = part.factor(np.float64).astype(np.float32).reshape(())
    leaf, normal = part.leaf, np.finfo(np.float32)
    if leaf.element not in BYTES or not normal.tiny <= scale <= normal.max:
        return value
    return Dequantised(leaf.view, leaf.element, scale, leaf.zero, leaf.reach)


def dequantised_operand(
    importer: Importer,
    node: OnnxNode,
    value: Value,
    what: str,
    uniform: bool = False,
) -> Dequantised:
    """An 8-bit operand; with `uniform`, one with a single scale and zero point.

    Raises `InputError` for real numbers that are not dequantised.
    """
    name = next((f" {n!r}" for n in node.inputs if n and importer.values.get(n) is value), "")
    value = _rescaled(settled(importer, node, value))
    if not isinstance(value, Dequantised) or value.element not in BYTES or (uniform and not value.uniform):
        one = " with one scale" if uniform else ""
        made = f", not from {value.node.place}" if isinstance(value, Real | Structured) else ""
        raise node.error(f"{what}{name} must come from DequantizeLinear of int8 or uint8{one}{made}")
    return value


def row_operand(importer: Importer, node: OnnxNode) -> Dequantised:
    """The first input of an operator on rows or windows: 8 bits, one scale and zero point."""
    return dequantised_operand(importer, node, importer.value(node, 0), "its input", uniform=True)


def _scaled(
    to: Lowering, leaf: Dequantised, operand: Argument, value: Reals, least: int, most: int
) -> Expression | None:
    """The value times a scale, if the function is nothing else."""
    inner = value
    while isinstance(inner, Real) and inner.op in ("Relu", "Max", "Min"):
        inner = next((x for x in inner.inputs if not isinstance(x, Constant)), inner.inputs[0])
    part = _single_part(inner)
    if part is None:
        return None
    scale = part.then("Div", to.grid.scale).factor(np.float32)
    if not np.all(np.isfinite(scale)) or not np.all(scale):
        return None
    found = multiplier(scale, leaf.reach)
    centred = apply("sub", operand, int(leaf.zero.item()))
    mantissa, shift, zero = (Number(int(x.item())) for x in (found.mantissa, found.shift, to.grid.zero))
    return requantised(centred, mantissa, shift, zero, least, most)


def _evaluated(value: Reals, x: np.ndarray) -> np.ndarray:
    match value:
        case Constant(array):
            return array
        case Dequantised():
            return x
        case Real(op, inputs, _, _, attributes):
            return apply_function(op, [_evaluated(y, x) for y in inputs], attributes)


def _product(to: Lowering, x: Reals, y: Reals) -> Expression | None:
    """The product of two 8-bit values, each times a number."""
    parts = [p for v in (x, y) if (p := _single_part(v)) is not None]
    if len(parts) < 2:
        return None
    parts[1] = parts[1].then("Div", to.grid.scale)
    a, b = (_byte_term(to, p) for p in parts)
    if a is None or b is None or not to.grid.uniform:
        return None
    found = exact_product(a, b, int(to.grid.zero.item()), to.low, to.high)
    if found is None:
        raise to.node.error("no product in fixed point is exact for these scales")
    return found


def _times_function(to: Lowering, value: Real) -> Expression | None:
    """A value times, or divided by, a function of one 8-bit value: the exact product with its float32.

    Scales are limited so that every nonzero value just exceeds the grid's type.
    """
    pairs = (value.inputs, value.inputs[::-1]) if value.op == "Mul" else (value.inputs,)
    for x, y in pairs:
        part, leaf = _single_part(x), _single_leaf(y)
        if part is None or leaf is None or leaf.element not in BYTES or not to.grid.uniform:
            continue
        factor = collapsed(part.then("Div", to.grid.scale).factor(np.float64))
        if factor.size > 1 or part.leaf.reach > _MOST_RESULT:
            continue
        numbers = _on_all(y, leaf, np.ones(()))[0].astype(np.float64)
        with np.errstate(all="ignore"):
            scale = factor.item() * (numbers if value.op == "Mul" else 1 / numbers)
        if np.isnan(scale).any():
            raise to.node.error(f"{value.node.place}: the function is not a number for some of its values")
        fractions, exponents = np.frexp(np.clip(scale, -_BEYOND, _BEYOND))
        shift = np.clip(30 - exponents, 0, 63)
        mantissa = np.where(30 - exponents > 63, 0, np.rint(np.ldexp(fractions, 30)).astype(np.int64))
        zero = to.numbers(to.grid.zero, "zero")
        tables = [
            Number(int(t[0])) if np.all(t == t[0]) else lookup_of(t, to.operand(leaf.view), leaf.element)
            for t in (mantissa, shift)
        ]
        centred = apply("sub", to.operand(part.leaf.view), to.numbers(part.leaf.zero, "zero"))
        return requantised(centred, tables[0], tables[1], zero, to.low, to.high)
    return None


def _single_part(value: Reals) -> Summand | None:
    """A value that is one dequantised value times a factor."""
    total = affine(value)
    if total is None or len(total.parts) != 1 or np.any(total.constant):
        return None
    return total.parts[0]


def _byte_term(to: Lowering, part: Summand) -> Term | None:
    """An 8-bit part with one scale as a term, with the range of its type."""
    leaf, exact = part.leaf, part.exact()
    if leaf.element not in BYTES or exact is None or leaf.zero.size != 1:
        return None
    low, high = LIMITS[leaf.element]
    zero = int(leaf.zero.item())
    return Term(apply("sub", to.operand(leaf.view), zero), low - zero, high - zero, exact)


def _sum(to: Lowering, total: Affine) -> Expression:
    """A sum of parts and a constant."""
    parts = [p.then("Div", to.grid.scale) for p in total.parts]
    constant = total.constant / to.grid.scale.astype(np.float64)
    zero = to.numbers(to.grid.zero, "zero")
    several = len(parts) > 1 or np.any(constant)
    if several and isinstance(zero, Number) and len(parts) <= 2 and to.grid.uniform and constant.size == 1:
        terms = [t for p in parts if (t := _byte_term(to, p)) is not None]
        fixed = Fraction(float(total.constant.item())) / Fraction(to.grid.scale.item())
        if len(terms) == len(parts):
            found = exact_sum(terms, fixed, zero.value, to.low, to.high)
            if found is None:
                raise to.node.error("no sum in fixed point is exact for these scales")
            return found
    found_parts, constant = wholes(to, parts, constant)
    if len(found_parts) == 1 and not np.any(constant):
        return one_part(to, found_parts[0], zero)
    return several_parts(to, found_parts, constant, zero)
