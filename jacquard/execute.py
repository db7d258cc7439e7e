"""Runs products and convolutions on model and RTL: compile, predict, simulate, compare, check."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cosim.compare import Divergence, compare
from cosim.job import Job, Outcome, Region, Simulator, Window
from cosim.model import predict
from cosim.refine import refine
from cosim.settings import MemorySettings
from hw.config import MachineConfig
from hw.errors import InputError
from jacquard.tiling import plan_of_kernel
from sw.convolution import Convolution
from sw.kernel import Kernel
from sw.lowering import Observer, lower
from sw.problem import Product


@dataclass(frozen=True)
class Task:
    """One product or convolution to run: operands as stored, and how its result is called and shaped."""

    name: str
    problem: Product | Convolution
    a: np.ndarray
    b: np.ndarray
    op: str = "matmul"
    output: str = "C"
    shape: tuple[int, ...] | None = None


@dataclass
class Result:
    """What became of one task."""

    task: Task
    kernel: Kernel
    job: Job
    predicted: Outcome
    observed: Outcome
    value: np.ndarray
    correct: bool
    divergence: Divergence | None
    bandwidth: Mapping[str, int]

    @property
    def utilization(self) -> float:
        """Multiply-accumulates by what the array could have done in the cycles observed."""
        return _utilization(self.kernel.macs, self.observed.cycles, self.kernel.config)

    @property
    def bound(self) -> str:
        """What limits the product at best: `gemm` or a port."""
        bounds = self.kernel.bounds(self.bandwidth)
        return max(bounds, key=lambda name: bounds[name])

    @property
    def memory_words(self) -> dict[str, int]:
        """Words that each memory port transferred on the RTL, padding of rows included."""
        counters = self.observed.counters
        return {port: counters.get(f"{port.upper()}_WORDS", 0) for port in ("load_a", "load_b", "store")}

    @property
    def plan(self) -> dict[str, Any]:
        """The blocking that the program was made from, with what was predicted of it."""
        made = plan_of_kernel(self.kernel, self.bandwidth)
        plan = made.plan.as_dict()
        page = {f"page_{name}": plan.pop(name) for name in ("cycles", "utilization")}
        return (
            plan | page | {"estimated_cycles": round(made.cycles), "estimated_utilization": made.utilization}
        )

    def as_dict(self) -> dict[str, Any]:
        """One entry of `operators` in the JSON of a run."""
        error = self.observed.error
        return {
            "name": self.task.name,
            "op": self.task.op,
            "output": self.task.output,
            "shape": str(self.task.problem),
            "macs": self.kernel.macs,
            "cycles": self.observed.cycles,
            "model_cycles": self.predicted.cycles,
            "events": len(self.observed.events),
            "utilization": self.utilization,
            "bound_cycles": self.kernel.bound_cycles(self.bandwidth),
            "bound": self.bound,
            "plan": self.plan,
            "memory_words": self.memory_words,
            "correct": self.correct,
            "error": error and {"cause": error.cause.name.lower(), "warp": error.warp, "pc": error.pc},
            "instructions": {str(warp): count for warp, count in self.kernel.instructions.items()},
        }


@dataclass
class Report:
    """A whole run."""

    config: MachineConfig
    results: list[Result]
    build_seconds: float
    sim_seconds: float
    model_seconds: float
    compile_seconds: float = 0.0
    sim: str = ""
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def correct(self) -> bool:
        """Whether every result is NumPy's."""
        return all(r.correct for r in self.results)

    @property
    def cycles(self) -> int:
        """Cycles of all products on the RTL."""
        return sum(r.observed.cycles for r in self.results)

    @property
    def model_cycles(self) -> int:
        """Cycles of all products by the model."""
        return sum(r.predicted.cycles for r in self.results)

    @property
    def events(self) -> int:
        """Events that were compared."""
        return sum(len(r.observed.events) for r in self.results)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of all products."""
        return sum(r.kernel.macs for r in self.results)

    @property
    def utilization(self) -> float:
        """Multiply-accumulates by what the array could have done in all cycles."""
        return _utilization(self.macs, self.cycles, self.config)

    @property
    def first_divergence(self) -> tuple[Result, Divergence] | None:
        """The first product whose prediction differs, and how."""
        return next(((r, r.divergence) for r in self.results if r.divergence is not None), None)

    @property
    def proven(self) -> bool:
        """Whether results and cycles are all as they must be."""
        return self.correct and self.first_divergence is None

    def as_dict(self) -> dict[str, Any]:
        """The JSON of a run."""
        first = self.first_divergence
        warps = sorted({warp for r in self.results for warp in r.kernel.programs})
        return {
            "correct": self.correct,
            "cycles": self.cycles,
            "model_cycles": self.model_cycles,
            "events": self.events,
            "first_divergence": first and {"operator": first[0].task.name} | first[1].as_dict(),
            "macs": self.macs,
            "utilization": self.utilization,
            "bound_cycles": sum(r.kernel.bound_cycles(r.bandwidth) for r in self.results),
            "build_seconds": self.build_seconds,
            "sim_seconds": self.sim_seconds,
            "cycles_per_second": self.cycles / self.sim_seconds if self.sim_seconds else 0.0,
            "model_seconds": self.model_seconds,
            "instructions": {
                str(w): sum(r.kernel.instructions.get(w, 0) for r in self.results) for w in warps
            },
            "hw": self.config.hash,
            "operators": [r.as_dict() for r in self.results],
        }


def _utilization(macs: int, cycles: int, config: MachineConfig) -> float:
    return macs / (cycles * config.macs_per_cycle) if cycles else 0.0


def make_job(kernel: Kernel, a: np.ndarray, b: np.ndarray, settings: MemorySettings, name: str = "") -> Job:
    """The job that runs a kernel on operands as stored; raises `InputError` for arrays that do not fit."""
    return Job(
        programs=kernel.programs,
        settings=settings,
        windows=tuple(Window(*w) for w in kernel.windows),
        memory=kernel.memory(a, b),
        outputs=(Region(*kernel.output),),
        name=name or kernel.name,
    )


def compile_tasks(
    tasks: Sequence[Task],
    config: MachineConfig,
    settings: MemorySettings,
    candidates: int = 0,
    after: Observer | None = None,
) -> list[Kernel]:
    """A kernel per task; equal products are compiled once.

    With `candidates`, the best of so many blockings by the exact cycle model, else the best by estimate.
    `after` sees the tile program of each kernel after every step of its lowering.
    """
    config = settings.behind(config)
    made: dict[Product | Convolution, Kernel] = {}
    for task in tasks:
        if task.problem not in made:
            if candidates:
                found = refine(task.problem, config, settings, candidates, name=task.name)
                made[task.problem] = found[0].kernel
            else:
                made[task.problem] = lower(task.problem, config, name=task.name, bandwidth=settings.bandwidth)
            if after is not None:
                chosen = made[task.problem].blocking
                lower(task.problem, config, name=task.name, blocking=chosen, after=after)
    return [made[task.problem] for task in tasks]


def execute(
    tasks: Sequence[Task],
    config: MachineConfig,
    settings: MemorySettings,
    simulator: Callable[[], Simulator],
    *,
    sim: str = "",
    candidates: int = 0,
    after: Observer | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Report:
    """Run the tasks as jobs of one simulation and compare everything.

    `candidates` and `after` as in `compile_tasks`. `simulator` is called once all is compiled and predicted.
    Raises `InputError` for products that the machine cannot take, and missing tools.
    """
    begin = time.perf_counter()
    kernels = compile_tasks(tasks, config, settings, candidates, after)
    jobs = [make_job(k, t.a, t.b, settings, t.name) for k, t in zip(kernels, tasks, strict=True)]
    compiled = time.perf_counter()
    predicted = [predict(config, job) for job in jobs]
    model_seconds = time.perf_counter() - compiled
    total = sum(p.cycles for p in predicted)
    progress(f"model: {_count(len(jobs), 'product')}, {total:,} cycles predicted in {model_seconds:.2f} s")
    progress(f"simulator {sim}: building the machine {config.name!r}, or taking it from the cache")
    machine = simulator()
    progress(f"simulator {sim}: ready after {machine.build_seconds:.1f} s, running {total:,} cycles")
    observed = machine.run(jobs)
    results = [
        _result(*parts, settings.bandwidth)
        for parts in zip(tasks, kernels, jobs, predicted, observed, strict=True)
    ]
    return Report(
        config,
        results,
        build_seconds=machine.build_seconds,
        sim_seconds=sum(o.seconds for o in observed),
        model_seconds=model_seconds,
        compile_seconds=compiled - begin,
        sim=sim,
    )


def _result(
    task: Task, kernel: Kernel, job: Job, predicted: Outcome, observed: Outcome, bandwidth: Mapping[str, int]
) -> Result:
    value = kernel.extract(observed.outputs[0])
    correct = observed.error is None and np.array_equal(value, task.problem.reference(task.a, task.b))
    divergence = compare(kernel.config, job, predicted, observed)
    shaped = value if task.shape is None else value.reshape(task.shape)
    return Result(task, kernel, job, predicted, observed, shaped, correct, divergence, bandwidth)


def outputs(report: Report) -> dict[str, np.ndarray]:
    """Results by the names of the model's tensors; raises `InputError` when two have one name."""
    arrays: dict[str, np.ndarray] = {}
    for result in report.results:
        if result.task.output in arrays:
            raise InputError(f"two results are called {result.task.output!r}")
        arrays[result.task.output] = result.value
    return arrays


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
