"""Signals of a warp that wait for its operations to complete."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, fifo
from amaranth.lib.wiring import Component, In, Out

from hw import isa
from hw.rtl.interfaces import PC_BITS

COUNT_BITS = 7
CHANNEL_BITS = 6


class PendingSignals(Component):
    """Counts operations issued and completed, and fires signals in order when their time has come.

    `some` tells whether operations are `outstanding`.

    **Timing.** A signal fires in the cycle in which it issues or the last operation before it completes,
    whichever is later, and at most one per cycle.
    """

    def __init__(self, pc_bits: int = PC_BITS):
        super().__init__(
            {
                "issue": In(1),  # an engine operation issues
                "complete": In(1),
                "signal": In(1),  # a signal instruction issues
                "channel": In(CHANNEL_BITS),
                "pc": In(pc_bits),
                "room": Out(1),
                "outstanding": Out(COUNT_BITS),
                "some": Out(1),
                "fire": Out(1),
                "fire_channel": Out(CHANNEL_BITS),
                "fire_pc": Out(pc_bits),
                "empty": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        entry = data.StructLayout({"channel": CHANNEL_BITS, "needs": COUNT_BITS, "pc": len(self.pc)})
        m.submodules.queue = queue = fifo.SyncFIFO(width=entry.size, depth=isa.TIMING.pending_signals)
        issued, completed = Signal(COUNT_BITS), Signal(COUNT_BITS)
        head, new = Signal(entry), Signal(entry)
        direct, due = Signal(), Signal()
        m.d.sync += [issued.eq(issued + self.issue), completed.eq(completed + self.complete)]
        behind = Signal(COUNT_BITS)  # operations that the oldest signal waits for, before this cycle
        # Completions come late in a cycle: what follows from one is worked out before. The counters wrap: a
        # difference in the upper half is negative, all have completed.
        if_none, if_one, none_if_one = Signal(), Signal(), Signal()
        m.d.sync += self.some.eq(self.issue | Mux(self.complete, self.some & ~none_if_one, self.some))
        m.d.comb += [
            self.outstanding.eq(issued - completed),
            head.eq(queue.r_data),
            behind.eq(head.needs - completed),
            if_none.eq(queue.r_rdy & ((behind == 0) | behind[-1])),
            if_one.eq(queue.r_rdy & (behind == 1)),
            due.eq(if_none | (if_one & self.complete)),
            none_if_one.eq(self.outstanding == 1),
            direct.eq(self.signal & ~queue.r_rdy & Mux(self.complete, none_if_one, self.outstanding == 0)),
            self.fire.eq(due | direct),
            self.fire_channel.eq(Mux(queue.r_rdy, head.channel, self.channel)),
            self.fire_pc.eq(Mux(queue.r_rdy, head.pc, self.pc)),
            queue.r_en.eq(due),
            new.channel.eq(self.channel),
            new.needs.eq(issued),
            new.pc.eq(self.pc),
            queue.w_en.eq(self.signal & ~direct),
            queue.w_data.eq(new),
            self.room.eq(queue.w_rdy),
            self.empty.eq(~queue.r_rdy),
        ]
        return m
