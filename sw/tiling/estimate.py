"""Estimates the time of a blocking on a machine, and splits it into its causes.

It uses average formulas, or, for short programs, follows the tiles one by one (`sw.tiling.pipeline`).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from hw.config import MachineConfig
from hw.isa import TIMING
from sw.patches import Axis, Patches
from sw.tiling.blocking import Blocking, Extent, Resident
from sw.tiling.pipeline import Step, follow

#: Cycles of one round of wait, issue, completion and signal, beyond memory latency.
ROUND = 60
#: Longest program, in steps, that is followed tile by tile.
FOLLOWED = 300


@dataclass(frozen=True)
class Estimate:
    """Predicted cycles and their breakdown.

    `ideal` cycles would do all multiplications at the array's peak. `ragged` cycles are lost to blocks cut
    off at edges and to short depths. `fill` comes before the first multiplication, `drain` after the last. In
    `waits`, the array waits for loads and stores. `loads_a`, `loads_b` and `stores` are the busy cycles of
    the ports.
    """

    cycles: float
    ideal: float
    ragged: float
    fill: float
    drain: float
    waits: float
    loads_a: float
    loads_b: float
    stores: float


def cut(size: int, tile: int) -> list[tuple[int, int]]:
    """Tile sizes along an axis, with the number of tiles of each size."""
    whole, rest = divmod(size, tile)
    return [(tile, whole)] * (whole > 0) + [(rest, 1)] * (rest > 0)


def widths(extent: Extent, t: Blocking) -> list[tuple[int, int]]:
    """Sizes along n of the partitions of one group's images, with the number of each size."""
    p = extent.patches
    if p is None:
        return cut(extent.n, t.partition_n)
    if t.out_cols == p.cols.outputs:
        return [(size, count * extent.images) for size, count in cut(extent.n, t.partition_n)]
    rows = p.rows.outputs * extent.images
    return [(size, count * rows) for size, count in cut(p.cols.outputs, t.out_cols)]


