"""Brings together the choices, minima and maxima of a sum."""

from __future__ import annotations

from hw.semantics import wrap
from sw.canonical.engine import build
from sw.canonical.facts import fits
from sw.canonical.linear import Form, add, atom, multiply, scale, to_expr, to_form, without
from sw.canonical.operands import DUAL, chain, operands
from sw.canonical.rank import may_raise
from sw.ir.expression import Apply, Expr, Op


def settle(form: Form) -> Expr:
    """A sum whose choices and minima are brought together."""
    if any(isinstance(a, Apply) and a.op in (Op.SELECT, Op.MIN, Op.MAX) for m, _ in form.terms for a in m):
        form = min_times_max(form)
        form = combine_choices(form)
        form = choose_min_or_max(form)
    return to_expr(form)


def settled_exactly(form: Form) -> Form:
    """A sum over the integers, settled where it lies within 32 bits before and after."""
    if any(wrap(k) != k for _, k in form.terms) or not fits(form):
        return form
    # Both lie within 32 bits and are equal modulo 2^32, so they are equal.
    found = to_form(settle(form))
    return found if fits(found) else form


# Choices


def view_choice(form: Form, condition: Expr | None = None) -> tuple[Expr, Form, Form] | None:
    """A sum with choices by one condition in it as a choice of two sums: condition and sides.

    None where there are no choices, or, unless a condition is given, choices by several.
    """
    choices = [
        (m, m[0], k)
        for m, k in form.terms
        if len(m) == 1 and k and isinstance(m[0], Apply) and m[0].op is Op.SELECT
    ]
    conditions = {c.args[0] for _, c, _ in choices}
    if condition is None and len(conditions) == 1:
        (condition,) = conditions
    if condition is None:
        return None
    mine = [c for c in choices if c[1].args[0] == condition]
    rest = form
    for monomial, _, _ in mine:
        rest = without(rest, monomial)
    a, b = (add(rest, *(scale(to_form(c.args[i]), k) for _, c, k in mine)) for i in (1, 2))
    return condition, a, b


def combine_choices(form: Form) -> Form:
    """Choices of a sum that have the same condition become one."""
    atoms = [m[0] for m, k in form.terms if len(m) == 1 and k]
    choices = [a for a in atoms if isinstance(a, Apply) and a.op is Op.SELECT and not may_raise(a)]
    conditions = [c.args[0] for c in choices]
    for condition in dict.fromkeys(c for c in conditions if conditions.count(c) > 1):
        view = view_choice(form, condition)
        assert view is not None
        merged = to_form(build(Op.SELECT, condition, *map(to_expr, view[1:])))
        if merged != form:
            return combine_choices(merged)
    return form


# Minima and maxima of two


def pair_of(expr: Expr) -> tuple[Expr, Expr] | None:
    """The two operands of a minimum or maximum of two."""
    if not isinstance(expr, Apply) or expr.op not in DUAL:
        return None
    found = operands(expr.op, expr)
    return (found[0], found[1]) if len(found) == 2 else None


def choose_min_or_max(form: Form) -> Form:
    """Writes a minimum of two values as sum minus maximum, or the other way, whichever is shorter."""
    pairs = [p for m, k in form.terms if k and len(m) == 1 and (p := pair_of(m[0])) is not None]
    for pair in dict.fromkeys(pairs):
        keys = {op: (chain(op, pair),) for op in DUAL}
        counts = {op: form.coefficient(keys[op]) for op in DUAL}
        rest = without(without(form, keys[Op.MIN]), keys[Op.MAX])
        both = add(to_form(pair[0]), to_form(pair[1]))
        forms = []
        for op in DUAL:
            left = counts[op] - counts[DUAL[op]]
            forms.append(add(rest, scale(both, counts[DUAL[op]]), scale(atom(keys[op][0]), left)))
        form = min(forms, key=lambda f: f.count)
    return form


def min_times_max(form: Form) -> Form:
    """Products of a minimum and the maximum of the same pair are products of the pair."""
    for monomial, k in form.terms:
        for atom_ in monomial:
            pair = pair_of(atom_)
            if pair is None or not isinstance(atom_, Apply):
                continue
            other = chain(DUAL[atom_.op], pair)
            if other in monomial:
                left = list(monomial)
                left.remove(atom_)
                left.remove(other)
                product = multiply(to_form(pair[0]), to_form(pair[1]))
                factors = multiply(Form(0, ((tuple(left), 1),)), product) if left else product
                return min_times_max(add(without(form, monomial), scale(factors, k)))
    return form
