"""Iterations of a loop taken together: what they may write, and what they surely write."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sw.dependence.cells import Definition, SymbolicBox
from sw.dependence.conditions import Truth, assume
from sw.dependence.forms import (
    PLACES,
    Facts,
    Form,
    Symbol,
    Value,
    add,
    bounds,
    depends,
    factor_of,
    substitute,
    whole,
)
from sw.ir.intrinsics import effects
from sw.ir.program import ANY, Assign, For, If, Instruction, Region, Statement, While

if TYPE_CHECKING:
    from sw.dependence.execute import Executor
    from sw.dependence.heads import Head
    from sw.dependence.places import Place
    from sw.dependence.plan import LoopPlan

ENDLESS = 1 << 40
_NEAR = PLACES >> 1


@dataclass
class Write:
    """A write of a loop's body in one iteration: where, and what it surely covers (None: maybe nothing)."""

    definition: Definition
    sure: SymbolicBox | None


@dataclass
class Summary:
    """The writes of a body in one iteration, or the most iterations that its regions allow."""

    writes: list[Write] = field(default_factory=list)
    most: int = ENDLESS


def summarise(ex: Executor, head: Head, plan: LoopPlan, number: Value, writes: bool = True) -> Summary:
    """The writes of one iteration of a loop; scalars change in the state, memory does not.

    Without `writes` the most iterations are asked for, else only the writes.
    """
    summary = Summary()
    _Walker(ex, summary, writes).iteration(head, plan, number, True)
    return summary


