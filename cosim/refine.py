"""Refinement of a plan: the best few blockings by estimate, through the exact cycle model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cosim.job import Job, Window
from cosim.model import predict
from cosim.settings import MemorySettings
from hw.config import MachineConfig
from sw.arrangement import extent_of
from sw.convolution import Convolution
from sw.kernel import Kernel
from sw.lowering import lower
from sw.problem import Product
from sw.tiling.machine import Choice, best


@dataclass(frozen=True)
class Candidate:
    """A blocking, what was estimated of it, its program, and the cycles that this takes."""

    choice: Choice
    kernel: Kernel
    cycles: int


def refine(
    problem: Product | Convolution,
    config: MachineConfig,
    settings: MemorySettings,
    count: int,
    *,
    name: str = "matmul",
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> list[Candidate]:
    """The `count` best blockings by estimate with their exact cycles, quickest first.

    Ties keep the order of the estimates. `progress` is told how many of how many are done. Raises
    `InputError` for problems that the machine cannot take.
    """
    config = settings.behind(config)
    # Refuses what does not fit memory, and names the problem in what else is refused.
    lower(problem, config, name=name, bandwidth=settings.bandwidth)
    found = []
    choices = best(extent_of(problem), config, settings.bandwidth, count)
    for done, choice in enumerate(choices):
        progress(done, len(choices))
        kernel = lower(problem, config, name=name, blocking=choice.blocking)
        found.append(Candidate(choice, kernel, exact_cycles(kernel, settings)))
    return sorted(found, key=lambda c: c.cycles)


def exact_cycles(kernel: Kernel, settings: MemorySettings) -> int:
    """The cycles that the model predicts for a kernel on such memories."""
    job = Job(
        programs=kernel.programs,
        settings=settings,
        windows=tuple(Window(*w) for w in kernel.windows),
        memory=(),
        outputs=(),
        name=kernel.name,
    )
    return predict(kernel.config, job).cycles
