"""The order of a warp's first instructions.

All warps share one way to the parameters and engines, on which the warp of the lowest number goes first. So a
warp writes its parameters as early as it can, and computes other values in cycles that lower warps take.
"""

from __future__ import annotations

from collections.abc import Sequence

from hw import isa
from sw.codegen.allocate import Allocation
from sw.codegen.virtual import ZERO, Code, VirtualInstruction

PARAMETERS = ("param", "parami")
_IN_ORDER = (*PARAMETERS, "signal")


def stagger(code: Code, allocation: Allocation, busy: set[int]) -> None:
    """Reorder what comes before the first loop, jump, wait or operation of an engine.

    `busy` are the cycles in which warps of lower numbers write parameters, or issue an operation right after
    these; those of this one are added.
    """
    operations = code.operations
    end = next(i for i, o in enumerate(operations) if o.target is None and o.name not in _IN_ORDER)
    head = operations[:end]
    before = [{j for j in range(i) if _depends(head[i], head[j], allocation.registers)} for i in range(end)]
    first: set[int] = set()
    for i in reversed(range(end)):
        if i in first or head[i].name in _IN_ORDER:
            first |= {i, *before[i]}
    left = sorted(range(end), key=lambda i: (i not in first, i))
    cycle = 0
    while left:
        ready = (i for i in left if before[i].isdisjoint(left))
        now = next((i for i in ready if cycle not in busy or head[i].name not in PARAMETERS), None)
        if now is None:
            cycle += 1
            continue
        left.remove(now)
        operations[end - len(left) - 1] = head[now]
        if head[now].name in PARAMETERS:
            busy.add(cycle)
        cycle += isa.INSTRUCTIONS[head[now].name].cycles
    if operations[end].name in isa.INSTRUCTIONS and isa.INSTRUCTIONS[operations[end].name].engine:
        busy.add(cycle)


def _depends(later: VirtualInstruction, earlier: VirtualInstruction, registers: Sequence[int]) -> bool:
    """Whether the order of two instructions matters."""
    if later.name in _IN_ORDER and earlier.name in _IN_ORDER:
        return True
    reads, read = ({registers[r] for r in o.reads} for o in (later, earlier))
    writes, written = ({registers[o.target or ZERO]} - {ZERO} for o in (later, earlier))
    return bool(written & (reads | writes) or writes & read)
