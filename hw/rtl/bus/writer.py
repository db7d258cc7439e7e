"""AXI4 write master for the write port of the machine."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib import data, fifo
from amaranth.lib.wiring import Component, In, Out, connect, flipped

from hw.rtl.bits import log2
from hw.rtl.bus.axi import AxiWrite, Burst, Resp
from hw.rtl.bus.buffer import StreamBuffer
from hw.rtl.bus.gather import Gather
from hw.rtl.interfaces import WritePort

#: Maximum number of bursts that wait for their responses.
BURSTS = 16
#: Minimum room for transfers that wait until their burst closes, or for W.
DATA_DEPTH = 16


class WriteMaster(Component):
    """A port of `port` bytes as an AXI4 write master on a bus of `width` bytes, with AxID `identity`.

    Transfers wait in a queue until their burst is closed. The response to a burst becomes one answer to each
    of its transfers; any response but OKAY sets `error`.

    **Timing.** A transfer accepted in cycle t is on AW and W from t + 3 on, plus the cycles in which its
    burst grows. The first answer follows one cycle after BVALID, further ones in successive cycles.
    """

    def __init__(self, port: int, width: int, beats: int, id_bits: int, identity: int):
        self._port, self._width, self._beats, self._identity = port, width, beats, identity
        super().__init__({"port": In(WritePort(port)), "bus": Out(AxiWrite(width, id_bits))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus, request = self.bus, self.port.request
        first, lane_bits = log2(self._port), log2(self._width // self._port)
        fields = {"data": 8 * self._port, "strobe": self._port} | ({"lane": lane_bits} if lane_bits else {})
        beat_layout = data.StructLayout(fields)
        depth = max(DATA_DEPTH, self._beats)
        queue = fifo.SyncFIFO if depth <= 32 else fifo.SyncFIFOBuffered  # deep ones use block RAM
        m.submodules.beats = beats = queue(width=beat_layout.size, depth=depth)
        m.submodules.gather = gather = Gather(self._port, self._beats)
        m.submodules.aw = aw = StreamBuffer(bus.aw.payload.shape())
        m.submodules.sending = sending = fifo.SyncFIFO(width=8, depth=BURSTS)
        m.submodules.owed = owed = fifo.SyncFIFO(width=8, depth=BURSTS)
        connect(m, aw.o, flipped(bus.aw))

        identity = Const(self._identity, bus.signature.id_bits)

        # A transfer enters the data queue and the address gathering in the same cycle.
        entry, beat = Signal(beat_layout), Signal(beat_layout)
        m.d.comb += [
            gather.request.valid.eq(request.valid & beats.w_rdy),
            gather.request.payload.eq(request.payload.address),
            request.ready.eq(gather.request.ready & beats.w_rdy),
            entry.data.eq(request.payload.data),
            entry.strobe.eq(request.payload.strobe),
            beats.w_data.eq(entry),
            beats.w_en.eq(request.valid & gather.request.ready),
        ]
        lane: Value = Const(0)
        if lane_bits:
            m.d.comb += entry.lane.eq(request.payload.address[first : first + lane_bits])
            lane = beat.lane
        take = gather.valid & aw.i.ready & sending.w_rdy & owed.w_rdy
        m.d.comb += [
            gather.take.eq(take),
            aw.i.valid.eq(take),
            # As a whole: Verilog has no process for a part that is constant.
            aw.i.payload.eq(
                Cat(identity, gather.address, gather.length, Const(first, 3), Const(Burst.INCR, 2))
            ),
            sending.w_en.eq(take),
            sending.w_data.eq(gather.length),
            owed.w_en.eq(take),
            owed.w_data.eq(gather.length),
        ]

        sent = Signal(8)
        moved = bus.w.valid & bus.w.ready
        m.d.comb += [
            beat.eq(beats.r_data),
            bus.w.valid.eq(beats.r_rdy & sending.r_rdy),
            bus.w.payload.data.eq(beat.data.replicate(self._width // self._port)),
            bus.w.payload.strb.word_select(lane, self._port).eq(beat.strobe),
            bus.w.payload.last.eq(sent == sending.r_data),
            beats.r_en.eq(moved),
            sending.r_en.eq(moved & bus.w.payload.last),
        ]
        with m.If(moved):
            m.d.sync += sent.eq(sent + 1)
            with m.If(bus.w.payload.last):
                m.d.sync += sent.eq(0)
        self._answers(m, owed)
        return m

    def _answers(self, m: Module, owed: fifo.SyncFIFO) -> None:
        """Passes the response to a burst to the port once for each of its transfers."""
        response = self.port.response
        m.submodules.b = b = StreamBuffer(self.bus.b.payload.shape())
        connect(m, flipped(self.bus.b), b.i)
        given = Signal(8)
        last = given == owed.r_data
        step = response.valid & response.ready
        m.d.comb += [
            response.valid.eq(b.o.valid & owed.r_rdy),
            response.payload.error.eq(b.o.payload.resp != Resp.OKAY),
            b.o.ready.eq(step & last),
            owed.r_en.eq(step & last),
        ]
        with m.If(step):
            m.d.sync += given.eq(given + 1)
            with m.If(last):
                m.d.sync += given.eq(0)
