"""The drain: moves the rows of a block into the accumulator while the array multiplies the next block."""

from __future__ import annotations

import itertools

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out

from hw import isa
from hw.config import MachineConfig
from hw.rtl.bits import log2, place, place_bits
from hw.rtl.gemm.widths import ACCUMULATOR_BITS, block_bits
from hw.rtl.interfaces import PC_BITS, WARP_BITS, ErrorReport, report_of
from hw.rtl.memory.accumulator import DrainPort


def result_layout(config: MachineConfig) -> data.StructLayout:
    """Where a finished block goes: word, pitch, rows, whether to add, and who issued it."""
    return data.StructLayout(
        {
            "address": place_bits(config.derived.acc_words),
            "pitch": place_bits(config.derived.acc_words),
            "rows": log2(config.rows) + 1,
            "add": 1,
            "last": 1,
            "warp": WARP_BITS,
            "pc": PC_BITS,
        }
    )


class Drain(Component):
    """Sends each row of a block to its accumulator word; reports completion and out-of-range rows.

    **Timing.** `start` comes one cycle before row 0, with the block's `result`; then one row per cycle. An
    operation is complete `acc_write` cycles after its last row.
    """

    def __init__(self, config: MachineConfig):
        self._config = config
        super().__init__(
            {
                "start": In(1),
                "result": In(result_layout(config)),
                "row": In(signed(block_bits(config))).array(config.cols),
                "drain": Out(DrainPort(config)),
                "complete": Out(1),
                "complete_warp": Out(WARP_BITS),
                "error": Out(1),
                "error_report": Out(ErrorReport),
                "stop": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        words = self._config.derived.acc_words
        now = Signal(self.result.shape())
        left = Signal(len(now.rows))
        address = Signal(place_bits(words))
        left_next, address_next = Signal.like(left), Signal.like(address)
        draining, valid, ends = Signal(), Signal(), Signal()
        failed, beyond = Signal(), Signal()
        m.d.comb += [
            left_next.eq(Mux(draining, left - 1, 0)),
            address_next.eq(place(address + now.pitch, words)),
        ]
        with m.If(self.start):
            m.d.comb += [left_next.eq(self.result.rows), address_next.eq(self.result.address)]
            m.d.sync += now.eq(self.result)
        m.d.sync += [
            left.eq(left_next),
            address.eq(address_next),
            draining.eq(left_next != 0),
            # A register, because it decides which bank other readers must not use.
            valid.eq((left_next != 0) & ~address_next[-1] & ~(failed | beyond)),
        ]

        m.d.comb += [
            beyond.eq(draining & address[-1]),
            self.drain.valid.eq(valid),
            # `stop` is late and must not delay `valid`, from which readers see which bank is in use.
            self.drain.write.eq(~self.stop),
            self.drain.address.eq(address),
            self.drain.add.eq(now.add),
            *[
                self.drain.data.word_select(i, ACCUMULATOR_BITS).eq(self.row[i])
                for i in range(self._config.cols)
            ],
            self.error.eq(beyond & ~failed),
            *report_of(self.error_report, isa.Cause.BUFFER_RANGE, now),
            ends.eq(valid & (left == 1) & now.last & ~self.stop),
        ]
        with m.If(beyond):
            m.d.sync += failed.eq(1)

        # Completion is delayed as long as the row takes through the accumulator.
        complete = Signal(isa.TIMING.acc_write)
        warps = [Signal(WARP_BITS, name=f"warp{i}") for i in range(isa.TIMING.acc_write)]
        m.d.sync += [complete.eq(Cat(ends, complete)), warps[0].eq(now.warp)]
        m.d.sync += [later.eq(earlier) for earlier, later in itertools.pairwise(warps)]
        m.d.comb += [self.complete.eq(complete[-1]), self.complete_warp.eq(warps[-1])]
        return m
