"""Waits and signals that nothing needs go.

Where all that one warp tells another shares a channel, parts of the program meet: a part's last token may
say what the next part's first one says, and tokens that are taken out behind one part are filled in again
before the next. A wait, a signal or one of each is left out where all that is demanded is still ordered, no
channel can overflow, and no wait takes a later token than before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from sw.ir.vector import Array
from sw.warps.sites import SyncSite
from sw.warps.tokens import Demand, Sync, World
from sw.warps.wait_clocks import WaitClocks, room_of

#: Operations of all runs together up to which every wait and signal is tried.
_MOST = 200_000


def pruned(world: World, syncs: Sequence[Sync], demands: Sequence[Demand]) -> list[Sync]:
    """The syncs, one for each ordered pair of warps, without what is needless; large programs keep all."""
    if world.instances > _MOST:
        return list(syncs)
    known = WaitClocks(world, syncs, demands, rooms=True)
    if not known.in_order or len(known.demands) < len(demands):
        return list(syncs)
    channels = [_Channel(world, known, n, s) for n, s in enumerate(syncs)]
    while sum(c.shrink() for c in channels):
        pass
    return [c.joined() for c in channels if c.waits]


class _Channel:
    """The waits and signals of a channel that are left, each site as often as it counts."""

    def __init__(self, world: World, known: WaitClocks, number: int, sync: Sync):
        self.world, self.known, self.number, self.sync = world, known, number, sync
        self.signals, self.waits = (
            [replace(s, count=1) for s in sites for _ in range(s.count)]
            for sites in (sync.signals, sync.waits)
        )
        self.events = known.events[number]
        self._find()

    def _find(self) -> None:
        """When tokens are given and taken."""
        left = self.left()
        self.given, self.taken = self.world.times(left.signals), self.world.times(left.waits)
        self.tokens = self.world.tokens(left)

    def left(self) -> Sync:
        """The sync of what is left."""
        return replace(self.sync, signals=tuple(self.signals), waits=tuple(self.waits))

    def joined(self) -> Sync:
        """The same with equal sites counted."""
        signals, waits = (
            tuple(replace(s, count=sites.count(s)) for s in dict.fromkeys(sites))
            for sites in (self.signals, self.waits)
        )
        return replace(self.sync, signals=signals, waits=waits)

    def shrink(self) -> bool:
        """Leave out what can go; whether there was anything."""
        found = [pair for pair in self._candidates() if self._leave_out(*pair)]
        return bool(found)

    def _candidates(self) -> Iterator[tuple[SyncSite | None, SyncSite | None]]:
        """Waits with signals beside them and those that give their tokens; then each by itself."""
        times = [self.world.passes[s] for s in self.signals]
        order = np.argsort(np.concatenate([*times, np.empty(0, np.int64)]), kind="stable")
        site = np.repeat(np.arange(len(times)), [t.size for t in times])[order]
        signals, given = list(self.signals), self.given
        for wait in list(dict.fromkeys(self.waits)):
            passed = self.world.passes[wait]
            if passed.size:
                at = int(np.searchsorted(given, passed[0]))
                token = self.tokens[np.searchsorted(self.taken, passed[0])]
                near = {at - 1, at, int(np.searchsorted(given, token))}
                for n in sorted(near):
                    if 0 <= n < site.size:
                        yield signals[site[n]], wait
        for wait in list(self.waits):
            yield None, wait
        for signal in signals:
            yield signal, None

    def _leave_out(self, signal: SyncSite | None, wait: SyncSite | None) -> bool:
        """Leave out a signal, a wait or one of each if they can go; whether they do."""
        if (signal and signal not in self.signals) or (wait and wait not in self.waits):
            return False
        given, taken = (self.world.passes[s] if s else np.empty(0, np.int64) for s in (signal, wait))
        if signal is None or wait is None:
            # Of those in loops there would be one token more or less with every iteration.
            site = signal or wait
            if site and site.gap.block and max(self.world.each(self.world.passes[site]), default=0) > 1:
                return False
        elif self.world.each(given) != self.world.each(taken) or not self.world.keeps_pace(given, taken):
            return False
        signals, waits = _less(self.signals, signal), _less(self.waits, wait)
        smaller = replace(self.sync, signals=tuple(signals), waits=tuple(waits))
        gone = np.searchsorted(self.taken, taken)
        changed = dict.fromkeys(self.events[gone].tolist(), -1)
        kept = np.delete(np.arange(self.taken.size), gone)
        tokens = self._tokens(smaller)
        if tokens is None or (tokens > self.tokens[kept]).any():
            return False
        other = np.flatnonzero(tokens != self.tokens[kept])
        changed |= dict(zip(self.events[kept[other]].tolist(), tokens[other].tolist(), strict=True))
        room = self.known.room(room_of(self.world, smaller)) if waits else {}
        if not self.known.change(self.number, changed, room):
            return False
        self.signals, self.waits, self.events = signals, waits, self.events[kept]
        self._find()
        return True

    def _tokens(self, sync: Sync) -> Array | None:
        """What waits take; None where a wait finds no token, or the channel is too small for what is left."""
        given, taken = (self.world.times(sites) for sites in (sync.signals, sync.waits))
        counts = zip(self.world.each(given), self.world.each(taken), strict=True)
        if any(not 0 <= g + sync.lead - t <= self.world.depth for g, t in counts):
            return None
        return self.world.tokens(sync)


def _less(sites: Sequence[SyncSite], gone: SyncSite | None) -> list[SyncSite]:
    """The sites without one."""
    left = list(sites)
    if gone is not None:
        left.remove(gone)
    return left
