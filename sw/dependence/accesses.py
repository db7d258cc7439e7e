"""A program as a tree of loops and accesses with symbolic regions, on which edges are analysed.

The text is walked once, with a symbol for the iteration number of every loop. Branches become conditions of
the accesses in them, and scalars are replaced by their values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field

from sw.dependence.conditions import Condition, Truth, assume
from sw.dependence.forms import (
    NO_FACTS,
    Bounds,
    Facts,
    Form,
    Symbol,
    Value,
    add,
    bounds,
    fits,
    scale,
    terms_of,
    whole,
)
from sw.dependence.index import Indexed, RegionIndex, Spans, region_index
from sw.dependence.scalars import Evaluator, Scalar
from sw.ir.expression import Op, Var
from sw.ir.intrinsics import effects
from sw.ir.program import Access, Assign, For, If, Instruction, Program, Region, Statement, While
from sw.ir.types import BOOL, HIGH, INT, LOW, Kind
from sw.ir.walk import statements

#: For each dimension, the first element and the one after the last.
Box = tuple[tuple[int, int], ...]
#: The same with symbolic bounds.
SymbolicBox = tuple[tuple[Value, Value], ...]
#: More iterations than any loop can have.
ENDLESS = HIGH - 1


@dataclass(eq=False)
class SymbolicLoop:
    """A loop, or the whole program: `symbol` is its iteration number, `count` its trip count.

    `other` is a second symbol for another iteration of it. Symbols numbered `first` to `last` may differ in
    every iteration. `around` are the enclosing loops, outermost first, and `position` is its index among the
    children of the innermost one.
    """

    symbol: Symbol
    other: Symbol
    count: Value
    first: int = 0
    last: int = 0
    around: tuple[SymbolicLoop, ...] = ()
    position: int = 0
    children: list[SymbolicLoop | SymbolicAccess] = field(default_factory=list)
    #: By buffer: children that access it; all accesses nested in it; and a few accesses that cover all of
    #: them.
    by_buffer: dict[str, list[SymbolicLoop | SymbolicAccess]] = field(default_factory=dict)
    accesses: dict[str, list[SymbolicAccess]] = field(default_factory=dict)
    hulls: dict[str, list[SymbolicAccess]] = field(default_factory=dict)
    indices: dict[tuple[str, bool], RegionIndex] = field(default_factory=dict)
    spans: dict[tuple[str, bool], Spans] = field(default_factory=dict)

    def near(self, buffer: str, writes: bool, low: int, high: int) -> Iterator[SymbolicAccess]:
        """Those of the few covering accesses that may touch an interval of the first dimension."""
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
        """The children that access, or write, a buffer, by region."""
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
    """One access of an instruction: its region, and in `hull` the region over all iterations.

    `box` is None for an unknown address. `loops` are the enclosing loops, outermost first, and `conditions`
    the branches around it, each with its required outcome. `slot` is the instruction's position in the text,
    and `position` that of the access among the children of its loop.
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
    """The loops and accesses of a program."""

    evaluator: Evaluator
    root: SymbolicLoop

    def accesses(self) -> Iterator[SymbolicAccess]:
        """All accesses, by buffer in the order of the text."""
        for found in self.root.accesses.values():
            yield from found


def access_tree(program: Program) -> AccessTree:
    """The tree of a program."""
    evaluator = Evaluator()
    for p in program.parameters:
        if p.type.kind is not Kind.BOOL and p.type.high - p.type.low == 1:
            evaluator.values[p.name] = p.type.low
        else:
            evaluator.values[p.name] = evaluator.unknown(Var(p.name, p.type))
    sizes = {b.name: tuple(evaluator.integer(size, NO_FACTS) for size in b.shape) for b in program.buffers}
    nowhere = evaluator.symbols.fresh("program", 0, 0).terms[0][0]
    root = SymbolicLoop(nowhere, nowhere, 1)
    _Collector(evaluator, sizes, root).body(program.body)
    return AccessTree(evaluator, root)


def _together(accesses: list[SymbolicAccess]) -> list[SymbolicAccess]:
    """For accesses whose regions differ only by constants, one access that covers all of them."""
    found: dict[object, list[SymbolicAccess]] = {}
    for a in accesses:
        terms = None if a.box is None else tuple((terms_of(start), terms_of(stop)) for start, stop in a.box)
        found.setdefault((a.write, a.loops, a.conditions, terms), []).append(a)
    return [_hull_of(near) for same in found.values() for near in _clusters(same)]


def _clusters(accesses: list[SymbolicAccess]) -> Iterator[list[SymbolicAccess]]:
    """Groups of accesses that overlap along the first dimension."""
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


def _hull_of(accesses: list[SymbolicAccess]) -> SymbolicAccess:
    """The hull of some accesses whose regions differ by constants."""
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
    """The difference of two numbers with the same terms."""
    found = add(a, b, -1)
    assert isinstance(found, int)
    return found


