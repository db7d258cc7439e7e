"""Removes redundant dependences: those a sink already knows, and those that its other edges imply.

Vector clocks hold what is known: for every instance and every warp, the latest instance of that warp known to
be complete. An edge X -> Y is redundant under `OBTAINED` if X is, or reaches, the instance directly before Y
in Y's warp. Under `FULL`, it is also redundant if X reaches, or precedes in its warp, the source of another
edge into Y. `FULL` leaves the transitive reduction (docs/warps.md).
"""

from __future__ import annotations

import enum
import itertools
from bisect import bisect_right

import numpy as np
import numpy.typing as npt

from sw.ir.syntax import paused_collector
from sw.ir.vector import Array


class Reduction(enum.Enum):
    """Which redundant dependences to remove."""

    OBTAINED = "obtained"
    FULL = "full"


def reduce(pairs: Array, warp: Array, reduction: Reduction) -> npt.NDArray[np.bool_]:
    """Which edges to keep; `pairs` (n × 2) are source and later sink in another warp, `warp` is by instance.

    Instances are numbered in sequential order.
    """
    numbers, columns = np.unique(warp, return_inverse=True)
    place: list[int] = columns.reshape(-1).tolist()
    nothing = (-1,) * numbers.size
    #: For each warp its sinks, and what is known when each starts; nothing is known before the first.
    sinks: list[list[int]] = [[-1] for _ in nothing]
    clocks = [[nothing] for _ in nothing]
    kept = np.zeros(len(pairs), bool)
    order = np.argsort(pairs[:, 1], kind="stable")
    edges = zip(order.tolist(), *pairs[order].T.tolist(), strict=True)
    with paused_collector():
        for sink, into in itertools.groupby(edges, key=lambda edge: edge[2]):
            own = place[sink]
            before = clocks[own][-1]
            latest, implied = list(nothing), nothing
            found = [(edge, source, place[source]) for edge, source, _ in into]
            for _, source, other in found:
                latest[other] = max(latest[other], source)
                told = clocks[other][bisect_right(sinks[other], source) - 1]
                implied = tuple(map(max, implied, told))
            for edge, source, other in found:
                # What a source knows of its own warp predates it, so an edge never implies itself.
                needed = source == latest[other] and implied[other] < source
                kept[edge] = before[other] < source and (needed or reduction is Reduction.OBTAINED)
            sinks[own].append(sink)
            clocks[own].append(tuple(map(max, before, latest, implied)))
    return kept
