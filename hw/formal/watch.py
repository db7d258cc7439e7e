"""What the proof of the sequencer watches: one warp, and one address of its program."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest import mock

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib.wiring import Component

from hw import isa
from hw.config import MachineConfig
from hw.formal.bench import Bench
from hw.formal.turns import Turns
from hw.rtl.core import sequencer
from hw.rtl.core.alu import Multiplier
from hw.rtl.core.decoder import stored
from hw.rtl.core.sequencer import Sequencer

OPCODE = {name: spec.opcode for name, spec in isa.INSTRUCTIONS.items()}


class _Product(Multiplier):
    """Replaces the multiplier by a simpler function with the same latency."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += self.product.eq(self.a ^ self.b)
        return m


class _Part:
    """Builds a part of the sequencer as usual, and keeps it so that the bench can observe its ports."""

    def __init__(self, name: str):
        self._make = getattr(sequencer, name)
        self.made: Any = None

    def __call__(self, *arguments: Any) -> Component:
        self.made = self._make(*arguments)
        return self.made  # type: ignore[no-any-return]


class Watch:
    """An arbitrary warp, an arbitrary address of its program with its word, and what the warp does there.

    `runs`: the warp has its turn in a run. `here`: its pc is also the `place`. `kept`: the word as program
    memory stores it. `executes`: the instruction issues and is not void. `operations`: number of outstanding
    operations of the warp. `waiting`: number of its pending signals. `age`: cycles since the reset, up to
    `period`.
    """

    def __init__(self, bench: Bench, config: MachineConfig):
        self.bench, self.config, self.turns = bench, config, Turns(bench, config)
        self.registers, self.loops = _Part("RegisterFile"), _Part("LoopStack")
        self.pending = _Part("PendingSignals")
        with contextlib.ExitStack() as stack:
            for name, part in (
                ("Multiplier", _Product),
                ("RegisterFile", self.registers),
                ("LoopStack", self.loops),
                ("PendingSignals", self.pending),
            ):
                stack.enter_context(mock.patch.object(sequencer, name, part))
            self.dut = dut = bench.add(Sequencer(config), "dut")
        self._host()
        self._program()
        self.runs = bench.value(
            self.turns.own & dut.run & dut.enable.bit_select(self.turns.watched, 1), "runs"
        )
        self.here = bench.value(self.runs & (dut.pc == self.place), "here")
        self.executes = bench.value(dut.issued & ~dut.void, "executes")
        self._operations()

    def is_any(self, *names: str) -> Value:
        """Whether the word is one of these instructions."""
        return Cat(self.word[isa.OPCODE_LOW :] == OPCODE[name] for name in names).any()

    def _host(self) -> None:
        """Assumes a reset, a round of turns, one run of the enabled warps, over 3 cycles after an error."""
        bench, dut, period = self.bench, self.dut, self.config.derived.period
        self.age = Signal(range(period + 1), name="age")
        ran, self.failed = Signal(name="ran"), Signal(name="failed")
        self.failed_before = bench.past(self.failed, "failed_before")
        self.over = bench.past(self.failed_before, "over")
        enable = bench.constant(self.config.warps, "enable")
        bench.m.d.sync += [
            self.age.eq(Mux(self.age == period, period, self.age + 1)),
            ran.eq(ran | dut.run),
            self.failed.eq(self.failed | dut.error),
        ]
        bench.assume(~dut.clear)
        bench.assume(dut.enable == enable)
        bench.assume(~dut.run | ((self.age == period) & ~self.over))
        bench.assume(~(dut.run & ran) | bench.past(dut.run, "ran_past"))

        def enabled() -> Value:
            return (self.age == 0) | (bench.register(dut, "enabled") == enable.bit_select(dut.turn, 1))

        bench.invariant("enabled", enabled)
        bench.invariant("age", lambda: (self.age <= period) & (~ran | (self.age == period)))

    def _program(self) -> None:
        """Assumes that every fetch of the address returns its word, and that all words are as stored."""
        bench, dut = self.bench, self.dut
        self.place, self.word = bench.constant(len(dut.fetch_pc), "place"), bench.constant(32, "place_word")
        self.kept = bench.value(stored(self.config, self.word), "place_stored")
        self.asked = Cat(bench.past(dut.fetch_pc, "asked"), bench.past(dut.fetch_warp, "asked_warp"))
        asked = bench.started & (self.asked == Cat(self.place, self.turns.watched))
        bench.assume(~asked | (dut.word == self.kept))
        bench.assume(self.is_stored(dut.word))

    def is_stored(self, word: Value) -> Value:
        """Whether a word is as program memories store it."""
        return word == stored(self.config, word[: isa.WORD_BITS])

    def _operations(self) -> None:
        bench, dut = self.bench, self.dut
        self.operations = operations = Signal(6, name="operations")
        completes = dut.complete.bit_select(self.turns.watched, 1)
        begins = bench.value(self.turns.own & dut.issue.valid & ~dut.issue.sets, "begins")
        bench.assume(~completes | (operations != 0))
        bench.assume(~begins | (operations < self.config.queue_depth + isa.TIMING.in_flight + 1))
        pending = self.pending.made
        signals = bench.value(self.turns.own & pending.signal, "signals")
        fires = bench.value(self.turns.own & dut.fire, "fires")
        self.waiting = Signal(range(isa.TIMING.pending_signals + 2), name="waiting")
        bench.m.d.sync += [
            operations.eq(operations + begins - completes),
            self.waiting.eq(self.waiting + signals - fires),
        ]


@dataclass(frozen=True)
class Model:
    """The bench's model of the watched warp, for invariants.

    `goes`: it has certainly neither halted nor is dividing. `erred`: it had an error. `goes_on`: whether it
    may be at a pc. `names` and `values`: what was read from the registers, and the results, 0, 1, 2 and 3
    cycles ago. `left`: turns left of its division. `target`: the register of the division.
    """

    goes: Signal
    erred: Signal
    goes_on: Callable[[Value], Value]
    names: list[Value]
    values: list[Value]
    left: Signal
    target: Signal
