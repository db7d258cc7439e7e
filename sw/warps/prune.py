"""Waits and signals that nothing needs go.

Where all that one warp tells another shares a channel, parts of the program meet: a part's last token may
say what the next part's first one says, and at the end of the program nobody asks any more. Each wait and
signal is left out in turn, and stays out where all that is demanded is still ordered, no channel can
overflow, and no warp is held up more than before.
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from sw.ir.expression import Const
from sw.ir.program import For, If, Program, Statement
from sw.ir.walk import instructions
from sw.warps.fewer import ChannelTokens, needs, shrink, without
from sw.warps.knowledge import Knowledge
from sw.warps.sites import Gap, Site
from sw.warps.tokens import Demand, Sync, World

#: Operations of all runs together up to which every wait and signal is tried.
_MOST = 200_000


def pruned(world: World, syncs: Sequence[Sync], demands: Sequence[Demand]) -> list[Sync]:
    """The syncs, one for each ordered pair of warps, without what is needless.

    Of large programs only those waits go that no instruction of their warp comes behind.
    """
    left = _without_ends(world.program, syncs)
    if world.instances > _MOST:
        return left
    known = Knowledge(world, left, demands, rooms=True)
    if not known.in_order or len(known.demands) < len(demands):
        return left
    return _Pruner(world, known).run()


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


def _without(sync: Sync, signal: Site | None, wait: Site | None) -> Sync:
    """The sync without a signal and a wait; of one that counts several times, one less where it is alone."""
    alone = signal is None or wait is None

    def rest(sites: tuple[Site, ...], gone: Site | None) -> tuple[Site, ...]:
        fewer = [replace(s, count=s.count - 1) if s == gone and alone else s for s in sites]
        return tuple(s for s in fewer if s.count and (alone or s != gone))

    return replace(sync, signals=rest(sync.signals, signal), waits=rest(sync.waits, wait))


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


#: What may be left out: the channel, whether a signal and a wait (0), a wait (1) or a signal (2), and which.
_Key = tuple[int, int, int, int]
#: Other waits and signals of a channel that may stand between a signal and a wait that go together.
_NEAR = 8
#: Pieces that the line of time is cut into, to find what a change may matter to.
_PIECES = 1 << 8


class _Pruner:
    """Leaves out one after the other: the first in the order of channels and sites that can go.

    What could not go is tried again where something has gone nearby: what was needed before may be needless.
    """

    def __init__(self, world: World, known: Knowledge):
        self.world, self.known = world, known
        self.channels: list[ChannelTokens | None] = [
            ChannelTokens.of(world, known, n) for n in range(len(known.syncs))
        ]
        self.signals = [list[Site | None](s.signals) for s in known.syncs]
        self.waits = [list[Site | None](s.waits) for s in known.syncs]
        self.keys = [list(self._keys(n)) for n in range(len(known.syncs))]
        self.waiting: list[_Key] = []
        #: By piece of time: what could not go because of something there.
        self.rejected: defaultdict[int, set[_Key]] = defaultdict(set)
        last = max((int(t[-1]) for c in self.channels if c for t in (c.given, c.taken) if t.size), default=0)
        self.piece = last // _PIECES + 1

    def run(self) -> list[Sync]:
        """The syncs that are left."""
        self.waiting = [key for keys in self.keys for key in keys]
        queued = set(self.waiting)
        heapq.heapify(self.waiting)
        while self.waiting:
            key = heapq.heappop(self.waiting)
            queued.discard(key)
            if self.channels[key[0]] is None:
                continue
            for again in self._try(key) - queued:
                queued.add(again)
                heapq.heappush(self.waiting, again)
        return [c.sync for c in self.channels if c is not None]

    def _keys(self, number: int) -> Iterator[_Key]:
        """What may be left out of a channel, in order."""
        channel = self.channels[number]
        assert channel is not None
        sync, world = channel.sync, self.world
        times = {s: world.times((replace(s, count=1),)) for s in (*sync.signals, *sync.waits)}
        passes = {s: world.each(t) for s, t in times.items()}
        ranked = sorted(times, key=lambda s: int(times[s][0]) if times[s].size else 0)
        rank = {s: n for n, s in enumerate(ranked)}
        for (i, s), (j, w) in itertools.product(enumerate(sync.signals), enumerate(sync.waits)):
            if abs(rank[s] - rank[w]) <= _NEAR and passes[s] == passes[w]:
                yield number, 0, i, j
        # Of others, there would be one token more or less with every iteration.
        for kind, sites in ((1, sync.waits), (2, sync.signals)):
            for i, s in enumerate(sites):
                if max(passes[s], default=0) < 2 or not _in_loop(world.program, s.gap):
                    yield number, kind, i, 0

    def _try(self, key: _Key) -> set[_Key]:
        """Leave something out if it can go; what is to be tried again then."""
        number, kind, i, j = key
        signal = self.signals[number][i] if kind != 1 else None
        wait = self.waits[number][j if kind == 0 else i] if kind != 2 else None
        alone = kind != 0
        channel = self.channels[number]
        if channel is None or (signal is None and kind != 1) or (wait is None and kind != 2):
            return set()
        if signal is not None and wait is not None and signal.count != wait.count:
            return set()
        smaller = without(self.world, channel, signal, wait)
        if isinstance(smaller, int):
            times = [self.world.times((replace(s, count=1),)) for s in (signal, wait) if s is not None]
            return self._reject(key, min((int(t[0]) for t in times if t.size), default=0), smaller)
        outcome = self.known.follow(smaller.change)
        wanted = needs(self.world, self.known, channel, smaller) if outcome.ok else []
        until = max(outcome.until, *(end for _, end in smaller.change.spans))
        if not outcome.ok or not self.known.suffices(outcome, wanted):
            return self._reject(key, smaller.since, outcome.until if not outcome.ok else until)
        self.known.commit(smaller.change, outcome, wanted)
        if smaller.empty:
            self.channels[number] = None
        else:
            shrink(channel, self.world, smaller, _without(channel.sync, signal, wait))
            for sites, site, at in ((self.signals, signal, i), (self.waits, wait, j if kind == 0 else i)):
                if site is not None:
                    less = replace(site, count=site.count - 1)
                    sites[number][at] = less if alone and less.count else None
        again = self._nearby(smaller.since, until)
        return again | (set(self.keys[number]) if alone else set())

    def _reject(self, key: _Key, since: int, until: int) -> set[_Key]:
        last = min(until // self.piece, _PIECES)
        for piece in range(since // self.piece, last + 1):
            self.rejected[piece].add(key)
        return set()

    def _nearby(self, since: int, until: int) -> set[_Key]:
        """What could not go because of anything in between."""
        found: set[_Key] = set()
        for piece in range(since // self.piece, min(until // self.piece, _PIECES) + 1):
            found |= self.rejected.pop(piece, set())
        return found
