"""A stream buffer that cuts every combinational path."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import Component, In, Out


class StreamBuffer(Component):
    """A two-entry stream buffer; `valid`, `payload` and `ready` all come from registers.

    **Timing.** One cycle of latency, one transfer per cycle.
    """

    def __init__(self, shape: object):
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})  # type: ignore[arg-type]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        spare = Signal.like(self.o.payload)
        spare_valid = Signal()
        m.d.comb += self.i.ready.eq(~spare_valid)
        with m.If(~self.o.valid | self.o.ready):
            m.d.sync += [self.o.valid.eq(self.i.valid | spare_valid), spare_valid.eq(0)]
            with m.If(spare_valid):
                m.d.sync += self.o.payload.eq(spare)
            with m.Else():
                m.d.sync += self.o.payload.eq(self.i.payload)
        with m.Elif(self.i.valid & ~spare_valid):
            m.d.sync += spare_valid.eq(1)
        with m.If(~spare_valid):
            m.d.sync += spare.eq(self.i.payload)
        return m
