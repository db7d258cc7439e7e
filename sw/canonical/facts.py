"""Known ranges of expressions, derived from the ranges of their variables.

`sw.ir.ranges` goes operator by operator. This module looks at whole sums, so it does not lose the relation
between dependent terms (`x - 4 * (x // 4)`, `x * y - 5 * x`).
"""

from __future__ import annotations

import functools
from itertools import product

from sw.canonical.linear import Form, Monomial, to_form
from sw.ir.expression import Apply, Const, Expr, Op, Var
from sw.ir.ranges import FULL, Bounds, bounds_of_operator
from sw.ir.types import HIGH, LOW

#: Number of times a sum is split at an atom before plain interval arithmetic takes over.
DEPTH = 2
#: Longer sums are not split.
WIDE = 12


def inside(interval: Bounds) -> bool:
    """Whether an integer interval fits in 32 bits."""
    return interval[0] >= LOW and interval[1] < HIGH


@functools.lru_cache(maxsize=1 << 17)
def value_bounds(expr: Expr) -> Bounds:
    """Smallest and largest value of a core-form expression (`sw.canonical.simplify`), both inclusive."""
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
    """Smallest and largest value of a sum over the integers, both inclusive, not reduced to 32 bits."""
    low, high = form.const, form.const
    for monomial, coefficient in form.terms:
        a, b = product_bounds(monomial)
        low, high = low + min(coefficient * a, coefficient * b), high + max(coefficient * a, coefficient * b)
    if depth == 0 or len(form.terms) > WIDE:
        return low, high
    found = [_atom_replaced(form, m[0], k, depth) for m, k in form.terms if len(m) == 1]
    found += [_grouped(form, atom, depth) for atom in _repeated(form)]
    for a, b in filter(None, found):
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


def _atom_replaced(form: Form, atom: Expr, k: int, depth: int) -> Bounds | None:
    """Bounds of a sum from the definition of one of its atoms."""
    rest = form.without((atom,))
    if not isinstance(atom, Apply) or atom.op not in (Op.DIV, Op.MIN, Op.MAX, Op.SELECT):
        return None
    sides = [to_form(a) for a in atom.args[-2:]]
    if atom.op is Op.DIV:
        numerator, c = sides[0], sides[1].constant
        if c is None or c <= 0 or not inside(span(numerator, depth - 1)):
            return None
        # k * (f // c) is k * (f - r) / c with a remainder r from 0 to c - 1.
        low, high = span(rest * c + numerator * k, depth - 1)
        ends = sorted((0, k * (c - 1)))
        return -((ends[1] - low) // c), (high - ends[0]) // c
    if not all(inside(span(s, depth - 1)) for s in sides):
        return None
    lows, highs = zip(*(span(rest + s * k, depth - 1) for s in sides), strict=True)
    if atom.op is Op.SELECT:
        return min(lows), max(highs)
    choose = max if (atom.op is Op.MAX) == (k > 0) else min
    return choose(lows), choose(highs)


def _repeated(form: Form) -> list[Expr]:
    """Atoms that occur in several products, in at least one of them next to other atoms."""
    if all(len(m) == 1 for m, _ in form.terms):
        return []
    count: dict[Expr, int] = {}
    for monomial, _ in form.terms:
        for atom in dict.fromkeys(monomial):
            count[atom] = count.get(atom, 0) + 1
    return [a for a, n in count.items() if n > 1]


def _grouped(form: Form, atom: Expr, depth: int) -> Bounds:
    """Bounds of a sum written as atom * factor + rest."""
    factor, rest = form.parts(atom)
    values = value_bounds(atom)
    corners = [x * y for x, y in product(span(factor, depth - 1), values)]
    low, high = span(rest, depth - 1)
    low, high = low + min(corners), high + max(corners)
    if any(atom in m for m, _ in factor.terms):
        return low, high
    # The sum is linear in the atom for each value of the factor, so its extremes are at the atom's ends.
    lows, highs = zip(*(span(rest + factor * end, depth - 1) for end in values), strict=True)
    return max(low, min(lows)), min(high, max(highs))


def fits(form: Form) -> bool:
    """Whether a sum over the integers fits in 32 bits for all values."""
    return inside(span(form))


def form_bounds(form: Form) -> Bounds:
    """Smallest and largest value of a sum modulo 2^32."""
    found = span(form)
    return found if inside(found) else FULL


def at_most(a: Form, b: Form) -> bool:
    """Whether a <= b always, for sums that fit in 32 bits."""
    return span(a - b)[1] <= 0 and fits(a) and fits(b)
