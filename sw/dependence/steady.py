"""A loop with one body that stands for all iterations, at a cost that is nearly linear in the body.

Accesses to a buffer that move by the same step per iteration are compared in a frame that moves with them
(`sw.dependence.frames`). From the innermost loops outwards: a loop hands to the one around it the reads that
its own iteration does not surely serve, and the writes that are alive at the end of its iteration.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from sw.dependence.cells import Box
from sw.dependence.events import Grids
from sw.dependence.execute import ANY_DISTANCE, Component, Executor
from sw.dependence.frames import Frame, Pairs
from sw.dependence.motion import Event, Motion
from sw.dependence.nest import Access, Level, Nest
from sw.dependence.uses import Use

#: Rows that loops of known length within each other may have, and all of a body per instruction.
_MOST_ROWS, _ROWS = 64, 24
#: More reads than this ask for rounded hulls of what was before.
_EXACT_HULLS = 256


def run_steady(ex: Executor, nest: Nest) -> tuple[list[Access], set[tuple[str, int, str]]]:
    """Record what the reads of a loop see of its own writes.

    Returns the reads that may see what was before the loop, and the writes that may be seen after it: label,
    number of the access, buffer.
    """
    reads, writes = _Level(ex, nest, 0).run()
    return reads, {(a.instruction.label, a.index, a.buffer) for a in writes}


def see_before(ex: Executor, reads: list[Access]) -> None:
    """Record what reads see of the state before the loop, anywhere in what they touch in all iterations."""
    known: dict[tuple[str, Box], dict[str, None]] = {}
    many = len(reads) > _EXACT_HULLS
    for a in reads:
        hull = _rounded(a.hull, ex.whole_hull(a.buffer)) if many else a.hull
        found = known.get((a.buffer, hull))
        if found is None:
            label = a.instruction.label
            outer, ex.record.sources = ex.record.sources, {label: {}}
            ex.see(a.instruction, a.index, a.buffer, Use(None, hull, ex.state.facts), 0)
            found = known[a.buffer, hull] = dict.fromkeys(ex.record.sources[label])
            ex.record.sources = outer
        sources = ex.record.sources[a.instruction.label]
        for label in found:
            sources.setdefault(label, set())


def _rounded(hull: Box, limits: Box) -> Box:
    """A larger box whose ends have few bits, so that few different ones are asked for."""
    found = []
    for (low, high), (_, size) in zip(hull, limits, strict=True):
        shift = max(0, (high - low).bit_length() - 3)
        found.append((low >> shift << shift, min(size, -(-high >> shift) << shift)))
    return tuple(found)


@dataclass
class _Level:
    """One loop: its events, and what it hands to the loop around it."""

    ex: Executor
    nest: Nest
    depth: int
    grids: Grids = field(default_factory=Grids)
    events: list[Event] = field(default_factory=list)
    rows: int = 0

    def run(self) -> tuple[list[Access], list[Access]]:
        """The reads that an iteration does not surely serve, and the writes alive at its end."""
        last = self.body(self.nest, 0, ())
        reads: list[Access] = []
        writes: list[Access] = []
        buffers: dict[str, list[Event]] = {}
        for event in self.events:
            buffers.setdefault(event.access.buffer, []).append(event)
        for events in buffers.values():
            if not any(e.access.write for e in events):
                reads += [e.access for e in events]
                continue
            frames: dict[Motion | None, list[Event]] = {}
            for event in events:
                frames.setdefault(event.motion(self.nest.level.symbol), []).append(event)
            made = [Frame(motion, found, self.nest.level, last) for motion, found in frames.items()]
            for frame in made:
                if self.ex.recording:
                    frame.inside(self.record)
                    for other in made:
                        if other is not frame:
                            frame.across(other, self.record)
                reads += frame.exposed
                writes += frame.survivors
        return reads, writes

    def body(self, nest: Nest, time: int, levels: tuple[Level, ...]) -> int:
        """Make the events of a body from a time on; the time after it."""
        slot = -1
        first, start = len(self.events), time
        for child in nest.children:
            if isinstance(child, Access):
                if child.slot != slot:
                    slot, time = child.slot, time + 1
                self.add(child, time, levels)
                continue
            slot = -1
            if levels or self.fits(child):
                time = self.body(child, time, (*levels, child.level))
            else:
                time += 1
                for found in _Level(self.ex, child, self.depth + 1).run():
                    # All at one time: what is alive after the last iteration is so in the order of the text.
                    for access in sorted(found, key=lambda a: (a.slot, a.index)):
                        self.add(access, time, ())
        if levels:
            level = levels[-1]
            for event in self.events[first:]:
                event.times = event.times + event.grid.columns[level.symbol] * (time - start)
            time = start + (time - start) * (level.count or 0)
        return time

    def add(self, access: Access, time: int, levels: tuple[Level, ...]) -> None:
        grid = self.grids.of(levels)
        self.events.append(Event(access, grid, levels, np.full(grid.rows, time, dtype=np.int64), self.depth))

    def fits(self, nest: Nest) -> bool:
        """Whether the iterations of a loop inside are few enough to be told apart."""
        counts = [n.level.count for n in nest.nests()]
        rows = math.prod(c or 0 for c in counts)
        if any(c is None for c in counts) or rows > _MOST_ROWS:
            return False
        self.rows += rows * nest.size
        return self.rows <= _ROWS * max(64, self.nest.size)

    def record(self, pairs: Pairs) -> None:
        """Add pairs of accesses with the distance in this loop (None: any), and in those further in."""
        sources = self.ex.record.sources
        for read, write, apart, inner in pairs:
            found = sources[read.instruction.label].setdefault(write.instruction.label, set())
            distance: list[Component] = [0] * self.depth
            distance.append(ANY_DISTANCE if apart is None else apart)
            known = len(distance)
            for n, (a, b) in enumerate(zip(read.levels[known:], write.levels[known:], strict=False)):
                if a is not b:
                    break
                distance.append(inner[n] if n < len(inner) else ANY_DISTANCE)
            found.add(tuple(distance))
