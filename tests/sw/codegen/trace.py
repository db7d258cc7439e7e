"""The actions of a warp, derived once from the tile program and once from its instruction words.

Both give the sequence of engine operations with all operands and parameter values, and of waits and signals.
"""

from __future__ import annotations

from dataclasses import dataclass

from hw import isa
from hw.assembly import decode, illegal
from hw.config import MachineConfig
from sw.ir.expression import evaluate
from sw.ir.program import Instruction, Program
from sw.ir.walk import executions

MASK = (1 << 32) - 1
Event = tuple[str, tuple[int, ...], tuple[tuple[str, int], ...]]


def program_trace(program: Program, values: dict[str, int] | None = None) -> list[Event]:
    """The events of a tile program."""
    now = dict(values or {})
    return [_event(s, now) for s, _ in executions(program.body, now)]


def _event(s: Instruction, values: dict[str, int]) -> Event:
    given = {name: evaluate(e, values) & MASK for name, e in s.operands}  # type: ignore[arg-type]
    if s.name in ("wait", "signal"):
        return s.name, (given["channel"],), ()
    spec = isa.INSTRUCTIONS[s.name]
    return (
        s.name,
        tuple(given[o.name] for o in spec.operands),
        tuple((p, given.get(p, 0)) for p in spec.parameters),
    )


@dataclass
class Run:
    """Events of instruction words, and what executing them took."""

    events: list[Event]
    #: Cycles of all instructions that are no engine operation, wait or signal, if nothing is held.
    scalar_turns: int
    scalar_operations: int
    registers: int


def words_trace(words: list[int], config: MachineConfig, limit: int = 200_000) -> Run:
    """Execute a warp's words without timing; waits always find a token."""
    codes = [decode(w) for w in words]
    for code in codes:
        assert illegal(code, config) is None, illegal(code, config)
    r, parameters = [0] * config.registers, dict.fromkeys(isa.PARAMETERS, 0)
    loops: list[list[int]] = []
    run = Run([], 0, 0, 0)
    pc = 0
    for _ in range(limit):
        code = codes[pc]
        assert code is not None
        f, name, at = code.fields, code.name, pc
        pc += 1
        happens = (r[code.predicate] != 0) == code.sense
        spec = code.spec
        if not (spec.engine or name in ("wait", "signal", "halt")):
            run.scalar_turns += spec.turns
            run.scalar_operations += 1
        for field in spec.fields:
            if field.kind is isa.FieldKind.REGISTER:
                run.registers = max(run.registers, f[field.name] + 1)
        if happens:
            if spec.semantics is not None:
                values = (f[s] if s == "imm" else r[f[s]] for s in spec.sources)
                r[f["rd"]] = spec.semantics.value(*values)
            elif name == "jump":
                target = pc + f["offset"]
                if loops:
                    assert loops[-1][0] <= target <= loops[-1][1], "a jump crosses a loop's border"
                assert 0 <= target < len(words)
                pc = target
            elif name == "loop":
                assert pc + f["length"] < len(words)
                if r[f["rs1"]] <= 0:
                    pc += f["length"]
                else:
                    end = at + f["length"]
                    assert all(end < outer[1] for outer in loops), "two loops end together"
                    loops.append([at + 1, end, r[f["rs1"]]])
                    assert len(loops) <= config.loop_depth
            elif name in ("param", "parami"):
                value = (f["imm"] if name == "parami" else r[f["rs1"]]) & MASK
                parameter = isa.BY_PARAMETER[f["parameter"]]
                assert value < 1 << parameter.bits, f"{parameter.name} = {value}"
                parameters[parameter.name] = value
            elif name in ("wait", "signal"):
                run.events.append((name, (f["channel"],), ()))
            elif name == "halt":
                assert not loops
                return run
            elif spec.engine:
                operands = tuple(r[f[x.name]] & MASK for x in spec.fields)
                run.events.append((name, operands, tuple((p, parameters[p]) for p in spec.parameters)))
        r[0] = 0
        while loops and at == loops[-1][1] and pc == at + 1:
            loops[-1][2] -= 1
            if loops[-1][2]:
                pc = loops[-1][0]
                break
            loops.pop()
    raise AssertionError("the program does not end")
