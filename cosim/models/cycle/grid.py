"""The grid: what launches do is known when they issue, their cycles as time goes on.

Storer and array come before the grid at every bank, and what they read depends on warps that may wait for
the grid. So launches are followed only as far as nothing can change any more (`advance`): the machine knows
how far that is. Values do not depend on cycles, as long as programs order their operations (`grid_steps`).
Source: docs/cgra.md, "The `cgra` operation".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cosim.job import Output
from cosim.models.cycle.checks import NEVER, Fault, engine_fault
from cosim.models.cycle.gemm import Drains
from cosim.models.cycle.grid_conflicts import SCRATCHPAD, Busy
from cosim.models.cycle.grid_loading import LAST_CYCLES, load
from cosim.models.cycle.grid_steps import Numbers, Work, execute, play
from cosim.models.cycle.sharing import Operation
from cosim.models.cycle.storer import StorerModel
from cosim.models.functional import Memories
from cosim.models.functional.cgra import Loaded, array_fault, patched
from cosim.models.functional.cgra_code import registers
from hw.config import ENGINES, MachineConfig
from hw.isa import PARAMETERS, TIMING, Cause
from sw.ir.intrinsics import KEEP

SCALARS = tuple(PARAMETERS[f"cgra_{i}"].index for i in range(12))


class LaunchScalars(NamedTuple):
    """Operands of an operation, and all its scalars: `live0`, `live1`, `cgra_0` to `cgra_11`."""

    operands: list[int]
    scalars: list[int]


@dataclass(slots=True)
class Launch:
    """One operation: what it does, fixed when it issues, and how far its cycles are known.

    `words` are loaded; `lead` cycles after the last request (after it was taken, if there is none) the first
    step begins, or there is an error. `cause` is that of the error, after the steps of `work` if it has any.
    """

    issued: int
    warp: int
    pc: int
    words: int
    lead: int
    work: Work | None
    cause: Cause
    progress: Progress | None = None


@dataclass(slots=True)
class Progress:
    """How far a launch that is taken is known: once it is `ready`, step `step` begins in `cycle`.

    `total` are the undisturbed cycles before each step and behind the last, `begins` when earlier steps
    begin.
    """

    start: int
    total: Numbers
    begins: Numbers
    ready: bool = False
    cycle: int = 0
    step: int = 0


class CgraModel:
    """The schedule of the grid: `starts` and `completions` hold s and c of each operation.

    They are NEVER as long as they are not known. In no cycle before `due` does a launch end that has not
    ended yet, or stop with an error.
    """

    stall_memory = words = 0

    def __init__(
        self, config: MachineConfig, storer: StorerModel, drains: Drains, memories: Memories, values: bool
    ):
        fabric = config.cgra
        assert fabric is not None
        self.config, self.fabric, self.storer, self.drains = config, fabric, storer, drains
        self.number, self.values = ENGINES.index("cgra"), values
        self.starts: list[int] = []
        self.completions: list[int] = []
        self.launches: list[Launch] = []
        self.fault: Fault | None = None
        self.due = NEVER
        self.busy = self.stall_bank = 0
        self._ended = 0  # launches that are complete
        self._loaded: Loaded | None = None
        self._state = [0] * len(registers(fabric))
        #: Without values launches of equal configurations and scalars do the same.
        self._known: dict[tuple[object, tuple[int, ...], int], Work] = {}
        self._scratch = memories.scratch
        self._spaces = memories.spaces
        storer.observed = True

    # Launches

    def plan(
        self, operation: Operation, fetched: Sequence[int], params: Sequence[int]
    ) -> LaunchScalars | None:
        """What an operation is given, by fetched operands and parameters; None: one is too large."""
        operands = operation.operands(fetched)
        if operands is None:
            return None
        return LaunchScalars(operands, [*operands[2:], *(params[i] for i in SCALARS)])

    def issue(self, t: int, warp: int, pc: int, plan: LaunchScalars, fetched: Sequence[int]) -> None:
        """Add the operation that issues in cycle `t`, and do what it does to the output buffer."""
        self.starts.append(NEVER)
        self.completions.append(NEVER)
        if self.fault is None:
            self.launches.append(Launch(t, warp, pc, *self._execute(plan)))
            if self._ended == len(self.launches) - 1:
                self._take()

    def _execute(self, plan: LaunchScalars) -> tuple[int, int, Work | None, Cause]:
        """Words to load, cycles after them, steps, and the error, if any."""
        address, iterations = plan.operands[:2]
        words, cycles = 0, 0
        if address != KEEP:
            words, self._loaded = load(self._scratch, 16 * address, self.fabric, self.values)
            cycles = LAST_CYCLES
        if self._loaded is None:
            return words, cycles, None, Cause.BITSTREAM
        cycles += 1 + len(self._loaded.configuration.patches)
        wrong, work, arrays = self._done(self._loaded, plan.scalars, iterations)
        if work is None:
            return words, cycles + wrong, None, Cause.OPERAND
        cause = Cause.GRID_RANGE if work.failed else Cause.NONE
        return words, cycles + max(TIMING.grid_checks, arrays), work, cause

    def _done(self, loaded: Loaded, scalars: list[int], iterations: int) -> tuple[int, Work | None, int]:
        """The number of the first array that is wrong, else what a launch does; the number of arrays."""
        key = loaded.code.run, tuple(scalars[p.scalar] for p in loaded.configuration.patches), iterations
        if not self.values and key in self._known:
            # Offsets change where others disturb a launch.
            return 0, self._known[key].again(), len(loaded.configuration.arrays)
        configuration = patched(loaded.configuration, scalars)
        count = len(configuration.arrays)
        wrong = array_fault(configuration.arrays, self.config)
        if wrong is not None:
            return wrong, None, count
        work = execute(self.config, configuration, loaded.code, self._state, self._spaces, iterations)
        if not self.values:
            self._known[key] = work.again()
        return 0, work, count

    # Cycles

    def _take(self) -> None:
        """Take the launch behind those that have ended."""
        launch = self.launches[self._ended]
        before = self.completions[self._ended - 1] if self._ended else -1
        start = self.starts[self._ended] = max(launch.issued + TIMING.enqueue, before + 1)
        durations = launch.work.duration if launch.work is not None else np.zeros(0, np.int64)
        total = np.concatenate([np.zeros(1, np.int64), np.cumsum(durations)])
        launch.progress = Progress(start, total, np.zeros(len(durations), np.int64))
        self.due = start + launch.words + launch.lead + int(total[-1]) - 1

    def advance(self, last: int) -> bool:
        """Follow the launch that was taken, the reads of others up to cycle `last` being known.

        Returns whether it ended: others may have waited for that, and now read where they did not before.
        """
        launch = self.launches[self._ended]
        progress = launch.progress
        assert progress is not None
        self._follow(launch, progress, last)
        left = int(progress.total[-1] - progress.total[progress.step])
        if not progress.ready or left:
            self.due = max(last + 1, progress.cycle + left - 1)
            return False
        self.due = NEVER
        if launch.cause is not Cause.NONE:
            # Wrong arrays and indices are told of in the cycle after.
            cycle = progress.cycle + (launch.cause is not Cause.BITSTREAM)
            self.fault = engine_fault(cycle, self.number, launch.cause, launch.warp, launch.pc)
            return True
        self.completions[self._ended] = progress.cycle
        self.busy += progress.cycle - progress.start
        steps = len(progress.begins)
        self.stall_bank += progress.cycle - int(progress.begins[0]) - steps if steps else 0
        self._ended += 1
        if self._ended < len(self.launches):
            self._take()
        return True

    def _follow(self, launch: Launch, progress: Progress, last: int) -> None:
        """Follow one launch up to the first cycle of a step that does not end until `last`."""
        if not progress.ready:
            requested = progress.start
            if launch.words:
                busy = Busy(self.storer, self.drains, {SCRATCHPAD}, requested, last)
                requested = busy.free(SCRATCHPAD, requested + 1, launch.words)
            progress.cycle = requested + launch.lead
            progress.ready = requested <= last
        if progress.ready and launch.work is not None and progress.cycle <= last:
            busy = Busy(self.storer, self.drains, launch.work.resources, progress.cycle, last)
            _steps(launch.work, progress, busy, last)

    # Results

    def outputs(self, last: int) -> list[Output]:
        """Everything that was stored in the output buffer in cycles up to `last`, which are all known."""
        found: list[Output] = []
        for number, launch in enumerate(self.launches):
            work, progress = launch.work, launch.progress
            if work is None or progress is None:
                continue
            if number == self._ended:  # an error has stopped it
                self._follow(launch, progress, last)
                found += self._begun(work, progress, last)
            known = np.flatnonzero(work.stores & (work.step < progress.step))
            cycles = progress.begins[work.step[known]] + work.offset[known]
            columns = (cycles, *(column[known] for column in (work.pe, work.address, work.value)))
            found += map(Output._make, zip(*(column.tolist() for column in columns), strict=True))
        return sorted(found)

    def _begun(self, work: Work, progress: Progress, last: int) -> Iterator[Output]:
        """What was stored in a step that has begun and not ended."""
        if not progress.ready or progress.step == work.steps or progress.cycle > last:
            return
        busy = Busy(self.storer, self.drains, work.resources, progress.cycle, last)
        low, accesses = work.accesses(progress.step)
        for i, cycle in enumerate(play(accesses, progress.cycle, busy.at), low):
            if work.stores[i] and cycle <= last:
                yield Output(cycle, int(work.pe[i]), int(work.address[i]), int(work.value[i]))


def _steps(work: Work, progress: Progress, busy: Busy, last: int) -> None:
    """Follow steps, a whole stretch at a time where nobody else reads, as long as they end until `last`."""
    total = progress.total
    while progress.step < work.steps:
        step, cycle = progress.step, progress.cycle
        free = min(last + 1, busy.next(cycle)) - cycle
        behind = int(np.searchsorted(total, total[step] + free, "right")) - 1
        if behind > step:
            progress.begins[step:behind] = total[step:behind] + (cycle - total[step])
            progress.step, progress.cycle = behind, cycle + int(total[behind] - total[step])
            continue
        low, accesses = work.accesses(step)
        served = play(accesses, cycle, busy.at)
        end = max(served, default=cycle)
        if end > last:
            break
        work.offset[low : low + len(served)] = np.array(served, np.int64) - cycle
        progress.begins[step] = cycle
        progress.step, progress.cycle = step + 1, end + 1
