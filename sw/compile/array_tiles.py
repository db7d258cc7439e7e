"""Chooses the tiles of a product or convolution: the lowest estimated time among those that fit the machine.

Results are stored as sums, or go through the epilogue's loop on the CGRA; then the CGRA's time counts too.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hw.config import MachineConfig
from hw.errors import InputError, UnwritableError
from sw.compile.array import ArrayProblem, Key, Nest
from sw.compile.array_emitter import ArrayEmitter
from sw.compile.forms import HALVES
from sw.compile.launches import LaunchWriter, TileLaunches
from sw.compile.operands import Tiles, fetches, longest, records, room
from sw.compile.writer import LONGEST, ChipSpace
from sw.graph.network import ImageConvolution, MatrixProduct, Tensor, word
from sw.ir.program import Statement
from sw.kernels.access import TileAccess
from sw.kernels.choose import Chosen, Demand, choose
from sw.kernels.configuration import Configured
from sw.tiling.blocking import Blocking, Extent
from sw.tiling.machine import Choice, best

#: Blockings tried for each size of the accumulator.
ALTERNATIVES = 64
#: Fixed cycles of a launch and its store.
LAUNCH = 90
#: Number of times the accumulator is halved in the search: smaller tiles start and finish earlier.
HALVINGS = 3

Suits = Callable[[Nest], bool]


@dataclass(frozen=True)
class Choices:
    """The tiles that products may use.

    `blockings` are fixed ones for products whose sums are stored, by the tensor that these write. Of other
    products, the best `skip` blockings are left out. `bandwidth`, in bytes per cycle, overrides the width of
    slower ports. `loops`: repeated operators may become a loop. `bands`: convolutions may use bands of output
    rows.
    """

    blockings: Mapping[str, Blocking] | None = None
    skip: int = 0
    bandwidth: Mapping[str, int] | None = None
    loops: bool = True
    bands: bool = True


@dataclass(frozen=True)
class LoweredProduct:
    """A product or convolution in tiles; `records` are constants of its epilogue, `time` predicted cycles."""

    nest: Nest
    chosen: Chosen | None
    records: Mapping[str, Tensor]
    time: float = math.inf

    @property
    def problem(self) -> ArrayProblem:
        """The problem that is tiled."""
        return self.nest.problem

    @property
    def operator(self) -> MatrixProduct | ImageConvolution:
        """The operator that it computes."""
        return self.problem.operator

    @property
    def tiles(self) -> Tiles:
        """The tiles of the result."""
        return self.nest.tiles

    @property
    def configured(self) -> tuple[Configured, ...]:
        """The configuration of the epilogue."""
        return (self.chosen.configured,) if self.chosen else ()

    @property
    def blobs(self) -> tuple[Tensor, ...]:
        """Records of constants."""
        return tuple(self.records.values())

    def emit(self, launcher: LaunchWriter, scratch: ChipSpace, out: ChipSpace) -> list[Statement]:
        """Emits loads, products, launches and stores of all tiles."""
        launches, p = None, self.problem
        if self.chosen is not None:
            found = fetches(p.sources, self.records, self.tiles, scratch)
            base = out.take(HALVES * self.tiles.rows * self.tiles.pitch("result") * p.result.itemsize)
            launches = TileLaunches(launcher, self.chosen, found, base)
        return ArrayEmitter(self.nest, launcher.writer, launches).body()


def lowered(p: ArrayProblem, room_bytes: int, allowed: Choices = Choices()) -> LoweredProduct:
    """Chooses the tiles of a product and the loop of its epilogue; raises `InputError` if no tile fits."""
    if p.images:
        try:
            return _lowered(dataclasses.replace(p, segmented=True), room_bytes, allowed)
        except UnwritableError:
            raise
        except InputError:
            if p.across > p.length:
                raise
    # Tiles within one output row have no gaps.
    return _lowered(p, room_bytes, allowed)


def _lowered(p: ArrayProblem, room_bytes: int, allowed: Choices) -> LoweredProduct:
    """Tiles that are bands of rows with gaps between them, or tiles without gaps."""
    chosen = _chosen(p) if p.operator.epilogue is not None else None

    def suits(nest: Nest) -> bool:
        """Whether double-buffered tiles of results and operands fit the buffers of the CGRA."""
        if p.images and not _in_rows(nest):
            return False
        if chosen is None:
            return True
        tiles, size = nest.tiles, p.result.itemsize
        counted = max(nest.width * size, longest(p.sources, tiles)) <= LONGEST
        held = HALVES * tiles.rows * tiles.pitch("result") * size
        return counted and held <= p.config.out_bytes and room(p.sources, tiles) <= room_bytes

    if chosen is None:
        time, nest = _plain(p, suits, allowed)
        return LoweredProduct(nest, None, {}, time)
    time, nest = _balanced(p, suits, chosen.cycles_per_element, allowed)
    own = records(p.operator.name, chosen.elementwise, p.sources, nest.tiles)
    return LoweredProduct(nest, chosen, own, time)


def _chosen(p: ArrayProblem) -> Chosen:
    """The loop of the epilogue."""
    assert p.operator.epilogue is not None
    operands: dict[Key, TileAccess] = {0: TileAccess("acc", "int32")}
    operands |= {k: p.sources[k].access for k in sorted(p.sources)}
    operands["result"] = TileAccess("out", word(p.result.tensor.element))
    every = aligned = math.lcm(p.unit, p.config.cols)
    if p.segmented:
        every = p.computed
        aligned = math.gcd(every, p.across, p.unit, p.config.cols, *p.images.values())
        rows = {0: not p.uniform, "result": p.images["result"] % p.unit != 0}
        for key, access in operands.items():
            gap = access.follows == "full" and p.images.get(key, p.across) != every
            operands[key] = dataclasses.replace(access, segment_gap=gap, row_gap=rows.get(key, False))
    result = operands.pop("result")
    value = p.operator.epilogue.value
    given = [*operands.values()]
    # A loop twice as fast as the array never delays it, whatever stalls it has.
    array = p.extent.k / (p.config.rows * p.config.cols)
    demand = Demand(p.operator.output.elements, array / 2)
    return choose(
        value, given, result, p.config, multiple=every, aligned=aligned, demand=demand, name="epilogue"
    )


def _in_rows(nest: Nest) -> bool:
    """Whether tiles must be whole output rows, or lie inside one, because rows have gaps between them."""
    p = nest.problem
    if not p.segmented:
        return nest.blocking.partition_n <= p.across
    return nest.columns % p.across == 0 and not (p.uniform and nest.columns % nest.config.cols)


def _plain(p: ArrayProblem, suits: Suits, allowed: Choices) -> tuple[float, Nest]:
    """The best blocking of a product whose sums are stored, without the first `skip`, and its time."""
    given = (allowed.blockings or {}).get(p.operator.output.tensor)
    # The best one is usually enough.
    for count in (1, ALTERNATIVES):
        choices = () if given else _best(p.extent, p.config, allowed, count)
        timed = [(0.0, given)] if given else [(c.score, c.blocking) for c in choices]
        nests = [(time, p.nest(blocking)) for time, blocking in timed]
        shaped = [(t, nest if nest.fits else dataclasses.replace(nest, tight=True)) for t, nest in nests]
        found = [(time, nest) for time, nest in shaped if nest.fits and suits(nest)]
        if len(found) > allowed.skip:
            return found[allowed.skip]
    raise InputError(f"{p.operator.name}: no tile fits the accumulator ({p.config.acc_bytes} bytes)")


def _balanced(p: ArrayProblem, suits: Suits, per_element: float, allowed: Choices) -> tuple[float, Nest]:
    """The shortest time of array and CGRA together, and its nest; the CGRA takes `per_element` cycles."""
    found: list[tuple[float, Nest]] = []
    for halvings in itertools.count():
        try:
            config = p.config.replace(cgra=None, acc_bytes=p.config.acc_bytes >> halvings)
            choices = _best(p.extent, config, allowed, ALTERNATIVES)
        except InputError:
            break
        nests = [(choice, p.nest(choice.blocking)) for choice in choices if choice.blocking.even]
        found += [(_time(c, nest, per_element), nest) for c, nest in nests if nest.fits and suits(nest)]
        if found and halvings >= HALVINGS:
            break
    if not found:
        raise InputError(
            f"{p.operator.name}: no tile fits accumulator ({p.config.acc_bytes} bytes), scratchpad "
            f"({p.config.scratch_bytes}) and output buffer ({p.config.out_bytes})"
        )
    return min(found, key=lambda item: item[0])


def _best(extent: Extent, config: MachineConfig, allowed: Choices, count: int) -> list[Choice]:
    """The best blockings; these do not depend on the CGRA, so machines that differ only there share them."""
    bandwidth = tuple(sorted((allowed.bandwidth or {}).items()))
    return _cached_best(extent, config.replace(cgra=None), bandwidth, count)


@functools.lru_cache(maxsize=2048)
def _cached_best(
    extent: Extent, config: MachineConfig, bandwidth: tuple[tuple[str, int], ...], count: int
) -> list[Choice]:
    return best(extent, config, dict(bandwidth), count)


def _time(choice: Choice, nest: Nest, per_element: float) -> float:
    """Estimated cycles: those of the slower of array and CGRA, plus what is not hidden of the other."""
    number = math.prod(loop.count for loop in nest.tiles.loops)
    array, cgra = choice.score, number * (nest.computed * per_element + LAUNCH)
    return max(array, cgra) + min(array, cgra) / number
