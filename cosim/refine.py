"""Refinement of a plan: the best few blockings by estimate, through the exact cycle model."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from cosim.job import Job, Window
from cosim.models.cycle import predict
from cosim.settings import MemorySettings
from hw.config import MachineConfig
from hw.errors import InputError
from sw.arrangement import extent_of
from sw.convolution import Convolution
from sw.kernel import Kernel
from sw.lowering import lower
from sw.problem import Product
from sw.tiling.estimate import Estimate, Ports, refined
from sw.tiling.machine import best


@dataclass(frozen=True)
class Candidate:
    """A program, what was estimated of its blocking, and the cycles that it takes."""

    kernel: Kernel
    estimate: Estimate
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
    # Refuses what does not fit, in the words that name the problem.
    plain = lower(problem, config, name=name, bandwidth=settings.bandwidth)
    found = []
    choices = best(extent_of(problem), config, settings.bandwidth, count)
    for done, choice in enumerate(choices):
        progress(done, len(choices))
        with contextlib.suppress(InputError):  # more registers than the machine has
            kernel = lower(problem, config, name=name, blocking=choice.blocking)
            found.append(Candidate(kernel, choice.estimate, exact_cycles(kernel, settings)))
    if not found:
        rate = {port: settings.bandwidth[port] for port in ("load_a", "load_b", "store")}
        estimate = refined(Ports(plain.extent, config, rate), plain.blocking)
        found.append(Candidate(plain, estimate, exact_cycles(plain, settings)))
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
