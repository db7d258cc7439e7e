"""Demands: the dependence edges between the instances of a sample, which waits and signals must order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from hw.errors import InputError
from sw.dependence.edges import Edge
from sw.ir.intrinsics import effects
from sw.ir.program import Access, Instruction, Region
from sw.ir.vector import Array, evaluate_rows
from sw.warps.reduce import Reduction, reduce
from sw.warps.sample import Sample, Visits
from sw.warps.sites import Spot, common

Mask = npt.NDArray[np.bool_]
#: Distance of two instances in iterations of their common loops; "*" stands for any number.
Distance = tuple[int | str, ...]

#: Pairs of instances compared at a time.
_MOST_PAIRS = 1 << 21
#: Most pairs of instances compared for one sample, which takes some seconds.
_ALL_PAIRS = 1 << 25
_NONE: Array = np.empty((0, 2), np.int64)


@dataclass(frozen=True)
class Ordered:
    """Instances of a sample that must be ordered, by edge and distance: times of source and sink (n × 2).

    `kept` marks those that the reduction keeps.
    """

    edge: Edge
    distance: Distance
    pairs: Array
    kept: Mask


def ordered(sample: Sample, edges: Sequence[Edge], reduction: Reduction) -> list[Ordered]:
    """The demands on a sample that follow from edges between warps, reduced.

    For each instance of a sink, only the last instance of a source counts, because a warp executes in order.
    """
    finder = _Finder(sample)
    found = [(e, d, finder.pairs(e, d)) for e in edges for d in sorted(e.distances, key=str)]
    every = np.concatenate([_NONE, *(pairs for *_, pairs in found)])
    times, warps = _instances(sample)
    unique, inverse = np.unique(every, axis=0, return_inverse=True)
    kept = reduce(np.searchsorted(times, unique), warps, reduction)[inverse.reshape(-1)]
    made, at = [], 0
    for edge, distance, pairs in found:
        made.append(Ordered(edge, distance, pairs, kept[at : at + len(pairs)]))
        at += len(pairs)
    return made


def _instances(sample: Sample) -> tuple[Array, Array]:
    """The times of all instances in order, and their warps."""
    times = [np.empty(0, np.int64), *(v.times for v in sample.instances.values())]
    numbers = [s.instruction.warp or 0 for s in sample.spots.values()]
    every = np.concatenate(times)
    warps = np.repeat(np.array([0, *numbers], np.int64), [t.size for t in times])
    order = np.argsort(every)
    return every[order], warps[order]


@dataclass
class _Finder:
    """Finds the pairs of instances of a sample that edges connect."""

    sample: Sample
    boxes: dict[tuple[str, int, tuple[int, ...]], tuple[Array, Array]] = field(default_factory=dict)
    left: int = field(default_factory=lambda: _ALL_PAIRS)

    def pairs(self, edge: Edge, distance: Distance) -> Array:
        """Times of an edge's sources and sinks at one distance, with the last source for every sink."""
        spots = self.sample.spots
        source, sink = (self.sample.instances[label] for label in (edge.source, edge.sink))
        if not source.times.size or not sink.times.size:
            return _NONE
        depth = shared_loops(spots[edge.source], spots[edge.sink])
        wanted, moved, fits = _sources(sink, distance[:depth], depth, self.sample.heads(spots[edge.sink]))
        known = [n for n, d in enumerate(distance[:depth]) if d != "*"]
        keys = _keys([source.rows.place[n] for n in known], [wanted[n] for n in known], source, sink)
        order = np.argsort(keys[0], kind="stable")
        low = np.searchsorted(keys[0][order], keys[1], side="left")
        high = np.searchsorted(keys[0][order], keys[1], side="right")
        counts = np.where(fits, high - low, 0)
        self.left -= int(counts.sum())
        if self.left < 0:
            where = spots[edge.sink].instruction.where
            raise InputError(
                f"{where}: more than {_ALL_PAIRS:,} pairs of iterations would have to be compared to place "
                "waits: nest fewer loops"
            )
        last = np.full(sink.times.size, -1, np.int64)
        for part in _parts(counts):
            owner = np.repeat(part, counts[part])
            step = np.arange(owner.size) - np.repeat(np.cumsum(counts[part]) - counts[part], counts[part])
            index = order[low[owner] + step]
            some = source.times[index] < sink.times[owner]
            some[some] &= self.meet(edge, index[some], owner[some], moved[:, owner[some]])
            np.maximum.at(last, owner[some], source.times[index[some]])
        found = np.flatnonzero(last >= 0)
        return np.stack([last[found], sink.times[found]], axis=1)

    def meet(self, edge: Edge, sources: Array, sinks: Array, moved: Array) -> Mask:
        """Which pairs of instances touch the same elements, with at least one write.

        `moved` says for each common loop whether a source stands for one before or after the iterations left
        out.
        """
        found = np.zeros(sources.size, bool)
        if not moved.any():
            return self._touch(edge, sources, sinks, (0,) * len(moved))
        # Each column as one number, which sorts much faster; digits are -1, 0 and 1.
        kind = (3 ** np.arange(len(moved))) @ (moved + 1)
        for number in np.unique(kind):
            here = np.flatnonzero(kind == number)
            found[here] = self._touch(edge, sources[here], sinks[here], tuple(moved[:, here[0]].tolist()))
        return found

    def _touch(self, edge: Edge, sources: Array, sinks: Array, moved: tuple[int, ...]) -> Mask:
        found = np.zeros(sources.size, bool)
        first, second = (self.sample.spots[x].instruction for x in (edge.source, edge.sink))
        for a, writes_a in _accesses(first):
            for b, writes_b in _accesses(second):
                if not (writes_a or writes_b):
                    continue
                if isinstance(a, Region) and isinstance(b, Region) and a.buffer != b.buffer:
                    continue
                # An access at an unknown address may touch any element, but nothing outside the buffers.
                ends = [
                    (start[:, some], stop[:, some])
                    for s, region, some, way in ((first, a, sources, moved), (second, b, sinks, ()))
                    if isinstance(region, Region)
                    for start, stop in [self.box(s, region, way)]
                ]
                if len(ends) == 2:
                    (start, stop), (low, high) = ends
                    ends.append((np.maximum(start, low), np.minimum(stop, high)))
                touch = np.ones(sources.size, bool)
                for start, stop in ends:
                    touch &= (start < stop).all(axis=0)
                found |= touch
        return found

    def box(self, s: Instruction, region: Region, moved: tuple[int, ...]) -> tuple[Array, Array]:
        """The region at every instance: starts and stops (dimensions × instances)."""
        key = s.label, id(region), moved
        if key not in self.boxes:
            rows = self.sample.instances[s.label].rows
            values = dict(rows.values)
            for n, sign in enumerate(moved):
                if sign:
                    name = self.sample.spots[s.label].loops[n][0].variable
                    values[name] = values[name] + sign * rows.skipped[n] * rows.step[n]
            ends = [[rows.column(evaluate_rows(e, values)[0]) for e in (i.start, i.stop)] for i in region.box]
            start, stop = (np.stack([pair[n] for pair in ends]) for n in range(2))
            self.boxes[key] = start, stop
        return self.boxes[key]


