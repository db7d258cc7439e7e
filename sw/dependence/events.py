"""Accesses of many iterations as arrays: which cell is touched when, by what."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from sw.dependence.cells import Box
from sw.dependence.conditions import Condition
from sw.dependence.forms import Form, Symbol, Value, fits
from sw.dependence.nest import Access, Level, Nest
from sw.dependence.tables import merge
from sw.ir.expression import Op

Array = npt.NDArray[np.int64]
Truths = npt.NDArray[np.bool_]


class UnfitError(Exception):
    """Arrays do not do for a loop: too many cells, or places that are not numbers."""


@dataclass
class Grid:
    """The iterations of some loops within each other, one row each, the outermost loop slowest."""

    columns: dict[Symbol, Array]
    rows: int


@dataclass
class Grids:
    """Grids by loops, made once each."""

    made: dict[tuple[Level, ...], Grid] = field(default_factory=dict)

    def of(self, levels: tuple[Level, ...]) -> Grid:
        """The grid of loops of known length."""
        found = self.made.get(levels)
        if found is None:
            counts = [level.count or 0 for level in levels]
            rows = math.prod(counts)
            columns, step, every = {}, rows, np.arange(rows, dtype=np.int64)
            for level, count in zip(levels, counts, strict=True):
                step //= max(1, count)
                columns[level.symbol] = every // max(1, step) % max(1, count)
            found = self.made[levels] = Grid(columns, rows)
        return found


def evaluate(value: Value, grid: Grid) -> tuple[Array | int, Array | int]:
    """Smallest and largest value of a form in every row, given that nothing wraps; one object if equal."""
    if isinstance(value, int):
        return value, value
    low: Array | int = value.constant
    high: Array | int = value.constant
    for symbol, f in value.terms:
        a, b = _symbol(symbol, grid)
        if a is b and low is high:
            # One number: the same object says so.
            low = high = low + f * a
        else:
            low, high = (low + f * a, high + f * b) if f > 0 else (low + f * b, high + f * a)
    return low, high


def _symbol(symbol: Symbol, grid: Grid) -> tuple[Array | int, Array | int]:
    column = grid.columns.get(symbol)
    if column is not None:
        return column, column
    if symbol.kind and isinstance(symbol.of, Form):
        low, high = evaluate(symbol.of, grid)
        if low is high:
            exact = low % symbol.by if symbol.kind == "%" else low // symbol.by
            return exact, exact
    if isinstance(symbol.key, tuple) and symbol.key[0] in (Op.MIN, Op.MAX):
        op, a, b = symbol.key
        if fits(a) and fits(b):
            (low, high), (low_b, high_b) = evaluate(a, grid), evaluate(b, grid)
            pick = np.minimum if op is Op.MIN else np.maximum
            least = pick(low, low_b)
            return least, least if low is high and low_b is high_b else pick(high, high_b)
    return symbol.low, symbol.high


def holds(truth: Condition, grid: Grid) -> npt.ArrayLike:
    """Where a condition holds; raises `UnfitError` where that does not follow from the iterations."""
    if truth.atom is not None:
        low, high = evaluate(Form(truth.atom.terms), grid)
        if low is not high:
            raise UnfitError
        return (truth.atom.low <= low) & (low <= truth.atom.high)
    parts = [holds(part, grid) for part in truth.parts]
    if truth.word == "not":
        return np.logical_not(parts[0])
    either = np.logical_and if truth.word == "and" else np.logical_or
    return functools.reduce(either, parts)


def durations(nest: Nest) -> tuple[dict[int, int], dict[Level, int], int]:
    """When things happen: the time of every slot of the text in first iterations, and of every loop's round.

    Loops that are not expanded take no time of their own. The last number is the time of all.
    """
    slots: dict[int, int] = {}
    rounds: dict[Level, int] = {}

    def walk(nest: Nest, time: int) -> int:
        start, last = time, -1
        for child in nest.children:
            if isinstance(child, Nest):
                time = walk(child, time)
            elif child.slot != last:
                last = child.slot
                slots[last] = time
                time += 1
        rounds[nest.level] = time - start
        return start + (time - start) * (nest.level.count or 0)

    return slots, rounds, walk(nest, 0)


def spread(starts: Array, lengths: Array, strides: Sequence[int]) -> tuple[Array, Array]:
    """The cells of boxes (arrays of dimension × box), as linear numbers, and which box each is of."""
    sizes = lengths.prod(axis=0)
    box = np.repeat(np.arange(sizes.size, dtype=np.int64), sizes)
    place = np.arange(box.size, dtype=np.int64) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    if len(strides) == 1:
        return starts[0][box] + place, box
    cells = np.zeros(box.size, dtype=np.int64)
    for axis in reversed(range(len(strides))):
        length = lengths[axis][box]
        cells += (starts[axis][box] + place % length) * strides[axis]
        place //= length
    return cells, box


def intervals_of(cells: Array, ends: Array) -> tuple[list[int], list[int]]:
    """Sorted distinct cells of one dimension as intervals of elements: where they start and stop.

    Cell n lies between the n-th and the next one of `ends`.
    """
    breaks = np.flatnonzero(np.diff(cells) != 1)
    starts = np.concatenate((cells[:1], cells[breaks + 1]))
    stops = np.concatenate((cells[breaks], cells[-1:])) + 1
    return ends[starts].tolist(), ends[stops].tolist()


def boxes_of(cells: Array, ends: Sequence[Array]) -> list[Box]:
    """Sorted distinct linear cells of a window as boxes of elements; cells as in `intervals_of`."""
    extents = [e.size - 1 for e in ends]
    breaks = np.flatnonzero(np.diff(cells) != 1) + 1
    rows = np.flatnonzero((cells[1:] % extents[-1]) == 0) + 1
    breaks = np.union1d(breaks, rows)
    firsts = np.concatenate(([0], breaks)).astype(np.int64)
    lasts = np.concatenate((breaks, [cells.size])).astype(np.int64) - 1
    found = []
    for first, last in zip(cells[firsts].tolist(), cells[lasts].tolist(), strict=True):
        box, length = [], last - first + 1
        for axis in reversed(range(len(extents))):
            first, place = divmod(first, extents[axis])
            box.append((int(ends[axis][place]), int(ends[axis][place + length])))
            length = 1
        found.append(tuple(reversed(box)))
    return merge(found)


def groups(owners: Array, cells: Array) -> list[tuple[int, Array]]:
    """The cells of every owner, sorted and distinct."""
    if not owners.size:
        return []
    order = np.lexsort((cells, owners))
    owners, cells = owners[order], cells[order]
    new = np.concatenate(([True], (owners[1:] != owners[:-1]) | (cells[1:] != cells[:-1])))
    owners, cells = owners[new], cells[new]
    bounds = np.concatenate(([0], np.flatnonzero(np.diff(owners)) + 1, [owners.size])).tolist()
    return [(int(owners[a]), cells[a:b]) for a, b in pairwise(bounds)]


__all__ = [
    "Access",
    "Array",
    "Grid",
    "Grids",
    "Truths",
    "UnfitError",
    "boxes_of",
    "durations",
    "evaluate",
    "groups",
    "holds",
    "intervals_of",
    "spread",
]
