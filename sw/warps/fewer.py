"""A channel without some of its waits and signals: which token a wait takes then, and what room is needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from sw.ir.vector import Array
from sw.warps.knowledge import Change, Knowledge, Need
from sw.warps.sites import Site
from sw.warps.tokens import Sync, World

_NONE: Array = np.empty(0, np.int64)


@dataclass
class ChannelTokens:
    """The tokens of a sync: when they are given and taken, what each wait takes, and which event it is."""

    sync: Sync
    number: int
    given: Array
    taken: Array
    tokens: Array
    events: Array

    @classmethod
    def of(cls, world: World, known: Knowledge, number: int) -> ChannelTokens:
        """Those of a sync by its number."""
        sync = known.syncs[number]
        given, taken = world.times(sync.signals), world.times(sync.waits)
        return cls(sync, number, given, taken, world.tokens(sync), known.events[number])


@dataclass(frozen=True)
class _Part:
    """What changes in one run: between which signals and waits, and what is left of them there.

    `given` are the signals from `first_given` on without those that go, `taken` the waits from `first_taken`
    on, and `tokens` what they take now; `kept` and `gone` are numbers of waits of the channel.
    """

    since: int
    given: Array
    first_given: int
    left_given: int
    taken: Array
    first_taken: int
    left_taken: int
    signals: slice
    kept: Array
    gone: Array
    tokens: Array
    until: int


@dataclass(frozen=True)
class Smaller:
    """A channel without a signal, a wait or one of each, `empty` without waits; changed from `since` on."""

    empty: bool
    change: Change
    parts: tuple[_Part, ...]
    since: int


def _cut(times: Array, gone: Array, count: int) -> Array:
    """Which of some times go: so many of each of `gone`."""
    found = np.searchsorted(times, gone)
    return found if count == 1 else (found[:, None] + np.arange(count)).ravel()


def without(world: World, channel: ChannelTokens, signal: Site | None, wait: Site | None) -> Smaller | int:
    """A channel without some tokens; up to when it was looked at where that cannot be.

    It cannot where it could hold more tokens than its depth, where a wait would take the token of a later
    signal, or where the waiting warp is held up more than before.
    """
    if wait is not None and channel.sync.waits == (wait,) and (signal is not None or wait.count == 1):
        return _nothing(channel)
    parts: list[_Part] = []
    stricter = 0
    for run in range(world.starts.size):
        part = _part(world, channel, run, signal, wait)
        if isinstance(part, int):
            return part
        if part is not None:
            parts.append(part)
            stricter += _stricter(world, channel, run, part)
    if not parts:
        return 0
    if stricter > 0:
        return parts[-1].until
    tokens: dict[int, int] = {}
    for part in parts:
        tokens |= dict.fromkeys(channel.events[part.gone].tolist(), -1)
        other = part.tokens != channel.tokens[part.kept]
        changed = channel.events[part.kept[other]].tolist()
        tokens |= dict(zip(changed, part.tokens[other].tolist(), strict=True))
    spans = tuple((part.since, part.until) for part in parts)
    return Smaller(False, Change(tokens, channel.number, spans), tuple(parts), parts[0].since)


def _nothing(channel: ChannelTokens) -> Smaller:
    """Without its last wait a channel has no use."""
    ends = [int(t[n]) for t in (channel.given, channel.taken) if t.size for n in (0, -1)]
    span = min(ends, default=0), max(ends, default=0)
    gone = dict.fromkeys(channel.events.tolist(), -1)
    return Smaller(True, Change(gone, channel.number, (span,)), (), span[0])


def _part(
    world: World, channel: ChannelTokens, run: int, signal: Site | None, wait: Site | None
) -> _Part | int | None:
    """What changes in a run: None for nothing, up to when it was looked at where it cannot be."""
    start = int(world.starts[run])
    end = int(world.starts[run + 1]) if run + 1 < world.starts.size else _END
    g0, g1 = np.searchsorted(channel.given, (start, end)).tolist()
    t0, t1 = np.searchsorted(channel.taken, (start, end)).tolist()
    given, taken, lead = channel.given[g0:g1], channel.taken[t0:t1], channel.sync.lead
    gone_given, gone_taken = (
        _NONE if s is None else _within(world.times((replace(s, count=1),)), start, end)
        for s in (signal, wait)
    )
    count = signal.count if signal is not None and wait is not None else 1
    fewer_given, fewer_taken = gone_given.size * count, gone_taken.size * count
    if not fewer_given and not fewer_taken:
        return None
    if given.size - fewer_given + lead - (taken.size - fewer_taken) > world.depth:
        return end
    ends = [int(t[n]) for t in (gone_given, gone_taken) if t.size for n in (0, -1)]
    since, until = min(ends), max(ends)
    if fewer_given != fewer_taken:
        until = end
    i0, j0 = int(np.searchsorted(given, since)), int(np.searchsorted(taken, since))
    i1, j1 = (int(np.searchsorted(t, until, side="right")) for t in (given, taken))
    # Behind the last of them, tokens and places in the channel are still others for a while.
    room = world.depth - lead
    last_wait = min(taken.size, max(j1, i1 + lead))
    last_signal = min(given.size, max(i1, j1 + room))
    a = min(i0, max(0, j0 - lead))
    b = min(j0, max(0, i0 - room))
    more = max(last_signal, last_wait - lead + fewer_given)
    rest_given = np.delete(given[a:more], _cut(given[a:more], gone_given, count))
    window = taken[j0:last_wait]
    cut = _cut(window, gone_taken, count)
    kept = np.delete(np.arange(j0, last_wait), cut)
    number = j0 + np.arange(kept.size) - lead
    if number.size and number[-1] - a >= rest_given.size:
        return int(window[-1])
    tokens = (
        np.where(number >= 0, rest_given[np.maximum(number - a, 0)], -1)
        if rest_given.size
        else number * 0 - 1
    )
    if (tokens >= taken[kept]).any():
        return int(window[-1])
    rest_taken = np.delete(
        taken[b : max(last_wait, last_signal - room + fewer_taken)],
        _cut(taken[b : max(last_wait, last_signal - room + fewer_taken)], gone_taken, count),
    )
    ends_at = [since, *given[last_signal - 1 : last_signal].tolist(), *window[-1:].tolist()]
    return _Part(
        since,
        rest_given,
        a,
        given.size - fewer_given,
        rest_taken,
        b,
        taken.size - fewer_taken,
        slice(i0, last_signal - fewer_given),
        kept + t0,
        cut + (j0 + t0),
        tokens,
        max(ends_at),
    )


_END = int(np.iinfo(np.int64).max)


def _within(times: Array, start: int, end: int) -> Array:
    return times[slice(*np.searchsorted(times, (start, end)))]


def _stricter(world: World, channel: ChannelTokens, run: int, part: _Part) -> int:
    """How many more operations those of the waiting warp await, summed up."""
    signaller, waiter = (world.of_warp_times(w) for w in channel.sync.warps)
    start = int(world.starts[run])
    end = int(world.starts[run + 1]) if run + 1 < world.starts.size else _END
    both = np.concatenate([part.kept, part.gone])
    if not both.size:
        return 0
    first, last = int(both.min()), int(both.max()) + 1
    behind = int(channel.taken[last]) if last < channel.taken.size else end
    operations = _within(waiter, part.since, min(behind, end))
    base = int(np.searchsorted(signaller, start))

    def awaited(times: Array, tokens: Array) -> int:
        before = channel.tokens[first - 1] if first and channel.taken[first - 1] >= start else -1
        latest = np.append(before, tokens)[np.searchsorted(times, operations, side="right")]
        number = np.searchsorted(signaller, latest, side="right") - base
        return int(np.where(latest >= 0, number, 0).sum())

    old = awaited(channel.taken[first:last], channel.tokens[first:last])
    return awaited(channel.taken[part.kept], part.tokens) - old


def needs(world: World, known: Knowledge, channel: ChannelTokens, smaller: Smaller) -> list[Need]:
    """What the smaller channel needs for room, where that is not as before."""
    if smaller.empty:
        return []
    room = world.depth - channel.sync.lead
    signaller, waiter = (known.place[w] for w in channel.sync.warps)
    return [need for part in smaller.parts for need in _needs(known, signaller, waiter, part, room)]


def _needs(known: Knowledge, signaller: int, waiter: int, part: _Part, room: int) -> Iterator[Need]:
    number = np.arange(part.signals.start, part.signals.stop)
    number = number[(number >= room) & (number < part.left_taken + room)]
    given = part.given[number - part.first_given]
    until = part.taken[number - room - part.first_taken]
    for time, taken in zip(given.tolist(), until.tolist(), strict=True):
        yield Need(known.last(signaller, time), time, waiter, taken)


def shrink(channel: ChannelTokens, world: World, smaller: Smaller, sync: Sync) -> None:
    """Leave out for good what a smaller channel does not have, so that it is that of the sync."""
    for part in smaller.parts:
        channel.tokens[part.kept] = part.tokens
    gone = np.concatenate([_NONE, *(part.gone for part in smaller.parts)])
    channel.tokens = np.delete(channel.tokens, gone)
    channel.events = np.delete(channel.events, gone)
    channel.sync = sync
    channel.given, channel.taken = world.times(sync.signals), world.times(sync.waits)
