"""Assigns sync channels: one per ordered pair of warps, or one per sync, reused when free.

Every token must find room in its channel, however fast each warp runs. If it might not, the waiting warp
returns a token for each one it takes, and the signalling warp waits for it.
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
    """How syncs get channels: one for each while it is in use, or one for each ordered pair of warps."""

    UNIQUE = "unique"
    FIFO = "fifo"


#: Most rounds of adding missing syncs.
_ROUNDS = 8
_NO_PLACES = "no places for waits and signals were found that order all of the program"


@dataclass(frozen=True)
class Shared:
    """Syncs with their channels, and the syncs added so that no channel overflows."""

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
    """Channels for syncs that together meet all demands; raises `InputError` if tokens find no room.

    Syncs that share a channel may order less than each does alone; syncs of `every` that are missing then
        return. If more than `most` pairs of warps would need channels, some syncs go through a third warp if
    possible. With `prune`, needless waits and signals are removed from channels of warp pairs.
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
    """One sync per ordered pair of warps, for at most this many pairs if possible."""
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
    """The throttles that syncs do not already enforce, each with tokens that do."""
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
    """Tokens for the room in a channel: returned after each wait, taken before each signal.

    If every site is passed once, they are taken only before signals that must be held back.
    """
    signals = tuple(dataclasses.replace(s, order=s.order + 1) for s in room.waits)
    waits = tuple(dataclasses.replace(s, order=s.order - 1) for s in room.signals)
    if room.straight(world):
        exact = fit(world, room.warps, signals[: -room.room], waits[room.room :], (room,))
        if exact is not None:
            return exact
    return fit(world, room.warps, signals, waits, (room,))


def _alone(world: World, syncs: list[Sync]) -> Shared:
    """A channel per sync; one whose tokens are all gone is reused between the same warps."""
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
    """Whether a sync's tokens have all been taken before another one's first signal."""
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
    """A sync that goes through a third warp; None if it also keeps a channel from overflowing.

    The third warp takes and returns a token just before the sink's warp waits. This comes slightly later and
    delays the third warp too, so it is a last resort when channels are scarce.
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
    """Syncs, and third warps with channels to both sides, in order of increasing importance."""
    pairs = {s.warps for s in syncs}
    thirds = sorted({w for pair in pairs for w in pair})
    for sync in sorted(syncs, key=lambda s: (len(s.demands), s.warps)):
        first, last = sync.warps
        yield from ((sync, w) for w in thirds if {(first, w), (w, last)} <= pairs)
