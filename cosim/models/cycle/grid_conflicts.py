"""The cycles in which storer and array read banks that the CGRA may want to read."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable

import numpy as np

from cosim.models.cycle.gemm import Drains
from cosim.models.cycle.grid_steps import Resource
from cosim.models.cycle.storer import StorerModel
from hw.fabric.bitstream import ACC, SCRATCH

SCRATCHPAD = Resource(SCRATCH, 0)
#: A cycle after all others.
BEYOND = 1 << 62


class Busy:
    """Cycles from `first` to `last` in which other engines read any of `wanted`."""

    def __init__(
        self, storer: StorerModel, drains: Drains, wanted: Collection[Resource], first: int, last: int
    ):
        self._cycles: dict[Resource, set[int]] = {what: set() for what in wanted}
        for space, (cycles, read) in storer.reads(first, last):
            for bank in np.unique(read).tolist() if space == ACC else [0]:
                part = cycles[read == bank] if space == ACC else cycles
                self._add(Resource(space, bank), part.tolist())
        for what in wanted:
            cycle = first if what.space == ACC else BEYOND
            while cycle <= last and (block := drains.next_block(what.bank, cycle)) is not None:
                self._add(what, range(max(block[0], first), min(block[1], last + 1)))
                cycle = block[1]
        self._any = sorted(set().union(*self._cycles.values()))

    def _add(self, what: Resource, cycles: Iterable[int]) -> None:
        if what in self._cycles:
            self._cycles[what].update(cycles)

    def at(self, what: Resource, cycle: int) -> bool:
        """Whether another engine reads `what` in `cycle`."""
        return cycle in self._cycles[what]

    def next(self, cycle: int) -> int:
        """The first cycle from `cycle` on in which any of the wanted resources is read."""
        at = bisect_left(self._any, cycle)
        return self._any[at] if at < len(self._any) else BEYOND

    def free(self, what: Resource, cycle: int, n: int) -> int:
        """The n-th (from 1) cycle from `cycle` on in which no other engine reads `what`."""
        for blocked in sorted(c for c in self._cycles[what] if c >= cycle):
            if blocked >= cycle + n:
                break
            n -= blocked - cycle
            cycle = blocked + 1
        return cycle + n - 1
