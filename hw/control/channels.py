"""Counting sync channels between warps."""

from __future__ import annotations

import itertools

from amaranth.hdl import Cat, Const, Module, Signal, Value
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
        warps, channels = self._config.warps, self._config.channels
        fires = self._of_channels(m, "fire", self.fire, self.fire_channel)
        takes = self._of_channels(m, "take", self.take, self.take_channel)
        excess = Signal(channels)  # where a token more is one too many
        for channel in range(channels):
            count = Signal(range(self._config.channel_depth + 1), name=f"count{channel}")
            up, down = Signal(name=f"up{channel}"), Signal(name=f"down{channel}")
            m.d.comb += [
                up.eq(Cat(f[channel] for f in fires).any()),
                down.eq(Cat(t[channel] for t in takes).any()),
                excess[channel].eq((count == self._config.channel_depth) & ~down),
                self.tokens[channel].eq(count != 0),
            ]
            with m.If(up & ~down & ~excess[channel]):
                m.d.sync += count.eq(count + 1)
            with m.Elif(down & ~up):
                m.d.sync += count.eq(count - 1)
        m.d.comb += [
            *[self.overflow[w].eq((fires[w] & excess).any()) for w in range(warps)],
            self.fire_conflict.eq(self._conflicts(m, "fire", self.fire, self.fire_channel)),
            self.take_conflict.eq(self._conflicts(m, "take", self.take, self.take_channel)),
        ]
        return m

    def _of_channels(self, m: Module, name: str, uses: Value, numbers: Value) -> list[Signal]:
        """For each warp, which channel it uses in this cycle; warps name no channel that does not exist."""
        found = []
        for w in range(self._config.warps):
            at = Signal(self._config.channels, name=f"{name}s{w}")
            number = numbers[w][: max(1, (self._config.channels - 1).bit_length())]
            m.d.comb += [at[i].eq(uses[w] & (number == i)) for i in range(self._config.channels)]
            found.append(at)
        return found

    def _conflicts(self, m: Module, name: str, uses: Value, numbers: Value) -> Value:
        """For each warp, whether another one uses the same channel in this cycle."""
        warps = self._config.warps
        shared: list[list[Value]] = [[Const(0)] for _ in range(warps)]
        for w, v in itertools.combinations(range(warps), 2):
            same = Signal(name=f"{name}s_of_{w}_and_{v}")
            m.d.comb += same.eq(uses[w] & uses[v] & (numbers[w] == numbers[v]))
            shared[w].append(same)
            shared[v].append(same)
        return Cat(Cat(*each).any() for each in shared)
