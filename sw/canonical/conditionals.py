"""Canonical form of conditional values: merges conditions, then recognises minimum and maximum.

Source: canonical.md, "Conditionals" [claim 4].
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from sw.canonical.engine import build, builder, instantiate, rewrite
from sw.canonical.linear import atom, lowest, to_expr, to_form
from sw.canonical.logic import negate
from sw.canonical.rank import key
from sw.canonical.rules import BY_NAME
from sw.canonical.settle import view_choice
from sw.ir.expression import Apply, Const, Expr, Op
from sw.ir.ranges import may_trap
from sw.ir.types import Kind


@builder(Op.SELECT)
def build_choice(condition: Expr, a: Expr, b: Expr) -> Expr:
    """Returns `a if condition else b` in core form."""
    if isinstance(condition, Const):
        return a if condition.value else b
    opposite = negate(condition)
    if key(opposite) < key(condition):
        condition, a, b = opposite, b, a
    a, b = decided(a, condition, True), decided(b, condition, False)
    if a == b and not may_trap(condition):
        return a
    merged = merged_choices(condition, a, b, (_sides(a), _sides(b)))
    if merged is not None:
        return merged
    if a.kind is Kind.BOOL:
        found = _of_truths(condition, a, b)
        return found if found is not None else Apply(Op.SELECT, (condition, a, b))
    if any(map(may_trap, (condition, a, b))):
        return Apply(Op.SELECT, (condition, a, b))
    found = _as_extreme(condition, a, b)
    return found if found is not None else _take_out(condition, a, b)


@functools.lru_cache(maxsize=1 << 15)
def conditions_in(expr: Expr) -> frozenset[Expr]:
    """The conditions of all selects in an expression."""
    found = frozenset().union(*(conditions_in(a) for a in expr.arguments))
    if isinstance(expr, Apply) and expr.op is Op.SELECT:
        found |= {expr.args[0]}
    return found


def decided(expr: Expr, condition: Expr, holds: bool) -> Expr:
    """Simplifies the selects in an expression whose condition is known to hold, or not to."""
    return _decided(expr, {condition: holds, negate(condition): not holds})


def _decided(expr: Expr, known: dict[Expr, bool]) -> Expr:
    if known.keys().isdisjoint(conditions_in(expr)):
        return expr
    assert isinstance(expr, Apply)
    if expr.op is Op.SELECT and expr.args[0] in known:
        return _decided(expr.args[1 if known[expr.args[0]] else 2], known)
    return build(expr.op, *(_decided(a, known) for a in expr.args))


def _sides(expr: Expr) -> Sequence[Expr] | None:
    """Condition and sides of a select, or of a sum with one select in it."""
    if isinstance(expr, Apply) and expr.op is Op.SELECT:
        return expr.args
    if expr.kind is Kind.BOOL or may_trap(expr):
        return None
    found = view_choice(to_form(expr))
    return None if found is None else (found[0], to_expr(found[1]), to_expr(found[2]))


def merged_choices(p: Expr, a: Expr, b: Expr, inside: Sequence[Sequence[Expr] | None]) -> Expr | None:
    """Merges a nested select that gives the same value on two paths; `inside` are the sides as selects."""
    for nested, outside, ways in ((inside[1], a, ("or", "or not")), (inside[0], b, ("not or", "and"))):
        if nested is None or outside not in nested[1:]:
            continue
        q, v, w = nested
        other, way = (w, ways[0]) if v == outside else (v, ways[1])
        if a.kind is Kind.BOOL:
            return rewrite(f"merge truths by {way}", p=p, q=q, r=outside, r1=other)
        return rewrite(f"merge by {way}", p=p, q=q, x=outside, y=other)
    return None


def _of_truths(p: Expr, a: Expr, b: Expr) -> Expr | None:
    """Turns a select of truth values with a constant side into a connective."""
    for side, other, if_true, if_false in ((a, b, "or", "not and"), (b, a, "not or", "and")):
        if isinstance(side, Const):
            return rewrite(f"choice is {if_true if side.value else if_false}", p=p, q=other)
    return None


def _as_extreme(condition: Expr, a: Expr, b: Expr) -> Expr | None:
    """Recognises a minimum or maximum of the two sides."""
    if not isinstance(condition, Apply) or condition.op not in (Op.LT, Op.LE, Op.EQ, Op.NE):
        return None
    if conditions_in(a) or conditions_in(b):
        # Comparing selects would build selects, without end.
        return None
    for name in ("choice is min", "strict choice is min", "choice is max", "strict choice is max"):
        if instantiate(BY_NAME[name].left.arguments[0], {"x": a, "y": b}) == condition:
            return rewrite(name, x=a, y=b)
    return None


def _take_out(condition: Expr, a: Expr, b: Expr) -> Expr:
    """Factors out what both sides share: of each product the smaller coefficient, then the common factor."""
    forms = to_form(a), to_form(b)
    shift = lowest(forms)
    sides = [(f - shift).wrapped() for f in forms]
    if sides[0] == sides[1]:
        return to_expr((shift + sides[0]).wrapped())
    common = math.gcd(*(s.common for s in sides))
    choice = atom(Apply(Op.SELECT, (condition, *(to_expr(s // common) for s in sides))))
    return to_expr((shift + choice * common).wrapped())
