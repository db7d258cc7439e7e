"""All tokens from one warp to another in one channel: first in, first out.

Tokens look alike, so the n-th wait of the waiting warp takes the n-th signal of the other, whatever they
were meant for. Syncs share a channel as they are where that still orders what each is for. Where it does
not, because parts of the program keep different numbers of tokens in advance, tokens are filled in before a
part and taken out behind it; and as a last resort both warps meet in one place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from sw.warps.candidates import meeting
from sw.warps.sites import Gap, Order, Path, SyncSite, common
from sw.warps.tokens import Leg, Pair, Room, Sync, Wanted, World, onwards


def compose(world: World, syncs: Sequence[Sync]) -> Sync | None:
    """One sync that does what all syncs between two warps do; None where no tokens can."""
    found = _compose(world, (), list(syncs))
    if found is not None:
        return found
    demands = [d for s in syncs for d in s.demands]
    return fit(world, syncs[0].warps, *meeting_sites(demands), demands)


def _compose(world: World, path: Path, syncs: list[Sync]) -> Sync | None:
    """The same for the syncs within a block."""
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
    """Parts together as one sync; where it helps, those that can keep more tokens get them while they run."""
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
    """Syncs as one with all of their sites."""
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
    """A sync of these sites, with as many tokens in advance as there may be."""
    world.add((*signals, *waits))
    wanted = tuple(dict.fromkeys(demands))
    lead = world.lead(signals, waits, wanted)
    return None if lead is None else Sync(warps, signals, waits, lead, wanted)


def _closed(world: World, path: Path, position: int, sync: Sync, lead: int = 0) -> Sync:
    """A sync within one statement of a block, with tokens filled in before and taken out behind it.

    All of its tokens in advance are, but for `lead` that are there before and after.
    """
    count = sync.lead - lead
    fill = SyncSite(Gap(path, position), Order.FILL, count=count)
    drain = SyncSite(Gap(path, position + 1), Order.DRAIN, count=count)
    world.add((fill, drain))
    return Sync(sync.warps, (*sync.signals, fill), (*sync.waits, drain), lead, sync.demands)


def meeting_sites(demands: Iterable[Wanted]) -> tuple[tuple[SyncSite, ...], tuple[SyncSite, ...]]:
    """Places where both warps meet, so that what is demanded lies on either side: signals, and waits.

    In front of the sink in the block around both, and for sources in earlier iterations at the start of it.
    """
    gives: dict[SyncSite, SyncSite] = {}
    for demand in demands:
        if isinstance(demand, Room):
            # Right in front of the signals that are to be held back.
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
