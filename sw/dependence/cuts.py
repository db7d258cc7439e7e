"""Splits of cases: by remainder, by the smaller of two integers, and by quotient."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

from sw.dependence.cases import Case, not_negative, sign, within
from sw.dependence.conditions import Condition
from sw.dependence.forms import (
    Facts,
    Form,
    Symbol,
    Value,
    add,
    difference,
    factor_of,
    fits,
    make,
    scale,
    substitute,
    symbol_bounds,
    terms_of,
)
from sw.dependence.instance import Instance
from sw.dependence.scalars import Evaluator
from sw.ir.expression import Op
from sw.ir.types import HIGH

#: Largest divisor for which cases are split by remainder.
MOST_DIVISOR = 16


def by_remainder(evaluator: Evaluator, case: Case, parts: Iterable[Value | Condition]) -> list[Case] | None:
    """A case split by the remainder of a number on which undecided remainders depend."""
    for part in parts:
        for term in _symbols(part):
            if not term.kind or term.by > MOST_DIVISOR or isinstance(term.of, int):
                continue
            for symbol, factor in term.of.terms:
                by = term.by // math.gcd(term.by, factor)
                if by > 1 and symbol.key is None and _bounded(symbol, case.facts):
                    made = [_with_rest(evaluator, case, symbol, by, rest) for rest in range(by)]
                    return [c for c in made if c is not None]
    return None


def by_choice(evaluator: Evaluator, case: Case, parts: Iterable[Value | Condition]) -> list[Case] | None:
    """A case split by which of two numbers is the minimum or maximum on which something undecided depends."""
    choices = (_choice(symbol, case.facts) for part in parts for symbol in _symbols(part))
    choice = next((found for found in choices if found is not None), None)
    if choice is None:
        return None
    assert isinstance(choice.key, tuple)
    op, a, b = choice.key
    apart, found = difference(a, b), []
    if op is Op.MIN:
        a, b = b, a
    for form, value in ((apart, a), (difference(-1, apart), b)):
        facts = not_negative(case.facts, form)
        known = dataclasses.replace(case, facts=facts or {})
        made = None if facts is None else _replaced(evaluator, known, choice, value)
        made = None if made is None else settled(evaluator, made, case.facts)
        found += [] if made is None else [made]
    return found


def settled(evaluator: Evaluator, case: Case, before: Facts) -> Case | None:
    """The case with single-valued numbers replaced; None if that contradicts what is known.

    Those that already had one value `before` have been replaced.
    """
    found: Case | None = case
    for terms, (low, high) in case.facts.items():
        if low != high or len(terms) > 1 or before.get(terms) == (low, high):
            continue
        if terms[0][0].key is None and found is not None:
            found = _replaced(evaluator, found, terms[0][0], low)
    return found


def divided(evaluator: Evaluator, case: Case, symbol: Symbol, by: int, start: int) -> Case | None:
    """The case with symbol = by * q + r + start, for a new symbol q and a remainder r less than `by`."""
    low, high = (end - start for end in symbol_bounds(symbol, case.facts))
    quotient = evaluator.symbols.fresh("q", low // by, high // by)
    rest = evaluator.symbols.fresh("r", 0, by - 1)
    return _replaced(evaluator, case, symbol, add(add(scale(quotient, by), rest), start))


def _with_rest(evaluator: Evaluator, case: Case, symbol: Symbol, by: int, rest: int) -> Case | None:
    """The case with symbol = by * q + remainder, for a new symbol q."""
    low, high = symbol_bounds(symbol, case.facts)
    first, last = -((rest - low) // by), (high - rest) // by
    if first > last:
        return None
    quotient = evaluator.symbols.fresh("q", first, last) if first < last else first
    return _replaced(evaluator, case, symbol, add(scale(quotient, by), rest))


def _replaced(evaluator: Evaluator, case: Case, symbol: Symbol, value: Value) -> Case | None:
    """The case with a symbol replaced everywhere; None if that contradicts what is known."""
    instance = Instance(evaluator, {}, {symbol: value})
    facts: Facts | None = {t: b for t, b in case.facts.items() if t[-1][0].number < instance.first}
    for terms, (low, high) in [*case.facts.items(), (((symbol, 1),), (symbol.low, symbol.high))]:
        if terms[-1][0].number < instance.first:
            continue
        form = instance.value(Form(terms))
        facts = within(facts, form, low, high)
    if facts is None:
        return None
    if isinstance(value, int):
        # The symbol still occurs in the text.
        facts = {**facts, ((symbol, 1),): (value, value)}
    instance = Instance(evaluator, facts, {symbol: value})
    forms = case.point, case.own, case.numbers, case.kept
    point, own, numbers, kept = (tuple(map(instance.value, v)) for v in forms)
    return Case(facts, point, own, numbers, case.read_since, kept)


def _symbols(part: Value | Condition) -> list[Symbol]:
    """The symbols of a number or a condition."""
    if isinstance(part, Condition):
        own = [] if part.atom is None else [s for s, _ in part.atom.terms]
        return own + [s for inner in part.parts for s in _symbols(inner)]
    return [s for s, _ in terms_of(part)]


def _parts(symbol: Symbol) -> Iterable[Value | Condition]:
    """The arguments of the operator whose result a symbol is."""
    if isinstance(symbol.key, tuple):
        yield from (part for part in symbol.key[1:] if isinstance(part, int | Form | Condition))


def mentions(part: Value | Condition, symbol: Symbol) -> bool:
    """Whether a symbol occurs in a number or a condition, also in the arguments of operators."""
    waiting, seen = _symbols(part), set[Symbol]()
    while waiting:
        found = waiting.pop()
        if found is symbol:
            return True
        # A symbol's operands have smaller numbers than the symbol, and may be shared by many symbols.
        if found.number > symbol.number and found not in seen:
            seen.add(found)
            waiting += [inner for p in _parts(found) for inner in _symbols(p)]
    return False


def moduli(value: Value, symbol: Symbol) -> int | None:
    """The periods of a number in steps of a symbol; None if it has none."""
    period = 1
    for s in _symbols(value):
        if s is symbol:
            return None
        if s.kind == "%" and isinstance(s.of, Form):
            if moduli(substitute(s.of, symbol, 0), symbol) is None:
                return None
            period = math.lcm(period, s.by // math.gcd(s.by, factor_of(s.of, symbol)))
        elif any(mentions(p, symbol) for p in _parts(s)):
            return None
    return period


def _choice(symbol: Symbol, facts: Facts, without: set[Symbol] | None = None) -> Symbol | None:
    """A minimum or maximum of two plain sums on which a symbol depends.

    `without` are symbols that do not depend on any.
    """
    without = set() if without is None else without
    if symbol in without:
        return None
    without.add(symbol)
    for part in _parts(symbol):
        for inner in _symbols(part):
            found = _choice(inner, facts, without)
            if found is not None:
                return found
    if isinstance(symbol.key, tuple) and symbol.key[0] in (Op.MIN, Op.MAX):
        _, a, b = symbol.key
        plain = all(s.key is None for s in _symbols(a) + _symbols(b))
        if plain and fits(a, facts) and fits(b, facts) and sign(difference(a, b), facts) is None:
            return symbol
    return None


def _bounded(symbol: Symbol, facts: Facts) -> bool:
    low, high = symbol_bounds(symbol, facts)
    return high - low < HIGH


def uneven(base: Value, factor: int, facts: Facts) -> tuple[Symbol, int, int] | None:
    """A symbol of a number to be divided so that its remainder is below the factor: divisor and start."""
    if isinstance(base, int):
        return None
    for symbol, f in base.terms:
        if f % factor and symbol.key is None and symbol.name != "j" and _bounded(symbol, facts):
            low, high = symbol_bounds(symbol, facts)
            by = abs(factor) // math.gcd(factor, f)
            start = -f * base.constant % by if abs(f) == 1 else 0
            if by > 1 and high - low >= by:
                return symbol, by, start
    return None


def quotient(base: Value, factor: int) -> Value:
    """The multiple of a factor in a number, divided by it."""
    if isinstance(base, int):
        return base // factor
    return make({s: f // factor for s, f in base.terms if f % factor == 0}, base.constant // factor)
