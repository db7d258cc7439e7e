"""The scalar registers of all warps."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux
from amaranth.lib import memory
from amaranth.lib.wiring import Component, In, Out

from hw import isa
from hw.config import MachineConfig
from hw.rtl.interfaces import warp_number


def register_bits(config: MachineConfig) -> int:
    """Width of a register number within a warp."""
    return (config.registers - 1).bit_length()


def register_words(config: MachineConfig) -> int:
    """Number of words of the memory that holds the registers of all warps."""
    return config.warps << register_bits(config)


class RegisterFile(Component):
    """32-bit registers in block RAM, with five read ports and one write port.

    In each cycle one warp reads five of its registers: four operands and the predicate. A write to register 0
    of a warp has no effect. While `clear` is 1, word `clear_index` becomes `data`, which must be 0 from the
    second cycle on; `clear_index` must address all words during that time.

    **Timing.** Registers selected in cycle t are in `values` in t + 1. A write in t is visible to reads whose
    registers are selected in t + 1 or later.
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
            # One copy of the memory per read port: block RAM has one read port and one write port.
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