def shared_loops(a: Spot, b: Spot) -> int:
    """How many loops are around both of two instructions."""
    length = common(a.gap.block, b.gap.block)
    return sum(depth <= length for _, depth in a.loops)


def _accesses(s: Instruction) -> Iterator[tuple[Access, bool]]:
    reads, writes = effects(s)
    yield from ((a, False) for a in reads)
    yield from ((a, True) for a in writes)


def _sources(
    sink: Visits, distance: Distance, depth: int, heads: Sequence[int]
) -> tuple[list[Array], Array, Mask]:
    """By common loop, the followed iteration of an instance's source and what it stands for; which exist."""
    rows = sink.rows
    wanted, moved = [], np.zeros((depth, rows.size), np.int64)
    fits = np.ones(rows.size, bool)
    for n, d in enumerate(distance):
        place, number, skipped = rows.place[n], rows.number[n], rows.skipped[n]
        if isinstance(d, str):
            wanted.append(place)
            continue
        source, head = number - d, heads[n]
        # A source among the skipped iterations is represented by the followed one at the same distance from
        # the sink.
        behind = source >= head + skipped
        within = (source >= head) & ~behind
        moved[n] = np.where(within, np.sign(d), 0)
        found = np.where(behind, source - skipped, np.where(within, place - d, source))
        fits &= (source >= 0) & (found >= 0)
        wanted.append(found)
    return wanted, moved, fits


def _keys(
    places: Sequence[Array], wanted: Sequence[Array], source: Visits, sink: Visits
) -> tuple[Array, Array]:
    """A number for each instance of source and sink, equal if they are in the iteration sought."""
    first, second = np.zeros(source.times.size, np.int64), np.zeros(sink.times.size, np.int64)
    for a, b in zip(places, wanted, strict=True):
        radix = 1 + max(int(a.max(initial=0)), int(b.max(initial=0)))
        first, second = first * radix + a, second * radix + b
    return first, second


def _parts(counts: Array) -> Iterator[Array]:
    """Sinks in groups that limit the number of pairs compared at a time."""
    some = np.flatnonzero(counts)
    group = np.cumsum(counts[some]) // _MOST_PAIRS
    yield from np.split(some, np.flatnonzero(np.diff(group)) + 1) if some.size else ()
