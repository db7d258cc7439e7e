"""Brings together the choices, minima and maxima of a sum."""

from __future__ import annotations

from hw.semantics import wrap
from sw.canonical.engine import build
from sw.canonical.facts import fits
from sw.canonical.lattice import choose_min_or_max, min_times_max, turn_choices
from sw.canonical.linear import Form, Monomial, add, scale, to_expr, to_form, without
from sw.canonical.rank import may_raise
from sw.ir.expression import Apply, Expr, Op


def settle(form: Form) -> Expr:
    """A sum whose choices and minima are brought together."""
    if any(isinstance(a, Apply) and a.op in (Op.SELECT, Op.MIN, Op.MAX) for m, _ in form.terms for a in m):
        form = min_times_max(form)
        form = combine_choices(form)
        form = turn_choices(choose_min_or_max(form))
    return to_expr(form)


def settled_exactly(form: Form) -> Form:
    """A sum over the integers, settled where it lies within 32 bits before and after."""
    if any(wrap(k) != k for _, k in form.terms) or not fits(form):
        return form
    # Both lie within 32 bits and are equal modulo 2^32, so they are equal.
    found = to_form(settle(form))
    return found if fits(found) else form


def combine_choices(form: Form) -> Form:
    """Choices of a sum that have the same condition become one."""
    groups: dict[Expr, list[tuple[Monomial, int]]] = {}
    for monomial, k in form.terms:
        first = monomial[0]
        if len(monomial) == 1 and isinstance(first, Apply) and first.op is Op.SELECT and k:
            groups.setdefault(first.args[0], []).append((monomial, k))
    for condition, found in groups.items():
        choices = [m[0] for m, _ in found]
        if len(found) == 1 or any(map(may_raise, choices)):
            continue
        rest = form
        for monomial, _ in found:
            rest = without(rest, monomial)
        sides = []
        for side in (1, 2):
            parts = [scale(to_form(m[0].arguments[side]), k) for m, k in found]
            sides.append(to_expr(add(*parts)))
        merged = add(rest, to_form(build(Op.SELECT, condition, *sides)))
        return merged if merged == form else combine_choices(merged)
    return form
