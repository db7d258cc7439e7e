"""Tokens between warps: which wait takes which signal, and the order that this enforces.

The n-th wait of a channel takes the n-th token. `lead` tokens are in the channel at the start, so wait n
takes the token of signal n - lead. Everything that the signalling warp does before that signal then happens
before everything that the waiting warp does after the wait.
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

#: An ordered pair of warps: signalling, waiting.
Pair = tuple[int, int]
#: The waits of one warp for another in order, and for each wait count the latest token taken so far.
Told = tuple[Array, Array]
_NONE: Array = np.empty(0, np.int64)
#: Number of site tuples whose times are cached.
_KEPT = 4096

#: Bits of a timestamp below the visit: the order within a gap, which is above -`_FIRST`, and below it the
#: rank among several predicates.
_SCALE, _RANKS, _FIRST = 24, 16, 64


@dataclass(frozen=True, eq=False)
class Demand:
    """Two instructions whose instances must be ordered, with the times of each pair (n × 2).

    `data` is true if the sink reads what the source wrote.
    """

    source: Spot
    sink: Spot
    pairs: Array
    data: bool

    @functools.cached_property
    def warps(self) -> Pair:
        """The signalling and the waiting warp."""
        return warp_of(self.source.instruction), warp_of(self.sink.instruction)

    def times(self, world: World) -> tuple[Array, Array]:
        """Times of the instances to be ordered: earlier ones, later ones."""
        return self.pairs[:, 0], self.pairs[:, 1]


@dataclass(frozen=True, eq=False)
class Leg(Demand):
    """A part of the path from source to sink; `relay` is where the third warp waits, if it starts there."""

    legs: Pair
    relay: SyncSite | None = None

    @property
    def warps(self) -> Pair:
        """The signalling and the waiting warp."""
        return self.legs

    def times(self, world: World) -> tuple[Array, Array]:
        """Times to be ordered: from the source to the sink, or from the third warp's last wait."""
        sources, sinks = super().times(world)
        if self.relay is None:
            return sources, sinks
        passed = world.passes[self.relay]
        return world.pick(passed, sinks, world.number(passed, sinks)), sinks


def onwards(wait: SyncSite) -> tuple[SyncSite, SyncSite]:
    """The sites at which a third warp passes on a token, and at which that token is awaited."""
    return dataclasses.replace(wait, order=Order.PASS), dataclasses.replace(wait, order=Order.PASSED)


@dataclass(frozen=True, eq=False)
class Room:
    """Back-pressure: a signal may fire only after enough waits, or its channel overflows.

    `signals` and `waits` are those of the channel; signal n is ordered after wait n - `room`.
    """

    warps: Pair
    signals: tuple[SyncSite, ...]
    waits: tuple[SyncSite, ...]
    room: int
    #: The demands that the channel serves.
    demands: tuple[Wanted, ...] = ()

    @property
    def gaps(self) -> list[tuple[Gap, Gap]]:
        """The gaps of wait n - `room`, or of another wait, and of signal n."""
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
        """Times of the waits and signals to be ordered."""
        given, taken = world.times(self.signals), world.times(self.waits)
        number = world.number(given, given)
        held = (number > self.room) & (number <= world.count(taken, given) + self.room)
        return world.pick(taken, given[held], number[held] - self.room), given[held]


Wanted = Demand | Room


def _placed(times: Array, start: int) -> Array:
    return (times << _SCALE) + start


def warp_of(s: Instruction) -> int:
    """The warp of an instruction, which must have one."""
    assert s.warp is not None
    return s.warp


@dataclass(frozen=True, eq=False)
class Sync:
    """Sites at which one warp signals and another waits, with tokens in advance, and the reasons for it."""

    warps: Pair
    signals: tuple[SyncSite, ...]
    waits: tuple[SyncSite, ...]
    lead: int
    demands: tuple[Wanted, ...]

    @property
    def data(self) -> bool:
        """Whether any of its sinks reads what the source wrote."""
        return any(isinstance(d, Demand) and d.data for d in self.demands)


