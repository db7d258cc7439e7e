"""Waits and signals that nothing needs go.

Where all that one warp tells another shares a channel, parts of the program meet: a part's last token may
say what the next part's first one says, and at the end of the program nobody asks any more. Each wait and
signal is left out in turn, and stays out where all that is demanded is still ordered, no channel can
overflow, and no warp is held up more than before.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from sw.ir.expression import Const
from sw.ir.program import For, If, Program, Statement, instructions
from sw.warps.sites import Gap, Site
from sw.warps.tokens import Demand, Sync, World, unmet

#: Operations of all runs together up to which every wait and signal is tried.
_MOST = 60_000


def pruned(
    world: World,
    syncs: Sequence[Sync],
    demands: Sequence[Demand],
    crowded: Callable[[Sequence[Sync], Sync], bool],
) -> list[Sync]:
    """The syncs, one for each ordered pair of warps, without what is needless.

    `crowded` tells whether the channel of one of them can overflow. Where a run was not followed to its end,
    only those waits go that no instruction of their warp comes behind.
    """
    left = _without_ends(world.program, syncs)
    if any(count is not None for count in world.counts) or world.operations.size > _MOST:
        return left
    at = 0
    while at < len(left):
        for smaller in _smaller(world, left[at]):
            rest = [*left[:at], *smaller, *left[at + 1 :]]
            if _suffices(world, rest, left[at], smaller, demands, crowded):
                # What was needed before may be needless now.
                left, at = rest, -1
                break
        at += 1
    return left


def _without_ends(program: Program, syncs: Sequence[Sync]) -> list[Sync]:
    """The syncs without waits at the end of a warp."""
    signals = [(s.warps[0], site) for s in syncs for site in s.signals]
    made = []
    for sync in syncs:
        ends = [w for w in sync.waits if _is_end(program, sync.warps[1], w, signals)]
        made.append(replace(sync, waits=tuple(w for w in sync.waits if w not in ends)))
    return [s for s in made if s.waits]


def _is_end(program: Program, warp: int, wait: Site, signals: Sequence[tuple[int, Site]]) -> bool:
    """Whether a wait is outside of loops and branches, and a warp does nothing behind it but wait."""
    if wait.gap.block:
        return False
    rest = instructions(replace(program, body=program.body[wait.gap.position :]))
    later = (s for w, s in signals if w == warp and _top(s) >= (wait.gap.position, wait.order))
    return not any(s.warp == warp for s in rest) and not any(later)


def _top(site: Site) -> tuple[int, int]:
    """Where a site, or the outermost statement around it, stands in the program."""
    if site.gap.block:
        return site.gap.block[0][0], 1 << 30
    return site.gap.position, site.order


def _smaller(world: World, sync: Sync) -> Iterator[list[Sync]]:
    """The sync with less: without a signal and a wait that control passes equally often, or one of them."""
    passes = {s: world.each(world.times((replace(s, count=1),))) for s in (*sync.signals, *sync.waits)}
    for s, w in itertools.product(sync.signals, sync.waits):
        if passes[s] == passes[w] and s.count == w.count:
            yield _without(sync, s, w)
    # Of others, there would be one token more or less with every iteration.
    alone = [s for s, n in passes.items() if max(n, default=0) < 2 or not _in_loop(world.program, s.gap)]
    for w in sync.waits:
        if w in alone:
            yield _without(sync, None, w)
    for s in sync.signals:
        if s in alone:
            yield _without(sync, s, None)


def _without(sync: Sync, signal: Site | None, wait: Site | None) -> list[Sync]:
    """The sync without a signal and a wait; of one that counts several times, one less where it is alone."""
    alone = signal is None or wait is None

    def rest(sites: tuple[Site, ...], gone: Site | None) -> tuple[Site, ...]:
        fewer = [replace(s, count=s.count - 1) if s == gone and alone else s for s in sites]
        return tuple(s for s in fewer if s.count and (alone or s != gone))

    made = replace(sync, signals=rest(sync.signals, signal), waits=rest(sync.waits, wait))
    return [made] if made.waits else []


def _in_loop(program: Program, gap: Gap) -> bool:
    """Whether a gap stands in a loop that may have several iterations."""
    body: Sequence[Statement] = program.body
    for position, side in gap.block:
        s = body[position]
        assert isinstance(s, For | If)
        if isinstance(s, For) and not _once(s):
            return True
        body = s.orelse if side and isinstance(s, If) else s.body
    return False


def _once(loop: For) -> bool:
    """Whether a loop has one iteration at most."""
    bounds = [e.value for e in (loop.start, loop.stop, loop.step) if isinstance(e, Const)]
    return len(bounds) == 3 and len(range(*bounds)) < 2


def _suffices(
    world: World,
    syncs: Sequence[Sync],
    old: Sync,
    changed: Sequence[Sync],
    demands: Sequence[Demand],
    crowded: Callable[[Sequence[Sync], Sync], bool],
) -> bool:
    """Whether syncs order all that is demanded, and one that was changed is no stricter than before."""
    for sync in changed:
        given, taken = (world.each(world.times(sites)) for sites in (sync.signals, sync.waits))
        if any(g + sync.lead - t > world.depth for g, t in zip(given, taken, strict=True)):
            return False
        if not world.goes_on(sync.signals, sync.waits, sync.lead) or world.held(sync) > world.held(old):
            return False
    return not unmet(world, syncs, demands) and not any(crowded(syncs, s) for s in syncs)
