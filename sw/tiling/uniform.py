"""Tiles that depend on the machine and the layout of the operands alone.

Large products with these tiles differ in nothing but numbers: their programs have the same loops and
conditions, and are equally long.
"""

from __future__ import annotations

import functools

from hw.config import MachineConfig
from sw.tiling.blocking import Blocking, Extent
from sw.tiling.candidates import depth_of, inner_cuts

#: Steps along each axis from which on a product is large. Loops of one or two steps have code of their own.
STEPS = 4


def uniform(extent: Extent, config: MachineConfig) -> Blocking | None:
    """The tiles of every large product that they divide evenly; None for all else."""
    if extent.patches is not None or extent.batch > 1:
        return None
    t = _tiles(extent.transposed_a, extent.transposed_b, config)
    if t is None:
        return None
    axes = ((extent.m, t.partition_m), (extent.n, t.partition_n), (extent.k, t.partition_k))
    return t if all(size % tile == 0 and size >= STEPS * tile for size, tile in axes) else None


@functools.lru_cache(maxsize=64)
def _tiles(transposed_a: bool, transposed_b: bool, config: MachineConfig) -> Blocking | None:
    """Tiles whose sides are powers of two, as those of most large products have large ones as factors.

    A partition of C fills half of the accumulator, in the shape that loads least, by the time of the slower
    port and then of both, and of equal ones in the squarest. It is no deeper than it is wide: more depth
    would not save loads, only delay the first product. As many inner tiles as possible keep the last store
    short.
    """
    room = config.derived.acc_words // 2 * config.cols
    found = []
    m = config.rows
    while m * config.cols <= room:
        n = _power_below(room // m)
        depth = min(
            depth_of(config.derived.buffer_a, transposed_a, m),
            depth_of(config.derived.buffer_b, not transposed_b, n),
        )
        if depth:
            by_a, by_b = 1 / (n * config.load_a_bytes), 1 / (m * config.load_b_bytes)
            k = min(_power_below(depth), max(m, n))
            whole = Blocking(m, n, k, m, n, m_outermost=True)
            found.append((max(by_a, by_b), by_a + by_b, max(m, n), whole))
        m *= 2
    if not found:
        return None
    *_, whole = min(found, key=lambda item: item[:3])
    return (whole, *inner_cuts(config, whole))[-1]


def _power_below(number: int) -> int:
    """The largest power of two that is not above a number."""
    return 1 << number.bit_length() - 1
