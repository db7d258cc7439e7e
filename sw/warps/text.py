"""Assembly text of one warp's tile program, with two pseudo-instructions that exist only as text.

`op LABEL` executes the instruction LABEL of the tile program: one that the machine does not have, or whose
regions have no addresses yet. `arg r1, NAME` puts a parameter of the program into a register.
"""

from __future__ import annotations

import dataclasses

from hw import isa
from hw.assembly import disassemble, labels, with_labels
from hw.config import MachineConfig
from sw.canonical.hoist import optimise
from sw.codegen.generate import compiled, instruction
from sw.codegen.lower import GENERIC
from sw.codegen.operands import is_engine
from sw.codegen.virtual import VirtualInstruction
from sw.ir.program import Instruction, Program, Region, Statement
from sw.ir.scope import retype
from sw.ir.split import replaced, share


def warp_assembly(
    program: Program,
    warp: int,
    config: MachineConfig,
    name: str,
) -> str:
    """The text of one warp of a sequential program: its share, optimised for the machine's registers.

    Raises `InputError` as `assembly` does.
    """
    own = retype(optimise(bare(share(program, warp)), config.registers))
    return assembly(own, config, name)


def assembly(program: Program, config: MachineConfig, name: str) -> str:
    """The text of a warp's program, with a final `halt`; without pseudo-instructions it can be assembled.

    `program` has the instructions of one warp. `name` starts every message. Raises `InputError` if registers,
    loop depth, channels or instruction memory of the configuration are too small, and for anything that a
    warp cannot execute.
    """
    program = bare(program)
    code, allocation = compiled(program, config, name, generic=True)
    arguments = [f"arg r{allocation.registers[r]}, {parameter}" for r, parameter in code.given.items()]
    places = {
        i: o.link + 1 if o.name == "loop" else o.link
        for i, o in enumerate(code.operations)
        if o.name in ("loop", "jump")
    }
    names = labels(places.values())
    lines = [
        _line(o, i, allocation.registers, names.get(places.get(i, -1)), name)
        for i, o in enumerate(code.operations)
    ]
    return "".join(f"{line}\n" for line in arguments) + with_labels(lines, names)


def bare(program: Program) -> Program:
    """The program without the regions of future `op LABEL`s, which need no registers."""
    return dataclasses.replace(program, body=replaced(program.body, _bare))


def _bare(s: Instruction) -> tuple[Statement, ...]:
    return (s if is_bound(s) else Instruction(s.label, GENERIC, warp=s.warp, when=s.when, where=s.where),)


def is_bound(s: Instruction) -> bool:
    """Whether an instruction is one of the machine's, with a value for every register operand."""
    if s.name in ("wait", "signal"):
        return True
    if not is_engine(s) or any(isinstance(o, Region) for _, o in s.operands):
        return False
    given = {n for n, _ in s.operands}
    return all(o.name in given for o in isa.INSTRUCTIONS[s.name].operands)


def _line(o: VirtualInstruction, index: int, registers: tuple[int, ...], label: str | None, name: str) -> str:
    if o.name != GENERIC:
        return disassemble(instruction(o, index, registers, name), label)
    guard = ""
    if o.predicate is not None:
        register, sense = o.predicate
        guard = f"@{'' if sense else '!'}r{registers[register]} "
    return f"{guard}op {o.label}"
