"""The program memory of all warps."""

from __future__ import annotations

from amaranth.hdl import Cat, Module
from amaranth.lib import memory
from amaranth.lib.wiring import Component, In, Out

from hw.config import MachineConfig
from hw.isa import STORED_BITS
from hw.rtl.bits import log2
from hw.rtl.interfaces import warp_number


class ProgramMemory(Component):
    """The instructions of all warps, words with their sorts; written while the machine is idle.

    **Timing.** The word of `warp` at `pc` in cycle t is `word` in t + 1.
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
                "data": In(STORED_BITS),
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
        m.d.comb += [
            read.addr.eq(Cat(self.pc, self.warp)),
            self.word.eq(read.data),
            write.en.eq(self.write),
            write.addr.eq(Cat(self.write_pc, self.write_warp)),
            write.data.eq(self.data),
        ]
        return m
