"""Hardware loops of a warp."""

from __future__ import annotations

import itertools

from amaranth.hdl import Module, Signal
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out

from hw.interfaces import PC_BITS

Loop = data.StructLayout({"start": PC_BITS, "end": PC_BITS, "left": 32})


class LoopStack(Component):
    """The loops around the current instruction, innermost on top.

    `retire` tells that the instruction at `pc` is done; `back` is 1 if a loop then returns to `start`.
    `push` opens a loop over [pc + 1, end] with `count` >= 1 iterations; with `full` it must not happen.

    **Timing.** `back` and `start` are combinational, so a return costs no cycle.
    """

    def __init__(self, depth: int):
        self._depth = depth
        super().__init__(
            {
                "pc": In(PC_BITS),
                "retire": In(1),
                "push": In(1),
                "end": In(PC_BITS),
                "count": In(32),
                "full": Out(1),
                "back": Out(1),
                "start": Out(PC_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        stack = [Signal(Loop, name=f"loop{i}") for i in range(self._depth)]
        level = Signal(range(self._depth + 1))
        top = stack[0]
        at_end = (level != 0) & (self.pc == top.end) & self.retire
        m.d.comb += [
            self.full.eq(level == self._depth),
            self.start.eq(top.start),
            self.back.eq(at_end & (top.left != 1)),
        ]
        with m.If(self.push):
            m.d.sync += [
                level.eq(level + 1),
                top.start.eq(self.pc + 1),
                top.end.eq(self.end),
                top.left.eq(self.count),
                *[lower.eq(upper) for upper, lower in itertools.pairwise(stack)],
            ]
        with m.Elif(self.back):
            m.d.sync += top.left.eq(top.left - 1)
        with m.Elif(at_end):
            m.d.sync += [
                level.eq(level - 1),
                *[upper.eq(lower) for upper, lower in itertools.pairwise(stack)],
            ]
        return m
