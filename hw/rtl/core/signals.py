"""Pending signals of the warps, which wait until earlier operations complete."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, memory
from amaranth.lib.wiring import Component, In, Out

from hw.config import MachineConfig
from hw.isa import TIMING
from hw.rtl.core.loops import BLOCK
from hw.rtl.core.ring import Ring
from hw.rtl.interfaces import PC_BITS, warp_number

COUNT_BITS = 7
CHANNEL_BITS = 6
#: Number of cycles before a turn in which the oldest signal of its warp is read.
AHEAD = 3


class PendingSignals(Component):
    """Counts operations issued and completed, and fires signals in order once they are due.

    `warp` has its turn, `warp_next` has the next one, `warp_ahead` the one in `AHEAD` cycles. In a turn with
    `runs` a warp may `issue` an operation or a `signal` to `channel` (the latter only with `room`), and the
    oldest of its signals may `fire`. `some` says whether operations of the warp are outstanding, `empty` that
    no signal is pending.

    **Timing.** A signal fires in the first turn, from its issue on, for which all operations before it
    completed in an earlier cycle; at most one signal fires per turn.
    """

    def __init__(self, config: MachineConfig, pc_bits: int = PC_BITS):
        self._config = config
        warp = warp_number(config)
        super().__init__(
            {
                "warp_ahead": In(warp),
                "warp_next": In(warp),
                "warp": In(warp),
                "runs": In(1),
                "issue": In(1),
                "signal": In(1),
                "channel": In(CHANNEL_BITS),
                "pc": In(pc_bits),
                "complete": In(config.warps),
                "room": Out(1, init=1),
                "some": Out(1),
                "fire": Out(1),
                "fire_channel": Out(CHANNEL_BITS),
                "fire_pc": Out(pc_bits),
                "empty": Out(1, init=1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        depth = TIMING.pending_signals
        place = range(depth)
        state = Ring(
            m,
            data.StructLayout({"issued": COUNT_BITS, "count": range(depth + 1), "oldest": place}),
            self._config.derived.period,
            "state",
        )
        now, then = state.now, state.then
        # Pending signals are in a memory; the oldest of a warp is read in the cycles before its turn.
        entry = data.StructLayout({"channel": CHANNEL_BITS, "needs": COUNT_BITS, "pc": len(self.pc)})
        m.submodules.entries = entries = memory.Memory(
            shape=entry, depth=self._config.warps * depth, init=[], attrs=BLOCK
        )
        read, write = entries.read_port(), entries.write_port()
        coming, oldest = Signal(entry), Signal(entry)
        ready, due, direct = self._before(m, state.ahead(1), coming), Signal(), Signal()
        m.d.sync += [coming.eq(read.data), oldest.eq(coming)]
        m.d.comb += [
            read.addr.eq(Cat(state.ahead(AHEAD).oldest, self.warp_ahead)),
            due.eq(self.runs & ~self.empty & ready),
            direct.eq(self.signal & self.empty & ~self.some),
            self.fire.eq(due | direct),
            self.fire_channel.eq(Mux(self.empty, self.channel, oldest.channel)),
            self.fire_pc.eq(Mux(self.empty, self.pc, oldest.pc)),
            write.en.eq(self.signal & ~direct),
            write.addr.eq(Cat((now.oldest + now.count)[: len(now.oldest)], self.warp)),
            write.data.channel.eq(self.channel),
            write.data.needs.eq(now.issued),
            write.data.pc.eq(self.pc),
            then.issued.eq(now.issued + self.issue),
            then.count.eq(now.count + write.en - due),
            then.oldest.eq(now.oldest + due),
        ]
        return m

    def _before(self, m: Module, following: data.View, oldest: data.View) -> Value:
        """Computes, one cycle before a turn, what is outstanding and what the oldest signal waits for.

        Completions in that same cycle are not included; in the turn, `late` says whether there was one.
        Returns whether the oldest signal is ready in the turn.
        """
        completed = [Signal(COUNT_BITS, name=f"completed{w}") for w in range(self._config.warps)]
        done, outstanding, behind = (Signal(COUNT_BITS, name=n) for n in ("done", "outstanding", "behind"))
        none, one, ready, nearly, late = Signal(init=1), Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            done.eq(Array(completed)[self.warp_next]),
            outstanding.eq(following.issued - done),
            # Counters wrap: a difference in the upper half is negative, which means that all have completed.
            behind.eq(oldest.needs - done),
            self.some.eq(~(none | (one & late))),
        ]
        m.d.sync += [
            *[count.eq(count + self.complete[w]) for w, count in enumerate(completed)],
            none.eq(outstanding == 0),
            one.eq(outstanding == 1),
            ready.eq((behind == 0) | behind[-1]),
            nearly.eq(behind == 1),
            late.eq(self.complete.bit_select(self.warp_next, 1)),
            self.empty.eq(following.count == 0),
            self.room.eq(following.count != TIMING.pending_signals),
        ]
        return ready | (nearly & late)
