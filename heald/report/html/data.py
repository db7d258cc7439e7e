"""What a report of a run shows: plain data, which adapters make and `render` draws."""

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

    `start` and `end` are cycles of the axis of the whole run (the runs of a report follow each other), `end`
    excluded; operators may overlap. `cycles`, `causes` and `utilization` are those of all tables.
    `macs` are multiply-accumulates on the array, `operations` those of the CGRA. `bounds` are lower bounds of
    cycles by resource (a key of `RESOURCES`), `moved` bytes by memory port. `nodes` are the nodes of the
    model that it stands for, `plan` says in a sentence why it is cut as it is. `fill` are the bytes that it
    uses of memories on the chip (a key of `MEMORIES`).
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

    The operator (an index) of an instruction is `owners[warp, pc]`, else `owner`; None where it has none.
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
        """The cycles that it takes on the axis of the whole run, in which prediction and observation fit."""
        last = [o.events[-1].cycle + 1 for o in (self.predicted, self.observed) if o.events]
        return max(self.predicted.cycles, self.observed.cycles, *last, 1)


@dataclass(frozen=True)
class Kernel:
    """A configuration of the grid: its mapping, the least II and what limits it."""

    name: str
    mapping: GridMapping
    bound: MII
    proved_minimal: bool = False
    verified: bool = True
    used_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tiling:
    """How a product is cut. `predicted` and `stays` as `heald.report.tiling_plot.picture` takes them."""

    title: str
    problem: TilingProblem
    plan: TilingPlan
    predicted: tuple[float, float] | None = None
    stays: Mapping[str, str] | None = None
    operators: tuple[str, ...] = ()


@dataclass(frozen=True)
class TensorRow:
    """A tensor in memory: byte address and size, the operators (indices) from which to which it is needed."""

    name: str
    address: int
    size: int
    first: int
    last: int
    kind: str = "tensor"
    element: str = ""


@dataclass(frozen=True)
class RunReport:
    """A whole run. `facts` are further lines for people, by name (simulator, seconds, seed).

    `compared` is the comparison with onnxruntime, if there is one, `advice` what bounds the run. `fill` are
    the bytes that are used of memories on the chip, `energy` is in pJ by component (`energy_source`).
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
        """Whether all that was compared holds, and anything was."""
        return bool(self.checks) and all(check.ok for check in self.checks)

    @property
    def starts(self) -> tuple[int, ...]:
        """The cycle of the axis at which each run begins, then the end of the last."""
        return (0, *itertools.accumulate(run.cycles for run in self.runs))

    @property
    def cycles(self) -> int:
        """Cycles of the axis."""
        return self.starts[-1]
