"""Linear forms: a constant plus atoms with integer factors.

The user of a form decides what an atom is: an expression here, a symbol or a value elsewhere. Equality and
hash ignore the order of the atoms, which is the order in which they were met.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from hw.semantics import BITS, wrap
from sw.ir.expression import Apply, Const, Expr, Op
from sw.ir.ranges import Bounds, bounds, may_wrap

A = TypeVar("A", bound=Hashable)


@dataclass(frozen=True)
class Linear(Generic[A]):
    """`constant` plus the sum of all atoms times their nonzero factors."""

    factors: Mapping[A, int] = field(default_factory=dict)
    constant: int = 0

    def __hash__(self) -> int:
        return hash((frozenset(self.factors.items()), self.constant))

    def plus(self, other: Linear[A], times: int = 1) -> Linear[A]:
        """Returns self + times * other."""
        found = dict(self.factors)
        for atom, factor in other.factors.items():
            found[atom] = found.get(atom, 0) + times * factor
        return Linear({a: f for a, f in found.items() if f}, self.constant + times * other.constant)

    def __add__(self, other: Linear[A]) -> Linear[A]:
        return self.plus(other)

    def __sub__(self, other: Linear[A]) -> Linear[A]:
        return self.plus(other, -1)

    def __mul__(self, factor: int) -> Linear[A]:
        return Linear[A]().plus(self, factor)

    @property
    def number(self) -> int | None:
        """The value of a form without atoms, else None."""
        return None if self.factors else self.constant

    @property
    def varying(self) -> Linear[A]:
        """The form without its constant."""
        return Linear(self.factors)

    def factor(self, atom: A) -> int:
        """The factor of an atom, 0 if it does not occur."""
        return self.factors.get(atom, 0)

    def wrapped(self) -> Linear[A]:
        """Reduces the constant and all factors modulo 2^32; the value modulo 2^32 stays the same."""
        return Linear({a: w for a, f in self.factors.items() if (w := wrap(f))}, wrap(self.constant))

    def bounds(self, of: Callable[[A], Bounds]) -> Bounds:
        """Smallest and largest value over the integers, both inclusive, for the given bounds of the atoms."""
        low = high = self.constant
        for atom, factor in self.factors.items():
            least, most = of(atom)
            low += factor * (least if factor > 0 else most)
            high += factor * (most if factor > 0 else least)
        return low, high


@functools.lru_cache(maxsize=1 << 16)
def linear(expr: Expr, *, exact: bool = False) -> Linear[Expr]:
    """Converts an integer expression to a linear form; other operators become atoms.

    The form always equals the expression modulo 2^32. An `exact` form equals it over the integers: it keeps
    sums that may wrap as atoms.
    """
    if isinstance(expr, Const):
        return Linear({}, expr.value)
    if isinstance(expr, Apply) and not (exact and may_wrap(expr)):
        if expr.op in (Op.ADD, Op.SUB):
            left, right = (linear(a, exact=exact) for a in expr.args)
            return _fit(left.plus(right, 1 if expr.op is Op.ADD else -1), exact)
        if expr.op is Op.MUL:
            left, right = (linear(a, exact=exact) for a in expr.args)
            for factor, other in ((left, right), (right, left)):
                if factor.number is not None:
                    return _fit(other * factor.number, exact)
        if expr.op is Op.SHL and isinstance(expr.args[1], Const):
            return _fit(linear(expr.args[0], exact=exact) * (1 << expr.args[1].value % BITS), exact)
    return Linear({expr: 1})


def _fit(form: Linear[Expr], exact: bool) -> Linear[Expr]:
    return form if exact else form.wrapped()


def difference_bounds(a: Expr, b: Expr) -> Bounds:
    """Smallest and largest value of a - b over the integers, both inclusive; common terms cancel."""
    return (linear(a, exact=True) - linear(b, exact=True)).bounds(bounds)


#: For each comparison, the test on the smallest and largest difference of its sides that makes it hold.
HOLDS: dict[Op, Callable[[int, int], bool]] = {
    Op.EQ: lambda low, high: low == high == 0,
    Op.NE: lambda low, high: low > 0 or high < 0,
    Op.LE: lambda low, high: high <= 0,
    Op.LT: lambda low, high: high < 0,
    Op.GE: lambda low, high: low >= 0,
    Op.GT: lambda low, high: low > 0,
}


def always_holds(condition: Expr) -> bool:
    """Whether a condition holds for all values of its variables, as far as ranges and common terms show."""
    if bounds(condition) == (1, 1):
        return True
    if not isinstance(condition, Apply) or condition.op not in HOLDS:
        return False
    return HOLDS[condition.op](*difference_bounds(*condition.args))
