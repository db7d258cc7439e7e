"""Chooses tile sizes and loop order for a matrix product by a simple estimate of the time it takes.

Half of each buffer and half of the accumulator hold one tile, so that the next is loaded, multiplied or
stored meanwhile. The estimate takes every engine's busy time and what cannot overlap at start and end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hw.config import BufferShape, MachineConfig
from hw.errors import InputError
from hw.isa import SIZE_BITS
from sw.layout import round_up

#: Cycles that a round of wait, issue, completion and signal takes beyond the latency of memory.
ROUND = 30
#: What a step counts beyond its time: large tiles ask less of warps and memory when memory stalls.
STEP_PENALTY, TRAFFIC_PENALTY = 16, 1 / 32
_LARGEST_SIZE = (1 << SIZE_BITS) - 1


@dataclass(frozen=True)
class Extent:
    """What is tiled: sizes after batches are folded, layouts, and how many products follow each other."""

    m: int
    n: int
    k: int
    transposed_a: bool
    transposed_b: bool
    batch: int


@dataclass(frozen=True)
class Tiles:
    """Tile sizes, loop order (`mn`: m outside, n inside; or `nm`; k is innermost), buffer pitches."""

    m: int
    n: int
    k: int
    order: str
    pitch_a: int
    pitch_b: int
    words: int
    estimate: int


def pitch(shape: BufferShape, transposed_load: bool, blocks: int, depth: int) -> int:
    """Columns from one block of lanes to the next.

    A `_t` load that reaches a second block needs a pitch congruent to the lanes modulo the banks.
    """
    if not transposed_load or blocks == 1:
        return depth
    return depth + (shape.lanes - depth) % shape.banks


def choose(extent: Extent, config: MachineConfig, bandwidth: Mapping[str, int] | None = None) -> Tiles:
    """The tiles of least estimated time; `bandwidth` in bytes per cycle for ports slower than their width.

    Raises `InputError` when not even the smallest tile fits half of the buffers.
    """
    rate = {
        port: (bandwidth or {}).get(port, config.port_bytes(port)) for port in ("load_a", "load_b", "store")
    }
    best: Tiles | None = None
    for m, n, k in _candidates(extent, config):
        for order in ("mn", "nm"):
            tiles = _tiles(extent, config, m, n, k, order, rate)
            if tiles and (best is None or tiles.estimate < best.estimate):
                best = tiles
    if best is None:
        raise InputError(
            f"buffers must hold two tiles: no tile of a {extent.m}x{extent.k}x{extent.n} product fits "
            f"half of buffer A ({config.buffer_a_bytes} bytes), B ({config.buffer_b_bytes}) "
            f"and accumulator ({config.acc_bytes})"
        )
    return best


def _candidates(extent: Extent, config: MachineConfig) -> Iterator[tuple[int, int, int]]:
    """Tile sizes worth estimating: evenly divided, whole blocks and whole beats where that is possible."""
    d = config.derived
    half_words = d.acc_words // 2
    align = max(config.load_a_bytes, config.load_b_bytes)
    seen = set()
    for m in _sizes(extent.m, config.rows):
        for n in _sizes(extent.n, config.cols):
            if min(m, extent.m) * -(-n // config.cols) > half_words:
                continue
            depth = min(
                _depth(d.buffer_a, extent.transposed_a, m), _depth(d.buffer_b, not extent.transposed_b, n)
            )
            for part in (1, 2, 4, 8):
                most = min(depth // part, extent.k, _LARGEST_SIZE)
                if most < 1:
                    break
                aligned = most // align * align or most
                k = (
                    extent.k
                    if most == extent.k
                    else _even(extent.k, aligned, align if aligned >= align else 1)
                )
                if k <= depth and (m, n, k) not in seen:
                    seen.add((m, n, k))
                    yield m, n, k


def _sizes(size: int, edge: int) -> list[int]:
    """Tile sizes along m or n: multiples of the array's edge that divide the size about evenly."""
    blocks = -(-size // edge)
    parts = {1, 2, 3, 4, 5, 6, 7, 8, 12, 16} | {
        -(-blocks // b) for b in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
    }
    sizes = {-(-blocks // p) * edge for p in parts}
    return sorted(min(s, size) for s in sizes if s <= _LARGEST_SIZE)


def _even(size: int, most: int, align: int) -> int:
    """The smallest multiple of `align` that needs no more steps than `most` does."""
    steps = -(-size // most)
    return min(most, round_up(-(-size // steps), align))


def _depth(shape: BufferShape, transposed_load: bool, lanes: int) -> int:
    """The largest depth of a tile of that many lanes in half of a buffer."""
    half = shape.columns // 2
    blocks = -(-lanes // shape.lanes)
    if not transposed_load or blocks == 1:
        return half // blocks
    # The last block need not be a whole pitch, but a pitch that fits for all blocks is simpler.
    spare = (half // blocks - shape.lanes) % shape.banks
    return max(half // blocks - spare, 0)


def _tiles(
    e: Extent, config: MachineConfig, m: int, n: int, k: int, order: str, rate: Mapping[str, int]
) -> Tiles | None:
    d = config.derived
    blocks_m, blocks_n = -(-m // config.rows), -(-n // config.cols)
    if 4 * n > _LARGEST_SIZE:
        return None
    pitch_a = pitch(d.buffer_a, e.transposed_a, blocks_m, k)
    pitch_b = pitch(d.buffer_b, not e.transposed_b, blocks_n, k)
    estimate = _estimate(e, config, (m, n, k), order, rate)
    return Tiles(m, n, k, order, pitch_a, pitch_b, m * blocks_n, estimate)


def _estimate(
    e: Extent, config: MachineConfig, tile: tuple[int, int, int], order: str, rate: Mapping[str, int]
) -> int:
    """Cycles of the whole: the busiest engine's time plus what comes before its start and after its end."""
    m, n, k = tile
    steps_m, steps_n, steps_k = -(-e.m // m), -(-e.n // n), -(-e.k // k)

    def load(port: str, transposed: bool, lanes: int, depth: int) -> float:
        outer, inner = (depth, lanes) if transposed else (lanes, depth)
        width = config.port_bytes(port)
        return outer * -(-inner // width) * width / rate[port]

    def store(rows: int, columns: int) -> float:
        width = config.store_bytes
        return rows * -(-4 * columns // width) * width / rate["store"]

    load_a = load("load_a", e.transposed_a, m, k)
    load_b = load("load_b", not e.transposed_b, n, k)
    rounds = -(-m // config.rows) * -(-n // config.cols)
    step = rounds * max(k, min(m, config.rows))
    last = store(m, n)

    # A tile is loaded once per step of the innermost loop that moves it.
    outer_a = order == "mn"
    again_a = steps_n if steps_k > 1 or (not outer_a and steps_n > 1 and steps_m > 1) else 1
    again_b = steps_m if steps_k > 1 or (outer_a and steps_m > 1 and steps_n > 1) else 1
    total_a = e.batch * again_a * steps_k * load("load_a", e.transposed_a, e.m, -(-e.k // steps_k))
    total_b = e.batch * again_b * steps_k * load("load_b", not e.transposed_b, e.n, -(-e.k // steps_k))
    full = -(-e.m // config.rows) * -(-e.n // config.cols)
    multiply = e.batch * full * sum(max(depth, min(e.m, config.rows)) for depth in _depths(e.k, k))
    stored = e.batch * store(e.m, -(-e.n // steps_n)) * steps_n

    wait = max(config.load_a_latency, config.load_b_latency)
    count = e.batch * steps_m * steps_n
    first, fill = max(load_a, load_b) + wait, max(load_a, load_b) + wait + step
    # Two tiles in flight: a round of load, multiply and hand back lasts at most two steps.
    hand = count * steps_k * (step + wait + ROUND + max(load_a, load_b)) / 2
    hand_c = count * (steps_k * step + last + config.store_latency + ROUND) / 2
    penalty = STEP_PENALTY * count * steps_k + TRAFFIC_PENALTY * (total_a + total_b)
    return round(
        max(
            max(total_a, total_b) + step + last,
            first + max(multiply, hand) + last,
            fill + max(stored, hand_c),
        )
        + penalty
    )


def _depths(size: int, tile: int) -> list[int]:
    whole, rest = divmod(size, tile)
    return [tile] * whole + ([rest] if rest else [])
