"""Expressions as linear sums: coefficients of variables, substitution with folding, sorted form.

Addition, subtraction and multiplication are modulo 2^32, which is a ring, so regrouping keeps the value
whether or not a part wraps.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from hw.semantics import wrap
from sw.ir.expression import Apply, Const, Expr, Op, Var, const, fold, names, substitute
from sw.ir.linear import linear

ZERO, ONE = Const(0), Const(1)


def plus(left: Expr, right: Expr) -> Expr:
    """Returns left + right, folded if simple."""
    return fold(Op.ADD, left, right)


def minus(left: Expr, right: Expr) -> Expr:
    """Returns left - right, folded if simple."""
    return ZERO if left == right else fold(Op.SUB, left, right)


def times(left: Expr, right: Expr) -> Expr:
    """Returns left * right, folded if simple."""
    return ZERO if ZERO in (left, right) else fold(Op.MUL, left, right)


@functools.lru_cache(maxsize=1 << 16)
def factor(expr: Expr, variable: str) -> Expr | None:
    """The coefficient of a variable in an expression, or None if the expression is not linear in it."""
    found: Expr = ZERO
    for atom, scale in linear(expr).factors.items():
        by = _factor_of_atom(atom, variable)
        if by is None:
            return None
        found = plus(found, times(by, const(scale)))
    return found


def _factor_of_atom(atom: Expr, variable: str) -> Expr | None:
    if variable not in names(atom):
        return ZERO
    if isinstance(atom, Var):
        return ONE
    if isinstance(atom, Apply) and atom.op is Op.MUL:
        for inner, other in (atom.args, atom.args[::-1]):
            if variable not in names(other):
                by = factor(inner, variable)
                return None if by is None else times(by, other)
    return None


def replaced(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """Replaces variables by name, folds constants and sorts the sums."""
    found = substitute(expr, values)
    return found if found is expr else sorted_sum(found)


def folded(expr: Apply) -> Expr:
    """Applies an operator to folded arguments. A product with 0 becomes 0 if nothing in it can trap."""
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
    """Regroups every sum of more than one part: constant first, then terms from the outermost loop inwards.

    So equal sums become the same expression, however they were written.
    """
    if not isinstance(expr, Apply):
        return expr
    args = tuple(map(sorted_sum, expr.args))
    if expr.op in (Op.DIV, Op.MOD) and args[1] == ZERO:
        # Keep a divisor that simplifies to 0: the parser would reject a literal division by 0.
        args = (args[0], expr.args[1])
    made = folded(Apply(expr.op, args))
    if not isinstance(made, Apply) or made.op not in (Op.ADD, Op.SUB, Op.MUL):
        return made
    form = linear(made)
    return _sum(form.constant, sorted(form.factors.items(), key=_rank))


def _rank(part: tuple[Expr, int]) -> tuple[int, str]:
    loops = [-1 if v.type.loop is None else v.type.loop for v in part[0].variables()]
    return max(loops, default=-1), str(part[0])


def _sum(rest: int, parts: list[tuple[Expr, int]]) -> Expr:
    """Builds the sum, subtracting terms with a negative factor if another term comes first."""
    made: Expr = const(rest)
    for i, (term, scale) in enumerate(parts):
        last = i == len(parts) - 1
        if made == ZERO and scale < 0 and not last and parts[-1][1] > 0:
            # Begin with a positive term, to avoid a subtraction from 0.
            return _sum(rest, [parts[-1], *parts[:-1]])
        if scale < 0 and -scale == wrap(-scale):
            made = minus(made, times(term, const(-scale)))
        else:
            made = plus(made, times(term, const(scale)))
    return made
