"""Counting sync channels between warps."""

from __future__ import annotations

import functools
import operator

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out

from hw.config import MachineConfig
from hw.control.signals import CHANNEL_BITS


class Channels(Component):
    """All channels: a count each, from 0 to `channel_depth`.

    `fire[w]` puts a token into channel `fire_channel[w]`, `take[w]` takes one out; both may happen to one
    channel in a cycle. `overflow[w]`, `fire_conflict[w]` and `take_conflict[w]` tell which warp did what is
    not allowed: a token too many, or the same side of a channel used by two warps at once.

    **Timing.** Tokens of cycle t count from t + 1 on; errors are combinational.
    """

    def __init__(self, config: MachineConfig):
        self._config = config
        warps = config.warps
        channel = data.ArrayLayout(CHANNEL_BITS, warps)
        super().__init__(
            {
                "fire": In(warps),
                "fire_channel": In(channel),
                "take": In(warps),
                "take_channel": In(channel),
                "tokens": Out(config.channels),
                "overflow": Out(warps),
                "fire_conflict": Out(warps),
                "take_conflict": Out(warps),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        warps, depth = self._config.warps, self._config.channel_depth
        fires = [Signal(self._config.channels, name=f"fires{w}") for w in range(warps)]
        takes = [Signal(self._config.channels, name=f"takes{w}") for w in range(warps)]
        for w in range(warps):
            with m.If(self.fire[w]):
                m.d.comb += fires[w].eq(1 << self.fire_channel[w])
            with m.If(self.take[w]):
                m.d.comb += takes[w].eq(1 << self.take_channel[w])
        full = Signal(self._config.channels)
        taken = Signal(self._config.channels)
        for channel in range(self._config.channels):
            count = Signal(range(depth + 1), name=f"count{channel}")
            up, down = Signal(name=f"up{channel}"), Signal(name=f"down{channel}")
            m.d.comb += [
                up.eq(Cat(f[channel] for f in fires).any()),
                down.eq(Cat(t[channel] for t in takes).any()),
                taken[channel].eq(down),
                full[channel].eq(count == depth),
                self.tokens[channel].eq(count != 0),
            ]
            m.d.sync += count.eq(Mux(full[channel] & ~down, depth, count + up - down))
        for w in range(warps):
            others = [i for i in range(warps) if i != w]
            other_fires = functools.reduce(operator.or_, (fires[i] for i in others), Const(0))
            other_takes = functools.reduce(operator.or_, (takes[i] for i in others), Const(0))
            m.d.comb += [
                self.overflow[w].eq((fires[w] & full & ~taken).any()),
                self.fire_conflict[w].eq((fires[w] & other_fires).any()),
                self.take_conflict[w].eq((takes[w] & other_takes).any()),
            ]
        return m