@dataclass
class _Collector:
    """Walks the text; `facts`, and the values of the evaluator, are those of the current position."""

    evaluator: Evaluator
    sizes: dict[str, tuple[Value, ...]]
    loop: SymbolicLoop
    facts: Facts = field(default_factory=lambda: NO_FACTS)
    loops: tuple[SymbolicLoop, ...] = ()
    slot: int = 0
    conditions: tuple[tuple[Condition, bool], ...] = ()

    def body(self, body: tuple[Statement, ...]) -> None:
        for s in body:
            if isinstance(s, Instruction):
                self.instruction(s)
            elif isinstance(s, Assign):
                self.evaluator.values[s.target] = self.evaluator.value(s.value, self.facts)
            elif isinstance(s, If):
                self.branch(s)
            else:
                self.iterations(s)

    def iterations(self, s: For | While) -> None:
        """A loop: visits its body once, with a symbol for the iteration."""
        symbols = self.evaluator.symbols
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
            self.evaluator.values[s.variable] = value
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
        self.forget(targets)

    def head(self, s: For | While) -> tuple[Value, int | None, Value]:
        """Start, step (None if unknown) and trip count of a loop; the count may be negative or 0 for none."""
        evaluator, facts = self.evaluator, self.facts
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
        """Forgets the values of scalars, as at the start of an arbitrary iteration."""
        for name, kind in targets.items():
            unknown = self.evaluator.unknown(Var(name, BOOL if kind is Kind.BOOL else INT))
            self.evaluator.values[name] = unknown

    def branch(self, s: If) -> None:
        condition = self.evaluator.truth(s.condition, self.facts)
        if isinstance(condition, int):
            self.body(s.body if condition else s.orelse)
            return
        ends: list[dict[str, Scalar]] = []
        facts, conditions, before = self.facts, self.conditions, dict(self.evaluator.values)
        for body, holds in ((s.body, True), (s.orelse, False)):
            known = assume(facts, condition, holds)
            if known is not None:
                self.evaluator.values = dict(before)
                self.facts, self.conditions = known, (*conditions, (condition, holds))
                self.body(body)
                ends.append(self.evaluator.values)
        self.facts, self.conditions = facts, conditions
        if len(ends) == 2:
            self.phi(condition, *ends)

    def phi(self, condition: Condition, first: dict[str, Scalar], second: dict[str, Scalar]) -> None:
        """The values after a branch, merged from the ends of both sides."""
        self.evaluator.values = {**first, **second}
        for name, value in first.items():
            # A scalar without a value on one path must not be read, so the other path's value will do.
            other = second.get(name, value)
            if other is not value:
                self.evaluator.values[name] = self.evaluator.either(condition, value, other)

    def instruction(self, s: Instruction) -> None:
        evaluator, facts = self.evaluator, self.facts
        self.slot += 1
        conditions = self.conditions
        if s.when is not None:
            happens: Truth = evaluator.truth(s.when, facts)
            known = assume(facts, happens)
            if known is None:
                return
            facts = known
            if isinstance(happens, Condition):
                conditions = (*conditions, (happens, True))
        reads, writes = effects(s)
        for write, accesses in ((False, reads), (True, writes)):
            for index, access in enumerate(accesses):
                for buffer, box, hull in self.places(access, facts):
                    own = self.loop
                    position = len(own.children)
                    made = SymbolicAccess(
                        s, index, write, buffer, box, hull, self.loops, conditions, self.slot, position
                    )
                    own.children.append(made)
                    own.by_buffer.setdefault(buffer, []).append(made)
                    own.accesses.setdefault(buffer, []).append(made)

    def places(self, access: Access, facts: Facts) -> Iterator[tuple[str, SymbolicBox | None, Box]]:
        """The region that an access may touch in each buffer (None if unknown), and its hull."""
        if isinstance(access, Region):
            integer = self.evaluator.integer
            box = tuple((integer(i.start, facts), integer(i.stop, facts)) for i in access.box)
            hull = _hull(box, self.sizes[access.buffer], facts)
            if hull is not None:
                yield access.buffer, box, hull
            return
        for buffer, sizes in self.sizes.items():
            yield buffer, None, tuple((0, max(1, bounds(size, facts)[1])) for size in sizes)


def _hull(box: SymbolicBox, sizes: tuple[Value, ...], facts: Facts) -> Box | None:
    """The part of a buffer that a box may touch; None if it is empty, or outside and so never reached."""
    hull = []
    outside, filled = False, True
    for (start, stop), size in zip(box, sizes, strict=True):
        size_high = bounds(size, facts)[1]
        (low, last_start), (first_stop, high) = _limits(start, stop, facts)
        length = add(stop, start, -1)
        if high <= low or (isinstance(length, int) and length <= 0):
            return None
        filled = filled and (last_start < first_stop or _longer(start, stop, facts))
        outside = outside or last_start < 0 or first_stop > size_high
        hull.append((max(low, 0), min(high, size_high)))
    if (outside and filled) or any(low >= high for low, high in hull):
        return None
    return tuple(hull)


def _limits(start: Value, stop: Value, facts: Facts) -> tuple[Bounds, Bounds]:
    """Bounds of the ends of an interval."""
    if isinstance(start, Form) and isinstance(stop, Form) and start.terms == stop.terms:
        # Both ends have the same terms, so bounds of one give those of the other.
        (low, high), length = whole(start, facts), stop.constant - start.constant
        if low >= LOW and high < HIGH and low + length >= LOW and high + length < HIGH:
            return (low, high), (low + length, high + length)
    return bounds(start, facts), bounds(stop, facts)


def _longer(start: Value, stop: Value, facts: Facts) -> bool:
    """Whether an interval is certainly not empty."""
    length = add(stop, start, -1)
    return isinstance(length, int) and length > 0 and fits(start, facts) and fits(stop, facts)
