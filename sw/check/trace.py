"""The tracer: every instance of every instruction of a run, with its time and regions, as arrays.

A run is followed for given parameter values. Instances whose predicate is false, and those in branches not
taken, are not part of it. So every access is certain and its region known (docs/ir.md).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from hw import isa
from hw.semantics import MASK
from sw.ir.errors import IRError, Location
from sw.ir.expression import Expr, const
from sw.ir.intrinsics import effects
from sw.ir.program import Assign, For, If, Instruction, Program, Region, Statement, While
from sw.ir.vector import Array, Column, evaluate_rows
from sw.ir.walk import assigned, statements, walk

#: Default limit of instances in a trace.
LARGEST = 50_000_000
#: Most numbers stored for the instances of one block: half a gigabyte, twice that while growing.
MOST_NUMBERS = 1 << 26


@dataclass(frozen=True)
class Boxes:
    """One access over all executions of its instruction: dimensions × rows, half open.

    A region is empty if `stop` <= `start` in any dimension.
    """

    buffer: str
    start: Array
    stop: Array


@dataclass(frozen=True)
class Rows:
    """All executions of one instruction of the text, in order.

    `loops` are the numbers of the enclosing loops, outermost first; loops are numbered through the text from
    0. `time` is the position of each execution in the order of all instances, and `iteration` (loops × rows)
    its iteration numbers, from 0. An access is None if its address is unknown (ANY); accesses are those of
    `sw.ir.intrinsics.effects`. `operands` (operands × rows) are the unsigned values that an instruction of
    the machine states (`stated_operands`).
    """

    instruction: Instruction
    loops: tuple[int, ...]
    time: Array
    iteration: Array
    reads: tuple[Boxes | None, ...]
    writes: tuple[Boxes | None, ...]
    operands: Array


@dataclass(frozen=True)
class Trace:
    """A run: `rows` by instruction in the order of the text, `count` instances.

    An instance is named by its time.
    """

    program: Program
    values: Mapping[str, int]
    rows: tuple[Rows, ...]
    count: int

    @cached_property
    def row(self) -> npt.NDArray[np.int32]:
        """By instance, the number of its instruction in the text."""
        found = np.zeros(self.count, np.int32)
        for n, rows in enumerate(self.rows):
            found[rows.time] = n
        return found

    @cached_property
    def warp(self) -> Array:
        """By instance, its warp, or -1 for none."""
        warps = [r.instruction.warp for r in self.rows]
        return np.array([-1 if w is None else w for w in (*warps, None)], np.int64)[self.row]

    @cached_property
    def by_warp(self) -> dict[int, Array]:
        """The instances of each warp, ascending."""
        return {w: np.flatnonzero(self.warp == w) for w in np.flatnonzero(np.bincount(self.warp)).tolist()}

    def index(self, time: int) -> int:
        """How many executions of the same instruction come before an instance."""
        return int(np.searchsorted(self.rows[int(self.row[time])].time, time))

    def name(self, time: int) -> str:
        """The name of an instance: `P` outside of loops, `P[0]` and `P[1, 2]` inside."""
        rows = self.rows[int(self.row[time])]
        numbers = rows.iteration[:, self.index(time)].tolist()
        return rows.instruction.label + (f"[{', '.join(map(str, numbers))}]" if numbers else "")


class TooLongError(IRError):
    """A run with more instances than a trace may have; this says nothing about the program itself."""


def trace(program: Program, values: Mapping[str, int] | None = None, most: int = LARGEST) -> Trace:
    """The trace of a program without `while` for given parameter values.

    Raises `IRError` for a run-time failure, for a missing parameter, and for more than `most` instances
    (`TooLongError`).
    """
    given = dict(values or {})
    for p in program.parameters:
        if p.name not in given:
            raise IRError(p.where, f"no value of the parameter {p.name}", "a number for every parameter")
    return _Tracer(program, given, most).run()


def columns_of(name: str) -> list[str]:
    """The operands and parameter registers of a machine's operation, in the order of the table."""
    spec = isa.INSTRUCTIONS[name]
    return [*(o.name for o in spec.operands), *spec.parameters]


def stated_operands(s: Instruction) -> dict[int, Expr]:
    """The operands and parameter registers that an instruction states, by column (`columns_of`).

    Parameter registers that are not named are 0; operands that are regions, or not named, are not stated.
    """
    if s.name not in isa.INSTRUCTIONS:
        return {}
    given, registers = dict(s.operands), isa.INSTRUCTIONS[s.name].parameters
    values = [given.get(name, const(0) if name in registers else None) for name in columns_of(s.name)]
    return {column: v for column, v in enumerate(values) if isinstance(v, Expr)}


class _CarriedError(Exception):
    """A scalar is carried from iteration to iteration, so iterations cannot be processed together."""


@dataclass
class _Rows:
    """Visits of one point of the control flow, processed together: values of variables, and iterations.

    The value of a scalar is None if it depends on the iteration before.
    """

    size: int
    values: dict[str, Column | None]
    iteration: tuple[Array, ...] = ()

    def take(self, index: Array) -> _Rows:
        values = {n: v[index] if isinstance(v, np.ndarray) else v for n, v in self.values.items()}
        return _Rows(int(index.size), values, tuple(i[index] for i in self.iteration))


