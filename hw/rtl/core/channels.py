"""Sync channels between warps: counting semaphores."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib.wiring import Component, In, Out

from hw.config import MachineConfig
from hw.rtl.core.signals import CHANNEL_BITS


class Channels(Component):
    """All sync channels, each a counter from 0 to `channel_depth`.

    `ask` selects a channel. In the next cycle `token` says whether that channel holds a token, and `take`
    removes one. `fire` adds a token to `fire_channel`; one channel may receive and give a token in the same
    cycle. `overflow` means that the token added in the previous cycle exceeded `channel_depth`; the count of
    that channel is undefined from then on.

    **Timing.** Tokens added or taken in cycle t count from t + 1 on. `token` and `overflow` are valid early
    in a cycle.
    """

    def __init__(self, config: MachineConfig):
        self._config = config
        super().__init__(
            {
                "fire": In(1),
                "fire_channel": In(CHANNEL_BITS),
                "ask": In(CHANNEL_BITS),
                "token": Out(1),
                "take": In(1),
                "overflow": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        channels = self._config.channels
        names = ("full", "fired", "taken", "some", "many")
        full, fired, taken, some, many = (Signal(channels, name=name) for name in names)
        # The selected channel, as a number and one-hot; the channel of the previous cycle's fire, one-hot.
        asked, here, recent = Signal(CHANNEL_BITS), Signal(channels, init=1), Signal(channels)
        m.d.comb += self.overflow.eq((recent & full).any())
        m.d.sync += [
            asked.eq(self.ask),
            recent.eq(fired),
            # The count of the selected channel, updated by what happens to it in this cycle.
            self.token.eq(
                Mux(
                    self.take & (self.ask == asked),
                    many.bit_select(self.ask, 1),
                    some.bit_select(self.ask, 1),
                )
                | (self.fire & (self.fire_channel == self.ask))
            ),
        ]
        for i in range(channels):
            # A fire is known late in its cycle, so it is added to the count one cycle later. Until then it is
            # in `recent`.
            count = Signal(range(self._config.channel_depth + 1), name=f"count{i}")
            m.d.sync += here[i].eq(self.ask == i)
            m.d.comb += [
                fired[i].eq(self.fire & (self.fire_channel == i)),
                taken[i].eq(self.take & here[i]),
                full[i].eq(count == self._config.channel_depth),
                some[i].eq((count != 0) | recent[i]),
                many[i].eq((count > 1) | (recent[i] & (count != 0))),
            ]
            with m.If(recent[i] ^ taken[i]):
                m.d.sync += count.eq(count + Mux(recent[i], 1, -1))
        return m
