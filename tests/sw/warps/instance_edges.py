"""Edges between the instances of a run, element by element, for comparison with `sw.dependence.edges`.

Per element of every buffer, a data edge runs from the last write to each read of it. Resource edges run from
all readers since the last certain write to the next write; without such a reader, from that write
(docs/warps.md). Control edges are not listed: every warp keeps the sequential order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sw.check.trace import Boxes, Trace
from sw.ir.errors import IRError
from sw.ir.expression import evaluate
from sw.ir.vector import Array

#: What an access does; a write that may happen elsewhere (ANY) ends nothing.
READ, WRITE, MAY_WRITE = range(3)
#: Pieces of accesses, one per cell of a buffer, that are worked on together.
MOST = 1 << 22
#: Edges of one buffer before pairs that are equal are joined.
_MOST_EDGES = 1 << 26


@dataclass(frozen=True)
class InstanceEdges:
    """Edges as pairs of times (source, sink), n × 2, in order, each once; one that is both is in `data`."""

    data: Array
    resource: Array

    @property
    def pairs(self) -> Array:
        """All edges in order: by source, then by sink."""
        both = np.concatenate([self.data, self.resource])
        return both[np.lexsort((both[:, 1], both[:, 0]))]


@dataclass(frozen=True)
class _Accesses:
    """All accesses to one buffer: when, what, and where (dimensions × accesses).

    `operand` (2 × accesses) holds the instruction's place in the text, and which of its reads or writes it
    is: -1 at an unknown address.
    """

    time: Array
    kind: Array
    operand: Array
    start: Array
    stop: Array


def warp_of(trace: Trace) -> Array:
    """The warp of every instance, by time; raises `IRError` for an instruction without one."""
    warps = np.zeros(trace.count, np.int64)
    for rows in trace.rows:
        if rows.instruction.warp is None:
            raise IRError(rows.instruction.where, f"{rows.instruction.label} without a warp", "warp=")
        warps[rows.time] = rows.instruction.warp
    return warps


def edges(trace: Trace) -> InstanceEdges:
    """The data and resource edges of a run, for buffers element by element.

    What is at an unknown address touches every element of every buffer. Raises `IRError` for a program with
    more dependences than can be listed.
    """
    warps = warp_of(trace)
    found: list[list[Array]] = [[], []]
    for accesses in _by_buffer(trace).values():
        for cell, index in _cells(accesses):
            events = _events(cell, accesses.time[index], accesses.kind[index], trace.count)
            for n, (source, sink) in enumerate(_pairs(*events)):
                across = warps[source] != warps[sink]
                found[n].append(_distinct(source[across] * trace.count + sink[across]))
    empty = [np.empty(0, np.int64)]
    data, resource = (_distinct(np.concatenate(empty + part)) for part in found)
    place = np.searchsorted(data, resource)
    resource = resource[np.append(data, -1)[place] != resource]
    return InstanceEdges(
        *(np.stack(np.divmod(codes, max(1, trace.count)), axis=1) for codes in (data, resource))
    )


def _distinct(values: Array) -> Array:
    """The values in order, each once; for many numbers quicker than the hash table of `numpy.unique`."""
    values = np.sort(values)
    return values[np.append(True, values[1:] != values[:-1])] if values.size else values


def _by_buffer(trace: Trace) -> dict[str, _Accesses]:
    """The accesses of a run that are not empty, by buffer; those at unknown addresses count for every one."""
    shapes = {b.name: [evaluate(size, trace.values) for size in b.shape] for b in trace.program.buffers}
    parts: dict[str, list[_Accesses]] = {name: [] for name in shapes}
    for row, rows in enumerate(trace.rows):
        if not rows.time.size:
            continue
        for accesses, writes in ((rows.reads, False), (rows.writes, True)):
            for number, boxes in enumerate(accesses):
                if boxes is None:
                    kind = MAY_WRITE if writes else READ
                    for name, shape in shapes.items():
                        stop = np.repeat(np.array(shape, np.int64)[:, None], rows.time.size, axis=1)
                        whole = Boxes(name, np.zeros_like(stop), stop)
                        parts[name].append(_accesses(rows.time, kind, row, -1, whole))
                else:
                    kind = WRITE if writes else READ
                    parts[boxes.buffer].append(_accesses(rows.time, kind, row, number, boxes))
    return {name: _join(found) for name, found in parts.items() if found}


def _accesses(time: Array, kind: int, row: int, number: int, boxes: Boxes) -> _Accesses:
    some = (boxes.stop > boxes.start).all(axis=0)
    size = int(some.sum())
    operand = np.repeat(np.array([[row], [number]], np.int64), size, axis=1)
    kinds = np.full(size, kind, np.int64)
    return _Accesses(time[some], kinds, operand, boxes.start[:, some], boxes.stop[:, some])


def _join(parts: list[_Accesses]) -> _Accesses:
    return _Accesses(
        np.concatenate([p.time for p in parts]),
        np.concatenate([p.kind for p in parts]),
        np.concatenate([p.operand for p in parts], axis=1),
        np.concatenate([p.start for p in parts], axis=1),
        np.concatenate([p.stop for p in parts], axis=1),
    )


def _cells(accesses: _Accesses) -> Iterator[tuple[Array, Array]]:
    """The buffer in cells that every access takes whole or not at all: (cell, number of the access) pairs.

    Cells lie between the ends of accesses, so large tiles are few. They come in parts that hold about `MOST`
    pairs; a cell is in one part.
    """
    low, high = np.empty_like(accesses.start), np.empty_like(accesses.stop)
    counts = []
    for d in range(len(low)):
        points = _distinct(np.concatenate([accesses.start[d], accesses.stop[d]]))
        low[d], high[d] = (
            np.searchsorted(points, accesses.start[d]),
            np.searchsorted(points, accesses.stop[d]),
        )
        counts.append(points.size)
    stack = [(np.arange(accesses.time.size), low, high)]
    while stack:
        index, low, high = stack.pop()
        widths = high - low
        if not index.size:
            continue
        first, last = low.min(axis=1), high.max(axis=1)
        spans = last - first
        if widths.prod(axis=0).sum() > MOST and spans.max() > 1:
            d = int(spans.argmax())
            middle = int(first[d] + last[d]) // 2
            for below in (True, False):
                lower, upper = low.copy(), high.copy()
                if below:
                    upper[d] = np.minimum(upper[d], middle)
                else:
                    lower[d] = np.maximum(lower[d], middle)
                some = lower[d] < upper[d]
                stack.append((index[some], lower[:, some], upper[:, some]))
            continue
        yield _expand(index, low - first[:, None], widths, spans)


def _expand(index: Array, low: Array, widths: Array, spans: Array) -> tuple[Array, Array]:
    """Every cell of every box."""
    sizes = widths.prod(axis=0)
    owner = np.repeat(np.arange(index.size), sizes)
    place = np.arange(owner.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    cell = np.zeros(owner.size, np.int64)
    factor = 1
    for d in reversed(range(len(low))):
        place, step = np.divmod(place, widths[d][owner])
        cell += factor * (low[d][owner] + step)
        factor *= int(spans[d])
        if factor > 1 << 31:
            # Only cells that occur need a number; there are no more of them than pairs.
            known, cell = np.unique(cell, return_inverse=True)
            factor = known.size
    return cell, index[owner]


def _events(cell: Array, time: Array, kind: Array, count: int) -> tuple[Array, Array, Array]:
    """Accesses by cell and time, reads of an instance before its writes, each once."""
    if cell.max(initial=0) > np.iinfo(np.int64).max // (3 * count + 3):
        _, cell = np.unique(cell, return_inverse=True)
    code = _distinct((cell * count + time) * 3 + kind)
    rest, kind = np.divmod(code, 3)
    cell, time = np.divmod(rest, count)
    return cell, time, kind


def _pairs(cell: Array, time: Array, kind: Array) -> Iterator[tuple[Array, Array]]:
    """Pairs of times, source and sink: those of data edges, then those of resource edges."""
    size = cell.size
    position = np.arange(size)
    end = np.searchsorted(cell, cell, side="right")
    reads, writes = np.flatnonzero(kind == READ), np.flatnonzero(kind != READ)
    certain = np.flatnonzero(kind == WRITE)
    # What a certain write ends reaches up to it, and it is the last that is ordered behind.
    after = np.append(certain, size)[np.searchsorted(certain, position, side="right")]
    stop, behind = np.minimum(after, end), np.minimum(after + 1, end)
    first_read = np.append(reads, size)[np.searchsorted(reads, position, side="right")]
    yield _ranges(time, writes, reads, writes + 1, stop[writes])
    source, sink = _ranges(time, reads, writes, reads + 1, behind[reads])
    bare = _ranges(time, writes, writes, writes + 1, np.minimum(behind, first_read)[writes])
    yield np.concatenate([source, bare[0]]), np.concatenate([sink, bare[1]])


def _ranges(time: Array, sources: Array, sinks: Array, start: Array, stop: Array) -> tuple[Array, Array]:
    """A pair from every source to those of the sinks that are from `start` up to, not including, `stop`."""
    low, high = np.searchsorted(sinks, start), np.searchsorted(sinks, stop)
    counts = np.maximum(0, high - low)
    total = int(counts.sum())
    if total > _MOST_EDGES:
        raise IRError(None, f"{total:,} dependences of one buffer", f"at most {_MOST_EDGES:,}")
    owner = np.repeat(np.arange(sources.size), counts)
    place = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    return time[sources[owner]], time[sinks[low[owner] + place]]
