"""Passes that use the analysis: removal of dead stores and of redundant instructions."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from sw.dependence.analysis import analyse
from sw.ir.expression import names
from sw.ir.grid import GRID
from sw.ir.intrinsics import effects
from sw.ir.linear import difference_bounds, linear
from sw.ir.program import Access, Assign, For, If, Instruction, Program, Region, Statement, While
from sw.ir.walk import Body, bodies, expressions, fresh_names, instructions, rewrite, statements

#: Spaces whose contents remain after the program.
LASTING = (None, "memory")


@dataclass(frozen=True)
class DeadStore:
    """Remove instructions whose results are never read.

    Buffers of `lasting` spaces, by default memory and those of no stated space, count as read at the end of
    the program; others do not. Instructions that write nothing stay, and so does what they read. A launch of
    the CGRA may write only part of its region, so it counts as reading it too. So does a store of rows with
    gaps between them, whose region includes the gaps.
    """

    lasting: tuple[str | None, ...] = LASTING

    name: ClassVar[str] = "dead-store"

    def __call__(self, program: Program) -> Program:
        """The program without them."""
        end = next(fresh_names(program, "end"))
        lasting = tuple(b.whole for b in program.buffers if b.space in self.lasting)
        configurations = {b.name for b in program.buffers if b.space == GRID}
        elements = {b.name: b.element_bytes for b in program.buffers}

        def keeping(s: Statement) -> Statement:
            """A launch that also reads what it writes, except for its configuration."""
            if not isinstance(s, Instruction):
                return s
            own = s.writes if s.name == "cgra" else s.writes[:1] if _has_gaps(s, elements) else ()
            kept = (a for a in own if isinstance(a, Region) and a.buffer not in configurations)
            return dataclasses.replace(s, reads=(*s.reads, *kept))

        body = (*rewrite(program.body, keeping), Instruction(end, end, reads=lasting))
        found = analyse(dataclasses.replace(program, body=body)).use_def
        pending = [end, *(i.label for i in instructions(program) if not effects(i)[1])]
        alive: set[str] = set()
        while pending:
            if (label := pending.pop()) not in alive:
                alive.add(label)
                pending += found.get(label, ())
        return _without(program, {i.label for i in instructions(program)} - alive)


def _has_gaps(s: Instruction, elements: Mapping[str, int]) -> bool:
    """Whether a store of rows may leave a part of its stated region unchanged."""
    operands, region = dict(s.operands), s.writes[0] if s.writes else None
    if not isinstance(region, Region) or not {"rows", "bytes"} <= operands.keys():
        return False
    lengths = [difference_bounds(i.stop, i.start)[1] for i in region.box]
    rows, run = (linear(operands[name], exact=True).number for name in ("rows", "bytes"))
    return rows is None or run is None or rows * run < math.prod(lengths) * elements[region.buffer]


def _without(program: Program, labels: set[str]) -> Program:
    """A program without some instructions."""
    body = rewrite(program.body, lambda s: () if isinstance(s, Instruction) and s.label in labels else s)
    return dataclasses.replace(program, body=body)


@dataclass(frozen=True)
class RedundantLoad:
    """Remove an instruction that repeats an earlier one when nothing that it accesses has changed since.

    It repeats one with the same name, operands, reads and writes that was executed on every path, if neither
    what that one read nor what it wrote was written in between. It must read something, at a known address,
    and not write what it reads.
    """

    name: ClassVar[str] = "redundant-load"

    def __call__(self, program: Program) -> Program:
        """The program without them."""
        walker = _Available()
        walker.body(program.body)
        return _without(program, walker.redundant)


#: Most instructions remembered, latest first.
_REMEMBERED = 256


@dataclass
class _Available:
    """Instructions that certainly executed and are still valid, in order, with all their accesses.

    These instructions have no label and no warp, so that equal ones compare equal.
    """

    known: dict[Instruction, tuple[Access, ...]] = field(default_factory=dict)
    redundant: set[str] = field(default_factory=set)

    def body(self, body: Body) -> None:
        """Statements one after the other."""
        for s in body:
            if isinstance(s, Instruction):
                self.instruction(s)
            elif isinstance(s, Assign):
                self.assigned(s.target)
            else:
                self.control(s)

    def control(self, s: For | If | While) -> None:
        """Keeps what holds after a branch or loop for every path and trip count."""
        if not isinstance(s, If):
            self.changed(s)
        ends, before = [], self.known
        for body in bodies(s):
            self.known = dict(before)
            self.body(body)
            ends.append(self.known)
        if not isinstance(s, If):
            # The loop may run no iteration.
            ends.append(before)
        self.known = {i: accesses for i, accesses in ends[-1].items() if i in ends[0]}

    def changed(self, s: For | While) -> None:
        """Forget, at the start of a loop, what any of its iterations changes."""
        for inner in statements((s,)):
            if isinstance(inner, Assign):
                self.assigned(inner.target)
            elif isinstance(inner, For):
                self.assigned(inner.variable)
            elif isinstance(inner, Instruction):
                for access in effects(inner)[1]:
                    self.written(access)

    def instruction(self, i: Instruction) -> None:
        """An instruction is redundant, or it changes bytes and may be remembered."""
        made = dataclasses.replace(i, label="", warp=None)
        if made in self.known or dataclasses.replace(made, when=None) in self.known:
            self.redundant.add(i.label)
            return
        reads, writes = effects(i)
        for access in writes:
            self.written(access)
        known = reads and writes and all(isinstance(a, Region) for a in (*reads, *writes))
        if known and not any(overlap(w, r) for w in writes for r in reads):
            self.known[made] = (*reads, *writes)
            if len(self.known) > _REMEMBERED:
                del self.known[next(iter(self.known))]

    def assigned(self, name: str) -> None:
        """A scalar was assigned."""
        self.known = {
            i: accesses
            for i, accesses in self.known.items()
            if not any(name in names(e) for e in expressions(i))
        }

    def written(self, written: Access) -> None:
        """Bytes were written."""
        self.known = {
            i: accesses
            for i, accesses in self.known.items()
            if not any(overlap(written, a) for a in accesses)
        }


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