@dataclass
class _Walker:
    """Collects writes; the state's facts and scalars are those of the place."""

    ex: Executor
    summary: Summary
    #: Whether writes are asked for.
    writes: bool

    def iteration(self, head: Head, plan: LoopPlan, number: Value, certain: bool) -> None:
        from sw.dependence.heads import value_at

        ex, s = self.ex, head.s
        if isinstance(s, For):
            ex.state.set_value(s.variable, value_at(ex, head, number))
        loops, iteration = ex.loops, ex.iteration
        ex.loops, ex.iteration = (*loops, plan.number), (*iteration, number)
        self.body(s.body, certain)
        ex.loops, ex.iteration = loops, iteration

    def body(self, body: tuple[Statement, ...], certain: bool) -> None:
        ex = self.ex
        for s in body:
            if isinstance(s, Instruction):
                self.instruction(s, certain)
            elif isinstance(s, Assign):
                ex.state.set_value(s.target, ex.state.evaluator.value(s.value, ex.state.facts))
            elif isinstance(s, If):
                self.branch(s, certain)
            else:
                self.loop(s, certain)

    def branch(self, s: If, certain: bool) -> None:
        state = self.ex.state
        condition = state.evaluator.truth(s.condition, state.facts)
        if isinstance(condition, int):
            self.body(s.body if condition else s.orelse, certain)
            return
        ends = []
        for body, holds in ((s.body, True), (s.orelse, False)):
            state.open()
            facts = assume(state.facts, condition, holds)
            if facts is None:
                state.dead = True
            else:
                state.facts = facts
                self.body(body, False)
            ends.append(state.undo())
        dead = ends[0].dead and ends[1].dead
        state.merge(condition, *ends)
        state.dead = False if not dead else state.dead

    def loop(self, s: For | While, certain: bool) -> None:
        from sw.dependence.heads import head_of
        from sw.dependence.loops import restart

        ex = self.ex
        head = head_of(ex, s)
        plan = ex.plan.loops[id(s)]
        most = head.most
        if most == 0:
            return
        # Made before everything else of the loop, so that what varies in it has a higher number.
        symbol = ex.state.evaluator.symbols.fresh("j", 0, most - 1)
        restart(ex, head, plan)
        if self.writes:
            # Without them nothing in here counts: loops further in limit themselves only.
            first = len(self.summary.writes)
            at_least = self.summary.most
            self.iteration(head, plan, symbol, certain)
            self.summary.writes[first:] = _at_the_end(self.summary.writes[first:])
            self.summary.most = at_least
            count = exact_count(head)
            for write in self.summary.writes[first:]:
                if write.sure is not None:
                    write.sure = (
                        swept(write.sure, symbol.terms[0][0], count, ex) if count is not None else None
                    )
            restart(ex, head, plan)
        if isinstance(s, For):
            ex.state.forget(s.variable)

    def instruction(self, s: Instruction, certain: bool) -> None:
        ex = self.ex
        facts = ex.state.facts
        happens: Truth = 1
        if s.when is not None:
            happens = ex.state.evaluator.truth(s.when, facts)
            if happens == 0:
                return
        reads, writes = effects(s)
        surely = certain and happens == 1
        if not (surely or self.writes):
            return
        for index, access in enumerate(writes):
            if access is ANY:
                for buffer in ex.state.maps:
                    d = Definition(
                        s.label, index, ex.loops, ex.iteration, buffer, None, happens, False, swept=True
                    )
                    d.hull = ex.whole_hull(buffer)
                    self.summary.writes.append(Write(d, None))
                continue
            assert isinstance(access, Region)
            place = ex.places.place(access, facts)
            if not self.writes:
                self.limit(access.buffer, place, facts)
                continue
            if place.hull is None:
                continue
            d = Definition(
                s.label, index, ex.loops, ex.iteration, access.buffer, place.box, happens, False, swept=True
            )
            d.hull = place.hull
            self.summary.writes.append(Write(d, place.box if surely else None))
        if not self.writes:
            for access in reads:
                if isinstance(access, Region) and len(access.box) == 1:
                    self.limit(access.buffer, ex.places.place(access, facts), facts)

    def limit(self, buffer: str, place: Place, facts: Facts) -> None:
        """No iteration gets past the one whose region of one dimension certainly leaves its buffer."""
        ex = self.ex
        numbers = ex.iteration[-1]
        if len(place.box) != 1 or isinstance(numbers, int) or len(numbers.terms) != 1:
            return
        symbol, own = numbers.terms[0]
        (start, stop), size = place.box[0], bounds(ex.places.sizes[buffer][0])[1]
        length = add(stop, start, -1)
        if own != 1 or not isinstance(length, int) or length <= 0 or isinstance(start, int):
            return
        f = factor_of(start, symbol)
        rest = substitute(start, symbol, 0)
        if depends(rest, symbol) or abs(f) > _NEAR >> 3 or size > _NEAR:
            return
        low, high = whole(rest, facts)
        if low < -_NEAR or high > _NEAR:
            return
        # Every iteration before it stayed inside, so none of its numbers has wrapped.
        if f > 0:
            self.summary.most = min(self.summary.most, max(0, (size - length - low) // f + 1))
        elif f < 0:
            self.summary.most = min(self.summary.most, max(0, high // -f + 1))


def exact_count(head: Head) -> Value | None:
    """The number of iterations, negative or 0 for none."""
    if head.step is None:
        return None
    span = add(head.stop, head.start, -1) if head.step > 0 else add(head.start, head.stop, -1)
    if isinstance(span, int):
        return -(-span // abs(head.step))
    return span if abs(head.step) == 1 else None


def swept(box: SymbolicBox, symbol: Symbol, count: Value, ex: Executor) -> SymbolicBox | None:
    """What a box covers together with its shifts by 0 to `count` - 1 iterations; None: maybe nothing.

    The box may have a factor of the symbol in one dimension only, where shifts must leave no gap.
    """
    facts = ex.state.facts
    found: list[tuple[Value, Value]] = []
    moved = False
    at_least_one = whole(count, facts)[0] >= 1
    for start, stop in box:
        f = factor_of(start, symbol)
        first, end = substitute(start, symbol, 0), substitute(stop, symbol, 0)
        varies = [s.number > symbol.number for v in (first, end) if isinstance(v, Form) for s, _ in v.terms]
        if f != factor_of(stop, symbol) or depends(first, symbol) or depends(end, symbol) or any(varies):
            return None
        if f == 0:
            found.append((start, stop))
            continue
        length = add(end, first, -1)
        if moved or abs(f) > PLACES >> 4 or not isinstance(length, int) or length < abs(f):
            return None
        moved = True
        if f > 0:
            last = add(add(end, count, f), -f) if at_least_one else add(first, count, f)
            found.append((first, last))
        else:
            low = add(add(first, count, f), -f) if at_least_one else add(end, count, f)
            found.append((low, end))
    return tuple(found) if moved or at_least_one else None


def apply_summary(ex: Executor, summary: Summary, back: Form, last: Value, skip: int) -> None:
    """Put the iterations 0 to `last` - `skip` into the state; `back` is the symbol of how far back.

    First what they surely cover together is killed, then each write is put on top. Of a write that every
    iteration repeats at the same place only the last one can be seen, and of writes that are overwritten by
    the end of their own iteration none.
    """
    symbol = back.terms[0][0]
    count = add(add(last, -skip), 1)
    counter = ex.state.evaluator.symbols.fresh("j", 0, symbol.high)
    forward = add(last, counter, -1)
    writes = _at_the_end(summary.writes)
    again: list[tuple[Definition, Place]] = []
    others: list[Definition] = []
    for write in writes:
        d = write.definition
        if write.sure is None or any(_varies(v, symbol) for pair in write.sure for v in pair):
            others.append(d)
            continue
        fixed = d.box == write.sure and not any(depends(v, symbol) for pair in write.sure for v in pair)
        if fixed:
            d.iteration = tuple(substitute(n, symbol, skip) for n in d.iteration)
        together = swept(_replaced(write.sure, symbol, forward), counter.terms[0][0], count, ex)
        place = None if together is None else ex.places.placed(d.buffer, together, ex.state.facts)
        if fixed and place is not None and place.hull is not None:
            d.swept, d.sure = False, True
            again.append((d, place))
            continue
        others.append(d)
        if place is not None and place.hull is not None:
            kill = Definition(d.label, d.index, d.loops, d.iteration, d.buffer, together, visible=False)
            ex.define(kill, place.hull, place.sure)
    for d, place in again:
        assert place.hull is not None
        ex.define(d, place.hull, place.sure)
    for d in others:
        if d.box is not None:
            # Counted from the first iteration the bounds are closer than counted from the last one.
            hull = ex.places.placed(d.buffer, _replaced(d.box, symbol, forward), ex.state.facts).hull
            both = (
                ()
                if hull is None
                else tuple((max(a, p), min(b, q)) for (a, b), (p, q) in zip(d.hull, hull, strict=True))
            )
            if both and all(a < b for a, b in both):
                d.hull = both
        ex.define(d, d.hull, None)


def _replaced(box: SymbolicBox, symbol: Symbol, by: Value) -> SymbolicBox:
    return tuple((substitute(start, symbol, by), substitute(stop, symbol, by)) for start, stop in box)


def _at_the_end(writes: list[Write]) -> list[Write]:
    """The writes of an iteration without those that a later one of it surely covers with an equal box."""
    covered: set[tuple[str, SymbolicBox]] = set()
    found = []
    for write in reversed(writes):
        d = write.definition
        if d.box is None or (d.buffer, d.box) not in covered:
            found.append(write)
        # One that moves with a loop further in may have been at an element before the earlier one.
        if write.sure is not None and write.sure == d.box:
            covered.add((d.buffer, write.sure))
    return found[::-1]


def _varies(value: Value, symbol: Symbol) -> bool:
    """Whether a number may differ between iterations in a way that is not a factor of their number."""
    if isinstance(value, int):
        return False
    # Whatever was made after the symbol was made for one iteration.
    return any(
        s.number > symbol.number or (s is not symbol and depends(Form(((s, 1),)), symbol))
        for s, _ in value.terms
    )
