"""The scalar register file of a warp."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import memory
from amaranth.lib.wiring import Component, In, Out


class RegisterFile(Component):
    """Registers of 32 bits with four readers and one writer.

    `true` tells whether the register named by `predicate` is not 0. While `clear` is 1, the register named by
    `target` becomes 0; `data` must be 0, too. Nothing else writes register 0.

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
                "clear": In(1),
                "write": In(1),
                "target": In(5),
                "data": In(32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.words = words = memory.Memory(shape=32, depth=self._registers, init=[])
        port = words.write_port()
        m.d.comb += [
            port.en.eq(self.clear | (self.write & (self.target != 0))),
            port.addr.eq(self.target),
            port.data.eq(self.data),
        ]
        for i in range(4):
            read = words.read_port(domain="comb")
            index, value = getattr(self, f"read{i}"), getattr(self, f"value{i}")
            m.d.comb += [read.addr.eq(index), value.eq(read.data)]
        self._predicates(m, port.en)
        return m

    def _predicates(self, m: Module, write: Signal) -> None:
        """Whether registers are not 0: noted in the cycle after the write, before which the value tells."""
        m.submodules.nonzero = nonzero = memory.Memory(shape=1, depth=self._registers, init=[])
        late, target, data = Signal(reset_less=True), Signal(5, reset_less=True), Signal(32, reset_less=True)
        m.d.sync += [late.eq(write), target.eq(self.target), data.eq(self.data)]
        read, port = nonzero.read_port(domain="comb"), nonzero.write_port()
        m.d.comb += [
            port.en.eq(late),
            port.addr.eq(target),
            port.data.eq(data.any()),
            read.addr.eq(self.predicate),
            self.true.eq(Mux(late & (target == self.predicate), port.data, read.data)),
        ]
