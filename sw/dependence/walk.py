"""Finds what precedes an access: a backward walk through the program with a symbolic element.

A *case* is what is known of the element, of the iterations of the access, and of the walk's position. At an
earlier access, the case is split if it is undecided whether the element is in its region. If it is, a certain
write ends the walk; if not, the walk continues. So overwritten data is never reached. At a loop, the walk
goes to the last iteration that can touch the element, which is found from the bounds of regions as a distance
from a known number, and then to those before it (docs/dependence.md, "The walk").
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sw.dependence.accesses import AccessTree, SymbolicAccess, SymbolicLoop
from sw.dependence.cases import FAR, UNIQUE, Case, joined, not_negative, parted, sign
from sw.dependence.conditions import Condition, assume, decide
from sw.dependence.cuts import (
    MOST_DIVISOR,
    by_choice,
    by_remainder,
    divided,
    mentions,
    moduli,
    quotient,
    settled,
    uneven,
)
from sw.dependence.forms import (
    PLACES,
    Facts,
    Form,
    Symbol,
    Value,
    add,
    factor_of,
    substitute,
    symbol_bounds,
    symbol_form,
    whole,
)
from sw.dependence.instance import Instance
from sw.dependence.reach import Reach, together

#: Most case splits and iteration visits of one walk. Beyond these, cases are not split, and one iteration
#: stands for all.
_CUTS, _VISITS = 400, 400
#: The same once the budget is mostly used up; such a walk visits individual iterations only of its own loops.
_FEW_CUTS, _FEW_VISITS = 16, 8
#: Splitting a number into quotient and remainder counts as this many splits, since it makes later terms
#: longer.
_DIVISION = 8
#: Most iterations visited one by one in a loop whose accesses do not rotate through buffers.
_STEPS = 8


class Met(NamedTuple):
    """What a walk reaches: an access, or the start of the program (None), and what is known there."""

    access: SymbolicAccess | None
    case: Case
    facts: Facts


@dataclass
class WalkBudget:
    """The comparisons that walks may use: each gets a minimum, plus a sixteenth of what is left for all."""

    least: int = 100
    left: int = 32_000

    def next(self) -> int:
        """The budget of the next walk."""
        return max(self.least, self.left // 16)

    def spent(self, count: int) -> None:
        """Records what a walk has used."""
        self.left += self.least - count


class _TooLongError(Exception):
    """A walk exceeds its budget."""


class BackwardWalk:
    """A walk from one access of a program to its sources.

    It compares accesses with the element, and visits iterations, within a budget. When half of it is used,
    nothing is split any more. If it runs out, everything that may ever touch the region counts as a source.
    """

    def __init__(self, tree: AccessTree, sink: SymbolicAccess, budget: WalkBudget):
        self.tree, self.evaluator, self.symbols = tree, tree.evaluator, tree.evaluator.symbols
        self.sink = sink
        self.met: list[Met] = []
        self.cuts, self.visits = _CUTS, _VISITS
        if budget.left < budget.least:
            self.cuts, self.visits = _FEW_CUTS, _FEW_VISITS
        self.budget, self.work = budget, budget.next()
        self.enough = self.work // 2

    def run(self) -> list[Met]:
        """Walks back to the start of the program; what gets there sees the contents on entry."""
        start, work = self.start(), self.work
        try:
            left = self.walk(start)
        except _TooLongError:
            left = start
            for case in start:
                self.any_of(self.tree.root, dataclasses.replace(case, numbers=()))
        self.budget.spent(work - max(0, self.work))
        return [*self.met, *(Met(None, case, case.facts) for case in left)]

    def spend(self) -> None:
        """Counts a comparison, or a visit of an iteration."""
        self.work -= 1
        if self.work < self.enough:
            self.cuts = self.visits = 0
            if self.work < 0:
                raise _TooLongError

    def walk(self, cases: list[Case]) -> list[Case]:
        """Walks from the sink to the start of the program."""
        sink, root, position = self.sink, self.tree.root, self.sink.position
        while position and self.own_access(sink.loops[-1] if sink.loops else root, position - 1):
            position -= 1
        for depth in range(len(sink.loops), -1, -1):
            loop = sink.loops[depth - 1] if depth else root
            cases = self.children(loop, position, cases)
            if not depth:
                break
            going: list[Case] = []
            for case in cases:
                outer = dataclasses.replace(case, numbers=case.numbers[: depth - 1])
                going += self.iterations(loop, outer, add(case.numbers[depth - 1], -1))
            cases, position = joined(going), loop.position
        return cases

    def own_access(self, loop: SymbolicLoop, position: int) -> bool:
        """Whether a child is an access of the sink's instruction that does not precede it."""
        child = loop.children[position]
        sink = self.sink
        return (
            isinstance(child, SymbolicAccess) and child.slot == sink.slot and (child.write or not sink.write)
        )

    def start(self) -> list[Case]:
        """The cases of the sink, split by what its region depends on."""
        sink = self.sink
        facts: Facts | None = {}
        numbers: list[Value] = []
        for loop in sink.loops:
            number = symbol_form(loop.symbol) if loop.symbol.high else 0
            if isinstance(loop.count, Form):
                facts = not_negative(facts, add(add(loop.count, number, -1), -1))
            numbers.append(number)
        for condition, holds in sink.conditions:
            facts = assume(facts, condition, holds)
        if facts is None:
            return []
        ends = tuple(end for pair in (sink.hull if sink.box is None else sink.box) for end in pair)
        first = settled(self.evaluator, Case(facts, (), tuple(numbers), tuple(numbers), kept=ends), {})
        pending, found = [first] if first is not None else [], []
        while pending:
            case = pending.pop()
            parts = self.cut(case, case.kept) if self.cuts > _CUTS // 2 or self.cuts == _FEW_CUTS else None
            if parts is None:
                made = self.element(case)
                found += [] if made is None else [made]
            else:
                pending += parts
        return found

    def element(self, case: Case) -> Case | None:
        """The case with an arbitrary element of the sink's region, whose ends are in `kept`, as its point."""
        facts: Facts | None = case.facts
        point: list[Value] = []
        for axis, (low, high) in enumerate(self.sink.hull):
            begin, end = case.kept[2 * axis : 2 * axis + 2]
            length = add(end, begin, -1)
            exact = isinstance(length, int) and 0 < length <= PLACES
            within = self.symbols.fresh("x", 0, (length if exact else high - low) - 1)  # type: ignore[operator]
            if within.terms[0][0].high == 0:
                place = begin
            elif exact or (isinstance(begin, int) and begin == low):
                place = add(begin, within)
            else:
                place = add(low, within)
                facts = not_negative(facts, add(place, begin, -1))
            sides = () if exact else (add(add(end, place, -1), -1),)
            facts = not_negative(facts, *sides, add(place, -low), add(high - 1, place, -1))
            point.append(place)
        return None if facts is None else dataclasses.replace(case, facts=facts, point=tuple(point), kept=())

    def children(self, loop: SymbolicLoop, position: int, cases: list[Case]) -> list[Case]:
        """The accesses and loops of a body before a position, last first."""
        waiting: dict[int, list[Case]] = {}
        self.wait(loop, position, cases, waiting)
        while waiting:
            position = max(waiting)
            before = waiting.pop(position)
            if position < 0:
                return before
            child = loop.children[position]
            going: list[Case] = []
            for case in joined(before):
                if isinstance(child, SymbolicAccess):
                    going += self.access(child, case)
                else:
                    count = self.instance(case, child.around).value(child.count)
                    going += self.iterations(child, case, add(count, -1))
            self.wait(loop, position, going, waiting)
        return []

    def wait(
        self, loop: SymbolicLoop, position: int, cases: list[Case], waiting: dict[int, list[Case]]
    ) -> None:
        """Queues cases at the last child before a position that can touch their element; -1 if none."""
        index = loop.index(self.sink.buffer, not self.sink.write)
        for case in cases:
            place = case.point[index.axis] if case.point else 0
            known = self.instance(case, (*loop.around, loop)).value if case.numbers else None
            found = index.last(place, known, case.facts, position)
            waiting.setdefault(found, []).append(case)

    def instance(self, case: Case, loops: tuple[SymbolicLoop, ...]) -> Instance:
        """Numbers of the text at the walk's iterations; inner loops are at an arbitrary iteration."""
        numbers = list(case.numbers[: len(loops)])
        numbers += [symbol_form(loop.other) for loop in loops[len(numbers) :]]
        same = 0
        for loop, own, number, now in zip(loops, self.sink.loops, numbers, case.own, strict=False):
            if loop is not own or number != now:
                break
            same += 1
        known = {loop.symbol: n for loop, n in zip(loops, numbers, strict=True)}
        return Instance(self.evaluator, case.facts, known, loops, tuple(numbers), same)

    def relevant(self, access: SymbolicAccess, case: Case) -> bool:
        """Whether an access can matter to a case, by its kind and the known bounds of its region."""
        if not self.sink.write and not access.write:
            return False
        for (low, high), place in zip(access.hull, case.point, strict=True):
            least, most = whole(place, case.facts)
            if least >= high or most < low:
                return False
        return True

    def access(self, access: SymbolicAccess, case: Case) -> list[Case]:
        """Visits an access in the current iteration; returns the cases that remain of one."""
        if not self.relevant(access, case):
            return [case]
        self.spend()
        open_at = self.open_at(access, case)
        if open_at is None:
            return [case]
        parts = self.cut(case, [part for part, _ in open_at])
        if parts is not None:
            return [left for part in parts for left in self.access(access, part)]
        inside, outside = parted(case, open_at)
        if inside is None:
            return [case]
        if not (access.write and case.read_since):
            self.met.append(Met(access, case, inside))
        ends = access.write and access.box is not None
        reads = not access.write and not case.read_since
        if not (ends or reads) or (outside and self.cuts <= 0):
            return [case]
        self.cuts -= len(outside)
        if reads:
            outside.append(dataclasses.replace(case, facts=inside, read_since=True))
        return outside

    def open_at(self, access: SymbolicAccess, case: Case) -> list[tuple[Value | Condition, bool]] | None:
        """The undecided parts of whether an access touches the element; None if it cannot."""
        instance = self.instance(case, access.loops)
        found: list[tuple[Value | Condition, bool]] = []
        for place, (start, stop) in zip(case.point, access.box or (), strict=False):
            for form in self.sides(instance, place, start, stop):
                verdict = sign(form, case.facts)
                if verdict is False:
                    return None
                if verdict is None:
                    found.append((form, True))
        for condition, holds in access.conditions:
            truth = instance.truth(condition)
            decided = decide(truth, case.facts)
            if decided is not None and decided != holds:
                return None
            if decided is None:
                assert isinstance(truth, Condition)
                found.append((truth, holds))
        return found

    def cut(self, case: Case, parts: Sequence[Value | Condition]) -> list[Case] | None:
        """A case split to decide what is undecided; None if there is nothing to split."""
        if not parts or self.cuts <= 0:
            return None
        found = by_remainder(self.evaluator, case, parts)
        if found is None:
            found = by_choice(self.evaluator, case, parts)
        self.cuts -= len(found or ())
        return found

    @staticmethod
    def sides(instance: Instance, place: Value, start: Value, stop: Value) -> tuple[Value, Value]:
        """Two numbers that are non-negative if a point is in an interval."""
        low = add(place, instance.value(start), -1)
        if isinstance(start, Form) and isinstance(stop, Form) and start.terms == stop.terms:
            return low, add(add(stop.constant - start.constant - 1, low, -1), 0)
        return low, add(add(instance.value(stop), place, -1), -1)

    def iterations(self, loop: SymbolicLoop, case: Case, upper: Value) -> list[Case]:
        """The iterations of a loop up to one, last first; `case.numbers` are of enclosing loops."""
        if whole(upper, case.facts)[1] < 0:
            return [case]
        if self.visits <= _FEW_VISITS and loop not in self.sink.loops:
            self.any_of(loop, case)
            return [case]
        left = self.reached(loop, dataclasses.replace(case, kept=(*case.kept, upper)))
        return joined([dataclasses.replace(c, kept=c.kept[:-1]) for c in left])

    def any_of(self, loop: SymbolicLoop, case: Case) -> None:
        """All accesses of a loop's iterations that may touch the region, regardless of overwrites."""
        own = len(loop.around)
        for access in loop.accesses[self.sink.buffer]:
            seen = not (access.write and case.read_since) and self.relevant(access, case)
            if seen and self.open_at(access, case) is not None:
                numbers = (*case.numbers[:own], *(symbol_form(i.other) for i in access.loops[own:]))
                self.met.append(Met(access, dataclasses.replace(case, numbers=numbers), case.facts))

    def reached(self, loop: SymbolicLoop, case: Case) -> list[Case]:
        """The same, up to the last number of `kept`."""
        reaches: list[Reach] = []
        facts = not_negative(case.facts, add(case.kept[-1], symbol_form(loop.other), -1))
        low, high = whole(case.point[0], case.facts) if case.point else (0, 0)
        for access in loop.near(self.sink.buffer, not self.sink.write, low, high):
            if facts is not None and self.relevant(access, case):
                reach = self.reach(loop, access, case, facts)
                if isinstance(reach, list):
                    return [left for part in reach for left in self.reached(loop, part)]
                if reach is not None:
                    reaches.append(reach)
        if not reaches:
            return [case]
        reach = together(reaches, case.kept[-1], whole(case.kept[-1], case.facts)[1])
        cases = self.steps(loop, [dataclasses.replace(case, kept=(*case.kept, reach.anchor))], reach)
        return [dataclasses.replace(c, kept=c.kept[:-1]) for c in cases]

    def steps(self, loop: SymbolicLoop, cases: list[Case], reach: Reach) -> list[Case]:
        """The iterations that can touch the element; their anchor is the last entry of `kept`."""
        steps, same = max(_STEPS, 2 * reach.period), 0
        for back in range(reach.low, reach.high + 1):
            if same == reach.period and reach.repeats:
                if loop not in self.sink.loops:
                    return cases
                steps = 0
            if back - reach.low >= steps or self.visits <= 0:
                return [left for c in cases for left in self.far(loop, c, back, reach.high)]
            going = [left for c in cases for left in self.step(loop, c, back)]
            going = joined(going)
            if not going:
                return []
            unchanged = [(c.point, c.read_since) for c in going] == [(c.point, c.read_since) for c in cases]
            same = same + 1 if unchanged else 0
            cases = going
        return cases

    def step(self, loop: SymbolicLoop, case: Case, back: Value) -> list[Case]:
        """One iteration, if there is one at this distance before the anchor."""
        upper, anchor = case.kept[-2:]
        number = add(anchor, back, -1)
        signs = [(form, sign(form, case.facts)) for form in (number, add(upper, number, -1))]
        inside, outside = parted(case, [(form, True) for form, known in signs if not known])
        if inside is None:
            return outside
        self.visits -= 1
        self.spend()
        depth = len(case.numbers)
        into = dataclasses.replace(case, facts=inside, numbers=(*case.numbers, number))
        walked = self.children(loop, len(loop.children), [into])
        return [dataclasses.replace(c, numbers=c.numbers[:depth]) for c in walked] + outside

    def far(self, loop: SymbolicLoop, case: Case, low: int, high: int) -> list[Case]:
        """All remaining iterations at once: one stands for all, and ends what each of them ends."""
        upper, anchor = case.kept[-2:]
        number = add(anchor, self.symbols.fresh("o", low, high) if low < high else low, -1)
        facts = not_negative(case.facts, number, add(upper, number, -1))
        if facts is None:
            return [case]
        into = dataclasses.replace(case, facts=facts, numbers=(*case.numbers, number))
        left = self.children(loop, len(loop.children), [into])
        first = add(anchor, -low)
        if not (sign(first, case.facts) and sign(add(upper, first, -1), case.facts)):
            return [case]
        if all(c.read_since for c in left):
            return [dataclasses.replace(case, read_since=True)] if left else []
        return [case]

    def reach(
        self, loop: SymbolicLoop, access: SymbolicAccess, case: Case, facts: Facts
    ) -> Reach | list[Case] | None:
        """The iterations in which one access can touch the element, or cases to retry with."""
        self.spend()
        other = loop.other
        instance = self.instance(case, access.loops)
        instance.facts = facts
        sides: list[tuple[Value, Value]] = []
        for place, (start, stop) in zip(case.point, access.box or (), strict=False):
            sides.append(self.sides(instance, place, start, stop))
        forms = [form for pair in sides for form in pair]
        truths = [(instance.truth(condition), holds) for condition, holds in access.conditions]
        signs = [sign(form, facts) for form in forms]
        if False in signs:
            return None
        undecided = [form for form, known in zip(forms, signs, strict=True) if known is None]
        known: Facts | None = facts
        for truth, holds in truths:
            known = assume(known, truth, holds)
        known = not_negative(known, *undecided, *undecided)
        if known is None:
            return None
        anchored = self.anchor(case, other, sides, facts, known)
        if isinstance(anchored, list):
            return anchored
        upper, (least, most) = case.kept[-1], symbol_bounds(other, known)
        anchor, first, last = anchored or (upper, 0, FAR)
        first = max(first, whole(add(anchor, upper, -1), known)[0], whole(anchor, known)[0] - most)
        last = min(last, whole(anchor, known)[1] - least)
        if first > last:
            return None
        if anchored is not None:
            return Reach(anchor, first, last)
        inner = [instance.value(i.count) for i in access.loops[len(case.numbers) + 1 :]]
        told = [part for part in (*inner, *(truth for truth, _ in truths)) if not isinstance(part, int)]
        periods = [moduli(form, other) for form in forms]
        repeats = None not in periods and not any(mentions(part, other) for part in told)
        period = math.lcm(*(p or 1 for p in periods))
        return Reach(anchor, first, last, repeats, min(period, MOST_DIVISOR))

    def anchor(
        self, case: Case, other: Symbol, sides: Sequence[tuple[Value, Value]], facts: Facts, known: Facts
    ) -> tuple[Value, int, int] | list[Case] | None:
        """The anchor that leaves the fewest possible iterations before it, or cases to retry with."""
        best: tuple[int, Value, int, int] | None = None
        for low, high in sides:
            f = -factor_of(low, other)
            if not f or factor_of(high, other) != f:
                continue
            ends = *whole(low, facts), *whole(high, facts)
            if min(ends) <= -UNIQUE or max(ends) >= UNIQUE:
                continue
            base = substitute(low, other, 0)
            part = uneven(base, f, known)
            if part is not None and self.cuts > 0:
                self.cuts -= _DIVISION
                parted = divided(self.evaluator, case, *part)
                return [] if parted is None else [parted]
            anchor = quotient(base, f)
            cases = self.cut(case, [anchor])
            if cases is not None:
                return cases
            slack = whole(add(base, anchor, -f), known)[1]
            room = whole(add(substitute(high, other, 0), anchor, f), known)[1]
            first, last = (-(slack // f), room // f) if f > 0 else (-(room // -f), slack // -f)
            if best is None or last - first < best[0]:
                best = last - first, anchor, first, last
        return None if best is None else best[1:]
