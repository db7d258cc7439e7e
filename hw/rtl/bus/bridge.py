"""A UART bridge to registers and memory: bytes, frames, bus accesses."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import enum, fifo, stream
from amaranth.lib.wiring import Component, In, Out, connect, flipped

from hw.rtl.bits import log2
from hw.rtl.bus.axi import CSR_ADDRESS_BITS, Axi, AxiLite, Burst, Resp
from hw.rtl.bus.frames import Access, Answer, FrameEngine
from hw.rtl.bus.protocol import Identity
from hw.rtl.bus.uart import Receiver, Transmitter


class _State(enum.Enum):
    IDLE = 0
    ASK = 1
    WAIT = 2


class BusAccess(Component):
    """Reads and writes single words of registers (AXI4-Lite) and memory (AXI4), one at a time.

    Memory is `width` bytes wide.

    **Timing.** An access accepted in cycle t is on the bus from t + 2 on. A bus response in cycle u is
    offered as `answer` from u + 1 on, and the next access is accepted in the cycle after the answer is taken.
    A register access beyond the address range is answered with DECERR from t + 1 on.
    """

    def __init__(self, width: int, id_bits: int):
        self._width, self._id_bits = width, id_bits
        super().__init__(
            {
                "access": In(stream.Signature(Access)),
                "answer": Out(stream.Signature(Answer)),
                "csr": Out(AxiLite()),
                "memory": Out(Axi(width, id_bits)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        access, answer, width = self.access, self.answer, self._width
        state, now = Signal(_State), Signal(Access)
        m.d.comb += access.ready.eq(state == _State.IDLE)
        lane_bits = log2(width // 4)
        lane = now.address[2 : 2 + lane_bits] if lane_bits else Const(0, 1)
        address = Cat(Const(0, self._id_bits), now.address, Const(0, 8), Const(2, 3), Const(Burst.INCR, 2))
        words = self.memory.r.payload.data
        with m.If(answer.valid & answer.ready):
            m.d.sync += answer.valid.eq(0)
        for bus in (self.csr, self.memory):
            for channel in (bus.aw, bus.w, bus.ar):
                with m.If(channel.ready):
                    m.d.sync += channel.valid.eq(0)
        m.d.comb += [
            self.csr.aw.payload.addr.eq(now.address),
            self.csr.ar.payload.addr.eq(now.address),
            self.csr.w.payload.eq(Cat(now.data, Const(0b1111, 4))),
            self.memory.aw.payload.eq(address),
            self.memory.ar.payload.eq(address),
            self.memory.w.payload.eq(
                Cat(now.data.replicate(width // 4), (Const(0b1111, width) << 4 * lane)[:width], Const(1, 1))
            ),
        ]
        beyond = access.payload.address[CSR_ADDRESS_BITS:] != 0  # no register has such an address
        with m.Switch(state):
            with m.Case(_State.IDLE), m.If(access.valid):
                m.d.sync += [now.eq(access.payload), state.eq(_State.ASK)]
                with m.If(~access.payload.memory & beyond):
                    m.d.sync += [
                        state.eq(_State.WAIT),
                        answer.valid.eq(1),
                        answer.payload.resp.eq(Resp.DECERR),
                    ]
                    m.d.sync += answer.payload.data.eq(0)
            with m.Case(_State.ASK):
                m.d.sync += state.eq(_State.WAIT)
                for bus, chosen in ((self.csr, ~now.memory), (self.memory, now.memory)):
                    with m.If(chosen & now.write):
                        m.d.sync += [bus.aw.valid.eq(1), bus.w.valid.eq(1)]
                    with m.If(chosen & ~now.write):
                        m.d.sync += bus.ar.valid.eq(1)
            with m.Case(_State.WAIT):
                for bus in (self.csr, self.memory):
                    read = self.csr.r.payload.data if bus is self.csr else words.word_select(lane, 32)
                    m.d.comb += [bus.b.ready.eq(~answer.valid), bus.r.ready.eq(~answer.valid)]
                    with m.If(bus.b.valid & ~answer.valid):
                        m.d.sync += [answer.valid.eq(1), answer.payload.resp.eq(bus.b.payload.resp)]
                    with m.If(bus.r.valid & ~answer.valid):
                        m.d.sync += [answer.valid.eq(1), answer.payload.resp.eq(bus.r.payload.resp)]
                        m.d.sync += answer.payload.data.eq(read)
                with m.If(answer.valid & answer.ready):
                    m.d.sync += state.eq(_State.IDLE)
        return m


class UartBridge(Component):
    """The device end of `hw.rtl.bus.protocol`, with bus masters `csr` and `memory` (`width` bytes wide).

    `cycles` is the number of clock cycles per bit. `reset` requests a reset of everything behind the masters;
    `lost` means that the host must send IDENTIFY first.

    **Timing.** A bit lasts `cycles` clock cycles in both directions. The latencies of the parts are those of
    `Receiver`, `FrameEngine`, `BusAccess` and `Transmitter`.
    """

    def __init__(self, width: int, id_bits: int, cycles: int, identity: Identity):
        self._width, self._id_bits, self._cycles, self._identity = width, id_bits, cycles, identity
        super().__init__(
            {
                "uart_rx": In(1),
                "uart_tx": Out(1),
                "csr": Out(AxiLite()),
                "memory": Out(Axi(width, id_bits)),
                "reset": Out(1),
                "lost": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.receiver = receiver = Receiver(self._cycles)
        m.submodules.transmitter = transmitter = Transmitter(self._cycles)
        m.submodules.received = received = fifo.SyncFIFO(width=8, depth=self._identity.receive_bytes)
        m.submodules.frames = frames = FrameEngine(self._identity)
        m.submodules.access = access = BusAccess(self._width, self._id_bits)
        connect(m, frames.sent, transmitter.bytes)
        connect(m, frames.access, access.access)
        connect(m, access.answer, frames.answer)
        for bus, outer in ((access.csr, self.csr), (access.memory, self.memory)):
            for name in ("aw", "w", "ar"):
                connect(m, getattr(bus, name), flipped(getattr(outer, name)))
            for name in ("b", "r"):
                connect(m, flipped(getattr(outer, name)), getattr(bus, name))
        bit = Signal(range(self._cycles))
        m.d.sync += bit.eq(bit + 1)
        with m.If(bit == self._cycles - 1):
            m.d.sync += bit.eq(0)
        m.d.comb += [
            receiver.rx.eq(self.uart_rx),
            self.uart_tx.eq(transmitter.tx),
            received.w_data.eq(receiver.data),
            received.w_en.eq(receiver.valid),
            frames.dropped.eq(receiver.bad | (receiver.valid & ~received.w_rdy)),
            frames.received.valid.eq(received.r_rdy),
            frames.received.payload.eq(received.r_data),
            received.r_en.eq(frames.received.ready),
            frames.tick.eq(bit == 0),
            self.reset.eq(frames.reset),
            self.lost.eq(frames.lost),
        ]
        return m
