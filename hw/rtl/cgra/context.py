"""The configuration memory of a processing element."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import memory
from amaranth.lib.wiring import Component, In, Out

from hw.fabric import Fabric, Layout, layout
from hw.fabric.layout import FIRST
from hw.rtl.cgra.units import BLOCK_RAM, WIDTH


def context_bits(fabric: Fabric) -> int:
    """Width of a context number."""
    return max(1, (fabric.contexts - 1).bit_length())


class ContextMemory(Component):
    """The entries of a PE, one per context; each word of an entry has its own block RAM.

    `write` selects the word of context `at` that becomes `data`. `fields`, `const` and `init` are those of
    the context read last; `bound` is the sum of its `stage` and `first`.

    **Timing.** A word written in cycle t is readable from t + 1 on; the entry of a context read in t is valid
    in t + 1 and holds while `read` is 0. In a pipelined fabric it passes another register, which loads the
    memory's previous output whenever `read` is 1, because a block RAM is slow.
    """

    def __init__(self, fabric: Fabric, pe: int):
        self.layout: Layout = layout(fabric, pe)
        self._depth, self._pipelined = max(2, fabric.contexts), fabric.pipelined
        bits = context_bits(fabric)
        super().__init__(
            {
                "write": In(self.layout.words),
                "at": In(bits),
                "data": In(WIDTH),
                "read": In(1),
                "context": In(bits),
                "fields": Out(self.layout.bits),
                "bound": Out((fabric.stages + FIRST).bit_length()),
                "const": Out(WIDTH),
                "init": Out(WIDTH),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        whole = self.layout.field_words
        out: list[Value] = []
        read_now: list[Value] = []
        for i in range(self.layout.words):
            used = min(WIDTH, self.layout.bits - WIDTH * i) if i < whole else WIDTH
            word = memory.Memory(shape=used, depth=self._depth, init=[], attrs=BLOCK_RAM)
            m.submodules[f"word{i}"] = word
            write, read = word.write_port(), word.read_port()
            m.d.comb += [
                write.en.eq(self.write[i]),
                write.addr.eq(self.at),
                write.data.eq(self.data),
                read.en.eq(self.read),
                read.addr.eq(self.context),
            ]
            if self._pipelined:
                late = Signal(used, name=f"late{i}", reset_less=True)
                with m.If(self.read):
                    m.d.sync += late.eq(read.data)
            read_now.append(read.data)
            out.append(late if self._pipelined else read.data)
        now = Cat(*read_now[:whole])
        stage, first = (
            now[f.low : f.low + f.width]
            for name in ("stage", "first")
            for f in self.layout.fields
            if f.name == name
        )
        if self._pipelined:
            with m.If(self.read):
                m.d.sync += self.bound.eq(stage + first)
        else:
            m.d.comb += self.bound.eq(stage + first)
        m.d.comb += [
            self.fields.eq(Cat(*out[:whole])),
            self.const.eq(out[whole]),
            self.init.eq(out[whole + 1]),
        ]
        return m
