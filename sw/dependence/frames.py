"""Accesses of a loop's body that move by the same step per iteration, in a frame that moves with them.

In such a frame an access stays where it is. What iteration k - d left at a place is found d steps further on.
So one body, sorted by place and time, tells all: which write of the same iteration a read sees and, following
the steps from a place, which of those before. A write that may not happen, or not fill its extent, hides
nothing. Accesses without a step are compared with all that their extents overlap in any iteration.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from sw.dependence.events import Array, spread
from sw.dependence.motion import Event, Motion
from sw.dependence.nest import Access, Level

#: A read, a write, iterations between (None: any), and the same of loops further in.
Pairs = Iterable[tuple[Access, Access, int | None, tuple[int, ...]]]
Recorder = Callable[[Pairs], None]
#: Cells per access on average, and of any frame; steps back that are told apart.
_CELLS, _MIN_CELLS, _MOST_STEPS = 400, 400_000, 96
#: Pairs that are made at a time, and of any frame per access.
_CHUNK, _PAIRS, _MIN_PAIRS = 2_000_000, 2_000, 4_000_000
#: Frames of more events where nothing hides anything are not looked at closely; distances listed then.
_FEW, _LISTED = 48, 4
#: Stands for any number of iterations in arrays.
_ANY = -1
_FAR = 1 << 60


class Frame:
    """The events of one step; `loose` where they are compared by their extents in all iterations only."""

    def __init__(self, motion: Motion | None, events: list[Event], level: Level, last: int):
        self.events, self.level, self.last = events, level, last
        self.writes = np.array([e.access.write for e in events], dtype=bool)
        if any(e.levels for e in events):
            self.first = np.array([e.times.min(initial=_FAR) for e in events], dtype=np.int64)
            self.end = np.array([e.times.max(initial=-1) for e in events], dtype=np.int64)
        else:
            self.first = self.end = np.concatenate([e.times for e in events])
        #: When a write is wholly overwritten within its iteration.
        self.death = np.full(len(events), _FAR, dtype=np.int64)
        self.open = np.ones(len(events), dtype=bool)
        #: Extents in the frame, where there is one.
        self.extents: tuple[tuple[int, ...], Array, Array] | None = None
        self.loose = motion is None or not self._place(motion[0])
        if not self.loose:
            self._sort()
        self.exposed = [
            e.access for e, o, w in zip(events, self.open, self.writes, strict=True) if o and not w
        ]
        alive = self.death == _FAR
        self.survivors = [e.access for e, a, w in zip(events, alive, self.writes, strict=True) if a and w]
        hulls = [e.access.hull for e in events]
        self.hull_low = np.array([[a for a, _ in hull] for hull in hulls], dtype=np.int64)
        self.hull_high = np.array([[b for _, b in hull] for hull in hulls], dtype=np.int64)

    def _place(self, step: tuple[int, ...]) -> bool:
        """Spread the events over cells; False if there would be too many."""
        symbol, events = self.level.symbol, self.events
        rows = [e.grid.rows for e in events]
        owner = np.arange(len(events), dtype=np.int64)
        single = not any(e.levels for e in events)
        if single:
            table = np.array([e.numbers(symbol) for e in events], dtype=np.int64)
            low, high, late, early = np.ascontiguousarray(table.transpose(2, 1, 0))
            row, time = np.zeros(len(events), dtype=np.int64), self.first
        else:
            parts = [e.extents(symbol) for e in events]
            low, high, late, early = (np.concatenate([p[n] for p in parts], axis=1) for n in range(4))
            owner = np.repeat(owner, rows)
            row = np.concatenate([np.arange(n, dtype=np.int64) for n in rows])
            time = np.concatenate([e.times for e in events])
        keep = (high > low).all(axis=0)
        low, high, late, early = low[:, keep], high[:, keep], late[:, keep], early[:, keep]
        self.owner, self.row, self.time = owner[keep], row[keep], time[keep]
        if not self.owner.size:
            return False
        if single and self.owner.size == len(events):
            least, most = low.T, high.T
        else:
            least = np.full((len(events), len(step)), _FAR, dtype=np.int64)
            most = np.full((len(events), len(step)), -_FAR, dtype=np.int64)
            np.minimum.at(least, self.owner, low.T)
            np.maximum.at(most, self.owner, high.T)
        self.extents = step, least, most
        certain = np.array([e.access.certain <= e.depth for e in self.events], dtype=bool)[self.owner]
        hides = certain & self.writes[self.owner] & (early > late).all(axis=0)
        if not hides.any() and len(events) > _FEW:
            return False
        unit = []
        for d, c in enumerate(step):
            numbers = np.concatenate((low[d], high[d], late[d], early[d]))
            unit.append(max(1, math.gcd(int(np.gcd.reduce(numbers)), c)))
        room = max(_MIN_CELLS, _CELLS * len(events))
        for coarse in (False, True):
            if coarse:
                unit = [abs(c) or max(1, int((high[d] - low[d]).mean())) for d, c in enumerate(step)]
            width = np.array(unit)[:, None]
            first, stop = low // width, -(-high // width)
            if float(np.prod((stop - first).astype(float), axis=0).sum()) <= room:
                break
        else:
            return False
        self.base = first.min(axis=1)
        self.shape = (stop.max(axis=1) - self.base).tolist()
        if math.prod(self.shape) * (2 * self.last + 6) > _FAR:
            return False
        self.step = [c // u for c, u in zip(step, unit, strict=True)]
        self.strides = [math.prod(self.shape[d + 1 :]) for d in range(len(step))]
        base = self.base[:, None]
        self.cell, self.box = spread(first - base, stop - first, self.strides)
        sure = certain[self.box]
        for place, a, b in zip(
            self.places(self.cell), -(-late // width) - base, early // width - base, strict=True
        ):
            sure &= (a[self.box] <= place) & (place < b[self.box])
        self.sure = sure
        return not coarse or len(events) <= _FEW or bool((sure & self.writes[self.owner[self.box]]).any())

    def places(self, cells: Array) -> list[Array]:
        """The coordinates of linear cells."""
        return [cells // s % n for s, n in zip(self.strides, self.shape, strict=True)]

    def _sort(self) -> None:
        """Bring writes into the order of place and time, and find what each iteration serves by itself."""
        turn = self.turn = 2 * self.last + 6
        write = self.writes[self.owner[self.box]]
        key = self.cell * turn + 2 * self.time[self.box] + write
        chosen = np.flatnonzero(write)
        chosen = chosen[np.argsort(key[chosen], kind="stable")]
        self.write_key, self.write_box = key[chosen], self.box[chosen]
        cells, sure = self.cell[chosen], self.sure[chosen]
        place = np.arange(chosen.size, dtype=np.int64)
        #: The last sure write up to each; which may be of another cell.
        self.last_sure = np.maximum.accumulate(np.where(sure, place, -1)) if chosen.size else place
        ends = np.searchsorted(cells, cells, side="right")
        if chosen.size:
            next_sure = np.minimum.accumulate(np.where(sure, place, _FAR)[::-1])[::-1]
            after = np.append(next_sure[1:], _FAR)
            over = after < ends
            times = self.time[self.write_box]
            death = np.where(over, times[np.minimum(after, chosen.size - 1)], _FAR)
            self.death[:] = np.where(self.writes, -1, _FAR)
            np.maximum.at(self.death, self.owner[self.write_box], death)
        reads = np.flatnonzero(~write)
        self.read_cell, self.read_box = self.cell[reads], self.box[reads]
        self.begin, self.until, served = self._tail(key[reads], self.read_cell)
        self.left = np.flatnonzero(~served)
        self.open[:] = False
        self.open[self.owner[self.read_box[self.left]]] = True

    def _tail(self, until_key: Array, cells: Array) -> tuple[Array, Array, npt.NDArray[np.bool_]]:
        """The writes of cells before a time that are alive then, from and to; whether one of them is sure."""
        until = np.searchsorted(self.write_key, until_key).astype(np.int64)
        start = np.searchsorted(self.write_key, cells * self.turn).astype(np.int64)
        if not self.write_key.size:
            return start, until, np.zeros(start.size, dtype=bool)
        sure = np.where(until > start, self.last_sure[np.maximum(until - 1, 0)], -1)
        served = sure >= start
        return np.where(served, sure, start), until, served

    def inside(self, record: Recorder) -> None:
        """Record the pairs of the frame, with their distances."""
        if self.loose:
            self._loosely(np.flatnonzero(~self.writes), self, record)
            return
        self._pairs(self.read_box, self.begin, self.until, np.zeros_like(self.begin), record)
        most = self.level.symbol.high
        if most < 1 or not self.left.size or not self.write_key.size:
            return
        cells, boxes = self.read_cell[self.left], self.read_box[self.left]
        if not any(self.step):
            begin, until, served = self._tail((cells + 1) * self.turn, cells)
            apart = np.where(served | (most == 1), 1, _ANY)
            self._pairs(boxes, begin, until, apart, record)
        elif not self._follow(boxes, cells, most, record):
            self._loosely(np.unique(self.owner[boxes]), self, record)

    def _follow(self, boxes: Array, cells: Array, most: int, record: Recorder) -> bool:
        """Record what reads see of iterations before, going from cell to cell along the step.

        False if that takes too long.
        """
        written = np.unique(self.write_key // self.turn)
        begin, until, served = self._tail((written + 1) * self.turn, written)
        lines, rounds = self._lines(np.concatenate((written, cells)))
        # One more round than there is keeps what is past the end of a line apart from the next one.
        turn = int(rounds.max()) + 2
        if (int(lines.max()) + 1) * turn > _FAR:
            return False
        keys = lines * turn + rounds
        order = np.argsort(keys[: written.size])
        table, begin, until, served = keys[order], begin[order], until[order], served[order]
        keys = keys[written.size :]
        at = np.searchsorted(table, keys, side="right")
        for _ in range(_MOST_STEPS):
            inside = at < table.size
            at, keys, boxes = at[inside], keys[inside], boxes[inside]
            apart = table[at] - keys
            near = (table[at] // turn == keys // turn) & (apart <= most)
            at, keys, boxes, apart = at[near], keys[near], boxes[near], apart[near]
            if not boxes.size:
                return True
            self._pairs(boxes, begin[at], until[at], apart, record)
            on = ~served[at]
            at, keys, boxes = at[on] + 1, keys[on], boxes[on]
        return not boxes.size

    def _lines(self, cells: Array) -> tuple[Array, Array]:
        """Cells by the line along the step that they are on, and how many steps along it."""
        places = self.places(cells)
        first = next(d for d, c in enumerate(self.step) if c)
        rounds = places[first] // self.step[first]
        rounds -= rounds.min()
        lines: Array = np.zeros(cells.size, dtype=np.int64)
        for place, c in zip(places, self.step, strict=True):
            start = place - rounds * c
            start -= start.min()
            lines = np.unique(lines * (int(start.max()) + 1) + start, return_inverse=True)[1].reshape(-1)
        return lines, rounds

    def _pairs(self, boxes: Array, begin: Array, until: Array, apart: Array, record: Recorder) -> None:
        """Record reads with ranges of writes so many iterations before."""
        counts = until - begin
        some = counts > 0
        boxes, begin, counts, apart = boxes[some], begin[some], counts[some], apart[some]
        if not boxes.size:
            return
        total = np.cumsum(counts)
        if int(total[-1]) > max(_MIN_PAIRS, _PAIRS * len(self.events)):
            self._loosely(np.unique(self.owner[boxes]), self, record)
            return
        # Distances are few: their numbers go into the keys.
        distances, number = np.unique(apart, return_inverse=True)
        reads_key = (boxes * distances.size + number.reshape(-1)) * self.owner.size
        found: list[Array] = []
        at = 0
        while at < boxes.size:
            base = int(total[at - 1]) if at else 0
            end = max(at + 1, int(np.searchsorted(total, base + _CHUNK)))
            part = counts[at:end]
            place = np.arange(int(part.sum()), dtype=np.int64) - np.repeat(np.cumsum(part) - part, part)
            writes = self.write_box[np.repeat(begin[at:end], part) + place]
            found.append(np.unique(np.repeat(reads_key[at:end], part) + writes))
            at = end
        keys = found[0] if len(found) == 1 else np.unique(np.concatenate(found))
        reads, writes = keys // self.owner.size, keys % self.owner.size
        self._emit(reads // distances.size, writes, distances[reads % distances.size], record)

    def _emit(self, reads: Array, writes: Array, apart: Array, record: Recorder) -> None:
        events = self.events
        pairs: dict[tuple[int, int, int, tuple[int, ...]], None] = {}
        rows = zip(
            self.owner[reads].tolist(),
            self.owner[writes].tolist(),
            apart.tolist(),
            self.row[reads].tolist(),
            self.row[writes].tolist(),
            strict=True,
        )
        for a, b, n, i, j in rows:
            inner: tuple[int, ...] = ()
            if events[a].levels and events[b].levels:
                inner = _inner(events[a], i, events[b], j)
            pairs[a, b, n, inner] = None
        record(
            (events[a].access, events[b].access, None if n == _ANY else n, inner) for a, b, n, inner in pairs
        )

    def across(self, other: Frame, record: Recorder) -> None:
        """Record reads with writes of another frame whose extents they overlap."""
        self._loosely(np.flatnonzero(~self.writes), other, record)

    def _loosely(self, reads: Array, other: Frame, record: Recorder) -> None:
        writes = np.flatnonzero(other.writes)
        if not writes.size:
            return
        low, high = other.hull_low[writes], other.hull_high[writes]
        first, death = other.first[writes], other.death[writes]
        most = self.level.symbol.high
        for a in reads.tolist():
            event = self.events[a]
            meets = ((low < self.hull_high[a]) & (high > self.hull_low[a])).all(axis=1)
            same = meets & (first < self.end[a]) & (death >= self.first[a])
            before = (
                meets & (death == _FAR) if self.open[a] and most > 0 else np.zeros(meets.size, dtype=bool)
            )
            if other is self and self.extents is not None:
                early, late = self._apart(a, writes, most)
                same &= (early <= 0) & (late >= 0)
                before &= late >= np.maximum(early, 1)
                early = np.maximum(early, 1)
                for b, d in zip(
                    writes[before].tolist(), range_or_any(early[before], late[before]), strict=True
                ):
                    record((event.access, self.events[b].access, n, ()) for n in d)
                before = np.zeros(meets.size, dtype=bool)
            for b in writes[before].tolist():
                record([(event.access, other.events[b].access, None, ())])
            for b in writes[same & ~before].tolist():
                record([(event.access, other.events[b].access, 0, ())])

    def _apart(self, read: int, writes: Array, most: int) -> tuple[Array, Array]:
        """The fewest and most iterations from writes to a read that their extents in the frame allow."""
        assert self.extents is not None
        step, low, high = self.extents
        early: Array = np.zeros(writes.size, dtype=np.int64)
        late: Array = np.full(writes.size, most, dtype=np.int64)
        for axis, c in enumerate(step):
            # A place of the read is found c further on per iteration before.
            below, above = low[writes, axis] - high[read, axis], high[writes, axis] - low[read, axis]
            if c == 0:
                late = np.where((below < 0) & (above > 0), late, -1)
            elif c > 0:
                early, late = np.maximum(early, below // c + 1), np.minimum(late, -(-above // c) - 1)
            else:
                early, late = np.maximum(early, above // c + 1), np.minimum(late, -(-below // c) - 1)
        return early, late


def range_or_any(early: Array, late: Array) -> list[list[int | None]]:
    """The numbers of each range; None for any where they are many."""
    return [
        list(range(a, b + 1)) if b - a < _LISTED else [None]
        for a, b in zip(early.tolist(), late.tolist(), strict=True)
    ]


def _inner(read: Event, i: int, write: Event, j: int) -> tuple[int, ...]:
    """The iterations between two rows, of the loops that two events have in common."""
    found = []
    for a, b in zip(read.levels, write.levels, strict=False):
        if a is not b:
            break
        found.append(int(read.grid.columns[a.symbol][i] - write.grid.columns[a.symbol][j]))
    return tuple(found)


__all__ = ["Event", "Frame", "Pairs"]
