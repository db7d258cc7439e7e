"""Other ways to write a sum of products: remainders, and summands inside of choices, minima and quotients."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from sw.canonical.engine import build
from sw.canonical.facts import fits, whole_sum
from sw.canonical.linear import (
    ZERO,
    Form,
    Monomial,
    add,
    add_constant,
    atom,
    divide,
    exactly,
    negated,
    scale,
    subtract,
    to_expr,
    to_form,
    without,
)
from sw.canonical.operands import DUAL, chain, operands
from sw.canonical.rank import key, may_raise
from sw.ir.expression import Apply, Const, Expr, Op, apply, const

Term = tuple[Monomial, int]


def variants(form: Form) -> Iterator[Form]:
    """Sums of the same value, one step away."""
    yield from _remainders(form, exact=False)
    for monomial, k in form.terms:
        first = monomial[0]
        if len(monomial) != 1 or not k or not isinstance(first, Apply) or may_raise(first):
            continue
        rest = without(form, monomial)
        if first.op is Op.DIV:
            yield from _into_quotient(rest, first, k)
        elif first.op in (Op.MIN, Op.MAX, Op.SELECT):
            yield from _inward(rest, first, k)
            parts = quotient_of(first)
            if parts is not None:
                yield from _into_quotient(rest, apply(Op.DIV, *map(to_expr, parts)), k)


def _parts(form: Form, inside: frozenset[Expr]) -> Iterator[Form]:
    """What could be moved inside of an operator: nothing, the constant, all, what occurs there."""
    shared = [(m, k) for m, k in form.terms if any(a in inside for a in m)]
    yield from dict.fromkeys(
        (
            ZERO,
            Form(form.const),
            form,
            exactly(0, shared),
            exactly(form.const, shared),
            exactly(0, form.terms),
        )
    )


def _atoms(*forms: Form) -> frozenset[Expr]:
    return frozenset(a for f in forms for m, _ in f.terms for a in m)


def _inward(rest: Form, inner: Apply, k: int) -> Iterator[Form]:
    """`rest + k * inner` for a choice, minimum or maximum, with summands and factor inside of it."""
    op = inner.op
    condition = inner.args[:1] if op is Op.SELECT else ()
    args = inner.args[1:] if condition else operands(op, inner)
    sides = [to_form(a) for a in args]
    views = [(op, rest, sides, k)]
    if len(args) == 2:
        # The other one of two is their sum less this one.
        both = add(rest, scale(add(*sides), k))
        if both.count <= rest.count:
            views.append((DUAL.get(op, op), both, sides if op in DUAL else sides[::-1], -k))
    if op in DUAL and not all(map(fits, sides)):
        return
    most = _weight(rest) + sum(map(_weight, sides)) + (k != 1)
    for name, outside, old, factor in views:
        for moved in _parts(outside, _atoms(*old)):
            left = subtract(outside, moved)
            for by in dict.fromkeys((1, factor)):
                # The factor `by` goes inside.
                outer = factor // by
                if moved.const % outer or any(c % outer for _, c in moved.terms):
                    continue
                new = [whole_sum((s, by), (divide(moved, outer), 1)) for s in old]
                if _weight(left) + sum(map(_weight, new)) + (outer != 1) > most:
                    continue
                if op in DUAL and not all(map(fits, new)):
                    continue
                operator = DUAL[name] if op in DUAL and by < 0 else name
                values = [to_expr(f if op in DUAL else subtract(f, ZERO)) for f in new]
                made = Apply(op, (*condition, *values)) if condition else chain(operator, values)
                yield add(left, scale(atom(made), outer))


def _into_quotient(rest: Form, inner: Apply, k: int) -> Iterator[Form]:
    """`rest + k * inner` for a quotient by a constant, with multiples of it inside."""
    divisor = inner.args[1]
    if not isinstance(divisor, Const) or divisor.value <= 1:
        return
    c, numerator = divisor.value, to_form(inner.args[0])
    if not fits(numerator):
        return
    mirrored = add_constant(negated(numerator), c - 1)
    views = [(rest, numerator, k), (rest, mirrored, -k)]
    if c == 2:
        views.append((add(rest, scale(numerator, k)), Form(numerator.const + 1, numerator.terms), -k))
    for outside, inside, factor in views:
        for moved in _parts(outside, _atoms(inside)):
            if moved.const % factor or any(n % factor for _, n in moved.terms):
                continue
            whole = whole_sum((inside, 1), (divide(moved, factor), c))
            if not fits(inside) or not fits(whole):
                continue
            left = subtract(outside, moved)
            yield add(left, scale(atom(Apply(Op.DIV, (to_expr(whole), divisor))), factor))
            opposite = negated(whole)
            if fits(opposite) and c & (c - 1):
                turned = Apply(Op.DIV, (to_expr(opposite), const(-c)))
                yield add(left, scale(atom(turned), factor))


# Remainders


@functools.lru_cache(maxsize=1 << 16)
def with_remainders(form: Form, exact: bool = False) -> Form:
    """The sum with remainders for quotients, as long as it has fewer terms or coefficients then.

    `exact` says that the sum is one over the integers, in which an operand that may wrap is no sum.
    """
    for changed in _remainders(form, exact):
        if (_weight(changed), changed.count) < (_weight(form), form.count):
            return with_remainders(changed, exact)
    return form


def _weight(form: Form) -> int:
    """How much there is to add and multiply."""
    return form.count + sum(len(m) - 1 + (abs(k) != 1) for m, k in form.terms)


def _remainders(form: Form, exact: bool) -> Iterator[Form]:
    """The sum with one remainder instead of a quotient."""
    quotients = dict.fromkeys(a for m, k in form.terms if k for a in m if quotient_of(a) is not None)
    for quotient in quotients:
        parts = quotient_of(quotient)
        assert parts is not None
        numerator, divisor = parts
        if (divisor.constant is not None and divisor.const <= 0) or (
            exact and not (fits(numerator) and fits(divisor))
        ):
            continue
        cofactor = {less(m, quotient): k for m, k in form.terms if k and quotient in m}
        nested = [] if divisor.constant is None else _nested(quotients, quotient, divisor.const)
        for n, d in [(numerator, divisor), *nested]:
            remainder = apply(Op.MOD, to_expr(n), to_expr(d))
            rest = subtract(n, atom(remainder))
            for factors, k in _multiples(cofactor, d):
                removed = _times(d, (quotient, *factors), -k)
                changed = add(form, removed, _times(rest, factors, k))
                if changed.coefficient((quotient,)) == 0:
                    # The remainder raises what the quotient would have to stay for.
                    changed = without(changed, (quotient,))
                yield changed


def quotient_of(expr: Expr) -> tuple[Form, Form] | None:
    """Numerator and divisor of a quotient; of a minimum of quotients by one number, those of all of it."""
    if not isinstance(expr, Apply):
        return None
    if expr.op is Op.DIV:
        return to_form(expr.args[0]), to_form(expr.args[1])
    if expr.op not in DUAL:
        return None
    args = operands(expr.op, expr)
    quotients = [a for a in args if isinstance(a, Apply) and a.op is Op.DIV and isinstance(a.args[1], Const)]
    if len(quotients) != len(args) or len({a.args[1] for a in quotients}) != 1:
        return None
    divisor = quotients[0].args[1]
    assert isinstance(divisor, Const)
    numerator = to_form(build(expr.op, *(a.args[0] for a in quotients)))
    return (numerator, to_form(divisor)) if divisor.value > 0 else None


def _nested(quotients: dict[Expr, None], quotient: Expr, c: int) -> list[tuple[Form, Form]]:
    """`x // c` as quotient of `x // g`, for those that stand beside it."""
    assert isinstance(quotient, Apply)
    found = []
    for other in quotients:
        if (
            isinstance(other, Apply)
            and other.op is Op.DIV is quotient.op
            and other.args[0] == quotient.args[0]
        ):
            g = other.args[1]
            if isinstance(g, Const) and 1 < g.value < c and c % g.value == 0:
                found.append((atom(other), Form(c // g.value)))
    return found


def _multiples(cofactor: dict[Monomial, int], divisor: Form) -> Iterator[Term]:
    """Products with coefficients that, times the divisor, are summands of the cofactor."""
    parts = [*divisor.terms, *([((), divisor.const)] if divisor.const else [])]
    if any(k == 0 for _, k in parts) or (abs(divisor.constant or 0) == 1):
        return
    first, c = parts[0]
    for monomial, k in cofactor.items():
        if k % c or (left := _without(monomial, first)) is None:
            continue
        times = k // c
        if all(cofactor.get(tuple(sorted((*m, *left), key=key))) == d * times for m, d in parts):
            yield left, times


def _without(monomial: Monomial, factors: Monomial) -> Monomial | None:
    """A product divided by factors of it, each as often as it is named; None where one is missing."""
    left = list(monomial)
    for factor in factors:
        if factor not in left:
            return None
        left.remove(factor)
    return tuple(left)


def less(monomial: Monomial, factor: Expr) -> Monomial:
    """A product without one factor."""
    left = list(monomial)
    left.remove(factor)
    return tuple(left)


def _times(form: Form, factors: Monomial, k: int) -> Form:
    """A sum times further factors and a constant."""
    terms: list[Term] = [(tuple(sorted((*m, *factors), key=key)), c) for m, c in form.terms]
    constant = form.const if not factors else 0
    if factors and form.const:
        terms.append((tuple(sorted(factors, key=key)), form.const))
    return scale(Form(constant, exactly(0, terms).terms), k)
