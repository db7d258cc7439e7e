"""A model of the warps' turns for benches."""

from __future__ import annotations

from amaranth.hdl import Array, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import Component

from hw.config import MachineConfig
from hw.formal.bench import Bench


class Turns:
    """Counts whose turn it is, warp 0 first, and follows one warp, any one: `own` tells that it has its turn.

    `phase` is the number of the turn, `idle` tells that no warp has it.
    """

    def __init__(self, bench: Bench, config: MachineConfig):
        self._bench, self._warps, self._period = bench, config.warps, config.derived.period
        self.phase = Signal(range(self._period), name="phase")
        bench.m.d.sync += self.phase.eq(self.number(1))
        self.watched = bench.constant(range(config.warps), "watched_warp")
        bench.assume(self.watched < config.warps)
        self.idle = bench.value(self.phase >= config.warps, "idle_turn")
        self.own = bench.value(self.phase == self.watched, "own_turn")
        bench.invariant("phase", lambda: self.phase < self._period)

    def number(self, cycles: int) -> Value:
        """The number of the turn after so many cycles, from 0 to less than `period`."""
        late = self.phase >= self._period - cycles
        return Value.cast(Mux(late, self.phase + cycles - self._period, self.phase + cycles))[
            : len(self.phase)
        ]

    def warp(self, cycles: int = 0) -> Value:
        """The warp that has its turn after so many cycles, fewer than `period`; 0 where none has it."""
        phase = self.number(cycles)
        return Value.cast(Mux(phase < self._warps, phase, 0))

    def wait(self) -> Value:
        """The cycles until the watched warp has its turn: from 0 on."""
        return Value.cast(
            Mux(
                self.phase > self.watched, self.watched + self._period - self.phase, self.watched - self.phase
            )
        )[: len(self.phase)]

    def state(self, dut: Component, path: str, layout: data.Layout | None = None) -> data.View | Value:
        """What the ring `path` inside a component holds of the watched warp; for invariants only."""
        ahead = [self._bench.register(dut, f"{path}{i}") for i in reversed(range(self._period))]
        value = Value.cast(Array(ahead)[self.wait()])
        return value if layout is None else data.View(layout, value)
