"""Contents of memory and buffers when operations issue, which the results of the CGRA depend on.

An operation does all that it does when it issues. That is right for programs that order operations which
touch the same bytes; where they race, the machine may read other bytes than the model.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from cosim.images import filled
from cosim.job import Job
from cosim.models.cycle.sharing import Operation
from cosim.models.functional import Memories, OperationError
from hw import isa
from hw.config import MachineConfig
from hw.isa import PARAMETERS


class Data:
    """The memories of a machine in a run; buffers are 0 at the start, as after a reset.

    Without `values` only the scratchpad is filled, out of which the grid takes its configurations.
    """

    def __init__(self, config: MachineConfig, job: Job, values: bool):
        self.values = values
        self.memories = Memories(config, filled(job.memory, job.end))
        for name in ("a", "b", "acc", "scratch", "out"):
            getattr(self.memories, name).fill(0)

    def perform(self, operation: Operation, fetched: Sequence[int], parameters: Sequence[int]) -> None:
        """Do what an operation does to memory; launches of the grid are left to the grid."""
        spec = isa.INSTRUCTIONS[operation.name]
        if spec.engine == "cgra" or not (self.values or spec.engine == "load_c"):
            return
        values = {o.name: value for o, value in zip(spec.operands, fetched, strict=True)}
        values |= {name: parameters[PARAMETERS[name].index] for name in spec.parameters}
        # The engine finds the error, and when it stops the machine.
        with contextlib.suppress(OperationError):
            self.memories.perform(operation.name, values)
