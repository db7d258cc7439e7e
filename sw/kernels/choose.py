"""Chooses the best unrolling of an elementwise loop for a machine: the fewest cycles per element."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from hw.config import MachineConfig
from hw.errors import InputError, UnwritableError
from hw.fabric import Unit
from sw.cgra.bounds import bound
from sw.cgra.legal import prepare
from sw.graph.expression import Expression, Lookup, operations, walk
from sw.graph.tabulate import with_tables
from sw.kernels.access import TileAccess
from sw.kernels.configuration import Configured, configure, graph_of
from sw.kernels.cost import cycles
from sw.kernels.elementwise import ElementwiseKernel, make

#: Masks of the elements of an iteration (`Unrolling`): neighbours; then bytes spread over different words;
#: then over few.
NEIGHBOURS = (0b0, 0b1, 0b11, 0b111)
MASKS = (*NEIGHBOURS, 0b100, 0b1100, 0b101, 0b11100, 0b1101, 0b1110)
#: Orders in which the copies of a loop's body compute eight neighbours. One mapping fits the first three
#: equally; one of these avoids storing two bytes of the same word in one step.
ORDERS = (
    (0, 1, 4, 5, 2, 3, 6, 7),
    (0, 4, 1, 5, 2, 6, 3, 7),
    (0, 4, 5, 1, 2, 6, 7, 3),
    (),
)
#: Number of mapping seeds tried for a loop that bank conflicts stall; with `ORDERS`.
SEEDS, ORDERED_SEEDS = 4, 12
#: From this many operations, one element fills the PEs: iterations compute one element, or two up to this
#: MII, and only one mapping is tried.
_LARGE, _STEPS = 24, 16
#: A table beyond the first makes a loop as hard to map as this many operations.
_TABLE = 16
#: Share of the elements that remain to be computed when the array has finished.
_LAST = 1 / 16
#: A larger block must reduce the cost to this fraction.
_WORTH = 0.97


@dataclass(frozen=True)
class Demand:
    """How a loop is used: the number of elements that it computes per load of its configuration.

    `hidden` are cycles per element that the array needs anyway. A loop that takes fewer saves cycles only in
    the last tile.
    """

    elements: int = 1 << 16
    hidden: float = 0.0

    def cost(self, cycles_per_element: float, words: int = 0) -> float:
        """Cycles per element, of which some are hidden; `words` is the size of the configuration."""
        less, more = sorted((cycles_per_element, self.hidden))
        return more + less * _LAST + words / self.elements


@dataclass(frozen=True)
class Chosen:
    """A loop, its configuration, and the cycles per element in a long launch without stalls by others."""

    elementwise: ElementwiseKernel
    configured: Configured
    cycles_per_element: float
    demand: Demand = Demand()

    @property
    def cost(self) -> float:
        """Cycles per element for a demand."""
        return self.demand.cost(self.cycles_per_element, len(self.configured.words))


def choose(
    value: Expression,
    operands: Sequence[TileAccess],
    result: TileAccess,
    config: MachineConfig,
    *,
    multiple: int,
    aligned: int | None = None,
    demand: Demand = Demand(),
    name: str = "elementwise",
    seed: int = 0,
) -> Chosen:
    """Chooses the loop with the lowest cost for a demand, among those whose block divides `multiple`.

    `multiple` divides the number of columns (or of elements, for tiles without columns) of every launch.
    `aligned` (default: `multiple`) divides the distance from any row or segment to the next. Among loops of
    about equal speed, it takes the one with the smallest block.
    """
    found = _candidates(
        value, operands, result, config, multiple, multiple if aligned is None else aligned, name
    )
    tries = 1 if _large(value) else SEEDS
    if config.cgra is None or config.cgra.lanes == 1:
        demand = Demand()  # Configurations differ little in load time.
    best: Chosen | None = None
    for least, (made, *others) in sorted(found, key=lambda c: (c[0], c[1][0].block)):
        if best is None or _promises(made, least, best):
            last = seed + (ORDERED_SEEDS if others and tries > 1 else tries)
            try:
                tried = _mapped((made, *others), config, demand, range(seed, last))
            except UnwritableError:
                raise
            except InputError:
                if made.unrolling.lanes == 1:
                    raise
                continue  # The PEs with lanes may be too far from each other.
            best = tried if best is None or _better(tried, best) else best
    if best is None:
        raise InputError(f"kernel {name}: the multiple must be at least 1, not {multiple}")
    if not best.configured.verified:
        return _mapped((best.elementwise,), config, demand, range(seed, seed + tries), compared=True)
    return best


def _promises(made: ElementwiseKernel, least: float, best: Chosen) -> bool:
    """Whether a loop with this lower bound of cycles per element is worth mapping.

    Without lanes, there are many loops, which take long to map, so only faster ones are.
    """
    demand = best.demand if made.unrolling.lanes > 1 else Demand()
    cost = demand.cost(best.cycles_per_element, len(best.configured.words))
    return demand.cost(least) < cost * (_WORTH if made.block > best.elementwise.block else 1)


def _large(value: Expression) -> bool:
    """Whether one element fills the PEs: tables stay in their PEs, shared by all elements of an iteration."""
    tables = len({x.table for x in walk(value) if isinstance(x, Lookup)})
    return operations(value) + _TABLE * max(0, tables - 1) >= _LARGE


def _mapped(
    orders: Sequence[ElementwiseKernel],
    config: MachineConfig,
    demand: Demand,
    seeds: Iterable[int],
    compared: bool = False,
) -> Chosen:
    """The mapping with the fewest stalls, of a few; the elements may be in any of several orders."""
    best: Chosen | None = None
    for seed, made in itertools.product(seeds, orders):
        configured = configure(made.kernel, config, seed=seed, compared=compared)
        found = Chosen(made, configured, cycles(made, configured, config), demand)
        if best is None or found.cycles_per_element < best.cycles_per_element:
            best = found
        if best.cycles_per_element * made.per_iteration == best.configured.found.bound.mii:
            break
    assert best is not None
    return best


def _better(one: Chosen, other: Chosen) -> bool:
    """Whether a loop is worth its larger block."""
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
    aligned: int,
    name: str,
) -> Iterator[tuple[float, tuple[ElementwiseKernel, ...]]]:
    """Loops, in all orders of their elements, each with a lower bound of its cycles per element."""
    if config.cgra is None:
        raise InputError(f"machine {config.name!r} must have a CGRA to run kernel {name}, it has none")
    large = _large(value)
    masks: Sequence[int] = MASKS if result.bytes == 1 else NEIGHBOURS
    wanted: list[tuple[Expression, int, int, tuple[tuple[int, ...], ...]]] = []
    plain = all(a.plain for a in operands)
    if not plain:
        masks = [m for m in NEIGHBOURS if m + 1 >= max(a.repeat for a in operands)]
    for mask in masks[:2] if large else masks:
        # If larger blocks fit, other masks spread the elements over different words anyway.
        ordered = mask == 0b111 and result.bytes == 1 and multiple % 16
        wanted.append((value, mask, 1, ORDERS if ordered else ((),)))
    if (several := config.cgra.lanes) > 1 and aligned % several == 0 and plain:
        # PEs with lanes look a word up as fast as they add; without lanes, few PEs have a table.
        values = dict.fromkeys((value, with_tables(value, [a.element for a in operands])))
        sizes = [pieces * several - 1 for pieces in (1, 2, 4)]
        wanted += [(one, mask, several, ((),)) for one, mask in itertools.product(values, sizes)]
    sums = any(kind.adds for kind in config.cgra.kinds)
    quantisers = (True, False) if config.cgra.having(Unit.QUANTISER) else (False,)
    for (one, mask, lanes, orders), quantiser in itertools.product(wanted, quantisers):
        if multiple <= 0 or multiple % (1 << mask.bit_length()):
            continue
        kernel = partial(
            make,
            one,
            operands,
            result,
            mask=mask,
            lanes=lanes,
            quantiser=quantiser,
            sums=quantiser and sums,
            name=name,
        )
        made, *others = (kernel(order=order) for order in orders)
        # There may be no PE with lanes for an operation.
        with contextlib.suppress(*[InputError] * (lanes > 1)):
            graph = prepare(graph_of(made.kernel), config.cgra)
            least = bound(graph, config.cgra).mii
            if mask in (0, masks[0]) or not large or least <= _STEPS:
                yield least / made.per_iteration, (made, *others)
