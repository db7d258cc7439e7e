"""Alternative spellings of a sum of products; the emitter takes the cheapest."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from sw.canonical.engine import build
from sw.canonical.facts import fits
from sw.canonical.linear import ZERO, Form, Term, atom, cofactor, from_terms, product, to_expr, to_form
from sw.canonical.operands import DUAL, chain, operands
from sw.ir.expression import Apply, Expr, Op, apply
from sw.ir.ranges import may_trap


def variants(form: Form) -> Iterator[Form]:
    """Yields equal sums, one rewriting step away."""
    yield from _remainders(form, exact=False)
    for inner, k, rest in form.applied(Op.DIV, Op.SELECT, *DUAL):
        if may_trap(inner):
            continue
        if inner.op is not Op.DIV:
            yield from _inward(rest, inner, k)
        parts = quotient_of(inner)
        if parts is not None and (parts[1].constant or 0) > 1 and fits(parts[0]):
            yield from _into_quotient(rest, parts[0], parts[1].const, k)


def _parts(form: Form, *inside: Form) -> Iterator[Form]:
    """What could move into an operator on sums: nothing, the constant, the terms that occur there, all."""
    atoms = {a for f in inside for m, _ in f.terms for a in m}
    shared = tuple(t for t in form.terms if not atoms.isdisjoint(t[0]))
    yield from dict.fromkeys((ZERO, Form(form.const), Form(form.const, shared), form))


def _inward(rest: Form, inner: Apply, k: int) -> Iterator[Form]:
    """`rest + k * inner` for a select, minimum or maximum, with summands and factor moved inside."""
    op = inner.op
    condition = inner.args[:1] if op is Op.SELECT else ()
    sides = [to_form(a) for a in (inner.args[1:] if condition else operands(op, inner))]
    if op in DUAL and not all(map(fits, sides)):
        return
    most = _weight(rest) + sum(map(_weight, sides)) + (k != 1)
    for moved in _parts(rest, *sides):
        left = rest - moved
        for by in dict.fromkeys((1, k)):
            # The factor `by` moves inside.
            outer = k // by
            if moved.common % outer:
                continue
            new = [s * by + moved // outer for s in sides]
            if _weight(left) + sum(map(_weight, new)) + (outer != 1) > most:
                continue
            values = [to_expr(f.wrapped()) for f in new]
            if condition:
                made: Expr = Apply(op, (*condition, *values))
            elif all(map(fits, new)):
                made = chain(DUAL[op] if by < 0 else op, values)
            else:
                continue
            yield (left + atom(made) * outer).wrapped()


def _into_quotient(rest: Form, numerator: Form, c: int, k: int) -> Iterator[Form]:
    """`rest + k * (numerator // c)` with multiples moved into the quotient."""
    views = [(rest, numerator, k), (rest, -numerator + (c - 1), -k)]
    for outside, inside, factor in views:
        for moved in _parts(outside, inside):
            if moved.common % factor:
                continue
            whole = inside + moved // factor * c
            if not fits(inside) or not fits(whole):
                continue
            left = outside - moved
            yield (left + atom(apply(Op.DIV, to_expr(whole), c)) * factor).wrapped()
            if fits(-whole) and c & (c - 1):
                yield (left + atom(apply(Op.DIV, to_expr(-whole), -c)) * factor).wrapped()


# Remainders


@functools.lru_cache(maxsize=1 << 16)
def with_remainders(form: Form, exact: bool = False) -> Form:
    """Replaces quotients by remainders while that reduces terms or coefficients.

    `exact` marks a sum over the integers; there, operands that may wrap are not split into summands.
    """
    for changed in _remainders(form, exact):
        if (_weight(changed), changed.count) < (_weight(form), form.count):
            return with_remainders(changed, exact)
    return form


def _weight(form: Form) -> int:
    """Number of additions and multiplications in a sum."""
    return form.count + sum(len(m) - 1 + (abs(k) != 1) for m, k in form.terms)


def _remainders(form: Form, exact: bool) -> Iterator[Form]:
    """The sum with one quotient replaced by a remainder."""
    atoms = dict.fromkeys(a for m, k in form.terms if k for a in m)
    quotients = {a: parts for a in atoms if (parts := quotient_of(a)) is not None}
    for quotient, (numerator, divisor) in quotients.items():
        if (divisor.constant is not None and divisor.const <= 0) or (
            exact and not (fits(numerator) and fits(divisor))
        ):
            continue
        factors = form.parts(quotient)[0]
        nested = [] if divisor.constant is None else _nested(quotients, quotient, divisor.const)
        for n, d in [(numerator, divisor), *nested]:
            remainder = apply(Op.MOD, to_expr(n), to_expr(d))
            # n - d * (n // d) is the remainder.
            nothing = n - atom(remainder) - product(d, atom(quotient))
            for factor in _multiples(factors, d):
                changed = (form + product(nothing, from_terms([factor]))).wrapped()
                if changed.coefficient((quotient,)) == 0:
                    # The remainder raises the errors for which the quotient would have to stay.
                    changed = changed.without((quotient,))
                yield changed


def quotient_of(expr: Expr) -> tuple[Form, Form] | None:
    """Numerator and divisor of a quotient, or of a minimum of quotients by the same number."""
    if not isinstance(expr, Apply) or expr.op not in (Op.DIV, *DUAL):
        return None
    if expr.op is Op.DIV:
        return to_form(expr.args[0]), to_form(expr.args[1])
    args = operands(expr.op, expr)
    quotients = [a for a in args if isinstance(a, Apply) and a.op is Op.DIV]
    divisor = to_form(quotients[0].args[1]) if quotients else ZERO
    if len(quotients) < len(args) or any(q.args[1] != quotients[0].args[1] for q in quotients):
        return None
    if (divisor.constant or 0) <= 0:
        return None
    return to_form(build(expr.op, *(q.args[0] for q in quotients))), divisor


def _nested(quotients: dict[Expr, tuple[Form, Form]], quotient: Expr, c: int) -> Iterator[tuple[Form, Form]]:
    """`x // c` as a quotient of an `x // g` that also occurs in the sum."""
    for other, (numerator, divisor) in quotients.items():
        g = divisor.constant
        if g is not None and numerator == quotients[quotient][0] and 1 < g < c and c % g == 0:
            yield atom(other), Form(c // g)


def _multiples(factors: Form, divisor: Form) -> Iterator[Term]:
    """Products whose coefficients times the divisor are summands of a sum."""
    first, c = divisor.summands[0]
    if any(k == 0 for _, k in divisor.summands) or abs(divisor.constant or 0) == 1:
        return
    for monomial, k in factors.summands:
        left = cofactor(monomial, first)
        if left is not None and k % c == 0:
            times = (left, k // c)
            if (factors - product(divisor, from_terms([times]))).count == factors.count - divisor.count:
                yield times
