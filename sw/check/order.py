"""What happens before what, for warps whose channels have one signalling and one waiting warp each.

Events of a warp happen in order. The n-th wait on a channel takes the token of the n-th signal, whatever the
speeds, since one warp signals it and one awaits it. That is all there is of order (docs/check.md, "The
model"): everything else can be reversed by a slow engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from sw.check.streams import SIGNAL, WAIT, Stream

Ints = npt.NDArray[np.int64]
#: How many events of each warp have happened, by warp.
Cut = dict[int, int]
#: A schedule: turns of a warp, each up to, not including, an event of it.
Turns = list[tuple[int, int]]


@dataclass(frozen=True)
class Channel:
    """A channel: the warp that signals with the events that do, and the warp that waits; None for neither."""

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


def channels(streams: Mapping[int, Stream]) -> dict[int, Channel]:
    """The channels in use, by number; raises `SharedError`."""
    ends: dict[int, dict[int, dict[int, Ints]]] = {}
    for w, s in streams.items():
        for kind in (SIGNAL, WAIT):
            events = np.flatnonzero(s.kinds == kind)
            used = s.channels[events]
            for c in np.flatnonzero(np.bincount(used)).tolist():
                ends.setdefault(c, {SIGNAL: {}, WAIT: {}})[kind][w] = events[used == c]
    made = {}
    for c, sides in sorted(ends.items()):
        for kind, what in ((SIGNAL, "signalled"), (WAIT, "awaited")):
            if len(sides[kind]) > 1:
                raise SharedError(c, what, tuple(sorted(sides[kind])))
        (source, signals), (sink, waits) = (
            next(iter(sides[kind].items()), (None, np.empty(0, np.int64))) for kind in (SIGNAL, WAIT)
        )
        made[c] = Channel(c, source, signals, sink, waits)
    return made


@dataclass(frozen=True)
class Order:
    """Happens-before.

    `waits` are the events of a warp that wait. `known[y][x][j]` is how many events of warp x are surely over
    once warp y has passed its wait j.
    """

    streams: Mapping[int, Stream]
    channels: Mapping[int, Channel]
    waits: Mapping[int, Ints]
    known: Mapping[int, Mapping[int, Ints]]

    def before(self, y: int, x: int, events: Ints) -> Ints:
        """How many events of warp x are surely over when warp y begins these events of its own.

        An event that waits counts as begun when it has its token.
        """
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

    def past(self, warp: int, event: int) -> Cut:
        """What is over in every schedule when this event begins, its own warp included."""
        at = np.array([event])
        cut = {x: int(self.before(warp, x, at)[0]) for x in self.streams}
        cut[warp] = event
        return cut

    def turns(self, goal: Cut) -> tuple[Turns, Cut]:
        """A schedule that goes as far as it can, no warp beyond its goal; and how far it came.

        Where the goal is the past of an event it is reached.
        """
        needs = {w: self._needs(w) for w in self.streams}
        done, passed = dict.fromkeys(self.streams, 0), dict.fromkeys(self.streams, 0)
        turns: Turns = []
        moved = True
        while moved:
            moved = False
            for w in self.streams:
                waits, (source, count) = self.waits[w], needs[w]
                j, end = passed[w], goal[w]
                while j < waits.size and waits[j] < end:
                    x = int(source[j])
                    if x < 0 or (int(waits[j]) if x == w else done[x]) < count[j]:
                        end = int(waits[j])
                        break
                    j += 1
                passed[w] = j
                if end > done[w]:
                    done[w] = end
                    turns.append((w, end))
                    moved = True
        return turns, done

    def _needs(self, warp: int) -> tuple[Ints, Ints]:
        """The warp whose token each wait takes, -1 where there is none, and how far it must have come."""
        waits = self.waits[warp]
        source, count = np.full(waits.size, -1), np.zeros(waits.size, np.int64)
        for c in self.channels.values():
            if c.sink == warp and c.source is not None:
                n = min(c.waits.size, c.signals.size)
                at = np.searchsorted(waits, c.waits[:n])
                source[at], count[at] = c.source, c.signals[:n] + 1
        return source, count


def order(streams: Mapping[int, Stream]) -> Order:
    """The order of all events; raises `SharedError`. Only where there is no deadlock it is one."""
    used = channels(streams)
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
    # A path that enters a warp twice has a shorter one through that warp's own order, so this ends early.
    for _ in streams:
        if not _extend(made, known):
            break
    return made


def _extend(made: Order, known: dict[int, dict[int, Ints]]) -> bool:
    """One more warp on the way; whether anything new came of it."""
    changed = False
    for y in known:
        for z, until in list(known[y].items()):
            if z == y:
                continue
            for x in list(known[z]):
                if x == y:
                    continue
                # Warp z has surely begun its event until - 1, and so has passed all waits up to it.
                through = made.before(z, x, until - 1)
                row = known[y].get(x)
                if row is None:
                    if through.any():
                        known[y][x] = through
                        changed = True
                elif (through > row).any():
                    np.maximum(row, through, out=row)
                    changed = True
    return changed


def stuck(made: Order) -> bool:
    """Whether the warps come to a stop: a wait whose token never comes, or waits in a circle."""
    for c in made.channels.values():
        if c.waits.size > c.signals.size:
            return True
        if c.source is not None and c.source == c.sink and (c.signals[: c.waits.size] > c.waits).any():
            return True
    for y, rows in made.known.items():
        for z, until in rows.items():
            # Before a wait of y, z must come so far that y must have passed this very wait.
            if z != y and (made.before(z, y, until - 1) > made.waits[y]).any():
                return True
    return False


def overflow(made: Order, depth: int, cut: Cut | None = None) -> tuple[int, int] | None:
    """A channel and the number of a signal (from 0) that may find it full, None where none does.

    `cut` leaves out events that are never reached.
    """
    for c in made.channels.values():
        if c.source is None or c.signals.size <= depth:
            continue
        taken = _surely_taken(made, c)
        late = np.arange(c.signals.size) - taken >= depth
        if cut is not None:
            late &= c.signals < cut[c.source]
        if late.any():
            return c.number, int(late.argmax())
    return None


def most(made: Order) -> dict[int, int]:
    """The most tokens that each channel holds in any schedule."""
    found = {}
    for c in made.channels.values():
        outstanding = np.arange(1, c.signals.size + 1) - _surely_taken(made, c)
        found[c.number] = int(outstanding.max(initial=0))
    return found


def _surely_taken(made: Order, c: Channel) -> Ints:
    """How many tokens of a channel are surely taken when each of its signals happens."""
    if c.source is None or c.sink is None:
        return np.zeros(c.signals.size, np.int64)
    over = c.signals if c.source == c.sink else made.before(c.source, c.sink, c.signals)
    return np.searchsorted(c.waits, over, side="left")
