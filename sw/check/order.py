"""The happens-before order of warps whose channels each have one signalling and one waiting warp.

Events of a warp happen in order. The n-th wait on a channel takes the token of the n-th signal at any speed,
since one warp signals it and one awaits it. There is no other order (docs/check.md, "The model"): a slow
engine can reverse everything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from sw.check.streams import SIGNAL, WAIT, Stream

Ints = npt.NDArray[np.int64]
#: Number of events that have happened, by warp.
Cut = dict[int, int]
#: A schedule: turns, each running a warp up to (not including) an event.
Turns = list[tuple[int, int]]
#: An event: warp, and position in its stream.
Event = tuple[int, int]
#: By channel, the signalling warps and the waiting warps with their events.
Sides = dict[int, dict[int, dict[int, Ints]]]


@dataclass(frozen=True)
class Finding:
    """The error that can occur in some schedule.

    `kind` is None if nothing can; otherwise it is "dependence", "deadlock", "overflow", or "conflict" (two
    warps signal a channel or take its tokens in an undefined order). `turns` is a schedule up to that point,
    with the bad event last (a deadlock has none). `other` is the event that should have finished before it,
    or that may come before or after it. `most` is the most tokens that a channel holds.
    """

    kind: str | None = None
    turns: Turns = field(default_factory=list)
    other: Event | None = None
    most: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Channel:
    """A channel: the signalling warp with its events, and the waiting warp; None for neither."""

    number: int
    source: int | None
    signals: Ints
    sink: int | None
    waits: Ints


@dataclass(frozen=True)
class SharedError(Exception):
    """A channel on which several warps signal, or several wait."""

    channel: int
    what: str
    warps: tuple[int, ...]

    def __str__(self) -> str:
        named = " and ".join(f"warp {w}" for w in self.warps)
        return f"channel {self.channel} is {self.what} by {named}"


def sides(streams: Mapping[int, Stream]) -> Sides:
    """The signalling and waiting warps of the channels in use, by number."""
    found: Sides = {}
    for w, s in streams.items():
        for kind in (SIGNAL, WAIT):
            events = np.flatnonzero(s.kinds == kind)
            used = s.channels[events]
            for c in np.flatnonzero(np.bincount(used)).tolist():
                found.setdefault(c, {SIGNAL: {}, WAIT: {}})[kind][w] = events[used == c]
    return dict(sorted(found.items()))


def channels(used: Sides) -> dict[int, Channel]:
    """The channels in use, by number; raises `SharedError`."""
    made = {}
    for c, ends in used.items():
        for kind, what in ((SIGNAL, "signalled"), (WAIT, "awaited")):
            if len(ends[kind]) > 1:
                raise SharedError(c, what, tuple(sorted(ends[kind])))
        (source, signals), (sink, waits) = (
            next(iter(ends[kind].items()), (None, np.empty(0, np.int64))) for kind in (SIGNAL, WAIT)
        )
        made[c] = Channel(c, source, signals, sink, waits)
    return made


@dataclass(frozen=True)
class Order:
    """The happens-before order.

    `waits` are the waiting events of a warp. `known[y][x][j]` is the number of events of warp x that are
    certainly over once warp y has passed its wait j.
    """

    streams: Mapping[int, Stream]
    channels: Mapping[int, Channel]
    waits: Mapping[int, Ints]
    known: Mapping[int, Mapping[int, Ints]]

    def before(self, y: int, x: int, events: Ints) -> Ints:
        """How many events of warp x are certainly over when warp y begins these events of its own.

        A waiting event counts as begun when it has its token.
        """
        if x == y:
            return events
        if x not in self.known[y]:
            return np.zeros(events.shape, np.int64)
        padded = np.concatenate([np.zeros(1, np.int64), self.known[y][x]])
        found: Ints = padded[self.passed[y][events + 1]]
        return found

    @cached_property
    def passed(self) -> dict[int, npt.NDArray[np.int32]]:
        """By warp, how many waits there are among its first events."""
        return {
            w: np.concatenate([np.zeros(1, np.int32), np.cumsum(s.kinds == WAIT, dtype=np.int32)])
            for w, s in self.streams.items()
        }

    def up_to(self, event: Event) -> Turns:
        """A schedule of everything that is over in every schedule when an event begins, and of that event."""
        warp, at = event
        past = {x: int(self.before(warp, x, np.array([at]))[0]) for x in self.streams}
        return [*self.turns(past), (warp, at + 1)]

    def turns(self, goal: Cut) -> Turns:
        """A schedule that goes as far as possible, with no warp beyond its goal.

        If the goal is the past of an event, it is reached.
        """
        done = dict.fromkeys(self.streams, 0)
        turns: Turns = []
        moved = True
        while moved:
            moved = False
            for w in self.streams:
                ends = [goal[w]]
                for c in self.channels.values():
                    if c.sink == w:
                        given = 0 if c.source is None else int(np.searchsorted(c.signals, done[c.source]))
                        ends += c.waits[given : given + 1].tolist()
                if min(ends) > done[w]:
                    done[w] = min(ends)
                    turns.append((w, done[w]))
                    moved = True
        return turns


def order(streams: Mapping[int, Stream], used: Mapping[int, Channel]) -> Order:
    """The order of all events. It is a partial order only if there is no deadlock."""
    waits = {w: np.flatnonzero(s.kinds == WAIT) for w, s in streams.items()}
    known: dict[int, dict[int, Ints]] = {w: {} for w in streams}
    for c in used.values():
        if c.source is None or c.sink is None or c.source == c.sink:
            continue
        n = min(c.waits.size, c.signals.size)
        direct = known[c.sink].setdefault(c.source, np.zeros(waits[c.sink].size, np.int64))
        at = np.searchsorted(waits[c.sink], c.waits[:n])
        direct[at] = np.maximum(direct[at], c.signals[:n] + 1)
    for rows in known.values():
        for row in rows.values():
            np.maximum.accumulate(row, out=row)
    made = Order(streams, used, waits, known)
    # A path that enters a warp twice has a shorter one through that warp's own order, so this terminates
    # early.
    for _ in streams:
        if not _extend(made, known):
            break
    return made


def _extend(made: Order, known: dict[int, dict[int, Ints]]) -> bool:
    """Extends paths by one more warp; returns whether anything new was found."""
    changed = False
    for y in known:
        for z, until in list(known[y].items()):
            for x in known[z].keys() - {y}:
                # Warp z has begun its event until - 1, and so has passed all waits up to it.
                through = made.before(z, x, until - 1)
                row = known[y].setdefault(x, np.zeros(until.size, np.int64))
                if (through > row).any():
                    np.maximum(row, through, out=row)
                    changed = True
    return changed


def stuck(made: Order) -> bool:
    """Whether the warps deadlock: a wait whose token never comes, or a cycle of waits."""
    for c in made.channels.values():
        if c.waits.size > c.signals.size:
            return True
        if c.source is not None and c.source == c.sink and (c.signals[: c.waits.size] > c.waits).any():
            return True
    for y, rows in made.known.items():
        for z, until in rows.items():
            # Before a wait of y, z must be so far that y must have passed this same wait.
            if (made.before(z, y, until - 1) > made.waits[y]).any():
                return True
    return False


def overflow(made: Order, depth: int, cut: Cut) -> Event | None:
    """A signal among the first events of each warp that may find its channel full."""
    for c in made.channels.values():
        if c.source is None:
            continue
        late = np.arange(c.signals.size) - _surely_taken(made, c) >= depth
        late &= c.signals < cut[c.source]
        if late.any():
            return c.source, int(c.signals[late.argmax()])
    return None


def most(made: Order) -> dict[int, int]:
    """The most tokens that each channel holds in any schedule."""
    found = {}
    for c in made.channels.values():
        outstanding = np.arange(1, c.signals.size + 1) - _surely_taken(made, c)
        found[c.number] = int(outstanding.max(initial=0))
    return found


def _surely_taken(made: Order, c: Channel) -> Ints:
    """How many tokens of a channel are certainly taken when each of its signals happens."""
    if c.source is None or c.sink is None:
        return np.zeros(c.signals.size, np.int64)
    return np.searchsorted(c.waits, made.before(c.source, c.sink, c.signals))
