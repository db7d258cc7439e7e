"""Computes the CRC of a program while it is loaded."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib.crc.catalog import CRC32_ETHERNET
from amaranth.lib.wiring import Component, In, Out


class WordCheck(Component):
    """The CRC-32 of all words since `start`, byte by byte, lowest byte first.

    While `ready` is 0 a word is being processed: no other word may come, and `crc` is undefined.

    **Timing.** A word that is `valid` in cycle t is included in `crc` in t + 5, where `ready` is 1 again. The
    first word may come two cycles after `start` at the earliest.
    """

    def __init__(self) -> None:
        super().__init__({"start": In(1), "valid": In(1), "data": In(32), "ready": Out(1), "crc": Out(32)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.bytes = bytewise = CRC32_ETHERNET(data_width=8).create()
        starts, word, left = Signal(), Signal(32), Signal(range(5))  # `left`: number of bytes
        m.d.sync += starts.eq(self.start)
        m.d.comb += [
            self.ready.eq(left == 0),
            bytewise.start.eq(starts),
            bytewise.valid.eq(~self.ready),
            bytewise.data.eq(word[:8]),
            self.crc.eq(bytewise.crc),
        ]
        with m.If(self.valid):
            m.d.sync += [word.eq(self.data), left.eq(4)]
        with m.Elif(~self.ready):
            m.d.sync += [word.eq(word[8:]), left.eq(left - 1)]
        return m
