"""Where regions are: their symbolic boxes, what they may and what they surely touch."""

from __future__ import annotations

from dataclasses import dataclass, field

from sw.dependence.cells import Box, SymbolicBox
from sw.dependence.forms import Facts, Value, add, bounds, whole
from sw.dependence.scalars import Evaluator
from sw.ir.expression import Const, Var
from sw.ir.program import Region
from sw.ir.types import HIGH, LOW

#: A constant, and names with factors.
_Named = tuple[int, tuple[tuple[str, int], ...]]
_LOW, _HIGH = LOW, HIGH


@dataclass(slots=True)
class Place:
    """A region now: its symbolic box, what it may and what it surely touches (None: maybe nothing)."""

    box: SymbolicBox
    hull: Box | None
    sure: Box | None
    #: It is not empty and certainly not inside of its buffer, so no run gets here.
    outside: bool = False


@dataclass
class Places:
    """Evaluates regions with the present values of the scalars; `sizes` are those of the buffers."""

    evaluator: Evaluator
    sizes: dict[str, tuple[Value, ...]] = field(default_factory=dict)
    known: dict[int, Place] = field(default_factory=dict)
    sums: dict[int, list[tuple[_Named, _Named]]] = field(default_factory=dict)

    def place(self, region: Region, facts: Facts) -> Place:
        """Where a region is now."""
        known = self.known.get(id(region))
        if known is not None:
            return known
        sums = self.sums.get(id(region))
        if sums is None:
            sums = self.sums[id(region)] = _named(self.evaluator, region)
        if sums:
            fast = self.known_numbers(region.buffer, sums)
            if fast is not None:
                return fast
        integer = self.evaluator.integer
        box = tuple((integer(i.start, facts), integer(i.stop, facts)) for i in region.box)
        place = self.placed(region.buffer, box, facts)
        if all(isinstance(i.start, Const) and isinstance(i.stop, Const) for i in region.box):
            self.known[id(region)] = place
        return place

    def known_numbers(self, buffer: str, sums: list[tuple[_Named, _Named]]) -> Place | None:
        """A place where all numbers are known; None where they are not."""
        values = self.evaluator.values
        box = []
        outside = empty = False
        for (start, start_terms), (stop, stop_terms), size in (
            (*pair, size) for pair, size in zip(sums, self.sizes[buffer], strict=True)
        ):
            for name, factor in start_terms:
                value = values.get(name)
                if type(value) is not int:
                    return None
                start += factor * value
            for name, factor in stop_terms:
                value = values.get(name)
                if type(value) is not int:
                    return None
                stop += factor * value
            if type(size) is not int or not (_LOW <= start < _HIGH and _LOW <= stop < _HIGH):
                return None
            empty = empty or stop <= start
            outside = outside or start < 0 or stop > size
            box.append((start, stop))
        if empty:
            return Place((), None, None)
        if outside:
            return Place((), None, None, outside=True)
        hull = tuple(box)
        return Place(hull, hull, hull)

    def placed(self, buffer: str, box: SymbolicBox, facts: Facts) -> Place:
        """Where a symbolic box of a buffer is."""
        hull, sure = [], []
        outside, filled = False, True
        for (start, stop), size in zip(box, self.sizes[buffer], strict=True):
            if isinstance(start, int) and isinstance(stop, int) and isinstance(size, int):
                if stop <= start:
                    return Place(box, None, None)
                if start < 0 or stop > size:
                    outside = True
                low, high = max(start, 0), min(stop, size)
                hull.append((low, high))
                sure.append((low, high))
                continue
            (start_low, start_high), (stop_low, stop_high) = bounds(start, facts), bounds(stop, facts)
            size_high = bounds(size, facts)[1]
            apart = add(stop, start, -1)
            if stop_high <= start_low or (isinstance(apart, int) and apart <= 0):
                return Place(box, None, None)
            filled = filled and (start_high < stop_low or _longer(start, stop, facts))
            if start_high < 0 or stop_low > size_high:
                outside = True
            hull.append((max(start_low, 0), min(stop_high, size_high)))
            sure.append((max(start_high, 0), min(stop_low, size_high)))
        if outside and filled:
            return Place(box, None, None, outside=True)
        if any(low >= high for low, high in hull):
            return Place(box, None, None)
        whole_sure = all(low < high for low, high in sure)
        return Place(box, tuple(hull), tuple(sure) if whole_sure else None)


def _named(evaluator: Evaluator, region: Region) -> list[tuple[_Named, _Named]]:
    """The ends of a region as sums of variables; nothing where they are not sums."""
    found = []
    for interval in region.box:
        ends = []
        for end in (interval.start, interval.stop):
            constant, terms = evaluator.sum_of(end)
            named = tuple((atom.name, f) for atom, f in terms if isinstance(atom, Var))
            if len(named) < len(terms):
                return []
            ends.append((constant, named))
        found.append((ends[0], ends[1]))
    return found


def _longer(start: Value, stop: Value, facts: Facts) -> bool:
    """Whether an interval surely is not empty."""
    length = add(stop, start, -1)
    if not isinstance(length, int) or length <= 0:
        return False
    (low, high), (stop_low, stop_high) = whole(start, facts), whole(stop, facts)
    return low >= -(1 << 31) and high < 1 << 31 and stop_low >= -(1 << 31) and stop_high < 1 << 31
