"""Binds a tile program: from instructions on buffers to operations of the machine (docs/programs.md)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hw.config import MachineConfig
from sw.canonical.program import canonicalize_program
from sw.ir.errors import IRError
from sw.ir.expression import Const, Expr, Var, names, substitute
from sw.ir.program import Assign, For, Instruction, Program, Region, Statement
from sw.ir.scope import retype
from sw.ir.split import replaced, without_syncs
from sw.ir.walk import Body, assigned, fresh_names, instructions, rewrite, walk
from sw.layout import PAGE, Placement
from sw.tile_programs.checks import follow
from sw.tile_programs.generic import Record, contents, operation_of, record
from sw.tile_programs.operands import bound_operation
from sw.tile_programs.places import Place, memory_places, place_buffers, place_memory, space_of
from sw.tile_programs.regions import Seen
from sw.tile_programs.uses import Uses, is_generic, operation, uses_of
from sw.warps.assign import assign_warps


@dataclass(frozen=True)
class Bound:
    """A program of the machine's operations, with the allocation of its buffers.

    `source` is the program as written, with numbers for its parameters. `program` has the machine's
    operations, with values for registers, and the same warps. `memory` holds all buffers in memory: those of
    the source, then the logs and constants of generic instructions. These are in `records` by label, with
    their initial contents in `contents`. `places` holds all buffers that regions name. `read` and `stored`
    name the buffers in memory that loads read and stores write; `written` names all that anything writes.
    """

    source: Program
    program: Program
    config: MachineConfig
    memory: Mapping[str, Placement]
    places: Mapping[str, Place]
    records: Mapping[str, Record]
    contents: Mapping[str, np.ndarray]
    read: frozenset[str]
    stored: frozenset[str]
    written: frozenset[str]

    @property
    def size(self) -> int:
        """Bytes of memory up to the end of the last buffer, and a page."""
        return max((p.address + p.size for p in self.memory.values()), default=0) + PAGE

    def windows(self) -> tuple[tuple[int, int, bool, bool], ...]:
        """First byte, last byte, read permission and write permission of each window.

        There is one per buffer; if the machine has too few, neighbours share one, those of equal permission
        first.
        """
        found = [
            (p.address, p.address + p.size - 1, name in self.read, name in self.stored)
            for name, p in self.memory.items()
            if name in self.read | self.stored
        ]
        while len(found) > self.config.windows:
            alike = [i for i in range(len(found) - 1) if found[i][2:] == found[i + 1][2:]]
            i = alike[0] if alike else 0
            (first, _, read, write), (_, last, *more) = found[i], found[i + 1]
            found[i : i + 2] = [(first, last, read or more[0], write or more[1])]
        return tuple(found)


def bind(
    program: Program,
    config: MachineConfig,
    values: Mapping[str, int] | None = None,
    *,
    seed: int = 0,
) -> Bound:
    """Allocates every buffer, and replaces every instruction by operations of the machine.

    `values` are those of the program's parameters. `seed` decides what generic instructions write. Raises
    `IRError` for buffers that do not fit, regions that one operation cannot move, and run-time failures.
    """
    source = _with_warps(_with_values(program, values or {}), config)
    spaces = {b.name: space_of(b) for b in source.buffers}
    uses = uses_of(source, spaces)
    places = place_buffers(source, config, uses)
    in_memory = {b.name: b for b in source.buffers if spaces[b.name] == "memory"}
    places |= memory_places(in_memory, place_memory(in_memory, config, uses))
    seen = follow(source, config, places, spaces)
    return _Binding(source, config, spaces, uses, places, seen, seed).bound()


def _with_values(program: Program, values: Mapping[str, int]) -> Program:
    """The program with numbers for its parameters.

    Raises `IRError` for a parameter without a value, or with a value out of range.
    """
    known: dict[str, Expr] = {}
    for p in program.parameters:
        if p.name not in values:
            raise IRError(p.where, f"no value of the parameter {p.name}", "one among the inputs")
        value = values[p.name]
        if not p.type.low <= value < p.type.high:
            raise IRError(p.where, f"{p.name} = {value}", f"a value of {p.type}")
        known[p.name] = Const(int(value), p.type.kind)

    def change(expr: Expr) -> Expr:
        return substitute(expr, known)

    buffers = tuple(
        dataclasses.replace(b, shape=tuple(change(size) for size in b.shape)) for b in program.buffers
    )
    body = rewrite(program.body, expression=change)
    return retype(dataclasses.replace(program, parameters=(), buffers=buffers, body=body))


def _with_warps(program: Program, config: MachineConfig) -> Program:
    """The program with a warp for every instruction (`sw.warps.assign.assign_warps`).

    Raises `IRError` for a warp that the machine does not have, and for `wait` and `signal` without one.
    """
    warps = {s.label: s.warp for s in instructions(assign_warps(without_syncs(program)))}

    def change(s: Instruction) -> tuple[Statement, ...]:
        warp = warps.get(s.label, s.warp)
        if warp is None:
            raise IRError(s.where, f"{s.name} without warp=", "the warp that executes it")
        if warp >= config.warps:
            there = f"a warp of 0 to {config.warps - 1}, the warps of {config.name}"
            raise IRError(s.where, f"warp {warp} of {s.label}", there)
        return (dataclasses.replace(s, warp=warp),)

    return dataclasses.replace(program, body=replaced(program.body, change))


@dataclass
class _Binding:
    """State during binding."""

    source: Program
    config: MachineConfig
    spaces: dict[str, str]
    uses: Uses
    places: dict[str, Place]
    seen: Mapping[str, Seen]
    seed: int
    records: dict[str, Record] = field(default_factory=dict)
    memory: dict[str, Placement] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.taken = {b.name for b in self.source.buffers} | {s.label for s in instructions(self.source)}
        self.variables = fresh_names(self.source, "n")

    def bound(self) -> Bound:
        """Binds the program and returns the result."""
        source = dataclasses.replace(self.source, body=self.with_starts())
        self.collect(source)
        buffers = {b.name: b for b in source.buffers if self.spaces[b.name] == "memory"}
        buffers |= {r.buffer.name: r.buffer for r in self.records.values()}
        uses = self.with_records()
        self.memory = place_memory(buffers, self.config, uses)
        self.places |= memory_places(buffers, self.memory)
        declared = (
            *(dataclasses.replace(b, space=self.spaces[b.name]) for b in source.buffers),
            *(r.buffer for r in self.records.values()),
        )
        program = dataclasses.replace(source, buffers=declared, body=replaced(source.body, self.instruction))
        program = retype(canonicalize_program(retype(program)))
        names = [r.buffer.name for r in self.records.values()]
        return Bound(
            self.source,
            program,
            self.config,
            self.memory,
            self.places,
            self.records,
            {name: contents(name, self.memory[name], self.seed) for name in names},
            frozenset(name for name, found in uses.ports.items() if found - {"store"}),
            frozenset(name for name, found in uses.ports.items() if "store" in found),
            frozenset(a.buffer for s in instructions(program) for a in s.writes if isinstance(a, Region)),
        )

    def with_starts(self) -> Body:
        """Copies starts and steps that depend on scalars to scalars that stay constant in the loop."""
        assignable = set(assigned(self.source.body))

        def change(s: Statement) -> Sequence[Statement]:
            if not isinstance(s, For):
                return (s,)
            ends = [s.start, s.step]
            made: list[Statement] = []
            for i, end in enumerate(ends):
                if names(end) & assignable:
                    ends[i] = Var(next(self.variables))
                    made.append(Assign(str(ends[i]), end, s.where))
            return (*made, dataclasses.replace(s, start=ends[0], step=ends[1]))

        return rewrite(self.source.body, change)

    def collect(self, source: Program) -> None:
        """Finds out how much memory generic instructions need."""
        for s, around in walk(source.body):
            if isinstance(s, Instruction) and is_generic(s) and s.label in self.seen:
                if not (s.reads or s.writes):
                    continue
                loops = [x for x in around if isinstance(x, For)]
                name = self.name(f"{s.label}_{'log' if s.reads else 'data'}")
                own = self.seen[s.label]
                self.records[s.label] = record(s, own.boxes(self.places), own.trips, loops, name, self.config)

    def name(self, wanted: str) -> str:
        """A unique name like this one."""
        found, number = wanted, 0
        while found in self.taken:
            number += 1
            found = f"{wanted}{number}"
        self.taken.add(found)
        return found

    def with_records(self) -> Uses:
        """The uses of buffers, including logs and constants."""
        own = {}
        for r in self.records.values():
            ports = {"store" if t.kind == "read" else "load_c" for t in r.transfers}
            own[r.buffer.name] = frozenset(ports)
        return dataclasses.replace(self.uses, ports=self.uses.ports | own)

    def instruction(self, s: Instruction) -> Sequence[Statement]:
        """The operations of an instruction; none if it never executes."""
        if s.name in ("wait", "signal"):
            return (s,)
        if s.label not in self.seen:
            return ()
        if not is_generic(s):
            boxes = self.seen[s.label].boxes(self.places)
            bound = bound_operation(s, operation(s, self.spaces), boxes)
            return () if bound is None else (bound,)
        if s.label not in self.records:
            return ()
        own = self.records[s.label]
        place = self.memory[own.buffer.name]
        moves = [t for t in own.transfers if t.room]
        return [
            operation_of(
                s,
                own,
                t,
                place,
                self.variables,
                s.label if len(moves) == 1 else self.name(f"{s.label}_{t.kind[0]}{t.number}"),
            )
            for t in moves
        ]
