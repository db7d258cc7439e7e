"""Contents of memory and buffers at each issue, which the results of the CGRA depend on.

An operation takes effect completely when it issues. This is correct for programs that order operations on the
same bytes. If such operations race, the machine may read other bytes than the model.
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
    """The memories of a machine in a run; buffers start at 0, as after a reset.

    Without `values`, only the scratchpad is filled, which holds the configurations of the CGRA.
    """

    def __init__(self, config: MachineConfig, job: Job, values: bool):
        self.values = values
        self.memories = Memories(config, filled(job.memory, job.end))
        for name in ("a", "b", "acc", "scratch", "out"):
            getattr(self.memories, name).fill(0)

    def perform(self, operation: Operation, fetched: Sequence[int], parameters: Sequence[int]) -> None:
        """Apply an operation to memory; launches of the CGRA are left to its own model."""
        spec = isa.INSTRUCTIONS[operation.name]
        if spec.engine == "cgra" or not (self.values or spec.engine == "load_c"):
            return
        values = {o.name: value for o, value in zip(spec.operands, fetched, strict=True)}
        values |= {name: parameters[PARAMETERS[name].index] for name in spec.parameters}
        # The engine model finds the error, and the cycle in which it stops the machine.
        with contextlib.suppress(OperationError):
            self.memories.perform(operation.name, values)
