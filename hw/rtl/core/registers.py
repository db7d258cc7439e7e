"""The scalar register file of a warp."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import memory
from amaranth.lib.wiring import Component, In, Out


class RegisterFile(Component):
    """Registers of 32 bits with four readers and one writer.

    `true` tells whether the register named by `predicate` is not 0, `positive` whether that named by `count`
    is above 0, which matters if `counts`. If one that matters is not known yet, `unknown` is 1. With `next`
    the three become `coming_*`, else they stay. While `clear` is 1, the register named by `target` becomes 0;
    `data` must be 0, too. Nothing else writes register 0.

    **Timing.** Reads are combinational; a value written in cycle t is read from t + 1 on, its kind is known
    from t + 2 on.
    """

    def __init__(self, registers: int):
        self._registers = registers
        super().__init__(
            {
                **{f"read{i}": In(5) for i in range(4)},
                **{f"value{i}": Out(signed(32)) for i in range(4)},
                "next": In(1),
                "predicate": In(5),
                "coming_predicate": In(5),
                "true": Out(1),
                "count": In(5),
                "coming_count": In(5),
                "positive": Out(1),
                "counts": In(1),
                "coming_counts": In(1),
                "unknown": Out(1),
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
        self._kinds(m, port.en)
        return m

    def _kinds(self, m: Module, write: Signal) -> None:
        """Whether registers are not 0, and above 0: noted in the cycle after the write."""
        m.submodules.kinds = kinds = memory.Memory(shape=2, depth=self._registers, init=[])
        late, target, data = Signal(reset_less=True), Signal(5, reset_less=True), Signal(32, reset_less=True)
        m.d.sync += [late.eq(write), target.eq(self.target), data.eq(self.data)]
        port, some = kinds.write_port(), data.any()
        m.d.comb += [
            port.en.eq(late),
            port.addr.eq(target),
            port.data.eq(Cat(some, some & ~data[-1])),
        ]
        for bit, (told, number) in enumerate(((self.true, self.predicate), (self.positive, self.count))):
            read = kinds.read_port(domain="comb")
            m.d.comb += [read.addr.eq(number), told.eq(read.data[bit])]
        coming = (self.coming_predicate, self.coming_count, self.coming_counts)
        fresh = [
            write & ((predicate == self.target) | (counts & (count == self.target)))
            for predicate, count, counts in (coming, (self.predicate, self.count, self.counts))
        ]
        m.d.sync += self.unknown.eq(Mux(self.next, *fresh))
