"""Conditions during the analysis, and the facts about symbolic integers that they imply."""

from __future__ import annotations

from dataclasses import dataclass

from sw.dependence.forms import Bounds, Facts, Form, Terms, whole
from sw.ir.types import HIGH, LOW

_BELOW, _ABOVE = 4 * LOW, 4 * HIGH


@dataclass(frozen=True, slots=True)
class Atom:
    """Terms whose sum lies between two numbers, both included."""

    terms: Terms
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Condition:
    """An unknown boolean: an atom, or a connective of conditions.

    `word` is "atom", "and", "or" or "not". `key` is an atom about a symbol for the whole condition (1 if it
    holds), which identifies equal conditions.
    """

    word: str
    parts: tuple[Condition, ...] = ()
    atom: Atom | None = None
    key: Atom | None = None


Truth = int | Condition


def between(form: Form, low: int, high: int, key: Atom | None = None) -> Condition:
    """The condition that a form, which does not wrap, is between two numbers, both included."""
    terms, c = form.terms, form.constant
    if terms[0][1] < 0:
        terms, low, high, c = tuple((s, -f) for s, f in terms), -high, -low, -c
    low, high = max(low - c, _BELOW), min(high - c, _ABOVE)
    if len(terms) == 1 and terms[0][1] != 1:
        symbol, f = terms[0]
        terms, low, high = ((symbol, 1),), -(-low // f), high // f
    return Condition("atom", atom=Atom(terms, low, high), key=key)


def is_true(symbol: Form) -> Condition:
    """The condition that a 0/1 symbol is 1."""
    return Condition("atom", atom=Atom(symbol.terms, 1, 1))


def negate(truth: Truth) -> Truth:
    """The opposite."""
    if isinstance(truth, int):
        return 1 - truth
    if truth.word == "not":
        return truth.parts[0]
    if truth.atom is not None:
        a = truth.atom
        limits = whole(Form(a.terms))
        if a.high >= limits[1]:
            return Condition("atom", atom=Atom(a.terms, _BELOW, a.low - 1))
        if a.low <= limits[0]:
            return Condition("atom", atom=Atom(a.terms, a.high + 1, _ABOVE))
    return Condition("not", (truth,))


def atoms(truth: Condition, holds: bool) -> list[Atom]:
    """Atoms that follow from a condition being true, or false."""
    found: list[Atom] = []
    if truth.key is not None:
        found.append(truth.key if holds else Atom(truth.key.terms, 0, 0))
    if truth.word == "not":
        return found + atoms(truth.parts[0], not holds)
    if truth.atom is not None:
        if holds:
            return [*found, truth.atom]
        other = negate(truth)
        return [*found, other.atom] if isinstance(other, Condition) and other.atom is not None else found
    if truth.word == ("and" if holds else "or"):
        for part in truth.parts:
            found += atoms(part, holds)
    return found


def assume(facts: Facts | None, truth: Truth, holds: bool = True) -> Facts | None:
    """The facts plus a condition; None if they contradict it, or are None themselves."""
    if facts is None or isinstance(truth, int):
        return facts if truth == holds else None
    decided = decide(truth, facts)
    if decided is not None:
        return facts if decided == holds else None
    grown: dict[Terms, Bounds] = dict(facts)
    for atom in atoms(truth, holds):
        low, high = whole(Form(atom.terms), grown)
        low, high = max(low, atom.low), min(high, atom.high)
        if low > high:
            return None
        grown[atom.terms] = (low, high)
    return grown


def decide(truth: Truth, facts: Facts) -> bool | None:
    """Whether a condition holds under the facts; None if undecided."""
    if isinstance(truth, int):
        return bool(truth)
    if truth.key is not None and truth.key.terms in facts:
        low, high = facts[truth.key.terms]
        if low == high:
            return bool(low)
    if truth.atom is not None:
        low, high = whole(Form(truth.atom.terms), facts)
        if truth.atom.low <= low and high <= truth.atom.high:
            return True
        return False if high < truth.atom.low or low > truth.atom.high else None
    parts = [decide(part, facts) for part in truth.parts]
    if truth.word == "not":
        return None if parts[0] is None else not parts[0]
    stops = truth.word == "or"
    if stops in parts:
        return stops
    return None if None in parts else not stops
