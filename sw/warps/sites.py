"""Sites: the places in a program where a warp may signal or wait, and when control passes them.

A gap is a position between two statements of a block; a site is a gap, optionally with a predicate. Several
operations in one gap are ordered by `Order`.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sw.ir.expression import Expr
from sw.ir.program import For, If, Instruction, Program, Statement

#: Path of a block from the outside in: statement index, and which of its bodies (1: `else`).
Path = tuple[tuple[int, int], ...]


class Order(enum.IntEnum):
    """The order of operations in one gap.

    Before every signal there is a slot for a wait that holds it back, and one for a signal to that wait.
    Drains take leftover tokens before others are filled in; then come places where two warps meet. After
    every wait there is a slot for a signal that returns its room. Last, a warp passes on what it waited for.
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
    """The position before the statement of this number, or after the last one."""

    block: Path
    position: int


@dataclass(frozen=True)
class SyncSite:
    """A site at which `count` tokens are signalled or taken if the predicate holds."""

    gap: Gap
    order: int
    when: Expr | None = None
    count: int = 1

    @property
    def once(self) -> SyncSite:
        """The same site for one token."""
        return self if self.count == 1 else dataclasses.replace(self, count=1)


@dataclass(frozen=True)
class Spot:
    """The position of an instruction: its gap is the one before it.

    `loops` are the enclosing loops, outermost first, each as the length of its body's path.
    """

    instruction: Instruction
    gap: Gap
    loops: tuple[tuple[For, int], ...]

    def ancestor(self, length: int) -> Gap:
        """The gap before the statement that contains it, in the enclosing block with a path that long."""
        if length == len(self.gap.block):
            return self.gap
        return Gap(self.gap.block[:length], self.gap.block[length][0])


def spots(program: Program) -> list[Spot]:
    """The position of every instruction, in the order of the text."""
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


def common(a: Path, b: Path) -> int:
    """The length of the common prefix of two paths."""
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n


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
