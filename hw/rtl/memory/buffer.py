"""Byte-banked buffer: input buffers, scratchpad and output buffer."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Shape
from amaranth.lib import data, memory
from amaranth.lib.wiring import Component, In, Out, Signature

from hw.config import BufferShape
from hw.rtl.bits import log2

#: Attributes of a memory whose read value is don't-care when the address is written in the same cycle. Yosys
#: then omits the address comparison that would return the old value.
NO_COLLISIONS = {"no_rw_check": 1}


def address_bits(shape: BufferShape) -> int:
    """Width of the address within a bank."""
    return log2(shape.depth)


class BankedWrite(Signature):
    """One write per bank and cycle, each with its own address: enables, addresses, bytes in bank order."""

    def __init__(self, shape: BufferShape):
        super().__init__(
            {
                "enable": Out(shape.banks),
                "address": Out(data.ArrayLayout(address_bits(shape), shape.banks)),
                "data": Out(8 * shape.banks),
            }
        )


class BankedRead(Signature):
    """One read of all banks at one address; the data holds while `enable` is 0."""

    def __init__(self, shape: BufferShape):
        super().__init__({"enable": Out(1), "address": Out(address_bits(shape)), "data": In(8 * shape.banks)})


class WordRead(Signature):
    """One read per cycle from each group of four banks (a 32-bit word), each with its own address.

    `held` means that the other port reads the buffer; no bit of `enable` may be 1 then. Data is valid in the
    next cycle only.
    """

    def __init__(self, shape: BufferShape):
        words = shape.banks // 4
        super().__init__(
            {
                "held": In(1),
                "enable": Out(words),
                "address": Out(data.ArrayLayout(address_bits(shape), words)),
                "data": In(8 * shape.banks),
            }
        )


class BankedBuffer(Component):
    """`shape.banks` byte-wide memories with one write and one read port each; infers block RAM.

    With `words` there is a second reader, of single words; `read` has priority over it in every cycle.

    **Timing.** A byte written in cycle t is readable from cycle t + 1 on; the data of a read presented in
    cycle t is valid in t + 1. A read of an address that is written in the same cycle returns the old value in
    simulation and is undefined in block RAM; correctly synchronised programs never do this.
    """

    def __init__(self, shape: BufferShape, *, words: bool = False):
        self._shape, self._words = shape, words
        ports = {"write": In(BankedWrite(shape)), "read": In(BankedRead(shape))}
        super().__init__(ports | ({"words": In(WordRead(shape))} if words else {}))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        out = []
        for b in range(self._shape.banks):
            bank = memory.Memory(shape=Shape(8), depth=self._shape.depth, init=[], attrs=NO_COLLISIONS)
            m.submodules[f"bank{b}"] = bank
            write, read = bank.write_port(), bank.read_port()
            m.d.comb += [
                write.en.eq(self.write.enable[b]),
                write.addr.eq(self.write.address[b]),
                write.data.eq(self.write.data.word_select(b, 8)),
            ]
            if self._words:
                single = self.words
                m.d.comb += [
                    read.en.eq(self.read.enable | single.enable[b // 4]),
                    read.addr.eq(Mux(self.read.enable, self.read.address, single.address[b // 4])),
                ]
            else:
                m.d.comb += [read.en.eq(self.read.enable), read.addr.eq(self.read.address)]
            out.append(read.data)
        m.d.comb += self.read.data.eq(Cat(*out))
        if self._words:
            m.d.comb += [self.words.held.eq(self.read.enable), self.words.data.eq(Cat(*out))]
        return m
