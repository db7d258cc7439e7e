"""What operands of operations can count: more is refused where a program is made, not where it runs."""

from __future__ import annotations

from collections.abc import Sequence

from hw import isa
from hw.errors import InputError
from sw.ir.expression import Expr
from sw.ir.program import Instruction, Statement
from sw.ir.ranges import bounds
from sw.ir.walk import statements

#: Most rows of a load or store, and most bytes of a row.
LONGEST = (1 << 16) - 1


def check_operands(name: str, body: Sequence[Statement]) -> None:
    """Raise `InputError` with an operator's name where an operand can be wider than its field."""
    for s in statements(tuple(body)):
        if not isinstance(s, Instruction):
            continue
        widths = _widths(s)
        for operand, value in s.operands:
            bits = widths.get(operand, 32)
            if bits == 32 or not isinstance(value, Expr):
                continue
            high = bounds(value)[1]
            if high >> bits > 0:
                raise InputError(
                    f"{name}: {operand} of {s.name} must be at most {(1 << bits) - 1}, it can be {high}"
                )


def _widths(s: Instruction) -> dict[str, int]:
    """Bits of the operands and parameters of an operation by name."""
    spec = isa.INSTRUCTIONS[s.name]
    return {o.name: o.bits for o in spec.operands} | {p: isa.PARAMETERS[p].bits for p in spec.parameters}
