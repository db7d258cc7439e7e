"""Expressions as sums of variables with factors: factors, substitution with folding, a sorted form.

Addition, subtraction and multiplication are those of 32 bits, which form a ring: what is regrouped here keeps
its value whether or not a part of it wraps.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from hw.semantics import BITS, wrap
from sw.ir.expression import Apply, Const, Expr, Op, Var, const, fold, names
from sw.ir.linear import linear

ZERO, ONE = Const(0), Const(1)


def plus(left: Expr, right: Expr) -> Expr:
    """A sum, folded where it is simple."""
    return fold(Op.ADD, left, right)


def minus(left: Expr, right: Expr) -> Expr:
    """A difference, folded where it is simple."""
    return ZERO if left == right else fold(Op.SUB, left, right)


def times(left: Expr, right: Expr) -> Expr:
    """A product, folded where it is simple."""
    return ZERO if ZERO in (left, right) else fold(Op.MUL, left, right)


@functools.lru_cache(maxsize=1 << 16)
def factor(expr: Expr, variable: str) -> Expr | None:
    """By how much an expression grows with one more of a variable; None where that is not one amount."""
    if variable not in names(expr):
        return ZERO
    if isinstance(expr, Var):
        return ONE
    assert isinstance(expr, Apply)
    if expr.op in (Op.ADD, Op.SUB):
        left, right = (factor(a, variable) for a in expr.args)
        if left is None or right is None:
            return None
        return plus(left, right) if expr.op is Op.ADD else minus(left, right)
    if expr.op is Op.MUL:
        for inner, other in (expr.args, expr.args[::-1]):
            if variable not in names(other):
                found = factor(inner, variable)
                return None if found is None else times(found, other)
    if expr.op is Op.SHL and isinstance(expr.args[1], Const):
        found = factor(expr.args[0], variable)
        return None if found is None else times(found, const(1 << expr.args[1].value % BITS))
    return None


def replaced(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """The expression with variables replaced by name, constants folded, in sorted form."""
    if isinstance(expr, Var):
        return values.get(expr.name, expr)
    if not isinstance(expr, Apply) or not any(n in values for n in names(expr)):
        return expr
    return sorted_sum(_replaced(expr, values))


def _replaced(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    if isinstance(expr, Var):
        return values.get(expr.name, expr)
    if not isinstance(expr, Apply):
        return expr
    return folded(Apply(expr.op, tuple(_replaced(a, values) for a in expr.args)))


def folded(expr: Apply) -> Expr:
    """An operator on arguments that are folded already; where nothing can trap, a product with 0 is 0."""
    args = expr.args
    match expr.op:
        case Op.ADD:
            return plus(*args)
        case Op.SUB:
            return minus(*args)
        case Op.MUL:
            return times(*args)
        case Op.SHL | Op.SHR if args[0] == ZERO:
            return args[0]
        case Op.AND | Op.OR if isinstance(args[0], Const):
            return args[1] if bool(args[0].value) == (expr.op is Op.AND) else args[0]
        case Op.AND | Op.OR if isinstance(args[1], Const):
            return args[0] if bool(args[1].value) == (expr.op is Op.AND) else expr
    return fold(expr.op, *args)


@functools.lru_cache(maxsize=1 << 16)
def sorted_sum(expr: Expr) -> Expr:
    """Every sum of more than one part in it regrouped: constant, then terms from the outermost loop inwards.

    So equal sums become the same expression however they came about.
    """
    if not isinstance(expr, Apply):
        return expr
    if expr.op not in (Op.ADD, Op.SUB, Op.MUL):
        return _sorted_arguments(expr)
    form = linear(expr)
    parts = sorted(((_sorted_arguments(t), f) for t, f in form.factors.items()), key=_rank)
    return _sum(form.constant, parts)


def _sorted_arguments(expr: Expr) -> Expr:
    if not isinstance(expr, Apply):
        return expr
    args = tuple(sorted_sum(a) for a in expr.args)
    if expr.op in (Op.DIV, Op.MOD) and args[1] == ZERO:
        # A divisor that shows to be 0 would be refused when the program is read again.
        args = (args[0], expr.args[1])
    return expr if args == expr.args else folded(Apply(expr.op, args))


def _rank(part: tuple[Expr, int]) -> tuple[int, str]:
    loops = [-1 if v.type.loop is None else v.type.loop for v in part[0].variables()]
    return max(loops, default=-1), str(part[0])


def _sum(rest: int, parts: list[tuple[Expr, int]]) -> Expr:
    """The sum, with a subtraction where a factor is below 0 and something stands before it."""
    made: Expr = const(rest)
    for i, (term, scale) in enumerate(parts):
        last = i == len(parts) - 1
        if made == ZERO and scale < 0 and not last and parts[-1][1] > 0:
            # Begin with a positive term: no subtraction from 0.
            return _sum(rest, [parts[-1], *parts[:-1]])
        if scale < 0 and -scale == wrap(-scale):
            made = minus(made, times(term, const(-scale)))
        else:
            made = plus(made, times(term, const(scale)))
    return made
