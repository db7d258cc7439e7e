"""Core form of conditional values: merged conditions first, minimum and maximum recognised after.

Source: canonical.md, "Conditionals" [claim 4].
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from sw.canonical.engine import build, builder, rewrite, truth_of
from sw.canonical.linear import atom, lowest, to_expr, to_form
from sw.canonical.logic import negate
from sw.canonical.rank import key, may_raise
from sw.canonical.settle import view_choice
from sw.ir.expression import Apply, Expr, Op
from sw.ir.types import Kind

#: Condition and sides of a choice.
Sides = tuple[Expr, Expr, Expr]


@builder(Op.SELECT)
def build_choice(condition: Expr, a: Expr, b: Expr) -> Expr:
    """`a if condition else b`."""
    known = truth_of(condition)
    if known is not None:
        return a if known else b
    if a == b and not may_raise(condition):
        return a
    opposite = negate(condition)
    if key(opposite) < key(condition):
        condition, a, b = opposite, b, a
    a, b = decided(a, condition, True), decided(b, condition, False)
    if a == b and not may_raise(condition):
        return a
    merged = _merged(condition, a, b, (_sides(a), _sides(b)))
    if merged is not None:
        return merged
    if a.kind is Kind.BOOL:
        found = _of_truths(condition, a, b)
        return found if found is not None else Apply(Op.SELECT, (condition, a, b))
    if any(map(may_raise, (condition, a, b))):
        return Apply(Op.SELECT, (condition, a, b))
    found = _as_extreme(condition, a, b)
    return found if found is not None else _take_out(condition, a, b)


@functools.lru_cache(maxsize=1 << 15)
def conditions_in(expr: Expr) -> frozenset[Expr]:
    """The conditions of all choices in an expression."""
    found = frozenset().union(*(conditions_in(a) for a in expr.arguments))
    if isinstance(expr, Apply) and expr.op is Op.SELECT:
        found |= {expr.args[0]}
    return found


def decided(expr: Expr, condition: Expr, holds: bool) -> Expr:
    """An expression without its choices by a condition that is known to hold or not."""
    opposite = negate(condition)
    return _decided(expr, {condition: holds, opposite: not holds})


def _decided(expr: Expr, known: dict[Expr, bool]) -> Expr:
    if known.keys().isdisjoint(conditions_in(expr)):
        return expr
    assert isinstance(expr, Apply)
    if expr.op is Op.SELECT and expr.args[0] in known:
        return _decided(expr.args[1 if known[expr.args[0]] else 2], known)
    return build(expr.op, *(_decided(a, known) for a in expr.args))


def _sides(expr: Expr) -> Sides | None:
    """Condition and sides of a choice, also of a sum with one choice in it."""
    if isinstance(expr, Apply) and expr.op is Op.SELECT:
        return expr.args[0], expr.args[1], expr.args[2]
    if expr.kind is Kind.BOOL or may_raise(expr):
        return None
    found = view_choice(to_form(expr))
    return None if found is None else (found[0], to_expr(found[1]), to_expr(found[2]))


def choice_of_choices(p: Expr, a: Expr, b: Expr, inside: tuple[Sides | None, Sides | None]) -> Expr:
    """`a if p else b`, where a side may be a choice: merged before that becomes a minimum."""
    merged = _merged(p, a, b, inside)
    return merged if merged is not None else build(Op.SELECT, p, a, b)


def _merged(p: Expr, a: Expr, b: Expr, inside: tuple[Sides | None, Sides | None]) -> Expr | None:
    """One choice for a nested one that gives the same value on two paths."""

    def merge(way: str, shared: Expr, other: Expr) -> Expr | None:
        if a.kind is Kind.BOOL:
            return rewrite(f"merge truths by {way}", p=p, q=q, r=shared, r1=other)
        return rewrite(f"merge by {way}", p=p, q=q, x=shared, y=other)

    inner = inside[1]
    if inner is not None:
        q, v, w = inner
        if v == a:
            return merge("or", v, w)
        if w == a:
            return merge("or not", w, v)
    inner = inside[0]
    if inner is not None:
        q, v, w = inner
        if v == b:
            return merge("not or", v, w)
        if w == b:
            return merge("and", w, v)
    return None


def _of_truths(p: Expr, a: Expr, b: Expr) -> Expr | None:
    """A choice of truth values with a constant side is a connective."""
    first, second = truth_of(a), truth_of(b)
    if first is not None:
        return rewrite("choice is or", p=p, q=b) if first else rewrite("choice is not and", p=p, q=b)
    if second is not None:
        return rewrite("choice is not or", p=p, q=a) if second else rewrite("choice is and", p=p, q=a)
    return None


_EXTREMES: tuple[tuple[str, Callable[[Expr, Expr], Expr]], ...] = (
    ("choice is min", lambda x, y: build(Op.LE, x, y)),
    ("strict choice is min", lambda x, y: build(Op.LT, x, y)),
    ("choice is max", lambda x, y: build(Op.LE, y, x)),
    ("strict choice is max", lambda x, y: build(Op.LT, y, x)),
)


def _as_extreme(condition: Expr, a: Expr, b: Expr) -> Expr | None:
    """The smaller or larger of the two sides."""
    if not isinstance(condition, Apply) or condition.op not in (Op.LT, Op.LE, Op.EQ, Op.NE):
        return None
    if conditions_in(a) or conditions_in(b):
        # To compare choices would build choices, and so on.
        return None
    for name, comparison in _EXTREMES:
        if comparison(a, b) == condition:
            return rewrite(name, x=a, y=b)
    return None


def _take_out(condition: Expr, a: Expr, b: Expr) -> Expr:
    """Takes out what both sides share: of every product the smaller coefficient, then the common factor."""
    forms = to_form(a), to_form(b)
    shift = lowest(forms)
    sides = [(f - shift).wrapped() for f in forms]
    if sides[0] == sides[1]:
        return to_expr((shift + sides[0]).wrapped())
    common = math.gcd(*(s.common for s in sides))
    choice = atom(Apply(Op.SELECT, (condition, *(to_expr(s // common) for s in sides))))
    return to_expr((shift + choice * common).wrapped())
