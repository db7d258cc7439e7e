"""The place of the CGRA: the port by which a grid joins the machine.

The grid takes `cgra` operations like every engine, reads the accumulator (through the same
second reader as the storer, with the array's priority), reads the scratchpad and writes the output
buffer. A machine whose decoder knows no grid refuses the instruction.
"""

from __future__ import annotations

from amaranth.lib.wiring import In, Out, Signature

from hw.config import MachineConfig
from hw.interfaces import EngineControl
from hw.memory.accumulator import AccumulatorRead
from hw.memory.buffer import BankedRead, BankedWrite


class CgraPort(Signature):
    """Everything that a grid needs from the machine, seen from the grid."""

    def __init__(self, config: MachineConfig):
        super().__init__(
            {
                "control": Out(EngineControl("cgra")),
                "acc": Out(AccumulatorRead(config)),
                "scratch": Out(BankedRead(config.derived.scratch)),
                "out_read": Out(BankedRead(config.derived.out)),
                "out_write": Out(BankedWrite(config.derived.out)),
                "configure": In(1),
            }
        )
