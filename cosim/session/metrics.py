"""Metrics of machines and of models on them; cycles come from the exact cycle model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from cosim.energy import Table, moved, spent
from cosim.session.operators import ModelProgramPrediction, OperatorResult, Prediction
from hw.config import PORTS

MINIMIZE, MAXIMIZE = "minimize", "maximize"


#: Number formats: all digits; with a prefix such as k or M; in percent.
WHOLE, PREFIXED, PERCENT = "whole", "prefixed", "percent"


class Metric(NamedTuple):
    """The name of a metric, what it measures, and whether more or less is better by default.

    A report shows a value times `scale`, with `unit`, in the given number format.
    """

    label: str
    meaning: str
    direction: str = MINIMIZE
    unit: str = ""
    scale: float = 1
    style: str = WHOLE


METRICS: Mapping[str, Metric] = {
    "cycles": Metric("cycles", "cycles of all models, one inference each, by the exact cycle model"),
    "seconds_per_inference": Metric("time per inference", "cycles by the clock", unit="s", style=PREFIXED),
    "bytes_moved": Metric("bytes moved", "bytes through all memory ports", unit="B", style=PREFIXED),
    "energy_pj": Metric(
        "energy",
        "counted accesses and multiply-accumulates times the energy table",
        unit="J",
        scale=1e-12,
        style=PREFIXED,
    ),
    "utilization": Metric(
        "use of the array", "share of the array's peak that is used", MAXIMIZE, style=PERCENT
    ),
    "host_operators": Metric("operators on the host", "operators of all models that the host executes"),
    "luts": Metric("LUTs", "lookup tables"),
    "ffs": Metric("registers", "flip-flops"),
    "brams": Metric("block RAMs", "block RAMs"),
    "dsps": Metric("multipliers", "multipliers"),
    "fmax_mhz": Metric("clock", "clock", MAXIMIZE, "MHz"),
}
#: Metrics that need a clock frequency.
CLOCKED = ("fmax_mhz", "seconds_per_inference")


@dataclass(frozen=True)
class OperatorMetrics:
    """One operator of a model on a machine; operators may overlap.

    `start` is the cycle of its first operation, `end` the cycle after its last completion. `cycles` count
    from the last completion of earlier operators to its own, so they add up to the run's. `bounds` are lower
    bounds of cycles by resource (`gemm`, `cgra`, ports). `moved` has bytes by port, each element of a tensor
    counted once. `where` is `machine`, `host` or `edge`.
    """

    name: str
    op: str
    where: str
    start: int
    end: int
    cycles: int
    macs: int
    bounds: Mapping[str, int]
    moved: Mapping[str, int]


@dataclass(frozen=True)
class ModelMetrics:
    """One model on a machine, by the exact cycle model.

    `bytes_moved` are bytes through each memory port (words times the port's width). `macs` are the
    multiply-accumulates that the model needs. `instructions` are those executed by all warps. `energy` is in
    pJ by component.
    """

    name: str
    cycles: int
    macs: int
    instructions: int
    programs: int
    bytes_moved: Mapping[str, int]
    energy: Mapping[str, float]
    operators: tuple[OperatorMetrics, ...]


def model_from(values: Mapping[str, Any]) -> ModelMetrics:
    """Metrics of a model from their JSON."""
    return ModelMetrics(**{**values, "operators": tuple(OperatorMetrics(**o) for o in values["operators"])})


def model_metrics(name: str, made: Prediction, table: Table) -> ModelMetrics:
    """Metrics of a model from a prediction."""
    passed, energies = Counter(dict.fromkeys(PORTS, 0)), Counter[str]()
    instructions = 0
    for run in made.programs:
        assert isinstance(run, ModelProgramPrediction)
        passed.update(moved(made.config, run.predicted))
        energies.update(spent(table, run.program, run.predicted))
        instructions += sum(v for n, v in run.predicted.counters.items() if n.endswith("_INSTRUCTIONS"))
    operators = tuple(_operator(o) for o in made.operators if isinstance(o, OperatorResult))
    counts = (made.cycles, sum(o.macs for o in operators), instructions, len(made.programs))
    return ModelMetrics(name, *counts, dict(passed), dict(energies), operators)


def _operator(o: OperatorResult) -> OperatorMetrics:
    moved = dict(o.facts.moved) if o.facts is not None else {}
    return OperatorMetrics(o.name, o.op, o.where, o.start, o.end, o.cycles, o.macs, dict(o.bounds), moved)
