"""Core form of minimum and maximum, and of sums that contain them.

A minimum stays the same up to a summand, a factor and a sign that all of its operands share. They are taken
out, so that `min(x, y - z) + z` and `min(x + z, y)` become the same: of every product the smallest
coefficient among the operands goes out, so that what remains has no negative ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sw.canonical.engine import build, builder
from sw.canonical.facts import at_most, fits
from sw.canonical.linear import (
    TERMS,
    Form,
    Monomial,
    add,
    atom,
    difference,
    divide,
    exactly,
    multiply,
    scale,
    subtract,
    to_expr,
    to_form,
    without,
)
from sw.canonical.operands import chain, operands
from sw.canonical.rank import key, may_raise
from sw.ir.expression import Apply, Expr, Op

DUAL = {Op.MIN: Op.MAX, Op.MAX: Op.MIN}
#: More operands than this are sorted, and not compared with each other.
COMPARED = 12
#: Operands of a minimum inside of a sum are multiplied out up to this number.
SPREAD = 16


@builder(Op.MIN)
def build_min(*args: Expr) -> Expr:
    """The smallest of several values."""
    return extreme(Op.MIN, args)


@builder(Op.MAX)
def build_max(*args: Expr) -> Expr:
    """The largest of several values."""
    return extreme(Op.MAX, args)


def extreme(op: Op, args: Sequence[Expr]) -> Expr:
    """Minimum or maximum of any number of values."""
    forms = list(dict.fromkeys(f for a in args for f in _spread(op, to_form(a))))
    if any(may_raise(a) for a in args):
        return chain(op, sorted((to_expr(f) for f in forms), key=key))
    if len(forms) <= COMPARED:
        forms = _extremes(op, forms)
    if len(forms) == 1:
        return to_expr(forms[0])
    choice = _same_choice(op, forms)
    if choice is not None:
        return choice
    common = _common_operand(op, forms)
    if common is not None:
        return common
    return _take_out(op, forms)


def _spread(op: Op, form: Form) -> list[Form]:
    """The operands of a nested minimum, also one with a factor and a summand."""
    found = [
        (m, k)
        for m, k in form.terms
        if len(m) == 1 and isinstance(m[0], Apply) and m[0].op in DUAL and k and (m[0].op is op) == (k > 0)
    ]
    if len(found) != 1:
        return [form]
    monomial, k = found[0]
    inner = monomial[0]
    assert isinstance(inner, Apply)
    rest = without(form, monomial)
    sides = operands(inner.op, inner)
    parts = [to_form(s) for s in sides]
    whole = [
        exactly(rest.const + k * p.const, (*rest.terms, *((m, k * c) for m, c in p.terms))) for p in parts
    ]
    if len(sides) > SPREAD or not all(map(fits, (*parts, *whole))):
        return [form]
    return whole


def _extremes(op: Op, forms: Sequence[Form]) -> list[Form]:
    """Those operands that are not known to lose against another, whatever the order of the operands.

    What loses against a loser loses against its winner too, also where their difference does not tell. Of
    operands that are known to be equal the first in the fixed order stays.
    """
    beaten = {
        f: {g for g in forms if g is not f and (at_most(g, f) if op is Op.MIN else at_most(f, g))}
        for f in forms
    }
    for middle in forms:
        for form in forms:
            if middle in beaten[form]:
                beaten[form] |= beaten[middle]
    return [f for f in forms if all(f in beaten[g] and f.order() <= g.order() for g in beaten[f])]


def view_choice(form: Form) -> tuple[Expr, Form, Form] | None:
    """A sum with a multiple of one choice in it as a choice of two sums: condition and sides."""
    found = [
        (m, m[0], k)
        for m, k in form.terms
        if len(m) == 1 and k and isinstance(m[0], Apply) and m[0].op is Op.SELECT
    ]
    if len(found) != 1:
        return None
    monomial, choice, k = found[0]
    rest = without(form, monomial)
    a, b = (add(rest, scale(to_form(x), k)) for x in choice.args[1:])
    return choice.args[0], a, b


def turn_choices(form: Form) -> Form:
    """Writes a choice as the sum of its sides minus the other one, where that is shorter.

    So a choice and its negative share one atom. Of two ways of the same length the first in the fixed order
    of sums is taken.
    """
    choices = dict.fromkeys(
        a for m, k in form.terms if k for a in m if isinstance(a, Apply) and a.op is Op.SELECT
    )
    if len(choices) > COMPARED:
        return form
    for choice in choices:
        if may_raise(choice):
            continue
        held = [(m, k) for m, k in form.terms if choice in m]
        if any(m.count(choice) > 1 for m, _ in held):
            continue
        condition, x, y = choice.args
        both = add(to_form(x), to_form(y))
        if both.count * len(held) > TERMS:
            continue
        turned = subtract(both, atom(Apply(Op.SELECT, (condition, y, x))))
        changed = Form(form.const, tuple(t for t in form.terms if choice not in t[0]))
        for monomial, k in held:
            left = list(monomial)
            left.remove(choice)
            cofactor = Form(0, ((tuple(left), k),)) if left else Form(k)
            changed = add(changed, multiply(cofactor, turned))
        form = min(form, changed, key=lambda f: (f.count, f.order()))
    return form


def _same_choice(op: Op, forms: Sequence[Form]) -> Expr | None:
    """Operands that all choose by the same condition."""
    views = [view_choice(f) for f in forms]
    found = [v for v in views if v is not None]
    if len(found) != len(forms) or any(v[0] != found[0][0] for v in found):
        return None
    sides = [extreme(op, [to_expr(v[i]) for v in found]) for i in (1, 2)]
    return build(Op.SELECT, found[0][0], *sides)


def _common_operand(op: Op, forms: Sequence[Form]) -> Expr | None:
    """min(max(x, y), max(x, z)) is max(x, min(y, z))."""
    lists = []
    for form in forms:
        single = form.single
        if (
            single is None
            or single[1] != 1
            or not isinstance(single[0], Apply)
            or single[0].op is not DUAL[op]
        ):
            return None
        lists.append(operands(DUAL[op], single[0]))
    shared = [a for a in lists[0] if all(a in other for other in lists[1:])]
    if not shared:
        return None
    rests = [[a for a in one if a not in shared] for one in lists]
    inner = extreme(op, [extreme(DUAL[op], rest) for rest in rests if rest])
    return extreme(DUAL[op], [*shared, inner])


def _take_out(op: Op, forms: Sequence[Form]) -> Expr:
    """Takes common summand, factor and sign out of operands."""
    op, shift, factor, rests = _normal(op, forms)
    ordered = sorted(rests, key=Form.order)
    inner = chain(op, [to_expr(f) for f in ordered])
    return to_expr(choose_min_or_max(add(shift, scale(atom(inner), factor))))


def _normal(op: Op, forms: Sequence[Form]) -> tuple[Op, Form, int, list[Form]]:
    """Operator, summand, factor and operands: op(forms) is summand + factor * operator(operands)."""
    plain = (op, Form(), 1, list(forms))
    if not all(map(fits, forms)):
        return plain
    shift = _lowest(forms)
    rests = [difference(f, shift) for f in forms]
    if not fits(shift) or not all(map(fits, rests)):
        shift, rests = Form(), list(forms)
    found = (op, shift, 1, rests)
    if len(forms) > 2:
        negative = [exactly(-f.const, ((m, -k) for m, k in f.terms)) for f in rests]
        down = _lowest(negative)
        mirrored = [difference(f, down) for f in negative]
        if sum(f.count for f in mirrored) < sum(f.count for f in rests):
            up = difference(shift, down)
            if all(map(fits, (*negative, *mirrored, up))):
                found = (DUAL[op], up, -1, mirrored)
    common = math.gcd(*(math.gcd(f.const, f.content()) for f in found[3]))
    if common > 1:
        found = (*found[:2], found[2] * common, [divide(f, common) for f in found[3]])
    return found


def _lowest(forms: Sequence[Form]) -> Form:
    """The smallest coefficient of every product among sums."""
    monomials: dict[Monomial, None] = dict.fromkeys(m for f in forms for m, _ in f.terms)
    tables = [dict(f.terms) for f in forms]
    terms = [(m, min(t.get(m, 0) for t in tables)) for m in monomials]
    return exactly(min(f.const for f in forms), [(m, k) for m, k in terms if k])


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
