"""Tiles that depend only on the machine and the layout of the operands.

The programs of large products with these tiles differ only in numbers: they have the same loops and
conditions, and the same length.
"""

from __future__ import annotations

import functools

from hw.config import MachineConfig
from sw.tiling.blocking import Blocking, Extent
from sw.tiling.candidates import depth_of, inner_cuts

#: Number of steps along each axis from which a product counts as large. Loops of one or two steps compile to
#: different code.
STEPS = 4


def uniform(extent: Extent, config: MachineConfig) -> Blocking | None:
    """The tiles shared by all large products that they divide evenly; None for other products."""
    if extent.patches is not None or extent.batch > 1:
        return None
    t = _tiles(extent.transposed_a, extent.transposed_b, config)
    if t is None:
        return None
    axes = ((extent.m, t.partition_m), (extent.n, t.partition_n), (extent.k, t.partition_k))
    return t if all(size % tile == 0 and size >= STEPS * tile for size, tile in axes) else None


@functools.lru_cache(maxsize=64)
def _tiles(transposed_a: bool, transposed_b: bool, config: MachineConfig) -> Blocking | None:
    """Tiles with power-of-two sides, which divide the sizes of most large products.

    A partition of C fills half of the accumulator. Its shape is the one that loads least, by the time of the
    slower port, then of both; of equal ones, the squarest. It is no deeper than it is wide: more depth would
    save no loads and only delay the first product. As many inner tiles as possible keep the last store short.
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
    """The largest power of two that is at most a number."""
    return 1 << number.bit_length() - 1
