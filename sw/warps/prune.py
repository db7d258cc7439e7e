"""Removes needless waits and signals.

`reduced` removes whole syncs. When all syncs from one warp to another share a channel, parts of the program
meet: the last token of one part may say the same as the first of the next, and tokens drained after one part
are filled again before the next. `pruned` removes a wait, a signal, or one of each, if every demand is still
met, no channel can overflow, and no wait takes a later token than before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sw.ir.vector import Array
from sw.warps.sites import SyncSite
from sw.warps.tokens import (
    Demand,
    Pair,
    Room,
    Sync,
    Told,
    Wanted,
    World,
    by_pair,
    channels_of,
    known,
    room_of,
    told,
    unmet,
)

#: Most operations in all runs for which every wait and signal is tried.
_MOST = 200_000
_NONE: Array = np.empty(0, np.int64)


def reduced(world: World, syncs: Sequence[Sync], demands: Sequence[Wanted]) -> list[Sync]:
    """The syncs without those that others make redundant; those with the most tokens are removed first."""
    missing = set(unmet(world, syncs, demands))
    own = by_pair(syncs)
    #: By pair of warps: its waits, their tokens, and for each wait the index in `own` of its sync.
    taken = {pair: world.taken(some) for pair, some in own.items()}
    knowledge = _Knowledge(world, channels_of(world, syncs), [d for d in demands if d not in missing])
    gone: set[int] = set()
    for sync in sorted(syncs, key=world.events, reverse=True):
        waits, tokens, owners = taken[sync.warps]
        kept = owners != own[sync.warps].index(sync)
        if knowledge.accepts(sync.warps, told(waits[kept], tokens[kept])):
            taken[sync.warps] = waits[kept], tokens[kept], owners[kept]
            gone.add(id(sync))
    return [s for s in syncs if id(s) not in gone]


@dataclass
class _Sinks:
    """The sinks of demands in one warp, in order: warps and times of their sources, what is known there."""

    warp: int
    warps: Array
    sources: Array
    latest: dict[int, Array]

    def met(self, some: Array, latest: Mapping[int, Array]) -> bool:
        """Whether what is known there meets some of the demands."""
        warps, sources = self.warps[some], self.sources[some]
        for warp in np.unique(warps).tolist():
            here = warps == warp
            if warp not in latest or (latest[warp][here] < sources[here]).any():
                return False
        return True


class _Knowledge:
    """What the sinks of demands know of other warps, updated while tokens are removed.

    A token matters to few sinks, those shortly after it; only these are checked again.
    """

    def __init__(self, world: World, channels: dict[Pair, Told], demands: Sequence[Wanted]):
        self.world, self.channels = world, channels
        warps = sorted({d.warps[1] for d in demands})
        self.demands = [self._of([d for d in demands if d.warps[1] == warp]) for warp in warps]
        #: Demands that keep channels from overflowing, by pair of warps.
        self.rooms: dict[Pair, _Sinks] = {}

    def _of(self, demands: Sequence[Wanted]) -> _Sinks:
        """The sinks of demands of one warp."""
        warp, times = demands[0].warps[1], [d.times(self.world) for d in demands]
        warps = np.repeat([d.warps[0] for d in demands], [sources.size for sources, _ in times])
        sources, sinks = (np.concatenate(found) for found in zip(*times, strict=True))
        order = np.argsort(sinks, kind="stable")
        return _Sinks(
            warp, warps[order], sources[order], known(self.world, self.channels, warp, sinks[order])
        )

    def has_room(self, room: Room) -> None:
        """Records that the channel of a pair of warps must not overflow."""
        self.rooms[room.warps[::-1]] = self._of([room])

    @property
    def met(self) -> bool:
        """Whether every demand is met."""
        return all(s.met(np.arange(s.sources.size), s.latest) for s in (*self.demands, *self.rooms.values()))

    def accepts(self, pair: Pair, channel: Told, room: Room | None = None) -> bool:
        """Tries a channel with fewer tokens and other room; keeps it if every demand is still met."""
        before, self.channels[pair] = self.channels[pair], channel
        made = None if room is None else self._of([room])
        if made is None or made.met(np.arange(made.sources.size), made.latest):
            changes = self._changes(pair, before, channel)
            if changes is not None:
                for sinks, some, latest in changes:
                    for warp, times in sinks.latest.items():
                        times[some] = latest.get(warp, -1)
                if made is not None:
                    self.rooms[pair] = made
                return True
        self.channels[pair] = before
        return False

    def _changes(
        self, pair: Pair, before: Told, after: Told
    ) -> list[tuple[_Sinks, Array, dict[int, Array]]] | None:
        """The changes by sink; None if a demand is no longer met."""
        found = []
        source, sink = pair
        change = np.flatnonzero(after[1][after[0].searchsorted(before[0], side="right")] != before[1][1:])
        if not change.size:
            return []
        first, last = before[0][change[0]], before[0][change[-1] + 1 :][:1]
        rooms = (own for other, own in self.rooms.items() if other != pair)
        for sinks in (*self.demands, *rooms):
            if sink not in sinks.latest or source not in sinks.latest:
                continue
            if self.world.starts.size > 1:
                some = np.arange(sinks.sources.size)
            else:
                places = sinks.latest[sink]
                end = places.searchsorted(last[0]) if last.size else places.size
                some = np.arange(places.searchsorted(first), end)
            then = self.world.awaited(before, sinks.latest[sink][some])
            now = self.world.awaited(after, sinks.latest[sink][some])
            some = some[(now != then) & (np.maximum(now, then) >= sinks.latest[source][some])]
            latest = known(self.world, self.channels, sinks.warp, sinks.latest[sinks.warp][some])
            if not sinks.met(some, latest):
                return None
            found.append((sinks, some, latest))
        return found


def pruned(world: World, syncs: Sequence[Sync], demands: Sequence[Demand]) -> list[Sync]:
    """The syncs, one per ordered pair of warps, without needless tokens; large programs are left unchanged.

    All demands remain met, and no channel overflows.
    """
    if world.instances > _MOST:
        return list(syncs)
    left = [replace(s, signals=_single(s.signals), waits=_single(s.waits)) for s in syncs]
    channels = {s.warps: world.told((s,)) for s in left}
    knowledge = _Knowledge(world, channels, demands)
    for sync in left:
        knowledge.has_room(room_of(world, sync))
    # If a token of a pair is needed, it remains so when other pairs lose tokens.
    changed = set(range(len(left)) if knowledge.met else ())
    while changed:
        for n in sorted(changed):
            changed.discard(n)
            for signal, wait in _candidates(world, left[n]):
                smaller = _without(world, left[n], signal, wait)
                if smaller is None:
                    continue
                if knowledge.accepts(smaller.warps, world.told((smaller,)), room_of(world, smaller)):
                    left[n] = smaller
                    changed.add(n)
    return [replace(s, signals=_counted(s.signals), waits=_counted(s.waits)) for s in left if s.waits]


def _single(sites: Sequence[SyncSite]) -> tuple[SyncSite, ...]:
    """Each site as often as it counts."""
    return tuple(s.once for s in sites for _ in range(s.count))


def _counted(sites: Sequence[SyncSite]) -> tuple[SyncSite, ...]:
    """Equal sites as one."""
    return tuple(replace(s, count=sites.count(s)) for s in dict.fromkeys(sites))


def _candidates(world: World, sync: Sync) -> Iterator[tuple[SyncSite | None, SyncSite | None]]:
    """Waits with the signals beside them or the signals that they take; then each alone."""
    times = [world.passes[s] for s in sync.signals]
    order = np.argsort(np.concatenate([*times, _NONE]), kind="stable")
    site = np.repeat(np.arange(len(times)), [t.size for t in times])[order]
    given, taken, tokens = world.times(sync.signals), world.times(sync.waits), world.tokens(sync)
    for wait in dict.fromkeys(sync.waits):
        if (passed := world.passes[wait]).size:
            at = int(np.searchsorted(given, passed[0]))
            token = tokens[np.searchsorted(taken, passed[0])]
            for n in sorted({at - 1, at, int(np.searchsorted(given, token))}):
                if 0 <= n < site.size:
                    yield sync.signals[site[n]], wait
    yield from ((None, wait) for wait in sync.waits)
    yield from ((signal, None) for signal in sync.signals)


def _without(world: World, sync: Sync, signal: SyncSite | None, wait: SyncSite | None) -> Sync | None:
    """The sync without a signal, a wait, or one of each; None if its tokens then no longer match."""
    if (signal and signal not in sync.signals) or (wait and wait not in sync.waits):
        return None
    given, taken = (world.passes[s] if s else _NONE for s in (signal, wait))
    if signal is None or wait is None:
        # A site in a loop would add or remove one token per iteration.
        site = signal or wait
        if site and site.gap.block and max(world.each(world.passes[site]), default=0) > 1:
            return None
    elif world.each(given) != world.each(taken) or not world.keeps_pace(given, taken):
        return None
    smaller = replace(sync, signals=world.less(sync.signals, signal), waits=world.less(sync.waits, wait))
    counts = (world.each(world.times(sites)) for sites in (smaller.signals, smaller.waits))
    if any(not 0 <= g + sync.lead - t <= world.depth for g, t in zip(*counts, strict=True)):
        return None
    # The remaining waits must not take later tokens than before.
    gone = np.searchsorted(world.times(sync.waits), taken)
    before = np.delete(world.tokens(sync), gone)
    return None if (world.tokens(smaller) > before).any() else smaller
