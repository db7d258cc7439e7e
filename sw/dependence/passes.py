"""Clients of the analysis: removal of stores that nothing reads, and of instructions that repeat."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import ClassVar

from sw.dependence.analysis import analyse
from sw.ir.expression import Const, Expr, Var
from sw.ir.grid import GRID
from sw.ir.intrinsics import effects
from sw.ir.linear import difference_bounds
from sw.ir.program import (
    Access,
    Assign,
    Buffer,
    For,
    If,
    Instruction,
    Interval,
    Program,
    Region,
    Statement,
    While,
)
from sw.ir.walk import instructions, rewrite, statements

#: Spaces whose contents outlive the program.
LASTING = (None, "memory")


@dataclass(frozen=True)
class DeadStore:
    """Remove instructions all of whose results are never seen.

    Buffers of `lasting` spaces, by default memory and those of no stated space, are seen at the end of the
    program, others are not. What writes nothing stays, and with it what it reads. A launch of the CGRA may
    leave some of what it writes as it was, so that it counts as reading it.
    """

    lasting: tuple[str | None, ...] = LASTING

    name: ClassVar[str] = "dead-store"

    def __call__(self, program: Program) -> Program:
        """The program without them."""
        used = {i.label for i in instructions(program)}
        last = "end"
        while last in used:
            last += "_"
        reads = tuple(_whole(b) for b in program.buffers if b.space in self.lasting)
        end = Instruction(last, "end", reads=reads)
        configurations = {b.name for b in program.buffers if b.space == GRID}

        def keeping(s: Statement) -> Statement:
            """A launch with what it writes among what it reads, but for its configuration."""
            if not isinstance(s, Instruction) or s.name != "cgra":
                return s
            kept = (a for a in s.writes if isinstance(a, Region) and a.buffer not in configurations)
            return dataclasses.replace(s, reads=(*s.reads, *kept))

        found = analyse(dataclasses.replace(program, body=(*rewrite(program.body, keeping), end)))
        pending = [i.label for i in instructions(program) if not effects(i)[1]]
        pending.append(last)
        alive = set(pending)
        while pending:
            for source in found.sources.get(pending.pop(), ()):
                if source not in alive:
                    alive.add(source)
                    pending.append(source)
        return dataclasses.replace(program, body=without(program.body, used - alive))


def _whole(buffer: Buffer) -> Region:
    return Region(buffer.name, tuple(Interval(Const(0), size) for size in buffer.shape))


def without(body: tuple[Statement, ...], labels: set[str]) -> tuple[Statement, ...]:
    """A body without some instructions."""
    found: list[Statement] = []
    for s in body:
        if isinstance(s, Instruction):
            if s.label in labels:
                continue
        elif isinstance(s, If):
            s = dataclasses.replace(s, body=without(s.body, labels), orelse=without(s.orelse, labels))
        elif isinstance(s, For | While):
            s = dataclasses.replace(s, body=without(s.body, labels))
        found.append(s)
    return tuple(found)


@dataclass(frozen=True)
class RedundantLoad:
    """Remove an instruction where an equal one surely happened before and its bytes have not changed since.

    Equal means the same name, operands, reads and writes; neither what it read nor what it wrote was
    written in between. It must read something, at a known address, and not write what it reads.
    """

    name: ClassVar[str] = "redundant-load"

    def __call__(self, program: Program) -> Program:
        """The program without them."""
        walker = _Available()
        walker.body(program.body)
        return dataclasses.replace(program, body=without(program.body, walker.redundant))


#: Instructions that are remembered per buffer, the latest ones.
_REMEMBERED = 64
_Key = tuple[object, ...]


@dataclass
class _Available:
    """Instructions that surely happened and whose bytes did not change since, in their order."""

    known: dict[_Key, Instruction] = field(default_factory=dict)
    by_buffer: dict[str, dict[_Key, None]] = field(default_factory=dict)
    by_name: dict[str, dict[_Key, None]] = field(default_factory=dict)
    redundant: set[str] = field(default_factory=set)

    def body(self, body: tuple[Statement, ...]) -> None:
        """Statements one after the other."""
        for s in body:
            if isinstance(s, Instruction):
                self.instruction(s)
            elif isinstance(s, Assign):
                self.assigned(s.target)
            elif isinstance(s, If):
                before = self.copy()
                self.body(s.body)
                after = set(self.known)
                self.restore(before)
                self.body(s.orelse)
                for key in [k for k in self.known if k not in after]:
                    self.drop(key)
            else:
                self.changed(s)
                before = self.copy()
                self.body(s.body)
                # There may be no iteration at all.
                self.restore(before)

    def copy(self) -> dict[_Key, Instruction]:
        return dict(self.known)

    def restore(self, known: dict[_Key, Instruction]) -> None:
        for key in [k for k in self.known if k not in known]:
            self.drop(key)
        for key, i in known.items():
            if key not in self.known:
                self.add(key, i)

    def changed(self, s: For | While) -> None:
        """What any iteration of a loop changes is not known at the start of one."""
        if isinstance(s, For):
            self.assigned(s.variable)
        for inner in statements(s.body):
            if isinstance(inner, Assign):
                self.assigned(inner.target)
            elif isinstance(inner, For):
                self.assigned(inner.variable)
            elif isinstance(inner, Instruction):
                for access in effects(inner)[1]:
                    self.written(access)

    def instruction(self, i: Instruction) -> None:
        """Redundant, or it changes bytes and may be remembered."""
        key = _key(i)
        earlier = None if key is None else self.known.get(key)
        if earlier is not None and (earlier.when is None or earlier.when == i.when):
            self.redundant.add(i.label)
            return
        reads, writes = effects(i)
        for access in writes:
            self.written(access)
        if key is None or any(overlap(w, r) for w in writes for r in reads):
            return
        if key in self.known:
            self.drop(key)
        self.add(key, i)

    def add(self, key: _Key, i: Instruction) -> None:
        self.known[key] = i
        for buffer in _buffers(i):
            keys = self.by_buffer.setdefault(buffer, {})
            keys[key] = None
            if len(keys) > _REMEMBERED:
                self.drop(next(iter(keys)))
        for name in _names(i):
            self.by_name.setdefault(name, {})[key] = None

    def drop(self, key: _Key) -> None:
        i = self.known.pop(key, None)
        if i is not None:
            for buffer in _buffers(i):
                self.by_buffer[buffer].pop(key, None)
            for name in _names(i):
                self.by_name[name].pop(key, None)

    def assigned(self, name: str) -> None:
        """A scalar has another value."""
        for key in list(self.by_name.get(name, ())):
            self.drop(key)

    def written(self, access: Access) -> None:
        """Bytes have changed."""
        if not isinstance(access, Region):
            for key in list(self.known):
                self.drop(key)
            return
        for key in list(self.by_buffer.get(access.buffer, ())):
            i = self.known.get(key)
            if i is not None and any(overlap(access, other) for part in effects(i) for other in part):
                self.drop(key)


def _key(i: Instruction) -> _Key | None:
    """What makes instructions equal; None for one that is never redundant."""
    reads, writes = effects(i)
    if not reads or not writes or not all(isinstance(a, Region) for a in (*reads, *writes)):
        return None
    return i.name, i.operands, i.reads, i.writes


def _buffers(i: Instruction) -> set[str]:
    return {a.buffer for part in effects(i) for a in part if isinstance(a, Region)}


def _names(i: Instruction) -> set[str]:
    regions = [a for part in effects(i) for a in part if isinstance(a, Region)]
    expressions: list[Expr] = [
        e for r in regions for interval in r.box for e in (interval.start, interval.stop)
    ]
    for _, operand in i.operands:
        if isinstance(operand, Region):
            expressions += [e for interval in operand.box for e in (interval.start, interval.stop)]
        else:
            expressions.append(operand)
    if i.when is not None:
        expressions.append(i.when)
    return {node.name for e in expressions for node in e.walk() if isinstance(node, Var)}


def overlap(a: Access, b: Access) -> bool:
    """Whether two accesses at the same time may touch the same element."""
    if not isinstance(a, Region) or not isinstance(b, Region):
        return True
    if a.buffer != b.buffer:
        return False
    for one, other in zip(a.box, b.box, strict=True):
        if (
            difference_bounds(other.stop, one.start)[1] <= 0
            or difference_bounds(one.stop, other.start)[1] <= 0
        ):
            return False
    return True
