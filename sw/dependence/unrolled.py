"""An outermost loop whose iterations are all known, run as a whole with arrays.

Every access of every iteration is spread over the cells that it touches; sorted by cell and time, a read sees
the write before it. What no write of the loop precedes comes from before the loop, and the last writes are
what it leaves. The result is that of running iteration by iteration.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from sw.dependence.cells import Box, Definition, Top
from sw.dependence.events import (
    Array,
    Grid,
    Grids,
    Truths,
    UnfitError,
    boxes_of,
    durations,
    evaluate,
    groups,
    holds,
    intervals_of,
    spread,
)
from sw.dependence.execute import Executor
from sw.dependence.forms import Form, Value, fits
from sw.dependence.nest import Access, Level, Nest
from sw.dependence.region_map import Leaf, parts, put_all
from sw.dependence.uses import Use

_MOST_KEY = 1 << 62


def run_whole(ex: Executor, nest: Nest, cells: int) -> bool:
    """Run a loop with arrays of at most so many cells; False (and nothing changed) if they do not do."""
    if not nest.plain or any(n.level.count is None or n.level.carried for n in nest.nests()):
        return False
    if sum(math.prod(level.count or 0 for level in a.levels) for a in nest.accesses()) > cells:
        return False
    by_buffer: dict[str, list[Access]] = {}
    for access in nest.accesses():
        by_buffer.setdefault(access.buffer, []).append(access)
    slots, rounds, total = durations(nest)
    grids = Grids()
    try:
        parts = [_Part(ex, buffer, found, grids, cells) for buffer, found in by_buffer.items()]
        for part in parts:
            part.sort(slots, rounds, total)
    except UnfitError:
        return False
    for part in parts:
        if ex.recording:
            part.reads(ex)
    for part in parts:
        part.leave(ex)
    return True


class _Part:
    """The accesses of one buffer."""

    def __init__(self, ex: Executor, buffer: str, accesses: list[Access], grids: Grids, room: int):
        self.buffer, self.accesses, self.grids = buffer, accesses, grids
        shape = ex.places.sizes[buffer]
        starts: list[list[Array]] = [[] for _ in shape]
        stops: list[list[Array]] = [[] for _ in shape]
        self.rows = [grids.of(a.levels).rows for a in accesses]
        for access in accesses:
            assert access.box is not None
            for axis, (size, ends) in enumerate(zip(shape, access.box, strict=True)):
                if not isinstance(size, int) or not all(map(fits, ends)):
                    raise UnfitError
                grid = grids.of(access.levels)
                first, end = ends
                starts[axis].append(_exactly(first, grid))
                if isinstance(first, Form) and isinstance(end, Form) and first.terms is end.terms:
                    stops[axis].append(starts[axis][-1] + (end.constant - first.constant))
                else:
                    stops[axis].append(_exactly(end, grid))
        start = np.stack([np.concatenate(s) for s in starts])
        stop = np.stack([np.concatenate(s) for s in stops])
        self.owner = np.repeat(np.arange(len(accesses), dtype=np.int64), self.rows)
        self.row = np.concatenate([np.arange(n, dtype=np.int64) for n in self.rows])
        filled = (stop > start).all(axis=0) & self.happens()
        start, stop = start[:, filled], stop[:, filled]
        self.owner, self.row = self.owner[filled], self.row[filled]
        if (start < 0).any() or any((stop[d] > size).any() for d, size in enumerate(shape)):
            raise UnfitError
        #: Where cells end, by dimension: wherever an access does.
        self.ends = [np.unique(np.concatenate(pair)) for pair in zip(start, stop, strict=True)]
        self.extents = [max(1, e.size - 1) for e in self.ends]
        start = np.stack([np.searchsorted(e, s) for e, s in zip(self.ends, start, strict=True)])
        stop = np.stack([np.searchsorted(e, s) for e, s in zip(self.ends, stop, strict=True)])
        lengths = stop - start
        if float(np.prod(lengths.astype(float), axis=0).sum()) > room:
            raise UnfitError
        strides = [math.prod(self.extents[d + 1 :]) for d in range(len(self.extents))]
        self.cells: Array
        self.box: Array
        self.cells, self.box = spread(start, lengths, strides)

    def happens(self) -> Truths:
        """Which rows of which accesses happen."""
        found = []
        for access, rows in zip(self.accesses, self.rows, strict=True):
            truth = np.ones(rows, dtype=bool)
            for condition, wanted in access.conditions:
                truth &= np.equal(holds(condition, self.grids.of(access.levels)), wanted)
            found.append(truth)
        return np.concatenate(found)

    def sort(self, slots: dict[int, int], rounds: dict[Level, int], total: int) -> None:
        """Bring the cells into the order of place and time."""
        if math.prod(self.extents) * (2 * total + 2) > _MOST_KEY:
            raise UnfitError
        times = []
        for access in self.accesses:
            grid = self.grids.of(access.levels)
            time: Array = np.full(grid.rows, slots[access.slot], dtype=np.int64)
            for level in access.levels:
                time = time + grid.columns[level.symbol] * rounds[level]
            times.append(2 * time + access.write)
        offset = np.cumsum([0, *self.rows])[:-1]
        time = np.concatenate(times)[offset[self.owner] + self.row]
        # Of writes of one instruction the last one in the text counts: the sort is stable.
        order = np.argsort(self.cells * (2 * total + 2) + time[self.box], kind="stable")
        self.cells, self.box = self.cells[order], self.box[order]
        writes = np.array([a.write for a in self.accesses], dtype=bool)
        self.is_write = writes[self.owner[self.box]] if self.box.size else np.zeros(0, dtype=bool)
        place = np.arange(self.cells.size, dtype=np.int64)
        self.source = np.maximum.accumulate(np.where(self.is_write, place, -1)) if place.size else place
        inside = self.source >= 0
        inside[inside] = self.cells[self.source[inside]] == self.cells[inside]
        self.inside = inside

    def reads(self, ex: Executor) -> None:
        """Record what the reads see."""
        inner = ~self.is_write & self.inside
        uses, sources = self.box[inner], self.box[self.source[inner]]
        if uses.size:
            self.pairs(ex, uses, sources)
        outer = ~self.is_write & ~self.inside
        owners, cells = self.owner[self.box[outer]], self.cells[outer]
        if len(self.extents) == 1 and cells.size:
            self.before(ex, owners, cells)
            return
        for owner, own in groups(owners, cells):
            self.see(ex, owner, boxes_of(own, self.ends))

    def see(self, ex: Executor, owner: int, boxes: Iterable[Box]) -> None:
        """Record what an access sees of the state before the loop in some boxes."""
        access = self.accesses[owner]
        for n, box in enumerate(boxes):
            use = Use(box, box, ex.state.facts)
            ex.see(access.instruction, access.index, self.buffer, use, more=n > 0)

    def before(self, ex: Executor, owners: Array, cells: Array) -> None:
        """Record what accesses see of the state before the loop in cells of one dimension.

        The map is gone through once for all of them.
        """
        lows, highs, found, definitions = parts(
            ex.state.maps[self.buffer],
            ex.extents[self.buffer][0],
            *intervals_of(np.unique(cells), self.ends[0]),
        )
        number = np.array(found, dtype=np.int64)
        order = np.lexsort((cells, owners))
        owners, cells = owners[order], cells[order]
        first = np.ones(cells.size, dtype=bool)
        first[1:] = (owners[1:] != owners[:-1]) | (cells[1:] - cells[:-1] > 1)
        last = np.append(first[1:], True)
        starts, stops = self.ends[0][cells[first]], self.ends[0][cells[last] + 1]
        owners = owners[first]
        begin = np.searchsorted(lows, starts, side="right") - 1
        touched, interval = spread(begin[None], (np.searchsorted(lows, stops) - begin)[None], (1,))
        base = len(definitions) + 1
        long: dict[int, list[Box]] = {}
        some = number[touched] == 0
        for n, part in zip(interval[some].tolist(), touched[some].tolist(), strict=True):
            box = ((max(int(starts[n]), lows[part]), min(int(stops[n]), highs[part])),)
            long.setdefault(int(owners[n]), []).append(box)
        for key in np.unique(owners[interval] * base + number[touched]).tolist():
            owner, n = divmod(key, base)
            if n:
                label = self.accesses[owner].instruction.label
                ex.record.sources[label].setdefault(definitions[n - 1].label, set())
        for owner, boxes in long.items():
            self.see(ex, owner, boxes)

    def pairs(self, ex: Executor, uses: Array, sources: Array) -> None:
        """Record the pairs of boxes, with the distances in their common loops."""
        both = np.unique(uses * self.owner.size + sources)
        uses, sources = both // self.owner.size, both % self.owner.size
        depth = max(len(a.levels) for a in self.accesses)
        numbers = np.full((len(self.accesses), depth), -1, dtype=np.int64)
        offset = np.cumsum([0, *self.rows])[:-1]
        columns = np.zeros((depth, sum(self.rows)), dtype=np.int64)
        for n, access in enumerate(self.accesses):
            grid = self.grids.of(access.levels)
            for d, level in enumerate(access.levels):
                numbers[n, d] = level.number
                columns[d, offset[n] : offset[n] + self.rows[n]] = grid.columns[level.symbol]
        use, source = self.owner[uses], self.owner[sources]
        use_row, source_row = offset[use] + self.row[uses], offset[source] + self.row[sources]
        table = [use, source]
        common = np.ones(use.size, dtype=bool)
        for d in range(depth):
            common &= (numbers[use, d] == numbers[source, d]) & (numbers[use, d] >= 0)
            table.append(np.where(common, columns[d, use_row] - columns[d, source_row], _MOST_KEY))
        for a, b, *apart in _distinct(np.stack(table)).T.tolist():
            reader, writer = self.accesses[a], self.accesses[b]
            distances = ex.record.sources[reader.instruction.label].setdefault(
                writer.instruction.label, set()
            )
            distances.add(tuple(n for n in apart if n != _MOST_KEY))

    def leave(self, ex: Executor) -> None:
        """Put what was written last into the state."""
        if not self.cells.size:
            return
        last = np.concatenate((self.cells[1:] != self.cells[:-1], [True])) & self.inside
        owners, cells = self.owner[self.box[self.source[last]]], self.cells[last]
        if len(self.extents) == 1:
            if cells.size:
                self.put(ex, owners, cells)
            return
        for owner, own in groups(owners, cells):
            access = self.accesses[owner]
            label = access.instruction.label
            for box in boxes_of(own, self.ends):
                ex.define(Definition(label, access.index, (), (), self.buffer, box), box, box)

    def put(self, ex: Executor, owners: Array, cells: Array) -> None:
        """Put the last writes of cells of one dimension, in order, into the state, all at once."""
        first = np.ones(cells.size, dtype=bool)
        first[1:] = (owners[1:] != owners[:-1]) | (cells[1:] - cells[:-1] > 1)
        last = np.append(first[1:], True)
        starts = self.ends[0][cells[first]].tolist()
        stops = self.ends[0][cells[last] + 1].tolist()
        made: dict[int, Leaf] = {}
        leaves = []
        for owner, start, stop in zip(owners[first].tolist(), starts, stops, strict=True):
            leaf = made.get(owner)
            if leaf is None:
                access = self.accesses[owner]
                d = Definition(access.instruction.label, access.index, (), (), self.buffer, None)
                leaf = made[owner] = Leaf(Top(d))
                d.hull = ((start, stop),)
            else:
                d = leaf.cell.definition  # type: ignore[union-attr]
                d.hull = ((d.hull[0][0], stop),)
            # All of its pieces are one definition: nothing asks for the box of a plain one.
            d.box = d.hull
            leaves.append(leaf)
        node, (low, high) = ex.state.maps[self.buffer], ex.extents[self.buffer][0]
        ex.state.set_map(self.buffer, put_all(node, low, high, starts, stops, 0, len(starts), leaves))


def _exactly(value: Value, grid: Grid) -> Array:
    """The value in every row; raises `UnfitError` where it is not known."""
    low, high = evaluate(value, grid)
    if low is not high:
        raise UnfitError
    return low if isinstance(low, np.ndarray) else np.full(grid.rows, low, dtype=np.int64)


def _distinct(table: Array) -> Array:
    """The different columns."""
    order = np.lexsort(table)
    table = table[:, order]
    new = np.concatenate(([True], (table[:, 1:] != table[:, :-1]).any(axis=0)))
    return table[:, new]
