"""From a tile program on buffers to one of operations of the machine (docs/programs.md)."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hw.config import MachineConfig
from sw.canonical.program import canonicalize_program
from sw.ir.errors import IRError, Location
from sw.ir.expression import Expr, Var
from sw.ir.program import Assign, For, Instruction, Program, Region, Statement, While
from sw.ir.scope import retype
from sw.ir.split import replaced
from sw.ir.walk import (
    Body,
    fresh_names,
    instructions,
    map_bodies,
    statements,
    walk,
)
from sw.layout import MEMORY_BYTES, PAGE, Placement
from sw.tile_programs.facts import Facts, Requirement
from sw.tile_programs.generic import Record, contents, operation_of, record
from sw.tile_programs.operands import Binder
from sw.tile_programs.parameters import with_values
from sw.tile_programs.places import Place, memory_place, place_buffers, place_memory, space_of
from sw.tile_programs.uses import Uses, is_generic, uses_of
from sw.tile_programs.warps import with_warps


@dataclass(frozen=True)
class Bound:
    """A program of the machine's operations, and where its buffers lie.

    `source` is the program as it was written, with numbers for its parameters; `program` has the machine's
    operations, with values for registers, and the same warps. `memory` holds all buffers in memory: those of
    the source, then the logs and constants of instructions that are none of the machine's. These are in
    `records` by label, with what they hold at the start in `contents`. `places` holds all buffers that
    regions name; `read` and `written` name those that loads read and those that anything writes.
    `requirements` must hold whenever the instructions of `source` happen.
    """

    source: Program
    program: Program
    config: MachineConfig
    memory: Mapping[str, Placement]
    places: Mapping[str, Place]
    records: Mapping[str, Record]
    contents: Mapping[str, np.ndarray]
    read: frozenset[str]
    written: frozenset[str]
    requirements: tuple[Requirement, ...]

    @property
    def size(self) -> int:
        """Bytes of memory up to the end of the last buffer, and a page."""
        return max((p.address + p.size for p in self.memory.values()), default=0) + PAGE

    def windows(self) -> tuple[tuple[int, int, bool, bool], ...]:
        """First byte, last byte, read permission, write permission of each window.

        One for each buffer, or, where the machine does not have as many, for neighbours, those of equal
        permission first.
        """
        found = [
            (p.address, p.address + p.size - 1, name in self.read, p.write)
            for name, p in self.memory.items()
            if name in self.read or p.write
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
    memory_bytes: int = MEMORY_BYTES,
) -> Bound:
    """Give every buffer a place and every instruction operations of the machine.

    `values` are those of the program's parameters. `seed` decides what instructions write that are none of
    the machine's. Raises `IRError` for buffers that do not fit, regions that one operation cannot move, and
    what fails when the program runs.
    """
    source = with_warps(with_values(program, values or {}), config)
    spaces = {b.name: space_of(b) for b in source.buffers}
    uses = uses_of(source, spaces)
    places = place_buffers(source, config, uses)
    return _Binding(source, config, spaces, uses, places, Facts(source), seed, memory_bytes).bound()


@dataclass
class _Binding:
    """State on the way through a program."""

    source: Program
    config: MachineConfig
    spaces: dict[str, str]
    uses: Uses
    places: dict[str, Place]
    facts: Facts
    seed: int
    memory_bytes: int
    records: dict[str, Record] = field(default_factory=dict)
    memory: dict[str, Placement] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    variables: Iterator[str] = field(default_factory=lambda: iter(()))

    def bound(self) -> Bound:
        """All of it."""
        for s in statements(self.source.body):
            if isinstance(s, While):
                raise IRError(s.where, "a while loop", "loops whose number of iterations is known")
        self.taken = {b.name for b in self.source.buffers} | {s.label for s in instructions(self.source)}
        self.variables = fresh_names(self.source, "n")
        source = dataclasses.replace(self.source, body=self.with_starts(self.source.body, ()))
        self.collect(source)
        buffers = {b.name: b for b in source.buffers if self.spaces[b.name] == "memory"}
        buffers |= {r.buffer.name: r.buffer for r in self.records.values()}
        uses = self.with_records()
        self.memory = place_memory(buffers, self.config, uses, self.memory_bytes)
        self.places |= {name: memory_place(b, self.memory[name]) for name, b in buffers.items()}
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
            frozenset(a.buffer for s in instructions(program) for a in s.writes if isinstance(a, Region)),
            tuple(self.facts.requirements),
        )

    def with_starts(self, body: Body, around: tuple[str, ...]) -> Body:
        """Starts and steps that depend on scalars get scalars of their own, which stay as the loop runs."""
        made: list[Statement] = []
        for s in body:
            inner = around
            if isinstance(s, For):
                inner = (*around, s.variable)
                start, step = (self.fixed(e, around, made, s.where) for e in (s.start, s.step))
                s = dataclasses.replace(s, start=start, step=step)
            made.append(map_bodies(s, functools.partial(self.with_starts, around=inner)))
        return tuple(made)

    def fixed(
        self, end: Expr, around: tuple[str, ...], made: list[Statement], where: Location | None
    ) -> Expr:
        """A start or step by variables of loops, or else a new scalar of its value, assigned in `made`."""
        if all(v.name in around for v in end.variables()):
            return end
        scalar = Var(next(self.variables))
        made.append(Assign(scalar.name, end, where))
        return scalar

    # What instructions need in memory

    def collect(self, source: Program) -> None:
        """Find out what memory instructions need that are none of the machine's."""
        original = {s.label: s for s in instructions(self.source)}
        for s, around in walk(source.body):
            if not isinstance(s, Instruction) or not is_generic(s) or not (s.reads or s.writes):
                continue
            if not self.facts.never(original[s.label]):
                loops = [x for x in around if isinstance(x, For)]
                name = self.name(f"{s.label}_{'log' if s.reads else 'data'}")
                self.records[s.label] = record(s, self.facts, self.places, loops, name, self.config)

    def name(self, wanted: str) -> str:
        """A name like this that is not taken, and now is."""
        found, number = wanted, 0
        while found in self.taken:
            number += 1
            found = f"{wanted}{number}"
        self.taken.add(found)
        return found

    def with_records(self) -> Uses:
        """The uses of buffers, logs and constants among them."""
        own = {}
        for r in self.records.values():
            ports = {"store" if t.kind == "read" else "load_c" for t in r.transfers}
            own[r.buffer.name] = frozenset(ports)
        return dataclasses.replace(self.uses, ports=self.uses.ports | own)

    # Instructions

    def instruction(self, s: Instruction) -> Sequence[Statement]:
        """The operations of an instruction; nothing for one that never happens."""
        if s.name in ("wait", "signal"):
            return (s,)
        if self.facts.never(s):
            return ()
        if not is_generic(s):
            bound = Binder(self.config, self.facts, self.places, self.spaces).bind(s)
            return () if bound is None else (bound,)
        if s.label not in self.records:
            return ()
        own = self.records[s.label]
        place = self.memory[own.buffer.name]
        moves = [t for t in own.transfers if any(t.largest)]
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


__all__ = ["Bound", "IRError", "bind"]
