"""Refines a plan: runs the best few blockings by estimate through the exact cycle model."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cosim.jobs import exact_cycles
from cosim.settings import MemorySettings
from hw.config import MachineConfig
from hw.errors import InputError
from sw.compile.array_tiles import LoweredProduct
from sw.compile.legal import stores_sums
from sw.compile.stages import Compiled
from sw.compiler import compile_network
from sw.graph.network import Network, Operator
from sw.tiling.blocking import Blocking
from sw.tiling.estimate import Estimate, Ports, refined
from sw.tiling.machine import best


@dataclass(frozen=True)
class Candidate:
    """A program of one product, what was estimated of its blocking, and the cycles that it takes."""

    program: Compiled
    part: LoweredProduct
    estimate: Estimate
    cycles: int

    @property
    def blocking(self) -> Blocking:
        """The tiles."""
        return self.part.nest.blocking


def part_of(program: Compiled) -> LoweredProduct:
    """The only product of a program, whose sums are stored."""
    (found,) = program.parts
    assert isinstance(found, LoweredProduct)
    return found


def refine(
    network: Network,
    config: MachineConfig,
    settings: MemorySettings,
    count: int,
    *,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> list[Candidate]:
    """The `count` best blockings of a network of one product by estimate with exact cycles, quickest first.

    Ties keep the order of the estimates. `progress` is told how many of how many are done. Raises
    `InputError` for products that the machine cannot take.
    """
    config = settings.behind(config)
    (output,) = network.outputs

    def compiled(**options: Any) -> Compiled:
        (made,) = compile_network(network, config, **options)
        assert isinstance(made, Compiled)
        return made

    # Refuses what does not fit, in the words that name the product.
    plain = compiled(bandwidth=settings.bandwidth, bands=False)
    extent = part_of(plain).problem.extent
    found = []
    choices = best(extent, config, settings.bandwidth, count)
    for done, choice in enumerate(choices):
        progress(done, len(choices))
        with contextlib.suppress(InputError):  # more registers than the machine has
            made = compiled(bandwidth=settings.bandwidth, blockings={output: choice.blocking})
            found.append(Candidate(made, part_of(made), choice.estimate, exact_cycles(made, settings)))
    if not found:
        estimate = refined(Ports(extent, config, settings.bandwidth), part_of(plain).nest.blocking)
        found.append(Candidate(plain, part_of(plain), estimate, exact_cycles(plain, settings)))
    return sorted(found, key=lambda c: c.cycles)


def refined_blockings(
    network: Network, config: MachineConfig, settings: MemorySettings, count: int
) -> dict[str, Blocking]:
    """The quickest of so many blockings of every product whose sums are stored, by its result.

    Convolutions that are predicted to be quicker in bands of rows stay so.
    """
    found = {}
    for operator in network.operators:
        if stores_sums(operator):
            alone = _alone(network, operator)
            (made,) = compile_network(alone, settings.behind(config), bandwidth=settings.bandwidth)
            if isinstance(made, Compiled) and isinstance(made.parts[0], LoweredProduct):
                (quickest, *_) = refine(alone, config, settings, count)
                found[operator.output.tensor] = quickest.blocking
    return found


def _alone(network: Network, operator: Operator) -> Network:
    """A network of one operator of another one."""
    read = {view.tensor for view in operator.inputs}
    tensors = {name: network.tensors[name] for name in (*sorted(read), operator.output.tensor)}
    inputs = tuple(name for name in sorted(read) if tensors[name].constant is None)
    return Network(operator.name, tensors, (operator,), inputs, (operator.output.tensor,))
