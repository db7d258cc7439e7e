"""Merges all syncs from one warp to another into one channel, first in, first out.

Tokens are indistinguishable: the n-th wait takes the n-th signal, whatever each was meant for. Syncs share a
channel directly if this still enforces every order. If parts of the program keep different numbers of tokens
in advance, extra tokens are signalled before a part and drained after it. As a last resort, both warps meet
in one place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from sw.warps.candidates import meeting
from sw.warps.sites import Gap, Order, Path, SyncSite, common
from sw.warps.tokens import Leg, Pair, Room, Sync, Wanted, World, onwards


def compose(world: World, syncs: Sequence[Sync]) -> Sync | None:
    """One sync that does the work of all syncs between two warps; None if that is impossible."""
    found = _compose(world, (), list(syncs))
    if found is not None:
        return found
    demands = [d for s in syncs for d in s.demands]
    return fit(world, syncs[0].warps, *meeting_sites(demands), demands)


def _compose(world: World, path: Path, syncs: list[Sync]) -> Sync | None:
    """The same for the syncs inside a block."""
    inner: defaultdict[tuple[int, int], list[Sync]] = defaultdict(list)
    direct = []
    for s in syncs:
        block = _block(s)
        if block == path:
            direct.append(s)
        else:
            inner[block[len(path)]].append(s)
    if not direct and len(inner) == 1:
        step, found = next(iter(inner.items()))
        return _compose(world, (*path, step), found)
    parts: list[tuple[int, Sync]] = []
    for step, found in inner.items():
        made = _compose(world, (*path, step), found)
        if made is None:
            return None
        parts.append((step[0], made))
    merged = _merged(world, [*direct, *(p for _, p in parts)])
    if merged is not None:
        return _loosened(world, path, merged, direct, parts)
    closed = [p if p.lead == 0 else _closed(world, path, at, p) for at, p in parts]
    kept = [s for s in direct if s.lead == 0]
    rest = [d for s in direct if s.lead for d in s.demands]
    for stay, moved in ((kept, rest), ([], [d for s in direct for d in s.demands])):
        met = fit(world, syncs[0].warps, *meeting_sites(moved), moved) if moved else None
        if moved and met is None:
            continue
        merged = _merged(world, [*stay, *closed, *([met] if met else [])])
        if merged is not None:
            return merged
    return None


def _loosened(
    world: World, path: Path, merged: Sync, direct: Sequence[Sync], parts: Sequence[tuple[int, Sync]]
) -> Sync:
    """Parts merged into one sync; parts that can keep more tokens in advance get them while they run."""
    more = [_closed(world, path, at, p, merged.lead) if p.lead > merged.lead else p for at, p in parts]
    if more == [p for _, p in parts]:
        return merged
    loose = _merged(world, [*direct, *more])
    return merged if loose is None or world.held(loose) >= world.held(merged) else loose


def _block(sync: Sync) -> Path:
    """The innermost block around all sites of a sync."""
    paths = [s.gap.block for s in (*sync.signals, *sync.waits)]
    found = paths[0]
    for path in paths[1:]:
        found = found[: common(found, path)]
    return found


def _merged(world: World, syncs: Iterable[Sync]) -> Sync | None:
    """Several syncs as one with all of their sites."""
    syncs = list(syncs)
    if len(syncs) == 1:
        return syncs[0]
    signals = tuple(dict.fromkeys(s for sync in syncs for s in sync.signals))
    waits = tuple(dict.fromkeys(s for sync in syncs for s in sync.waits))
    return fit(world, syncs[0].warps, signals, waits, [d for s in syncs for d in s.demands])


def fit(
    world: World,
    warps: Pair,
    signals: tuple[SyncSite, ...],
    waits: tuple[SyncSite, ...],
    demands: Iterable[Wanted],
) -> Sync | None:
    """A sync with these sites and as many tokens in advance as possible."""
    world.add((*signals, *waits))
    wanted = tuple(dict.fromkeys(demands))
    lead = world.lead(signals, waits, wanted)
    return None if lead is None else Sync(warps, signals, waits, lead, wanted)


def _closed(world: World, path: Path, position: int, sync: Sync, lead: int = 0) -> Sync:
    """A sync within one statement of a block, with its advance tokens filled before and drained after.

    Only `lead` tokens remain in advance before and after it.
    """
    count = sync.lead - lead
    fill = SyncSite(Gap(path, position), Order.FILL, count=count)
    drain = SyncSite(Gap(path, position + 1), Order.DRAIN, count=count)
    world.add((fill, drain))
    return Sync(sync.warps, (*sync.signals, fill), (*sync.waits, drain), lead, sync.demands)


def meeting_sites(demands: Iterable[Wanted]) -> tuple[tuple[SyncSite, ...], tuple[SyncSite, ...]]:
    """Sites (signals and waits) at which both warps meet, with each demand's ends on opposite sides.

    They are before the sink, in the block around both, and for sources of earlier iterations at its start.
    """
    gives: dict[SyncSite, SyncSite] = {}
    for demand in demands:
        if isinstance(demand, Room):
            # Directly before the signals to be held back.
            gives |= {replace(s, order=s.order - 2): replace(s, order=s.order - 1) for s in demand.signals}
            continue
        if isinstance(demand, Leg) and demand.relay is not None:
            gives |= dict([onwards(demand.relay)])
            continue
        around = meeting(demand.source, demand.sink)
        source, sink = demand.source.ancestor(around), demand.sink.ancestor(around)
        gaps = [sink] if source.position < sink.position else []
        if any(length <= around for _, length in demand.sink.loops):
            gaps.append(Gap(sink.block, 0))
        gives |= {SyncSite(g, Order.GIVE): SyncSite(g, Order.TAKE) for g in gaps}
    return tuple(gives), tuple(gives.values())
