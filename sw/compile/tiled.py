"""The blocking of a product whose results go through the grid: the time of array and grid together."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator

from hw.config import MachineConfig
from hw.errors import InputError
from sw.arrangement import Nest
from sw.compile.products import Shape, fits, tiles_of
from sw.tiling.blocking import Blocking, Extent
from sw.tiling.machine import Choice, best

#: Blockings that are looked at for each size of the accumulator.
ALTERNATIVES = 64
#: Cycles of a launch and its store beyond those of its elements.
LAUNCH = 90
#: Halvings of the accumulator that are tried: smaller tiles begin and end sooner.
HALVINGS = 3


def tiled(
    name: str,
    extent: Extent,
    config: MachineConfig,
    nested: Callable[[Blocking], tuple[Nest, Shape]],
    suits: Callable[[Nest, Shape], bool],
    per_element: float | None,
) -> tuple[Nest, Shape]:
    """The nest of least estimated time among those that suit.

    `per_element` are the grid's cycles for an element; None: the sums are stored as they are. Raises
    `InputError` where nothing fits.
    """
    found: tuple[float, Nest, Shape] | None = None
    seen: set[Blocking] = set()
    for halvings, choices in enumerate(_choices(extent, config)):
        for choice in choices:
            if choice.blocking in seen:
                continue
            seen.add(choice.blocking)
            made, shape = nested(choice.blocking)
            if not fits(made, shape) or not suits(made, shape):
                continue
            if per_element is None:
                return made, shape
            score = time(choice, made, shape, per_element)
            if found is None or score < found[0]:
                found = score, made, shape
        if found is not None and halvings >= HALVINGS:
            break
    if found is None:
        raise InputError(
            f"{name}: no tile fits accumulator ({config.acc_bytes} bytes), scratchpad "
            f"({config.scratch_bytes}) and output buffer ({config.out_bytes})"
        )
    return found[1:]


@functools.lru_cache(maxsize=2048)
def _best(extent: Extent, config: MachineConfig) -> tuple[Choice, ...]:
    """The best blockings: operators of equal shapes have the same."""
    return tuple(best(extent, config, None, ALTERNATIVES))


def _choices(extent: Extent, config: MachineConfig) -> Iterator[tuple[Choice, ...]]:
    """The best blockings, then those for smaller accumulators."""
    while True:
        try:
            # Blockings do not depend on the grid: machines with different ones share them.
            yield _best(extent, config.replace(cgra=None))
            config = config.replace(acc_bytes=config.acc_bytes // 2)
        except InputError:
            return


def time(choice: Choice, nest: Nest, shape: Shape, per_element: float) -> float:
    """Cycles by estimate: the slower of array and grid, and what of the other one nothing hides."""
    tiles = math.prod(loop.count for loop in tiles_of(nest, shape).loops)
    array, grid = choice.score, tiles * (shape.rows * shape.width * per_element + LAUNCH)
    return max(array, grid) + min(array, grid) / tiles
