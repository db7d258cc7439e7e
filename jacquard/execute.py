"""Runs products and convolutions on model and RTL: compile, predict, simulate, compare, check."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cosim.compare import compare
from cosim.job import Job, Outcome, Region, Simulator, Window
from cosim.models.cycle import predict
from cosim.refine import refine
from cosim.settings import MemorySettings
from hw.assembly import listing
from hw.config import MachineConfig
from jacquard.checking import verdict_on
from jacquard.results import Report, Result
from jacquard.tiling import plan_of_kernel
from sw.check import Verdict
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
class TaskResult(Result):
    """What became of one product or convolution."""

    task: Task
    kernel: Kernel
    value: np.ndarray
    bandwidth: Mapping[str, int]
    verdict: Verdict

    @property
    def checked(self) -> Verdict:
        """What the checker says of the warps."""
        return self.verdict

    @property
    def name(self) -> str:
        """The node of the model."""
        return self.task.name

    @property
    def op(self) -> str:
        """The operator of the model."""
        return self.task.op

    @property
    def output(self) -> str:
        """The tensor of the model."""
        return self.task.output

    @property
    def shape(self) -> str:
        """M x K x N and more."""
        return str(self.task.problem)

    @property
    def macs(self) -> int:
        """Multiply-accumulates."""
        return self.kernel.macs

    @property
    def bounds(self) -> Mapping[str, int]:
        """Least cycles by what limits them."""
        return self.kernel.bounds(self.bandwidth)

    @property
    def values(self) -> Mapping[str, np.ndarray]:
        """The result, as the model shapes it."""
        return {self.task.output: self.value}

    @property
    def plan(self) -> dict[str, Any]:
        """The blocking that the program was made from, with what was predicted of it."""
        made = plan_of_kernel(self.kernel, self.bandwidth)
        plan = made.plan.as_dict()
        page = {f"page_{name}": plan.pop(name) for name in ("cycles", "utilization")}
        return (
            plan | page | {"estimated_cycles": round(made.cycles), "estimated_utilization": made.utilization}
        )


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


def check_kernels(kernels: Sequence[Kernel]) -> list[Verdict]:
    """What the checker says of the warps of each kernel; one that occurs again is checked once."""
    made: dict[int, Verdict] = {}
    for kernel in kernels:
        if id(kernel) not in made:
            texts = {warp: listing(words) for warp, words in kernel.programs.items()}
            made[id(kernel)] = verdict_on(kernel.source, texts, kernel.config)
    return [made[id(kernel)] for kernel in kernels]


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
    verdicts = check_kernels(kernels)
    compiled = time.perf_counter()
    predicted = [predict(config, job) for job in jobs]
    model_seconds = time.perf_counter() - compiled
    total = sum(p.cycles for p in predicted)
    progress(f"model: {_count(len(jobs), 'product')}, {total:,} cycles predicted in {model_seconds:.2f} s")
    progress(f"simulator {sim}: building the machine {config.name!r}, or taking it from the cache")
    machine = simulator()
    progress(f"simulator {sim}: ready after {machine.build_seconds:.1f} s, running {total:,} cycles")
    observed = machine.run(jobs)
    runs = zip(jobs, predicted, observed, strict=True)
    results: list[Result] = [
        _result(task, kernel, verdict, run, settings.bandwidth)
        for task, kernel, verdict, run in zip(tasks, kernels, verdicts, runs, strict=True)
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
    task: Task,
    kernel: Kernel,
    verdict: Verdict,
    run: tuple[Job, Outcome, Outcome],
    bandwidth: Mapping[str, int],
) -> TaskResult:
    job, predicted, observed = run
    value = kernel.extract(observed.outputs[0])
    correct = observed.error is None and np.array_equal(value, task.problem.reference(task.a, task.b))
    divergence = compare(kernel.config, job, predicted, observed)
    shaped = value if task.shape is None else value.reshape(task.shape)
    return TaskResult(
        kernel.config, job, predicted, observed, correct, divergence, task, kernel, shaped, bandwidth, verdict
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
