"""Execution of a sequential tile program whose instructions are operations of the machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from cosim.models.functional.errors import OperationError
from cosim.models.functional.memories import Memories
from hw import isa
from sw.ir.errors import IRError
from sw.ir.expression import Const, Expr
from sw.ir.program import Buffer, Instruction, Interval, Program, Region, Statement
from sw.ir.trace import trace
from sw.tile_programs.stated import Stated
from sw.tiled.split import replaced, without_syncs


@dataclass(frozen=True)
class Operations:
    """All executions of one instruction: times in the order of the program, values by operand."""

    instruction: Instruction
    time: np.ndarray
    iteration: np.ndarray
    operands: Mapping[str, np.ndarray]


def operations(program: Program, values: Mapping[str, int] | None = None) -> list[Operations]:
    """Operands and parameters of every engine operation that a program executes.

    Raises `IRError` for what fails at run time.
    """
    given: dict[str, Instruction] = {}
    buffers: list[Buffer] = []

    def change(s: Instruction) -> tuple[Statement, ...]:
        given[s.label] = s
        return (_shadow(s, buffers),)

    body = replaced(without_syncs(program).body, change)
    # Operands are followed as ends of empty intervals, which lie in no buffer and may have any value.
    shadow = dataclasses.replace(program, buffers=tuple(buffers), body=body)
    found = []
    for rows in trace(shadow, values).rows:
        s = given[rows.instruction.label]
        boxes = rows.reads[0]
        assert boxes is not None
        columns = dict(zip(_values(s), boxes.start, strict=True))
        found.append(Operations(s, rows.time, rows.iteration, columns))
    return found


def _values(s: Instruction) -> dict[str, Expr]:
    """What the registers of an operation hold, parameters that are not stated being 0."""
    spec = isa.INSTRUCTIONS[s.name]
    given = dict(s.operands)
    found: dict[str, Expr] = {}
    for name in (*(o.name for o in spec.operands), *spec.parameters):
        value = given.get(name, Const(0) if name in spec.parameters else None)
        if not isinstance(value, Expr):
            raise IRError(s.where, f"{name} of {s.label} without a value", "an expression")
        found[name] = value
    return found


def _shadow(s: Instruction, buffers: list[Buffer]) -> Instruction:
    values = list(_values(s).values())
    buffers.append(Buffer(f"{s.label}.operands", (Const(1),) * len(values)))
    region = Region(buffers[-1].name, tuple(Interval(v, v) for v in values))
    return dataclasses.replace(s, name="operation", reads=(region,), writes=(), operands=())


def execute(
    program: Program,
    memories: Memories,
    values: Mapping[str, int] | None = None,
    stated: Callable[[str, int], Stated | None] = lambda label, number: None,
) -> None:
    """Execute the operations of a program one after the other, whatever warps they are for.

    `stated` gives what a launch of the grid may access, by label and number of the execution (None: all).
    `wait` and `signal` do nothing. Raises `IRError` with place and iteration for what the machine refuses.
    """
    found = operations(program, values)
    times = np.concatenate([o.time for o in found]) if found else np.empty(0, np.int64)
    which = np.repeat(np.arange(len(found)), [len(o.time) for o in found])
    row = np.concatenate([np.arange(len(o.time)) for o in found]) if found else times
    for n in np.argsort(times).tolist():
        o, r = found[which[n]], int(row[n])
        memories.stated = stated(o.instruction.label, r)
        try:
            memories.perform(o.instruction.name, {name: int(v[r]) for name, v in o.operands.items()})
        except OperationError as error:
            s = o.instruction
            at = f"[{', '.join(map(str, o.iteration[:, r].tolist()))}]" if o.iteration.size else ""
            raise IRError(s.where, f"{error.found} in {s.label}{at}", error.expected) from None
