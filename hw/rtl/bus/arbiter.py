"""Arbiter of two AXI4 masters on one slave."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.wiring import Component, In, Out, connect, flipped

from hw.rtl.bus.axi import Axi
from hw.rtl.bus.buffer import StreamBuffer
from hw.rtl.bus.reader import take_turns


class Arbiter(Component):
    """Connects the masters `first` and `second` to `bus`; the highest bit of AxID identifies the master.

    Reads and writes are arbitrated separately, round-robin, one burst at a time. W belongs to one master from
    its AW to WLAST, so no data is sent before its address.

    **Timing.** AW and AR take one cycle; W, R and B pass combinationally. AR accepts one burst per cycle. W
    of a burst starts in the cycle after its AW was accepted, and the next AW is accepted in the cycle after
    WLAST at the earliest.
    """

    def __init__(self, width: int, id_bits: int):
        self._id_bits = id_bits
        super().__init__(
            {
                "first": In(Axi(width, id_bits)),
                "second": In(Axi(width, id_bits)),
                "bus": Out(Axi(width, id_bits + 1)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus, masters = self.bus, (self.first, self.second)
        self._addresses(m, "ar", None)
        writing, owner = Signal(), Signal()
        last = bus.w.valid & bus.w.ready & bus.w.payload.last
        granted = self._addresses(m, "aw", writing)
        with m.If(granted.any()):
            m.d.sync += [writing.eq(1), owner.eq(granted[1])]
        with m.Elif(last):
            m.d.sync += writing.eq(0)
        m.d.comb += [
            bus.w.valid.eq(writing & Mux(owner, self.second.w.valid, self.first.w.valid)),
            bus.w.payload.eq(Mux(owner, self.second.w.payload, self.first.w.payload)),
        ]
        for i, master in enumerate(masters):
            m.d.comb += master.w.ready.eq(writing & (owner == i) & bus.w.ready)
            for name in ("r", "b"):
                answer, mine = getattr(bus, name), getattr(master, name)
                m.d.comb += mine.valid.eq(answer.valid & (answer.payload.id[-1] == i))
                for field in mine.payload.shape().members:
                    m.d.comb += mine.payload[field].eq(answer.payload[field])
        for name in ("r", "b"):
            answer = getattr(bus, name)
            ready = Array(getattr(master, name).ready for master in masters)
            m.d.comb += answer.ready.eq(ready[answer.payload.id[-1]])
        return m

    def _addresses(self, m: Module, name: str, blocked: Signal | None) -> Any:
        """Arbitrates an address channel; returns which master proceeds in this cycle."""
        out = getattr(self.bus, name)
        m.submodules[name] = queue = StreamBuffer(out.payload.shape())
        connect(m, queue.o, flipped(out))
        channels = [getattr(master, name) for master in (self.first, self.second)]
        advance = queue.i.ready if blocked is None else queue.i.ready & ~blocked
        grants = take_turns(m, [channel.valid & advance for channel in channels], advance)
        m.d.comb += queue.i.valid.eq(Cat(grants).any())
        split = self._id_bits
        payloads = [Value.cast(channel.payload) for channel in channels]
        marked = [Cat(payload[:split], Const(i, 1), payload[split:]) for i, payload in enumerate(payloads)]
        m.d.comb += queue.i.payload.eq(Mux(grants[1], marked[1], marked[0]))
        m.d.comb += [channel.ready.eq(grant) for channel, grant in zip(channels, grants, strict=True)]
        return Cat(grants)
