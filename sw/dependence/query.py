"""What a read sees: the definitions that are alive in its region (dependence.md, "A use").

First all definitions in the chains of the region's elements are taken. Where one of them is predicated, has
symbolic bounds or comes from one of two predecessors, the chains are walked from the newest definition on
with what is known at the read: its predicate, the branches around it, the symbolic bounds. A definition is
dropped if it cannot overlap the read, if it did not happen whenever the read happens, or if what it shares
with the read was certainly overwritten. The walk has a budget of steps; beyond it everything counts as seen,
which is sound.
"""

from __future__ import annotations

from dataclasses import dataclass

from sw.dependence.cells import (
    REST,
    Box,
    Cell,
    Definition,
    Definitions,
    Phi,
    Rest,
    Stacked,
    SymbolicBox,
    Top,
    visible_in,
)
from sw.dependence.conditions import assume, decide
from sw.dependence.forms import (
    Facts,
    Form,
    Value,
    add,
    at_most,
    differences,
    whole,
)
from sw.dependence.region_map import Branch, Leaf, Node, Part, content, halve
from sw.dependence.uses import Use, tight_facts

#: Later certain writes with symbolic bounds that are remembered on a walk.
_KILLS = 6
#: Times that a walk comes through the same place with different knowledge.
_VISITS = 6


@dataclass(slots=True)
class Budget:
    """Steps that are left for one read."""

    steps: int


def seen(
    root: Node, extents: Box, use: Use, budget: Budget, areas: bool = True
) -> dict[Definition, list[Box]]:
    """The definitions that a read may see, with the parts of its region where if `areas` are asked for."""
    found: dict[Definition, list[Box]] = {}
    hull = use.hull
    #: What counts as seen because the budget is used up.
    rest: Definitions = {}
    if len(hull) == 1:
        root, extents = _down(root, *extents[0], *hull[0])
    pending: list[Part] = [(root, extents, [])]
    while pending:
        node, part, above = pending.pop()
        if type(node) is Leaf:
            cell = node.cell
            if not above and type(cell) is Top and cell.definition.plain:
                if areas:
                    found.setdefault(cell.definition, []).append(_clip(part, hull))
                else:
                    found[cell.definition] = _NOWHERE
                continue
            sections = [*above, cell]
            if budget.steps > 0:
                area = _clip(part, hull)
                exact = _Walk(use, area).run(sections, budget)
                if exact is not None:
                    for d in exact:
                        if areas:
                            found.setdefault(d, []).append(area)
                        else:
                            found[d] = _NOWHERE
                    continue
            for section in sections:
                rest.update(visible_in(section))
            continue
        assert type(node) is Branch
        if budget.steps <= 0 and _within(part, hull):
            for section in above:
                rest.update(visible_in(section))
            rest.update(content(node)[0])
            continue
        halve(pending, node, part, above, hull)
    for d in rest:
        if areas:
            found.setdefault(d, []).append(_clip(d.hull, hull))
        else:
            found[d] = _NOWHERE
    return found


def _down(node: Node, low: int, high: int, start: int, stop: int) -> tuple[Node, Box]:
    """The smallest node of one dimension that holds an interval, and its extents."""
    while type(node) is Branch and node.over is REST:
        cut = node.cut
        if stop <= cut:
            node, high = node.left, cut
        elif start >= cut:
            node, low = node.right, cut
        else:
            break
    return node, ((low, high),)


#: The parts of a read where nobody asks for them.
_NOWHERE: list[Box] = []


def _within(part: Box, hull: Box) -> bool:
    """Whether a box lies in another one."""
    if len(part) == 1:
        return part[0][0] >= hull[0][0] and part[0][1] <= hull[0][1]
    return all(a >= start and b <= stop for (a, b), (start, stop) in zip(part, hull, strict=True))


def _clip(part: Box, hull: Box) -> Box:
    """What two boxes share."""
    return tuple((max(a, start), min(b, stop)) for (a, b), (start, stop) in zip(part, hull, strict=True))


_Kills = tuple[SymbolicBox, ...]
#: What follows at the end of an unfinished chain, as linked pairs.
_Below = tuple[Cell, "_Below"] | None


