"""The data of a run's report: plain data that adapters make and `render` draws."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

from cosim.advice import Advice
from cosim.compare import Divergence
from cosim.job import Job, Outcome
from cosim.session.onnxruntime_comparison import ModelComparison
from cosim.session.results import Bounded, Check
from cosim.settings import MemorySettings
from hw.config import MachineConfig
from sw.cgra.bounds import MII
from sw.cgra.mapping import Mapping as GridMapping
from sw.tiling.plan import TilingPlan
from sw.tiling.problem import TilingProblem


@dataclass(frozen=True)
class OperatorRow(Bounded):
    """One operator of a run.

    `start` and `end` (exclusive) are cycles on the axis of the whole run, on which the runs of a report
    follow each other; operators may overlap. `cycles`, `causes` and `utilization` are those of all tables.
    `macs` are multiply-accumulates of the array, `operations` those of the CGRA. `bounds` are lower bounds of
    cycles by resource (a key of `RESOURCES`), `moved` bytes by memory port. `nodes` are the model's nodes
    that it implements. `plan` explains its tiling in a sentence. `fill` are the bytes used of on-chip
    memories (a key of `MEMORIES`).
    """

    name: str
    op: str
    start: int
    end: int
    shape: str = ""
    where: str = "array"
    macs: int = 0
    operations: int = 0
    bounds: Mapping[str, int] = field(default_factory=dict)
    moved: Mapping[str, int] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()
    plan: str = ""
    ok: bool = True
    cycles: int = 0
    causes: Mapping[str, int] = field(default_factory=dict)
    utilization: float = 0.0
    fill: Mapping[str, int] = field(default_factory=dict)

    @property
    def span(self) -> int:
        """Cycles from its first to its last."""
        return max(0, self.end - self.start)


@dataclass(frozen=True)
class ProgramTimeline:
    """One job on model and RTL.

    The operator (an index) of an instruction is `owners[warp, pc]`, else `owner`; None if it has none.
    """

    name: str
    job: Job
    predicted: Outcome
    observed: Outcome
    divergence: Divergence | None = None
    owner: int | None = None
    owners: Mapping[tuple[int, int], int] = field(default_factory=dict)

    @property
    def cycles(self) -> int:
        """The length of its section of the axis, which fits both prediction and observation."""
        last = [o.events[-1].cycle + 1 for o in (self.predicted, self.observed) if o.events]
        return max(self.predicted.cycles, self.observed.cycles, *last, 1)


@dataclass(frozen=True)
class Kernel:
    """A configuration of the CGRA: its mapping, the MII and what limits it."""

    name: str
    mapping: GridMapping
    bound: MII
    proved_minimal: bool = False
    verified: bool = True
    used_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tiling:
    """How a product is tiled. `predicted` and `stays` are passed to `heald.report.tiling_plot.picture`."""

    title: str
    problem: TilingProblem
    plan: TilingPlan
    predicted: tuple[float, float] | None = None
    stays: Mapping[str, str] | None = None
    operators: tuple[str, ...] = ()


@dataclass(frozen=True)
class TensorRow:
    """A tensor in memory: byte address and size, and the first and last operator (indices) that need it."""

    name: str
    address: int
    size: int
    first: int
    last: int
    kind: str = "tensor"
    element: str = ""


@dataclass(frozen=True)
class RunReport:
    """A whole run. `facts` are further lines for users, by name (simulator, seconds, seed).

    `compared` is the comparison with onnxruntime, if any; `advice` says what bounds the run. `fill` are the
    bytes used of on-chip memories. `energy` is in pJ by component (from `energy_source`).
    """

    title: str
    config: MachineConfig
    settings: MemorySettings
    checks: tuple[Check, ...]
    operators: tuple[OperatorRow, ...]
    runs: tuple[ProgramTimeline, ...]
    kernels: tuple[Kernel, ...] = ()
    tilings: tuple[Tiling, ...] = ()
    tensors: tuple[TensorRow, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    compared: ModelComparison | None = None
    advice: Advice | None = None
    fill: Mapping[str, int] = field(default_factory=dict)
    energy: Mapping[str, float] = field(default_factory=dict)
    energy_source: str = ""

    @property
    def verified(self) -> bool:
        """Whether all comparisons hold, and there were any."""
        return bool(self.checks) and all(check.ok for check in self.checks)

    @property
    def starts(self) -> tuple[int, ...]:
        """The cycle on the axis at which each run begins, then the end of the last."""
        return (0, *itertools.accumulate(run.cycles for run in self.runs))

    @property
    def cycles(self) -> int:
        """Length of the axis in cycles."""
        return self.starts[-1]
