"""The scalar registers of all warps."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux
from amaranth.lib import memory
from amaranth.lib.wiring import Component, In, Out

from hw import isa
from hw.config import MachineConfig
from hw.rtl.interfaces import warp_number


def register_bits(config: MachineConfig) -> int:
    """Bits of the number of a register of a warp."""
    return (config.registers - 1).bit_length()


def register_words(config: MachineConfig) -> int:
    """Words of the memory that holds the registers of all warps."""
    return config.warps << register_bits(config)


class RegisterFile(Component):
    """Registers of 32 bits in block RAM, with five readers and one writer.

    In each cycle one warp reads five of its registers: the four operands and the predicate. A write to
    register 0 of a warp does nothing. While `clear` is 1, word `clear_index` becomes `data`, which must be 0
    from the second cycle on; `clear_index` must name all words then.

    **Timing.** What is named in cycle t is read in t + 1. What is written in t is read by who names it in
    t + 1 or later.
    """

    def __init__(self, config: MachineConfig):
        self._config = config
        warp = warp_number(config)
        number = isa.PREDICATE_BITS
        super().__init__(
            {
                "warp": In(warp),
                "numbers": In(number).array(5),
                "values": Out(32).array(5),
                "clear": In(1),
                "clear_index": In(range(register_words(config))),
                "write": In(1),
                "target_warp": In(warp),
                "target": In(number),
                "data": In(32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bits = register_bits(self._config)
        place = Mux(self.clear, self.clear_index, Cat(self.target[:bits], self.target_warp))
        for i in range(len(self.numbers)):
            # A memory for each reader: block RAM has one port to read and one to write.
            m.submodules[f"copy{i}"] = words = memory.Memory(
                shape=32, depth=register_words(self._config), init=[], attrs={"no_rw_check": 1}
            )
            write, read = words.write_port(), words.read_port()
            m.d.comb += [
                write.en.eq(self.clear | (self.write & (self.target != 0))),
                write.addr.eq(place),
                write.data.eq(self.data),
                read.addr.eq(Cat(self.numbers[i][:bits], self.warp)),
                self.values[i].eq(read.data),
            ]
        return m
