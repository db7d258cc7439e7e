"""AXI4 read master for the read ports of the machine."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import fifo
from amaranth.lib.wiring import Component, In, Out, connect, flipped

from hw.rtl.bits import log2
from hw.rtl.bus.axi import AxiRead, Burst, Resp
from hw.rtl.bus.buffer import StreamBuffer
from hw.rtl.bus.gather import Gather
from hw.rtl.interfaces import ReadPort

#: Maximum outstanding bursts of a port narrower than the bus: the lane of each must be remembered.
NARROW_BURSTS = 16


class ReadMaster(Component):
    """Ports `port0`, `port1`, ... of the given widths (bytes) as one AXI4 master, with AxID 0, 1, ...

    The bus is `width` bytes wide. Ports are served round-robin, one burst at a time. The number of
    outstanding bursts is unlimited, except for a port narrower than the bus (`NARROW_BURSTS`). Any response
    but OKAY sets `error` of its transfer.

    **Timing.** Address and data pass one register stage each besides `Gather`.
    """

    def __init__(self, ports: tuple[int, ...], width: int, beats: int, id_bits: int):
        self._ports, self._width, self._beats = ports, width, beats
        members = {f"port{i}": In(ReadPort(w)) for i, w in enumerate(ports)}
        super().__init__(members | {"bus": Out(AxiRead(width, id_bits))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.ar = ar = StreamBuffer(self.bus.ar.payload.shape())
        m.submodules.r = r = StreamBuffer(self.bus.r.payload.shape())
        connect(m, ar.o, flipped(self.bus.ar))
        connect(m, flipped(self.bus.r), r.i)

        offers, gathers, ready = [], [], []
        for i, width in enumerate(self._ports):
            port = getattr(self, f"port{i}")
            m.submodules[f"gather{i}"] = gather = Gather(width, self._beats)
            connect(m, flipped(port.request), gather.request)
            mine = Signal(name=f"mine{i}")
            m.d.comb += [
                mine.eq(r.o.valid & (r.o.payload.id == i)),
                port.response.valid.eq(mine),
                port.response.payload.error.eq(r.o.payload.resp != Resp.OKAY),
            ]
            room: Value = Const(1)
            if width == self._width:
                m.d.comb += port.response.payload.data.eq(r.o.payload.data)
            else:
                lane, room = self._lane(m, i, gather, mine & port.response.ready, r.o.payload.last)
                m.d.comb += port.response.payload.data.eq(r.o.payload.data.word_select(lane, 8 * width))
            offers.append(gather.valid & room)
            gathers.append(gather)
            ready.append(mine & port.response.ready)
        m.d.comb += r.o.ready.eq(Cat(ready).any())
        grants = take_turns(m, offers, ar.i.ready)
        m.d.comb += ar.i.valid.eq(Cat(grants).any())
        chosen: Value = Const(0)
        for i, (gather, grant) in enumerate(zip(gathers, grants, strict=True)):
            identity, size = Const(i, self.bus.signature.id_bits), Const(log2(self._ports[i]), 3)
            burst = Cat(identity, gather.address, gather.length, size, Const(Burst.INCR, 2))
            m.d.comb += gather.take.eq(grant & ar.i.ready)
            chosen = burst if i == 0 else Mux(grant, burst, chosen)
        m.d.comb += ar.i.payload.eq(chosen)
        return m

    def _lane(self, m: Module, i: int, gather: Gather, beat: Value, last: Value) -> tuple[Value, Value]:
        """For a narrow port: the lane of the bus that holds the current transfer; room for another burst."""
        first, end = log2(self._ports[i]), log2(self._width)
        m.submodules[f"lanes{i}"] = lanes = fifo.SyncFIFO(width=end - first, depth=NARROW_BURSTS)
        done = Signal(end - first, name=f"done{i}")  # transfers of the burst so far
        lane = Signal(end - first, name=f"lane{i}")
        m.d.comb += [
            lanes.w_data.eq(gather.address[first:end]),
            lanes.w_en.eq(gather.take),
            lanes.r_en.eq(beat & last),
            lane.eq(lanes.r_data + done),
        ]
        with m.If(beat):
            m.d.sync += done.eq(done + 1)
            with m.If(last):
                m.d.sync += done.eq(0)
        return lane, lanes.w_rdy


def take_turns(m: Module, requests: list[Value], advance: Value) -> list[Signal]:
    """Round-robin one-hot grants among `requests`; after a grant with `advance`, its owner comes last."""
    count = len(requests)
    grants = [Signal(name=f"grant{i}") for i in range(count)]
    owner = Signal(range(max(2, count)))
    with m.Switch(owner):
        for last in range(count):
            with m.Case(last):
                free: Value = Const(1)
                for step in range(1, count + 1):
                    i = (last + step) % count
                    m.d.comb += grants[i].eq(requests[i] & free)
                    free = free & ~requests[i]
    for i, grant in enumerate(grants):
        with m.If(grant & advance):
            m.d.sync += owner.eq(i)
    return grants
