"""What is known of the values of expressions: intervals that follow from the ranges of variables.

`sw.ir.ranges` follows the operators one by one. Here a whole sum is looked at, so that terms that depend on
each other (`x - 4 * (x // 4)`, `x * y - 5 * x`) do not lose their connection.
"""

from __future__ import annotations

import functools
from itertools import product

from sw.canonical.linear import Form, Monomial, difference, exactly, to_form, without
from sw.ir.expression import Apply, Const, Expr, Op, Var
from sw.ir.ranges import FULL, Bounds, bounds_of_operator
from sw.ir.types import HIGH, LOW

#: How often a sum is taken apart at an atom before plain intervals have to do.
DEPTH = 2
#: Sums of more terms are not taken apart.
WIDE = 12


def inside(interval: Bounds) -> bool:
    """Whether an interval of whole numbers lies within 32 bits."""
    return interval[0] >= LOW and interval[1] < HIGH


@functools.lru_cache(maxsize=1 << 17)
def value_bounds(expr: Expr) -> Bounds:
    """Smallest and largest value of an expression in core form (`sw.canonical.simplify`), both included."""
    if isinstance(expr, Const):
        return expr.value, expr.value
    if isinstance(expr, Var):
        return expr.type.low, max(expr.type.low, expr.type.high - 1)
    assert isinstance(expr, Apply)
    if expr.op in (Op.ADD, Op.MUL):
        found = span(to_form(expr))
        return found if inside(found) else FULL
    return bounds_of_operator(expr.op, *(value_bounds(a) for a in expr.args))


@functools.lru_cache(maxsize=1 << 17)
def span(form: Form, depth: int = DEPTH) -> Bounds:
    """Smallest and largest value of a sum over the integers, both included: not reduced to 32 bits."""
    low, high = form.const, form.const
    for monomial, coefficient in form.terms:
        a, b = product_bounds(monomial)
        low, high = low + min(coefficient * a, coefficient * b), high + max(coefficient * a, coefficient * b)
    if depth == 0 or len(form.terms) > WIDE:
        return low, high
    for monomial, coefficient in form.terms:
        if len(monomial) == 1 and isinstance(monomial[0], Apply):
            other = _atom_replaced(form, monomial[0], coefficient, depth)
        else:
            other = None
        if other is not None:
            low, high = max(low, other[0]), min(high, other[1])
    for atom in _repeated(form):
        a, b = _grouped(form, atom, depth)
        low, high = max(low, a), min(high, b)
    return low, high


def product_bounds(monomial: Monomial) -> Bounds:
    """Smallest and largest value of a product over the integers."""
    low, high = 1, 1
    for atom in dict.fromkeys(monomial):
        a, b = value_bounds(atom)
        power = monomial.count(atom)
        ends = [a**power, b**power] + ([0] if a < 0 < b else [])
        corners = [x * y for x, y in product((low, high), (min(ends), max(ends)))]
        low, high = min(corners), max(corners)
    return low, high


def _atom_replaced(form: Form, atom: Apply, k: int, depth: int) -> Bounds | None:
    """Bounds of a sum from what its atom is made of."""
    rest = without(form, (atom,))
    if atom.op is Op.DIV:
        numerator, divisor = (to_form(a) for a in atom.args)
        c = divisor.constant
        if c is None or c <= 0 or not inside(span(numerator, depth - 1)):
            return None
        # k * (f // c) is k * (f - r) / c with a rest r of 0 to c - 1.
        whole = exactly(
            c * rest.const + k * numerator.const,
            [*((m, c * d) for m, d in rest.terms), *((m, k * d) for m, d in numerator.terms)],
        )
        low, high = span(whole, depth - 1)
        ends = sorted((0, k * (c - 1)))
        return -((ends[1] - low) // c), (high - ends[0]) // c
    if atom.op in (Op.MIN, Op.MAX, Op.SELECT):
        sides = [to_form(a) for a in atom.args[-2:]]
        if not all(inside(span(s, depth - 1)) for s in sides):
            return None
        parts = [
            span(
                exactly(rest.const + k * s.const, [*rest.terms, *((m, k * d) for m, d in s.terms)]),
                depth - 1,
            )
            for s in sides
        ]
        lows, highs = [p[0] for p in parts], [p[1] for p in parts]
        if atom.op is Op.SELECT:
            return min(lows), max(highs)
        largest = (atom.op is Op.MAX) == (k > 0)
        return (max(lows), max(highs)) if largest else (min(lows), min(highs))
    return None


def _repeated(form: Form) -> list[Expr]:
    """Atoms that occur in several products, and in one of them beside other atoms."""
    if all(len(m) == 1 for m, _ in form.terms):
        return []
    count: dict[Expr, int] = {}
    for monomial, _ in form.terms:
        for atom in dict.fromkeys(monomial):
            count[atom] = count.get(atom, 0) + 1
    return [a for a, n in count.items() if n > 1]


def _grouped(form: Form, atom: Expr, depth: int) -> Bounds:
    """Bounds of a sum written as atom * factor + rest."""
    with_atom = [(m, c) for m, c in form.terms if atom in m]
    rest = Form(form.const, tuple((m, c) for m, c in form.terms if atom not in m))
    factor_terms, constant = [], 0
    for monomial, c in with_atom:
        others = list(monomial)
        others.remove(atom)
        if others:
            factor_terms.append((tuple(others), c))
        else:
            constant += c
    factor = span(exactly(constant, factor_terms), depth - 1)
    values = value_bounds(atom)
    # The sum is linear in the atom for every value of the factor: its extremes lie at ends of the atom.
    corners = [x * y for x, y in product(factor, values)]
    low, high = span(rest, depth - 1)
    best = low + min(corners), high + max(corners)
    ends = [
        span(
            exactly(
                rest.const + end * constant,
                [*rest.terms, *((m, end * c) for m, c in factor_terms)],
            ),
            depth - 1,
        )
        for end in values
    ]
    if any(atom in m for m, _ in factor_terms):
        return best
    return max(best[0], min(e[0] for e in ends)), min(best[1], max(e[1] for e in ends))


def fits(form: Form) -> bool:
    """Whether a sum over the integers lies within 32 bits whatever the values."""
    return inside(span(form))


def form_bounds(form: Form) -> Bounds:
    """Smallest and largest value of a sum modulo 2^32."""
    found = span(form)
    return found if inside(found) else FULL


def at_most(a: Form, b: Form) -> bool:
    """Whether one value is never above another, for sums that fit."""
    return span(difference(a, b))[1] <= 0 and fits(a) and fits(b)


def whole_sum(*parts: tuple[Form, int]) -> Form:
    """The sum of multiples over the integers."""
    return exactly(sum(f.const * k for f, k in parts), [(m, c * k) for f, k in parts for m, c in f.terms])


def sum_fits(*parts: tuple[Form, int]) -> bool:
    """Whether a sum of multiples of values of 32 bits lies within 32 bits."""
    low, high = 0, 0
    for form, k in parts:
        a, b = form_bounds(form)
        low, high = low + min(a * k, b * k), high + max(a * k, b * k)
    if inside((low, high)):
        return True
    return all(fits(f) for f, _ in parts) and fits(whole_sum(*parts))