class _Walk:
    """Walks the chain of one part of a read's region."""

    def __init__(self, use: Use, area: Box):
        self.use, self.area = use, area
        self.found: dict[Definition, None] = {}
        self.pending: list[tuple[Cell, _Below, Facts, _Kills]] = []
        self.links: dict[tuple[int, int], _Below] = {}
        self.visits: dict[tuple[int, int], int] = {}

    def link(self, cell: Cell, below: _Below) -> _Below:
        """The pair; the same parts give the same pair."""
        key = id(cell), id(below)
        found = self.links.get(key)
        if found is None:
            found = self.links[key] = (cell, below)
        return found

    def run(self, sections: list[Cell], budget: Budget) -> list[Definition] | None:
        """The definitions seen; None where the budget does not suffice."""
        below: _Below = None
        for section in reversed(sections[1:]):
            below = self.link(section, below)
        pending = self.pending
        pending.append((sections[0], below, self.use.facts, ()))
        while pending:
            budget.steps -= 1
            if budget.steps < 0:
                return None
            cell, below, facts, kills = pending.pop()
            kind = type(cell)
            if kind is Top:
                self.define(cell.definition, facts, kills)  # type: ignore[union-attr]
            elif kind is Rest:
                if below is not None:
                    pending.append((below[0], below[1], facts, kills))
            elif kind is Stacked:
                pending.append((cell.upper, self.link(cell.lower, below), facts, kills))  # type: ignore[union-attr]
            else:
                key = id(cell), id(below)
                count = self.visits[key] = self.visits.get(key, 0) + 1
                if count > _VISITS:
                    # Once more with nothing known of the way here, which is what all further ways see at
                    # most.
                    if count > _VISITS + 1:
                        continue
                    facts, kills = self.use.facts, ()
                if kind is Phi:
                    self.phi(cell, below, facts, kills)  # type: ignore[arg-type]
                else:
                    after = self.define(cell.definition, facts, kills)  # type: ignore[union-attr]
                    if after is not None:
                        pending.append((cell.below, below, *after))  # type: ignore[union-attr]
        return list(self.found)

    def phi(self, cell: Phi, below: _Below, facts: Facts, kills: _Kills) -> None:
        """Both ways, each with what is known on it."""
        for branch, holds in ((cell.second, False), (cell.first, True)):
            known = facts if cell.condition is None else assume(facts, cell.condition, holds)
            if known is not None and (known is facts or self.reached(known)):
                self.pending.append((branch, below, known, kills))

    def reached(self, facts: Facts) -> bool:
        """Whether the read can touch the area at all, given what is known on a way."""
        box = self.use.inexact
        if box is None:
            return True
        return not any(
            at_most(stop, low, facts) or at_most(high, start, facts)
            for (start, stop), (low, high) in zip(box, self.area, strict=True)
        )

    def define(self, d: Definition, facts: Facts, kills: _Kills) -> tuple[Facts, _Kills] | None:
        """One definition; what is known of those before it, None where none of them can be seen."""
        happens = decide(d.happens, facts)
        if happens is False or not (d.exact or touches(d, self.use, self.area, facts)):
            return facts, kills
        if d.visible and d not in self.found and not hidden(d, self.use, self.area, kills, facts):
            self.found[d] = None
        if not d.sure or d.box is None:
            return facts, kills
        if d.exact or covers(d.box, self.use, self.area, facts):
            known = assume(facts, d.happens, False)
            return None if known is None else (known, kills)
        if happens is True and len(kills) < _KILLS:
            kills = _with(kills, d.box, facts)
            if any(covers(box, self.use, self.area, facts) for box in kills):
                return None
        return facts, kills


def touches(d: Definition, use: Use, area: Box, facts: Facts) -> bool:
    """Whether a definition may overlap a read within an area."""
    if d.box is None:
        return True
    for axis, ((start, stop), (low, high)) in enumerate(zip(d.box, area, strict=True)):
        if at_most(high, start, facts) or at_most(stop, low, facts):
            return False
        if use.inexact is not None and _apart(start, stop, *use.inexact[axis], facts):
            return False
    return not d.swept or meets(d, use)


