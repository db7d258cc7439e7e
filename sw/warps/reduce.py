"""Redundant dependences go: what a sink has already obtained, and what its other edges imply.

Vector clocks tell what is known where: for every instance and every warp, the latest instance of that warp
that is known to be complete. An edge X -> Y is redundant by `OBTAINED` where X is, or reaches, the instance
directly before Y in Y's warp; by `FULL` also where X reaches, or is before in its warp, the source of another
edge into Y. What `FULL` leaves is the transitive reduction (docs/warps.md).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from sw.ir.syntax import paused_collector
from sw.ir.vector import Array

Side = Literal["left", "right"]


class Reduction(enum.Enum):
    """Which redundant dependences go."""

    OBTAINED = "obtained"
    FULL = "full"


@dataclass(frozen=True)
class Clocks:
    """What is known at instances, which are numbers in sequential order.

    `rows` holds for every sink, an instance that has edges into it, the latest instance of each warp that is
    complete when it starts, -1 for none; `place` gives the column of a warp. `keys` are the sinks by warp and
    time, `order` their rows.
    """

    warp: Array
    place: Array
    keys: Array
    order: Array
    rows: Array

    def at(self, nodes: Array) -> Array:
        """What is known when the instances start, their own edges included: instances × warps."""
        return self._rows(nodes, "right")

    def before(self, nodes: Array) -> Array:
        """What is known when the instances before them in their warps have started."""
        return self._rows(nodes, "left")

    def _rows(self, nodes: Array, side: Side) -> Array:
        return self.rows[
            _last(self.keys, self.order, self.place[self.warp[nodes]], nodes, self.warp.size, side)
        ]


def _last(keys: Array, order: Array, warp: Array, nodes: Array, count: int, side: Side) -> Array:
    """The row of the last sink in the warp before each node (right: or the node itself), -1 for none."""
    code = warp * count + nodes
    found = np.searchsorted(keys, code, side=side) - 1
    fits = (found >= 0) & (keys[found] // max(1, count) == warp) if keys.size else np.zeros(code.size, bool)
    return np.where(fits, order[found] if keys.size else -1, -1)


def clocks(pairs: Array, warp: Array) -> Clocks:
    """Vector clocks of instances with these warps and edges (n × 2: source, later sink in another warp)."""
    count = warp.size
    numbers = np.unique(warp)
    place = np.zeros(int(numbers.max(initial=0)) + 1, np.int64)
    place[numbers] = np.arange(numbers.size)
    # Of several sources of one warp the last knows all that the others do.
    pairs = pairs[latest(pairs, warp)]
    pairs = pairs[np.argsort(pairs[:, 1], kind="stable")]
    sinks, first = np.unique(pairs[:, 1], return_index=True)
    own = place[warp[sinks]]
    order = np.lexsort((sinks, own))
    keys = (own * count + sinks)[order]
    source = pairs[:, 0]
    source_warp = place[warp[source]]
    known = _last(keys, order, source_warp, source, count, "right")
    previous = _last(keys, order, own, sinks, count, "left")
    with paused_collector():
        rows = _follow(
            previous.tolist(),
            [*first.tolist(), len(pairs)],
            source.tolist(),
            source_warp.tolist(),
            known.tolist(),
            numbers.size,
        )
    return Clocks(warp, place, keys, order, np.array(rows, np.int64).reshape(-1, numbers.size))


def _follow(
    previous: list[int], first: list[int], source: list[int], warp: list[int], known: list[int], warps: int
) -> list[list[int]]:
    """The clock of every sink, in order of time; the last row, which -1 finds, is that of nothing known."""
    nothing = [-1] * warps
    rows: list[list[int]] = []
    for n, before in enumerate(previous):
        row = rows[before] if before >= 0 else nothing
        for e in range(first[n], first[n + 1]):
            w = warp[e]
            if row[w] < source[e]:
                row = list(map(max, row, rows[known[e]])) if known[e] >= 0 else list(row)
                row[w] = source[e]
        rows.append(row)
    rows.append(nothing)
    return rows


def latest(pairs: Array, warp: Array) -> npt.NDArray[np.bool_]:
    """Which edges come from the last source in its warp, of those into one sink."""
    if not len(pairs):
        return np.zeros(0, bool)
    source_warp = warp[pairs[:, 0]]
    order = np.lexsort((pairs[:, 0], source_warp, pairs[:, 1]))
    sorted_warp, sorted_sink = source_warp[order], pairs[order, 1]
    last = np.append((sorted_warp[1:] != sorted_warp[:-1]) | (sorted_sink[1:] != sorted_sink[:-1]), True)
    kept = np.zeros(len(pairs), bool)
    kept[order] = last
    return kept


def reduce(pairs: Array, warp: Array, reduction: Reduction) -> npt.NDArray[np.bool_]:
    """Which edges stay; `pairs` (n × 2) are source and later sink in another warp, `warp` is by instance."""
    if not len(pairs):
        return np.zeros(0, bool)
    made = clocks(pairs, warp)
    source, sink = pairs.T
    column = made.place[warp[source]]
    kept: npt.NDArray[np.bool_] = made.before(sink)[np.arange(len(pairs)), column] < source
    if reduction is Reduction.OBTAINED:
        return kept
    kept &= latest(pairs, warp)
    # What a source knows of its own warp is older than the source, so an edge never implies itself.
    order = np.argsort(sink, kind="stable")
    first = np.flatnonzero(np.append(True, sink[order][1:] != sink[order][:-1]))
    implied = np.maximum.reduceat(made.at(source[order]), first)
    group = np.zeros(len(pairs), np.int64)
    group[order] = np.repeat(np.arange(first.size), np.diff(np.append(first, len(pairs))))
    kept &= implied[group, column] < source
    return kept
