"""The common part of all engines' schedules."""

from __future__ import annotations

from cosim.job import MachineError
from cosim.models.cycle.checks import ENGINE_RANK, Fault
from hw.config import ENGINES, MachineConfig
from hw.isa import Cause


class EngineModel:
    """The schedule of an engine: `starts` and `completions` hold s and c of each operation.

    `fault` is the first error.
    """

    def __init__(self, name: str, config: MachineConfig):
        self.config, self.number = config, ENGINES.index(name)
        self.starts: list[int] = []
        self.completions: list[int] = []
        self.fault: Fault | None = None

    def fail(self, cycle: int, cause: Cause, warp: int, pc: int) -> None:
        """Record an error, unless one is known that is earlier, or was recorded first in its cycle."""
        if self.fault is None or cycle < self.fault.cycle:
            self.fault = Fault(cycle, ENGINE_RANK + self.number, MachineError(cause, warp, pc))
