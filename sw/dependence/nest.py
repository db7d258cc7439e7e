"""An outermost loop as data: its accesses with their symbolic places, in a tree of loops.

This is what the analysis of whole loops works on (`sw.dependence.unrolled`, `sw.dependence.steady`): the
body is walked once, with a symbol for the number of the iteration of every loop, and memory is not touched.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from sw.dependence.cells import Box, SymbolicBox
from sw.dependence.conditions import Condition, Truth, assume
from sw.dependence.execute import Executor
from sw.dependence.forms import Symbol
from sw.dependence.heads import ENDLESS, Head, head_of, value_at
from sw.dependence.loops import restart
from sw.dependence.sweep import exact_count
from sw.ir.intrinsics import effects
from sw.ir.program import Assign, For, If, Instruction, Region, Statement

#: More loops than stand around anything.
NEVER = 1 << 30


@dataclass(eq=False)
class Level:
    """A loop: the symbol of its iteration's number, and how many it has (None: not known)."""

    number: int
    symbol: Symbol
    count: int | None
    carried: bool


@dataclass(eq=False, slots=True)
class Access:
    """One access of an instruction: where it may be, for all iterations together as well.

    `box` is None for an unknown address. `certain` is the first loop, counted from
    the outermost, each of whose iterations surely has this access. `slot` is its place in the text.
    """

    instruction: Instruction
    index: int
    write: bool
    buffer: str
    box: SymbolicBox | None
    hull: Box
    certain: int
    levels: tuple[Level, ...]
    slot: int
    #: What it stands under, and whether that holds or does not where it happens.
    conditions: tuple[tuple[Condition, bool], ...] = ()


@dataclass(eq=False)
class Nest:
    """A loop and what is in it, in the order of the text; `size` counts the instructions."""

    level: Level
    children: list[Access | Nest] = field(default_factory=list)
    size: int = 0
    #: All regions are sums and inside of their buffers.
    plain: bool = True

    def accesses(self) -> Iterator[Access]:
        """All accesses in it."""
        for child in self.children:
            if isinstance(child, Nest):
                yield from child.accesses()
            else:
                yield child

    def nests(self) -> Iterator[Nest]:
        """The loop itself and all in it."""
        yield self
        for child in self.children:
            if isinstance(child, Nest):
                yield from child.nests()


def collect(ex: Executor, head: Head, most: int) -> Nest:
    """The tree of a loop of at most so many iterations; the executor's state stays as it is."""
    ex.state.open()
    recording, ex.recording = ex.recording, False
    nest = _Collector(ex).loop(head, most, 0)
    ex.recording = recording
    ex.state.undo()
    return nest


@dataclass
class _Collector:
    """The state's facts and scalars are those of the place."""

    ex: Executor
    levels: tuple[Level, ...] = ()
    into: list[Access | Nest] = field(default_factory=list)
    slot: int = 0
    size: int = 0
    plain: bool = True
    conditions: tuple[tuple[Condition, bool], ...] = ()

    def loop(self, head: Head, most: int, certain: int) -> Nest:
        ex, s = self.ex, head.s
        plan = ex.plan.loops[id(s)]
        symbol = ex.state.evaluator.symbols.fresh("i", 0, max(0, most - 1))
        count = exact_count(head)
        known = count if isinstance(count, int) else None
        level = Level(plan.number, symbol.terms[0][0], known, bool(plan.carried))
        nest = Nest(level)
        restart(ex, head, plan)
        if isinstance(s, For):
            ex.state.set_value(s.variable, value_at(ex, head, symbol))
        outer = self.levels, self.into, self.size, self.plain
        self.levels, self.into, self.size, self.plain = (*self.levels, level), nest.children, 0, True
        self.body(s.body, certain if known or len(self.levels) == 1 else max(certain, len(self.levels) - 1))
        nest.size, nest.plain = self.size, self.plain
        self.levels, self.into, self.size, self.plain = outer
        self.size += nest.size
        self.plain = self.plain and nest.plain
        restart(ex, head, plan)
        if isinstance(s, For):
            ex.state.forget(s.variable)
        return nest

    def body(self, body: tuple[Statement, ...], certain: int) -> None:
        ex = self.ex
        for s in body:
            if isinstance(s, Instruction):
                self.instruction(s, certain)
            elif isinstance(s, Assign):
                ex.state.set_value(s.target, ex.state.evaluator.value(s.value, ex.state.facts))
            elif isinstance(s, If):
                self.branch(s, certain)
            else:
                head = head_of(ex, s)
                most = min(head.most, ENDLESS)
                if most:
                    self.into.append(self.loop(head, most, certain))

    def branch(self, s: If, certain: int) -> None:
        state = self.ex.state
        condition = state.evaluator.truth(s.condition, state.facts)
        if isinstance(condition, int):
            self.body(s.body if condition else s.orelse, certain)
            return
        ends, outer = [], self.conditions
        for body, holds in ((s.body, True), (s.orelse, False)):
            state.open()
            facts = assume(state.facts, condition, holds)
            if facts is None:
                state.dead = True
            else:
                state.facts, self.conditions = facts, (*outer, (condition, holds))
                self.body(body, NEVER)
            ends.append(state.undo())
        self.conditions = outer
        if not (ends[0].dead and ends[1].dead):
            state.merge(condition, *ends)

    def instruction(self, s: Instruction, certain: int) -> None:
        ex = self.ex
        facts = ex.state.facts
        happens: Truth = 1
        conditions = self.conditions
        if s.when is not None:
            happens = ex.state.evaluator.truth(s.when, facts)
            if happens == 0:
                return
            if isinstance(happens, Condition):
                certain, conditions = NEVER, (*conditions, (happens, True))
        reads, writes = effects(s)
        self.size += 1
        self.slot += 1
        for write, accesses in ((False, reads), (True, writes)):
            for index, access in enumerate(accesses):
                if not isinstance(access, Region):
                    self.plain = False
                    for buffer in ex.state.maps:
                        hull = ex.whole_hull(buffer)
                        self.add(Access(s, index, write, buffer, None, hull, NEVER, self.levels, self.slot))
                    continue
                place = ex.places.placed(access.buffer, ex.places.box(access, facts), facts)
                if place.outside:
                    self.plain = False
                if place.hull is not None:
                    box = place.box
                    self.add(
                        Access(
                            s,
                            index,
                            write,
                            access.buffer,
                            box,
                            place.hull,
                            certain,
                            self.levels,
                            self.slot,
                            conditions,
                        )
                    )

    def add(self, access: Access) -> None:
        self.into.append(access)