@dataclass
class _Tracer:
    """Executes the statements; times follow from text and iterations once all loops are known."""

    program: Program
    values: Mapping[str, int]
    most: int
    #: By instruction, some executions at a time: iterations, operands, and start and stop of each region.
    parts: dict[int, list[list[Array]]] = field(default_factory=dict)
    #: Number of each loop, and by number its largest trip count.
    numbers: dict[int, int] = field(default_factory=dict)
    trips: Counter[int] = field(default_factory=Counter)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    #: Instances so far.
    count: int = 0
    #: Process one iteration after the other, because scalars are loop-carried.
    single: bool = False

    def run(self) -> Trace:
        for s in statements(self.program.body):
            if isinstance(s, While):
                raise IRError(s.where, "a while loop", "loops with a known number of iterations")
            if isinstance(s, For):
                self.numbers[id(s)] = len(self.numbers)
        whole = _Rows(1, dict(self.values))
        for b in self.program.buffers:
            self.shapes[b.name] = tuple(int(self.column(e, whole, b.where)[0]) for e in b.shape)
        try:
            self.body(self.program.body, _Rows(1, dict(self.values)))
        except _CarriedError:
            self.parts.clear()
            self.count, self.single = 0, True
            self.body(self.program.body, _Rows(1, dict(self.values)))
        found = [
            self.joined(s, tuple(self.numbers[id(a)] for a in around if isinstance(a, For)))
            for s, around in walk(self.program.body)
            if isinstance(s, Instruction)
        ]
        timed = (replace(rows, time=t) for rows, t in zip(found, self._times(found), strict=True))
        return Trace(self.program, self.values, tuple(timed), self.count)

    def _times(self, found: Sequence[Rows]) -> list[Array]:
        """By instruction, the positions of its executions among all executions.

        Each gets a number from the text and the iterations, as if every loop always ran its maximum number of
        times.
        """
        at: dict[int, int] = {}
        size: dict[int, int] = {}

        def lay_out(body: tuple[Statement, ...], start: int) -> int:
            for s in body:
                at[self.numbers.get(id(s), id(s))] = start
                if isinstance(s, For):
                    loop = self.numbers[id(s)]
                    size[loop] = lay_out(s.body, 0)
                    start += size[loop] * self.trips[loop]
                elif isinstance(s, If):
                    start = lay_out(s.orelse, lay_out(s.body, start))
                else:
                    start += 1
            return start

        if lay_out(self.program.body, 0) >= 1 << 62:
            raise TooLongError(None, f"a program of more than {self.most:,} instances", "a shorter one")
        keys = [np.empty(0, np.int64)]
        for rows in found:
            first = at[id(rows.instruction)] + sum(at[loop] for loop in rows.loops)
            keys.append(first + np.array([size[loop] for loop in rows.loops], np.int64) @ rows.iteration)
        order = np.argsort(np.concatenate(keys), kind="stable")
        times = np.empty(order.size, np.int64)
        times[order] = np.arange(order.size)
        return np.split(times, np.cumsum([k.size for k in keys]))[1:-1]

    def body(self, body: tuple[Statement, ...], rows: _Rows) -> None:
        for s in body:
            match s:
                case Assign(target, value):
                    rows.values[target] = self.value(value, rows, s.where)
                case Instruction():
                    self.instruction(s, rows)
                case If():
                    self.branch(s, rows)
                case For():
                    self.loop(s, rows)
                case _:
                    raise AssertionError(s)

    def branch(self, s: If, rows: _Rows) -> None:
        holds = self.column(s.condition, rows, s.where)
        ends: list[tuple[Array, _Rows]] = []
        for body, chosen in ((s.body, holds != 0), (s.orelse, holds == 0)):
            index = np.flatnonzero(chosen)
            if index.size:
                some = rows.take(index)
                self.body(body, some)
                ends.append((index, some))
        _meet(rows, assigned((*s.body, *s.orelse)), ends)

    def loop(self, s: For, rows: _Rows) -> None:
        """All iterations, of all rows at once or of one row after the other."""
        start, stop, step = (self.column(e, rows, s.where) for e in (s.start, s.stop, s.step))
        if not step.all():
            raise IRError(s.where, f"step {s.step} = 0", "a step other than zero")
        trips = np.maximum(0, (stop - start + step - np.sign(step)) // step)
        if int(trips.sum()) + self.count > self.most:
            raise TooLongError(s.where, f"a program of more than {self.most:,} instances", "a shorter one")
        if int(trips.sum()) * (len(rows.iteration) + len(rows.values) + 1) > MOST_NUMBERS:
            raise TooLongError(
                s.where, "a program whose instances do not fit the memory", "fewer nested loops"
            )
        number = self.numbers[id(s)]
        self.trips[number] = max(self.trips[number], int(trips.max(initial=0)))
        if rows.size != 1 or not self.single:
            self.iterations(s, rows, trips, start, step, 0)
            return
        for n in range(int(trips[0])):
            self.iterations(s, rows, np.ones(1, np.int64), start, step, n)

    def iterations(self, s: For, rows: _Rows, trips: Array, start: Array, step: Array, first: int) -> None:
        """Iterations from `first` on; `trips` is their number for each row."""
        owner = np.repeat(np.arange(rows.size), trips)
        number = np.arange(owner.size) - np.repeat(np.cumsum(trips) - trips, trips) + first
        inner = rows.take(owner)
        inner.iteration = (*inner.iteration, number)
        inner.values[s.variable] = start[owner] + number * step[owner]
        targets = assigned(s.body)
        if trips.max(initial=0) > 1:
            for name in targets:
                inner.values[name] = None
        self.body(s.body, inner)
        last, ran = np.cumsum(trips) - 1, np.flatnonzero(trips)
        ends = [(ran, inner.take(last[ran]))] if ran.size else []
        if ran.size < rows.size:
            rest = np.flatnonzero(trips == 0)
            ends.append((rest, rows.take(rest)))
        _meet(rows, targets, ends)

    def instruction(self, s: Instruction, rows: _Rows) -> None:
        """The rows in which it executes, and its regions there."""
        if s.when is not None:
            rows = rows.take(np.flatnonzero(self.column(s.when, rows, s.where)))
        self.count += rows.size
        operands = [self.column(e, rows, s.where) & MASK for e in stated_operands(s).values()]
        part = [np.array(a, np.int64).reshape(len(a), rows.size) for a in (rows.iteration, operands)]
        for access in itertools.chain(*effects(s)):
            if isinstance(access, Region):
                part += self.ends(access, rows, s)
        self.parts.setdefault(id(s), []).append(part)

    def ends(self, access: Region, rows: _Rows, s: Instruction) -> tuple[Array, Array]:
        """Start and stop of a region in every row; raises `IRError` if it is outside its buffer."""
        where = access.where or s.where
        start, stop = (
            np.stack([self.column(e, rows, where) for e in ends])
            for ends in ([i.start for i in access.box], [i.stop for i in access.box])
        )
        shape = self.shapes[access.buffer]
        limit = np.array(shape, np.int64)[:, None]
        wrong = (stop > start).all(axis=0) & ((start < 0) | (stop > limit)).any(axis=0)
        if wrong.any():
            row = int(wrong.argmax())
            box = ", ".join(f"{a}:{b}" for a, b in zip(start[:, row], stop[:, row], strict=True))
            inside = ", ".join(f"0:{size}" for size in shape)
            numbers = ", ".join(str(i[row]) for i in rows.iteration)
            at = f" in iteration {s.label}[{numbers}]" if numbers else ""
            raise IRError(
                where, f"the region {access.buffer}[{box}]{at}", f"one inside of {access.buffer}[{inside}]"
            )
        return start, stop

    def value(self, expr: Expr, rows: _Rows, where: Location | None) -> Column:
        columns: dict[str, Column] = {}
        for v in expr.variables():
            if v.name not in rows.values:
                raise IRError(where, f"{v.name!r} before it has a value", "an assignment before")
            value = rows.values[v.name]
            if value is None:
                raise _CarriedError
            columns[v.name] = value
        result, wrong = evaluate_rows(expr, columns)
        if rows.size and np.any(wrong):
            raise IRError(where, f"a division by zero in {expr}", "a divisor other than zero")
        return result

    def column(self, expr: Expr, rows: _Rows, where: Location | None) -> Array:
        """The value of an expression as a number for each row."""
        value = self.value(expr, rows, where)
        return value if isinstance(value, np.ndarray) else np.full(rows.size, value, np.int64)

    def joined(self, s: Instruction, loops: tuple[int, ...]) -> Rows:
        """All executions of an instruction, without their times."""
        accesses = effects(s)
        regions = [a for a in itertools.chain(*accesses) if isinstance(a, Region)]
        sizes = [len(loops), len(stated_operands(s)), *(len(a.box) for a in regions for _ in "ab")]
        none = [np.empty((size, 0), np.int64) for size in sizes]
        columns = [
            np.concatenate(found, axis=1) for found in zip(none, *self.parts.get(id(s), ()), strict=True)
        ]
        ends = iter(columns[2:])
        reads, writes = (
            tuple(Boxes(a.buffer, next(ends), next(ends)) if isinstance(a, Region) else None for a in side)
            for side in accesses
        )
        return Rows(s, loops, np.empty(0, np.int64), columns[0], reads, writes, columns[1])


def _meet(rows: _Rows, names: Iterable[str], ends: list[tuple[Array, _Rows]]) -> None:
    """Merges scalars where paths meet that together cover all rows."""
    for name in names:
        found = [(index, some.values.get(name)) for index, some in ends]
        if len(ends) == 1:
            if name in ends[0][1].values:
                rows.values[name] = found[0][1]
            continue
        merged: Array | None = np.zeros(rows.size, np.int64)
        for index, value in found:
            # A scalar without a value on one path counts as unknown; processing rows one by one shows whether
            # it is read.
            if value is None or merged is None:
                merged = None
            else:
                merged[index] = value
        rows.values[name] = merged
