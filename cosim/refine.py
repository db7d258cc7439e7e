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
    """A program of one product: the estimate of its blocking, and its exact cycles."""

    program: Compiled
    part: LoweredProduct
    estimate: Estimate
    cycles: int

    @property
    def blocking(self) -> Blocking:
        """Its tile sizes."""
        return self.part.nest.blocking


def part_of(program: Compiled) -> LoweredProduct:
    """The only product of a program; its sums are stored."""
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
    """Exact cycles of the `count` best blockings of a one-product network by estimate, fastest first.

    Ties keep the order of the estimates. `progress` is called with the number done and the total. Raises
    `InputError` for products that the machine cannot take.
    """
    config = settings.behind(config)
    (output,) = network.outputs

    def compiled(**options: Any) -> Compiled:
        (made,) = compile_network(network, config, **options)
        assert isinstance(made, Compiled)
        return made

    # Refuses what does not fit, with a message that names the product.
    plain = compiled(bandwidth=settings.bandwidth, bands=False)
    extent = part_of(plain).problem.extent
    found = []
    choices = best(extent, config, settings.bandwidth, count)
    for done, choice in enumerate(choices):
        progress(done, len(choices))
        with contextlib.suppress(InputError):  # needs more registers than the machine has
            made = compiled(bandwidth=settings.bandwidth, blockings={output: choice.blocking})
            found.append(Candidate(made, part_of(made), choice.estimate, exact_cycles(made, settings)))
    if not found:
        estimate = refined(Ports(extent, config, settings.bandwidth), part_of(plain).nest.blocking)
        found.append(Candidate(plain, part_of(plain), estimate, exact_cycles(plain, settings)))
    return sorted(found, key=lambda c: c.cycles)


def refined_blockings(
    network: Network, config: MachineConfig, settings: MemorySettings, count: int
) -> dict[str, Blocking]:
    """The fastest of `count` blockings of every product whose sums are stored, by the product's result.

    Convolutions that are predicted to be faster in bands of rows keep the bands.
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
    """A network with only this operator."""
    read = {view.tensor for view in operator.inputs}
    tensors = {name: network.tensors[name] for name in (*sorted(read), operator.output.tensor)}
    inputs = tuple(name for name in sorted(read) if tensors[name].constant is None)
    return Network(operator.name, tensors, (operator,), inputs, (operator.output.tensor,))
