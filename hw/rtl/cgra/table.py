"""The table memory of a processing element."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, memory
from amaranth.lib.wiring import Component, In, Out

from hw.rtl.bits import where
from hw.rtl.cgra.units import BLOCK_RAM, WIDTH

#: Bits of the address of a word, in the largest table memory that there can be.
ADDRESS_BITS = 14
#: A write into a table memory; `words` says how many words the table gets, from word 0 on.
TableWrite = data.StructLayout({"begin": 1, "enable": 1, "address": ADDRESS_BITS, "data": WIDTH})


class TableUnit(Component):
    """A table memory; `outside` where the word does not exist. `clear` leaves no words.

    `load` takes `const` of the step that is next: its first word, and below what indices must be.

    **Timing.** The word of a step that ends (`advance`) in cycle t is `y2` from t + 1 on, until the next
    step has ended.
    """

    def __init__(self, words: int):
        self._words = words
        super().__init__(
            {
                "write": In(TableWrite),
                "clear": In(1),
                "load": In(1),
                "const": In(WIDTH),
                "happens": In(1),
                "advance": In(1),
                "index": In(WIDTH),
                "outside": Out(1),
                "y2": Out(WIDTH),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.words = words = memory.Memory(
            shape=WIDTH, depth=max(2, self._words), init=[], attrs=BLOCK_RAM
        )
        write, read = words.write_port(), words.read_port()
        bits = self._words.bit_length()
        length, valid = Signal(bits), Signal()
        first, count, room = Signal(bits), Signal(bits), Signal(bits)
        # Words from the first one on, and words that indices may mean: no more than there can be.
        beyond = self.const[bits:16].any() | (self.const[:bits] > length)
        with m.If(self.load):
            m.d.sync += [
                first.eq(self.const[:bits]),
                count.eq(Mux(self.const[16 + bits :].any(), (1 << bits) - 1, self.const[16 : 16 + bits])),
                room.eq(Mux(beyond, 0, length - self.const[:bits])),
            ]
        index = self.index[:bits]
        m.d.comb += [
            self.outside.eq(self.happens & (self.index[bits:].any() | (index >= count) | (index >= room))),
            write.en.eq(self.write.enable),
            write.addr.eq(self.write.address),
            write.data.eq(self.write.data),
            read.en.eq(self.advance),
            read.addr.eq(first + index),
            self.y2.eq(where(valid, read.data)),
        ]
        with m.If(self.advance):
            m.d.sync += valid.eq(self.happens)
        with m.If(self.clear):
            m.d.sync += length.eq(0)
        with m.Elif(self.write.begin):
            m.d.sync += length.eq(self.write.data)
        return m
