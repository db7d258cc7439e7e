"""Cost of a program on the warp sequencer: instructions, executed scalar operations, registers."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from hw import isa
from sw.codegen.allocate import allocate
from sw.codegen.lower import GENERIC, lower
from sw.codegen.virtual import Code, VirtualInstruction
from sw.ir.program import Program

_NOT_SCALAR = ("wait", "signal", "halt", GENERIC)


@dataclass(frozen=True)
class Counts:
    """Static and dynamic counts of a program.

    `instructions` counts all instructions on the sequencer. `scalar_static` counts those that are neither
    engine operations nor `wait`, `signal` or `halt`; `scalar_executed` and `scalar_turns` weight them by how
    often they execute, from known or assumed trip counts and branch probabilities
    (`sw.codegen.loops.expected_trips`, `likelihood`). `registers` includes r0.
    """

    instructions: int
    scalar_static: int
    scalar_executed: float
    scalar_turns: float
    registers: int

    def as_dict(self) -> dict[str, int | float]:
        """The counts by name; whole numbers as integers."""
        return {name: _whole(value) for name, value in asdict(self).items()}


def count(program: Program, uniform: bool = False) -> Counts:
    """Counts a program as if one warp executed all of it; `uniform` is that of `lower`.

    Raises `InputError` for a `while`.
    """
    return count_code(lower(program, uniform=uniform))


def count_code(code: Code) -> Counts:
    """Counts lowered code."""
    scalar = [o for o in code.operations if is_scalar(o)]
    return Counts(
        instructions=len(code.operations),
        scalar_static=len(scalar),
        scalar_executed=sum(o.weight for o in scalar),
        scalar_turns=sum(o.weight * isa.INSTRUCTIONS[o.name].turns for o in scalar),
        registers=allocate(code).count,
    )


def is_scalar(o: VirtualInstruction) -> bool:
    """Whether an operation occupies only the scalar unit."""
    return o.name not in _NOT_SCALAR and isa.INSTRUCTIONS[o.name].engine is None


def _whole(value: float) -> int | float:
    return int(value) if value == int(value) else round(value, 3)
