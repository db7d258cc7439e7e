"""Polynomials: the normal form of integer arithmetic, over opaque atoms modulo 2^32.

Addition and multiplication commute, associate and distribute for all values (the ring laws of
`sw.canonical.rules`), so a polynomial does not depend on how the expression was ordered or grouped.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hw.semantics import wrap
from sw.canonical.operands import chain, operands
from sw.canonical.rank import Key, key
from sw.ir.expression import Apply, Const, Expr, Op, const
from sw.ir.ranges import may_trap

#: Atoms of a product, sorted by `key`. An atom is not a constant, sum or product (except beyond `TERMS`).
Monomial = tuple[Expr, ...]
#: A product and its coefficient.
Term = tuple[Monomial, int]
#: Most terms to which a product of two sums is multiplied out; beyond, both stay as factors.
TERMS = 64


@dataclass(frozen=True)
class Form:
    """A polynomial: a constant and sorted products with coefficients. Its operators are those of integers.

    A coefficient is 0 only if the product must stay because it can raise an error.
    """

    const: int = 0
    terms: tuple[Term, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.const, self.terms)))

    def __hash__(self) -> int:
        return self._hash  # type: ignore[attr-defined,no-any-return]

    def __add__(self, other: Form | int) -> Form:
        if isinstance(other, int):
            return Form(self.const + other, self.terms)
        if not self.terms or not other.terms:
            return Form(self.const + other.const, self.terms or other.terms)
        return collect(self.const + other.const, (*self.terms, *other.terms))

    def __neg__(self) -> Form:
        return Form(-self.const, tuple((m, -c) for m, c in self.terms))

    def __sub__(self, other: Form) -> Form:
        return self + -other

    def __mul__(self, factor: int) -> Form:
        if factor == 1:
            return self
        terms = [(m, c * factor) for m, c in self.terms]
        return Form(self.const * factor, tuple(terms)) if factor else collect(0, terms)

    def __floordiv__(self, divisor: int) -> Form:
        """Divides by a number that divides every coefficient; the constant is rounded down."""
        return Form(self.const // divisor, tuple((m, c // divisor) for m, c in self.terms))

    def wrapped(self) -> Form:
        """Reduces the constant and all coefficients modulo 2^32; the value modulo 2^32 stays the same."""
        if all(wrap(c) == c for _, c in self.terms):
            return Form(wrap(self.const), self.terms)
        return collect(wrap(self.const), ((m, wrap(c)) for m, c in self.terms))

    @property
    def constant(self) -> int | None:
        """The value if it is constant, else None."""
        return None if self.terms else self.const

    @property
    def varying(self) -> Form:
        """The form without its constant."""
        return Form(0, self.terms)

    @property
    def count(self) -> int:
        """Number of summands."""
        return len(self.terms) + (self.const != 0)

    @property
    def single(self) -> tuple[Expr, int] | None:
        """The atom and its coefficient, if the form is a multiple of a single atom; else None."""
        if self.const or len(self.terms) != 1 or len(self.terms[0][0]) != 1:
            return None
        return self.terms[0][0][0], self.terms[0][1]

    def coefficient(self, monomial: Monomial) -> int:
        """The coefficient of a product, 0 if it does not occur."""
        return next((c for m, c in self.terms if m == monomial), 0)

    def content(self) -> int:
        """The greatest common divisor of the products' coefficients; 0 for a constant."""
        return math.gcd(*(c for _, c in self.terms))

    @property
    def common(self) -> int:
        """The greatest common divisor of the constant and all coefficients."""
        return math.gcd(self.const, self.content())

    @property
    def summands(self) -> tuple[Term, ...]:
        """All summands, with the constant as a multiple of the empty product."""
        return (*self.terms, ((), self.const)) if self.const or not self.terms else self.terms

    def without(self, monomial: Monomial) -> Form:
        """The form without one product."""
        return Form(self.const, tuple(t for t in self.terms if t[0] != monomial))

    def applied(self, *ops: Op) -> Iterator[tuple[Apply, int, Form]]:
        """Summands that are multiples of these operators: operator, coefficient, remaining summands."""
        for monomial, coefficient in self.terms:
            first = monomial[0]
            if coefficient and len(monomial) == 1 and isinstance(first, Apply) and first.op in ops:
                yield first, coefficient, self.without(monomial)

    def multiples(self, divisor: int) -> tuple[Form, Form]:
        """The products whose coefficients `divisor` divides, divided by it, and the rest."""
        whole = tuple((m, c // divisor) for m, c in self.terms if c and c % divisor == 0)
        return Form(0, whole), Form(self.const, tuple(t for t in self.terms if not t[1] or t[1] % divisor))

    def parts(self, atom: Expr) -> tuple[Form, Form]:
        """The products that contain an atom, divided by it, and the rest."""
        inside = Form(0, tuple(t for t in self.terms if atom in t[0]))
        outside = Form(self.const, tuple(t for t in self.terms if atom not in t[0]))
        return from_terms((less(m, atom), c) for m, c in inside.terms), outside

    def order(self) -> tuple[object, ...]:
        """Sort key of forms."""
        return tuple((monomial_key(m), c) for m, c in self.terms), self.const


ZERO = Form()


@functools.lru_cache(maxsize=1 << 16)
def monomial_key(monomial: Monomial) -> tuple[int, int, int, tuple[Key, ...]]:
    """Sort key of products in a sum: rank, opaque ones last, degree, atoms."""
    keys = tuple(key(a) for a in monomial)
    return max(k[0] for k in keys), max(k[1] for k in keys), len(keys), keys


def collect(constant: int, terms: Iterable[Term]) -> Form:
    """Collects products in any order into a form."""
    found: dict[Monomial, int] = {}
    for monomial, coefficient in terms:
        found[monomial] = found.get(monomial, 0) + coefficient
    kept = {m: c for m, c in found.items() if c}
    if len(kept) < len(found):
        errors = {a for m in found.keys() - kept.keys() for a in m if may_trap(a)}
        kept |= {(a,): 0 for a in errors - {a for m in kept for a in m}}
    return Form(constant, tuple(sorted(kept.items(), key=lambda t: monomial_key(t[0]))))


def from_terms(terms: Iterable[Term]) -> Form:
    """Collects products in any order into a form; the empty product is the constant."""
    found = list(terms)
    return collect(sum(c for m, c in found if not m), (t for t in found if t[0]))


def lowest(forms: Sequence[Form]) -> Form:
    """The smallest coefficient of every product among several sums, and the smallest constant."""
    monomials = dict.fromkeys(m for f in forms for m, _ in f.terms)
    return collect(
        min(f.const for f in forms),
        ((m, k) for m in monomials if (k := min(f.coefficient(m) for f in forms))),
    )


def less(monomial: Monomial, factor: Expr) -> Monomial:
    """A product without one factor."""
    left = list(monomial)
    left.remove(factor)
    return tuple(left)


def cofactor(monomial: Monomial, factors: Monomial) -> Monomial | None:
    """Divides a product by factors, with multiplicity; None if one is missing."""
    for factor in factors:
        if factor not in monomial:
            return None
        monomial = less(monomial, factor)
    return monomial


def multiply(a: Form, b: Form) -> Form:
    """The product modulo 2^32; both stay as factors if it would have too many terms."""
    if min(a.count, b.count) > 1 and a.count * b.count > TERMS:
        return Form(0, ((tuple(sorted(map(to_expr, (a, b)), key=key)), 1),))
    return product(a, b).wrapped()


def product(a: Form, b: Form) -> Form:
    """The product over the integers."""
    return from_terms((tuple(sorted((*m, *n), key=key)), c * d) for m, c in a.summands for n, d in b.summands)


def atom(expr: Expr) -> Form:
    """An expression as a form with one summand."""
    return Form(0, (((expr,), 1),))


@functools.lru_cache(maxsize=1 << 16)
def to_expr(form: Form) -> Expr:
    """Writes the form as an expression, grouped to the left in its order, as `to_form` reads it."""
    found: Expr | None = const(form.const) if form.const or not form.terms else None
    for monomial, coefficient in form.terms:
        factors = [*monomial] if coefficient == 1 else [const(coefficient), *monomial]
        made = chain(Op.MUL, factors)
        found = made if found is None else Apply(Op.ADD, (found, made))
    assert found is not None
    return found


@functools.lru_cache(maxsize=1 << 16)
def to_form(expr: Expr) -> Form:
    """Reads an expression written by `to_expr`, or one that is no sum or product."""
    terms: list[Term] = []
    for summand in operands(Op.ADD, expr):
        factors = operands(Op.MUL, summand)
        monomial = tuple(sorted((f for f in factors if not isinstance(f, Const)), key=key))
        terms.append((monomial, math.prod(f.value for f in factors if isinstance(f, Const))))
    return from_terms(terms).wrapped()
