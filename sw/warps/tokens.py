"""Tokens that one warp gives another: which wait takes which signal, and what that orders.

The n-th wait of a channel takes the n-th token. `lead` tokens are there at the start, so wait n takes the
token of signal n - lead. Everything that the signalling warp does before that signal then happens before
everything that the waiting warp does behind the wait.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from sw.ir.expression import Expr
from sw.ir.program import Instruction, Program
from sw.ir.vector import Array
from sw.warps.sample import Sample
from sw.warps.sites import Gap, Order, Spot, SyncSite

#: An ordered pair of warps: who signals, who waits.
Pair = tuple[int, int]
#: Waits of one warp for another in order, and by their number the latest token that was taken so far.
Told = tuple[Array, Array]
_NONE: Array = np.empty(0, np.int64)
#: Tuples of sites whose times are kept.
_KEPT = 4096

#: Bits of a time below what is passed: the order of what stands in one gap, the least of which is above
#: -`_FIRST`, and below it the place of one of several predicates.
_SCALE, _RANKS, _FIRST = 24, 16, 64


@dataclass(frozen=True, eq=False)
class Demand:
    """Two instructions of the text whose instances are to be ordered: pairs of their times (n × 2).

    `data` tells of a sink that reads what the source wrote.
    """

    source: Spot
    sink: Spot
    pairs: Array
    data: bool

    @functools.cached_property
    def warps(self) -> Pair:
        """Who signals, who waits."""
        return warp_of(self.source.instruction), warp_of(self.sink.instruction)

    def times(self, world: World) -> tuple[Array, Array]:
        """Times of the instances that are to be ordered, the earlier ones and the later ones."""
        return self.pairs[:, 0], self.pairs[:, 1]


@dataclass(frozen=True, eq=False)
class Leg(Demand):
    """A part of the way from source to sink; `relay` is where the third warp waits, if it starts there."""

    legs: Pair
    relay: SyncSite | None = None

    @property
    def warps(self) -> Pair:
        """Who signals, who waits."""
        return self.legs

    def times(self, world: World) -> tuple[Array, Array]:
        """Times of what is to be ordered: from the source to the sink, or from the third warp's last wait."""
        sources, sinks = super().times(world)
        if self.relay is None:
            return sources, sinks
        passed = world.passes[self.relay]
        return world.pick(passed, sinks, world.number(passed, sinks)), sinks


def onwards(wait: SyncSite) -> tuple[SyncSite, SyncSite]:
    """Where a third warp passes on what it waited for, and where that is awaited."""
    return dataclasses.replace(wait, order=Order.PASS), dataclasses.replace(wait, order=Order.PASSED)


@dataclass(frozen=True, eq=False)
class Room:
    """A signal must not come before there is room in its channel: before so many waits were made.

    `signals` and `waits` are those of the channel; signal n is ordered behind wait n - `room`.
    """

    warps: Pair
    signals: tuple[SyncSite, ...]
    waits: tuple[SyncSite, ...]
    room: int
    #: What the channel is for.
    demands: tuple[Wanted, ...] = ()

    @property
    def gaps(self) -> list[tuple[Gap, Gap]]:
        """Where waits and signals of the channel stand: wait n - `room`, or another one, and signal n."""
        skipped = self.room if len(self.signals) == len(self.waits) > self.room else 0
        signals = [Gap(s.gap.block, s.gap.position - 1) for s in self.signals[skipped:]]
        return list(zip((w.gap for w in self.waits), signals, strict=False))

    def straight(self, world: World) -> bool:
        """Whether every run passes each of the sites once."""
        runs = world.starts.size
        once = all(
            s.count == 1 and world.each(world.passes[s]) == [1] * runs for s in (*self.signals, *self.waits)
        )
        return once and 0 < self.room < len(self.signals)

    def times(self, world: World) -> tuple[Array, Array]:
        """Times of the waits and signals that are to be ordered."""
        given, taken = world.times(self.signals), world.times(self.waits)
        number = world.number(given, given)
        held = (number > self.room) & (number <= world.count(taken, given) + self.room)
        return world.pick(taken, given[held], number[held] - self.room), given[held]


