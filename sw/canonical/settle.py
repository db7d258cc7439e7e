"""Merges the selects, minima and maxima in a sum."""

from __future__ import annotations

import functools

from hw.semantics import wrap
from sw.canonical.engine import build
from sw.canonical.facts import fits
from sw.canonical.linear import Form, atom, less, multiply, to_expr, to_form
from sw.canonical.operands import DUAL, operands
from sw.ir.expression import Apply, Expr, Op
from sw.ir.ranges import may_trap


def settle(form: Form) -> Expr:
    """The sum as an expression with its selects and extremes merged."""
    if any(isinstance(a, Apply) and a.op in (Op.SELECT, *DUAL) for m, _ in form.terms for a in m):
        form = choose_min_or_max(combine_choices(min_times_max(form)))
    return to_expr(form)


def settled_exactly(form: Form) -> Form:
    """The same for a sum over the integers, if it fits in 32 bits before and after."""
    if any(wrap(k) != k for _, k in form.terms) or not fits(form):
        return form
    # Both fit in 32 bits and are equal modulo 2^32, so they are equal.
    found = to_form(settle(form))
    return found if fits(found) else form


def view_choice(form: Form, condition: Expr | None = None) -> tuple[Expr, Form, Form] | None:
    """Views a sum with selects on one condition as one select of two sums: condition and sides.

    None if there are no selects or, unless `condition` is given, selects on several conditions.
    """
    choices = list(form.applied(Op.SELECT))
    conditions = {c.args[0] for c, _, _ in choices} if condition is None else {condition}
    if len(conditions) != 1:
        return None
    (condition,) = conditions
    mine = [(c, k) for c, k, _ in choices if c.args[0] == condition]
    rest = functools.reduce(Form.without, [(c,) for c, _ in mine], form)
    a, b = (sum((to_form(c.args[i]) * k for c, k in mine), rest).wrapped() for i in (1, 2))
    return condition, a, b


def combine_choices(form: Form) -> Form:
    """Merges the selects of a sum that share a condition."""
    conditions = [c.args[0] for c, _, _ in form.applied(Op.SELECT) if not may_trap(c)]
    for condition in dict.fromkeys(c for c in conditions if conditions.count(c) > 1):
        view = view_choice(form, condition)
        assert view is not None
        merged = to_form(build(Op.SELECT, condition, *map(to_expr, view[1:])))
        if merged != form:
            return combine_choices(merged)
    return form


def other_extreme(expr: Expr) -> Apply | None:
    """The maximum with the same operands as a minimum of two, and vice versa."""
    if not isinstance(expr, Apply) or expr.op not in DUAL or len(operands(expr.op, expr)) != 2:
        return None
    return Apply(DUAL[expr.op], expr.args)


def choose_min_or_max(form: Form) -> Form:
    """Writes a minimum of two as sum minus maximum, or vice versa, whichever is shorter."""
    for expr in [a for a, _, _ in form.applied(*DUAL) if other_extreme(a)]:
        least, most = (Apply(op, expr.args) for op in (Op.MIN, Op.MAX))
        a, b = form.coefficient((least,)), form.coefficient((most,))
        rest = form.without((least,)).without((most,))
        both = to_form(expr.args[0]) + to_form(expr.args[1])
        ways = rest + both * b + atom(least) * (a - b), rest + both * a + atom(most) * (b - a)
        form = min((w.wrapped() for w in ways), key=lambda f: f.count)
    return form


def min_times_max(form: Form) -> Form:
    """Replaces the product of a pair's minimum and maximum by the product of the pair."""
    for monomial, k in form.terms:
        for factor in monomial:
            other = other_extreme(factor)
            if other is not None and other in monomial:
                left = less(less(monomial, factor), other)
                product = multiply(*map(to_form, other.args))
                product = multiply(Form(0, ((left, 1),)), product) if left else product
                return min_times_max((form.without(monomial) + product * k).wrapped())
    return form