def meets(d: Definition, use: Use) -> bool:
    """Whether a definition of many iterations may overlap a read, of whose hull it has a part."""
    if d.gap is None:
        d.gap = _gap(d)
    if use.inexact is None:
        low, high = use.hull[d.gap[1]]
        if high - low >= d.gap[0]:
            # Too long to fall between two iterations.
            return True
    return tight_facts(d, use) is not None


def _gap(d: Definition) -> tuple[int, int]:
    """The least length of a read that cannot fall between the iterations, and of which dimension."""
    moving = [axis for axis, (start, _) in enumerate(d.box or ()) if not isinstance(start, int)]
    if d.box is None or not moving:
        return 0, 0
    (start, stop), axis = d.box[moving[0]], moving[0]
    length = add(stop, start, -1)
    if len(moving) > 1 or not isinstance(length, int) or not isinstance(start, Form):
        return 1 << 62, 0
    return max(0, max(abs(f) for _, f in start.terms) - length + 1), axis


def _apart(start: Value, stop: Value, low: Value, high: Value, facts: Facts) -> bool:
    """Whether [start, stop) and [low, high) surely do not overlap."""
    if isinstance(start, int) and isinstance(stop, int) and isinstance(low, int) and isinstance(high, int):
        return start >= high or stop <= low
    if at_most(high, start, facts) or at_most(stop, low, facts):
        return True
    shifts = differences(start, low, facts)
    if len(shifts) == 1:
        return False
    length, own = whole(add(high, low, -1), facts)[1], whole(add(stop, start, -1), facts)[1]
    return all(least >= length or most <= -own for least, most in shifts)


def covers(box: SymbolicBox, use: Use, area: Box, facts: Facts) -> bool:
    """Whether a box surely holds all of a read within an area."""
    for axis, ((start, stop), (low, high)) in enumerate(zip(box, area, strict=True)):
        if not at_most(start, low, facts) and not (
            use.inexact is not None and at_most(start, use.inexact[axis][0], facts)
        ):
            return False
        if not at_most(high, stop, facts) and not (
            use.inexact is not None and at_most(use.inexact[axis][1], stop, facts)
        ):
            return False
    return True


def hidden(d: Definition, use: Use, area: Box, kills: _Kills, facts: Facts) -> bool:
    """Whether one of the later writes surely holds all that a definition shares with a read in an area."""
    return any(_hides(kill, d, use, area, facts) for kill in kills)


def _hides(kill: SymbolicBox, d: Definition, use: Use, area: Box, facts: Facts) -> bool:
    for axis, (start, stop) in enumerate(kill):
        low, high = area[axis]
        own = None if d.box is None else d.box[axis]
        asked = None if use.inexact is None else use.inexact[axis]
        if not (
            at_most(start, low, facts)
            or (own is not None and at_most(start, own[0], facts))
            or (asked is not None and at_most(start, asked[0], facts))
        ):
            return False
        if not (
            at_most(high, stop, facts)
            or (own is not None and at_most(own[1], stop, facts))
            or (asked is not None and at_most(asked[1], stop, facts))
        ):
            return False
    return True


def _with(kills: _Kills, box: SymbolicBox, facts: Facts) -> _Kills:
    """The kills with one more, put together with one that it meets."""
    for i, other in enumerate(kills):
        merged = _merged(other, box, facts)
        if merged is not None:
            return _with((*kills[:i], *kills[i + 1 :]), merged, facts)
    return (*kills, box)


def _merged(a: SymbolicBox, b: SymbolicBox, facts: Facts) -> SymbolicBox | None:
    """The union of two boxes that are equal but for one dimension, in which they surely meet."""
    differing = [axis for axis in range(len(a)) if a[axis] != b[axis]]
    if len(differing) != 1:
        return None
    axis = differing[0]
    for (start, middle), (other, stop) in ((a[axis], b[axis]), (b[axis], a[axis])):
        # An empty interval with ends the wrong way round would claim elements that nobody wrote.
        if at_most(other, middle, facts) and at_most(start, other, facts) and at_most(middle, stop, facts):
            return (*a[:axis], (start, stop), *a[axis + 1 :])
    return None