Wanted = Demand | Room


def _placed(times: Array, start: int) -> Array:
    return (times << _SCALE) + start


def warp_of(s: Instruction) -> int:
    """The warp of an instruction that has one."""
    assert s.warp is not None
    return s.warp


@dataclass(frozen=True, eq=False)
class Sync:
    """Sites at which one warp signals and another one waits, with tokens in advance, and why."""

    warps: Pair
    signals: tuple[SyncSite, ...]
    waits: tuple[SyncSite, ...]
    lead: int
    demands: tuple[Wanted, ...]

    @property
    def data(self) -> bool:
        """Whether a sink of it reads what its source wrote."""
        return any(isinstance(d, Demand) and d.data for d in self.demands)


class World:
    """Samples of a program, one after the other on one line of time.

    Every run starts with channels as they are at the start. `depth` counts the tokens that a channel holds.
    """

    def __init__(self, program: Program, samples: Sequence[Sample], depth: int):
        self.program, self.samples, self.depth = program, samples, depth
        self.passes: dict[SyncSite, Array] = {}
        #: Times of sites by the identity of their tuple: to hash the sites takes longer.
        self._times: dict[int, tuple[tuple[SyncSite, ...], Array]] = {}
        #: The predicates of sites that share a gap and an order, by what comes first.
        self._ranks: dict[tuple[Gap, int], dict[Expr | None, int]] = {}
        ends = np.cumsum([0, *((s.end + 1) << _SCALE for s in samples)])
        #: When each run starts.
        self.starts: Array = ends[:-1]
        self.periods = np.concatenate([_placed(s.periods, at) for s, at in zip(samples, ends, strict=False)])
        parts: dict[int, list[Array]] = {}
        for sample, at in zip(samples, self.starts, strict=True):
            for label, visits in sample.instances.items():
                warp = warp_of(sample.spots[label].instruction)
                parts.setdefault(warp, [_NONE]).append(_placed(visits.times, at))
        #: When the instructions of a warp happen.
        self.of_warp = {warp: np.sort(np.concatenate(found)) for warp, found in parts.items()}
        self.instances = sum(times.size for times in self.of_warp.values())
        self.told = functools.lru_cache(maxsize=128)(self._told)
        self.tokens = functools.lru_cache(maxsize=128)(self._tokens)

    def add(self, sites: Iterable[SyncSite]) -> None:
        """Find out when control passes these sites, where that is not known yet."""
        for site in (s.once for s in sites):
            if site in self.passes:
                continue
            ranks = self._ranks.setdefault((site.gap, site.order), {})
            rank = ranks.setdefault(site.when, len(ranks))
            found = [_NONE]
            for sample, at in zip(self.samples, self.starts, strict=True):
                visits = sample.gaps[site.gap]
                found.append(_placed(visits.times if site.when is None else visits.holds(site.when), at))
            self.passes[site] = np.concatenate(found) + (((site.order + _FIRST) << _RANKS) + rank)

    def first(self, site: SyncSite) -> int:
        """When control passes a site first; sites that it never passes come first."""
        times = self.times((site,))
        return int(times[0]) if times.size else -1

    def placed(self, run: int, times: Array) -> Array:
        """Times of a sample on the line of time."""
        return _placed(times, self.starts[run])

    def keeps_pace(self, given: Array, taken: Array) -> bool:
        """Whether as many tokens are taken as given in each period of a loop that is followed in part.

        Then the iterations that are left out, any number of periods, hold no more tokens than those followed,
        and leave as many.
        """
        signals, waits = (np.diff(np.searchsorted(t, self.periods), axis=1) for t in (given, taken))
        return bool(np.array_equal(signals, waits))

    def times(self, sites: tuple[SyncSite, ...]) -> Array:
        """When control passes any of the sites, in order."""
        if len(sites) == 1 and sites[0].count == 1:
            return self.passes[sites[0]]
        held = self._times.get(id(sites))
        if held is not None:
            return held[1]
        parts = [np.repeat(self.passes[s.once], s.count) for s in sites]
        return self._keep(sites, np.sort(np.concatenate([_NONE, *parts])))

    def less(self, sites: tuple[SyncSite, ...], gone: SyncSite | None) -> tuple[SyncSite, ...]:
        """The sites, each of which counts once, without one."""
        if gone is None:
            return sites
        left, times = list(sites), self.times(sites)
        left.remove(gone)
        found = tuple(left)
        self._keep(found, np.delete(times, times.searchsorted(self.passes[gone])))
        return found

    def _keep(self, sites: tuple[SyncSite, ...], times: Array) -> Array:
        if len(self._times) >= _KEPT:
            self._times.clear()
        self._times[id(sites)] = sites, times
        return times

    def number(self, events: Array, times: Array) -> Array:
        """How many of some events came up to and including these times, each counted in its own run."""
        return events.searchsorted(times, side="right") - self._earlier(events, times)

    def count(self, events: Array, times: Array) -> Array:
        """How many of some events there are in the runs that these times are of."""
        counts: Array = np.array(self.each(events), np.int64)[self._run(times)]
        return counts

    def pick(self, events: Array, times: Array, number: Array) -> Array:
        """When the events of these numbers, from 1, come in the runs that these times are of."""
        found: Array = events[self._earlier(events, times) + number - 1]
        return found

    def each(self, events: Array) -> list[int]:
        """How many events are in each run."""
        ends = [*events.searchsorted(self.starts).tolist(), events.size]
        return [end - start for start, end in pairwise(ends)]

    def _earlier(self, events: Array, times: Array) -> Array | int:
        """How many events are in runs before those that these times are of."""
        return events.searchsorted(self.starts)[self._run(times)] if self.starts.size > 1 else 0

    def _run(self, times: Array) -> Array:
        return self.starts.searchsorted(times, side="right") - 1

    def lead(
        self, signals: tuple[SyncSite, ...], waits: tuple[SyncSite, ...], demands: Iterable[Wanted]
    ) -> int | None:
        """The most tokens in advance, as far as a channel holds them, that still order what is demanded.

        None where no number does, where signals and waits are not equally many, or where a wait would take a
        token of a signal that comes later in the program, which could block both.
        """
        lead = self.depth
        given, taken = self.times(signals), self.times(waits)
        if self.each(given) != self.each(taken) or not self.keeps_pace(given, taken):
            return None
        for demand in demands:
            sources, sinks = demand.times(self)
            if not sources.size:
                continue
            # The first signal behind the source, and the last wait in front of the sink, from 1.
            first = self.number(given, sources) + 1
            if (first > self.count(given, sources)).any():
                return None
            lead = min(lead, int((self.number(taken, sinks) - first).min()))
        if given.size:
            # Every token must have room in the order of the program.
            spare = self.number(taken, given) - self.number(given, given)
            lead = min(lead, self.depth + int(spare.min()))
        if lead < 0:
            return None
        # Every wait takes a token of the start, or of a signal earlier in the program.
        number = self.number(taken, taken) - lead
        needed, number = taken[number > 0], number[number > 0]
        if (number > self.count(given, needed)).any() or (self.pick(given, needed, number) > needed).any():
            return None
        return lead

    def held(self, sync: Sync) -> int:
        """How strict a sync is: how many operations those of the waiting warp await, summed up."""
        signaller, waiter = (self.of_warp[w] for w in sync.warps)
        latest = self.awaited(self.told((sync,)), waiter)
        awaited = np.maximum(0, self.number(signaller, latest[latest >= 0]))
        return int(awaited.sum())

    def awaited(self, channel: Told, times: Array) -> Array:
        """By times of a warp that waits: up to when the one that signals is known to be complete.

        A time of -1 stands for nothing known.
        """
        waits, told = channel
        found: Array = told[waits.searchsorted(times, side="right")]
        if self.starts.size > 1:
            found[found < self.starts[self._run(times)]] = -1
        return found

    def _told(self, syncs: tuple[Sync, ...]) -> Told:
        waits, tokens, _ = self.taken(syncs)
        return told(waits, tokens)

    def taken(self, syncs: Sequence[Sync]) -> tuple[Array, Array, Array]:
        """The waits of syncs between the same two warps in order, their tokens, and each one's sync."""
        waits = [self.times(s.waits) for s in syncs]
        every = np.concatenate(waits)
        order = np.argsort(every, kind="stable")
        tokens = np.concatenate([self.tokens(s) for s in syncs])
        owners = np.repeat(np.arange(len(syncs)), [w.size for w in waits])
        return every[order], tokens[order], owners[order]

    def _tokens(self, sync: Sync) -> Array:
        """By wait: when the token that it takes is given; -1 for one in advance."""
        given, taken = self.times(sync.signals), self.times(sync.waits)
        found = np.full(taken.size, -1, np.int64)
        number = np.arange(1, taken.size + 1) - self._earlier(taken, taken) - sync.lead
        some = np.flatnonzero(number > 0)
        found[some] = self.pick(given, taken[some], number[some])
        return found

    def events(self, sync: Sync) -> int:
        """Signals and waits in all runs."""
        return int(self.times(sync.signals).size + self.times(sync.waits).size)


