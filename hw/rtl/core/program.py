"""The program memory of all warps."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import memory
from amaranth.lib.wiring import Component, In, Out

from hw.config import MachineConfig
from hw.isa import STORED_BITS, WORD_BITS
from hw.rtl.bits import log2
from hw.rtl.core.decoder import legal, sort_bits
from hw.rtl.interfaces import warp_number


class ProgramMemory(Component):
    """The instructions of all warps with their predecoded classes; written while the machine is idle.

    **Timing.** `word` in cycle t + 1 is the word of `warp` at `pc` in cycle t. A word written in cycle t is
    readable from t + 3 on; it is predecoded in between.
    """

    def __init__(self, config: MachineConfig):
        self._config = config
        warp, bits = warp_number(config), log2(config.imem_words)
        super().__init__(
            {
                "warp": In(warp),
                "pc": In(bits),
                "word": Out(STORED_BITS),
                "write": In(1),
                "write_warp": In(warp),
                "write_pc": In(bits),
                "data": In(WORD_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.words = words = memory.Memory(
            shape=STORED_BITS,
            depth=self._config.warps * self._config.imem_words,
            init=[],
            attrs={"no_rw_check": 1},
        )
        read, write = words.read_port(), words.write_port()
        m.d.comb += [read.addr.eq(Cat(self.pc, self.warp)), self.word.eq(read.data)]
        word, known = Signal(WORD_BITS, reset_less=True), Signal(WORD_BITS, reset_less=True)
        sort, right = Signal(STORED_BITS - WORD_BITS), Signal()
        writes, address = Signal(2), Signal(2 * len(write.addr))
        place = Cat(self.write_pc, self.write_warp)[: len(write.addr)]  # a single warp also has a bit
        m.d.sync += [
            word.eq(self.data),
            known.eq(word),
            sort.eq(Cat(*sort_bits(word))),
            right.eq(legal(self._config, word)),
            writes.eq(Cat(self.write, writes)),
            address.eq(Cat(place, address)),
        ]
        m.d.comb += [
            write.en.eq(writes[-1]),
            write.addr.eq(address[len(write.addr) :]),
            write.data.eq(Cat(known, sort | ~right.replicate(len(sort)))),
        ]
        return m
