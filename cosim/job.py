"""Jobs: the inputs and outputs of a simulation, the same for the cycle model and every backend."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import numpy as np

from cosim.settings import MemorySettings
from hw.config import MachineConfig
from hw.isa import Cause
from sw.layout import MEMORY_BYTES, PAGE, round_up


class EventKind(enum.IntEnum):
    """Kind of an event: instruction issued (void: predicate false), operation completed, signal fired."""

    ISSUE = 0
    VOID = 1
    COMPLETE = 2
    SIGNAL = 3


class Event(NamedTuple):
    """One event; `pc` is that of the instruction that issued, completed or fired."""

    cycle: int
    warp: int
    kind: EventKind
    pc: int


class Output(NamedTuple):
    """A store of a PE to the output buffer: byte address, and the word or byte stored (unsigned).

    `cycle` is the cycle in which the store was served.
    """

    cycle: int
    pe: int
    address: int
    value: int


class MachineError(NamedTuple):
    """Why a machine stopped: the cause, and the warp and pc of the instruction."""

    cause: Cause
    warp: int
    pc: int

    @property
    def text(self) -> str:
        """The error as a message for users."""
        return f"{self.cause.name.lower()}, warp {self.warp}, pc {self.pc}"


class Window(NamedTuple):
    """A range of memory that the host opens: first and last byte, and the permitted accesses."""

    first: int
    last: int
    read: bool = True
    write: bool = True


class Region(NamedTuple):
    """A range of memory bytes that a run returns."""

    address: int
    size: int


@dataclass(frozen=True)
class Job:
    """One run of the machine.

    `programs` maps a warp to its instruction words. `memory` holds (address, uint8 array) pairs; the rest of
    memory is 0. `outputs` are the regions to return. Addresses count from the base in `settings`, like those
    in programs; `placed` gives bus addresses. `check_word` replaces the correct CRC-32 of each warp's
    `loaded` words. `predicted` is the cycle model's outcome, for waves.
    """

    programs: dict[int, list[int]]
    settings: MemorySettings
    windows: tuple[Window, ...]
    memory: tuple[tuple[int, np.ndarray], ...] = ()
    outputs: tuple[Region, ...] = ()
    watchdog: int = 1 << 20
    check_word: int | None = None
    name: str = "job"
    predicted: Outcome | None = field(default=None, compare=False, repr=False)

    def placed(self) -> Job:
        """The same job with memory, windows and regions at their addresses on the bus."""
        base = self.settings.base
        return replace(
            self,
            memory=tuple((base + address, data) for address, data in self.memory),
            windows=tuple(w._replace(first=base + w.first, last=base + w.last) for w in self.windows),
            outputs=tuple(r._replace(address=base + r.address) for r in self.outputs),
        )

    @property
    def end(self) -> int:
        """End of the memory that the run can touch, in whole pages: behind all windows and regions."""
        places = [*(w.last + 1 for w in self.windows), *(r.address + r.size for r in self.outputs)]
        return min(MEMORY_BYTES, round_up(max(places, default=0), PAGE))


def loaded(config: MachineConfig, words: list[int]) -> list[int]:
    """The words to load into a warp's memory: its program, and an invalid instruction if there is room.

    Without it, a program that runs past its end would continue into the remains of an earlier one.
    """
    return [*words, 0] if len(words) < config.imem_words else list(words)


class OperationWork(NamedTuple):
    """Cycles that an operation of array or CGRA takes if nothing holds it back.

    For `busy` cycles the array multiplies or the CGRA executes steps of its loop; a full array would need
    `full` cycles. During `setup` the CGRA loads and checks the configuration.
    """

    busy: int
    full: int
    setup: int = 0


@dataclass
class Outcome:
    """What happened in a run, predicted or observed.

    `counters` maps register names of `hw.csr` (`WARP0_INSTRUCTIONS`, `GEMM_BUSY`, ...) to values. `outputs`
    are the requested regions as uint8 arrays (empty from the model). `stored` holds all stores of the CGRA,
    by cycle and PE. `work`, from the model only, is the work of each engine operation of a warp in issue
    order; it is None for engines other than array and CGRA.
    """

    events: list[Event]
    cycles: int
    error: MachineError | None = None
    counters: dict[str, int] = field(default_factory=dict)
    outputs: list[np.ndarray] = field(default_factory=list)
    stored: list[Output] = field(default_factory=list)
    seconds: float = 0.0
    work: Mapping[int, Sequence[OperationWork | None]] = field(default_factory=dict, compare=False)


class Simulator(Protocol):
    """Runs jobs, one after the other, on the RTL of one machine."""

    config: MachineConfig
    build_seconds: float

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Run the jobs in order. Raises `hw.errors.InputError` if a tool is missing."""
