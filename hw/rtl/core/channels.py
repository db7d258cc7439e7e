"""Counting sync channels between warps."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib.wiring import Component, In, Out

from hw.config import MachineConfig
from hw.rtl.core.signals import CHANNEL_BITS


class Channels(Component):
    """All channels: a count each, from 0 to `channel_depth`.

    `fire` puts a token into `fire_channel`, `take` takes one out of `take_channel`; both may happen to one
    channel in a cycle. `overflow` tells that a token is too many; what that channel holds means nothing from
    then on.

    **Timing.** Tokens of cycle t count from t + 1 on; `overflow` is combinational.
    """

    def __init__(self, config: MachineConfig):
        self._config = config
        super().__init__(
            {
                "fire": In(1),
                "fire_channel": In(CHANNEL_BITS),
                "take": In(1),
                "take_channel": In(CHANNEL_BITS),
                "tokens": Out(config.channels),
                "overflow": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        full, fired, taken = (Signal(self._config.channels, name=n) for n in ("full", "fired", "taken"))
        for i in range(self._config.channels):
            count = Signal(range(self._config.channel_depth + 1), name=f"count{i}")
            m.d.comb += [
                fired[i].eq(self.fire & (self.fire_channel == i)),
                taken[i].eq(self.take & (self.take_channel == i)),
                full[i].eq(count == self._config.channel_depth),
                self.tokens[i].eq(count != 0),
            ]
            with m.If(fired[i] ^ taken[i]):
                m.d.sync += count.eq(count + Mux(fired[i], 1, -1))
        m.d.comb += self.overflow.eq((fired & full & ~taken).any())
        return m
