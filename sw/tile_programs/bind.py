"""From a tile program on buffers to one of operations of the machine (docs/programs.md)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from hw.config import MachineConfig
from sw.canonical.program import canonicalize_program
from sw.ir.errors import IRError
from sw.ir.expression import Const, Expr, Op, Var, fold
from sw.ir.program import Assign, For, If, Instruction, Program, Region, Statement
from sw.ir.scope import retype
from sw.ir.trace import Rows, Trace, trace
from sw.ir.walk import fresh_names, instructions, walk
from sw.layout import MEMORY_BYTES, PAGE, Placement
from sw.tile_programs.generic import Record, Transfers, contents, record, regions_of
from sw.tile_programs.operands import Binder
from sw.tile_programs.parameters import with_values
from sw.tile_programs.places import Place, memory_place, place_buffers, place_memory, space_of
from sw.tile_programs.uses import Uses, is_generic, uses_of
from sw.tile_programs.warps import with_warps
from sw.tiled.split import replaced


@dataclass(frozen=True)
class Bound:
    """A program of the machine's operations, and where its buffers lie.

    `source` is the program as it was written, with numbers for its parameters; `program` has the machine's
    operations, with values for registers, and the same warps. `memory` holds all buffers in memory: those of
    the source, then the logs and constants of instructions that are none of the machine's, whose contents at
    the start are in `contents`. `places` holds all buffers that regions name; `read` and `written` name those
    that loads read and those that anything writes.
    """

    source: Program
    program: Program
    config: MachineConfig
    memory: Mapping[str, Placement]
    places: Mapping[str, Place]
    contents: Mapping[str, np.ndarray]
    read: frozenset[str]
    written: frozenset[str]

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
    made = _Binding(source, config, spaces, uses, places, trace(source), seed, memory_bytes)
    return made.bound()


@dataclass
class _Binding:
    """State on the way through a program."""

    source: Program
    config: MachineConfig
    spaces: dict[str, str]
    uses: Uses
    places: dict[str, Place]
    trace: Trace
    seed: int
    memory_bytes: int
    rows: dict[str, Rows] = field(default_factory=dict)
    records: dict[str, Record] = field(default_factory=dict)
    memory: dict[str, Placement] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    variables: Iterator[str] = field(default_factory=lambda: iter(()))

    def bound(self) -> Bound:
        """All of it."""
        self.rows = {rows.instruction.label: rows for rows in self.trace.rows}
        self.taken = {b.name for b in self.source.buffers} | set(self.rows)
        self.variables = fresh_names(self.source, "n")
        source = dataclasses.replace(self.source, body=self.with_starts(self.source.body, ()))
        self.collect(source)
        buffers = {b.name: b for b in source.buffers if self.spaces[b.name] == "memory"}
        buffers |= {r.buffer.name: r.buffer for r in self.records.values()}
        self.memory = place_memory(buffers, self.config, self.with_records(), self.memory_bytes)
        self.places |= {name: memory_place(b, self.memory[name]) for name, b in buffers.items()}
        declared = tuple(dataclasses.replace(b, space=self.spaces[b.name]) for b in source.buffers) + tuple(
            r.buffer for r in self.records.values()
        )
        program = dataclasses.replace(source, buffers=declared, body=replaced(source.body, self.instruction))
        program = retype(canonicalize_program(retype(program)))
        ports = self.with_records().ports
        return Bound(
            self.source,
            program,
            self.config,
            self.memory,
            self.places,
            {
                r.buffer.name: contents(r, self.memory[r.buffer.name], self.seed)
                for r in self.records.values()
            },
            frozenset(name for name, found in ports.items() if found - {"store"}),
            frozenset(a.buffer for s in instructions(program) for a in s.writes if isinstance(a, Region)),
        )

    # The numbers of executions

    def with_starts(self, body: tuple[Statement, ...], around: tuple[str, ...]) -> tuple[Statement, ...]:
        """Starts of loops that depend on scalars get scalars of their own, which stay as the loop runs."""
        made: list[Statement] = []
        for s in body:
            if isinstance(s, For):
                if any(v.name not in around for e in (s.start, s.step) for v in e.variables()):
                    start, step = Var(next(self.variables)), Var(next(self.variables))
                    made += [Assign(start.name, s.start, s.where), Assign(step.name, s.step, s.where)]
                    s = dataclasses.replace(s, start=start, step=step)
                s = dataclasses.replace(s, body=self.with_starts(s.body, (*around, s.variable)))
            elif isinstance(s, If):
                then, other = self.with_starts(s.body, around), self.with_starts(s.orelse, around)
                s = dataclasses.replace(s, body=then, orelse=other)
            made.append(s)
        return tuple(made)

    @staticmethod
    def index(rows: Rows, loops: tuple[For, ...]) -> tuple[Expr, int]:
        """The number of an execution as an expression of the loops around, and how many numbers there are."""
        index: Expr = Const(0)
        count = 1
        for loop, numbers in zip(loops, rows.iteration, strict=True):
            trips = int(numbers.max(initial=0)) + 1
            number = fold(Op.SUB, Var(loop.variable), loop.start) // loop.step
            index = index * trips + number if trips > 1 else index
            count *= trips
        return index, count

    # What instructions need in memory

    def collect(self, source: Program) -> None:
        """Find out what memory instructions need that are none of the machine's."""
        for s, around in walk(source.body):
            if not isinstance(s, Instruction) or not is_generic(s) or not (s.reads or s.writes):
                continue
            rows = self.rows[s.label]
            if rows.time.size:
                loops = tuple(x for x in around if isinstance(x, For))
                reads, writes = regions_of(s, rows, self.places)
                name = self.name(f"{s.label}_{'log' if reads else 'data'}")
                width = max(self.config.store_bytes, self.config.load_c_bytes)
                self.records[s.label] = record(s, reads, writes, self.index(rows, loops), name, width)

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
        own: dict[str, frozenset[str]] = {}
        for s in instructions(self.source):
            if s.label in self.records:
                ports = ({"store"} if s.reads else set()) | ({"load_c"} if s.writes else set())
                own[self.records[s.label].buffer.name] = frozenset(ports)
        return dataclasses.replace(self.uses, ports=self.uses.ports | own)

    # Instructions

    def instruction(self, s: Instruction) -> list[Statement]:
        """The operations of an instruction; nothing for one that never happens."""
        rows = self.rows[s.label]
        if s.name in ("wait", "signal"):
            return [s]
        if not rows.time.size:
            return []
        if not is_generic(s):
            bound = Binder(self.config, self.places, self.spaces).bind(s, rows)
            return [] if bound is None else [bound]
        if s.label not in self.records:
            return []
        reads, writes = regions_of(s, rows, self.places)
        own = self.records[s.label]
        to = Transfers(self.config, s, rows, own, self.memory[own.buffer.name], self.variables)
        moves = [(to.read, n, box, "r") for n, box in enumerate(reads) if box.filled.any()]
        moves += [(to.write, n, box, "w") for n, box in enumerate(writes) if box.filled.any()]
        if len(moves) == 1:
            return [moves[0][0](moves[0][1], moves[0][2], s.label)]
        return [move(n, box, self.name(f"{s.label}_{kind}{n}")) for move, n, box, kind in moves]


__all__ = ["Bound", "IRError", "bind"]
