"""Syncs get channels: one for every ordered pair of warps, or one for each, used again when it is free.

Every token must have room in its channel, whatever the speeds of warps. Where it might not, the waiting warp
gives back a token for each one that it took, which the signalling warp waits for.
"""

from __future__ import annotations

import dataclasses
import enum
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hw.errors import InputError
from sw.warps.candidates import sites
from sw.warps.compose import compose, fit
from sw.warps.prune import pruned
from sw.warps.tokens import Demand, Leg, Pair, Room, Sync, World, channels_of, known, onwards, room_of, unmet


class Channels(enum.Enum):
    """How edges get channels: one for each while it is in use, or one for each ordered pair of warps."""

    UNIQUE = "unique"
    FIFO = "fifo"


#: Rounds of adding what turned out to be missing.
_ROUNDS = 8
_NO_PLACES = "no places for waits and signals were found that order all of the program"


@dataclass(frozen=True)
class Shared:
    """Syncs with their channels, and what had to be added so that no channel overflows."""

    syncs: tuple[Sync, ...]
    channels: tuple[int, ...]
    throttle: tuple[Room, ...]


def share_channels(
    world: World,
    chosen: Sequence[Sync],
    every: Sequence[Sync],
    demands: Sequence[Demand],
    channels: Channels,
    most: int,
    *,
    prune: bool = False,
) -> Shared:
    """Channels for syncs that together meet all demands; raises `InputError` where tokens find no room.

    Syncs in one channel may order less than each by itself: those of `every` that are missed then come back.
    Where pairs of warps would need more than `most` channels, some go through a third warp, as far as that is
    possible. With `prune`, needless waits and signals go where channels are those of pairs of warps.
    """
    if channels is Channels.UNIQUE:
        return _alone(world, list(chosen))
    syncs, rooms = _fewer(world, chosen, most)
    while missed := set(unmet(world, syncs, demands)):
        back = [s for s in every if s not in chosen and missed.intersection(s.demands)]
        if not back:
            break
        chosen = [*chosen, *back]
        syncs, rooms = _fewer(world, chosen, most)
    if prune:
        syncs = pruned(world, syncs, demands)
        rooms = [r for r in rooms if any(s.warps == r.warps for s in syncs)]
    numbers = {warps: n for n, warps in enumerate(sorted(s.warps for s in syncs))}
    return Shared(tuple(syncs), tuple(numbers[s.warps] for s in syncs), tuple(rooms))


def _fewer(world: World, chosen: Sequence[Sync], most: int) -> tuple[list[Sync], list[Room]]:
    """One sync for every ordered pair of warps, for no more than so many pairs where that can be done."""
    wanted = list(chosen)
    syncs, rooms = _by_pair(world, wanted)
    while len(syncs) > most:
        for sync, third in detours(syncs):
            legs = relayed(world, sync, third)
            if legs is None:
                continue
            tried = [s for s in wanted if s.warps != sync.warps] + legs
            try:
                found = _by_pair(world, tried)
            except InputError:
                continue
            if len(found[0]) < len(syncs):
                wanted, (syncs, rooms) = tried, found
                break
        else:
            break
    return syncs, rooms


def _by_pair(world: World, chosen: Sequence[Sync]) -> tuple[list[Sync], list[Room]]:
    """One sync for every ordered pair of warps."""
    wanted: dict[Pair, list[Sync]] = defaultdict(list)
    for sync in chosen:
        wanted[sync.warps].append(sync)
    rooms: list[Room] = []
    for _ in range(_ROUNDS):
        syncs = [_composed(world, parts) for _, parts in sorted(wanted.items())]
        throttles = _throttles(world, syncs)
        if not throttles:
            return syncs, rooms
        for room, throttle in throttles:
            rooms.append(room)
            wanted[room.warps].append(throttle)
    raise InputError(_NO_PLACES)


def _composed(world: World, parts: list[Sync]) -> Sync:
    made = compose(world, parts)
    if made is None:
        a, b = parts[0].warps
        raise InputError(
            f"channel_depth must be more than {world.depth}: tokens from warp {a} to warp {b} share a channel"
        )
    return made


