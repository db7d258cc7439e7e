"""Places in a program where a warp may signal or wait, and when control passes there.

A gap is a place between two statements of a block; a site is a gap, under a predicate if it has one. Tokens
are given and taken at sites. Several operations in one gap stand in the order of `Order`.
"""

from __future__ import annotations

import dataclasses
import enum
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from sw.ir.expression import Expr
from sw.ir.program import For, If, Instruction, Program, Statement
from sw.ir.trace import trace
from sw.ir.vector import Array

#: Marks and operations that are followed at first for each operation that counts.
_ROOM = 4

#: A block: from the outside in, which statement, and which of its bodies (1: that of `else`).
Path = tuple[tuple[int, int], ...]


class Order(enum.IntEnum):
    """What comes first where several stand in one gap.

    Right in front of every signal there is room for a wait that holds it back, and a signal for that. Drains
    take what tokens are left before others are filled in; then come places where two warps meet. Behind every
    wait there is room for a signal that gives its room back. Last, a warp passes on what it waited for.
    """

    ADVANCE = 0
    SIGNAL = 8
    DRAIN = 16
    FILL = 24
    GIVE = 32
    TAKE = 33
    WAIT = 40
    PASS = 48
    PASSED = 56


@dataclass(frozen=True, order=True)
class Gap:
    """The place in front of the statement of that number, or behind the last one."""

    block: Path
    position: int


@dataclass(frozen=True)
class Site:
    """Where tokens are given or taken if the predicate holds, `count` of them."""

    gap: Gap
    order: int
    when: Expr | None = None
    count: int = 1


@dataclass(frozen=True)
class Spot:
    """Where an instruction stands: its gap is the one in front of it.

    `loops` are those around it, from the outside in, each with the length of the path of its body.
    """

    instruction: Instruction
    gap: Gap
    loops: tuple[tuple[For, int], ...]

    def ancestor(self, length: int) -> Gap:
        """The gap in front of the statement that holds it, in the block around of that length."""
        if length == len(self.gap.block):
            return self.gap
        return Gap(self.gap.block[:length], self.gap.block[length][0])


def spots(program: Program) -> list[Spot]:
    """Where every instruction stands, in the order of the text."""
    return list(_spots(program.body, (), ()))


def _spots(body: tuple[Statement, ...], path: Path, loops: tuple[tuple[For, int], ...]) -> Iterator[Spot]:
    for position, s in enumerate(body):
        if isinstance(s, Instruction):
            yield Spot(s, Gap(path, position), loops)
        elif isinstance(s, For):
            inner = (*path, (position, 0))
            yield from _spots(s.body, inner, (*loops, (s, len(inner))))
        elif isinstance(s, If):
            yield from _spots(s.body, (*path, (position, 0)), loops)
            yield from _spots(s.orelse, (*path, (position, 1)), loops)


def blocks(program: Program) -> list[Path]:
    """The blocks of a program, outer ones first."""

    def visit(body: tuple[Statement, ...], path: Path) -> Iterator[Path]:
        yield path
        for position, s in enumerate(body):
            if isinstance(s, For | If):
                yield from visit(s.body, (*path, (position, 0)))
            if isinstance(s, If):
                yield from visit(s.orelse, (*path, (position, 1)))

    return list(visit(program.body, ()))


def gaps(program: Program) -> list[Gap]:
    """All places in front of, between and behind the statements of a program."""

    def visit(body: tuple[Statement, ...], path: Path) -> Iterator[Gap]:
        for position, s in enumerate(body):
            yield Gap(path, position)
            if isinstance(s, For | If):
                yield from visit(s.body, (*path, (position, 0)))
            if isinstance(s, If):
                yield from visit(s.orelse, (*path, (position, 1)))
        yield Gap(path, len(body))

    return list(visit(program.body, ()))


def insert(program: Program, additions: Mapping[Gap, list[Instruction]]) -> Program:
    """The program with instructions put into gaps."""

    def visit(body: tuple[Statement, ...], path: Path) -> tuple[Statement, ...]:
        made: list[Statement] = []
        for position, s in enumerate(body):
            made += additions.get(Gap(path, position), ())
            if isinstance(s, For):
                s = dataclasses.replace(s, body=visit(s.body, (*path, (position, 0))))
            elif isinstance(s, If):
                s = dataclasses.replace(
                    s,
                    body=visit(s.body, (*path, (position, 0))),
                    orelse=visit(s.orelse, (*path, (position, 1))),
                )
            made.append(s)
        made += additions.get(Gap(path, len(body)), ())
        return tuple(made)

    return dataclasses.replace(program, body=visit(program.body, ()))


@dataclass(frozen=True)
class Passing:
    """A run of the program: when control passes each site, and when each operation happens.

    `times` holds the time of every operation, by its number in the trace without sites; sites have times
    between them. All of them are below `end`.
    """

    times: Array
    passes: Mapping[Site, Array]
    end: int


def passings(
    program: Program, sites: Iterable[Site], values: Mapping[str, int], count: int | None
) -> Passing:
    """Follow a run through operations and sites, as far as `count` operations where it is given."""
    gaps: defaultdict[Gap, list[Site]] = defaultdict(list)
    for site in sites:
        gaps[site.gap].append(site)
    marks: dict[str, Site] = {}
    additions: dict[Gap, list[Instruction]] = {}
    for gap, found in gaps.items():
        additions[gap] = []
        for site in sorted(found, key=lambda s: s.order):
            label = f"mark {len(marks)}"
            marks[label] = site
            additions[gap].append(Instruction(label, "mark", when=site.when))
    marked = insert(_without_accesses(program), additions)
    limit = None if count is None else _ROOM * count
    while True:
        made = trace(marked, values, limit)
        operations = np.ones(made.count, bool)
        passes = {}
        for rows in made.rows:
            passed = marks.get(rows.instruction.label)
            if passed is not None:
                operations[rows.time] = False
                passes[passed] = rows.time
        times = np.flatnonzero(operations)
        if limit is None or count is None or made.complete or times.size >= count:
            return Passing(times, passes, made.count)
        limit *= 2


def _without_accesses(program: Program) -> Program:
    """The program with the control flow alone."""

    def visit(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
        made: list[Statement] = []
        for s in body:
            if isinstance(s, Instruction):
                s = dataclasses.replace(s, reads=(), writes=(), operands=())
            elif isinstance(s, For):
                s = dataclasses.replace(s, body=visit(s.body))
            elif isinstance(s, If):
                s = dataclasses.replace(s, body=visit(s.body), orelse=visit(s.orelse))
            made.append(s)
        return tuple(made)

    return dataclasses.replace(program, body=visit(program.body))
