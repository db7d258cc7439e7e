"""Runs a program over symbolic values and records what every read may see.

The text is structured, so its order is a reverse post-order of the control flow graph, a branch starts from
its immediate dominator's state, and phi nodes stand at the ends of branches and at the heads of loops. Loops
are in `sw.dependence.loops`.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from sw.dependence.cells import Box, Definition, Top
from sw.dependence.conditions import Condition, Truth, assume, between
from sw.dependence.forms import Facts, Value, add, bounds, whole
from sw.dependence.places import Place, Places
from sw.dependence.plan import Plan, make_plan
from sw.dependence.query import Budget, meets, seen
from sw.dependence.region_map import Leaf, change, extent
from sw.dependence.scalars import Evaluator
from sw.dependence.state import Branched, State, unchanged
from sw.dependence.uses import UNIQUE, Use, tight_facts
from sw.ir.expression import Var
from sw.ir.intrinsics import effects
from sw.ir.program import ANY, Access, Assign, If, Instruction, Program, Region, Statement
from sw.ir.types import Kind

ENTRY = "entry"
#: Stands for distances that are not constant or not bounded.
ANY_DISTANCE = "*"
Component = int | str
#: Iterations between a write and a read, per common loop from the outermost.
Distance = tuple[Component, ...]
#: More distances than this of one loop, and of all together, are not listed.
_LISTED, _LISTED_TOGETHER = 1024, 4096
#: Work of a read, of a write, and of a definition of many iterations that a read was compared with, in steps.
_READ_WORK, _WRITE_WORK, _TIGHT_WORK = 2, 2, 15
#: A read may take this part of the steps that are left.
_PART = 50


#: Calls within each other.
_DEEPEST = 20_000


@dataclass(frozen=True, slots=True)
class Seen:
    """One source of one read: where it is seen, and from how far."""

    use: str
    read: int
    source: str
    write: int
    buffer: str
    areas: tuple[Box, ...]
    iteration: tuple[Value, ...]
    source_iteration: tuple[Value, ...]


@dataclass
class Record:
    """What was found so far: sources and distances by use, and details where asked for."""

    sources: dict[str, dict[str, set[Distance]]] = field(default_factory=dict)
    details: list[Seen] | None = None


_Step = Callable[["Executor", Instruction], None]
Watch = tuple[_Step, _Step, Callable[["Executor", Definition, Box | None], None]]


class TooMuchWorkError(Exception):
    """A loop costs more than it may; what was done is to be taken back."""


@dataclass
class Executor:
    """The state while a program is run; `recording` is off where a run only prepares another one."""

    program: Program
    state: State
    plan: Plan
    record: Record
    places: Places
    extents: dict[str, Box] = field(default_factory=dict)
    order: dict[str, int] = field(default_factory=dict)
    loops: tuple[int, ...] = ()
    iteration: tuple[Value, ...] = ()
    recording: bool = True
    #: Distances of definitions of many iterations that reads of the present loop have seen.
    swept_seen: list[Definition] = field(default_factory=list)
    #: Steps of walks that are left, besides the few that every read has.
    steps: int = 0
    #: Steps, definitions and distances so far, and what they may be in the present outermost loop.
    work: int = 0
    limit: int = 1 << 60
    #: Outermost loops that cost too much, less those that did not.
    failures: int = 0
    #: Called before and after every instruction, and after every definition.
    watch: Watch | None = None
    effects: dict[int, tuple[tuple[Access, ...], tuple[Access, ...]]] = field(default_factory=dict)

    @property
    def simple(self) -> bool:
        """Nobody asks what happens in between."""
        return self.watch is None and self.record.details is None

    # Statements

    def body(self, body: tuple[Statement, ...]) -> None:
        """Statements one after the other."""
        for s in body:
            if self.state.dead:
                return
            if isinstance(s, Instruction):
                self.instruction(s)
            elif isinstance(s, Assign):
                self.state.set_value(s.target, self.state.evaluator.value(s.value, self.state.facts))
            elif isinstance(s, If):
                self.branch(s)
            else:
                from sw.dependence.loops import loop

                loop(self, s)

    def branch(self, s: If) -> None:
        """Both bodies from the state before, then the phi node."""
        condition = self.state.evaluator.truth(s.condition, self.state.facts)
        if isinstance(condition, int):
            self.body(s.body if condition else s.orelse)
            return
        state = self.state
        first = self.under(condition, True, s.body)
        second = self.under(condition, False, s.orelse) if s.orelse else unchanged()
        state.merge(condition, first, second)
        state.dead = first.dead and second.dead

    def under(self, condition: Condition, holds: bool, body: tuple[Statement, ...]) -> Branched:
        """A body where a condition holds or does not; the state is as before afterwards."""
        state = self.state
        state.open()
        facts = assume(state.facts, condition, holds)
        if facts is None:
            state.dead = True
        else:
            state.facts = facts
            self.body(body)
        return state.undo()

    def instruction(self, s: Instruction) -> None:
        """Uses before definitions (dependence.md, "Method", 4)."""
        if self.watch is not None:
            self.watch[0](self, s)
            self.effect(s)
            self.watch[1](self, s)
        else:
            self.effect(s)

    def effect(self, s: Instruction) -> None:
        """What an instruction reads and writes."""
        state = self.state
        happens: Truth = 1
        facts = state.facts
        if s.when is not None:
            happens = state.evaluator.truth(s.when, facts)
            if happens == 0:
                return
            assumed = assume(facts, happens)
            if assumed is None:
                return
            facts = assumed
        found = self.effects.get(id(s))
        if found is None:
            found = self.effects[id(s)] = effects(s)
        reads, writes = found
        places = [self.places.place(a, facts) if isinstance(a, Region) else None for a in (*reads, *writes)]
        if any(p is not None and p.outside for p in places):
            if happens == 1:
                state.dead = True
            return
        if self.recording:
            for index, (access, place) in enumerate(zip(reads, places, strict=False)):
                self.read(s, index, access, place, facts)
        for index, (access, place) in enumerate(zip(writes, places[len(reads) :], strict=True)):
            self.write(s, index, access, place, happens, facts)

    # Accesses

    def read(self, s: Instruction, index: int, access: Access, place: Place | None, facts: Facts) -> None:
        """Record what a read sees."""
        if access is ANY:
            for buffer in self.state.maps:
                self.see(s, index, buffer, Use(None, self.whole_hull(buffer), facts))
            return
        assert isinstance(access, Region)
        if place is not None and place.hull is not None:
            known = (
                facts if len(place.box) == 0 or place.box == place.hull else self.inside(access, place, facts)
            )
            if known is not None:
                self.see(s, index, access.buffer, Use(place.box, place.hull, known))

    def inside(self, access: Region, place: Place, facts: Facts) -> Facts | None:
        """What follows from a region not being empty and lying inside of its buffer; None if it cannot."""
        known: Facts | None = facts
        for (start, stop), size in zip(place.box, self.places.sizes[access.buffer], strict=True):
            limit = bounds(size)[1]
            for form, low in ((add(stop, start, -1), 1), (start, 0), (stop, 1)):
                if isinstance(form, int) or known is None:
                    continue
                least, most = whole(form, known)
                # The form is the number itself if no other number modulo 2^32 can be.
                if least > -UNIQUE and most < UNIQUE:
                    known = assume(known, between(form, low, limit))
        return known

    def whole_hull(self, buffer: str) -> Box:
        """All of a buffer."""
        return tuple((0, max(1, bounds(size)[1])) for size in self.places.sizes[buffer])

    def see(
        self, s: Instruction, index: int, buffer: str, use: Use, part: int = _PART, more: bool = False
    ) -> None:
        """Record what is alive for a use of one buffer; its walk may take one `part`-th of the steps left.

        `part` is 0 for what was before a loop.

        `more`: this is a further part of a read, which has had the few steps of its own.
        """
        details = self.record.details
        if part:
            allowed = (0 if more else self.plan.least_steps) + self.steps // part
        else:
            allowed = self.plan.steps_before
        budget = Budget(allowed)
        found = seen(self.state.maps[buffer], self.extents[buffer], use, budget, details is not None)
        self.steps = max(0, self.steps - (allowed - max(0, budget.steps)))
        self.work += allowed - budget.steps + len(found) + _TIGHT_WORK * len(use.tight) + _READ_WORK
        if self.work > self.limit:
            raise TooMuchWorkError
        sources = self.record.sources[s.label]
        for d, areas in found.items():
            facts = use.facts
            common = d.loops and self.loops and d.loops[0] == self.loops[0]
            if not common and details is None and d.label in sources:
                continue
            if d.swept:
                if common:
                    tight = tight_facts(d, use)
                    if tight is None:
                        continue
                    facts = tight
                elif not meets(d, use):
                    continue
                self.swept_seen.append(d)
            distances = sources.setdefault(d.label, set())
            if common:
                listed = self.distances(s, d, facts)
                self.work += len(listed)
                distances.update(listed)
            if details is not None:
                details.append(
                    Seen(s.label, index, d.label, d.index, buffer, tuple(areas), self.iteration, d.iteration)
                )

    def distances(self, s: Instruction, d: Definition, facts: Facts) -> list[Distance]:
        """How many iterations of the common loops lie between a definition and the present use."""
        components: list[list[Component]] = []
        for loop, other, now, then in zip(self.loops, d.loops, self.iteration, d.iteration, strict=False):
            if loop != other:
                break
            apart = add(now, then, -1)
            low, high = whole(apart, facts)
            components.append(list(range(low, high + 1)) if high - low < _LISTED else [ANY_DISTANCE])
        if not components:
            return []
        count = 1
        for c in components:
            count *= len(c)
        for c in sorted(components, key=len, reverse=True):
            if count <= _LISTED_TOGETHER:
                break
            count //= len(c)
            c[:] = [ANY_DISTANCE]
        found: list[Distance] = [()]
        for c in components:
            found = [(*f, n) for f in found for n in c]
        earlier = self.order[d.label] < self.order[s.label]
        return [f for f in found if _forward(f, earlier)]

    def write(
        self, s: Instruction, index: int, access: Access, place: Place | None, happens: Truth, facts: Facts
    ) -> None:
        """A definition of one or, at an unknown address, of every buffer."""
        if access is ANY:
            for buffer in self.state.maps:
                d = Definition(s.label, index, self.loops, self.iteration, buffer, None, happens, sure=False)
                d.hull = self.whole_hull(buffer)
                self.define(d, d.hull, None)
            return
        assert isinstance(access, Region)
        if place is None or place.hull is None:
            return
        d = Definition(s.label, index, self.loops, self.iteration, access.buffer, place.box, happens)
        self.define(d, place.hull, place.sure if happens == 1 else None)

    def define(self, d: Definition, hull: Box, sure: Box | None) -> None:
        """Put a definition over its hull, in place of all that was before where it surely writes."""
        self.work += _WRITE_WORK
        state, extents = self.state, self.extents[d.buffer]
        d.hull = hull
        d.exact = d.box == hull
        node = state.maps[d.buffer]
        if sure != hull:
            node = change(node, extents, hull, d)
        if sure is not None:
            node = change(node, extents, sure, Leaf(Top(d)))
        state.set_map(d.buffer, node)
        if self.watch is not None:
            self.watch[2](self, d, sure)


def _forward(distance: Distance, earlier: bool) -> bool:
    """Whether a distance goes forward in time; `earlier`: the write stands before the read in the text."""
    for n in distance:
        if isinstance(n, str) or n > 0:
            return True
        if n < 0:
            return False
    return earlier


def execute(program: Program, details: bool = False, watch: Watch | None = None) -> Record:
    """Run the analysis over a program."""
    # Maps and chains have no cycles; looking for some among millions of nodes costs a third of the time.
    collecting, depth = gc.isenabled(), sys.getrecursionlimit()
    gc.disable()
    # A chain of `elif` is as deep as it is long.
    sys.setrecursionlimit(max(depth, _DEEPEST))
    try:
        machine = _machine(program, details, watch)
        machine.body(program.body)
        return machine.record
    finally:
        sys.setrecursionlimit(depth)
        if collecting:
            gc.enable()


def _machine(program: Program, details: bool, watch: Watch | None) -> Executor:
    """The state before a program: every buffer holds what it held on entry."""
    evaluator = Evaluator()
    for p in program.parameters:
        if p.type.kind is not Kind.BOOL and p.type.high - p.type.low == 1:
            evaluator.values[p.name] = p.type.low
        else:
            evaluator.values[p.name] = evaluator.unknown(Var(p.name, p.type))
    state = State(evaluator)
    plan = make_plan(program)
    record = Record({label: {} for label in plan.order}, [] if details else None)
    machine = Executor(
        program, state, plan, record, Places(evaluator), order=plan.order, steps=plan.steps, watch=watch
    )
    for buffer in program.buffers:
        sizes = tuple(evaluator.integer(size, state.facts) for size in buffer.shape)
        machine.places.sizes[buffer.name] = sizes
        machine.extents[buffer.name] = tuple((0, extent(max(1, bounds(size)[1]))) for size in sizes)
        entry = Definition(ENTRY, 0, (), (), buffer.name, None)
        entry.hull = machine.whole_hull(buffer.name)
        state.maps[buffer.name] = Leaf(Top(entry))
    return machine
