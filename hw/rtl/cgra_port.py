"""The interface between the CGRA and the rest of the machine.

The grid takes `cgra` operations like every engine. It reads the accumulator's rows, the scratchpad and the
output buffer where array and storer leave their banks free, and writes the output buffer. A machine without
a grid refuses the instruction.
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
    """A store that is served: byte address in the output buffer, and the value (the lowest byte of bytes)."""
    return data.StructLayout({"valid": 1, "address": log2(config.out_bytes), "value": 32})


class CgraPort(Signature):
    """Everything that a grid needs from the machine, seen from the grid.

    `stores` shows what is stored in this cycle, by place in `config.store_pes`.
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
