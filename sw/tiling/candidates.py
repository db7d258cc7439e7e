"""Blockings of a problem that are worth estimating on a machine.

A tile takes half of its buffer, so that the next one is loaded meanwhile. An operand that is loaded only once
may fill its buffer, and so may the only partition of C (single buffering).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

from hw.config import BufferShape, MachineConfig
from hw.isa import SIZE_BITS
from sw.layout import round_up
from sw.tiling.blocking import Blocking, Extent, Resident

#: The array should not finish an operation faster than a warp can issue the next.
SHORTEST = 48
_LARGEST_SIZE = (1 << SIZE_BITS) - 1


def candidates(extent: Extent, config: MachineConfig, *, single: bool) -> Iterator[Blocking]:
    """Blockings worth estimating: evenly divided, with whole blocks and whole beats if possible.

    With `single`, those whose partitions fill the accumulator; otherwise the others.
    """
    words = config.derived.acc_words
    seen = set()
    for n, out_rows, out_cols in _widths(extent, config):
        for m in _sizes(extent.m, config.rows):
            rows = min(m, extent.m)
            needed = rows * -(-n // config.cols)
            full = 2 * needed > words
            if needed > words or single is not full:
                continue
            # With one partition along an axis, the order of the outer loops does not matter.
            alone = m >= extent.m or (n >= extent.n and extent.batch == 1)
            for k, stay_a, stay_b, m_outermost in _depths(extent, config, m, n):
                order = m_outermost or alone
                made = Blocking(rows, n, k, rows, n, order, stay_a, stay_b, out_rows, out_cols, full)
                if made in seen:
                    continue
                seen.add(made)
                # A partition that fills the accumulator must be cut, because the next one waits for its tiles
                # to be stored.
                yield next(inner_cuts(config, made, (4, 2)), made) if full else made


def _widths(extent: Extent, config: MachineConfig) -> Iterator[tuple[int, int, int]]:
    """Sizes along n; for a convolution, with the output rows and columns that they come from."""
    most = _LARGEST_SIZE // 4  # so many rows of C are stored at once
    p = extent.patches
    if p is None:
        for n in _sizes(extent.n, config.cols):
            if n <= most:
                yield n, 0, 0
        return
    across, down = p.cols.outputs, p.rows.outputs
    for rows in _bands(down, across, config.cols):
        if rows * across <= most:
            yield rows * across, rows, across
    if down > 1 or across > config.cols:
        for cols in _sizes(across, config.cols):
            if cols < across and cols <= most:
                yield cols, 1, cols


def _bands(rows: int, across: int, edge: int) -> list[int]:
    """Output rows per tile that divide the image about evenly, or that make whole blocks."""
    parts = {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, rows}
    sizes = {-(-rows // p) for p in parts if p <= rows}
    whole = edge
    while across % 2 == 0 and whole > 1:
        across, whole = across // 2, whole // 2
    sizes |= {min(rows, x * whole) for x in (1, 2, 3, 4, 6, 8)}
    return sorted(sizes)


def _sizes(size: int, edge: int) -> list[int]:
    """Tile sizes along m or n: multiples of the array's edge that divide the size about evenly."""
    blocks = -(-size // edge)
    parts = {1, 2, 3, 4, 5, 6, 7, 8, 12, 16} | {
        -(-blocks // b) for b in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
    }
    sizes = {-(-blocks // p) * edge for p in parts}
    return sorted(min(s, size) for s in sizes if s <= _LARGEST_SIZE)


def _depths(
    extent: Extent, config: MachineConfig, m: int, n: int
) -> Iterator[tuple[int, Resident, Resident, bool]]:
    """Step sizes along K, with what stays in the buffers and which loop is outermost."""
    d = config.derived
    unit = extent.patches.kernel if extent.patches else 1
    align = max(config.load_a_bytes, config.load_b_bytes) if unit == 1 else unit
    a_first, b_first = extent.transposed_a, extent.patches is not None or not extent.transposed_b
    pitched = extent.patches is not None
    most_a, most_b = depth_of(d.buffer_a, a_first, m), depth_of(d.buffer_b, b_first, n, pitched)
    parts_a, parts_b = (1 if extent.batch == extent.images else 2), (1 if extent.batch == 1 else 2)
    whole_a = depth_of(d.buffer_a, a_first, extent.m, False, parts_a) >= extent.k
    whole_b = (
        extent.n <= _LARGEST_SIZE
        and depth_of(d.buffer_b, b_first, extent.n, pitched, parts_b) >= extent.k
        and (extent.patches is None or (n % config.cols == 0 and extent.images == 1 and n > 0))
        and not (extent.patches and n < extent.patches.cols.outputs)
    )
    tile, depth, whole = Resident.TILE, Resident.DEPTH, Resident.WHOLE
    for m_outermost in (True, False):
        stay_a, stay_b = tile, tile
        if whole_a and (m >= extent.m or not m_outermost):
            stay_a = whole
        elif most_a >= extent.k and m_outermost:
            stay_a = depth
        if whole_b and (n >= extent.n or m_outermost):
            stay_b = whole
        elif most_b >= extent.k and not m_outermost:
            stay_b = depth
        for kept_a, kept_b in dict.fromkeys(itertools.product((tile, stay_a), (tile, stay_b))):
            limits = [most for most, kept in ((most_a, kept_a), (most_b, kept_b)) if kept is tile]
            for k in _steps_of_k(extent.k, min(limits, default=extent.k), unit, align):
                # With all of K in one step, TILE and DEPTH are the same.
                a = tile if k == extent.k and kept_a is depth else kept_a
                b = tile if k == extent.k and kept_b is depth else kept_b
                yield k, a, b, m_outermost


def _steps_of_k(size: int, limit: int, unit: int, align: int) -> Iterator[int]:
    for part in (1, 2, 4, 8):
        most = min(limit // part, size, _LARGEST_SIZE) // unit * unit
        if most < 1:
            return
        aligned = most // align * align or most
        yield size if most == size else _even(size, aligned, align if aligned >= align else 1)


def _even(size: int, most: int, align: int) -> int:
    """The smallest multiple of `align` that needs no more steps than `most` does."""
    steps = -(-size // most)
    return min(most, round_up(-(-size // steps), align))


def depth_of(shape: BufferShape, lanes_first: bool, lanes: int, always: bool = False, parts: int = 2) -> int:
    """The largest depth of a tile with this many lanes, in one of several equal parts of a buffer.

    With `always`, blocks have the pitch that patches need, even if there is only one block.
    """
    most = shape.columns // parts // -(-lanes // shape.lanes)
    if not (lanes_first and lanes > shape.lanes) and not always:
        return most
    # The last block need not fill its pitch, but one formula for all blocks is simpler.
    return max(most - (most - shape.lanes) % shape.banks, 0)


def inner_cuts(config: MachineConfig, t: Blocking, parts: Sequence[int] = (2, 4, 8)) -> Iterator[Blocking]:
    """Cuts a blocking's partitions into as many inner tiles as the sync channel has tokens for."""
    blocks_m, blocks_n = -(-t.partition_m // config.rows), -(-t.partition_n // config.cols)
    depth = max(t.partition_k, config.rows)
    for count in parts:
        if count * (1 if t.single_c else 2) > config.channel_depth:
            continue
        if blocks_n >= count:
            tile = -(-blocks_n // count)
            if tile * blocks_m * depth >= SHORTEST:
                yield dataclasses.replace(t, tile_m=t.partition_m, tile_n=tile * config.cols)
        elif blocks_n == 1 and blocks_m >= count:
            tile = -(-blocks_m // count)
            if tile * depth >= SHORTEST:
                yield dataclasses.replace(t, tile_m=tile * config.rows, tile_n=t.partition_n)
