"""Interval analysis: value ranges of expressions from the ranges of their variables."""

from __future__ import annotations

import functools
from collections.abc import Callable
from itertools import product

from hw.semantics import BITS
from sw.ir.expression import COMPARISONS, Apply, Const, Expr, Op, Var
from sw.ir.types import HIGH, LOW

#: Smallest and largest value, both inclusive.
Bounds = tuple[int, int]
FULL: Bounds = (LOW, HIGH - 1)


@functools.lru_cache(maxsize=1 << 17)
def bounds(expr: Expr) -> Bounds:
    """Smallest and largest value, both inclusive; the full 32-bit range if a subexpression may wrap.

    Truth values lie in (0, 1).
    """
    if isinstance(expr, Const):
        return expr.value, expr.value
    if isinstance(expr, Var):
        return expr.type.low, max(expr.type.low, expr.type.high - 1)
    assert isinstance(expr, Apply)
    return bounds_of_operator(expr.op, *(bounds(a) for a in expr.args))


def bounds_of_operator(op: Op, *args: Bounds) -> Bounds:
    """Bounds of an operator's result for bounded arguments; the full 32-bit range if it may wrap."""
    return _compare(op, *args) if op in COMPARISONS else _RULES[op](*args)


def may_wrap(expr: Expr) -> bool:
    """Whether the outermost operator of an expression may overflow 32 bits."""
    if not isinstance(expr, Apply) or expr.op not in (Op.ADD, Op.SUB, Op.MUL, Op.SHL, Op.DIV):
        return False
    args = [bounds(a) for a in expr.args]
    if expr.op is Op.DIV:
        return args[0][0] == LOW and args[1][0] <= -1 <= args[1][1]
    if expr.op is Op.SHL:
        if args[1][0] != args[1][1]:
            return args[0] != (0, 0)
        factor = 1 << args[1][0] % BITS
        args[1], op = (factor, factor), Op.MUL
    else:
        op = expr.op
    low, high = _exact(op, *args)
    return low < LOW or high >= HIGH


def divides_by_zero(expr: Expr) -> bool:
    """Whether the outermost operator of an expression may divide by zero."""
    if not isinstance(expr, Apply) or expr.op not in (Op.DIV, Op.MOD):
        return False
    low, high = bounds(expr.args[1])
    return low <= 0 <= high


@functools.lru_cache(maxsize=1 << 16)
def may_trap(expr: Expr) -> bool:
    """Whether evaluating an expression may divide by zero."""
    return divides_by_zero(expr) or any(map(may_trap, expr.arguments))


def _exact(op: Op, a: Bounds, b: Bounds) -> Bounds:
    """Bounds of a sum, difference or product over the integers, without wrap-around."""
    if op is Op.ADD:
        return a[0] + b[0], a[1] + b[1]
    if op is Op.SUB:
        return a[0] - b[1], a[1] - b[0]
    corners = [x * y for x, y in product(a, b)]
    return min(corners), max(corners)


def _fit(low: int, high: int) -> Bounds:
    return (low, high) if low >= LOW and high < HIGH else FULL


def _divide(a: Bounds, b: Bounds) -> Bounds:
    if b[0] <= 0 <= b[1]:
        return FULL
    corners = [x // y for x, y in product(a, b)]
    return _fit(min(corners), max(corners))


def _remainder(a: Bounds, b: Bounds) -> Bounds:
    if b[0] > 0:
        if b[0] == b[1] and a[0] // b[0] == a[1] // b[0]:
            return a[0] % b[0], a[1] % b[0]
        return (0, min(a[1], b[1] - 1)) if a[0] >= 0 else (0, b[1] - 1)
    return (b[0] + 1, 0) if b[1] < 0 else FULL


def _shift_left(a: Bounds, b: Bounds) -> Bounds:
    if b[0] != b[1]:
        return FULL
    factor = 1 << b[0] % BITS
    return _fit(a[0] * factor, a[1] * factor)


def _shift_right(a: Bounds, b: Bounds) -> Bounds:
    low, high = b if b[0] >= 0 and b[1] < BITS else (0, BITS - 1)
    corners = [x >> y for x, y in product(a, (low, high))]
    return min(corners), max(corners)


def _bit_and(a: Bounds, b: Bounds) -> Bounds:
    positive = [high for low, high in (a, b) if low >= 0]
    return (0, min(positive)) if positive else FULL


def _bit_or(a: Bounds, b: Bounds) -> Bounds:
    if a[0] < 0 or b[0] < 0:
        return FULL
    return max(a[0], b[0]), (1 << max(a[1], b[1]).bit_length()) - 1


def _bit_xor(a: Bounds, b: Bounds) -> Bounds:
    if a[0] < 0 or b[0] < 0:
        return FULL
    return 0, (1 << max(a[1], b[1]).bit_length()) - 1


def _compare(op: Op, a: Bounds, b: Bounds) -> Bounds:
    """(1, 1) if the comparison always holds, (0, 0) if it never does."""
    if op is Op.GT:
        return _compare(Op.LT, b, a)
    if op is Op.GE:
        return _compare(Op.LE, b, a)
    if op is Op.LT:
        return int(a[1] < b[0]), int(a[0] < b[1])
    if op is Op.LE:
        return int(a[1] <= b[0]), int(a[0] <= b[1])
    never, always = a[1] < b[0] or b[1] < a[0], a == b and a[0] == a[1]
    if op is Op.EQ:
        return int(always), int(not never)
    return int(never), int(not always)


_RULES: dict[Op, Callable[..., Bounds]] = {
    Op.ADD: lambda a, b: _fit(*_exact(Op.ADD, a, b)),
    Op.SUB: lambda a, b: _fit(*_exact(Op.SUB, a, b)),
    Op.MUL: lambda a, b: _fit(*_exact(Op.MUL, a, b)),
    Op.DIV: _divide,
    Op.MOD: _remainder,
    Op.MIN: lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    Op.MAX: lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    Op.SHL: _shift_left,
    Op.SHR: _shift_right,
    Op.BIT_AND: _bit_and,
    Op.BIT_OR: _bit_or,
    Op.BIT_XOR: _bit_xor,
    Op.AND: lambda a, b: (a[0] & b[0], a[1] & b[1]),
    Op.OR: lambda a, b: (a[0] | b[0], a[1] | b[1]),
    Op.NOT: lambda a: (1 - a[1], 1 - a[0]),
    Op.SELECT: lambda c, a, b: a if c == (1, 1) else b if c == (0, 0) else (min(a[0], b[0]), max(a[1], b[1])),
}
