"""Plans a product or convolution for a machine: the blocking that `heald run` uses, and its cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cosim.refine import Candidate, part_of, refine
from cosim.settings import MemorySettings
from hw.config import MachineConfig
from sw.compile.array_tiles import LoweredProduct
from sw.compile.stages import Compiled
from sw.compiler import compile_network
from sw.convolution import Convolution
from sw.graph.problems import network_of
from sw.problem import Product
from sw.tiling.blocking import Blocking, Resident
from sw.tiling.estimate import Estimate, Ports, refined
from sw.tiling.hardware import described, tiling_problem
from sw.tiling.plan import TilingPlan
from sw.tiling.problem import TilingProblem


@dataclass(frozen=True)
class MachinePlan:
    """A plan for a machine.

    `plan` describes the blocking with the names and the cost of docs/tiling.md. `estimate` is the prediction
    for the machine. `exact` holds the candidates that the cycle model evaluated, with the chosen one first
    (empty without refinement).
    """

    config: MachineConfig
    tiling: TilingProblem
    plan: TilingPlan
    blocking: Blocking
    estimate: Estimate
    exact: tuple[Candidate, ...] = ()

    @property
    def cycles(self) -> float:
        """Cycles on the machine: exact if refined, else estimated."""
        return self.exact[0].cycles if self.exact else self.estimate.cycles

    @property
    def utilization(self) -> float:
        """Fraction of the array's peak that the machine reaches: exact if refined, else estimated."""
        return self.estimate.ideal / self.cycles

    @property
    def stays(self) -> dict[str, str]:
        """Whether all, a piece or nothing of A and of B stays in its buffer while the other one streams."""
        p, t, b = self.tiling, self.plan, self.blocking
        found = {}
        for name, resident, outermost, size, step in (
            ("A", b.resident_a, b.m_outermost, p.m, t.partition_m),
            ("B", b.resident_b, not b.m_outermost, p.n, t.partition_n),
        ):
            kept = resident is Resident.DEPTH or (not t.split_k and outermost)
            whole = resident is Resident.WHOLE or (kept and step >= size)
            found[name] = "all" if whole else "piece" if kept else ""
        return found

    def summary(self) -> dict[str, Any]:
        """The plan in the JSON of a run: the outputs of docs/tiling.md, and the machine's estimate."""
        plan = self.plan.as_dict()
        page = {f"page_{name}": plan.pop(name) for name in ("cycles", "utilization")}
        estimated = {"estimated_cycles": round(self.cycles), "estimated_utilization": self.utilization}
        return plan | page | estimated

    def as_dict(self) -> dict[str, Any]:
        """The outputs of docs/tiling.md with the machine's estimate.

        `utilization` is the machine's. `cycles` is the cost by array and loads or, if refined, the machine's
        exact cycles.
        """
        e = self.estimate
        values = self.plan.as_dict() | {
            "utilization": self.utilization,
            "page_cycles": self.plan.cycles,
            "page_utilization": self.plan.utilization,
            "predicted_cycles": self.cycles if self.exact else round(e.cycles),
            "predicted_utilization": self.utilization,
            "parts": {name: getattr(e, name) for name in ("ideal", "ragged", "fill", "drain", "waits")},
            "ports": {"load_a": e.loads_a, "load_b": e.loads_b, "store": e.stores},
            "resident_a": self.blocking.resident_a.value,
            "resident_b": self.blocking.resident_b.value,
            "hw": self.config.hash,
        }
        if self.blocking.out_rows:
            values |= {"out_rows": self.blocking.out_rows, "out_cols": self.blocking.out_cols}
        if self.exact:
            values["cycles"] = self.exact[0].cycles
            values["candidates"] = [
                {
                    "cycles": c.cycles,
                    "estimated_cycles": round(c.estimate.cycles),
                    **{
                        name: getattr(c.blocking, name)
                        for name in ("partition_m", "partition_n", "partition_k", "tile_m", "tile_n")
                    },
                    "m_outermost": c.blocking.m_outermost,
                }
                for c in self.exact
            ]
        return values


def plan_for_machine(
    problem: Product | Convolution,
    config: MachineConfig,
    settings: MemorySettings,
    candidates: int = 0,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> MachinePlan:
    """The plan of a problem on a machine with these memories, refined with `candidates` candidates.

    Raises `InputError` for what the machine cannot take.
    """
    exact: tuple[Candidate, ...] = ()
    if candidates:
        exact = tuple(refine(network_of(problem), config, settings, candidates, progress=progress))
        part = exact[0].part
    else:
        (made,) = compile_network(network_of(problem), settings.behind(config), bandwidth=settings.bandwidth)
        assert isinstance(made, Compiled)
        part = part_of(made)
    return plan_of(part, settings.bandwidth, exact)


def plan_of(
    part: LoweredProduct, bandwidth: Mapping[str, int], exact: tuple[Candidate, ...] = ()
) -> MachinePlan:
    """The plan of a product, with ports of this many bytes per cycle."""
    extent, config, blocking = part.problem.extent, part.nest.config, part.nest.blocking
    estimate = refined(Ports(extent, config, bandwidth), blocking)
    if exact:
        # The estimate cannot know how long the array waits, so the difference is counted as waiting.
        cycles = exact[0].cycles
        estimate = replace(estimate, cycles=cycles, waits=estimate.waits + cycles - estimate.cycles)
    tiling = tiling_problem(extent, config, bandwidth, blocking)
    plan = described(tiling, config, extent, blocking, estimate)
    return MachinePlan(config, tiling, plan, blocking, estimate, exact)
