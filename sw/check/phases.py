"""The phases of one run, and how many iterations of each lie between consistent cuts.

A *phase* is one execution of a repeated loop of the program. A warp takes part in it with a loop of its own,
or waits between two of its loops meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from sw.check.order import Channel
from sw.check.repeated_loops import LoopRun, Repeated, UnlikeError
from sw.check.streams import SIGNAL, WAIT, Stream


@dataclass(frozen=True)
class Phase:
    """An execution of a repeated loop, and its parameter.

    By warp, `span` is the first instance and the one after the last, counted among those of the warp, and
    `wanted` is the number of instances in a period.
    """

    name: str
    span: Mapping[int, tuple[int, int]]
    wanted: Mapping[int, int]


def phases(loops: Iterable[Repeated], values: Mapping[str, int], names: Collection[str]) -> list[Phase]:
    """The phases of some parameters in a run in which each of their loops has at least a period."""
    found = []
    #: By warp, instances of earlier loops beyond their first period.
    more: dict[int, int] = {}
    for loop in loops:
        periods, rest = divmod(values[loop.name] + loop.offset, len(loop.counts) - 1)
        span, wanted = {}, {}
        for w, end in loop.counts[-1].items():
            start, behind = (loop.counts[k].get(w, 0) for k in (0, rest))
            if end > start:
                size = periods * (end - start) + behind - start
                first = start + more.get(w, 0)
                span[w], wanted[w] = (first, first + size), end - start
                more[w] = more.get(w, 0) + size - (end - start)
        if loop.name in names:
            found.append(Phase(loop.name, span, wanted))
    return found


@dataclass(frozen=True)
class Structure:
    """A run: its phases, streams and channels, and by warp its repeated loops in order."""

    phases: list[Phase]
    streams: Mapping[int, Stream]
    channels: Mapping[int, Channel]
    loops: Mapping[int, list[LoopRun]]
    period: int
    #: By phase, the loop of each participating warp.
    part: list[dict[int, LoopRun]] = field(default_factory=list)

    def operations(self, warp: int, start: int, stop: int) -> tuple[int, int]:
        """The first of the operations among some events of a warp, and the one after the last."""
        first, last = np.searchsorted(self.streams[warp].operations, [start, stop]).tolist()
        return first, last

    def added(self, warp: int, t: LoopRun) -> dict[int, int]:
        """By channel, the tokens that an iteration adds."""
        s, found = self.streams[warp], Counter[int]()
        part = slice(t.start, t.start + t.length)
        for kind, channel in zip(s.kinds[part].tolist(), s.channels[part].tolist(), strict=True):
            found[channel] += (kind == SIGNAL) - (kind == WAIT)
        return {c: a for c, a in found.items() if a}

    def assign(self) -> None:
        """Finds the phase of every loop of the warps; checks that it neither gathers nor lacks tokens."""
        self.part.extend({} for _ in self.phases)
        idle = [(w, t) for w, loops in self.loops.items() for t in self.without_operations(w, loops)]
        change = [Counter[int]() for _ in self.part]
        for part, sums in zip(self.part, change, strict=True):
            for w, t in part.items():
                sums.update(self.added(w, t))
        while idle:
            left = [i for i in idle if not self.place(*i, change)]
            if len(left) == len(idle):
                raise UnlikeError(f"a loop of warp {idle[0][0]} belongs to none of the program's")
            idle = left
        for sums in change:
            for c, total in sums.items():
                if total:
                    raise UnlikeError(f"channel {c} gets more or fewer tokens in a loop than are taken")

    def without_operations(self, warp: int, loops: Iterable[LoopRun]) -> list[LoopRun]:
        """The loops of a warp without operations; the others get the phases of their instances."""
        own = [k for k, phase in enumerate(self.phases) if warp in phase.wanted]
        working, idle = [], []
        for t in loops:
            first, last = self.operations(warp, t.start, t.start + t.length)
            if last > first:
                working.append((t, t.name, (last - first) * self.period))
            else:
                idle.append(t)
        if [w[1:] for w in working] != [(self.phases[k].name, self.phases[k].wanted[warp]) for k in own]:
            raise UnlikeError(f"warp {warp} has other loops than the program")
        for k, (t, _, _) in zip(own, working, strict=True):
            self.part[k][warp] = t
        return idle

    def place(self, warp: int, t: LoopRun, change: Sequence[Counter[int]]) -> bool:
        """Gives a loop without operations to the first phase in which it balances a channel, if any.

        The phase is between those of the warp's adjacent loops.
        """
        starts = {k: part[warp].start for k, part in enumerate(self.part) if warp in part}
        first = max((k + 1 for k, start in starts.items() if start < t.start), default=0)
        last = min((k for k, start in starts.items() if start > t.start), default=len(self.part))
        added = self.added(warp, t)
        for k in range(first, last):
            evens = any(change[k][c] == -a for c, a in added.items()) or not added
            if self.phases[k].name == t.name and evens:
                self.part[k][warp] = t
                change[k].update(added)
                return True
        return False

    def short(self, room: int) -> dict[str, int]:
        """By parameter, how many iterations are missing between consistent cuts."""
        at = dict.fromkeys(self.streams, 0)
        missing: dict[str, int] = {}
        for number, part in enumerate(self.part):
            ends = {w: self.next_loop(w, number) for w in self.streams}
            for w, t in part.items():
                at[w], ends[w] = t.start, t.stop
            self.least(at, ends)
            for w, t in part.items():
                here = room - (t.stop - at[w]) // t.length
                first, last = self.operations(w, at[w], at[w] + room * t.length)
                low, high = self.phases[number].span.get(w, (first, last))
                if here > 0:
                    missing[t.name] = max(missing.get(t.name, 0), here)
                elif not low <= first <= last <= high:
                    raise UnlikeError(f"warp {w} has other loops than the program")
                # The next cut is after this loop.
                at[w] = t.stop
        return missing

    def next_loop(self, warp: int, number: int) -> int:
        """The beginning of a warp's next loop in a later phase."""
        later = (p[warp].start for p in self.part[number + 1 :] if warp in p)
        return next(later, self.streams[warp].events.size)

    def least(self, at: dict[int, int], ends: Mapping[int, int]) -> None:
        """Advances a cut by the least amount that makes it consistent."""
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
