"""The CGRA: the effects of a launch are known when it issues, its cycles only as time goes on.

Storer and array have priority over the CGRA at every bank, and their reads depend on warps that may wait for
the CGRA. So launches are followed only as far as nothing can change any more (`advance`); the machine knows
how far that is. Values do not depend on cycles, as long as programs order their operations (`grid_steps`).
Source: docs/cgra.md, "The `cgra` operation".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from cosim.job import OperationWork, Output
from cosim.models.cycle.checks import NEVER
from cosim.models.cycle.engine import EngineModel
from cosim.models.cycle.gemm import Drains
from cosim.models.cycle.grid_conflicts import SCRATCHPAD, Busy
from cosim.models.cycle.grid_steps import Numbers, Work, execute, play
from cosim.models.cycle.sharing import Operation
from cosim.models.cycle.storer import StorerModel
from cosim.models.functional import Memories
from cosim.models.functional.cgra import Loaded, array_fault, loaded, patched
from cosim.models.functional.cgra_code import registers
from hw.config import MachineConfig
from hw.errors import InputError
from hw.fabric import Fabric
from hw.fabric.bitstream import HEADER_WORDS, MAGIC, SIZES, VERSION, split_sizes
from hw.fabric.layout import ARRAYS, PATCHES
from hw.isa import PARAMETERS, TIMING, Cause
from sw.ir.intrinsics import KEEP

SCALARS = tuple(PARAMETERS[f"cgra_{i}"].index for i in range(12))


@dataclass(slots=True)
class Launch:
    """One launch: its effects, fixed when it issues, and how far its cycles are known.

    It loads `words` words. The first step or the error comes `lead` cycles after the last request, or after
    the launch was taken if it loads none. `cause` is the error, after the steps of `work` if there are any.
    `start` is set when the launch is taken. `total` has the undisturbed cycles before each step and after the
    last, `begins` the cycles in which earlier steps began. Once the launch is `ready`, step `step` begins in
    `cycle`.
    """

    issued: int
    warp: int
    pc: int
    words: int
    lead: int
    work: Work | None
    cause: Cause
    start: int = NEVER
    total: Numbers = field(default_factory=lambda: np.zeros(1, np.int64))
    begins: Numbers = field(default_factory=lambda: np.zeros(0, np.int64))
    ready: bool = False
    cycle: int = 0
    step: int = 0


class CgraModel(EngineModel):
    """The schedule of the CGRA.

    Unknown cycles are NEVER. No launch ends or stops with an error before cycle `due`, except those that have
    already ended.
    """

    stall_memory = words = 0

    def __init__(
        self, config: MachineConfig, storer: StorerModel, drains: Drains, memories: Memories, values: bool
    ):
        fabric = config.cgra
        assert fabric is not None
        super().__init__("cgra", config)
        self.fabric, self.storer, self.drains, self.values = fabric, storer, drains, values
        self.launches: list[Launch] = []
        self.due = NEVER
        self.busy = self.stall_bank = 0
        self._ended = 0  # launches that are complete
        self._loaded: Loaded | None = None
        self._state = [0] * len(registers(fabric))
        #: Without values, launches with equal configurations and scalars do the same.
        self._known: dict[tuple[object, tuple[int, ...], int], Work] = {}
        self._scratch = memories.scratch
        self._spaces = memories.spaces
        storer.observed = True

    def plan(self, operation: Operation, fetched: Sequence[int], params: Sequence[int]) -> list[int] | None:
        """Operands and further scalars of an operation; None if an operand is too large."""
        operands = operation.operands(fetched)
        return None if operands is None else [*operands, *(params[i] for i in SCALARS)]

    def issue(self, t: int, warp: int, pc: int, plan: list[int], fetched: Sequence[int]) -> None:
        """Add the operation that issues in cycle `t`, and apply its stores to the output buffer."""
        self.starts.append(NEVER)
        self.completions.append(NEVER)
        if self.fault is None:
            self.launches.append(Launch(t, warp, pc, *self._execute(plan)))
            if self._ended == len(self.launches) - 1:
                self._take()

    def _execute(self, plan: list[int]) -> tuple[int, int, Work | None, Cause]:
        """Words to load, cycles after them, steps, and the error, if any."""
        address, iterations, *scalars = plan
        words = 0
        if address != KEEP:
            words, self._loaded = load(self._scratch, 16 * address, self.fabric, self.values)
        cycles = loading(self.fabric) if words else 0
        if self._loaded is None:
            return words, cycles, None, Cause.BITSTREAM
        cycles += patching(self.fabric, len(self._loaded.configuration.patches))
        wrong, work, arrays = self._done(self._loaded, scalars, iterations)
        if work is None:
            return words, cycles + wrong, None, Cause.OPERAND
        cause = Cause.GRID_RANGE if work.failed else Cause.NONE
        return words, cycles + checking(self.fabric, arrays), work, cause

    def _done(self, loaded: Loaded, scalars: list[int], iterations: int) -> tuple[int, Work | None, int]:
        """The number of the first invalid array, or the work of the launch; and the number of arrays."""
        key = loaded.code.run, tuple(scalars[p.scalar] for p in loaded.configuration.patches), iterations
        if not self.values and key in self._known:
            # Offsets change where other engines disturb a launch.
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

    @property
    def latest(self) -> OperationWork | None:
        """The work of the latest operation to issue; None if it fails."""
        if self.fault is not None:
            return None
        launch = self.launches[-1]
        steps = launch.work.steps if launch.work is not None else 0
        return OperationWork(steps, steps, launch.words + launch.lead)

    def _take(self) -> None:
        """Take the next launch."""
        launch = self.launches[self._ended]
        before = self.completions[self._ended - 1] if self._ended else -1
        launch.start = self.starts[self._ended] = max(launch.issued + TIMING.enqueue, before + 1)
        if launch.work is not None:
            launch.total = np.concatenate([launch.total, np.cumsum(launch.work.duration)])
            launch.begins = np.zeros_like(launch.work.duration)
        self.due = launch.start + launch.words + launch.lead + int(launch.total[-1]) - 1

    def advance(self, last: int) -> bool:
        """Follow the launch in progress; the reads of other engines are known up to cycle `last`.

        Returns whether the launch ended: warps may have waited for that, and now cause reads that were not
        known.
        """
        launch = self.launches[self._ended]
        self._follow(launch, last)
        left = int(launch.total[-1] - launch.total[launch.step])
        if not launch.ready or left:
            self.due = max(last + 1, launch.cycle + left - 1)
            return False
        self.due = NEVER
        if launch.cause is not Cause.NONE:
            # Invalid arrays and indices are reported one cycle later.
            cycle = launch.cycle + (launch.cause is not Cause.BITSTREAM)
            self.fail(cycle, launch.cause, launch.warp, launch.pc)
            return True
        self.completions[self._ended] = launch.cycle
        self.busy += launch.cycle - launch.start
        steps = len(launch.begins)
        self.stall_bank += launch.cycle - int(launch.begins[0]) - steps if steps else 0
        self._ended += 1
        if self._ended < len(self.launches):
            self._take()
        return True

    def _follow(self, launch: Launch, last: int) -> None:
        """Follow one launch to the start of the first step that does not end by `last`."""
        if not launch.ready:
            requested = launch.start
            if launch.words:
                busy = Busy(self.storer, self.drains, {SCRATCHPAD}, requested, last)
                requested = busy.free(SCRATCHPAD, requested + 1, launch.words)
            launch.cycle = requested + launch.lead
            launch.ready = requested <= last
        if launch.ready and launch.work is not None and launch.cycle <= last:
            busy = Busy(self.storer, self.drains, launch.work.resources, launch.cycle, last)
            _steps(launch, launch.work, busy, last)

    def outputs(self, last: int) -> list[Output]:
        """All stores to the output buffer in cycles up to `last`, which are all known."""
        found: list[Output] = []
        for number, launch in enumerate(self.launches):
            work = launch.work
            if work is None or launch.start == NEVER:
                continue
            if number == self._ended:  # stopped by an error
                self._follow(launch, last)
                found += self._begun(launch, work, last)
            known = np.flatnonzero(work.stores & (work.step < launch.step))
            found += work.outputs(known, launch.begins[work.step[known]] + work.offset[known])
        return sorted(found)

    def _begun(self, launch: Launch, work: Work, last: int) -> Iterator[Output]:
        """The stores of a step that has begun and not ended."""
        if not launch.ready or launch.step == work.steps or launch.cycle > last:
            return
        busy = Busy(self.storer, self.drains, work.resources, launch.cycle, last)
        low, accesses = work.accesses(launch.step)
        for i, cycle in enumerate(play(accesses, launch.cycle, busy.at), low):
            if work.stores[i] and cycle <= last:
                yield from work.outputs(np.array([i]), np.array([cycle]))


def _steps(launch: Launch, work: Work, busy: Busy, last: int) -> None:
    """Follow steps that end by `last`; a stretch without reads of other engines is followed at once."""
    total = launch.total
    while launch.step < work.steps:
        step, cycle = launch.step, launch.cycle
        free = min(last + 1, busy.next(cycle)) - cycle
        behind = int(np.searchsorted(total, total[step] + free, "right")) - 1
        if behind > step:
            launch.begins[step:behind] = total[step:behind] + (cycle - total[step])
            launch.step, launch.cycle = behind, cycle + int(total[behind] - total[step])
            continue
        low, accesses = work.accesses(step)
        served = play(accesses, cycle, busy.at)
        end = max(served, default=cycle)
        if end > last:
            break
        work.offset[low : low + len(served)] = np.array(served, np.int64) - cycle
        launch.begins[step] = cycle
        launch.step, launch.cycle = step + 1, end + 1


def loading(fabric: Fabric) -> int:
    """Cycles from the last request of a word to the end of loading, or to the error of a header."""
    return 2 + fabric.pipelined


def patching(fabric: Fabric, patches: int) -> int:
    """Cycles for the patches, after loading, or after taking a launch that keeps its configuration.

    A pipelined fabric needs one more, between arrays and their checks.
    """
    return 1 + patches + fabric.pipelined


def checking(fabric: Fabric, arrays: int) -> int:
    """Cycles after the patches before the first step; a pipelined fabric needs one more for accesses."""
    return max(TIMING.grid_checks, arrays) + fabric.pipelined


def least_cycles(words: Sequence[int], fabric: Fabric, steps: int, *, loads: bool) -> int:
    """Cycles of an undisturbed launch of `steps` steps, until the next one can be taken.

    `words` is its configuration, which is loaded first if `loads`.
    """
    _, arrays, patches = split_sizes(words[SIZES])
    before = len(words) + loading(fabric) if loads else 0
    # It completes in the cycle after its last step, and the next one is taken in the cycle after that.
    return before + patching(fabric, patches) + checking(fabric, arrays) + steps + 1


def load(
    scratch: npt.NDArray[np.uint8], address: int, fabric: Fabric, values: bool
) -> tuple[int, Loaded | None]:
    """Number of words that the CGRA requests from an address in the scratchpad, and the configuration there.

    The configuration is what the scratchpad holds `loading` cycles later; None if it is invalid. `values` is
    passed to `code_of`.
    """
    for at, right in enumerate(_header(scratch, address, fabric)):
        if not right:
            return at + 1, None
    size = _word(scratch, address + 8)
    try:
        return size, loaded(scratch[address : address + 4 * size].tobytes(), fabric, values)
    except InputError:
        return size, None


def _word(scratch: npt.NDArray[np.uint8], address: int) -> int:
    return int.from_bytes(scratch[address : address + 4].tobytes(), "little")


def _header(scratch: npt.NDArray[np.uint8], address: int, fabric: Fabric) -> Iterator[bool]:
    """Whether each header word is valid, in the order in which they are checked."""
    yield address < len(scratch) and _word(scratch, address) == MAGIC << 16 | VERSION << 8
    yield _word(scratch, address + 4) == fabric.hash
    size = _word(scratch, address + 8)
    yield size > HEADER_WORDS and address + 4 * size <= len(scratch)
    ii, arrays, patches = split_sizes(_word(scratch, address + 4 * SIZES))
    yield 1 <= ii <= fabric.contexts and arrays <= ARRAYS and patches <= PATCHES
    yield 1 <= _word(scratch, address + 16) <= ii * fabric.stages
