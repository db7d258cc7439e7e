"""Describes counterexamples: the turns of the warps, and the error they lead to."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sw.check.dependences import touches
from sw.check.order import Cut, Event, Finding, Turns
from sw.check.streams import OP, SIGNAL, WAIT, Stream
from sw.check.trace import Boxes, Trace

#: Turns shown at the beginning and at the end of a long schedule.
_FIRST, _LAST = 6, 14
#: Most events of a turn that are shown individually.
_SINGLE = 8


@dataclass(frozen=True)
class Narrator:
    """Describes events; operation k of a warp is its k-th instance."""

    made: Trace
    streams: Mapping[int, Stream]

    def time(self, warp: int, event: int) -> int:
        """The instance that an operation stands for."""
        return int(self.made.by_warp[warp][int(np.searchsorted(self.streams[warp].operations, event))])

    def name(self, warp: int, event: int) -> str:
        """The name of an operation's instance."""
        return self.made.name(self.time(warp, event))

    def line(self, warp: int, event: int) -> int:
        """The line of an event."""
        return self.streams[warp].site(event).line

    def number(self, warp: int, event: int) -> int:
        """The number of a warp's events of one kind on one channel, up to and including this one."""
        s = self.streams[warp]
        here = (s.kinds[: event + 1] == s.kinds[event]) & (s.channels[: event + 1] == s.channels[event])
        return int(here.sum())

    def lines(self, turns: Turns) -> list[str]:
        """The turns, one line each; only the first and last if there are many."""
        done = dict.fromkeys(self.streams, 0)
        spans: list[tuple[int, int, int]] = []
        for warp, end in turns:
            first = spans.pop()[1] if spans and spans[-1][0] == warp else done[warp]
            spans.append((warp, first, end))
            done[warp] = end
        if len(spans) > _FIRST + _LAST + 1:
            left = f"... {len(spans) - _FIRST - _LAST} more turns ..."
            return [*map(self.turn, spans[:_FIRST]), left, *map(self.turn, spans[-_LAST:])]
        return [self.turn(span) for span in spans]

    def turn(self, span: tuple[int, int, int]) -> str:
        """Describes one turn of a warp."""
        warp, first, end = span
        head = f"warp {warp}"
        if end - first <= _SINGLE:
            return f"{head}: " + "; ".join(self.step(warp, e) for e in range(first, end))
        kinds = self.streams[warp].kinds[first:end]
        operations = np.flatnonzero(kinds == OP) + first
        parts = []
        if operations.size:
            a, b = int(operations[0]), int(operations[-1])
            parts.append(
                f"runs {operations.size} operations from {self.name(warp, a)} to {self.name(warp, b)}"
            )
        for kind, text in ((WAIT, "takes {} tokens"), (SIGNAL, "gives {} tokens")):
            count = int((kinds == kind).sum())
            if count:
                parts.append(text.format(count))
        last = self.line(warp, end - 1)
        return f"{head}: {', '.join(parts)} (line {self.line(warp, first)} to line {last})"

    def step(self, warp: int, event: int) -> str:
        """Describes one event of a warp."""
        site = self.streams[warp].site(event)
        if site.kind == OP:
            return f"runs {self.name(warp, event)} (line {site.line})"
        what = "takes" if site.kind == WAIT else "gives"
        number = self.number(warp, event)
        return f"{what} token {number} of channel {site.channel} (line {site.line})"

    def finding(self, found: Finding, depth: int, *, givers: bool) -> tuple[str, list[str]]:
        """The error in one sentence, and the schedule that shows it, one line per turn.

        With `givers`, one warp signals each channel, so that a deadlock names it.
        """
        if found.kind == "deadlock":
            stops = list(self.standstill(dict.fromkeys(self.streams, 0) | dict(found.turns), givers=givers))
            return f"the warps deadlock: {'; '.join(stops)}", [*self.lines(found.turns), *stops]
        warp, event = found.turns[-1][0], found.turns[-1][1] - 1
        if found.kind == "overflow":
            site = self.streams[warp].site(event)
            full = f"signals channel {site.channel} (line {site.line}), which already holds {depth} tokens"
            said = f"warp {warp}: {full}"
            reason = f"channel {site.channel} can overflow: {said}"
        elif found.kind == "conflict":
            assert found.other is not None
            said = self.conflict(found.other, (warp, event))
            reason = f"{said}: their order is undefined"
        else:
            assert found.other is not None
            name, line = self.name(warp, event), self.line(warp, event)
            how = self.clash(found.other, (warp, event))
            said = f"warp {warp}: runs {name} (line {line}), which {how}"
            reason = f"{name} (warp {warp}, line {line}) can run too early: it {how}"
        return reason, [*self.lines(found.turns[:-1]), said]

    def conflict(self, first: Event, second: Event) -> str:
        """Two events whose order is undefined and must not be."""
        site = self.streams[second[0]].site(second[1])
        both = " and ".join(f"warp {w} (line {self.line(w, e)})" for w, e in (first, second))
        use = "signal" if site.kind == SIGNAL else "take a token of"
        return f"{both} {use} channel {site.channel} in any order"

    def clash(self, earlier: Event, later: Event) -> str:
        """Describes an operation that runs before one that it depends on."""
        first, second = self.time(*earlier), self.time(*later)
        what = f"{self.made.name(first)} (warp {earlier[0]}, line {self.line(*earlier)})"
        return _overlap(self.made, first, second).format(what)

    def standstill(self, cut: Cut, *, givers: bool) -> Iterator[str]:
        """Describes where each blocked warp waits."""
        for w, s in self.streams.items():
            if cut[w] >= s.events.size:
                continue
            site, number = s.site(cut[w]), self.number(w, cut[w])
            text = f"warp {w}: waits in line {site.line} for token {number} of channel {site.channel}"
            yield f"{text}, which {self.giver(site.channel, number)}" if givers else text

    def giver(self, channel: int, number: int) -> str:
        """The warp that signals a channel, if it is the only one."""
        for w, s in self.streams.items():
            signals = np.flatnonzero((s.kinds == SIGNAL) & (s.channels == channel))
            if signals.size >= number:
                return f"warp {w} gives later, in line {self.line(w, int(signals[number - 1]))}"
            if signals.size:
                return f"never comes: warp {w} gives {signals.size} token{'s' * (signals.size != 1)}"
        return "never comes: no warp signals this channel"

    def unlike(self, warp: int, number: int, value: str) -> str:
        """Describes an operation, by its number, that is not the program's, or whose `value` is not."""
        s, times = self.streams[warp], self.made.by_warp.get(warp, ())
        wanted = f"warp {warp} must have {number} operations"
        if number < len(times):
            wanted = f"operation {number + 1} of warp {warp} must be {self.made.name(int(times[number]))}"
        if number == s.operations.size:
            return f"{wanted}, and the warp ends before"
        site = s.site(int(s.operations[number]))
        if value:
            return f"{wanted}; in line {site.line} its {value}"
        return f"{wanted}, not {'op ' if site.generic else ''}{site.name} in line {site.line}"


