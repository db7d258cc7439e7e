"""Linear forms: an integer expression as a sum of variables with factors, where nothing in it can wrap."""

from __future__ import annotations

from sw.ir.expression import Apply, Const, Expr, Op, Var
from sw.ir.ranges import Bounds, bounds, may_wrap

#: Factors by variable; the constant stands under None.
Linear = dict[Var | None, int]


def linear(expr: Expr) -> Linear | None:
    """The expression as a linear form over the integers; None where it is not linear, or may wrap."""
    if isinstance(expr, Const):
        return {None: expr.value}
    if isinstance(expr, Var):
        return {expr: 1}
    assert isinstance(expr, Apply)
    if expr.op not in (Op.ADD, Op.SUB, Op.MUL) or may_wrap(expr):
        return None
    left, right = linear(expr.args[0]), linear(expr.args[1])
    if left is None or right is None:
        return None
    if expr.op is not Op.MUL:
        return combine(left, right, 1 if expr.op is Op.ADD else -1)
    for factor, other in ((left, right), (right, left)):
        if factor.keys() <= {None}:
            return combine({}, other, factor.get(None, 0))
    return None


def combine(a: Linear, b: Linear, factor: int) -> Linear:
    """The form a + factor * b, without zeros."""
    result = dict(a)
    for variable, value in b.items():
        result[variable] = result.get(variable, 0) + factor * value
    return {variable: value for variable, value in result.items() if value}


def difference_bounds(a: Expr, b: Expr) -> Bounds:
    """Smallest and largest value of a - b over the integers, both included; equal parts cancel out."""
    left, right = linear(a), linear(b)
    if left is None or right is None:
        if a == b:
            return 0, 0
        if isinstance(a, Apply) and a.op is Op.ADD and not may_wrap(a):
            for base, rest in (a.args, a.args[::-1]):
                if base == b:
                    return bounds(rest)
        (low, high), (other_low, other_high) = bounds(a), bounds(b)
        return low - other_high, high - other_low
    low = high = 0
    for variable, factor in combine(left, right, -1).items():
        ends = (1, 1) if variable is None else bounds(variable)
        low += min(factor * ends[0], factor * ends[1])
        high += max(factor * ends[0], factor * ends[1])
    return low, high
