"""Splits a tile program by warp: each warp's instructions with the loops and branches around them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from sw.ir.program import Instruction, Program, Region, Statement
from sw.ir.walk import Body, instructions, rewrite, without_empty


def warps(program: Program) -> list[int]:
    """The warp numbers used in a program, ascending."""
    return sorted({s.warp for s in instructions(program) if s.warp is not None})


def share(program: Program, warp: int) -> Program:
    """The program of one warp: its own instructions, and all scalar assignments."""
    body = replaced(program.body, lambda s: (s,) if s.warp == warp else ())
    return dataclasses.replace(program, name=f"{program.name}_{warp}", body=body)


def without_syncs(program: Program) -> Program:
    """Removes all `wait` and `signal` instructions."""
    body = replaced(program.body, lambda s: () if s.name in ("wait", "signal") else (s,))
    return dataclasses.replace(program, body=body)


def with_used_buffers(program: Program) -> Program:
    """Removes buffers that no instruction uses."""
    named: set[str] = set()
    for s in instructions(program):
        values = (*s.reads, *s.writes, *(value for _, value in s.operands))
        named |= {value.buffer for value in values if isinstance(value, Region)}
    return dataclasses.replace(program, buffers=tuple(b for b in program.buffers if b.name in named))


def replaced(body: Body, change: Callable[[Instruction], Sequence[Statement]]) -> Body:
    """Replaces every instruction by statements; removes loops and branches that become empty."""
    return rewrite(body, lambda s: change(s) if isinstance(s, Instruction) else without_empty(s))
