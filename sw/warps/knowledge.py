"""What every warp knows at its waits, and which change of tokens leaves what must be ordered in order.

A wait tells its warp all that the signalling warp knew at the signal. Who knows what is followed once from
front to back. A change is followed from the waits that it changes, as far as any warp then knows less or
more than before and something that must be ordered begins earlier: changes far apart in the program do not
cost each other anything.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from sw.ir.vector import Array
from sw.warps.tokens import Room, Sync, Wanted, World

#: By warp: up to when it is known to be complete.
Clock = tuple[int, ...]
_NONE: Array = np.empty(0, np.int64)
#: By how many tokens a channel may have fewer than at first for what it needs to be known exactly.
_FEWER = 8
#: A time after all others.
_NEVER = int(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class Need:
    """At a wait of its warp, or behind it, another warp must be known complete up to a time.

    `event` is the last wait in front of what needs it, at `time`.
    """

    event: int
    time: int
    warp: int
    until: int


@dataclass
class Change:
    """Waits that take other tokens than before, by number: the time of the signal, -1 for a token in advance.

    What signals of the sync `room_of` need for room between the times of `spans` does not count any more.
    """

    tokens: dict[int, int]
    room_of: int = -1
    spans: Sequence[tuple[int, int]] = ()

    def anew(self, sync: int, time: int) -> bool:
        """Whether the room that a signal needs is looked at anew."""
        return sync == self.room_of and any(since <= time <= until for since, until in self.spans)


@dataclass
class Outcome:
    """What comes of a change: whether all is in order, and up to when it was followed.

    `clocks` are what the warps know now, for waits where that differs.
    """

    ok: bool
    until: int
    clocks: dict[int, Clock] = field(default_factory=dict)


class Knowledge:
    """What warps know at all waits of some syncs (the events, in order of time).

    Syncs go by their numbers in the sequence. `needs` are what demands come to, `rooms` what keeps channels
    from overflowing. Every wait must take a token of an earlier signal (`World.goes_on`).
    """

    def __init__(self, world: World, syncs: Sequence[Sync], demands: Iterable[Wanted], *, rooms: bool):
        self.world, self.syncs = world, syncs
        found = {w for s in syncs for w in s.warps} | {w for d in demands for w in d.warps}
        self.place = {warp: n for n, warp in enumerate(sorted(found))}
        #: By sync: the numbers of its waits among the events.
        self.events: list[Array] = []
        self._number()
        self._follow()
        self.demands = [d for d in demands if self._met(d)]
        self._require(rooms)

    def _number(self) -> None:
        """Number all waits, and find the token that each takes."""
        world = self.world
        taken = [world.times(s.waits) for s in self.syncs]
        tokens = [world.tokens(s) for s in self.syncs]
        sizes = [t.size for t in taken]
        times = np.concatenate([_NONE, *taken])
        order = np.argsort(times, kind="stable")
        number = np.empty(order.size, np.int64)
        number[order] = np.arange(order.size)
        self.events = np.split(number, np.cumsum(sizes)[:-1]) if sizes else []
        self.times: list[int] = times[order].tolist()
        owner = np.repeat(np.arange(len(self.syncs)), sizes)[order]
        self.owner: list[int] = owner.tolist()
        self.tokens: list[int] = np.concatenate([_NONE, *tokens])[order].tolist()
        sides = np.array([[self.place[w] for w in s.warps] for s in self.syncs], np.int64).reshape(-1, 2)
        self.signaller: list[int] = sides[owner, 0].tolist()
        waiter = sides[owner, 1]
        #: By warp: its waits, and when they are.
        self.of_warp = [np.flatnonzero(waiter == n) for n in range(len(self.place))]
        self.at = [times[order][own] for own in self.of_warp]
        self._own = [own.tolist() for own in self.of_warp]
        self._when = [at.tolist() for at in self.at]
        count = len(self.times)
        #: By wait: the ones before and behind it in its warp.
        self.previous, self.following = [-1] * count, [-1] * count
        for own in self._own:
            for a, b in itertools.pairwise(own):
                self.previous[b], self.following[a] = a, b

    def last(self, warp: int, time: int) -> int:
        """The last wait of a warp up to a time; -1: none."""
        found = bisect_right(self._when[warp], time)
        return self._own[warp][found - 1] if found else -1

    def _last(self, warp: int, times: Array) -> Array:
        found = np.searchsorted(self.at[warp], times, side="right") - 1
        return np.append(self.of_warp[warp], -1)[found]

    def _follow(self) -> None:
        """What is known at every wait."""
        self.nothing: Clock = (-1,) * len(self.place)
        self.clocks: list[Clock] = []
        #: By wait: those of other warps whose tokens tell what was known there.
        self.users: list[list[int]] = [[] for _ in self.times]
        for event, token in enumerate(self.tokens):
            source = self.last(self.signaller[event], token) if token >= 0 else -1
            if source >= 0:
                self.users[source].append(event)
            self.clocks.append(self._clock(event, token, source, self.clocks))

    def _clock(
        self, event: int, token: int, source: int, clocks: Sequence[Clock] | Mapping[int, Clock]
    ) -> Clock:
        before = self.previous[event]
        clock = clocks[before] if before >= 0 else self.nothing
        if token < 0:
            return clock
        told = clocks[source] if source >= 0 else self.nothing
        made = list(map(max, clock, told))
        warp = self.signaller[event]
        if made[warp] < token:
            made[warp] = token
        return tuple(made)

    def _needed(self, demand: Wanted) -> tuple[Array, Array, int, Array]:
        """Events in front of what a demand holds back, when that is, the warp waited for, and up to when."""
        sources, sinks = demand.times(self.world)
        first, second = (self.place[w] for w in demand.warps)
        return self._last(second, sinks), sinks, first, sources

    def _met(self, demand: Wanted) -> bool:
        events, _, warp, until = self._needed(demand)
        known = [self.clocks[e][warp] if e >= 0 else -1 for e in events.tolist()]
        return bool((np.array(known, np.int64) >= until).all())

    def room(self, sync: Sync) -> Room:
        """What keeps the channel of a sync from overflowing."""
        signaller, waiter = sync.warps
        return Room((waiter, signaller), sync.signals, sync.waits, self.world.depth - sync.lead)

    def _require(self, rooms: bool) -> None:
        """Sum up what is needed, by event: of demands, and together with the rooms of channels."""
        count = len(self.times)
        needed = np.full((count + 1, len(self.place)), -1, np.int64)
        sinks, sources = [_NONE], [_NONE]

        def take(wanted: Wanted) -> None:
            events, times, warp, until = self._needed(wanted)
            np.maximum.at(needed[:, warp], events, until)
            sinks.append(times)
            sources.append(until)

        for demand in self.demands:
            take(demand)
        self.demanded: list[Clock] = [tuple(row) for row in needed.tolist()]
        #: What is needed for room, by event: sync, and what it needs.
        self.crowding: dict[int, list[tuple[int, Need]]] = {}
        if rooms:
            for n, sync in enumerate(self.syncs):
                room = self.room(sync)
                take(room)
                self._add_room(n, self.needs(room))
                # With some tokens fewer, a signal asks for earlier waits.
                given, taken = self.world.times(sync.signals), self.world.times(sync.waits)
                if taken.size:
                    earlier = self.world.number(given, given) - 1 - self.world.depth - _FEWER
                    some = self.world.count(taken, given) > 0
                    number = np.clip(earlier[some], 1, self.world.count(taken, given)[some])
                    sinks.append(given[some])
                    sources.append(self.world.pick(taken, given[some], number))
        self.required: list[Clock] = [tuple(row) for row in needed.tolist()]
        last, first = np.concatenate(sinks), np.concatenate(sources)
        order = np.argsort(last)
        #: By sorted times of what is held back: the earliest that it, or anything later, waits for.
        self._ends: list[int] = last[order].tolist()
        self._earliest: list[int] = np.minimum.accumulate(first[order][::-1])[::-1].tolist()
        #: By event: the earliest that anything waits for from there on.
        self.floor = [self.floor_at(time) for time in self.times]

    def needs(self, room: Room) -> list[Need]:
        """What a channel needs so as not to overflow."""
        events, times, warp, until = self._needed(room)
        return [
            Need(e, t, warp, u)
            for e, t, u in zip(events.tolist(), times.tolist(), until.tolist(), strict=True)
        ]

    def floor_at(self, time: int) -> int:
        """The earliest that anything waits for from a time on."""
        at = bisect_left(self._ends, time)
        return self._earliest[at] if at < len(self._ends) else _NEVER

    def _add_room(self, sync: int, needs: Iterable[Need]) -> None:
        for need in needs:
            self.crowding.setdefault(need.event, []).append((sync, need))

    @property
    def in_order(self) -> bool:
        """Whether all that is required is known."""
        return all(
            all(map(int.__ge__, clock, needed))
            for clock, needed in zip([*self.clocks, self.nothing], self.required, strict=True)
        )

    # Changes

    def follow(self, change: Change) -> Outcome:
        """What comes of a change."""
        made: dict[int, Clock] = {}
        waiting = sorted(change.tokens)
        queued = set(waiting)
        until = -1
        while waiting:
            event = heapq.heappop(waiting)
            queued.discard(event)
            until = self.times[event]
            clock = self._changed(event, change, made)
            old = self.clocks[event]
            if clock == old:
                continue
            made[event] = clock
            if not all(map(int.__ge__, clock, self.required[event])) and not self._still(
                event, clock, change
            ):
                return Outcome(False, until, made)
            floor = self.floor[event]
            if all(a == b or (a < floor and b < floor) for a, b in zip(clock, old, strict=True)):
                continue
            for after in (self.following[event], *self.users[event]):
                if after >= 0 and after not in queued:
                    queued.add(after)
                    heapq.heappush(waiting, after)
        return Outcome(True, until, made)

    def suffices(self, outcome: Outcome, needs: Iterable[Need]) -> bool:
        """Whether other needs than before are met where a change has that outcome."""
        for need in needs:
            event = need.event
            clock = outcome.clocks.get(event, self.clocks[event]) if event >= 0 else self.nothing
            # What was known earlier than anything else asks for is not kept up.
            if clock[need.warp] < need.until or need.until < self.floor_at(need.time):
                return False
        return True

    def _changed(self, event: int, change: Change, made: Mapping[int, Clock]) -> Clock:
        """What is known at a wait after a change, of which `made` has what is known at earlier waits."""
        token = change.tokens.get(event, self.tokens[event])
        before = self.previous[event]
        clock = made.get(before, self.clocks[before]) if before >= 0 else self.nothing
        if token < 0:
            return clock
        warp = self.signaller[event]
        source = self.last(warp, token)
        told = made.get(source, self.clocks[source]) if source >= 0 else self.nothing
        found = list(map(max, clock, told))
        if found[warp] < token:
            found[warp] = token
        return tuple(found)

    def _still(self, event: int, clock: Clock, change: Change) -> bool:
        """Whether what is known suffices without the room of a channel that is looked at anew."""
        if not all(map(int.__ge__, clock, self.demanded[event])):
            return False
        return all(
            clock[need.warp] >= need.until
            for sync, need in self.crowding.get(event, ())
            if not change.anew(sync, need.time)
        )

    def commit(self, change: Change, outcome: Outcome, needs: Sequence[Need] = ()) -> None:
        """Take a change over, with what a channel needs for room in place of what it needed there."""
        for event, token in change.tokens.items():
            for told, add in ((self.tokens[event], False), (token, True)):
                source = self.last(self.signaller[event], told) if told >= 0 else -1
                if source >= 0:
                    (self.users[source].append if add else self.users[source].remove)(event)
            self.tokens[event] = token
        for event, clock in outcome.clocks.items():
            self.clocks[event] = clock
        signaller = self.place[self.syncs[change.room_of].warps[0]] if change.spans else 0
        touched = {need.event for need in needs}
        for since, until in change.spans:
            touched |= {self.last(signaller, since)}
            touched |= set(range(bisect_left(self.times, since), bisect_right(self.times, until)))
        for event in touched & self.crowding.keys():
            kept = [(n, need) for n, need in self.crowding[event] if not change.anew(n, need.time)]
            self.crowding[event] = kept
        self._add_room(change.room_of, needs)
        for event in touched:
            row = list(self.demanded[event])
            for _, need in self.crowding.get(event, ()):
                row[need.warp] = max(row[need.warp], need.until)
            self.required[event] = tuple(row)
