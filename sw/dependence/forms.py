"""Symbolic integers: linear sums of symbols, and the possible values of their differences.

A known number is a plain `int`. Arithmetic is modulo 2^32, as in the program, so a sum is a form even if it
may wrap. `bounds` says what a form implies for the number itself, and `differences` what the difference of
two forms implies for two addresses in a buffer (docs/dependence.md, "Symbolic bounds").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hw.semantics import wrap
from sw.ir.types import HIGH, LOW

Bounds = tuple[int, int]
FULL: Bounds = (LOW, HIGH - 1)
#: Addresses in buffers are below this; differences of addresses are distinguished up to this.
PLACES = 1 << 30
_INFINITE = 1 << 62
_LONGEST_NAME = 200
#: Largest nesting of operators in the definition of a symbol.
_DEEPEST = 250


@dataclass(eq=False)
class Symbol:
    """An unknown number that is the same wherever the symbol occurs.

    `low` and `high` are its bounds, both included. A remainder or quotient by a constant also has its origin:
    `kind` is "%" or "//", `of` the form that is divided (it does not wrap), and `by` the divisor.
    """

    number: int
    name: str
    low: int
    high: int
    kind: str = ""
    of: Value = 0
    by: int = 0
    #: Its definition, if it is an operator: the operator with its arguments. `depth` is the nesting depth.
    key: object = None
    depth: int = 0

    def __repr__(self) -> str:
        return self.name


#: Symbols with factors, ordered by symbol number.
Terms = tuple[tuple[Symbol, int], ...]
#: Bounds known in addition to the symbols' own, by the terms of a form.
Facts = Mapping[Terms, Bounds]
NO_FACTS: Facts = {}


@dataclass(frozen=True, slots=True)
class Form:
    """A constant and at least one symbol with a nonzero factor."""

    terms: Terms
    constant: int = 0

    def __str__(self) -> str:
        parts = [f"{s.name}" if f == 1 else f"{f}*{s.name}" for s, f in self.terms]
        if self.constant:
            parts.append(str(self.constant))
        return " + ".join(parts).replace("+ -", "- ")


Value = int | Form


def symbol_form(symbol: Symbol) -> Form:
    """The form that is this symbol."""
    return Form(((symbol, 1),))


def add(a: Value, b: Value, factor: int = 1) -> Value:
    """A + factor·b."""
    if isinstance(b, int):
        if isinstance(a, int):
            return wrap(a + factor * b)
        return Form(a.terms, wrap(a.constant + factor * b))
    if factor == 0:
        return a
    if isinstance(a, int):
        if factor == 1:
            return Form(b.terms, wrap(a + b.constant))
        return make({s: f * factor for s, f in b.terms}, a + factor * b.constant)
    if factor == -1 and a.terms == b.terms:
        return wrap(a.constant - b.constant)
    factors = dict(a.terms)
    for symbol, f in b.terms:
        factors[symbol] = factors.get(symbol, 0) + factor * f
    return make(factors, a.constant + factor * b.constant)


def difference(a: Value, b: Value) -> Value:
    """A - b over the integers: its factors and its constant may be beyond 32 bits."""
    factors, constant = weigh(0, ((a, 1), (b, -1)))
    terms = sorted(((s, f) for s, f in factors.items() if f), key=lambda term: term[0].number)
    return Form(tuple(terms), constant) if terms else constant


def scale(a: Value, factor: int) -> Value:
    """factor·a."""
    return wrap(a * factor) if isinstance(a, int) else add(0, a, factor)


def make(factors: dict[Symbol, int], constant: int) -> Value:
    """The form with these factors, modulo 2^32."""
    terms = [(s, f if LOW <= f < HIGH else wrap(f)) for s, f in factors.items() if f]
    if len(terms) > 1:
        terms.sort(key=lambda term: term[0].number)
    terms = [t for t in terms if t[1]]
    if not LOW <= constant < HIGH:
        constant = wrap(constant)
    return Form(tuple(terms), constant) if terms else constant


def weigh(constant: int, parts: Iterable[tuple[Value, int]]) -> tuple[dict[Symbol, int], int]:
    """Factors and constant, over the integers, of a constant plus weighted numbers."""
    factors: dict[Symbol, int] = {}
    for value, factor in parts:
        if isinstance(value, int):
            constant += factor * value
            continue
        constant += factor * value.constant
        for symbol, f in value.terms:
            factors[symbol] = factors.get(symbol, 0) + factor * f
    return factors, constant


def unwrapped(factors: dict[Symbol, int], constant: int) -> Value | None:
    """The form with these factors; None if one of them exceeds 32 bits."""
    return make(factors, constant) if all(LOW <= f < HIGH for f in (constant, *factors.values())) else None


def substitute(value: Value, symbol: Symbol, by: Value) -> Value:
    """The form with a symbol replaced."""
    if isinstance(value, int):
        return value
    for s, f in value.terms:
        if s is symbol:
            return add(make({t: g for t, g in value.terms if t is not symbol}, value.constant), by, f)
    return value


def terms_of(value: Value) -> Terms:
    """The symbols of a number with their factors."""
    return () if isinstance(value, int) else value.terms


def factor_of(value: Value, symbol: Symbol) -> int:
    """The factor of a symbol in a form."""
    return next((f for s, f in terms_of(value) if s is symbol), 0)


def symbol_bounds(symbol: Symbol, facts: Facts) -> Bounds:
    """Smallest and largest value of a symbol."""
    if facts:
        known = facts.get(((symbol, 1),))
        if known is not None:
            return max(symbol.low, known[0]), min(symbol.high, known[1])
    return symbol.low, symbol.high


def whole(value: Value, facts: Facts = NO_FACTS) -> Bounds:
    """Bounds of a form over the integers, as if nothing wrapped."""
    if isinstance(value, int):
        return value, value
    low = high = value.constant
    terms = value.terms
    for symbol, f in terms:
        a, b = symbol_bounds(symbol, facts) if facts else (symbol.low, symbol.high)
        if f > 0:
            low, high = low + f * a, high + f * b
        else:
            low, high = low + f * b, high + f * a
    if facts and len(terms) > 1:
        # Keys of facts begin with a positive factor.
        negated = terms[0][1] < 0
        known = facts.get(tuple([(s, -f) for s, f in terms]) if negated else terms)
        if known is not None:
            a, b = (-known[1], -known[0]) if negated else known
            low, high = max(low, a + value.constant), min(high, b + value.constant)
    return low, high


def bounds(value: Value, facts: Facts = NO_FACTS) -> Bounds:
    """Bounds of the 32-bit number that a form stands for."""
    if isinstance(value, int):
        return value, value
    low, high = whole(value, facts)
    return (low, high) if low >= LOW and high < HIGH else FULL


def fits(value: Value, facts: Facts = NO_FACTS) -> bool:
    """Whether a form cannot wrap."""
    if isinstance(value, int):
        return True
    low, high = whole(value, facts)
    return low >= LOW and high < HIGH


def differences(a: Value, b: Value, facts: Facts = NO_FACTS) -> tuple[Bounds, ...]:
    """The possible values of a - b for two addresses within a buffer, as closed intervals.

    Both addresses are in [0, 2^30], so their difference is the only number of that size that equals the
    difference of the forms modulo 2^32. Remainders by one divisor, of forms that differ by a constant, differ
    by one of two numbers; quotients likewise. Without knowledge, the result is one unbounded interval.
    """
    rest = a if b == 0 else add(a, b, -1)
    if isinstance(rest, int):
        return ((rest, rest),) if -PLACES <= rest <= PLACES else _UNKNOWN
    found = _paired(rest, facts) if len(rest.terms) > 1 else (whole(rest, facts),)
    if any(low < -PLACES or high > PLACES for low, high in found):
        return _UNKNOWN
    return found


_UNKNOWN: tuple[Bounds, ...] = ((-_INFINITE, _INFINITE),)


def _paired(rest: Form, facts: Facts) -> tuple[Bounds, ...]:
    """Bounds of a form, with its first pair of related remainders or quotients combined."""
    for i, (s, f) in enumerate(rest.terms):
        if not s.kind:
            continue
        for j in range(i + 1, len(rest.terms)):
            t, g = rest.terms[j]
            if g != -f or t.kind != s.kind or t.by != s.by:
                continue
            apart = add(s.of, t.of, -1)
            if not isinstance(apart, int):
                continue
            others = tuple(term for k, term in enumerate(rest.terms) if k not in (i, j))
            base = whole(Form(others, rest.constant), facts) if others else (rest.constant, rest.constant)
            # s - t has two possible values: floor and ceiling of a quotient, or the remainder and the
            # remainder minus the divisor.
            if s.kind == "//":
                choices = sorted({apart // s.by, -(-apart // s.by)})
            else:
                choices = sorted({apart % s.by, apart % s.by - s.by} if apart % s.by else {0})
            return tuple((base[0] + f * c, base[1] + f * c) for c in choices)
    return (whole(rest, facts),)


def _forms(key: object) -> list[Form]:
    """The forms in the key of a symbol."""
    return [part for part in key if isinstance(part, Form)] if isinstance(key, tuple) else []


@dataclass
class Symbols:
    """Makes symbols; the same operator with the same arguments gives the same symbol."""

    made: dict[object, Symbol] = field(default_factory=dict)
    count: int = 0

    def fresh(self, name: str, low: int = LOW, high: int = HIGH - 1) -> Form:
        """An unknown number within bounds."""
        self.count += 1
        return symbol_form(Symbol(self.count, name, low, max(low, high)))

    def named(
        self, key: object, name: str, limits: Bounds, kind: str = "", of: Value = 0, by: int = 0
    ) -> Form:
        """The symbol of a key, made on first use."""
        found = self.made.get(key)
        if found is None:
            self.count += 1
            # Repeated squaring would give a name of 2^n letters.
            short = name if len(name) <= _LONGEST_NAME else f"value{self.count}"
            depth = 1 + max((s.depth for part in _forms(key) for s, _ in part.terms), default=0)
            # Others traverse the whole definition, so a symbol nested deeper keeps only its bounds.
            if depth <= _DEEPEST:
                found = Symbol(self.count, short, *limits, kind, of, by, key, depth)
            else:
                found = Symbol(self.count, short, *limits)
            self.made[key] = found
        return symbol_form(found)
