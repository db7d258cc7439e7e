"""Counting sync channels between warps."""

from __future__ import annotations

import itertools

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out

from hw.config import MachineConfig
from hw.rtl.core.signals import CHANNEL_BITS


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
        warps, channels = range(self._config.warps), range(self._config.channels)
        # Warps name no channel that does not exist.
        bits = max(1, (len(channels) - 1).bit_length())
        fired = [self.fire_channel[w][:bits] for w in warps]
        taken = [self.take_channel[w][:bits] for w in warps]
        full = Signal(len(channels))
        # Which channels are named is known early in a cycle, whether they are fired or taken from is not.
        for channel in channels:
            count = Signal(range(self._config.channel_depth + 1), name=f"count{channel}")
            up, down = Signal(name=f"up{channel}"), Signal(name=f"down{channel}")
            more, less = Signal.like(count), Signal.like(count)
            m.d.comb += [
                up.eq(Cat(self.fire[w] & (fired[w] == channel) for w in warps).any()),
                down.eq(Cat(self.take[w] & (taken[w] == channel) for w in warps).any()),
                full[channel].eq(count == self._config.channel_depth),
                self.tokens[channel].eq(count != 0),
                more.eq(Mux(full[channel], count, count + 1)),
                less.eq(count - 1),
            ]
            m.d.sync += count.eq(Mux(up, Mux(down, count, more), Mux(down, less, count)))
        for w in warps:
            relieved = Cat(self.take[v] & (taken[v] == fired[w]) for v in warps).any()
            m.d.comb += self.overflow[w].eq(self.fire[w] & full.bit_select(fired[w], 1) & ~relieved)
        m.d.comb += [
            self.fire_conflict.eq(self._conflicts(m, "fire", self.fire, fired)),
            self.take_conflict.eq(self._conflicts(m, "take", self.take, taken)),
        ]
        return m

    def _conflicts(self, m: Module, name: str, uses: Value, numbers: list[Value]) -> Value:
        """For each warp, whether another one uses the same channel in this cycle."""
        warps = self._config.warps
        shared: list[list[Value]] = [[Const(0)] for _ in range(warps)]
        for w, v in itertools.combinations(range(warps), 2):
            same = Signal(name=f"{name}s_of_{w}_and_{v}")
            m.d.comb += same.eq(uses[w] & uses[v] & (numbers[w] == numbers[v]))
            shared[w].append(same)
            shared[v].append(same)
        return Cat(Cat(*each).any() for each in shared)
