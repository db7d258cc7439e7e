"""A block RAM with an AXI4 slave port."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, connect, flipped

from hw.errors import InputError
from hw.rtl.bits import log2
from hw.rtl.bus.axi import BOUNDARY, Axi, Burst, Resp, answer_channel
from hw.rtl.bus.buffer import StreamBuffer

#: More than any FPGA has; synthesis of larger ones would only take long to fail.
LARGEST = 1 << 24


def check_size(size: int) -> None:
    """Raises `InputError` unless a memory has whole pages, so that no burst is partly out of range."""
    if size <= 0 or size % BOUNDARY or size > LARGEST:
        raise InputError(
            f"the memory must have a multiple of {BOUNDARY} bytes, at most {LARGEST}, not {size}"
        )


class AxiRam(Component):
    """An AXI4 slave of `size` bytes from address 0 on, `width` bytes wide.

    Accepts FIXED and INCR bursts of any length and size, aligned or not; strobes apply. A burst out of range
    is answered with DECERR, a WRAP burst with SLVERR; both write nothing. Answers come in the order of the
    bursts. `size` must pass `check_size`.

    **Timing.** A burst of n transfers takes n cycles; reads and writes proceed in parallel, except that a
    read waits while its word is written. The first data follows two cycles after ARVALID. A ready may depend
    on RREADY or WVALID in the same cycle.
    """

    def __init__(self, size: int, width: int, id_bits: int):
        self._size, self._width, self._id_bits = size, width, id_bits
        super().__init__({"bus": In(Axi(width, id_bits))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shape = 8 * self._width
        # A word is never read while it is written, so synthesis need not define what is read then.
        attributes = {"no_rw_check": 1}
        depth = self._size // self._width
        m.submodules.memory = memory = Memory(shape=shape, depth=depth, init=[], attrs=attributes)
        port = memory.write_port(granularity=8)
        self._write(m, port)
        self._read(m, memory.read_port(), port)
        return m

    def _read(self, m: Module, port: Any, writing: Any) -> None:
        bus = self.bus
        answer = bus.r.payload
        collision = (writing.addr == port.addr) & bus.w.valid
        move = (~bus.r.valid | bus.r.ready) & ~collision
        resp, burst, step, last = self._bursts(m, "ar", move)
        m.d.comb += [
            port.en.eq(step),
            port.addr.eq(burst.addr >> log2(self._width)),
            answer.data.eq(port.data),
        ]
        with m.If(~bus.r.valid | bus.r.ready):
            m.d.sync += bus.r.valid.eq(step)
        with m.If(step):
            m.d.sync += [answer.id.eq(burst.id), answer.resp.eq(resp), answer.last.eq(last)]

    def _write(self, m: Module, port: Any) -> None:
        bus = self.bus
        m.submodules.b = b = StreamBuffer(answer_channel(self._id_bits))
        connect(m, b.o, flipped(bus.b))
        resp, burst, step, last = self._bursts(m, "aw", bus.w.valid & b.i.ready)
        m.d.comb += [
            bus.w.ready.eq(burst.active & b.i.ready),
            port.addr.eq(burst.addr >> log2(self._width)),
            port.data.eq(bus.w.payload.data),
            port.en.eq(Mux(step & (resp == Resp.OKAY), bus.w.payload.strb, 0)),
            b.i.valid.eq(step & last),
            b.i.payload.id.eq(burst.id),
            b.i.payload.resp.eq(resp),
        ]

    def _bursts(self, m: Module, channel: str, move: Value) -> tuple[Signal, Any, Value, Value]:
        """Walks the bursts of a channel; returns (response, burst, transfer moves, transfer is the last)."""
        addresses = getattr(self.bus, channel)
        new = addresses.payload
        burst = _Burst(channel, self._id_bits)
        resp = Signal(Resp, name=f"{channel}_resp")
        step, last = burst.active & move, burst.left == 0
        following = burst.addr[:12] + (1 << burst.size)
        m.d.comb += addresses.ready.eq(~burst.active | (step & last))
        with m.If(step):
            m.d.sync += burst.left.eq(burst.left - 1)
            with m.If(~burst.fixed):
                # Only the first transfer may be unaligned.
                m.d.sync += burst.addr[:12].eq(following & ~((1 << burst.size) - 1))
        with m.If(addresses.ready):
            m.d.sync += [
                burst.active.eq(addresses.valid),
                burst.addr.eq(new.addr),
                burst.left.eq(new.len),
                burst.size.eq(new.size),
                burst.id.eq(new.id),
                burst.fixed.eq(new.burst == Burst.FIXED),
                resp.eq(
                    Mux(
                        new.addr >= self._size,
                        Resp.DECERR,
                        Mux(new.burst == Burst.WRAP, Resp.SLVERR, Resp.OKAY),
                    )
                ),
            ]
        return resp, burst, step, last


class _Burst:
    """Registers of the current burst; `left` transfers follow the current one."""

    def __init__(self, name: str, id_bits: int):
        self.active = Signal(name=f"{name}_active")
        self.addr = Signal(32, name=f"{name}_addr")
        self.left = Signal(8, name=f"{name}_left")
        self.size = Signal(3, name=f"{name}_size")
        self.id = Signal(id_bits, name=f"{name}_id")
        self.fixed = Signal(name=f"{name}_fixed")