def _throttles(world: World, syncs: Sequence[Sync]) -> list[tuple[Room, Sync]]:
    """What syncs leave open of what keeps channels from overflowing, each with tokens that order it."""
    found = []
    for room in unmet(world, syncs, [room_of(world, s) for s in syncs]):
        assert isinstance(room, Room)
        signals, waits = (tuple(sorted(s, key=world.first)) for s in (room.signals, room.waits))
        room = dataclasses.replace(room, signals=signals, waits=waits)
        throttle = _throttle(world, room)
        if throttle is None:
            a, b = room.warps
            raise InputError(
                f"channel_depth must be more than {world.depth} for tokens from warp {b} to warp {a}"
            )
        found.append((room, throttle))
    return found


def _throttle(world: World, room: Room) -> Sync | None:
    """Tokens for the room in a channel: given back behind each wait, taken in front of each signal.

    Where every site is passed once, only in front of signals that must be held back.
    """
    signals = tuple(dataclasses.replace(s, order=s.order + 1) for s in room.waits)
    waits = tuple(dataclasses.replace(s, order=s.order - 1) for s in room.signals)
    if room.straight(world):
        exact = fit(world, room.warps, signals[: -room.room], waits[room.room :], (room,))
        if exact is not None:
            return exact
    return fit(world, room.warps, signals, waits, (room,))


def _alone(world: World, syncs: list[Sync]) -> Shared:
    """A channel for each sync; one whose tokens are all gone before serves again between the same warps."""
    rooms: list[Room] = []
    for _ in range(_ROUNDS):
        throttles = _throttles(world, syncs)
        if not throttles:
            break
        rooms += [room for room, _ in throttles]
        syncs += [throttle for _, throttle in throttles]
    else:
        raise InputError(_NO_PLACES)
    syncs.sort(key=lambda s: tuple(int(world.times(sites).min(initial=0)) for sites in (s.signals, s.waits)))
    numbers: dict[int, int] = {}
    first = 1
    for pool in (True, False):
        users: defaultdict[int, list[Sync]] = defaultdict(list)
        for sync in syncs:
            if sync.data is not pool:
                continue
            number = first
            while not all(_over(world, syncs, earlier, sync) for earlier in users[number]):
                number += 1
            users[number].append(sync)
            numbers[id(sync)] = number
        first += len(users)
    return Shared(tuple(syncs), tuple(numbers[id(s)] for s in syncs), tuple(rooms))


def _over(world: World, syncs: Sequence[Sync], old: Sync, new: Sync) -> bool:
    """Whether the tokens of a sync are all given and taken before another one's first signal."""
    if old.warps != new.warps or old.lead or new.lead:
        return False
    given, taken = world.times(old.signals), world.times(old.waits)
    started = world.times(new.signals)
    count = world.count(taken, started)
    if (count != world.count(given, started)).any():
        return False
    some = count > 0
    ends = world.pick(taken, started[some], count[some])
    complete = known(world, channels_of(world, syncs), new.warps[0], started[some]).get(old.warps[1])
    return not ends.size or (complete is not None and bool((complete >= ends).all()))


def relayed(world: World, sync: Sync, third: int) -> list[Sync] | None:
    """What a sync does, through a third warp; None where it is also there for room in a channel.

    The third warp takes and gives a token right in front of where the sink's warp waits. That comes a little
    later and holds up the third as well, so it is done only where channels do not suffice.
    """
    made: list[Sync] = []
    for demand in sync.demands:
        if type(demand) is not Demand:
            return None
        first, last = demand.warps
        (given, _), (taken, _) = (found[0] for found in sites(demand.source, demand.sink))
        fields = demand.source, demand.sink, demand.pairs, demand.data
        ways = (
            (Leg(*fields, (first, third)), given, taken),
            (Leg(*fields, (third, last), taken), *onwards(taken)),
        )
        world.add(site for _, *ends in ways for site in ends)
        for leg, signal, wait in ways:
            found = fit(world, leg.warps, (signal,), (wait,), (leg,))
            if found is None:
                return None
            made.append(found)
    return made


def detours(syncs: Sequence[Sync]) -> Iterator[tuple[Sync, int]]:
    """Syncs, and third warps that both sides have channels to; those that the least depends on first."""
    pairs = {s.warps for s in syncs}
    thirds = sorted({w for pair in pairs for w in pair})
    for sync in sorted(syncs, key=lambda s: (len(s.demands), s.warps)):
        first, last = sync.warps
        yield from ((sync, w) for w in thirds if {(first, w), (w, last)} <= pairs)
