"""The best unrolling of an elementwise loop for a machine: the fewest cycles per element."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hw.config import MachineConfig
from hw.errors import InputError
from sw.cgra.bounds import bound
from sw.cgra.legal import prepare
from sw.graph.expression import Expression
from sw.kernels.access import TileAccess
from sw.kernels.configuration import Configured, configure, graph_of
from sw.kernels.cost import cycles
from sw.kernels.elementwise import ElementwiseKernel, make

#: Masks of elements of an iteration (`Unrolling`): neighbours, then bytes in different words, then in few.
NEIGHBOURS = (0b0, 0b1, 0b11, 0b111)
MASKS = (*NEIGHBOURS, 0b100, 0b1100, 0b101, 0b11100, 0b1101, 0b1110)
#: Mappings of a loop that are tried where banks make it wait, by their seeds.
SEEDS = 4
#: By how much a larger block must be better.
_WORTH = 0.97
#: Elements that are computed with a configuration once it is loaded, for comparing large and small ones.
_ELEMENTS = 1 << 16


@dataclass(frozen=True)
class Chosen:
    """A loop, its configuration, and the cycles per element of a long launch that nobody disturbs."""

    elementwise: ElementwiseKernel
    configured: Configured
    cycles_per_element: float

    @property
    def cost(self) -> float:
        """Cycles per element, a share of those that load the configuration included."""
        return self.cycles_per_element + len(self.configured.words) / _ELEMENTS


def choose(
    value: Expression,
    operands: Sequence[TileAccess],
    result: TileAccess,
    config: MachineConfig,
    *,
    multiple: int,
    name: str = "elementwise",
    seed: int = 0,
) -> Chosen:
    """The loop with the fewest cycles per element among those whose block divides `multiple`.

    `multiple` divides the number of columns (of elements, for tiles that need no columns) of every launch.
    Of loops that are about equally fast it takes the one with the smallest block.
    """
    found = _candidates(value, operands, result, config, multiple, name)
    best: Chosen | None = None
    for least, made in sorted(found, key=lambda c: (c[0], c[1].block)):
        if best is None or least < best.cost * (_WORTH if made.block > best.elementwise.block else 1):
            tried = _mapped(made, config, seed)
            best = tried if best is None or _better(tried, best) else best
    if best is None:
        raise InputError(f"kernel {name}: the multiple must be at least 1, not {multiple}")
    if not best.configured.verified:
        return _mapped(best.elementwise, config, seed, compared=True)
    return best


def _mapped(made: ElementwiseKernel, config: MachineConfig, seed: int, compared: bool = False) -> Chosen:
    """The mapping of a loop that waits least, of a few."""
    best: Chosen | None = None
    for number in range(SEEDS):
        configured = configure(made.kernel, config, seed=seed + number, compared=compared)
        found = Chosen(made, configured, cycles(made, configured, config))
        if best is None or found.cycles_per_element < best.cycles_per_element:
            best = found
        if best.cycles_per_element * made.per_iteration == best.configured.found.bound.mii:
            break
    assert best is not None
    return best


def _better(one: Chosen, other: Chosen) -> bool:
    """Whether one is worth its block."""
    if one.elementwise.block > other.elementwise.block:
        return one.cost < other.cost * _WORTH
    if one.elementwise.block < other.elementwise.block:
        return one.cost * _WORTH < other.cost
    return one.cost < other.cost


def _candidates(
    value: Expression,
    operands: Sequence[TileAccess],
    result: TileAccess,
    config: MachineConfig,
    multiple: int,
    name: str,
) -> Iterator[tuple[float, ElementwiseKernel]]:
    """Loops, each with a lower bound of its cycles per element."""
    if config.cgra is None:
        raise InputError(f"machine {config.name!r} must have a grid to run kernel {name}, it has none")
    for mask in MASKS if result.bytes == 1 else NEIGHBOURS:
        made = make(value, operands, result, mask=mask, name=name)
        if multiple > 0 and multiple % made.block == 0:
            graph = prepare(graph_of(made.kernel), config.cgra)
            yield bound(graph, config.cgra).mii / made.per_iteration, made
