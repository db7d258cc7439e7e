"""Checks that a program declares which launches share a CGRA configuration.

A configuration is not a region of memory. A buffer in space `grid` stands for it, so every analysis sees
that a launch that keeps a configuration depends on the launch that loaded it.
"""

from __future__ import annotations

from sw.ir.errors import IRError
from sw.ir.expression import Const, Expr
from sw.ir.intrinsics import KEEP
from sw.ir.program import Access, Instruction, Program, Region
from sw.ir.walk import instructions

#: Space of the buffer that stands for the CGRA's current configuration.
GRID = "grid"


def problems(program: Program) -> list[IRError]:
    """Finds launches that load or keep a shared configuration without declaring it."""
    launches = [s for s in instructions(program) if s.name == "cgra"]
    if not any(_keeps(s) for s in launches):
        return []
    spaces = {b.name: b.space for b in program.buffers}

    def holds(accesses: tuple[Access, ...]) -> bool:
        return any(isinstance(a, Region) and spaces.get(a.buffer) == GRID for a in accesses)

    found: list[IRError] = []
    for s in launches:
        for does, accesses, what, word in (
            (_keeps(s), s.reads, "keep the configuration", "read"),
            (_brings(s), s.writes, "bring a configuration that another one may keep,", "write"),
        ):
            if does and not holds(accesses):
                expected = f"{word}= of a buffer in space {GRID}"
                found.append(IRError(s.where, f"a launch {s.label} that may {what}", expected))
    return found


def _bitstream(s: Instruction) -> Expr | Region | None:
    return dict(s.operands).get("bitstream")


def _keeps(s: Instruction) -> bool:
    """Whether a launch may keep the current configuration."""
    given = _bitstream(s)
    return isinstance(given, Expr) and (not isinstance(given, Const) or given.value == KEEP)


def _brings(s: Instruction) -> bool:
    given = _bitstream(s)
    return not isinstance(given, Const) or given.value != KEEP
