"""Case distinctions during a walk: facts about an element, iterations and integers, and what follows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from sw.dependence.conditions import Condition, assume
from sw.dependence.forms import (
    PLACES,
    Bounds,
    Facts,
    Form,
    Terms,
    Value,
    difference,
    differences,
    symbol_bounds,
    whole,
)
from sw.ir.types import HIGH

#: If one number is a difference of addresses and the other is smaller than this, equality modulo 2^32 implies
#: equality.
UNIQUE = 3 * PLACES
#: Larger than any difference of addresses.
FAR = 1 << 34
#: Most cases of the same element at the same position that are kept separate.
_APART = 16


@dataclass(frozen=True, eq=False, slots=True)
class Case:
    """What is known during a walk.

    `point` is the element, `own` are the iterations of the access at which the walk began, `numbers` those of
    the loops at the current position, outermost first, and `kept` other numbers needed later. `read_since`:
    something after the current position reads the element.
    """

    facts: Facts
    point: tuple[Value, ...]
    own: tuple[Value, ...]
    numbers: tuple[Value, ...]
    read_since: bool = False
    kept: tuple[Value, ...] = ()


def sign(form: Value, facts: Facts) -> bool | None:
    """Whether a difference of addresses is certainly non-negative, certainly negative, or neither."""
    if isinstance(form, int):
        return form >= 0
    found = differences(form, 0, facts)
    if all(low >= 0 for low, _ in found):
        return True
    return False if all(high < 0 for _, high in found) else None


def not_negative(facts: Facts | None, *forms: Value) -> Facts | None:
    """The facts, plus that some differences of addresses are non-negative; None if contradictory."""
    for form in forms:
        facts = None if facts is None else _not_negative(facts, form)
    return facts


def _not_negative(facts: Facts, form: Value) -> Facts | None:
    if isinstance(form, int):
        return facts if form >= 0 else None
    low, high = whole(form, facts)
    if low >= 0 or low <= -UNIQUE or high >= UNIQUE:
        return facts
    if high < 0:
        return None
    grown: dict[Terms, Bounds] = dict(facts)
    if not bound_symbols(difference(0, form), grown):
        return None
    if len(form.terms) > 1:
        _at_least(grown, form.terms, -form.constant)
        for by in {abs(f) for _, f in form.terms} - {1}:
            multiples = tuple((s, f // by) for s, f in form.terms if f % by == 0)
            if len(multiples) > 1:
                # An upper bound of the remaining terms.
                rest = tuple((s, f) for s, f in form.terms if f % by)
                most = whole(Form(rest, form.constant), grown)[1] if rest else form.constant
                _at_least(grown, multiples, -(most // by))
    return grown


def _at_least(facts: dict[Terms, Bounds], terms: Terms, least: int) -> None:
    """Records that a sum of several symbols is at least a number."""
    low, high = least, FAR
    if terms[0][1] < 0:
        terms, low, high = tuple((s, -f) for s, f in terms), -FAR, -least
    before = facts.get(terms, (-FAR, FAR))
    facts[terms] = max(before[0], low), min(before[1], high)


def consistent(facts: Facts) -> Facts | None:
    """The facts, with what they imply together for each symbol; None if they contradict each other."""
    known: dict[Terms, Bounds] = dict(facts)
    sums = [terms for terms in facts if len(terms) > 1]
    for _ in range(4):
        before = tuple(known.values())
        for terms in sums:
            low, high = known[terms]
            for form in (Form(terms, -high), Form(tuple((s, -f) for s, f in terms), low)):
                if not bound_symbols(form, known):
                    return None
        if before == tuple(known.values()):
            break
    return known


def bound_symbols(form: Value, known: dict[Terms, Bounds]) -> bool:
    """Bounds every symbol of a sum by the others, given that the sum is at most 0; False if impossible."""
    if isinstance(form, int):
        return form <= 0
    if whole(form, known)[0] > 0:
        return False
    # Term by term: bounds on sums of symbols do not show how much room one symbol leaves the others.
    least = form.constant
    for symbol, f in form.terms:
        a, b = symbol_bounds(symbol, known)
        least += f * a if f > 0 else f * b
    for symbol, f in form.terms:
        a, b = symbol_bounds(symbol, known)
        # f·symbol is at most the room left when the others are at their minimum.
        room = (f * a if f > 0 else f * b) - least
        low, high = (a, min(b, room // f)) if f > 0 else (max(a, -(room // -f)), b)
        if low > high:
            return False
        if (low, high) != (a, b):
            known[((symbol, 1),)] = (low, high)
    return True


def within(facts: Facts | None, form: Value, low: int, high: int) -> Facts | None:
    """The facts, plus that a number is between two others, both included; None if contradictory."""
    if isinstance(form, int):
        return facts if low <= form <= high else None
    # Constants of 32 bits only; bounds that would wrap are left out.
    if form.constant - low < HIGH:
        facts = not_negative(facts, Form(form.terms, form.constant - low))
    if high - form.constant < HIGH:
        facts = not_negative(facts, Form(tuple((s, -f) for s, f in form.terms), high - form.constant))
    return facts


def assumed(facts: Facts, part: Value | Condition, holds: bool) -> Facts | None:
    """The facts, plus that a difference is non-negative or a condition holds, or the opposite."""
    if isinstance(part, Condition):
        return assume(facts, part, holds)
    return not_negative(facts, part if holds else difference(-1, part))


def parted(case: Case, parts: Iterable[tuple[Value | Condition, bool]]) -> tuple[Facts | None, list[Case]]:
    """The facts in which differences are non-negative and conditions hold (or not), and the other cases.

    Without facts (None), that is impossible.
    """
    inside, outside = case.facts, []
    for part, holds in parts:
        without, within = assumed(inside, part, not holds), assumed(inside, part, holds)
        if without is not None:
            outside.append(dataclasses.replace(case, facts=without))
        if within is None:
            return None, outside
        inside = within
    return inside, outside


def joined(cases: list[Case]) -> list[Case]:
    """Cases of the same element at the same position merged, if nothing else relates them."""
    if len(cases) < 2:
        return cases
    found: dict[object, list[Case]] = {}
    for case in cases:
        same = found.setdefault((case.point, case.numbers, case.kept, case.own, case.read_since), [])
        for n, other in enumerate(same):
            facts = _either(case.facts, other.facts, len(same) >= _APART)
            if facts is not None:
                same[n] = dataclasses.replace(case, facts=facts)
                break
        else:
            same.append(case)
    return [case for same in found.values() for case in same]


def _either(a: Facts, b: Facts, anyhow: bool) -> Facts | None:
    """The facts that hold in both cases; None if they are weaker than the two cases, unless `anyhow`."""
    if anyhow:
        return {
            terms: (min(low, b[terms][0]), max(high, b[terms][1]))
            for terms, (low, high) in a.items()
            if terms in b
        }
    if len(a) < len(b):
        a, b = b, a
    if len(a) > len(b) + 1:
        return None
    apart = None
    for terms, limits in b.items():
        if a.get(terms) != limits:
            if apart is not None:
                return None
            apart = terms
    if apart is None:
        return b
    if len(a) > len(b) or apart not in a:
        return None
    (low, high), (first, last) = a[apart], b[apart]
    if low > last + 1 or first > high + 1:
        return None
    return {**b, apart: (min(low, first), max(high, last))}
