"""Canonical form of comparisons: one orientation, reduced coefficients, tightened constants.

A comparison whose sides cannot wrap states that a sum over the integers is non-negative. That sum is divided
by the common factor of its coefficients, its constant is rounded, and it is written with positive
coefficients on both sides. An equality holds modulo 2^32 whether or not its sides wrap.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from sw.canonical.engine import BUILDERS, build, builder, rewrite
from sw.canonical.facts import fits, form_bounds, span, value_bounds
from sw.canonical.linear import ZERO, Form, to_expr, to_form
from sw.canonical.operands import DUAL
from sw.canonical.rank import key, opaque, small
from sw.canonical.settle import settle, settled_exactly, view_choice
from sw.canonical.variants import with_remainders
from sw.ir.expression import FALSE, TRUE, Apply, Const, Expr, Op, apply, const, truth
from sw.ir.ranges import bounds_of_operator, may_trap
from sw.ir.types import Kind

#: Comparisons of sums with more minima and maxima than this are not split.
SPLIT = 3


class Bound(NamedTuple):
    """A comparison of a sum over the integers with 0: form >= 0 (LE), form == 0 (EQ) or form != 0 (NE)."""

    op: Op
    form: Form


BUILDERS[Op.LT] = lambda a, b: _ordered(Op.LT, a, b)
BUILDERS[Op.LE] = lambda a, b: _ordered(Op.LE, a, b)
BUILDERS[Op.GT] = lambda a, b: build(Op.LT, b, a)
BUILDERS[Op.GE] = lambda a, b: build(Op.LE, b, a)
BUILDERS[Op.NE] = lambda a, b: build(Op.NOT, build(Op.EQ, a, b))


def _ordered(op: Op, a: Expr, b: Expr) -> Expr:
    if may_trap(a) or may_trap(b):
        return apply(op, a, b)
    forms = to_form(a), to_form(b)
    if fits(forms[0]) and fits(forms[1]):
        found = at_least_zero(settled_exactly(forms[1] - forms[0]) + -(op is Op.LT))
        return found if found is not None else apply(op, a, b)
    if a == b:
        return truth(op is Op.LE)
    low, high = bounds_of_operator(op, *map(form_bounds, forms))
    return truth(low) if low == high else apply(op, a, b)


@functools.lru_cache(maxsize=1 << 14)
def at_least_zero(form: Form) -> Expr | None:
    """Returns 0 <= form over the integers, in core form; None if it cannot be written in 32 bits."""
    form = tightened(form)
    low, high = span(form)
    if low >= 0:
        return TRUE
    if high < 0:
        return FALSE
    if high == 0:
        return equal_zero(form)
    if low == -1:
        found = equal_zero(form + 1)
        return None if found is None else build(Op.NOT, found)
    if form in _ACTIVE or -(form + 1) in _ACTIVE:
        return written(Op.LE, form)
    for reduce in (_without_factor, _without_rest, _by_choice):
        found = reduce(Op.LE, form)
        if found is not None:
            return found
    _ACTIVE.add(form)
    try:
        split = _taken_apart(form)
    finally:
        _ACTIVE.remove(form)
    return split if split is not None else written(Op.LE, form)


#: Comparisons being split; one that leads back to itself is left whole.
_ACTIVE: set[Form] = set()


def tightened(form: Form) -> Form:
    """Divides by the common factor of the products; the result is non-negative for the same values."""
    return form // (form.content() or 1)


def _isolated(form: Form, *ops: Op) -> list[tuple[Apply, int, Form]]:
    """Atoms of these operators with coefficient 1 or -1: the atom, its coefficient, and the other side.

    Skips an atom that also occurs inside another one, and a minimum whose maximum does: splitting would gain
    nothing, and a choice could bring the atom back.
    """
    found = []
    for inner, k, rest in form.applied(*ops):
        same = {inner, Apply(DUAL.get(inner.op, inner.op), inner.args)}
        others = [a for m, _ in rest.terms for a in m if opaque(a)]
        if k in (1, -1) and fits(rest * -k) and all(same.isdisjoint(a.walk()) for a in others):
            found.append((inner, k, rest * -k))
    return found


def _quotients(form: Form) -> list[tuple[Apply, int, Form]]:
    """Isolated quotients by a positive constant whose numerators fit in 32 bits."""
    return [
        (q, sign, other)
        for q, sign, other in _isolated(form, Op.DIV)
        if (to_form(q.args[1]).constant or 0) > 0 and fits(to_form(q.args[0]))
    ]


def _taken_apart(form: Form) -> Expr | None:
    """Rewrites 0 <= form without the quotient, minimum or maximum isolated in it; None if there is none."""
    for inner, sign, other in _quotients(form):
        name = "quotient at most" if sign < 0 else "quotient at least"
        found = rewrite(name, x=inner.args[0], c=inner.args[1], y=to_expr(other))
        if found is not None:
            return found
    extremes = _isolated(form, *DUAL)
    # Each one doubles the number of comparisons.
    if 0 < len(extremes) <= SPLIT and small(to_expr(form)):
        inner, sign, other = extremes[0]
        name = f"{inner.op.text} at most" if sign < 0 else f"at most a {inner.op.text}"
        return rewrite(name, x=inner.args[0], y=inner.args[1], z=to_expr(other))
    return None


def _without_factor(op: Op, form: Form) -> Expr | None:
    """Removes a factor shared by all products, if it is never 0, from a comparison with 0."""
    if form.const or not form.terms:
        return None
    for factor in form.terms[0][0]:
        low, high = value_bounds(factor)
        rest, others = form.parts(factor)
        if low <= 0 <= high or others != ZERO or rest.const or not fits(rest):
            continue
        name = "product is zero for one" if op is Op.EQ else f"{'positive' if low > 0 else 'negative'} factor"
        found = rewrite(name, x=to_expr(rest), y=factor)
        if found is not None:
            return found
    return None


def _without_rest(op: Op, form: Form) -> Expr | None:
    """Removes summands too small to decide a comparison with 0 beside multiples of larger numbers."""
    for whole in dict.fromkeys((form, with_remainders(form, exact=True))):
        for g in sorted({abs(k) for _, k in whole.terms if abs(k) > 1}, reverse=True):
            x, y = whole.multiples(g)
            low, high = span(y)
            k = low // g
            if not y.terms or k != high // g or not (fits(x) and fits(y)):
                continue
            if op is Op.LE:
                found = rewrite("rest within one multiple", x=to_expr(x), y=to_expr(y), g=g, k=k)
            else:
                x, y = (x + k).wrapped(), y + -k * g
                found = rewrite("rest is no multiple", x=to_expr(x), y=to_expr(y), g=g) if fits(y) else None
            if found is not None:
                return found
    return None


def _by_choice(op: Op, form: Form) -> Expr | None:
    """A comparison of a choice one of whose sides decides it."""
    view = view_choice(form)
    if view is None:
        return None
    condition, *sides = view
    # If both fit in 32 bits, the sum over the integers equals the sum modulo 2^32.
    if not fits(form) or not all(map(fits, sides)):
        return None
    known = [span(f) for f in sides]
    if any(low > 0 or high < 0 or (op is Op.LE and low == 0) for low, high in known):
        x, y = map(to_expr, sides)
        return rewrite("choice at least zero" if op is Op.LE else "choice is zero", p=condition, x=x, y=y)
    return None


def _of_extreme(_: Op, form: Form) -> Expr | None:
    """Equality with a minimum or maximum, if one operand is known to equal the other side, or not to."""
    for inner, _sign, z in _isolated(form, *DUAL):
        name = inner.op.text
        for x, y in (inner.args, inner.args[::-1]):
            if to_form(x) == z:
                return rewrite(f"{name} is its operand", x=x, y=y)
            found = rewrite(f"{name} is the other", x=x, y=y, z=to_expr(z))
            if found is not None:
                return found
    return None


def sides(form: Form) -> tuple[Form, Form]:
    """Two sums with positive coefficients whose difference is the form."""
    positive = Form(max(0, form.const), tuple(t for t in form.terms if t[1] >= 0))
    return positive, positive - form


def written(op: Op, form: Form) -> Expr | None:
    """Writes 0 <= form or form == 0 with two sides of 32 bits; None if they do not fit."""
    right, left = sides(form)
    if op is Op.EQ:
        # x == 3 and x == y: the positive part goes to the left, a lone constant to the right.
        left, right = right, left
    elif form.const == -1 and left.terms and right.terms:
        left, op = left.varying, Op.LT
    return Apply(op, (to_expr(left), to_expr(right))) if fits(left) and fits(right) else None


def signed(form: Form) -> Form:
    """The form or its negative, whichever has a positive first coefficient."""
    return -form if form.terms and form.terms[0][1] < 0 else form


@functools.lru_cache(maxsize=1 << 14)
def equal_zero(form: Form) -> Expr | None:
    """Returns form == 0 over the integers, in core form; None if it cannot be written in 32 bits."""
    if form.constant is not None:
        return truth(form.const == 0)
    if form.common != form.content():
        return FALSE
    form = signed(tightened(form))
    low, high = span(form)
    if low > 0 or high < 0:
        return FALSE
    for reduce in (_without_factor, _without_rest, _by_choice, _of_extreme):
        found = reduce(Op.EQ, form)
        if found is not None:
            return found
    if form.const == 0 and len(form.terms) == 1 and len(form.terms[0][0]) > 1:
        zeros = [build(Op.EQ, a, const(0)) for a in dict.fromkeys(form.terms[0][0])]
        return functools.reduce(lambda a, b: build(Op.OR, a, b), zeros)
    quotients = _quotients(form)
    if len(quotients) == 1 and small(to_expr(form)):
        ((inner, _, other),) = quotients
        found = rewrite("quotient equals", x=inner.args[0], c=inner.args[1], y=to_expr(other))
        if found is not None:
            return found
    return written(Op.EQ, form)


@builder(Op.EQ)
def build_equal(a: Expr, b: Expr) -> Expr:
    """Returns a == b in core form."""
    if a.kind is Kind.BOOL:
        return _equal_truths(a, b)
    if may_trap(a) or may_trap(b):
        return apply(Op.EQ, *sorted((a, b), key=key))
    forms = to_form(a), to_form(b)
    if fits(forms[0]) and fits(forms[1]):
        found = equal_zero(settled_exactly(forms[0] - forms[1]))
        if found is not None:
            return found
    if bounds_of_operator(Op.EQ, *map(form_bounds, forms)) == (0, 0):
        return FALSE
    form = signed(to_form(settle((forms[0] - forms[1]).wrapped())))
    if form.constant is not None:
        return truth(form.const == 0)
    left, right = sides(form)
    return Apply(Op.EQ, (to_expr(left.wrapped()), to_expr(right.wrapped())))


def _equal_truths(a: Expr, b: Expr) -> Expr:
    for one, other in ((a, b), (b, a)):
        if isinstance(other, Const):
            return one if other.value else build(Op.NOT, one)
    if may_trap(a) or may_trap(b):
        return apply(Op.EQ, a, b)
    if a == b:
        return TRUE
    # Of each operand and its negation, take the one that sorts first.
    first = [min(x, build(Op.NOT, x), key=key) for x in (a, b)]
    op = Op.EQ if (first[0] == a) == (first[1] == b) else Op.NE
    return truth(op is Op.EQ) if first[0] == first[1] else Apply(op, tuple(sorted(first, key=key)))


@functools.lru_cache(maxsize=1 << 15)
def bound_of(expr: Expr) -> Bound | None:
    """The sum over the integers that a core-form comparison bounds; None if its sides may wrap."""
    if not isinstance(expr, Apply) or expr.op not in (Op.LT, Op.LE, Op.EQ, Op.NE):
        return None
    if expr.args[0].kind is Kind.BOOL or may_trap(expr):
        return None
    left, right = (to_form(a) for a in expr.args)
    if not fits(left) or not fits(right):
        return None
    if expr.op in (Op.EQ, Op.NE):
        return Bound(expr.op, signed(left - right))
    return Bound(Op.LE, right - left + -(expr.op is Op.LT))


def of_bound(bound: Bound) -> Expr | None:
    """Writes a bound as a core-form comparison; None if it cannot be written in 32 bits."""
    if bound.op is Op.LE:
        return at_least_zero(bound.form)
    found = equal_zero(bound.form)
    return found if found is None or bound.op is Op.EQ else build(Op.NOT, found)
