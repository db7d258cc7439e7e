"""A model of the warps' turns for benches."""

from __future__ import annotations

from amaranth.hdl import Array, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import Component

from hw.config import MachineConfig
from hw.formal.bench import Bench


class Turns:
    """Counts turns from warp 0, and follows an arbitrary warp: `own` is 1 in its turns.

    `phase` is the number of the turn; `idle` means that no warp has it.
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
        """The number of the turn in `cycles` cycles, from 0 to `period` - 1."""
        late = self.phase >= self._period - cycles
        return Value.cast(Mux(late, self.phase + cycles - self._period, self.phase + cycles))[
            : len(self.phase)
        ]

    def warp(self, cycles: int = 0) -> Value:
        """The warp whose turn comes in `cycles` cycles, fewer than `period`; 0 if none has it."""
        phase = self.number(cycles)
        return Value.cast(Mux(phase < self._warps, phase, 0))

    def wait(self) -> Value:
        """Number of cycles until the watched warp's turn; 0 in its turn."""
        return Value.cast(
            Mux(
                self.phase > self.watched, self.watched + self._period - self.phase, self.watched - self.phase
            )
        )[: len(self.phase)]

    def state(self, dut: Component, path: str, layout: data.Layout | None = None) -> data.View | Value:
        """The entry of the watched warp in the ring `path` inside a component; for invariants only."""
        ahead = [self._bench.register(dut, f"{path}{i}") for i in reversed(range(self._period))]
        value = Value.cast(Array(ahead)[self.wait()])
        return value if layout is None else data.View(layout, value)
