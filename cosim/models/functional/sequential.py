"""Executes a sequential tile program whose instructions are operations of the machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cosim.models.functional.memories import Memories, OperationError
from hw import isa
from sw.ir.errors import IRError
from sw.ir.expression import Const, Expr
from sw.ir.program import Instruction, Program
from sw.ir.walk import executions, value_of
from sw.tile_programs.stated import Stated


def _operands(s: Instruction) -> dict[str, Expr]:
    """The register values of an operation; parameters that it does not state are 0."""
    spec = isa.INSTRUCTIONS[s.name]
    given = dict(s.operands)
    found: dict[str, Expr] = {}
    for name in (*(o.name for o in spec.operands), *spec.parameters):
        value = given.get(name, Const(0) if name in spec.parameters else None)
        if not isinstance(value, Expr):
            raise IRError(s.where, f"{name} of {s.label} without a value", "an expression")
        found[name] = value
    return found


def execute(
    program: Program,
    memories: Memories,
    values: Mapping[str, int] | None = None,
    stated: Callable[[Instruction, Mapping[str, int]], Stated | None] = lambda s, values: None,
) -> None:
    """Execute the operations of a program one after the other, whatever their warps.

    `stated` returns what a launch of the CGRA may access, given the values of the variables there (None:
    anything). `wait` and `signal` do nothing. Raises `IRError` with place and iteration for what the machine
    refuses.
    """
    now = dict(values or {})
    operands: dict[str, dict[str, Expr]] = {}
    for s, iteration in executions(program.body, now, lambda i: i.name not in ("wait", "signal")):
        if s.label not in operands:
            operands[s.label] = _operands(s)
        memories.stated = stated(s, now)
        try:
            memories.perform(s.name, {n: value_of(e, now, s.where) for n, e in operands[s.label].items()})
        except OperationError as error:
            at = f"[{', '.join(map(str, iteration))}]" if iteration else ""
            raise IRError(s.where, f"{error.found} in {s.label}{at}", error.expected) from None