class World:
    """Samples of a program on one timeline.

    Every run starts with the initial state of the channels. `depth` is the number of tokens a channel holds.
    """

    def __init__(self, program: Program, samples: Sequence[Sample], depth: int):
        self.program, self.samples, self.depth = program, samples, depth
        self.passes: dict[SyncSite, Array] = {}
        #: Cached times, by identity of the tuple of sites: hashing the sites would take longer.
        self._times: dict[int, tuple[tuple[SyncSite, ...], Array]] = {}
        #: Ranks of the predicates at sites that share a gap and an order, by first occurrence.
        self._ranks: dict[tuple[Gap, int], dict[Expr | None, int]] = {}
        ends = np.cumsum([0, *((s.end + 1) << _SCALE for s in samples)])
        #: Start time of each run.
        self.starts: Array = ends[:-1]
        self.periods = np.concatenate([_placed(s.periods, at) for s, at in zip(samples, ends, strict=False)])
        parts: dict[int, list[Array]] = {}
        for sample, at in zip(samples, self.starts, strict=True):
            for label, visits in sample.instances.items():
                warp = warp_of(sample.spots[label].instruction)
                parts.setdefault(warp, [_NONE]).append(_placed(visits.times, at))
        #: Times of each warp's instructions.
        self.of_warp = {warp: np.sort(np.concatenate(found)) for warp, found in parts.items()}
        self.instances = sum(times.size for times in self.of_warp.values())
        self.told = functools.lru_cache(maxsize=128)(self._told)
        self.tokens = functools.lru_cache(maxsize=128)(self._tokens)

    def add(self, sites: Iterable[SyncSite]) -> None:
        """Finds out when control passes these sites, if that is not known yet."""
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
        """When control first passes a site; sites that are never passed come first."""
        times = self.times((site,))
        return int(times[0]) if times.size else -1

    def placed(self, run: int, times: Array) -> Array:
        """Times of a sample on the common timeline."""
        return _placed(times, self.starts[run])

    def keeps_pace(self, given: Array, taken: Array) -> bool:
        """Whether each period of a partly followed loop takes as many tokens as it signals.

        If so, the iterations left out hold no more tokens than those followed, and leave as many behind.
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
        """The sites without one of them; each counts once."""
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
        """Number of events up to and including these times, each within its own run."""
        return events.searchsorted(times, side="right") - self._earlier(events, times)

    def count(self, events: Array, times: Array) -> Array:
        """Number of events in the runs that these times belong to."""
        counts: Array = np.array(self.each(events), np.int64)[self._run(times)]
        return counts

    def pick(self, events: Array, times: Array, number: Array) -> Array:
        """Times of the events with these numbers, from 1, in the runs that these times belong to."""
        found: Array = events[self._earlier(events, times) + number - 1]
        return found

    def each(self, events: Array) -> list[int]:
        """Number of events in each run."""
        ends = [*events.searchsorted(self.starts).tolist(), events.size]
        return [end - start for start, end in pairwise(ends)]

    def _earlier(self, events: Array, times: Array) -> Array | int:
        """Number of events in the runs before those that these times belong to."""
        return events.searchsorted(self.starts)[self._run(times)] if self.starts.size > 1 else 0

    def _run(self, times: Array) -> Array:
        return self.starts.searchsorted(times, side="right") - 1

    def lead(
        self, signals: tuple[SyncSite, ...], waits: tuple[SyncSite, ...], demands: Iterable[Wanted]
    ) -> int | None:
        """The most tokens in advance, up to the depth of a channel, that still enforce the demands.

        None if no number does, if signals and waits differ in number, or if a wait would take a token of a
        signal that comes later in the program, which could block both.
        """
        lead = self.depth
        given, taken = self.times(signals), self.times(waits)
        if self.each(given) != self.each(taken) or not self.keeps_pace(given, taken):
            return None
        for demand in demands:
            sources, sinks = demand.times(self)
            if not sources.size:
                continue
            # The first signal after the source, and the last wait before the sink, counted from 1.
            first = self.number(given, sources) + 1
            if (first > self.count(given, sources)).any():
                return None
            lead = min(lead, int((self.number(taken, sinks) - first).min()))
        if given.size:
            # Every token must find room in sequential program order.
            spare = self.number(taken, given) - self.number(given, given)
            lead = min(lead, self.depth + int(spare.min()))
        if lead < 0:
            return None
        # Every wait takes an initial token, or one signalled earlier in the program.
        number = self.number(taken, taken) - lead
        needed, number = taken[number > 0], number[number > 0]
        if (number > self.count(given, needed)).any() or (self.pick(given, needed, number) > needed).any():
            return None
        return lead

    def held(self, sync: Sync) -> int:
        """How strict a sync is: the number of operations awaited by those of the waiting warp, summed up."""
        signaller, waiter = (self.of_warp[w] for w in sync.warps)
        latest = self.awaited(self.told((sync,)), waiter)
        awaited = np.maximum(0, self.number(signaller, latest[latest >= 0]))
        return int(awaited.sum())

    def awaited(self, channel: Told, times: Array) -> Array:
        """By times of a waiting warp: the time up to which the signalling warp is known to be complete.

        -1 means that nothing is known.
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
        """The waits of syncs between the same two warps in order, with their tokens and syncs."""
        waits = [self.times(s.waits) for s in syncs]
        every = np.concatenate(waits)
        order = np.argsort(every, kind="stable")
        tokens = np.concatenate([self.tokens(s) for s in syncs])
        owners = np.repeat(np.arange(len(syncs)), [w.size for w in waits])
        return every[order], tokens[order], owners[order]

    def _tokens(self, sync: Sync) -> Array:
        """By wait: when its token is signalled; -1 for one in advance."""
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
    """The waits of a channel, and the latest token taken before each one and at the end."""
    return waits, np.maximum.accumulate(np.append(-1, tokens))


def by_pair(syncs: Iterable[Sync]) -> dict[Pair, list[Sync]]:
    """The syncs of every ordered pair of warps."""
    found: dict[Pair, list[Sync]] = {}
    for sync in syncs:
        found.setdefault(sync.warps, []).append(sync)
    return found


def channels_of(world: World, syncs: Iterable[Sync]) -> dict[Pair, Told]:
    """The waits and tokens of each pair of warps, from syncs."""
    return {pair: world.told(tuple(own)) for pair, own in by_pair(syncs).items()}


def known(world: World, channels: Mapping[Pair, Told], warp: int, times: Array) -> dict[int, Array]:
    """For one warp at its times: when every other warp is known to be complete, directly or indirectly."""
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
    """The demands that syncs do not meet, directly or through other warps, sink by sink."""
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
    """The condition that keeps the channel of a sync from overflowing."""
    signaller, waiter = sync.warps
    return Room((waiter, signaller), sync.signals, sync.waits, world.depth - sync.lead, sync.demands)
