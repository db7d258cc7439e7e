"""A program as a tree of loops and accesses, with symbolic regions: what the analysis of edges works on.

The text is walked once, with a symbol for the number of the iteration of every loop. Branches become
conditions of the accesses in them, and scalars are replaced by their values.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from sw.dependence.conditions import Condition, Truth, assume
from sw.dependence.forms import Facts, Symbol, Terms, Value, add, bounds, fits, scale, whole
from sw.dependence.index import Indexed, RegionIndex, Spans, region_index
from sw.dependence.places import Box, Places, SymbolicBox
from sw.dependence.scalars import Evaluator
from sw.dependence.state import ScalarState
from sw.ir.expression import Op, Var
from sw.ir.intrinsics import effects
from sw.ir.program import Assign, For, If, Instruction, Program, Region, Statement, While
from sw.ir.types import BOOL, HIGH, INT, Kind
from sw.ir.walk import statements

#: More iterations than any loop has.
ENDLESS = HIGH - 1


@dataclass(eq=False)
class SymbolicLoop:
    """A loop, or the whole program: `symbol` is the number of its iteration, `count` how many it has.

    `other` is a second symbol for another iteration of it. Symbols with numbers from `first` to `last` may
    have another value in every iteration. `around` are the loops around it, outermost first, `position` is
    its place among the children of the innermost of them.
    """

    symbol: Symbol
    other: Symbol
    count: Value
    first: int = 0
    last: int = 0
    around: tuple[SymbolicLoop, ...] = ()
    position: int = 0
    children: list[SymbolicLoop | SymbolicAccess] = field(default_factory=list)
    #: By buffer the children that access it, all accesses further in, and those as few that stand for all.
    by_buffer: dict[str, list[SymbolicLoop | SymbolicAccess]] = field(default_factory=dict)
    accesses: dict[str, list[SymbolicAccess]] = field(default_factory=dict)
    hulls: dict[str, list[SymbolicAccess]] = field(default_factory=dict)
    indices: dict[tuple[str, bool], RegionIndex] = field(default_factory=dict)
    spans: dict[tuple[str, bool], Spans] = field(default_factory=dict)

    def near(self, buffer: str, writes: bool, low: int, high: int) -> Iterator[SymbolicAccess]:
        """Those of the few that may touch a place of the first dimension between two."""
        key = buffer, writes
        if key not in self.spans:
            spans = []
            for n, access in enumerate(self.hulls[buffer]):
                begin, end = access.hull[0] if access.hull else (0, 1)
                if access.write or not writes:
                    spans.append((begin, end - 1, n))
            self.spans[key] = Spans(spans)
        found = len(self.hulls[buffer])
        while (found := self.spans[key].last(low, high, found)) >= 0:
            yield self.hulls[buffer][found]

    def index(self, buffer: str, writes: bool) -> RegionIndex:
        """The children that access a buffer, or write it, by their regions."""
        found = self.indices.get((buffer, writes))
        if found is None:
            regions = []
            for child in self.by_buffer.get(buffer, ()):
                if isinstance(child, SymbolicLoop):
                    first = child.symbol.number
                    inner = [a for a in child.hulls[buffer] if a.write or not writes]
                    regions += [Indexed(child.position, a.box, first) for a in inner]
                elif child.write or not writes:
                    regions.append(Indexed(child.position, child.box))
            dimensions = len(self.accesses[buffer][0].hull) if regions else 0
            found = self.indices[buffer, writes] = region_index(regions, dimensions)
        return found


@dataclass(eq=False, slots=True)
class SymbolicAccess:
    """One access of an instruction: where it may be, for all iterations together in `hull`.

    `box` is None for an unknown address. `loops` are those around it, outermost first, `conditions` what it
    stands under, and whether that holds or does not where it happens. `slot` is the instruction's place in
    the text, `position` that of the access among the children of its loop.
    """

    instruction: Instruction
    index: int
    write: bool
    buffer: str
    box: SymbolicBox | None
    hull: Box
    loops: tuple[SymbolicLoop, ...]
    conditions: tuple[tuple[Condition, bool], ...]
    slot: int
    position: int


@dataclass
class AccessTree:
    """The loops and accesses of a program; `facts` say what always holds."""

    evaluator: Evaluator
    root: SymbolicLoop
    sizes: dict[str, tuple[Value, ...]]

    def accesses(self) -> Iterator[SymbolicAccess]:
        """All accesses, by buffer in the order of the text."""
        for found in self.root.accesses.values():
            yield from found


def common_loops(first: SymbolicAccess, second: SymbolicAccess) -> int:
    """How many loops stand around both accesses."""
    pairs = zip(first.loops, second.loops, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] is pair[1], pairs))


def access_tree(program: Program) -> AccessTree:
    """The tree of a program."""
    evaluator = Evaluator()
    for p in program.parameters:
        if p.type.kind is not Kind.BOOL and p.type.high - p.type.low == 1:
            evaluator.values[p.name] = p.type.low
        else:
            evaluator.values[p.name] = evaluator.unknown(Var(p.name, p.type))
    state, places = ScalarState(evaluator), Places(evaluator)
    for buffer in program.buffers:
        places.sizes[buffer.name] = tuple(evaluator.integer(size, state.facts) for size in buffer.shape)
    nowhere = evaluator.symbols.fresh("program", 0, 0).terms[0][0]
    root = SymbolicLoop(nowhere, nowhere, 1)
    _Collector(state, places, root).body(program.body)
    return AccessTree(evaluator, root, places.sizes)


def _together(accesses: list[SymbolicAccess]) -> list[SymbolicAccess]:
    """For accesses whose regions differ by constants alone one that touches what any of them does."""
    found: dict[object, list[SymbolicAccess]] = {}
    for a in accesses:
        terms = None if a.box is None else tuple((_terms(start), _terms(stop)) for start, stop in a.box)
        found.setdefault((a.write, a.loops, a.conditions, terms), []).append(a)
    return [_hull_of(near) for same in found.values() for near in _clusters(same)]


def _clusters(accesses: list[SymbolicAccess]) -> Iterator[list[SymbolicAccess]]:
    """Accesses in groups that meet along the first dimension."""
    if not accesses[0].hull:
        yield accesses
        return
    group: list[SymbolicAccess] = []
    end = 0
    for a in sorted(accesses, key=lambda a: a.hull[0][0]):
        if group and a.hull[0][0] > end:
            yield group
            group, end = [], 0
        group.append(a)
        end = max(end, a.hull[0][1])
    yield group


def _terms(value: Value) -> Terms:
    return () if isinstance(value, int) else value.terms


def _hull_of(accesses: list[SymbolicAccess]) -> SymbolicAccess:
    """The access to all that some touch whose regions differ by constants."""
    first = accesses[0]
    if len(accesses) == 1:
        return first
    hull = tuple(
        (min(low for low, _ in sides), max(high for _, high in sides))
        for sides in zip(*(a.hull for a in accesses), strict=True)
    )
    if first.box is None:
        return dataclasses.replace(first, hull=hull)
    box = []
    for axis, (start, stop) in enumerate(first.box):
        boxes = [a.box[axis] for a in accesses if a.box is not None]
        low = min(_apart(begin, start) for begin, _ in boxes)
        high = max(_apart(end, stop) for _, end in boxes)
        box.append((add(start, low), add(stop, high)))
    return dataclasses.replace(first, box=tuple(box), hull=hull)


def _apart(a: Value, b: Value) -> int:
    """The difference of two numbers of the same terms."""
    found = add(a, b, -1)
    assert isinstance(found, int)
    return found


@dataclass
class _Collector:
    """Walks the text; the facts and scalars of `state` are those of the place."""

    state: ScalarState
    places: Places
    loop: SymbolicLoop
    loops: tuple[SymbolicLoop, ...] = ()
    slot: int = 0
    conditions: tuple[tuple[Condition, bool], ...] = ()

    def body(self, body: tuple[Statement, ...]) -> None:
        state = self.state
        for s in body:
            if state.dead:
                return
            if isinstance(s, Instruction):
                self.instruction(s)
            elif isinstance(s, Assign):
                state.set_value(s.target, state.evaluator.value(s.value, state.facts))
            elif isinstance(s, If):
                self.branch(s)
            else:
                self.iterations(s)

    def iterations(self, s: For | While) -> None:
        """A loop: its body once, with a symbol for the iteration."""
        state, symbols = self.state, self.state.evaluator.symbols
        start, step, count = self.head(s)
        most = min(ENDLESS, count if isinstance(count, int) else whole(count)[1])
        if most <= 0:
            return
        number = symbols.fresh("i", 0, most - 1)
        symbol, other = number.terms[0][0], symbols.fresh("j", 0, most - 1).terms[0][0]
        made = SymbolicLoop(symbol, other, count, symbols.count + 1, around=self.loops)
        targets = {t.target: t.value.kind for t in statements(s.body) if isinstance(t, Assign)}
        self.forget(targets)
        if isinstance(s, For):
            value = symbols.fresh(s.variable) if step is None else add(start, scale(number, step))
            state.set_value(s.variable, value)
        made.position = len(self.loop.children)
        outer = self.loop, self.loops
        self.loop.children.append(made)
        self.loop, self.loops = made, (*self.loops, made)
        self.body(s.body)
        self.loop, self.loops = outer
        made.last = symbols.count
        for buffer, found in made.accesses.items():
            inner = [
                a
                for child in made.by_buffer[buffer]
                for a in (child.hulls[buffer] if isinstance(child, SymbolicLoop) else (child,))
            ]
            made.hulls[buffer] = _together(inner)
            self.loop.by_buffer.setdefault(buffer, []).append(made)
            self.loop.accesses.setdefault(buffer, []).extend(found)
        state.dead = False
        self.forget(targets)
        if isinstance(s, For):
            state.forget(s.variable)

    def head(self, s: For | While) -> tuple[Value, int | None, Value]:
        """Start, step (None: unknown) and number of iterations of a loop, negative or 0 for none."""
        evaluator, facts = self.state.evaluator, self.state.facts
        unknown = evaluator.symbols.fresh("n", 0, ENDLESS)
        if isinstance(s, While):
            return 0, None, unknown
        start, stop, step = (evaluator.integer(e, facts) for e in (s.start, s.stop, s.step))
        if not isinstance(step, int) or step == 0:
            return start, None, unknown
        if isinstance(start, int) and isinstance(stop, int):
            return start, step, -((start - stop) // step)
        span = add(stop, start, -1) if step > 0 else add(start, stop, -1)
        if not (fits(start) and fits(stop) and fits(span)):
            return start, step, unknown
        return start, step, evaluator.arithmetic(Op.DIV, add(span, abs(step) - 1), abs(step), facts)

    def forget(self, targets: dict[str, Kind]) -> None:
        """Nothing is known of what scalars are at the start of some iteration."""
        for name, kind in targets.items():
            unknown = self.state.evaluator.unknown(Var(name, BOOL if kind is Kind.BOOL else INT))
            self.state.set_value(name, unknown)

    def branch(self, s: If) -> None:
        state = self.state
        condition = state.evaluator.truth(s.condition, state.facts)
        if isinstance(condition, int):
            self.body(s.body if condition else s.orelse)
            return
        ends, outer = [], self.conditions
        for body, holds in ((s.body, True), (s.orelse, False)):
            state.open()
            facts = assume(state.facts, condition, holds)
            if facts is None:
                state.dead = True
            else:
                state.facts, self.conditions = facts, (*outer, (condition, holds))
                self.body(body)
            ends.append(state.undo())
        self.conditions = outer
        state.merge(condition, *ends)

    def instruction(self, s: Instruction) -> None:
        evaluator, facts = self.state.evaluator, self.state.facts
        self.slot += 1
        happens: Truth = 1
        conditions = self.conditions
        if s.when is not None:
            happens = evaluator.truth(s.when, facts)
            known = assume(facts, happens)
            if known is None:
                return
            facts = known
            if isinstance(happens, Condition):
                conditions = (*conditions, (happens, True))
        reads, writes = effects(s)
        for write, accesses in ((False, reads), (True, writes)):
            for index, access in enumerate(accesses):
                if isinstance(access, Region):
                    box = self.places.box(access, facts)
                    hull = self.places.hull(access.buffer, box, facts)
                    if hull is not None:
                        self.add(s, index, write, access.buffer, box, hull, conditions)
                    continue
                for buffer in self.places.sizes:
                    anywhere = self.whole_hull(buffer, facts)
                    self.add(s, index, write, buffer, None, anywhere, conditions)

    def whole_hull(self, buffer: str, facts: Facts) -> Box:
        return tuple((0, max(1, bounds(size, facts)[1])) for size in self.places.sizes[buffer])

    def add(
        self,
        s: Instruction,
        index: int,
        write: bool,
        buffer: str,
        box: SymbolicBox | None,
        hull: Box,
        conditions: tuple[tuple[Condition, bool], ...],
    ) -> None:
        own = self.loop
        made = SymbolicAccess(
            s, index, write, buffer, box, hull, self.loops, conditions, self.slot, len(own.children)
        )
        own.children.append(made)
        own.by_buffer.setdefault(buffer, []).append(made)
        own.accesses.setdefault(buffer, []).append(made)
