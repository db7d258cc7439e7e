"""Byte-banked buffer: input buffers, scratchpad and output buffer."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Shape
from amaranth.lib import data, memory
from amaranth.lib.wiring import Component, In, Out, Signature

from hw.config import BufferShape
from hw.rtl.bits import log2

#: Attributes of a memory in which what is read while it is written does not matter: Yosys leaves out the
#: comparison of addresses that would give the old value.
NO_COLLISIONS = {"no_rw_check": 1}


def address_bits(shape: BufferShape) -> int:
    """Bits of the address inside a bank."""
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
    """One read per bank of four bytes and cycle, each with its own address.

    `held` says that something else reads the buffer; nothing may be enabled then. Data is there in the cycle
    after, and only then.
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

    With `words` there is a second reader, of single words, which `read` goes before in every cycle.

    **Timing.** A byte written in cycle t is read from cycle t + 1 on; the data of a read presented in
    cycle t is there in t + 1. What is read in the cycle in which it is written is the old value in
    simulation, and undefined in block RAM: nothing that is ordered reads it then.
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
