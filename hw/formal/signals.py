"""Proof about the signals of a warp that wait: in order, once, never early, never late."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import Component

from hw import isa
from hw.config import MachineConfig
from hw.formal.bench import Bench, past
from hw.formal.proof import Proof, planted
from hw.rtl.core.signals import CHANNEL_BITS, COUNT_BITS, PendingSignals
from hw.rtl.interfaces import PC_BITS

STATEMENTS = {
    "fires_are_signals": "no more signals fire than were issued, and no more wait than there is room for",
    "fires_in_its_cycle": "a signal whose turn it is fires in exactly the first cycle in which all "
    "operations issued before it are complete",
    "fires_itself": "what fires is the channel and the pc of the oldest signal",
    "counts_shown": "`outstanding`, `some`, `room` and `empty` tell how many operations and signals are "
    "under way",
}


def build(bench: Bench, config: MachineConfig) -> None:
    """Follow one signal, any one, from its issue to its fire.

    Assumed of the sequencer: one instruction in a cycle, a signal only where there is room; of the engines:
    completions only of operations that were issued, and no more of these than a queue and an engine hold.
    """
    dut = bench.add(PendingSignals(), "dut")
    depth = isa.TIMING.pending_signals
    most = config.queue_depth + isa.TIMING.in_flight + 1
    sync = bench.m.d.sync
    operations, waiting = Signal(COUNT_BITS, name="operations"), Signal(range(depth + 2), name="waiting")
    bench.assume(~(dut.issue & dut.signal))
    bench.assume(~dut.signal | dut.room)
    bench.assume(~dut.complete | (operations != 0))
    bench.assume(~dut.issue | (operations < most))
    sync += [
        operations.eq(operations + dut.issue - dut.complete),
        waiting.eq(waiting + dut.signal - dut.fire),
    ]

    pick = bench.free(1, "pick")
    watching = Signal(name="watching")
    ahead, needs = Signal(range(depth + 1), name="ahead"), Signal(COUNT_BITS, name="needs")
    channel, pc = Signal(CHANNEL_BITS, name="watched_channel"), Signal(PC_BITS, name="watched_pc")
    here = bench.value(watching | (pick & dut.signal), "here")
    before = bench.value(Mux(watching, ahead, waiting), "before")
    owed = bench.value(Mux(watching, needs, operations), "owed")
    owed_now = bench.value(owed - (dut.complete & (owed != 0)), "owed_now")
    turn = bench.value(here & (before == 0), "turn")
    expected_channel = Mux(watching, channel, dut.channel)
    expected_pc = Mux(watching, pc, dut.pc)
    sync += [watching.eq(here & ~(turn & dut.fire)), needs.eq(owed_now), ahead.eq(before - dut.fire)]
    with bench.m.If(~watching):
        sync += [channel.eq(dut.channel), pc.eq(dut.pc)]

    bench.require("fires_are_signals", (~dut.fire | (waiting != 0) | dut.signal) & (waiting <= depth))
    bench.require("fires_in_its_cycle", ~turn | (dut.fire == (owed_now == 0)))
    itself = (dut.fire_channel == expected_channel) & (dut.fire_pc == expected_pc)
    bench.require("fires_itself", ~(turn & dut.fire) | itself)
    shown = (dut.room == (waiting != depth)) & (dut.empty == (waiting == 0)) & (dut.outstanding == operations)
    bench.require("counts_shown", shown & (dut.some == (operations != 0)))

    def tied() -> Value:
        # An entry is the channel, the count of operations issued before it, and the pc. What entries wait
        # for grows from the oldest to the youngest; the i-th waits in vain for no longer than it takes the
        # i before it to fire.
        queue = bench.queue(dut, "queue", depth)
        issued, completed = bench.register(dut, "issued"), bench.register(dut, "completed")

        def owes(entry: Value) -> Value:
            return (entry[CHANNEL_BITS : CHANNEL_BITS + COUNT_BITS] - completed)[:COUNT_BITS].as_signed()

        entries = [queue.entry(queue.place(i)) for i in range(depth)]
        ordered = []
        for i, entry in enumerate(entries):
            following = (
                operations if i == depth - 1 else Mux(waiting > i + 1, owes(entries[i + 1]), operations)
            )
            ordered.append((waiting <= i) | ((owes(entry) <= following) & (owes(entry) >= i + 1 - depth)))
        entry = queue.entry(queue.place(ahead))
        mine = (
            (entry[:CHANNEL_BITS] == channel)
            & Mux(owes(entry) > 0, owes(entry) == needs, needs == 0)
            & (entry[CHANNEL_BITS + COUNT_BITS :] == pc)
        )
        return (
            queue.consistent
            & (queue.level == waiting)
            & ((issued - completed)[:COUNT_BITS] == operations)
            & (operations <= most)
            & Cat(*ordered).all()
            & (~watching | ((ahead < waiting) & (needs <= operations) & mine))
        )

    bench.invariant("queue", tied)


class LastInFirstOut(SyncFIFO):
    """Of two waiting signals the younger fires first."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        newest = Signal(self.width)
        with m.If(self.w_en & self.w_rdy):
            m.d.sync += newest.eq(self.w_data)
        with m.If(self.level > 1):
            m.d.comb += self.r_data.eq(newest)
        return m


def _issue_uncounted(m: Module, outer: Component, inner: Component) -> None:
    """An operation behind a waiting signal is not counted."""
    m.d.comb += inner.issue.eq(outer.issue & outer.empty)


def _counts_twice(m: Module, outer: Component, inner: Component) -> None:
    """A completion counts twice."""
    m.d.comb += inner.complete.eq(outer.complete | past(m, outer.complete & (outer.outstanding > 1)))


def _fires_twice(m: Module, outer: Component, inner: Component) -> None:
    """A signal fires again in the next cycle."""
    m.d.comb += outer.fire.eq(inner.fire | past(m, inner.fire))


def proof(config: MachineConfig) -> Proof:
    """The proof for the pending signals of a warp, with its faults."""
    faults = (
        planted("completion-doubled", "fires_in_its_cycle", _counts_twice),
        planted("fires-twice", "fires_are_signals", _fires_twice),
        planted(
            "order-swapped", "fires_itself", LastInFirstOut, replaces="hw.rtl.core.signals.fifo.SyncFIFO"
        ),
        planted("issue-uncounted", "counts_shown", _issue_uncounted),
    )
    return Proof(
        "signals", "pending signals of a warp", STATEMENTS, lambda bench: build(bench, config), faults, 1, 14
    )
