"""Cuts the parameter space into boxes in which program and warps behave alike.

One choice of values then represents its box. A box is found by following one run and recording every
decision: comparisons, trip counts, which regions are empty, and the order of the ends of regions. If all
decisions are the same, streams, order and dependences are equal, instance by instance.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hw.semantics import MASK
from sw.check.affine import Around, Box, Number, form_of, value
from sw.check.dependences import TooLargeError
from sw.check.streams import Compiled, Runtime, follow
from sw.check.trace import stated_operands
from sw.ir.expression import evaluate
from sw.ir.intrinsics import effects
from sw.ir.linear import Linear
from sw.ir.program import Assign, For, If, Instruction, Program, Region, Statement


def whole(program: Program) -> Box:
    """All values that the parameters can have."""
    return {p.name: (p.type.low, max(p.type.low, p.type.high - 1)) for p in program.parameters}


def is_small(program: Program, most: int) -> bool:
    """Whether the parameters have at most this many combinations of values."""
    return math.prod(high - low + 1 for low, high in whole(program).values()) <= most


def middle(box: Box) -> dict[str, int]:
    """The values of a box that are nearest to 0, where programs are short."""
    return {name: min(max(0, low), high) for name, (low, high) in box.items()}


def without(box: Box, part: Box) -> Iterator[Box]:
    """The rest of a box after removing a part of it, as boxes."""
    rest = dict(box)
    for name, (low, high) in part.items():
        first, last = rest[name]
        if first < low:
            yield rest | {name: (first, low - 1)}
        if high < last:
            yield rest | {name: (high + 1, last)}
        rest[name] = low, high


class FailsError(Exception):
    """The program itself fails for these values, so there is nothing to check."""


@dataclass
class DecisionRun:
    """Runs program and warps for chosen values and records every decision in `around`.

    `steps` limits the number of executed statements and instructions; beyond it, `TooLargeError` is raised.
    """

    around: Around
    steps: int
    #: By buffer and dimension, the ends of regions, keyed by their linear forms.
    ends: dict[tuple[str, int], dict[Linear[str], Number]] = field(default_factory=dict)
    sizes: dict[str, tuple[Number, ...]] = field(default_factory=dict)
    #: By warp, the stated operands of its instances, by column.
    operands: dict[int, list[dict[int, Number]]] = field(default_factory=dict)

    def step(self) -> None:
        """Counts one more step."""
        self.steps -= 1
        if self.steps < 0:
            raise TooLargeError("too many steps to find values that behave alike")

    def program(self, program: Program) -> None:
        """Runs the sequential program; raises `FailsError` if it fails everywhere in the remaining box."""
        values: dict[str, Any] = dict(self.around.parameters)
        try:
            for b in program.buffers:
                self.sizes[b.name] = tuple(evaluate(e, values) for e in b.shape)
            self.body(program.body, values)
        except (ZeroDivisionError, KeyError):
            raise FailsError from None
        for found in self.ends.values():
            for first, second in itertools.pairwise(sorted(found.values(), key=value)):
                # The comparison records whether they are equal.
                assert (first == second) == (value(first) == value(second))

    def body(self, body: tuple[Statement, ...], values: dict[str, Any]) -> None:
        """Statements in their order."""
        for s in body:
            self.step()
            match s:
                case Assign(target, expr):
                    values[target] = evaluate(expr, values)
                case If():
                    self.body(s.body if evaluate(s.condition, values) else s.orelse, values)
                case For():
                    self.loop(s, values)
                case Instruction():
                    if s.when is None or evaluate(s.when, values):
                        self.instruction(s, values)
                case _:
                    raise AssertionError(s)

    def loop(self, s: For, values: dict[str, Any]) -> None:
        """All iterations."""
        v, stop, step = (evaluate(e, values) for e in (s.start, s.stop, s.step))
        by = int(step)
        if by == 0:
            raise FailsError
        # The variable does not wrap: the stop bounds it.
        while v < stop if by > 0 else stop < v:
            self.step()
            values[s.variable] = v
            self.body(s.body, values)
            v = v + by
        values.pop(s.variable, None)

    def instruction(self, s: Instruction, values: dict[str, Any]) -> None:
        """Records the regions of an instance and its operands."""
        for access in (a for side in effects(s) for a in side):
            if isinstance(access, Region):
                self.region(access, values)
        assert s.warp is not None
        row: dict[int, Number] = {c: evaluate(e, values) & MASK for c, e in stated_operands(s).items()}
        self.operands.setdefault(s.warp, []).append(row)

    def region(self, region: Region, values: dict[str, Any]) -> None:
        """Records the ends of a region that is not empty."""
        box = [(evaluate(i.start, values), evaluate(i.stop, values)) for i in region.box]
        if not all(start < stop for start, stop in box):
            return
        for d, ((start, stop), size) in enumerate(zip(box, self.sizes[region.buffer], strict=True)):
            if start < 0 or size < stop:
                raise FailsError
            self.ends.setdefault((region.buffer, d), {}).update({form_of(start): start, form_of(stop): stop})

    def warp(self, code: Compiled) -> None:
        """Runs a warp; operands that equal the program's must remain equal in the box."""
        rows, self.steps = follow(Runtime(code, self.steps), self.around.parameters)
        for wanted, given in zip(self.operands.get(code.warp, []), rows, strict=False):
            for column, a in wanted.items():
                int(a - given[column])
