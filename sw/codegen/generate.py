"""Generates instruction memory words from the tile program of one warp."""

from __future__ import annotations

import itertools

from hw import isa
from hw.assembly import Code as Instruction
from hw.assembly import encode
from hw.config import MachineConfig
from hw.errors import InputError
from sw.codegen.allocate import Allocation, allocate, live_out, pressure
from sw.codegen.lower import lower
from sw.codegen.virtual import Code, VirtualInstruction
from sw.ir.expression import Const
from sw.ir.intrinsics import INTRINSICS
from sw.ir.program import Instruction as Statement
from sw.ir.program import Program, Region
from sw.ir.walk import statements

_LOOP_LIMIT = (1 << isa.layout("loop")["length"].width) - 1
_JUMP_LIMIT = 1 << isa.layout("jump")["offset"].width - 1


def generate(program: Program, config: MachineConfig, name: str, *, uniform: bool = False) -> list[int]:
    """The words of a warp's program, with a final `halt`.

    `program` has the instructions of one warp, all of the machine, with expressions as operands, and no
    parameters; `name` starts every message. With `uniform`, values that grow with the problem use the same
    instructions for any size (docs/codegen.md). Raises `InputError` if registers, loop depth, channels or
    instruction memory of the configuration are too small, and for anything that a warp cannot execute.
    """
    if program.parameters:
        given = ", ".join(p.name for p in program.parameters)
        raise InputError(f"{name}: a program of the machine must have no parameters, not {given}")
    code, allocation = compiled(program, config, name, uniform=uniform)
    return [encode(c) for c in instructions(code, allocation, name)]


def compiled(
    program: Program,
    config: MachineConfig,
    name: str,
    *,
    generic: bool = False,
    uniform: bool = False,
) -> tuple[Code, Allocation]:
    """A warp's operations and their registers, checked against what the machine has.

    Parameters of the program take registers. `generic` permits instructions that the machine does not have,
    `uniform` is that of `generate`.
    Raises `InputError` as `generate` does.
    """
    for s in statements(program.body):
        if isinstance(s, Statement):
            _check_instruction(s, config, f"{name}: {s.label}", generic=generic)
    code = lower(program, exact=True, uniform=uniform)
    allocation = allocate(code)
    _check_resources(code, allocation, config, name)
    return code, allocation


class ProgramTooLongError(InputError):
    """A warp's program does not fit its instruction memory, which must be `times` as large."""

    def __init__(self, text: str, times: float):
        super().__init__(text)
        self.times = times


def _check_resources(code: Code, allocation: Allocation, config: MachineConfig, name: str) -> None:
    """Raises `InputError` if the machine's resources are exceeded, naming the place."""

    def refuse(resource: str, needed: int, there: int, index: int) -> None:
        if needed > there:
            at = next((o.label for o in code.operations[index:] if o.label), "")
            where = f" ({at} needs them)" if at else ""
            text = f"{name}: {resource} must be at least {needed}, not {there}{where}"
            raise ProgramTooLongError(text, needed / there) if resource == "imem_words" else InputError(text)

    alive = pressure(code, live_out(code))
    refuse("registers", allocation.count, config.registers, alive.index(max(alive, default=0)))
    refuse("loop_depth", code.depth, config.loop_depth, _deepest(code))
    refuse("imem_words", len(code.operations), config.imem_words, config.imem_words)


def _deepest(code: Code) -> int:
    """The index of the first operation inside the most loops."""
    depths = [0] * (len(code.operations) + 1)
    for i, o in enumerate(code.operations):
        if o.name == "loop":
            depths[i + 1] += 1
            depths[o.link + 1] -= 1
    around = list(itertools.accumulate(depths))
    return around.index(max(around))


def instructions(code: Code, allocation: Allocation, name: str = "program") -> list[Instruction]:
    """The machine's instructions for code and its registers; raises `InputError` for a loop too long."""
    return [instruction(o, i, allocation.registers, name) for i, o in enumerate(code.operations)]


def instruction(
    o: VirtualInstruction, index: int, registers: tuple[int, ...], name: str = "program"
) -> Instruction:
    """The machine's instruction of the operation at an index; raises `InputError` for a loop too long."""
    spec = isa.INSTRUCTIONS[o.name]
    fields: dict[str, int] = {}
    sources = [registers[r] for r in o.sources]
    if o.name == "lih":
        sources = []
    for f in spec.fields:
        match f.kind:
            case isa.FieldKind.REGISTER if f.name == "rd":
                assert o.target is not None
                fields[f.name] = registers[o.target]
            case isa.FieldKind.REGISTER:
                fields[f.name] = sources.pop(0)
            case isa.FieldKind.CHANNEL | isa.FieldKind.PARAMETER:
                assert o.number is not None
                fields[f.name] = o.number
            case isa.FieldKind.COUNT:
                fields[f.name] = _within(o.link - index, 1, _LOOP_LIMIT, f"{name}: instructions of a loop")
            case isa.FieldKind.IMMEDIATE if o.name == "jump":
                limits = -_JUMP_LIMIT, _JUMP_LIMIT - 1
                fields[f.name] = _within(o.link - index - 1, *limits, f"{name}: distance of a jump")
            case isa.FieldKind.IMMEDIATE:
                assert o.immediate is not None
                fields[f.name] = o.immediate
    if o.predicate is None:
        return Instruction(o.name, fields)
    return Instruction(o.name, fields, registers[o.predicate[0]], o.predicate[1])


def _within(value: int, low: int, high: int, what: str) -> int:
    if not low <= value <= high:
        raise InputError(f"{what} must be {low} to {high}, not {value}")
    return value


def _check_instruction(s: Statement, config: MachineConfig, name: str, *, generic: bool) -> None:
    """Raises `InputError` for anything that no warp of this machine can execute."""
    spec = isa.INSTRUCTIONS.get(s.name)
    if s.name in ("wait", "signal"):
        channel = dict(s.operands).get("channel")
        if not isinstance(channel, Const):
            raise InputError(f"{name}: the channel of {s.name} must be a number, not {channel}")
        if not 0 <= channel.value < config.channels:
            raise InputError(f"{name}: channels must be at least {channel.value + 1}, not {config.channels}")
        return
    if spec is None and s.name not in INTRINSICS and generic:
        return
    if spec is None or spec.engine is None:
        raise InputError(f"{name}: must be an operation of the machine, not {s.name}")
    given = dict(s.operands)
    for o in spec.operands:
        value = given.get(o.name)
        if value is None or isinstance(value, Region):
            found = "nothing" if value is None else "a region"
            raise InputError(f"{name}: {o.name} of {s.name} must be an expression, not {found}")
    others = [n for n in given if n not in spec.parameters and n not in {o.name for o in spec.operands}]
    if others:
        raise InputError(f"{name}: {s.name} must have no operand {others[0]}")
