"""Waits and signals that nothing needs go.

`reduced` leaves out whole syncs. Where all that one warp tells another shares a channel, parts of the program
meet: a part's last token may say what the next part's first one says, and tokens that are taken out behind
one part are filled in again before the next. `pruned` leaves out a wait, a signal or one of each where all
that is demanded is still ordered, no channel can overflow, and no wait takes a later token than before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from sw.ir.vector import Array
from sw.warps.sites import SyncSite
from sw.warps.tokens import Demand, Sync, Wanted, World, ordered, room_of, unmet

#: Operations of all runs together up to which every wait and signal is tried.
_MOST = 200_000
_NONE: Array = np.empty(0, np.int64)


def reduced(world: World, syncs: Sequence[Sync], demands: Sequence[Wanted]) -> list[Sync]:
    """The syncs without those that others make needless, most tokens first."""
    missing = set(unmet(world, syncs, demands))
    wanted = [d for d in demands if d not in missing]
    left = list(syncs)
    for sync in sorted(syncs, key=world.events, reverse=True):
        rest = [s for s in left if s is not sync]
        if ordered(world, rest, wanted, sync.warps):
            left = rest
    return left


def pruned(world: World, syncs: Sequence[Sync], demands: Sequence[Demand]) -> list[Sync]:
    """The syncs, one for each ordered pair of warps, without what is needless; large programs keep all.

    They meet all demands, and no channel overflows.
    """
    if world.instances > _MOST:
        return list(syncs)
    left = [replace(s, signals=_single(s.signals), waits=_single(s.waits)) for s in syncs]
    # What the tokens of a pair are needed for stays so when those of others become fewer.
    changed = set(range(len(left)))
    while changed:
        for n in sorted(changed):
            changed.discard(n)
            for signal, wait in _candidates(world, left[n]):
                smaller = _without(world, left[n], signal, wait)
                if smaller is None:
                    continue
                tried = [*left[:n], smaller, *left[n + 1 :]]
                if ordered(world, tried, [*demands, *(room_of(world, s) for s in tried)], smaller.warps):
                    left = tried
                    changed.add(n)
    return [replace(s, signals=_counted(s.signals), waits=_counted(s.waits)) for s in left if s.waits]


def _single(sites: Sequence[SyncSite]) -> tuple[SyncSite, ...]:
    """Each site as often as it counts."""
    return tuple(s.once for s in sites for _ in range(s.count))


def _counted(sites: Sequence[SyncSite]) -> tuple[SyncSite, ...]:
    """Equal sites as one."""
    return tuple(replace(s, count=sites.count(s)) for s in dict.fromkeys(sites))


def _candidates(world: World, sync: Sync) -> Iterator[tuple[SyncSite | None, SyncSite | None]]:
    """Waits with signals beside them and those that give their tokens; then each by itself."""
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
    """The sync without a signal, a wait or one of each; None where its tokens do not work out then."""
    if (signal and signal not in sync.signals) or (wait and wait not in sync.waits):
        return None
    given, taken = (world.passes[s] if s else _NONE for s in (signal, wait))
    if signal is None or wait is None:
        # Of those in loops there would be one token more or less with every iteration.
        site = signal or wait
        if site and site.gap.block and max(world.each(world.passes[site]), default=0) > 1:
            return None
    elif world.each(given) != world.each(taken) or not world.keeps_pace(given, taken):
        return None
    smaller = replace(sync, signals=_less(sync.signals, signal), waits=_less(sync.waits, wait))
    counts = (world.each(world.times(sites)) for sites in (smaller.signals, smaller.waits))
    if any(not 0 <= g + sync.lead - t <= world.depth for g, t in zip(*counts, strict=True)):
        return None
    # Waits that are left take no later token than before.
    gone = np.searchsorted(world.times(sync.waits), taken)
    before = np.delete(world.tokens(sync), gone)
    return None if (world.tokens(smaller) > before).any() else smaller


def _less(sites: Sequence[SyncSite], gone: SyncSite | None) -> tuple[SyncSite, ...]:
    """The sites without one."""
    left = list(sites)
    if gone is not None:
        left.remove(gone)
    return tuple(left)
