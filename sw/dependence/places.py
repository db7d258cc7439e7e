"""Where regions are: their symbolic boxes, and what they may touch."""

from __future__ import annotations

from dataclasses import dataclass, field

from hw.semantics import wrap
from sw.dependence.forms import Bounds, Facts, Form, Symbol, Value, add, bounds, make, whole
from sw.dependence.scalars import Evaluator
from sw.ir.expression import Var
from sw.ir.program import Region
from sw.ir.types import HIGH, LOW

#: A constant, and names with factors.
_Named = tuple[int, tuple[tuple[str, int], ...]]
#: First element and the one after the last, of every dimension.
Box = tuple[tuple[int, int], ...]
#: The same with symbolic ends.
SymbolicBox = tuple[tuple[Value, Value], ...]


@dataclass
class Places:
    """Evaluates regions with the present values of the scalars; `sizes` are those of the buffers."""

    evaluator: Evaluator
    sizes: dict[str, tuple[Value, ...]] = field(default_factory=dict)
    sums: dict[int, list[tuple[_Named, _Named]]] = field(default_factory=dict)

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

    def hull(self, buffer: str, box: SymbolicBox, facts: Facts) -> Box | None:
        """What of a buffer a box may touch; None where it is empty, or outside so that no run gets there."""
        hull = []
        outside, filled = False, True
        for (start, stop), size in zip(box, self.sizes[buffer], strict=True):
            size_high = size if isinstance(size, int) else bounds(size, facts)[1]
            (low, last_start), (first_stop, high) = _limits(start, stop, facts)
            apart = add(stop, start, -1)
            if high <= low or (isinstance(apart, int) and apart <= 0):
                return None
            filled = filled and (last_start < first_stop or _longer(start, stop, facts))
            if isinstance(start, int) and isinstance(stop, int) and isinstance(size, int):
                outside = outside or start < 0 or stop > size
            outside = outside or last_start < 0 or first_stop > size_high
            hull.append((max(low, 0), min(high, size_high)))
        if (outside and filled) or any(low >= high for low, high in hull):
            return None
        return tuple(hull)


def _limits(start: Value, stop: Value, facts: Facts) -> tuple[Bounds, Bounds]:
    """Bounds of the ends of an interval."""
    if isinstance(start, Form) and isinstance(stop, Form) and start.terms == stop.terms:
        # The same sum at two places: what is known of one says all of the other.
        (low, high), length = whole(start, facts), stop.constant - start.constant
        if low >= LOW and high < HIGH and low + length >= LOW and high + length < HIGH:
            return (low, high), (low + length, high + length)
    return bounds(start, facts), bounds(stop, facts)


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
