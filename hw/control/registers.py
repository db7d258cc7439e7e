"""The scalar register file of a warp."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import memory
from amaranth.lib.wiring import Component, In, Out


class RegisterFile(Component):
    """Registers of 32 bits with four readers and one writer; all are 0 after reset, r0 always.

    The words lie in a memory (distributed RAM on an FPGA); a bit beside each says whether it was written
    since reset. `true` tells whether the register named by `predicate` is not 0.

    **Timing.** Reads are combinational; a value written in cycle t is read from t + 1 on.
    """

    def __init__(self, registers: int):
        self._registers = registers
        super().__init__(
            {
                **{f"read{i}": In(5) for i in range(4)},
                **{f"value{i}": Out(signed(32)) for i in range(4)},
                "predicate": In(5),
                "true": Out(1),
                "write": In(1),
                "target": In(5),
                "data": In(32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.words = words = memory.Memory(shape=32, depth=self._registers, init=[])
        port = words.write_port()
        written, nonzero = Signal(self._registers), Signal(self._registers)
        m.d.comb += [
            port.en.eq(self.write & (self.target != 0)),
            port.addr.eq(self.target),
            port.data.eq(self.data),
            self.true.eq(nonzero.bit_select(self.predicate, 1)),
        ]
        with m.If(port.en):
            m.d.sync += [
                written.bit_select(self.target, 1).eq(1),
                nonzero.bit_select(self.target, 1).eq(self.data != 0),
            ]
        for i in range(4):
            read = words.read_port(domain="comb")
            index, value = getattr(self, f"read{i}"), getattr(self, f"value{i}")
            m.d.comb += [
                read.addr.eq(index),
                value.eq(Mux(written.bit_select(index, 1), read.data, 0)),
            ]
        return m