class Ports:
    """Cycles of the memory ports for parts of the operands and the result of one problem.

    `bandwidth`, in bytes per cycle, overrides the width of slower ports.
    """

    def __init__(self, extent: Extent, config: MachineConfig, bandwidth: Mapping[str, int] | None = None):
        self.extent, self.config = extent, config
        self._width = {port: config.port_bytes(port) for port in ("load_a", "load_b", "store")}
        rates = self._width | dict(bandwidth or {})
        self._cycles = {port: width / rates[port] for port, width in self._width.items()}
        self._patches: dict[tuple[int, int, int], float] = {}

    def beats(self, port: str, rows: int, size: int, step: int = 0) -> float:
        """Cycles for rows of this many bytes; they start at multiples of `step` from a word of the port."""
        width = self._width[port]
        step %= width
        words = _beats(size, step, width) if step else -(-size // width)
        return rows * words * self._cycles[port]

    def load_a(self, m: int, k: int, t: Blocking) -> float:
        """Cycles to load a part of A."""
        if self.extent.transposed_a:
            return self.beats("load_a", k, m, t.partition_m if m < self.extent.m else 0)
        return self.beats("load_a", m, k, t.partition_k if k < self.extent.k else 0)

    def load_b(self, n: int, k: int, t: Blocking) -> float:
        """Cycles to load a part of B; for a convolution, the patches of `n` outputs."""
        p = self.extent.patches
        if p is None and self.extent.transposed_b:
            return self.beats("load_b", n, k, t.partition_k if k < self.extent.k else 0)
        if p is None:
            return self.beats("load_b", k, n, t.partition_n if n < self.extent.n else 0)
        rows = -(-n // t.out_cols) if t.out_cols == p.cols.outputs else 1
        key = rows, min(n, t.out_cols), k // p.kernel
        if key not in self._patches:
            self._patches[key] = self._load_patches(p, *key)
        return self._patches[key]

    def _load_patches(self, p: Patches, rows: int, cols: int, channels: int) -> float:
        """Cycles to load the patches of a tile of outputs: per beat its writes, or its transfer if longer.

        Only tiles of whole output rows start at a word of the port.
        """
        width, span = self._width["load_b"], p.cols.span(cols)
        step = cols * p.cols.stride % width if cols < p.cols.outputs else 0
        beats = _beats(span, step, width) if step else -(-span // width)
        uses = _uses(p.rows, rows)
        # Padding beats take their own steps; for the others, a slow port adds its idle cycles.
        turn = self._cycles["load_b"]
        spans = sum(p.rows.span(size) * count for size, count in cut(p.rows.outputs, rows))
        held = -(-(p.cols.before % width + p.cols.size) // width)
        share = min(1.0, p.rows.read(rows) / spans) * min(1.0, held / beats)
        steps = 0.0
        for use, n in uses:
            least = use * p.cols.kernel
            steps += n * (share * math.ceil(least / turn) * turn + (1 - share) * least)
        # The search for the rows to write runs one cycle behind the last step, and takes as long for its
        # first one.
        finding = p.rows.span(rows) * (p.rows.kernel + TIMING.conv_settle)
        return TIMING.load_request + TIMING.conv_setup + finding + channels * beats * steps

    def store(self, m: int, n: int, t: Blocking) -> float:
        """Cycles to store a part of C, which depend on where in a word its rows start."""
        p = self.extent.patches
        row = p.cols.outputs if p is not None and t.out_cols < p.cols.outputs else 0
        step = t.partition_n if row or t.partition_n < self.extent.n else 0
        part = t.tile_n if n <= t.tile_n < t.partition_n else 0
        return self.beats("store", m, 4 * n, 4 * math.gcd(step, part, row))


@functools.lru_cache(maxsize=1 << 14)
def _beats(size: int, step: int, width: int) -> float:
    """Average number of words that a row of `size` bytes touches if it starts at any multiple of `step`."""
    offsets = range(0, width, math.gcd(step, width))
    return sum(-(-(offset + size) // width) for offset in offsets) / len(offsets)


@functools.lru_cache(maxsize=1 << 10)
def _uses(axis: Axis, outputs: int) -> list[tuple[int, int]]:
    """How many kernel rows use an image row of a tile, and how many image rows the tile has."""
    rows = Counter(i * axis.dilation + r * axis.stride for i in range(axis.kernel) for r in range(outputs))
    return sorted(Counter(rows.values()).items())


def loads(extent: Extent, t: Blocking) -> tuple[int, int]:
    """How often all of A and all of B are loaded."""
    count_m, count_n = -(-extent.m // t.partition_m), sum(count for _, count in widths(extent, t))
    steps_k = -(-extent.k // t.partition_k)
    return (
        _repeats(t.resident_a, count_n, steps_k, not t.m_outermost and count_m > 1),
        _repeats(t.resident_b, count_m, steps_k, t.m_outermost and count_n > 1),
    )


class _Engines(NamedTuple):
    """The work of each engine, in cycles: per step or tile, and in total.

    `step` is the array's time for one step of K of a partition. `last` and `partition` are the storer's for
    an inner tile and for a whole partition. `tiles_a` and `tiles_b` count loads, and `partitions` counts
    those of all products.
    """

    load_a: float
    load_b: float
    step: float
    last: float
    partition: float
    all_a: float
    all_b: float
    multiply: float
    stored: float
    tiles_a: int
    tiles_b: int
    partitions: int


def _engines(ports: Ports, t: Blocking) -> _Engines:
    e, c = ports.extent, ports.config
    groups = e.batch // e.images
    columns, depths = widths(e, t), cut(e.k, t.partition_k)
    m, n, k = min(t.partition_m, e.m), max(size for size, _ in columns), min(t.partition_k, e.k)
    count_m, count_n, steps_k = -(-e.m // t.partition_m), sum(c for _, c in columns), -(-e.k // t.partition_k)
    partitions = groups * count_m * count_n
    rows = min(m, c.rows)
    again_a, again_b = loads(e, t)
    down = sum(count * _down(c, e.m, d) for d, count in depths)
    multiply = groups * down * sum(count * -(-size // c.cols) for size, count in columns)
    multiply += partitions * steps_k * t.parts * max(0, rows + TIMING.gemm_turn - k)
    stored = groups * sum(count * ports.store(e.m, size, t) for size, count in columns)
    if t.single_c or c.acc_banks == 1:
        # The storer reads the accumulator while the array writes to it, and the array has priority.
        stored += multiply * min(1, c.rows / k) / c.acc_banks
    all_b = sum(x * y * ports.load_b(size, d, t) for size, x in columns for d, y in depths)
    return _Engines(
        load_a=ports.load_a(*_loaded(t.resident_a, (e.m, m), (e.k, k)), t),
        load_b=ports.load_b(*_loaded(t.resident_b, (e.n, n), (e.k, k)), t),
        step=-(-m // c.rows) * -(-n // c.cols) * max(k, rows),
        last=ports.store(min(m, t.tile_m), min(n, t.tile_n), t),
        partition=ports.store(m, n, t),
        all_a=groups * again_a * sum(count * ports.load_a(e.m, d, t) for d, count in depths),
        all_b=groups * again_b * all_b,
        multiply=multiply,
        stored=stored,
        tiles_a=groups * again_a * _tiles(t.resident_a, count_m, steps_k),
        tiles_b=groups * again_b * _tiles(t.resident_b, count_n, steps_k),
        partitions=partitions,
    )


def _tiles(resident: Resident, lanes: int, steps: int) -> int:
    """Number of different loads of an operand in one product, for these numbers of tiles and steps of K."""
    return (1 if resident is Resident.WHOLE else lanes) * (steps if resident is Resident.TILE else 1)


def _loaded(resident: Resident, size: tuple[int, int], depth: tuple[int, int]) -> tuple[int, int]:
    """Size and depth of one load, for the sizes of the whole operand and of a tile."""
    return size[resident is not Resident.WHOLE], depth[resident is Resident.TILE]


def _down(config: MachineConfig, m: int, k: int) -> int:
    """Cycles that the array takes for this many rows of a column of blocks."""
    full, rest = divmod(m, config.rows)
    return full * max(k, config.rows) + (max(k, rest) if rest else 0)


def _double_buffers(c: MachineConfig, t: Blocking, x: _Engines) -> float:
    """Cycles that double buffering takes.

    A buffer half is used by a tile and then loaded with the next tile but one.
    """
    by_a = x.tiles_a * (x.load_a + c.load_a_latency + ROUND) / 2 + x.multiply / 2 if x.tiles_a > 2 else 0
    by_b = x.tiles_b * (x.load_b + c.load_b_latency + ROUND) / 2 + x.multiply / 2 if x.tiles_b > 2 else 0
    wait = c.store_latency + ROUND
    if t.single_c:
        # An inner tile is stored while other tiles of its partition, and earlier ones of the next, multiply.
        parts = t.parts
        stall = max(
            0,
            x.last + wait - x.step * (parts - 1) / parts,
            parts * x.last + wait - x.step * (2 * parts - 2) / parts,
        )
        # If loads are the bottleneck, the loads of two steps continue during the stall.
        still = max(0, stall - 2 * max(x.load_a, x.load_b))
        by_c = max(x.multiply + x.partitions * stall, max(x.all_a, x.all_b) + x.partitions * still)
    else:
        late = max(x.last, x.partition - x.step * (1 - 1 / t.parts))
        by_c = (x.partitions * (late + wait) + x.multiply) / 2 if x.partitions > 2 else 0
    return max(by_a, by_b, by_c)


def estimated(ports: Ports, t: Blocking) -> Estimate:
    """The time of a whole program: that of the busiest engine, plus what comes before and after it."""
    e, c, x = ports.extent, ports.config, _engines(ports, t)
    wait = max(c.load_a_latency, c.load_b_latency)
    fill = max(x.load_a, x.load_b) + wait + ROUND / 2
    drain = x.last + c.store_latency + ROUND / 2
    first_tile = x.step * (-(-e.k // t.partition_k) - 1) + x.step / t.parts
    together = e.batch // e.images * _together(ports, t)
    cycles = max(
        max(x.all_a, x.all_b) + wait + ROUND / 2 + x.step + drain,
        fill + max(together, _double_buffers(c, t, x)) + drain,
        fill + first_tile + x.stored + c.store_latency + ROUND / 2,
    )
    ideal = e.batch * e.m * e.n * e.k / c.macs_per_cycle
    waits = cycles - x.multiply - fill - drain
    return Estimate(cycles, ideal, x.multiply - ideal, fill, drain, waits, x.all_a, x.all_b, x.stored)


def _together(ports: Ports, t: Blocking) -> float:
    """Cycles of one group's partitions, each as long as its slowest engine takes.

    No engine runs far ahead. Partitions at the edges have less to multiply, but often as much to load.
    """
    e, c = ports.extent, ports.config
    columns, depths, rows = widths(e, t), cut(e.k, t.partition_k), cut(e.m, t.partition_m)
    again_a, again_b = loads(e, t)
    count_m, count_n = sum(x for _, x in rows), sum(x for _, x in columns)
    cycles = 0.0
    for m, times_m in rows:
        down = sum(x * _down(c, m, d) for d, x in depths)
        load_a = sum(x * ports.load_a(m, d, t) for d, x in depths) * again_a / count_n
        for n, times_n in columns:
            load_b = sum(x * ports.load_b(n, d, t) for d, x in depths) * again_b / count_m
            cycles += times_m * times_n * max(down * -(-n // c.cols), load_a, load_b)
    return cycles


def refined(ports: Ports, t: Blocking, estimate: Estimate | None = None) -> Estimate:
    """The estimate; for short programs, by following the tiles one by one (`sw.tiling.pipeline`)."""
    estimate = estimate or estimated(ports, t)
    e, config = ports.extent, ports.config
    groups = e.batch // e.images
    axes = cut(e.m, t.partition_m), widths(e, t), cut(e.k, t.partition_k)
    if groups * math.prod(sum(count for _, count in sizes) for sizes in axes) > FOLLOWED:
        return estimate
    ms, ns, ks = map(_each, axes)
    order = [(i, j) for i in range(len(ms)) for j in range(len(ns))]
    if not t.m_outermost:
        order.sort(key=lambda pair: pair[::-1])
    # Tile sizes repeat, so the times are cached.
    load_a = functools.cache(lambda m, k: ports.load_a(*_loaded(t.resident_a, (e.m, m), (e.k, k)), t))
    load_b = functools.cache(lambda n, k: ports.load_b(*_loaded(t.resident_b, (e.n, n), (e.k, k)), t))
    tiles = functools.cache(
        lambda m, n: [(x, y) for x in _each(cut(m, t.tile_m)) for y in _each(cut(n, t.tile_n))]
    )
    products = functools.cache(lambda m, n, k: tuple(_product(config, x, y, k) for x, y in tiles(m, n)))
    stores = functools.cache(lambda m, n: [ports.store(x, y, t) for x, y in tiles(m, n)])
    steps: list[Step] = []
    seen_a: object = None
    seen_b: object = None
    for group, (i, j) in itertools.product(range(groups), order):
        m, n = ms[i], ns[j]
        for s, k in enumerate(ks):
            key_a = group, *_loaded(t.resident_a, (0, i), (0, s))
            key_b = group, *_loaded(t.resident_b, (0, j), (0, s))
            loads = load_a(m, k) if key_a != seen_a else 0, load_b(n, k) if key_b != seen_b else 0
            stored = stores(m, n) if s == len(ks) - 1 else ()
            steps.append(Step(*loads, products(m, n, k), min(1.0, config.rows / k), stored))
            seen_a, seen_b = key_a, key_b
    loops = sum(x > 1 for x in (groups, len(ms), len(ns), len(ks)))
    patches = e.patches is not None
    cycles, fill, drain = follow(steps, config, loops=loops, single=t.single_c, patches=patches)
    multiply = estimate.ideal + estimate.ragged
    return dataclasses.replace(
        estimate, cycles=cycles, fill=fill, drain=drain, waits=cycles - multiply - fill - drain
    )


def _each(sizes: list[tuple[int, int]]) -> list[int]:
    return [size for size, count in sizes for _ in range(count)]


def _product(config: MachineConfig, m: int, n: int, k: int) -> tuple[float, int, int]:
    """One product of the array: cycles to its last read, rows of its last block, cycles to the next one."""
    time = -(-n // config.cols) * _down(config, m, k)
    rows = m % config.rows or config.rows
    return time - max(k, rows) + k, rows, max(0, rows + TIMING.gemm_turn - k)


def _repeats(resident: Resident, partitions: int, steps_k: int, inside: bool) -> int:
    """How often an operand is loaded for one product with `partitions` partitions of the other operand."""
    if resident is Resident.WHOLE or partitions == 1:
        return 1
    if resident is Resident.DEPTH or steps_k == 1:
        return partitions if inside else 1
    return partitions
