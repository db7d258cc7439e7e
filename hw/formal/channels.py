"""Proof of the sync channels: they neither lose nor invent tokens, and they report overflow."""

from __future__ import annotations

from amaranth.hdl import Array, Module, Signal, Value
from amaranth.lib.wiring import Component

from hw.config import MachineConfig
from hw.formal.bench import Bench, past
from hw.formal.proof import Proof, planted
from hw.rtl.core.channels import Channels

STATEMENTS = {
    "tokens_are_fires_minus_takes": "one cycle after it is asked for, the watched channel shows a token "
    "if and only if it has had more fires than takes",
    "never_above_depth": "fires minus takes never exceed the depth of the channel",
    "overflow_reported": "a fire on a full channel, without a take in the same cycle, is reported as "
    "overflow in the next cycle; nothing else is",
}


def build(bench: Bench, config: MachineConfig) -> None:
    """Models the token count of an arbitrary channel beside the machine's counters.

    Only the warp that has its turn fires and takes, so two fires or two takes never coincide. Assumptions
    about the warp: it fires and takes only on existing channels, and takes a token only if one is shown
    (proof `sequencer`). After an error on the channel the machine stops, and nothing more is claimed.
    """
    dut = bench.add(Channels(config), "dut")
    depth = config.channel_depth
    watched = bench.constant(range(config.channels), "watched")
    bench.assume(watched < config.channels)
    bench.assume(~dut.fire | (dut.fire_channel < config.channels))
    asked = bench.past(dut.ask, "asked_before")
    bench.assume(~dut.take | (asked < config.channels))
    bench.assume(~dut.take | dut.token)
    fired = bench.value(dut.fire & (dut.fire_channel == watched), "fired")
    taken = bench.value(dut.take & (asked == watched), "taken")
    model = Signal(range(depth + 2), name="model")
    broken = Signal(name="broken")  # an error on the channel was reported
    # Overflow is reported one cycle later.
    fired_before, full = bench.past(fired, "fired_before"), bench.past((model == depth) & ~taken, "full")
    any_before = bench.past(dut.fire, "any_before")
    reported = bench.value(fired_before & dut.overflow, "reported")
    bench.m.d.sync += broken.eq(broken | reported)
    with bench.m.If(~broken & ~reported):
        bench.m.d.sync += model.eq(model + fired - taken)

    over = bench.value(broken | reported, "over")
    bench.require("tokens_are_fires_minus_takes", over | (asked != watched) | (dut.token == (model != 0)))
    bench.require("never_above_depth", over | (model <= depth))
    bench.require(
        "overflow_reported",
        (broken | ~fired_before | (dut.overflow == full)) & (any_before | ~dut.overflow),
    )

    def count() -> Value:
        counts = [bench.register(dut, f"count{i}") for i in range(config.channels)]
        late = bench.register(dut, "recent").bit_select(watched, 1)
        return over | ((model <= depth) & (Array(counts)[watched] + late == model))

    bench.invariant("counts", count)
    bench.invariant("recent", lambda: bench.register(dut, "recent").bit_select(watched, 1) == fired_before)
    bench.invariant("asked", lambda: bench.register(dut, "asked") == asked)
    bench.invariant("here", lambda: bench.register(dut, "here").bit_select(watched, 1) == (asked == watched))


def _no_overflow(m: Module, outer: Component, inner: Component) -> None:
    """Overflow is never reported."""
    m.d.comb += outer.overflow.eq(0)


def _always_tokens(m: Module, outer: Component, inner: Component) -> None:
    """A channel always shows a token."""
    m.d.comb += outer.token.eq(1)


def _lost_fire(m: Module, outer: Component, inner: Component) -> None:
    """A fire is lost when a token of any channel is taken in its cycle."""
    m.d.comb += inner.fire.eq(outer.fire & ~outer.take)


def _relieved_elsewhere(m: Module, outer: Component, inner: Component) -> None:
    """A take from another channel also makes room."""
    m.d.comb += outer.overflow.eq(inner.overflow & ~past(m, outer.take))


class _Deeper(Channels):
    """A channel accepts one token more than its depth."""

    def __init__(self, config: MachineConfig):
        super().__init__(config.replace(channel_depth=config.channel_depth + 1))


def proof(config: MachineConfig) -> Proof:
    """The proof for the channels of a machine, with its faults."""
    deep = config.channel_depth + 4
    faults = (
        planted("overflow-silent", "overflow_reported", _no_overflow, deep),
        planted("relieved-elsewhere", "overflow_reported", _relieved_elsewhere, deep),
        planted("one-too-deep", "never_above_depth", _Deeper, deep, "hw.formal.channels.Channels"),
        planted("token-invented", "tokens_are_fires_minus_takes", _always_tokens),
        planted("fire-lost", "tokens_are_fires_minus_takes", _lost_fire),
    )
    return Proof("channels", "sync channels", STATEMENTS, lambda bench: build(bench, config), faults, 2, 14)
