"""Whether each warp executes exactly its instances of the sequential program, in their order."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from hw import isa
from hw.semantics import MASK
from sw.check.streams import Stream
from sw.ir.expression import Const, Expr, const
from sw.ir.program import Buffer, For, If, Instruction, Interval, Program, Region, Statement
from sw.ir.trace import Trace, trace
from sw.ir.types import LOW
from sw.ir.walk import instructions

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Instances:
    """The instances of a run by time: the number of the instruction in the text, and the warp."""

    made: Trace
    row: npt.NDArray[np.int32]
    warp: Ints

    @cached_property
    def by_warp(self) -> dict[int, Ints]:
        """The times of the instances of each warp, ascending."""
        return {w: np.flatnonzero(self.warp == w) for w in np.flatnonzero(np.bincount(self.warp)).tolist()}

    def instruction(self, time: int) -> Instruction:
        """The instruction of an instance."""
        return self.made.rows[int(self.row[time])].instruction

    def index(self, time: int) -> int:
        """How many executions of the same instruction come before an instance."""
        return int(np.searchsorted(self.made.rows[int(self.row[time])].time, time))

    def name(self, time: int) -> str:
        """The name of an instance, such as `P[0]`."""
        rows = self.made.rows[int(self.row[time])]
        numbers = rows.iteration[:, self.index(time)].tolist()
        return rows.instruction.label + (f"[{', '.join(map(str, numbers))}]" if numbers else "")


def instances(made: Trace) -> Instances:
    """All instances of a trace, whose instructions must all have a warp."""
    row, warp = np.zeros(made.count, np.int32), np.zeros(made.count, np.int64)
    for n, rows in enumerate(made.rows):
        row[rows.time] = n
        warp[rows.time] = rows.instruction.warp if rows.instruction.warp is not None else -1
    return Instances(made, row, warp)


@dataclass(frozen=True)
class Difference:
    """The first operation of a warp that is not the expected one.

    `event` is the place in the warp's stream, that of its end where operations are missing; `time` is the
    expected instance, None where none is left. `value` tells an operand that differs.
    """

    warp: int
    event: int
    time: int | None
    value: str = ""


def difference(all_: Instances, streams: Mapping[int, Stream]) -> Difference | None:
    """The first difference of the lowest warp that has one, None where all warps do what they shall."""
    none = np.empty(0, np.int64)
    wanted: dict[int, tuple[list[int], Ints]] | None = None
    for w, s in sorted(streams.items()):
        times, found = all_.by_warp.get(w, none), s.operations
        both = min(times.size, found.size)
        rows, sites = all_.row[times[:both]], s.events[found[:both]]
        first: tuple[int, str] = (both, "")
        together = rows.astype(np.int64) * len(s.sites) + sites
        for pair in np.flatnonzero(np.bincount(together)).tolist():
            row, number = divmod(pair, len(s.sites))
            site, instruction = s.sites[number], all_.made.rows[row].instruction
            here = np.flatnonzero(together == pair)
            if site.name != (instruction.label if site.generic else instruction.name):
                first = min(first, (int(here[0]), ""))
            elif not site.generic:
                if wanted is None:
                    wanted = operand_values(all_.made)
                columns, expected = wanted[row]
                given = s.values[number][np.searchsorted(np.flatnonzero(s.events == number), found[here])]
                expected = expected[np.searchsorted(all_.made.rows[row].time, times[here])]
                wrong = np.argwhere(given[:, columns] != expected)
                if wrong.size:
                    n, k = wrong[0].tolist()
                    name = columns_of(instruction.name)[columns[k]]
                    text = f"{name} = {given[n, columns[k]]}, not {expected[n, k]}"
                    first = min(first, (int(here[n]), text))
        at, value = first
        if at < max(times.size, found.size):
            event = int(found[at]) if at < found.size else s.events.size
            return Difference(w, event, int(times[at]) if at < times.size else None, value)
    return None


def columns_of(name: str) -> list[str]:
    """The operands and parameter registers of a machine's operation, in the order of `Stream.values`."""
    spec = isa.INSTRUCTIONS[name]
    return [*(o.name for o in spec.operands), *spec.parameters]


def stated_operands(s: Instruction) -> list[Expr | None]:
    """What an instruction of the machine states of each of its operands and parameter registers.

    Parameter registers that are not named are 0; operands that are regions, or not named, are not stated.
    """
    given, registers = dict(s.operands), isa.INSTRUCTIONS[s.name].parameters
    values = [given.get(name, const(0) if name in registers else None) for name in columns_of(s.name)]
    return [v if isinstance(v, Expr) else None for v in values]


def operand_values(made: Trace) -> dict[int, tuple[list[int], Ints]]:
    """What the program states of the operands of machine's operations, by the number of the instruction.

    A pair: the columns of `Stream.values` that are stated, and a row of values per execution.
    """
    program = made.program
    stated: dict[int, list[tuple[int, Expr]]] = {}
    for n, s in enumerate(instructions(program)):
        if s.name not in isa.INSTRUCTIONS:
            continue
        stated[n] = [(column, e) for column, e in enumerate(stated_operands(s)) if e is not None]
    probed = trace(_probes(program, stated), made.values)
    found = {}
    for n, parts in stated.items():
        rows = probed.rows[n]
        values = np.empty((rows.time.size, len(parts)), np.int64)
        probes = iter(rows.writes)
        for k, (_, expr) in enumerate(parts):
            if isinstance(expr, Const):
                values[:, k] = expr.value & MASK
            else:
                boxes = next(probes)
                assert boxes is not None
                values[:, k] = boxes.start[0] & MASK
        found[n] = ([column for column, _ in parts], values)
    return found


#: No buffer of a program can have this name.
_PROBE = "operand of"


def _probes(program: Program, stated: Mapping[int, list[tuple[int, Expr]]]) -> Program:
    """A program whose instructions write empty regions that start at the values of operands.

    So the trace of this program has the operands, and nothing here has to evaluate them again.
    """
    count = 0

    def body(statements: tuple[Statement, ...]) -> tuple[Statement, ...]:
        nonlocal count
        made: list[Statement] = []
        for s in statements:
            if isinstance(s, Instruction):
                parts = [e for _, e in stated.get(count, ()) if not isinstance(e, Const)]
                count += 1
                writes = tuple(Region(_PROBE, (Interval(e, Const(LOW)),)) for e in parts)
                made.append(dataclasses.replace(s, reads=(), writes=writes, operands=()))
            elif isinstance(s, For):
                made.append(dataclasses.replace(s, body=body(s.body)))
            elif isinstance(s, If):
                then = body(s.body)
                made.append(dataclasses.replace(s, body=then, orelse=body(s.orelse)))
            else:
                made.append(s)
        return tuple(made)

    probe = Buffer(_PROBE, (Const(1),))
    return dataclasses.replace(program, buffers=(*program.buffers, probe), body=body(program.body))
