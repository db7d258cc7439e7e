"""Where the cycles of operators went: every cycle counts for one thing, by which engines were busy in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hw.config import ENGINES
from jacquard.report.html.data import OperatorRow
from jacquard.report.html.lanes import KINDS, Lanes

#: What a cycle can go to, in the order of the picture, and what that means.
LOSSES = {
    "useful": "array at its peak",
    "partial": "array busy, not full: edges of tiles, start and end of blocks",
    "grid": "grid busy, array idle",
    "fill": "only loading, before the first operation of array or grid",
    "loads": "only loading, array and grid wait",
    "store": "only storing",
    "idle": "no engine busy: latencies and synchronisation",
}
#: Engines of one class; a cycle counts for the first class that is busy in it.
_CLASSES = (("gemm",), ("cgra",), ("load_a", "load_b", "load_c"), ("store",))


@dataclass(frozen=True)
class Busy:
    """Cycles of each class (the last: of none) up to borders, between which nothing changes."""

    borders: np.ndarray
    sums: np.ndarray

    def between(self, start: float, end: float) -> np.ndarray:
        """Cycles of each class from `start` to `end`, shape (5,)."""
        ends = [np.interp([start, end], self.borders, total) for total in self.sums]
        found: np.ndarray = np.array([b - a for a, b in ends])
        return found

    def first(self, start: float, end: float) -> float:
        """The first cycle from `start` on, up to `end`, in which array or grid is busy."""
        work = self.sums[0] + self.sums[1]
        done = float(np.interp(start, self.borders, work))
        # The last border up to which no work was done.
        at = int(np.searchsorted(work, done, "right")) - 1
        return min(max(start, float(self.borders[at])), end)


def busy(lanes: Lanes, cycles: int) -> Busy:
    """What is busy when, on an axis of so many cycles."""
    lists = {ENGINES[n.number]: lane for n, lane in lanes.items() if KINDS[n.kind] == "engine"}
    edges = [lane[key] for lane in lists.values() for key in ("start", "end")]
    borders = np.unique(np.concatenate([*edges, np.array([0, cycles])]))
    lengths = np.diff(borders)
    free = np.ones(len(lengths), bool)
    sums = []
    for engines in _CLASSES:
        on = np.zeros(len(lengths), bool)
        for engine in engines:
            if engine in lists:
                # Slices of an engine do not overlap: in one if more began than ended.
                began = np.searchsorted(lists[engine]["start"], borders[:-1], "right")
                ended = np.searchsorted(lists[engine]["end"], borders[:-1], "right")
                on |= began > ended
        sums.append(np.where(on & free, lengths, 0))
        free &= ~on
    sums.append(np.where(free, lengths, 0))
    totals = [np.concatenate([[0], np.cumsum(part)]) for part in sums]
    return Busy(borders.astype(np.float64), np.array(totals, np.float64))


def losses(found: Busy, operator: OperatorRow, macs_per_cycle: int) -> dict[str, int]:
    """Cycles of an operator by what they went to (keys of `LOSSES`); their sum are its cycles."""
    array, grid, loads, store, idle = found.between(operator.start, operator.end).round().astype(int).tolist()
    useful = min(-(-operator.macs // macs_per_cycle), array)
    begin = found.first(operator.start, operator.end)
    fill = min(round(float(found.between(operator.start, begin)[2])), loads)
    return {
        "useful": useful,
        "partial": array - useful,
        "grid": grid,
        "fill": fill,
        "loads": loads - fill,
        "store": store,
        "idle": idle,
    }
