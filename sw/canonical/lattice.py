"""Core form of minimum and maximum, and of sums that contain them.

A minimum stays the same up to a summand, a factor and a sign that all of its operands share. They are taken
out, so that `min(x, y - z) + z` and `min(x + z, y)` become the same: of every product the smallest
coefficient among the operands goes out, so that what remains has no negative ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sw.canonical.engine import BUILDERS, build
from sw.canonical.facts import at_most, fits, whole_sum
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
#: Operands of a minimum inside of a sum are looked at up to this number.
SPREAD = 16
#: A maximum of minima is multiplied out up to this number of clauses.
CLAUSES = 8

#: The largest of several sums.
Clause = tuple[Form, ...]


def extreme(op: Op, args: Sequence[Expr]) -> Expr:
    """Minimum or maximum of any number of values."""
    forms = list(dict.fromkeys(to_form(x) for a in args for x in operands(op, a)))
    if any(may_raise(a) for a in args):
        return chain(op, sorted((to_expr(f) for f in forms), key=key))
    clauses = _reduced(_combined(op, [_clauses(f) for f in forms]))
    if len(clauses) == 1 and len(clauses[0]) == 1:
        return to_expr(clauses[0][0])
    if len(clauses) > 1 and any(len(c) > 1 for c in clauses):
        return _nested(clauses)
    op, forms = (Op.MIN, [c[0] for c in clauses]) if len(clauses) > 1 else (Op.MAX, list(clauses[0]))
    choice = _same_choice(op, forms) or _decided_choice(op, forms)
    return choice if choice is not None else _take_out(op, forms)


# Nested minima and maxima


def _clauses(form: Form) -> list[Clause]:
    """A sum with a multiple of one minimum or maximum in it, as a minimum of maxima of sums."""
    found = [
        (m, k) for m, k in form.terms if len(m) == 1 and isinstance(m[0], Apply) and m[0].op in DUAL and k
    ]
    if len(found) != 1:
        return [(form,)]
    monomial, k = found[0]
    inner = monomial[0]
    assert isinstance(inner, Apply)
    rest = without(form, monomial)
    parts = [to_form(s) for s in operands(inner.op, inner)]
    whole = [whole_sum((rest, 1), (p, k)) for p in parts]
    if len(parts) > SPREAD or not all(map(fits, (*parts, *whole))):
        return [(form,)]
    return _combined(inner.op if k > 0 else DUAL[inner.op], [_clauses(f) for f in whole]) or [(form,)]


def _combined(op: Op, args: Sequence[list[Clause]]) -> list[Clause]:
    """Minimum or maximum of minima of maxima; those of too many clauses are one summand each."""
    if op is Op.MIN:
        return [c for a in args for c in a]
    found: list[Clause] = [()]
    for argument in args:
        if len(found) * len(argument) > CLAUSES:
            argument = [(to_form(_unfolded(argument)),)]
        found = [tuple(dict.fromkeys((*c, *d))) for c in found for d in argument]
    return found


def _unfolded(clauses: Sequence[Clause]) -> Expr:
    return chain(Op.MIN, [chain(Op.MAX, [to_expr(f) for f in c]) for c in clauses])


def _reduced(clauses: Sequence[Clause]) -> list[Clause]:
    """Clauses without what is known to lose, whatever the order that they came in."""
    forms = list(dict.fromkeys(f for c in clauses for f in c))
    if len(forms) > COMPARED:
        return list(clauses)
    above = _order(forms)
    kept = [tuple(f for f in c if not any(_beats(g, f, above) for g in c)) for c in clauses]
    kept = list(dict.fromkeys(tuple(sorted(c, key=Form.order)) for c in kept))

    def below(c: Clause, d: Clause) -> bool:
        return all(any(f == g or g in above[f] for g in d) for f in c)

    first = {c: i for i, c in enumerate(sorted(kept, key=lambda c: [f.order() for f in c]))}
    return [
        c for c in kept if not any(below(d, c) and (not below(c, d) or first[d] < first[c]) for d in kept)
    ]


def _order(forms: Sequence[Form]) -> dict[Form, set[Form]]:
    """For every sum those that are known to be at least as large, through third ones too."""
    above = {f: {g for g in forms if g is not f and at_most(f, g)} for f in forms}
    for middle in forms:
        for form in forms:
            if middle in above[form]:
                above[form] |= above[middle]
    return above


def _beats(one: Form, other: Form, above: dict[Form, set[Form]]) -> bool:
    """Whether one is the larger; of two equal ones the first in the fixed order is."""
    if one == other or one not in above[other]:
        return False
    return other not in above[one] or one.order() < other.order()


def _nested(clauses: list[Clause]) -> Expr:
    """A minimum of maxima, with what all have in common taken out."""
    forms = list(dict.fromkeys(f for c in clauses for f in c))
    op, shift, factor, rests = _normal(Op.MIN, forms)
    new = dict(zip(forms, rests, strict=True))
    clauses = [tuple(new[f] for f in c) for c in clauses]
    if op is Op.MAX:
        # Mirrored, it is a maximum of minima.
        clauses = _reduced(_combined(Op.MAX, [[(f,) for f in c] for c in clauses]))
    shared = [f for f in clauses[0] if all(f in c for c in clauses)]
    rest = [[f for f in c if f not in shared] for c in clauses]
    found = [to_expr(f) for f in sorted(shared, key=Form.order)]
    if all(rest):
        inner = (chain(Op.MAX, [to_expr(f) for f in sorted(c, key=Form.order)]) for c in rest)
        found.append(chain(Op.MIN, sorted(inner, key=key)))
    return to_expr(add(shift, scale(atom(chain(Op.MAX, found)), factor)))


# Choices


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


def _decided_choice(op: Op, forms: Sequence[Form]) -> Expr | None:
    """Two operands, one of which is a choice whose sides are known to win or lose against the other."""
    if len(forms) != 2:
        return None
    for one, other in (forms, forms[::-1]):
        view = view_choice(one)
        if view is None or not fits(one):
            continue
        condition, *sides = view
        if all(at_most(s, other) or at_most(other, s) for s in sides):
            return build(Op.SELECT, condition, *(extreme(op, [to_expr(s), to_expr(other)]) for s in sides))
    return None


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


BUILDERS[Op.MIN] = lambda *args: extreme(Op.MIN, args)
BUILDERS[Op.MAX] = lambda *args: extreme(Op.MAX, args)
