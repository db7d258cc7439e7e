"""The table memory of a processing element."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, memory
from amaranth.lib.wiring import Component, In, Out

from hw.rtl.bits import where
from hw.rtl.cgra.units import BLOCK_RAM, WIDTH, later, shown

#: Address width of the largest possible table memory.
ADDRESS_BITS = 14
#: A write into a table memory; with `begin`, `data` is the number of words that the table gets, from word 0
#: on.
TableWrite = data.StructLayout({"begin": 1, "enable": 1, "address": ADDRESS_BITS, "data": WIDTH})


class TableUnit(Component):
    """A table memory; `outside` reports an index whose word does not exist. `clear` empties it.

    `load` latches `const` of the next step: the first word of the table, and the limit of its indices.
    `moves` without `advance` makes the next `y` 0.

    **Timing.** The word read by a step that ends (`advance`) in cycle t is `y` from t + 1 on, until the next
    step has ended; `outside` is combinational. In a pipelined fabric both come one step later, `outside` in
    the first cycle of that step in which accesses may be made (`shows`).
    """

    def __init__(self, words: int, pipelined: bool = False):
        self._words, self._pipelined = words, pipelined
        super().__init__(
            {
                "write": In(TableWrite),
                "clear": In(1),
                "load": In(1),
                "const": In(WIDTH),
                "happens": In(1),
                "advance": In(1),
                "moves": In(1),
                "shows": In(1),
                "index": In(WIDTH),
                "outside": Out(1),
                "y": Out(WIDTH),
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
        # The number of words from the first one on, and the limit of indices, both within the memory.
        beyond = self.const[bits:16].any() | (self.const[:bits] > length)
        with m.If(self.load):
            m.d.sync += [
                first.eq(self.const[:bits]),
                count.eq(Mux(self.const[16 + bits :].any(), (1 << bits) - 1, self.const[16 : 16 + bits])),
                room.eq(Mux(beyond, 0, length - self.const[:bits])),
            ]
        index, happens, address = self.index[:bits], self.happens, Signal(len(read.addr))
        outside = self.index[bits:].any() | (index >= count) | (index >= room)
        m.d.comb += address.eq(first + index)
        if self._pipelined:
            outside = later(m, self.advance, "outside", outside)
            happens = shown(m, self.shows, "happens", happens)
            address = later(m, self.advance, "address", address)
        m.d.comb += [
            self.outside.eq(happens & outside),
            write.en.eq(self.write.enable),
            write.addr.eq(self.write.address),
            write.data.eq(self.write.data),
            read.en.eq(self.advance),
            read.addr.eq(address),
            self.y.eq(where(valid, read.data)),
        ]
        with m.If(self.moves):
            m.d.sync += valid.eq(happens)
        with m.If(self.clear):
            m.d.sync += length.eq(0)
        with m.Elif(self.write.begin):
            m.d.sync += length.eq(self.write.data)
        return m