def told(waits: Array, tokens: Array) -> Told:
    """The waits of a channel, and the latest token that was taken before each and at the end."""
    return waits, np.maximum.accumulate(np.append(-1, tokens))


def by_pair(syncs: Iterable[Sync]) -> dict[Pair, list[Sync]]:
    """The syncs of every ordered pair of warps."""
    found: dict[Pair, list[Sync]] = {}
    for sync in syncs:
        found.setdefault(sync.warps, []).append(sync)
    return found


def channels_of(world: World, syncs: Iterable[Sync]) -> dict[Pair, Told]:
    """What each warp tells others by syncs."""
    return {pair: world.told(tuple(own)) for pair, own in by_pair(syncs).items()}


def known(world: World, channels: Mapping[Pair, Told], warp: int, times: Array) -> dict[int, Array]:
    """For one warp at its times: up to when every warp is known to be complete, through any others."""
    found: dict[int, Array] = {warp: times}
    changed = {warp}
    while changed:
        last, changed = changed, set()
        for (source, sink), channel in channels.items():
            if sink not in last or source == warp:
                continue
            before = found.get(source)
            through = world.awaited(channel, found[sink])
            found[source] = through if before is None else np.maximum(before, through)
            if before is None or (through > before).any():
                changed.add(source)
    return found


def unmet(world: World, syncs: Sequence[Sync], demands: Iterable[Wanted]) -> Iterator[Wanted]:
    """The demands that syncs do not meet, by themselves or through other warps; sink by sink."""
    by_sink: dict[int, list[Wanted]] = {}
    channels = channels_of(world, syncs)
    for demand in demands:
        by_sink.setdefault(demand.warps[1], []).append(demand)
    for warp, wanted in by_sink.items():
        times = [d.times(world) for d in wanted]
        latest = known(world, channels, warp, np.concatenate([sinks for _, sinks in times]))
        at = 0
        for demand, (sources, _) in zip(wanted, times, strict=True):
            complete = latest.get(demand.warps[0])
            end = at + sources.size
            if sources.size and (complete is None or (complete[at:end] < sources).any()):
                yield demand
            at = end


def room_of(world: World, sync: Sync) -> Room:
    """What keeps the channel of a sync from overflowing."""
    signaller, waiter = sync.warps
    return Room((waiter, signaller), sync.signals, sync.waits, world.depth - sync.lead, sync.demands)
