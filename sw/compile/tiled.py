"""The blocking of a product whose results go through the grid: the time of array and grid together."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from hw.config import MachineConfig
from hw.errors import InputError
from sw.arrangement import Nest
from sw.compile.products import Shape, even, fits, tiles_of
from sw.graph.network import Operator
from sw.tiling.blocking import Blocking, Extent
from sw.tiling.machine import Choice, best


@dataclass(frozen=True)
class Choices:
    """Which blockings products may take: the one in `given`, by result, or all but the `skip` best ones.

    `bandwidth` is that of ports that are slower than their width.
    """

    given: Mapping[str, Blocking] = field(default_factory=dict)
    skip: int = 0
    bandwidth: tuple[tuple[str, int], ...] = ()

    @property
    def rates(self) -> dict[str, int] | None:
        """Bytes per cycle by port."""
        return dict(self.bandwidth) or None


#: Blockings that are looked at for each size of the accumulator.
ALTERNATIVES = 64
#: Cycles of a launch and its store beyond those of its elements.
LAUNCH = 90
#: Halvings of the accumulator that are tried: smaller tiles begin and end sooner.
HALVINGS = 3


def tiled(
    operator: Operator,
    extent: Extent,
    config: MachineConfig,
    nested: Callable[[Blocking], tuple[Nest, Shape]],
    suits: Callable[[Nest, Shape], bool],
    per_element: float | None,
    allowed: Choices,
) -> tuple[Nest, Shape]:
    """The nest of least estimated time among those that suit.

    `per_element` are the grid's cycles for an element; None: the sums are stored as they are. Raises
    `InputError` where nothing fits.
    """
    if per_element is None:
        return _plain(operator, extent, config, nested, suits, allowed)
    found: tuple[float, Nest, Shape] | None = None
    seen: set[Blocking] = set()
    for halvings, choices in enumerate(_choices(extent, config, allowed.bandwidth)):
        for choice in choices:
            if choice.blocking in seen:
                continue
            seen.add(choice.blocking)
            made, shape = nested(choice.blocking)
            if not even(made) or not fits(made, shape) or not suits(made, shape):
                continue
            score = time(choice, made, shape, per_element)
            if found is None or score < found[0]:
                found = score, made, shape
        if found is not None and halvings >= HALVINGS:
            break
    if found is None:
        raise InputError(
            f"{operator.name}: no tile fits accumulator ({config.acc_bytes} bytes), scratchpad "
            f"({config.scratch_bytes}) and output buffer ({config.out_bytes})"
        )
    return found[1:]


def _plain(
    operator: Operator,
    extent: Extent,
    config: MachineConfig,
    nested: Callable[[Blocking], tuple[Nest, Shape]],
    suits: Callable[[Nest, Shape], bool],
    allowed: Choices,
) -> tuple[Nest, Shape]:
    """The best blocking of a product whose sums are stored, the first `skip` left out."""
    left = allowed.skip
    for blocking in _blockings(operator, extent, config.replace(cgra=None), allowed):
        made, shape = nested(blocking)
        if not fits(made, shape):
            shape = replace(shape, tight=True)
        if fits(made, shape) and suits(made, shape):
            if left == 0:
                return made, shape
            left -= 1
    raise InputError(f"{operator.name}: no tile fits the accumulator ({config.acc_bytes} bytes)")


def _blockings(
    operator: Operator, extent: Extent, config: MachineConfig, allowed: Choices
) -> Iterator[Blocking]:
    """The blocking that was asked for, or the best ones: more than the first are seldom needed."""
    given = allowed.given.get(operator.output.tensor)
    if given is not None:
        yield given
        return
    first = _best(extent, config, allowed.bandwidth, 1)[0].blocking
    yield first
    for choice in _best(extent, config, allowed.bandwidth, ALTERNATIVES):
        if choice.blocking != first:
            yield choice.blocking


@functools.lru_cache(maxsize=2048)
def _best(
    extent: Extent, config: MachineConfig, bandwidth: tuple[tuple[str, int], ...], count: int
) -> tuple[Choice, ...]:
    """The best blockings: operators of equal shapes have the same."""
    return tuple(best(extent, config, dict(bandwidth) or None, count))


def _choices(
    extent: Extent, config: MachineConfig, bandwidth: tuple[tuple[str, int], ...]
) -> Iterator[tuple[Choice, ...]]:
    """The best blockings, then those for smaller accumulators."""
    while True:
        try:
            # Blockings do not depend on the grid: machines with different ones share them.
            yield _best(extent, config.replace(cgra=None), bandwidth, ALTERNATIVES)
            config = config.replace(acc_bytes=config.acc_bytes // 2)
        except InputError:
            return


def time(choice: Choice, nest: Nest, shape: Shape, per_element: float) -> float:
    """Cycles by estimate: the slower of array and grid, and what of the other one nothing hides."""
    tiles = math.prod(loop.count for loop in tiles_of(nest, shape).loops)
    array, grid = choice.score, tiles * (shape.rows * shape.width * per_element + LAUNCH)
    return max(array, grid) + min(array, grid) / tiles
