"""Where regions are: their symbolic boxes, what they may and what they surely touch."""

from __future__ import annotations

from dataclasses import dataclass, field

from hw.semantics import wrap
from sw.dependence.cells import Box, SymbolicBox
from sw.dependence.forms import FULL, Facts, Form, Symbol, Value, add, bounds, make, whole
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
        sums = self.sums_of(region)
        if sums:
            fast = self.known_numbers(region.buffer, sums)
            if fast is not None:
                return fast
        place = self.placed(region.buffer, self.box(region, facts), facts)
        if all(isinstance(i.start, Const) and isinstance(i.stop, Const) for i in region.box):
            self.known[id(region)] = place
        return place

    def sums_of(self, region: Region) -> list[tuple[_Named, _Named]]:
        """The ends of a region as sums of variables; nothing where they are not sums."""
        sums = self.sums.get(id(region))
        if sums is None:
            sums = self.sums[id(region)] = _named(self.evaluator, region)
        return sums

    def box(self, region: Region, facts: Facts) -> SymbolicBox:
        """The ends of a region now; forms with the same terms share them."""
        found: list[tuple[Value, Value]] = []
        for start, stop in self.sums_of(region):
            low = self.sum(start)
            if low is None:
                break
            high: Value | None
            if stop[1] is not start[1]:
                high = self.sum(stop)
                if high is None:
                    break
            elif type(low) is Form:
                high = Form(low.terms, wrap(low.constant + stop[0] - start[0]))
            else:
                assert isinstance(low, int)
                high = wrap(low + stop[0] - start[0])
            found.append((low, high))
        if len(found) == len(region.box):
            return tuple(found)
        integer = self.evaluator.integer
        return tuple((integer(i.start, facts), integer(i.stop, facts)) for i in region.box)

    def sum(self, named: _Named) -> Value | None:
        """The value of a sum; None where a variable has none."""
        constant, terms = named
        values = self.evaluator.values
        factors: dict[Symbol, int] = {}
        for name, factor in terms:
            value = values.get(name)
            if type(value) is int:
                constant += factor * value
            elif type(value) is Form:
                constant += factor * value.constant
                if factor == 1 and len(terms) == 1:
                    return Form(value.terms, wrap(constant))
                for symbol, f in value.terms:
                    factors[symbol] = factors.get(symbol, 0) + factor * f
            else:
                return None
        return make(factors, constant) if factors else wrap(constant)

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
            size_high = size if isinstance(size, int) else bounds(size, facts)[1]
            if isinstance(start, Form) and isinstance(stop, Form) and start.terms is stop.terms:
                # The same sum at two places: what is known of one says all of the other.
                (start_low, start_high), length = whole(start, facts), stop.constant - start.constant
                stop_low, stop_high = start_low + length, start_high + length
                fit = start_low >= _LOW and start_high < _HIGH, stop_low >= _LOW and stop_high < _HIGH
                if wrap(length) <= 0 or (all(fit) and stop_high <= start_low):
                    return Place(box, None, None)
                filled = filled and all(fit)
                if not fit[0]:
                    start_low, start_high = FULL
                if not fit[1]:
                    stop_low, stop_high = FULL
            else:
                (start_low, start_high), (stop_low, stop_high) = bounds(start, facts), bounds(stop, facts)
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
        if ends[0][1] == ends[1][1]:
            ends[1] = ends[1][0], ends[0][1]
        found.append((ends[0], ends[1]))
    return found


def _longer(start: Value, stop: Value, facts: Facts) -> bool:
    """Whether an interval surely is not empty."""
    length = add(stop, start, -1)
    if not isinstance(length, int) or length <= 0:
        return False
    (low, high), (stop_low, stop_high) = whole(start, facts), whole(stop, facts)
    return low >= -(1 << 31) and high < 1 << 31 and stop_low >= -(1 << 31) and stop_high < 1 << 31
