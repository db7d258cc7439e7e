"""Cut the parameter space into boxes in which program and warps behave alike.

One choice of values then stands for its box. A box is found by following one run and noting every decision:
comparisons, numbers of iterations, which regions are empty, and the order of the ends of regions. Where all
decisions are the same, streams, order and dependences are equal, instance by instance.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hw.semantics import MASK
from sw.check.affine import Around, Box, Number, form_of, value
from sw.check.dependences import TooLargeError
from sw.check.streams import Compiled, follow
from sw.check.trace import Boxes, Rows, Trace, stated_operands
from sw.ir.expression import Expr, Var, evaluate, substitute
from sw.ir.intrinsics import effects
from sw.ir.linear import Linear
from sw.ir.program import Access, Assign, For, If, Instruction, Program, Region, Statement
from sw.ir.ranges import bounds
from sw.ir.types import Kind, Type
from sw.ir.walk import instructions


def whole(program: Program) -> Box:
    """All values that the parameters can have."""
    return {p.name: (p.type.low, max(p.type.low, p.type.high - 1)) for p in program.parameters}


def middle(box: Box) -> dict[str, int]:
    """The values of a box that are nearest to 0: programs are short there."""
    return {name: min(max(0, low), high) for name, (low, high) in box.items()}


def without(box: Box, part: Box) -> Iterator[Box]:
    """What is left of a box without a part of it, in boxes."""
    rest = dict(box)
    for name, (low, high) in part.items():
        first, last = rest[name]
        if first < low:
            yield rest | {name: (first, low - 1)}
        if high < last:
            yield rest | {name: (high + 1, last)}
        rest[name] = low, high


class FailsError(Exception):
    """The program itself fails for these values, so that nothing is to be shown."""


#: An access of one instance by dimension, and an instance: time, iterations, reads, writes, operands.
_Ends = list[tuple[int, int]]
_Row = tuple[int, tuple[int, ...], list[_Ends | None], list[_Ends | None], list[int]]


def _boxes(access: Access, ends: list[_Ends | None]) -> Boxes | None:
    """One access over all executions of its instruction."""
    if not isinstance(access, Region):
        return None
    shape = (len(ends), len(access.box), 2)
    both = np.array([e for e in ends if e is not None], np.int64).reshape(shape)
    return Boxes(access.buffer, both[:, :, 0].T, both[:, :, 1].T)


@dataclass(frozen=True)
class _Later:
    """A scalar that nothing has been decided by yet."""

    expr: Expr
    scope: Scope


class Scope(dict[str, Any]):
    """Values of variables: numbers, or what is computed once a decision needs it.

    `chosen` has the plain values for the chosen parameters, where they are known.
    """

    def __init__(self, around: Around, values: Mapping[str, Any]):
        super().__init__(values)
        self.around = around
        self.chosen: dict[str, int] = {}

    def __getitem__(self, name: str) -> Number:
        found = super().__getitem__(name)
        if isinstance(found, _Later):
            found = self[name] = evaluate(found.expr, found.scope)
        number: Number = found
        return number

    def put(self, name: str, number: Number) -> None:
        """Set a variable to a number."""
        self[name] = number
        self.chosen[name] = value(number)

    def assign(self, name: str, expr: Expr, *, later: bool) -> None:
        """Set a scalar, at once or later."""
        if later:
            before = Scope(self.around, self)
            self.chosen[name] = evaluate(expr, self.chosen)
            self[name] = _Later(expr, before)
        else:
            self.put(name, evaluate(expr, self))

    def range(self, expr: Expr) -> tuple[int, int]:
        """The smallest and the largest value that an expression may have in the box, both included."""
        types: dict[str, Expr] = {}
        for v in expr.variables():
            found = self.get(v.name)
            if v.type.kind is Kind.INT and found is not None:
                low, high = (
                    found.scope.range(found.expr) if isinstance(found, _Later) else self.around.range(found)
                )
                # Variables hash by name: one of its own for each range keeps what is remembered apart.
                types[v.name] = Var(f"{v.name}[{low},{high}]", Type(Kind.INT, low, high + 1))
        return bounds(substitute(expr, types))


@dataclass
class Walk:
    """Runs program and warps for chosen values and notes every decision in `around`.

    With `wide`, regions are not decided on: each is noted as large as any values of the box make it. What is
    shown for these holds for smaller ones. `steps` bounds the statements and instructions that are executed;
    raises `TooLargeError` then.
    """

    around: Around
    steps: int
    wide: bool = False
    #: By buffer and dimension the ends of regions, by their forms.
    ends: dict[tuple[str, int], dict[Linear[str], Number]] = field(default_factory=dict)
    #: By buffer its sizes, those for the chosen values in a wide run; and there the largest in the box.
    sizes: dict[str, tuple[Number, ...]] = field(default_factory=dict)
    most: dict[str, list[int]] = field(default_factory=dict)
    #: By warp the stated operands of its instances, by column.
    operands: dict[int, list[dict[int, Number]]] = field(default_factory=dict)
    #: By instruction and execution the time, the iterations, and the boxes read and written.
    rows: dict[int, list[_Row]] = field(default_factory=dict)
    count: int = 0

    def step(self) -> None:
        """One more."""
        self.steps -= 1
        if self.steps < 0:
            raise TooLargeError("too many steps to find the values for which all is the same")

    # The sequential program

    def program(self, program: Program) -> None:
        """Run the sequential program; raises `FailsError` where it fails, everywhere in the box left."""
        values = Scope(self.around, self.around.parameters)
        values.chosen = dict(self.around.values)
        try:
            for b in program.buffers:
                if self.wide:
                    self.most[b.name] = [values.range(e)[1] for e in b.shape]
                    self.sizes[b.name] = tuple(evaluate(e, values.chosen) for e in b.shape)
                else:
                    self.sizes[b.name] = tuple(evaluate(e, values) for e in b.shape)
            self.body(program.body, values, ())
        except (ZeroDivisionError, KeyError):
            raise FailsError from None
        for found in self.ends.values():
            for first, second in itertools.pairwise(sorted(found.values(), key=value)):
                # Whether they are equal is noted.
                assert (first == second) == (value(first) == value(second))

    def body(self, body: tuple[Statement, ...], values: Scope, iteration: tuple[int, ...]) -> None:
        """Statements in their order."""
        for s in body:
            self.step()
            match s:
                case Assign(target, expr):
                    values.assign(target, expr, later=self.wide)
                case If():
                    self.body(s.body if evaluate(s.condition, values) else s.orelse, values, iteration)
                case For():
                    start, stop, step = (evaluate(e, values) for e in (s.start, s.stop, s.step))
                    by = int(step)
                    if by == 0:
                        raise FailsError
                    v, number = start, 0
                    # The variable does not wrap: it is below the stop, or above it.
                    while v < stop if by > 0 else stop < v:
                        self.step()
                        values.put(s.variable, v)
                        self.body(s.body, values, (*iteration, number))
                        v, number = v + by, number + 1
                    values.pop(s.variable, None)
                case Instruction():
                    if s.when is None or evaluate(s.when, values):
                        self.instruction(s, values, iteration)
                case _:
                    raise AssertionError(s)

    def instruction(self, s: Instruction, values: Scope, iteration: tuple[int, ...]) -> None:
        """Where an instance works, and its operands."""
        sides = []
        for side in effects(s):
            boxes: list[_Ends | None] = []
            for access in side:
                if not isinstance(access, Region):
                    boxes.append(None)
                elif self.wide:
                    boxes.append(self.widest(access, values))
                else:
                    self.region(access, values)
            sides.append(boxes)
        row: dict[int, Number] = {c: evaluate(e, values) & MASK for c, e in stated_operands(s).items()}
        operands = [value(a) for a in row.values()]
        self.rows.setdefault(id(s), []).append((self.count, iteration, sides[0], sides[1], operands))
        self.count += 1
        assert s.warp is not None
        self.operands.setdefault(s.warp, []).append(row)

    def region(self, region: Region, values: Scope) -> None:
        """Note the ends of a region that is not empty."""
        box = [(evaluate(i.start, values), evaluate(i.stop, values)) for i in region.box]
        if not all(start < stop for start, stop in box):
            return
        for d, ((start, stop), size) in enumerate(zip(box, self.sizes[region.buffer], strict=True)):
            if start < 0 or size < stop:
                raise FailsError
            self.ends.setdefault((region.buffer, d), {}).update({form_of(start): start, form_of(stop): stop})

    def widest(self, region: Region, values: Scope) -> _Ends:
        """All that a region may be; raises `FailsError` where it is outside for the chosen values."""
        chosen = [(evaluate(i.start, values.chosen), evaluate(i.stop, values.chosen)) for i in region.box]
        sizes = [value(size) for size in self.sizes[region.buffer]]
        if all(start < stop for start, stop in chosen) and any(
            start < 0 or stop > size for (start, stop), size in zip(chosen, sizes, strict=True)
        ):
            raise FailsError
        return [
            (max(0, values.range(i.start)[0]), min(most, values.range(i.stop)[1]))
            for i, most in zip(region.box, self.most[region.buffer], strict=True)
        ]

    def trace(self, program: Program) -> Trace:
        """The trace of a wide run: regions are as large as they may be."""
        made = []
        for s in instructions(program):
            rows = self.rows.get(id(s), [])
            depth, count = len(rows[0][1]) if rows else 0, len(stated_operands(s))
            reads, writes = effects(s)
            made.append(
                Rows(
                    s,
                    tuple(range(depth)),
                    np.array([row[0] for row in rows], np.int64),
                    np.array([row[1] for row in rows], np.int64).reshape(len(rows), depth).T,
                    tuple(_boxes(a, [row[2][n] for row in rows]) for n, a in enumerate(reads)),
                    tuple(_boxes(a, [row[3][n] for row in rows]) for n, a in enumerate(writes)),
                    np.array([row[4] for row in rows], np.int64).reshape(len(rows), count).T,
                )
            )
        return Trace(program, dict(self.around.values), tuple(made), self.count)

    # Warps

    def warp(self, code: Compiled) -> None:
        """Run a warp; its operands must stay equal to the program's where they are."""
        rows, self.steps = follow(code, self.around.parameters, self.steps)
        for wanted, given in zip(self.operands.get(code.warp, []), rows, strict=False):
            for column, a in wanted.items():
                int(a - given[column])


def is_small(program: Program, most: int) -> bool:
    """Whether the parameters have at most so many values together."""
    total = 1
    for p in program.parameters:
        total *= 2 if p.type.kind is Kind.BOOL else max(1, p.type.high - p.type.low)
    return total <= most
