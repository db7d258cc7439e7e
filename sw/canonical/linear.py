"""Sums of products: the normal form of integer arithmetic, a polynomial over opaque atoms modulo 2^32.

Addition and multiplication commute, associate and distribute whatever the values are (the ring laws of
`sw.canonical.rules`), so that a polynomial does not depend on the order or grouping in which it was written.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hw.semantics import wrap
from sw.canonical.rank import Key, key, may_raise
from sw.ir.expression import Apply, Const, Expr, Op, const

#: Atoms of a product, sorted by `key`; an atom is no constant, sum or product (but see `TERMS`).
Monomial = tuple[Expr, ...]
#: A product of two sums is multiplied out up to this many terms; beyond, both stay as factors.
TERMS = 64


@dataclass(frozen=True)
class Form:
    """A constant and products with coefficients, sorted.

    A coefficient is 0 only where the product must stay because it can raise an error.
    """

    const: int = 0
    terms: tuple[tuple[Monomial, int], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.const, self.terms)))

    def __hash__(self) -> int:
        return self._hash  # type: ignore[attr-defined,no-any-return]

    @property
    def constant(self) -> int | None:
        """The value where it is a constant."""
        return None if self.terms else self.const

    @property
    def count(self) -> int:
        """How many summands it has."""
        return len(self.terms) + (self.const != 0)

    @property
    def single(self) -> tuple[Expr, int] | None:
        """The atom and its coefficient where it is a multiple of one atom and nothing else."""
        if self.const or len(self.terms) != 1 or len(self.terms[0][0]) != 1:
            return None
        return self.terms[0][0][0], self.terms[0][1]

    def coefficient(self, monomial: Monomial) -> int:
        """The coefficient of a product; 0 where it does not occur."""
        return next((c for m, c in self.terms if m == monomial), 0)

    def content(self) -> int:
        """The greatest common divisor of the coefficients of products; 0 for a constant."""
        return math.gcd(*(c for _, c in self.terms))

    def order(self) -> tuple[object, ...]:
        """What forms are sorted by."""
        return tuple((monomial_key(m), c) for m, c in self.terms), self.const


ZERO = Form()


@functools.lru_cache(maxsize=1 << 16)
def monomial_key(monomial: Monomial) -> tuple[int, int, int, tuple[Key, ...]]:
    """What the products of a sum are sorted by: rank, opaque ones last, degree, atoms."""
    keys = tuple(key(a) for a in monomial)
    return max(k[0] for k in keys), max(k[1] for k in keys), len(keys), keys


def _same(value: int) -> int:
    return value


def collect(constant: int, terms: Iterable[tuple[Monomial, int]], fit: Callable[[int], int] = wrap) -> Form:
    """A form from products in any order; `fit` brings coefficients to 32 bits."""
    found: dict[Monomial, int] = {}
    for monomial, coefficient in terms:
        found[monomial] = found.get(monomial, 0) + coefficient
    kept = {m: fit(c) for m, c in found.items()}
    zeros = [m for m, c in kept.items() if c == 0]
    for m in zeros:
        del kept[m]
    errors = {a for m in zeros for a in m if may_raise(a)}
    if errors:
        errors -= {a for m in kept for a in m}
        kept |= {(a,): 0 for a in errors}
    terms = kept.items() if len(kept) < 2 else sorted(kept.items(), key=lambda t: monomial_key(t[0]))
    return Form(fit(constant), tuple(terms))


def exactly(constant: int, terms: Iterable[tuple[Monomial, int]]) -> Form:
    """A form whose coefficients are whole numbers, not reduced to 32 bits."""
    return collect(constant, terms, _same)


def add(*forms: Form) -> Form:
    """The sum modulo 2^32."""
    if len(forms) == 2:
        for one, other in (forms, forms[::-1]):
            if not one.terms:
                return Form(wrap(one.const + other.const), other.terms) if one.const else other
    return collect(sum(f.const for f in forms), (t for f in forms for t in f.terms))


def scale(form: Form, factor: int) -> Form:
    """A multiple modulo 2^32."""
    if factor == 1:
        return form
    return collect(form.const * factor, ((m, c * factor) for m, c in form.terms))


def negated(form: Form) -> Form:
    """The negative over the integers."""
    return Form(-form.const, tuple((m, -c) for m, c in form.terms))


def add_constant(form: Form, value: int) -> Form:
    """The sum with a constant over the integers."""
    return Form(form.const + value, form.terms)


def subtract(a: Form, b: Form) -> Form:
    """The difference modulo 2^32."""
    return add(a, scale(b, -1))


def difference(a: Form, b: Form) -> Form:
    """The difference over the integers."""
    return exactly(a.const - b.const, [*a.terms, *((m, -c) for m, c in b.terms)])


def multiply(a: Form, b: Form) -> Form:
    """The product modulo 2^32; both stay as factors if it would have too many terms."""
    if a.constant is not None:
        return scale(b, a.constant)
    if b.constant is not None:
        return scale(a, b.constant)
    if min(a.count, b.count) > 1 and a.count * b.count > TERMS:
        return _opaque_product(a, b)
    left = [*a.terms, ((), a.const)] if a.const else list(a.terms)
    right = [*b.terms, ((), b.const)] if b.const else list(b.terms)
    products = [(tuple(sorted((*m, *n), key=key)), c * d) for m, c in left for n, d in right]
    total = sum(c for m, c in products if not m)
    return collect(total, [t for t in products if t[0]])


def _opaque_product(a: Form, b: Form) -> Form:
    """Two sums as factors of one product."""
    factors = [to_expr(f) for f in (a, b)]
    return Form(0, ((tuple(sorted(factors, key=key)), 1),))


def divide(form: Form, divisor: int) -> Form:
    """Every coefficient divided by a number that divides it."""
    return Form(form.const // divisor, tuple((m, c // divisor) for m, c in form.terms))


def atom(expr: Expr) -> Form:
    """An expression as one summand."""
    return Form(0, (((expr,), 1),))


def number(value: int) -> Form:
    """A constant modulo 2^32."""
    return Form(wrap(value))


def without(form: Form, monomial: Monomial) -> Form:
    """The other summands."""
    return Form(form.const, tuple(t for t in form.terms if t[0] != monomial))


@functools.lru_cache(maxsize=1 << 16)
def to_expr(form: Form) -> Expr:
    """The form as an expression, grouped to the left in its order: what `to_form` reads."""
    found: Expr | None = const(form.const) if form.const or not form.terms else None
    for monomial, coefficient in form.terms:
        factors = [*monomial] if coefficient == 1 else [const(coefficient), *monomial]
        product = factors[0]
        for factor in factors[1:]:
            product = Apply(Op.MUL, (product, factor))
        found = product if found is None else Apply(Op.ADD, (found, product))
    assert found is not None
    return found


@functools.lru_cache(maxsize=1 << 16)
def to_form(expr: Expr) -> Form:
    """The form of an expression that `to_expr` has made, or of one that is no sum or product."""
    if isinstance(expr, Const):
        return Form(expr.value)
    terms: list[tuple[Monomial, int]] = []
    total, todo = 0, [expr]
    while todo:
        node = todo.pop()
        if isinstance(node, Const):
            total += node.value
        elif isinstance(node, Apply) and node.op is Op.ADD:
            todo += node.args
        else:
            factors: list[Expr] = []
            while isinstance(node, Apply) and node.op is Op.MUL:
                factors.append(node.args[1])
                node = node.args[0]
            factors.append(node)
            numbers = [f.value for f in factors if isinstance(f, Const)]
            monomial = tuple(sorted((f for f in factors if not isinstance(f, Const)), key=key))
            terms.append((monomial, math.prod(numbers)))
    return collect(total, terms)
