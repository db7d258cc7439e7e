"""Reads as they happen, and what follows from one overlapping a definition of many iterations."""

from __future__ import annotations

from dataclasses import dataclass, field

from sw.dependence.cells import Box, Definition, SymbolicBox
from sw.dependence.forms import PLACES, Bounds, Facts, Terms, Value, add, symbol_bounds, whole

#: Two numbers that are equal modulo 2^32 are equal if one is a difference of places and the other below this.
UNIQUE = 3 * PLACES


@dataclass(frozen=True, slots=True)
class Use:
    """A read as it happens: its symbolic box (None: unknown address), its hull, and what is known."""

    box: SymbolicBox | None
    hull: Box
    facts: Facts
    #: The box if its ends are not known numbers, which then say more than an area of the hull.
    inexact: SymbolicBox | None = field(init=False)
    #: What follows from overlapping a definition of many iterations, once it was asked for.
    tight: dict[Definition, Facts | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "inexact", None if self.box == self.hull else self.box)


def tight_facts(d: Definition, use: Use) -> Facts | None:
    """What follows from a definition of many iterations overlapping a read; None if it cannot."""
    if d not in use.tight:
        use.tight[d] = tighten(d, use, use.hull, use.facts)
    return use.tight[d]


def tighten(d: Definition, use: Use, area: Box, facts: Facts) -> Facts | None:
    """Facts about the symbols of a definition that follow from its overlapping a read; None if it cannot."""
    if d.box is None:
        return facts
    # Each form is at most 0. Iterations count from 0; places are known modulo 2^32 only.
    known = dict(facts)
    counts = [add(0, n, -1) for n in d.iteration]
    places: list[Value] = []
    for axis, (start, stop) in enumerate(d.box):
        for low, high in (area[axis], *((use.box[axis],) if use.box is not None else ())):
            places += (add(add(start, high, -1), 1), add(add(low, stop, -1), 1))
    for _ in range(3):
        before = len(known), tuple(known.values())
        for form in counts:
            if not bound_symbols(form, known):
                return None
        for form in places:
            low, high = whole(form, known)
            if low > -UNIQUE and high < UNIQUE and not bound_symbols(form, known):
                return None
        if before == (len(known), tuple(known.values())):
            break
    return known


def bound_symbols(form: Value, known: dict[Terms, Bounds]) -> bool:
    """Bound every symbol of a sum by the others, given that the sum is at most 0; False if it cannot be."""
    if isinstance(form, int):
        return form <= 0
    if whole(form, known)[0] > 0:
        return False
    # Term by term: what is known of sums of symbols does not say how much one of them leaves to the others.
    least = form.constant
    for symbol, f in form.terms:
        a, b = symbol_bounds(symbol, known)
        least += f * a if f > 0 else f * b
    for symbol, f in form.terms:
        a, b = symbol_bounds(symbol, known)
        # f·symbol is at most what the others leave at their least.
        room = (f * a if f > 0 else f * b) - least
        low, high = (a, min(b, room // f)) if f > 0 else (max(a, -(room // -f)), b)
        if low > high:
            return False
        if (low, high) != (a, b):
            known[((symbol, 1),)] = (low, high)
    return True
