"""Times a short program by following its tiles through loaders, array and storer.

This is coarser than the cycle model (`cosim.models.cycle`), which executes the instructions. Here, a tile is
one step of one engine, and passing it to the next engine takes a constant time. It serves programs too short
for a steady state, for which an average formula would be wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from hw.config import MachineConfig
from hw.isa import TIMING

#: Turns from a warp's start to its first operation: base, additional per loop, additional for patches.
START, START_LOOP, START_PATCHES = 4, 4, 30
#: Turns from a completion to the issue of a dependent operation in another warp: signal, waits, issue.
HAND = 4
#: Turns a warp takes from one of its operations to the next, including waits and signals.
ROUND = 18
#: Cycles from a load's last response to the array's first read, not counting `HAND`.
LOADED = TIMING.load_write + TIMING.enqueue + TIMING.gemm_first
#: Cycles from a product's last column (rows still to drain) to the next operation, not counting `HAND`.
MULTIPLIED = TIMING.gemm_drain + TIMING.acc_write + TIMING.enqueue
#: Cycles from the issue of an operation to its first beat at the port.
ISSUED = TIMING.enqueue + 3
#: Cycles of a store in addition to its beats and the latency.
STORED = TIMING.store_response + TIMING.store_output + TIMING.store_take


class Lane:
    """An engine that fills one half of a buffer while the other half is in use."""

    def __init__(self, start: float, latency: float, period: int):
        self.free, self.issue = start, 0.0
        self.latency, self.period = latency, period
        self.halves = [0.0, 0.0]
        self.turn = 0
        self.ready = 0.0

    def load(self, time: float, released: float) -> None:
        """Loads a tile; `released` is when the tile in use until now is no longer needed."""
        self.halves[1 - self.turn] = released
        begin = max(self.free, self.halves[self.turn], self.issue)
        self.issue = begin + ROUND * self.period
        self.free = begin + time
        self.ready = self.free + self.latency + LOADED + HAND * self.period
        self.turn = 1 - self.turn


class Step(NamedTuple):
    """One step of K of a partition.

    Holds the cycles to load A and B (0 if they stay in the buffers). For each inner product: cycles to the
    last read, rows of the last block, and cycles until the next may start. Also the share of cycles in which
    the array writes to the accumulator, and for the last step of a partition, the cycles to store each inner
    tile.
    """

    load_a: float
    load_b: float
    products: Sequence[tuple[float, int, int]]
    writes: float
    stores: Sequence[float]


def follow(
    steps: Sequence[Step], config: MachineConfig, *, loops: int, single: bool, patches: bool
) -> tuple[float, float, float]:
    """Cycles of the whole program, those before the first product, and those after the last.

    The program has `loops` nested loops. Two partitions share the accumulator's banks equally, or share the
    only bank; then the storer waits for the array when both work on the same partition. With `single`, one
    partition has all banks, and the storer waits whenever both use the same bank. With `patches`, B is loaded
    as the patches of a convolution.
    """
    period = config.derived.period
    first_issue = (START + START_LOOP * loops) * period + ISSUED
    a = Lane(first_issue, config.load_a_latency, period)
    b = Lane(first_issue + START_PATCHES * patches * period, config.load_b_latency, period)
    multiplied = MULTIPLIED + HAND * period
    banks = config.acc_banks if single else max(1, config.acc_banks // 2)
    array = array_done = 0.0
    turns: list[dict[int, float]] = [{}] if single else [{}, {}]
    turn = 0
    store = stored = issue = store_issue = 0.0
    first = -1.0
    fresh = True
    for step in steps:
        if step.load_a:
            a.load(step.load_a, array_done)
        if step.load_b:
            b.load(step.load_b, array_done)
        begin = max(a.ready, b.ready)
        if fresh and not single:
            begin = max(begin, *turns[turn].values(), 0.0)
        end = inf
        if step.stores and not single:
            end = max(array, begin) + sum(time + gap for time, _, gap in step.products)
        share = 1 - step.writes / banks
        for i, (time, rows, gap) in enumerate(step.products):
            if single and fresh:
                begin = max(begin, turns[turn].get(i, 0.0))
            start = max(array, begin, issue)
            issue = start + ROUND * period
            first = start if first < 0 else first
            array_done = start + time + rows + multiplied
            array = start + time + gap
            if step.stores:
                store_begin = max(store, array_done + ISSUED, store_issue)
                store_issue = store_begin + ROUND * period
                store = _stored(store_begin, step.stores[i], end, share)
                stored = store + config.store_latency + STORED
                turns[turn][i] = stored + HAND * period
        fresh = bool(step.stores)
        if fresh:
            turn = (turn + 1) % len(turns)
    return stored, first, stored - array


def _stored(begin: float, time: float, until: float, share: float) -> float:
    """When a store that takes `time` cycles ends, if it has only a share of the cycles before `until`."""
    if begin >= until:
        return begin + time
    if time <= (until - begin) * share:
        return begin + time / share
    return until + time - (until - begin) * share
