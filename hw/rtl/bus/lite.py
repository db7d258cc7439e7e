"""The machine's registers as an AXI4-Lite slave."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import enum, stream
from amaranth.lib.wiring import Component, In, Out

from hw import csr
from hw.config import MachineConfig
from hw.rtl.bus.axi import AxiLite, Resp
from hw.rtl.interfaces import HostRequest


class _State(enum.Enum):
    IDLE = 0
    CHECK = 1
    REQUEST = 2
    ANSWER = 3


class LiteSlave(Component):
    """Turns AXI4-Lite accesses into requests of the host stream, one at a time.

    AW and W may arrive in any order. Reads and writes alternate when both wait. An address without a register
    is answered with DECERR; an address that is not a multiple of 4, or a write whose WSTRB is not 1111, with
    SLVERR. Neither has an effect.

    **Timing.** All outputs come from registers. B or R follows five cycles after the access is complete if
    the host stream accepts at once.
    """

    def __init__(self, config: MachineConfig):
        self._offsets = tuple(r.offset for r in csr.registers(config))
        super().__init__(
            {
                "bus": In(AxiLite()),
                "request": Out(stream.Signature(HostRequest)),
                "response": In(stream.Signature(32)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus, payload = self.bus, self.request.payload
        held = {}
        for name in ("aw", "w", "ar"):
            channel = getattr(bus, name)
            full, value = Signal(name=f"{name}_full"), Signal(channel.payload.shape(), name=f"{name}_held")
            m.d.comb += channel.ready.eq(~full)
            with m.If(channel.valid & ~full):
                m.d.sync += [full.eq(1), value.eq(channel.payload)]
            held[name] = (full, value)
        (aw_full, aw), (w_full, w), (ar_full, ar) = held.values()
        for channel in (bus.b, bus.r):
            with m.If(channel.ready):
                m.d.sync += channel.valid.eq(0)

        state = Signal(_State)
        write = Signal()  # the current access; in IDLE, the last one
        can_write = aw_full & w_full & ~bus.b.valid
        can_read = ar_full & ~bus.r.valid
        exists = Signal()
        with m.Switch(payload.address[2:]):
            for offset in self._offsets:
                with m.Case(offset >> 2):
                    m.d.comb += exists.eq(1)
        refused = (payload.address[:2] != 0) | (write & (w.strb != 0b1111))
        m.d.comb += [
            payload.data.eq(w.data),
            payload.write.eq(write),
            self.request.valid.eq(state == _State.REQUEST),
            self.response.ready.eq(state == _State.ANSWER),
        ]

        def answer(resp: object, value: object) -> None:
            m.d.sync += state.eq(_State.IDLE)
            with m.If(write):
                m.d.sync += [bus.b.valid.eq(1), bus.b.payload.resp.eq(resp), aw_full.eq(0), w_full.eq(0)]
            with m.Else():
                m.d.sync += [bus.r.valid.eq(1), bus.r.payload.resp.eq(resp), ar_full.eq(0)]
                m.d.sync += bus.r.payload.data.eq(value)

        with m.Switch(state):
            with m.Case(_State.IDLE):
                with m.If(can_write & ~(write & can_read)):
                    m.d.sync += [state.eq(_State.CHECK), write.eq(1), payload.address.eq(aw.addr)]
                with m.Elif(can_read):
                    m.d.sync += [state.eq(_State.CHECK), write.eq(0), payload.address.eq(ar.addr)]
            with m.Case(_State.CHECK):
                with m.If(~exists):
                    answer(Resp.DECERR, 0)
                with m.Elif(refused):
                    answer(Resp.SLVERR, 0)
                with m.Else():
                    m.d.sync += state.eq(_State.REQUEST)
            with m.Case(_State.REQUEST), m.If(self.request.ready):
                m.d.sync += state.eq(_State.ANSWER)
            with m.Case(_State.ANSWER), m.If(self.response.valid):
                answer(Resp.OKAY, self.response.payload)
        return m
