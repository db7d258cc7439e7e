"""Element-wise dependences between instances of different warps.

For each element, the instances that read and write it are taken in order. A reader depends on the last
writer. A writer depends on the readers since the last write, or on that write if there are none. Together
with the order within each warp, these dependences imply the order of every other pair that shares an element.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from sw.check.trace import Boxes, Trace

Ints = npt.NDArray[np.int64]
#: Cell accesses processed at a time, which bounds memory use.
AT_ONCE = 2_000_000
#: Most cell accesses over all buffers; larger programs are refused.
MOST = 1_000_000_000


class TooLargeError(Exception):
    """More work than is allowed; the message says how much."""


def pairs(made: Trace) -> Iterator[tuple[Ints, Ints]]:
    """Pairs of instances (earlier, later) of different warps that depend on each other directly, in batches.

    A pair occurs at most once per batch, but may occur in several. Raises `TooLargeError`.
    """
    yield from _unknown(made)
    work = 0
    for buffer in made.program.buffers:
        parts = [*_accesses(made, buffer.name)]
        if not any(part[0].size for part in parts):
            continue
        time, write, low, high = (np.concatenate(found, axis=-1) for found in zip(*parts, strict=True))
        _to_pieces(low, high)
        work += int((high - low).prod(axis=0).sum())
        if work > MOST:
            raise TooLargeError(f"more than {MOST:,} accesses of pieces of buffers")
        for index, cell in _cells(low, high):
            yield _linked(made, time[index], write[index], cell)


def _accesses(made: Trace, buffer: str) -> Iterator[tuple[Ints, npt.NDArray[np.bool_], Ints, Ints]]:
    """The accesses to a buffer at known addresses: instances, whether they write, and their boxes."""
    for time, write, boxes in _all(made):
        if boxes is not None and boxes.buffer == buffer:
            full = touches(boxes)
            yield time[full], np.full(time[full].size, write), boxes.start[:, full], boxes.stop[:, full]


def _cells(low: Ints, high: Ints) -> Iterator[tuple[Ints, Ints]]:
    """All accesses of cells as (number of the access, cell), in batches of bounded size.

    An access touches the pieces from `low` up to `high` (dimensions × accesses); a cell is a piece in every
    dimension. All accesses of a cell are in one batch.
    """
    sizes = high - low
    along = int(np.argmax(high.max(axis=1)))
    others = sizes.prod(axis=0) // sizes[along]
    # Number of accesses to the cells at each position along that dimension.
    places = int(high[along].max()) + 1
    change = np.bincount(low[along], others, places) - np.bincount(high[along], others, places)
    total = np.cumsum(np.cumsum(change)[:-1]).astype(np.int64)
    first = 0
    while first < total.size:
        before = int(total[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(total, before + AT_ONCE, side="right")))
        inside = np.flatnonzero((low[along] < last) & (high[along] > first))
        if inside.size:
            a, b = low[:, inside], high[:, inside]
            a[along], b[along] = np.maximum(a[along], first), np.minimum(b[along], last)
            index, cell = _expand(a, b, high.max(axis=1))
            yield inside[index], cell
        first = last


def _all(made: Trace) -> Iterator[tuple[Ints, bool, Boxes | None]]:
    """All accesses: time, whether they write, and box."""
    for rows in made.rows:
        for side, write in ((rows.reads, False), (rows.writes, True)):
            for boxes in side:
                yield rows.time, write, boxes


def touches(boxes: Boxes) -> npt.NDArray[np.bool_]:
    """Which rows are not empty."""
    found: npt.NDArray[np.bool_] = np.logical_and.reduce(boxes.stop > boxes.start, axis=0)
    return found


def _to_pieces(starts: Ints, stops: Ints) -> None:
    """Replaces the ends of boxes by piece numbers; all ends together cut each dimension into pieces."""
    cells = 1
    for start, stop in zip(starts, stops, strict=True):
        ends = distinct(np.concatenate([distinct(start), distinct(stop)]))
        start[:], stop[:] = np.searchsorted(ends, start), np.searchsorted(ends, stop)
        cells *= max(1, ends.size)
    if cells >= 1 << 62:
        raise TooLargeError("more than 2^62 pieces of a buffer")


def _expand(low: Ints, high: Ints, shape: Ints) -> tuple[Ints, Ints]:
    """Every cell of every box: the number of the box, and of the cell in row-major order."""
    index = np.arange(low.shape[1])
    cell = np.zeros(index.size, np.int64)
    for d in range(low.shape[0]):
        size = (high[d] - low[d])[index]
        if (size == 1).all():
            cell = cell * shape[d] + low[d][index]
            continue
        begin = np.cumsum(size) - size
        step = np.arange(int(size.sum())) - np.repeat(begin, size)
        index, cell = np.repeat(index, size), np.repeat(cell, size)
        cell = cell * shape[d] + low[d][index] + step
    return index, cell


def _linked(made: Trace, time: Ints, write: npt.NDArray[np.bool_], cell: Ints) -> tuple[Ints, Ints]:
    count = made.count
    if int(cell.max()) >= 1 << 61 - count.bit_length():
        cell = np.unique(cell, return_inverse=True)[1].reshape(-1)
    # An instance reads before it writes. The key holds all the information, so sorting the keys is enough.
    key = (cell * count + time) * 2 + write
    key.sort()
    write = (key & 1).astype(np.bool_)
    key >>= 1
    time = key % count
    key //= count
    place = np.arange(key.size)
    same = np.empty(key.size, np.bool_)
    same[0], same[1:] = False, key[1:] == key[:-1]
    # The last write before each position, and the first from there on.
    last = np.maximum.accumulate(np.where(write, place, -1))
    source = np.concatenate([[-1], last[:-1]])
    linked = (source >= 0) & (key[source] == key)
    # A write after a read is ordered through that read.
    linked &= ~(write & same & ~np.concatenate([[True], write[:-1]]))
    following = np.minimum.accumulate(np.where(write, place, key.size)[::-1])[::-1]
    released = np.flatnonzero(~write & (following < key.size))
    released = released[key[following[released]] == key[released]]
    earlier = np.concatenate([time[source[linked]], time[released]])
    later = np.concatenate([time[linked], time[following[released]]])
    return _unique(made, earlier, later)


def distinct(numbers: Ints) -> Ints:
    """The numbers without repetition, ascending; for many, this is much quicker than `numpy.unique`."""
    numbers = np.sort(numbers)
    return numbers[np.diff(numbers, prepend=numbers[:1] - 1) > 0]


def _unique(made: Trace, earlier: Ints, later: Ints) -> tuple[Ints, Ints]:
    """Pairs of different warps without repetition."""
    apart = made.warp[earlier] != made.warp[later]
    both = distinct(earlier[apart] * made.count + later[apart])
    return both // made.count, both % made.count


def _unknown(made: Trace) -> Iterator[tuple[Ints, Ints]]:
    """Dependences of accesses at unknown addresses.

    They may touch every element, so the last instance before and the first after, per other warp, suffice.
    """
    accesses = [*_all(made)]
    if not made.program.buffers or all(boxes is not None for _, _, boxes in accesses):
        return
    none, warp = np.empty(0, np.int64), made.warp
    touching = [(time if b is None else time[touches(b)], write) for time, write, b in accesses]
    for write in (False, True):
        unknown = [time for time, w, boxes in accesses if boxes is None and w == write]
        times = distinct(np.concatenate([none, *unknown]))
        # Reads depend on writes, writes on all accesses.
        others = distinct(np.concatenate([none, *(time for time, w in touching if write or w)]))
        for w in distinct(warp[others]).tolist():
            own = others[warp[others] == w]
            before = np.searchsorted(own, times) - 1
            after = np.searchsorted(own, times, side="right")
            here, there = before >= 0, after < own.size
            earlier = np.concatenate([own[before[here]], times[there]])
            later = np.concatenate([times[here], own[after[there]]])
            yield _unique(made, earlier, later)
