"""The interface between the CGRA and the rest of the machine.

The CGRA takes `cgra` operations like every engine. It reads rows of the accumulator, the scratchpad and the
output buffer from banks that the array and the storer leave free, and writes the output buffer. A machine
without a CGRA refuses the instruction.
"""

from __future__ import annotations

from amaranth.lib import data
from amaranth.lib.wiring import Out, Signature

from hw.config import MachineConfig
from hw.rtl.bits import log2
from hw.rtl.interfaces import EngineControl
from hw.rtl.memory.accumulator import BankedRowRead
from hw.rtl.memory.buffer import BankedWrite, WordRead


def store_layout(config: MachineConfig) -> data.StructLayout:
    """A store in the cycle in which it is served.

    `address` is a byte address in the output buffer; a byte value is in the low 8 bits of `value`.
    """
    return data.StructLayout({"valid": 1, "address": log2(config.out_bytes), "value": 32})


class CgraPort(Signature):
    """All connections of the CGRA to the machine, seen from the CGRA.

    `stores` shows the stores of this cycle, in the order of `config.store_pes`.
    """

    def __init__(self, config: MachineConfig):
        super().__init__(
            {
                "control": Out(EngineControl("cgra")),
                "acc": Out(BankedRowRead(config)),
                "scratch": Out(WordRead(config.derived.scratch)),
                "out_read": Out(WordRead(config.derived.out)),
                "out_write": Out(BankedWrite(config.derived.out)),
                "stores": Out(store_layout(config)).array(len(config.store_pes)),
            }
        )
