"""What every warp knows at its waits, and which tokens can go so that all that must be ordered stays so.

A wait tells its warp all that the signalling warp knew at the signal. Who knows what is followed once from
front to back. A change of tokens is followed from the waits that it changes, as far as any warp then knows
less or more than before.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from sw.ir.vector import Array
from sw.warps.tokens import Room, Sync, Wanted, World

#: By warp: up to when it is known to be complete.
Clock = tuple[int, ...]
#: By wait: up to when the waiting warp of a channel must be complete, so that signals behind find room.
RoomNeeds = Mapping[int, int]
_NONE: Array = np.empty(0, np.int64)
#: By how many tokens a channel may have fewer than at first for what it needs to be known exactly.
_FEWER = 8
#: A time after all others.
_NEVER = int(np.iinfo(np.int64).max)


class WaitClocks:
    """What warps know at all waits of some syncs (the events, in order of time).

    Syncs go by their numbers in the sequence. Every wait must take a token of an earlier signal
    (`World.goes_on`). `demands` are those that the syncs meet. With `rooms`, channels must not overflow.
    """

    def __init__(self, world: World, syncs: Sequence[Sync], demands: Iterable[Wanted], *, rooms: bool):
        self.world = world
        found = {w for s in syncs for w in s.warps} | {w for d in demands for w in d.warps}
        self.place = {warp: n for n, warp in enumerate(sorted(found))}
        self.nothing: Clock = (-1,) * len(self.place)
        #: By sync: who signals and waits, and the numbers of its waits among the events.
        self.sides = [(self.place[s.warps[0]], self.place[s.warps[1]]) for s in syncs]
        self.events: list[Array] = []
        self._number(syncs)
        self.clocks: list[Clock] = []
        #: By wait: those of other warps whose tokens tell what was known there.
        self.users: list[list[int]] = [[] for _ in self.times]
        for event, token in enumerate(self.tokens):
            self._tell(event, token)
            self.clocks.append(self._clock(event, token, {}))
        self.demands = [d for d in demands if self._met(d)]
        self.rooms: list[RoomNeeds] = [self.room(room_of(world, s)) if rooms else {} for s in syncs]
        self._require(room_of(world, s) for s in syncs if rooms)

    def _number(self, syncs: Sequence[Sync]) -> None:
        """Number all waits, and find the token that each takes."""
        taken = [self.world.times(s.waits) for s in syncs]
        sizes = [t.size for t in taken]
        times = np.concatenate([_NONE, *taken])
        order = np.argsort(times, kind="stable")
        number = np.empty(order.size, np.int64)
        number[order] = np.arange(order.size)
        self.events = np.split(number, np.cumsum(sizes)[:-1]) if sizes else []
        self.times: list[int] = times[order].tolist()
        #: By wait: the channel, and when its token is given; -1 for one in advance, or none.
        self.channel: list[int] = np.repeat(np.arange(len(syncs)), sizes)[order].tolist()
        tokens = [self.world.tokens(s) for s in syncs]
        self.tokens: list[int] = np.concatenate([_NONE, *tokens])[order].tolist()
        waiter = np.array([w for _, w in self.sides], np.int64)[self.channel] if self.channel else _NONE
        #: By warp: its waits, and when they are.
        self.of_warp: list[list[int]] = [np.flatnonzero(waiter == n).tolist() for n in self.place.values()]
        self.at = [[self.times[e] for e in own] for own in self.of_warp]
        #: By wait: the ones before and behind it in its warp.
        self.previous, self.following = [-1] * order.size, [-1] * order.size
        for own in self.of_warp:
            for a, b in itertools.pairwise(own):
                self.previous[b], self.following[a] = a, b

    def _require(self, rooms: Iterable[Room]) -> None:
        """What demands need at every wait, and the earliest time that anything needs from there on."""
        needed = np.full((len(self.times) + 1, len(self.place)), -1, np.int64)
        earliest = np.full(len(self.times) + 1, _NEVER)
        for demand in self.demands:
            events, warp, until = self._needed(demand)
            np.minimum.at(earliest, events, until)
            np.maximum.at(needed[:, warp], events, until)
        for room in rooms:
            # With some tokens fewer, a signal asks for earlier waits.
            events, _, until = self._needed(replace(room, room=room.room + _FEWER))
            np.minimum.at(earliest, events, until)
        self.needed: list[Clock] = [tuple(row) for row in needed[:-1].tolist()]
        self.floor: list[int] = np.minimum.accumulate(earliest[:-1][::-1])[::-1].tolist()

    def _needed(self, demand: Wanted) -> tuple[Array, int, Array]:
        """The last waits in front of what a demand holds back, the warp waited for, and up to when."""
        sources, sinks = demand.times(self.world)
        first, second = (self.place[w] for w in demand.warps)
        found = np.searchsorted(self.at[second], sinks, side="right") - 1
        return np.array([*self.of_warp[second], -1], np.int64)[found], first, sources

    def _met(self, demand: Wanted) -> bool:
        events, warp, until = self._needed(demand)
        known = [self.clocks[e][warp] if e >= 0 else -1 for e in events.tolist()]
        return bool((np.array(known, np.int64) >= until).all())

    def room(self, room: Room) -> RoomNeeds:
        """What a channel needs at waits of the signalling warp so as not to overflow."""
        events, _, until = self._needed(room)
        return dict(zip(events.tolist(), until.tolist(), strict=True))

    @property
    def in_order(self) -> bool:
        """Whether no channel can overflow."""
        return all(self._has_room(n, room, {}) for n, room in enumerate(self.rooms))

    def _has_room(self, channel: int, room: RoomNeeds, made: Mapping[int, Clock]) -> bool:
        waiter = self.sides[channel][1]
        return all(
            e >= 0 and made.get(e, self.clocks[e])[waiter] >= until and until >= self.floor[e]
            for e, until in room.items()
        )

    def _last(self, warp: int, time: int) -> int:
        """The last wait of a warp up to a time; -1: none."""
        found = bisect_right(self.at[warp], time)
        return self.of_warp[warp][found - 1] if found else -1

    def _tell(self, event: int, token: int, *, add: bool = True) -> None:
        """Note, or forget, whose knowledge a token tells."""
        source = self._last(self.sides[self.channel[event]][0], token) if token >= 0 else -1
        if source >= 0:
            (self.users[source].append if add else self.users[source].remove)(event)

    def _clock(self, event: int, token: int, made: Mapping[int, Clock]) -> Clock:
        """What is known at a wait that takes a token; `made` has what is known at earlier waits now."""
        before = self.previous[event]
        clock = (made.get(before) or self.clocks[before]) if before >= 0 else self.nothing
        if token < 0:
            return clock
        warp = self.sides[self.channel[event]][0]
        source = self._last(warp, token)
        told = (made.get(source) or self.clocks[source]) if source >= 0 else self.nothing
        found = list(map(max, clock, told))
        found[warp] = max(found[warp], token)
        return tuple(found)

    def change(self, channel: int, tokens: Mapping[int, int], room: RoomNeeds) -> bool:
        """Give waits of a channel other tokens (-1: none) if all is in order then; whether that was done.

        `room` is what the channel needs then.
        """
        rooms = [room if n == channel else old for n, old in enumerate(self.rooms)]
        made: dict[int, Clock] = {}
        waiting = sorted(tokens)
        queued = set(waiting)
        while waiting:
            event = heapq.heappop(waiting)
            queued.discard(event)
            clock, old = self._clock(event, tokens.get(event, self.tokens[event]), made), self.clocks[event]
            if clock == old:
                continue
            made[event] = clock
            if not self._suffices(event, clock, rooms):
                return False
            floor = self.floor[event]
            if all(a == b or (a < floor and b < floor) for a, b in zip(clock, old, strict=True)):
                continue
            for after in (self.following[event], *self.users[event]):
                if after >= 0 and after not in queued:
                    queued.add(after)
                    heapq.heappush(waiting, after)
        if not self._has_room(channel, room, made):
            return False
        for event, token in tokens.items():
            self._tell(event, self.tokens[event], add=False)
            self._tell(event, token)
            self.tokens[event] = token
        for event, clock in made.items():
            self.clocks[event] = clock
        self.rooms = rooms
        return True

    def _suffices(self, event: int, clock: Clock, rooms: Sequence[RoomNeeds]) -> bool:
        """Whether what is known at a wait is all that demands and channels need there."""
        warp = self.sides[self.channel[event]][1]
        return all(map(int.__ge__, clock, self.needed[event])) and all(
            clock[waiter] >= room.get(event, -1)
            for (signaller, waiter), room in zip(self.sides, rooms, strict=True)
            if signaller == warp
        )


def room_of(world: World, sync: Sync) -> Room:
    """What keeps the channel of a sync from overflowing."""
    signaller, waiter = sync.warps
    return Room((waiter, signaller), sync.signals, sync.waits, world.depth - sync.lead)
