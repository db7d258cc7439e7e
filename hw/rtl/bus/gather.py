"""Gathers requests at successive addresses into bursts."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import Component, In, Out

from hw.rtl.bits import log2
from hw.rtl.bus.axi import BOUNDARY
from hw.rtl.interfaces import ADDRESS_BITS


class Gather(Component):
    """Gathers aligned addresses of a port of `width` bytes into bursts of up to `beats` transfers.

    A burst stays open while the next request is present and continues it within the same 4 KiB. Otherwise it
    is offered (`valid`) and leaves in a cycle with `take`. Until it is taken, a request that continues it may
    still join: `valid` is then 0 for that cycle, so the offer is not a stream.

    **Timing.** A request that no other continues is offered in the second cycle after it was accepted.
    """

    def __init__(self, width: int, beats: int):
        assert 1 <= beats <= 256
        self._width, self._beats = width, beats
        super().__init__(
            {
                "request": In(stream.Signature(ADDRESS_BITS)),
                "valid": Out(1),
                "take": In(1),
                "address": Out(ADDRESS_BITS),
                "length": Out(8),  # transfers minus one, as AxLEN
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shift, page = log2(self._width), log2(BOUNDARY)
        request = self.request

        # The newest request, and whether it continues the previous one; within 4 KiB only low bits differ.
        held, follows = Signal(), Signal()
        newest = Signal(ADDRESS_BITS - shift)
        place = request.payload[shift:]
        low = page - shift
        follow = (place[low:] == newest[low:]) & (place[:low] == (newest[:low] + 1)[: low + 1])

        opened, extend, move = Signal(), Signal(), Signal()
        start = Signal(ADDRESS_BITS - shift)
        m.d.comb += [
            extend.eq(opened & held & follows & (self.length != self._beats - 1)),
            self.valid.eq(opened & ~extend),
            self.address.eq(start << shift),
            move.eq(held & (~opened | extend | self.take)),
            request.ready.eq(~held | move),
        ]
        with m.If(request.ready):
            m.d.sync += held.eq(request.valid)
            with m.If(request.valid):
                m.d.sync += [newest.eq(place), follows.eq(follow)]
        with m.If(move):
            m.d.sync += [opened.eq(1), self.length.eq(Mux(extend, self.length + 1, 0))]
            with m.If(~extend):
                m.d.sync += start.eq(newest)
        with m.Elif(self.take):
            m.d.sync += opened.eq(0)
        return m