def _overlap(made: Trace, first: int, second: int) -> str:
    """Describes how two instances conflict on data, with a placeholder for the name of the first."""
    reads, writes = _boxes(made, first, writes=False), _boxes(made, first, writes=True)
    reads_then, writes_then = _boxes(made, second, writes=False), _boxes(made, second, writes=True)
    for before, after, text in (
        (writes, reads_then, "reads {} that {{}} has not written yet"),
        (reads, writes_then, "overwrites {} that {{}} has not read yet"),
        (writes, writes_then, "writes {} before {{}} has written it"),
    ):
        place = _common(before, after)
        if place is not None:
            return text.format(place)
    raise AssertionError("instances that do not depend on each other")


def _boxes(made: Trace, time: int, *, writes: bool) -> list[Boxes | None]:
    """The accesses of one instance, each a single row, without empty ones."""
    rows, index = made.rows[int(made.row[time])], made.index(time)
    one = slice(index, index + 1)
    boxes = [
        b and Boxes(b.buffer, b.start[:, one], b.stop[:, one])
        for b in (rows.writes if writes else rows.reads)
    ]
    return [b for b in boxes if b is None or touches(b).all()]


def _common(first: Sequence[Boxes | None], second: Sequence[Boxes | None]) -> str | None:
    """The overlap of two lists of accesses, in words."""
    for a, b in itertools.product(first, second):
        if a is None or b is None:
            known = a or b
            return "an unknown place" if known is None else f"what may be {_place(known)}"
        if a.buffer == b.buffer:
            both = Boxes(a.buffer, np.maximum(a.start, b.start), np.minimum(a.stop, b.stop))
            if touches(both).all():
                return _place(both)
    return None


def _place(boxes: Boxes) -> str:
    ends = zip(boxes.start[:, 0].tolist(), boxes.stop[:, 0].tolist(), strict=True)
    return f"{boxes.buffer}[{', '.join(f'{a}:{b}' for a, b in ends)}]"
