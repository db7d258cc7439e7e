"""Proof of the stream buffer at interfaces: it loses, invents, changes and reorders nothing."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib.wiring import Component

from hw.formal.bench import Bench, blinking
from hw.formal.proof import Proof, planted
from hw.rtl.bus.buffer import StreamBuffer

STATEMENTS = {
    "none_lost_none_doubled": "a transfer is offered if and only if more were accepted than have left; "
    "one is accepted if and only if fewer than two wait",
    "arrives_as_sent": "a transfer leaves after all that were accepted before it, unchanged",
    "offer_is_stable": "an offered transfer stays offered, unchanged, until it is accepted",
}
BITS = 16


def build(bench: Bench) -> None:
    """Follows an arbitrary transfer; senders and receivers may do anything in any cycle."""
    dut = bench.add(StreamBuffer(BITS), "dut")
    sync = bench.m.d.sync
    accepted = bench.value(dut.i.valid & dut.i.ready, "accepted")
    leaves = bench.value(dut.o.valid & dut.o.ready, "leaves")
    inside = Signal(2, name="inside")
    sync += inside.eq(inside + accepted - leaves)
    bench.require(
        "none_lost_none_doubled",
        (dut.o.valid == (inside != 0)) & (dut.i.ready == (inside < 2)) & (inside <= 2),
    )
    pick, watching, ahead = bench.free(1, "pick"), Signal(name="watching"), Signal(name="ahead")
    watched = Signal(BITS, name="watched")
    turn = bench.value(watching & ~ahead, "turn")
    with bench.m.If(watching):
        sync += [ahead.eq(ahead & ~leaves), watching.eq(~(turn & leaves))]
    with bench.m.Elif(pick & accepted):
        sync += [watching.eq(1), ahead.eq((inside - leaves) != 0), watched.eq(dut.i.payload)]
    bench.require("arrives_as_sent", ~(turn & dut.o.valid) | (dut.o.payload == watched))
    bench.require("offer_is_stable", bench.keeps(dut.o, "offer"))

    def tied() -> Value:
        spare = bench.register(dut, "spare")
        mine = (Mux(ahead, spare, dut.o.payload) == watched) & (ahead < inside)
        return Value.cast(~watching | mine)

    bench.invariant("places", tied)


def _loses(m: Module, outer: Component, inner: Component) -> None:
    """A transfer that arrives while another waits is lost."""
    m.d.comb += inner.i.valid.eq(outer.i.valid & ~(inner.o.valid & ~outer.o.ready))


def _changes(m: Module, outer: Component, inner: Component) -> None:
    """A transfer that arrives behind another loses its high bits."""
    m.d.comb += inner.i.payload.eq(outer.i.payload & Mux(inner.o.valid, BITS - 1, (1 << BITS) - 1))


def proof() -> Proof:
    """The proof for the stream buffer, with its faults."""
    blinks = blinking("A transfer that is not accepted at once disappears for a cycle.", "o")
    faults = (
        planted("transfer-lost", "none_lost_none_doubled", _loses, 6),
        planted("payload-cut", "arrives_as_sent", _changes, 6),
        planted("offer-withdrawn", "offer_is_stable", blinks, 6),
    )
    return Proof("stream-buffer", "stream buffer", STATEMENTS, build, faults, 2, 10)
