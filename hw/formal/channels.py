"""Proof about the sync channels: they lose and invent nothing, and tell what is not allowed."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Signal, Value
from amaranth.lib.wiring import Component

from hw.config import MachineConfig
from hw.formal.bench import Bench, past
from hw.formal.proof import Proof, planted
from hw.rtl.core.channels import Channels

STATEMENTS = {
    "tokens_are_fires_minus_takes": "the watched channel shows a token if and only if more were "
    "fired than taken",
    "never_above_depth": "fires minus takes never pass the depth of the channel",
    "overflow_reported": "a fire on a full channel with no take beside it is reported as overflow, "
    "and nothing else is",
    "fire_conflict_reported": "two fires of one channel in a cycle are reported, and nothing else is",
    "take_conflict_reported": "two takes of one channel in a cycle are reported, and nothing else is",
}


def build(bench: Bench, config: MachineConfig) -> None:
    """Count the tokens of one channel, any one, beside the machine's counters.

    What a warp may do is assumed: it fires and takes where there is a channel, and takes a token only where
    one is shown (proof `sequencer`). After an error on the channel the machine stops, and nothing is stated
    any more.
    """
    dut = bench.add(Channels(config), "dut")
    warps, depth = range(config.warps), config.channel_depth
    watched = bench.constant(range(config.channels), "watched")
    bench.assume(watched < config.channels)
    fires, takes = [], []
    for w in warps:
        bench.assume(~dut.fire[w] | (dut.fire_channel[w] < config.channels))
        bench.assume(~dut.take[w] | (dut.take_channel[w] < config.channels))
        bench.assume(~dut.take[w] | dut.tokens.bit_select(dut.take_channel[w], 1))
        fires.append(bench.value(dut.fire[w] & (dut.fire_channel[w] == watched), f"fires{w}"))
        takes.append(bench.value(dut.take[w] & (dut.take_channel[w] == watched), f"takes{w}"))
    fired, taken = bench.value(sum(fires), "fired"), bench.value(sum(takes), "taken")
    model = Signal(range(depth + config.warps + 1), name="model")
    broken = Signal(name="broken")  # an error on the channel was reported
    reported = Cat(
        (f & (dut.overflow[w] | dut.fire_conflict[w])) | (t & dut.take_conflict[w])
        for w, f, t in zip(warps, fires, takes, strict=True)
    )
    bench.m.d.sync += broken.eq(broken | reported.any())
    with bench.m.If(~broken & ~reported.any()):
        bench.m.d.sync += model.eq(model + fired - taken)

    bench.require(
        "tokens_are_fires_minus_takes", broken | (dut.tokens.bit_select(watched, 1) == (model != 0))
    )
    bench.require("never_above_depth", broken | (model <= depth))
    full = (model == depth) & (taken == 0)

    def exact(port: Value, happens: list[Value], when: Value) -> Value:
        """Whether `port` tells `when` of every warp for which it happens."""
        return broken | Cat(~h | (port[w] == when) for w, h in zip(warps, happens, strict=True)).all()

    idle_quiet = Cat(
        (dut.fire[w] | ~(dut.overflow[w] | dut.fire_conflict[w])) & (dut.take[w] | ~dut.take_conflict[w])
        for w in warps
    ).all()
    bench.require("overflow_reported", exact(dut.overflow, fires, full) & idle_quiet)
    bench.require("fire_conflict_reported", exact(dut.fire_conflict, fires, fired > 1))
    bench.require("take_conflict_reported", exact(dut.take_conflict, takes, taken > 1))

    def count() -> Value:
        counts = [bench.register(dut, f"count{i}") for i in range(config.channels)]
        return (Cat(c <= depth for c in counts).all()) & (broken | (Array(counts)[watched] == model))

    bench.invariant("counts", count)


def _no_overflow(m: Module, outer: Component, inner: Component) -> None:
    """Overflow is never reported."""
    m.d.comb += outer.overflow.eq(0)


def _always_tokens(m: Module, outer: Component, inner: Component) -> None:
    """A channel always shows a token."""
    m.d.comb += outer.tokens.eq(-1)


def _lost_fire(m: Module, outer: Component, inner: Component) -> None:
    """Of two fires in a cycle one is lost."""
    # The last warp's fire is lost when the first one fires too, whatever the channels.
    m.d.comb += inner.fire[-1].eq(outer.fire[-1] & ~outer.fire[0])


def _late_conflict(m: Module, outer: Component, inner: Component) -> None:
    """A conflict of fires is reported one cycle late."""
    m.d.comb += outer.fire_conflict.eq(past(m, inner.fire_conflict))


def _one_sided(m: Module, outer: Component, inner: Component) -> None:
    """Of two warps that take, only one is told."""
    m.d.comb += outer.take_conflict.eq(inner.take_conflict & ~1)


class _Deeper(Channels):
    """A channel takes one token more than its depth."""

    def __init__(self, config: MachineConfig):
        super().__init__(config.replace(channel_depth=config.channel_depth + 1))


def proof(config: MachineConfig) -> Proof:
    """The proof for the channels of a machine, with its faults."""
    deep = config.channel_depth + 4
    faults = (
        planted("overflow-silent", "overflow_reported", _no_overflow, deep),
        planted("one-too-deep", "never_above_depth", _Deeper, deep, "hw.formal.channels.Channels"),
        planted("token-invented", "tokens_are_fires_minus_takes", _always_tokens),
        planted("fire-lost", "tokens_are_fires_minus_takes", _lost_fire),
        planted("conflict-late", "fire_conflict_reported", _late_conflict),
        planted("conflict-one-sided", "take_conflict_reported", _one_sided),
    )
    return Proof("channels", "sync channels", STATEMENTS, lambda bench: build(bench, config), faults, 2, 14)
