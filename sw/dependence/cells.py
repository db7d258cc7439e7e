"""Definitions, and what one element of a buffer may hold: a chain of definitions, newest first.

A chain is the transposed form of the kill sets of dependence.md: a definition is alive at an element where
the element's chain still holds it. A certain write starts a new chain, which is the kill; a write that may
not happen is put on top of the chain and kills nothing; a phi node joins two chains, so that a definition
stays alive where it arrives over either predecessor (the intersection of kill sets).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sw.dependence.conditions import Truth
from sw.dependence.forms import Value

#: First element and the one after the last, of every dimension.
Box = tuple[tuple[int, int], ...]
#: The same with symbolic ends.
SymbolicBox = tuple[tuple[Value, Value], ...]


@dataclass(eq=False, slots=True)
class Definition:
    """One write access of an instruction, at given iterations of the loops around it.

    `loops` are the numbers of these loops, `iteration` how often each has started over (0: the first time).
    `box` is what is written, None for an unknown address; `hull` what may be written. `happens` is the
    predicate, 1 without one. `sure`: if it happens, it writes the whole box. An invisible definition only
    kills: it stands for a loop whose iterations together cover the box. `swept` marks definitions of many
    iterations at once.
    """

    label: str
    index: int
    loops: tuple[int, ...]
    iteration: tuple[Value, ...]
    buffer: str
    box: SymbolicBox | None
    happens: Truth = 1
    sure: bool = True
    visible: bool = True
    swept: bool = False
    hull: Box = ()
    #: The hull is the box: known numbers.
    exact: bool = False
    #: Of many iterations: the least length of what cannot fall between them, and of which dimension.
    gap: tuple[int, int] | None = None

    @property
    def plain(self) -> bool:
        """Certain, of one iteration, and to be seen."""
        return self.visible and self.sure and not self.swept and self.happens == 1


#: A set of definitions that keeps its order.
Definitions = dict[Definition, None]


@dataclass(eq=False, slots=True)
class Top:
    """A definition that surely wrote the element last, of all that was before."""

    definition: Definition


@dataclass(eq=False, slots=True)
class Maybe:
    """A definition that may have written the element after what is below."""

    definition: Definition
    below: Cell
    #: Its definitions that are to be seen, once they were asked for.
    known: Definitions | None = field(default=None, repr=False)


@dataclass(eq=False, slots=True)
class Phi:
    """One of two chains; the first where the condition holds, if one is known."""

    condition: Truth | None
    first: Cell
    second: Cell
    known: Definitions | None = field(default=None, repr=False)


@dataclass(eq=False, slots=True)
class Stacked:
    """A chain of possible writes over another chain."""

    upper: Cell
    lower: Cell
    known: Definitions | None = field(default=None, repr=False)


@dataclass(eq=False, slots=True)
class Rest:
    """The end of an unfinished chain: what is below depends on the element."""


REST = Rest()
Cell = Top | Maybe | Phi | Stacked | Rest


def stack(upper: Cell, lower: Cell) -> Cell:
    """A chain over another one."""
    if type(upper) is Rest:
        return lower
    if type(lower) is Rest:
        return upper
    return Stacked(upper, lower)


def visible_in(cell: Cell) -> Definitions:
    """The definitions in a chain that are to be seen, in no particular order; not to be changed."""
    if isinstance(cell, Top):
        return {cell.definition: None} if cell.definition.visible else {}
    if isinstance(cell, Rest):
        return {}
    if cell.known is not None:
        return cell.known
    if isinstance(cell, Maybe):
        # Most chains grow by one definition at a time.
        below = cell.below
        before = None if isinstance(below, Top | Rest) else below.known
        if before is not None:
            cell.known = {**before, cell.definition: None} if cell.definition.visible else before
            return cell.known
    found: Definitions = {}
    seen: set[int] = set()
    pending: list[Cell] = [cell]
    while pending:
        part = pending.pop()
        if isinstance(part, Top):
            if part.definition.visible:
                found[part.definition] = None
            continue
        if isinstance(part, Rest) or id(part) in seen:
            continue
        seen.add(id(part))
        if part.known is not None:
            found.update(part.known)
        elif isinstance(part, Maybe):
            if part.definition.visible:
                found[part.definition] = None
            pending.append(part.below)
        elif isinstance(part, Phi):
            pending += (part.first, part.second)
        else:
            pending += (part.upper, part.lower)
    cell.known = found
    return found


@dataclass
class Joiner:
    """Makes phi cells of one phi node; the same pair of chains gives the same cell."""

    condition: Truth | None
    made: dict[tuple[int, int], Phi] = field(default_factory=dict)

    def __call__(self, first: Cell, second: Cell) -> Cell:
        """The chain after the phi node."""
        if first is second:
            return first
        key = id(first), id(second)
        found = self.made.get(key)
        if found is None:
            found = self.made[key] = Phi(self.condition, first, second)
        return found
