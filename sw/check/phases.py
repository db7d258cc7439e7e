"""The phases of one run, and how many iterations of each lie between consistent cuts.

A *phase* is one execution of a repeated loop of the program. A warp takes part in it with a loop of its own,
or stands between two of its loops meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sw.check.order import Channel
from sw.check.repeated_loops import LoopRun, UnlikeError
from sw.check.streams import Stream
from sw.check.trace import Trace

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Phases:
    """The phases of a run, in the program's order.

    `names` are their parameters. `number` is that of the phase by instance, -1 outside of all; `wanted` says
    by phase and warp how many instances a period has.
    """

    names: tuple[str, ...]
    number: Ints
    wanted: tuple[Mapping[int, int], ...]


def phases(made: Trace, loops: Mapping[int, str], period: int) -> Phases:
    """The phases of a run in which each of some loops has at least a period; `loops` has their parameters."""
    first: dict[tuple[int, ...], int] = {}
    parts = []
    for rows in made.rows:
        depths = [d for d, loop in enumerate(rows.loops) if loop in loops]
        if not depths or not rows.time.size:
            continue
        (depth,) = depths
        keys = [(rows.loops[depth], *outer) for outer in rows.iteration[:depth].T.tolist()]
        parts.append((rows, depth, keys))
        for key, time in zip(keys, rows.time.tolist(), strict=True):
            first[key] = min(first.get(key, time), time)
    order = sorted(first, key=first.__getitem__)
    place = {key: n for n, key in enumerate(order)}
    number = np.full(made.count, -1)
    wanted: list[dict[int, int]] = [{} for _ in place]
    for rows, depth, keys in parts:
        mine = np.array([place[key] for key in keys])
        number[rows.time] = mine
        warp = rows.instruction.warp
        assert warp is not None
        early = mine[rows.iteration[depth] < period]
        for k, count in enumerate(np.bincount(early, minlength=len(place)).tolist()):
            if count:
                wanted[k][warp] = wanted[k].get(warp, 0) + count
    return Phases(tuple(loops[key[0]] for key in order), number, tuple(wanted))


@dataclass(frozen=True)
class Structure:
    """A run: its instances, phases, streams and channels, and by warp its repeated loops in order."""

    made: Trace
    phases: Phases
    streams: Mapping[int, Stream]
    channels: Mapping[int, Channel]
    loops: Mapping[int, list[LoopRun]]
    period: int
    #: By phase the loop of each warp that takes part.
    part: list[dict[int, LoopRun]] = field(default_factory=list)

    def numbers(self, warp: int, start: int, stop: int) -> Ints:
        """The phases of the operations among some events of a warp."""
        first, last = np.searchsorted(self.streams[warp].operations, [start, stop])
        times = self.made.by_warp.get(warp, np.empty(0, np.int64))
        if last > times.size:
            raise UnlikeError(f"warp {warp} has more operations than the program")
        return self.phases.number[times[first:last]]

    def counts(self, warp: int, t: LoopRun) -> dict[int, int]:
        """By channel what an iteration adds to its tokens."""
        found = {}
        for c in self.channels.values():
            added = 0
            for end, events, sign in ((c.source, c.signals, 1), (c.sink, c.waits, -1)):
                if end == warp:
                    low, high = np.searchsorted(events, [t.start, t.start + t.length])
                    added += sign * int(high - low)
            if added:
                found[c.number] = added
        return found

    def assign(self) -> None:
        """Find the phase of every loop of the warps, and see that tokens neither gather nor lack in any."""
        self.part.extend({} for _ in self.phases.wanted)
        numbers = {w: [self.of_operations(w, t) for t in loops] for w, loops in self.loops.items()}
        for number, (part, wanted) in enumerate(zip(self.part, self.phases.wanted, strict=True)):
            for w in wanted:
                if w not in part:
                    raise UnlikeError(f"warp {w} has no loop for the program's loop {number + 1} in a run")
        change: list[dict[int, int]] = [{} for _ in self.part]
        for part, sums in zip(self.part, change, strict=True):
            for w, t in part.items():
                _add(sums, self.counts(w, t))
        # Loops of waits and signals alone stand somewhere between those around them.
        idle = [(w, n) for w, found in numbers.items() for n, k in enumerate(found) if k < 0]
        while idle:
            left = [i for i in idle if not self.place(*i, numbers, change)]
            if len(left) == len(idle):
                raise UnlikeError(f"a loop of warp {idle[0][0]} belongs to none of the program's")
            idle = left
        for sums in change:
            for c, total in sums.items():
                if total:
                    raise UnlikeError(f"channel {c} gets more tokens in a loop than are taken, or fewer")

    def of_operations(self, warp: int, t: LoopRun) -> int:
        """The phase of a loop with operations, -1 for one without."""
        middle = t.start + (t.stop - t.start) // t.length // 2 * t.length
        here = self.numbers(warp, middle, middle + t.length)
        if here.size == 0:
            return -1
        number = int(here[0])
        if number < 0 or (here != number).any() or warp in self.part[number]:
            raise UnlikeError(f"warp {warp} has other loops than the program")
        if here.size * self.period != self.phases.wanted[number].get(warp, 0):
            raise UnlikeError(f"iterations of a loop of warp {warp} are not those of the program")
        self.part[number][warp] = t
        return number

    def place(
        self, warp: int, n: int, numbers: Mapping[int, list[int]], change: list[dict[int, int]]
    ) -> bool:
        """Give a loop without operations to the first phase where it evens out a channel, if there is one."""
        own = numbers[warp]
        first = max(own[:n], default=-1) + 1
        last = next((k for k in own[n + 1 :] if k >= 0), len(self.part))
        t = self.loops[warp][n]
        added = self.counts(warp, t)
        for k in range(first, last):
            evens = any(change[k].get(c, 0) == -a for c, a in added.items()) or not added
            if warp not in self.part[k] and evens:
                own[n] = k
                self.part[k][warp] = t
                _add(change[k], added)
                return True
        return False

    def short(self, room: int) -> dict[str, int]:
        """By parameter how many iterations are missing to have so many between consistent cuts."""
        at = dict.fromkeys(self.streams, 0)
        missing: dict[str, int] = {}
        for number, part in enumerate(self.part):
            ends = {w: self.next_loop(w, number) for w in self.streams}
            for w, t in part.items():
                at[w], ends[w] = t.start, t.stop
            self.least(at, ends)
            for w, t in part.items():
                here = room - (t.stop - at[w]) // t.length
                if here > 0:
                    name = self.phases.names[number]
                    missing[name] = max(missing.get(name, 0), here)
                elif (self.numbers(w, at[w], at[w] + room * t.length) != number).any():
                    raise UnlikeError(f"warp {w} has other loops than the program")
                # The next cut is behind this loop.
                at[w] = t.stop
        return missing

    def next_loop(self, warp: int, number: int) -> int:
        """Where the next loop of a warp begins, of a phase after this one."""
        later = (p[warp].start for p in self.part[number + 1 :] if warp in p)
        return next(later, self.streams[warp].events.size)

    def least(self, at: dict[int, int], ends: Mapping[int, int]) -> None:
        """Move a cut on until it is consistent, no further than needed."""
        moved = True
        while moved:
            moved = False
            for c in self.channels.values():
                if c.sink is None:
                    continue
                waits = int(np.searchsorted(c.waits, at[c.sink]))
                if c.source is None or waits > c.signals.size:
                    raise UnlikeError(f"channel {c.number} gets too few tokens")
                if waits and c.signals[waits - 1] >= at[c.source]:
                    at[c.source] = int(c.signals[waits - 1]) + 1
                    moved = True
                    if at[c.source] > ends[c.source]:
                        raise UnlikeError(f"warp {c.source} must be past a loop that others are in")


def _add(sums: dict[int, int], more: Mapping[int, int]) -> None:
    for c, a in more.items():
        sums[c] = sums.get(c, 0) + a
