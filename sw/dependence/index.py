"""An index of a loop's accesses by region, which finds those that may touch an element.

Regions are compared along one dimension, relative to the sum of symbols that a group shares: in `a[64*i + 8 :
64*i + 16]`, this sum is 64*i, and [8, 16) is left. So the index does not depend on how a body moves.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hw.semantics import wrap
from sw.dependence.forms import PLACES, Facts, Form, Terms, Value, add, whole
from sw.ir.types import HIGH, LOW

#: First and last address, both inclusive, and the position of the access.
Span = tuple[int, int, int]
#: Larger than any address.
_FAR = 1 << 40


class Spans:
    """Spans in the order of their positions, to find the last one before a position that meets an interval.

    It is a tree over the points where spans begin and end: `own` are the positions of spans that cover a node
    but not its parent, and `below` those of all spans that meet it.
    """

    def __init__(self, spans: Sequence[Span]):
        self.ends = sorted({end for low, high, _ in spans for end in (low, high + 1)})
        self.cells = 1 << (len(self.ends) - 1).bit_length()
        self.own: dict[int, list[int]] = {}
        self.below: dict[int, list[int]] = {}
        for low, high, position in spans:
            first, last = bisect_left(self.ends, low), bisect_left(self.ends, high + 1)
            self._insert(1, 0, self.cells, first, last, position)

    def _insert(self, node: int, begin: int, end: int, first: int, last: int, position: int) -> None:
        self.below.setdefault(node, []).append(position)
        if first <= begin and end <= last:
            self.own.setdefault(node, []).append(position)
            return
        middle = (begin + end) // 2
        if first < middle:
            self._insert(2 * node, begin, middle, first, last, position)
        if last > middle:
            self._insert(2 * node + 1, middle, end, first, last, position)

    def last(self, low: int, high: int, before: int) -> int:
        """The last position before another one of a span that meets an interval; -1 if there is none."""
        if not self.ends or high < self.ends[0] or low >= self.ends[-1]:
            return -1
        first, last = bisect_left(self.ends, low + 1) - 1, bisect_left(self.ends, high + 1)
        return self._last(1, 0, self.cells, max(0, first), last, before)

    def _last(self, node: int, begin: int, end: int, first: int, last: int, before: int) -> int:
        below = self.below.get(node)
        if below is None:
            return -1
        if first <= begin and end <= last:
            return _before(below, before)
        own, middle = self.own.get(node), (begin + end) // 2
        found = -1 if own is None else _before(own, before)
        if first < middle:
            found = max(found, self._last(2 * node, begin, middle, first, last, before))
        if last > middle:
            found = max(found, self._last(2 * node + 1, middle, end, first, last, before))
        return found


def _before(positions: list[int], position: int) -> int:
    """The last of some positions before another one; -1 if there is none."""
    n = bisect_left(positions, position)
    return positions[n - 1] if n else -1


@dataclass
class RegionIndex:
    """The accesses to one buffer in a body, by their interval along one dimension (`axis`).

    `groups` hold the spans relative to a sum of symbols; `anywhere` holds accesses at unknown addresses.
    """

    axis: int
    groups: list[tuple[Value, Spans]] = field(default_factory=list)
    anywhere: list[int] = field(default_factory=list)

    def last(self, place: Value, known: Callable[[Value], Value] | None, facts: Facts, before: int) -> int:
        """The last position before another one of an access that may touch a point; -1 if there is none.

        `known` gives the numbers of the text at the walk's position.
        """
        found = _before(self.anywhere, before)
        for base, spans in self.groups:
            if isinstance(base, Form) and known is not None:
                base = known(base)
            low, high = whole(add(place, base, -1), facts)
            if low < LOW or high >= HIGH:
                low, high = -_FAR, _FAR
            found = max(found, spans.last(low, high, before))
        return found


@dataclass(frozen=True)
class Indexed:
    """A region in a body: its position, its ends, and the first symbol that is unknown there."""

    position: int
    box: tuple[tuple[Value, Value], ...] | None
    first_unknown: int = 1 << 62


def region_index(regions: Sequence[Indexed], dimensions: int) -> RegionIndex:
    """The index of some regions, which are in the order of their positions."""
    starts: list[set[Value]] = [set() for _ in range(dimensions)]
    for region in regions:
        for axis, (start, _) in enumerate(region.box or ()):
            starts[axis].add(start)
    made = RegionIndex(max(range(dimensions), key=lambda axis: len(starts[axis]), default=0))
    spans: dict[Terms, list[Span]] = {}
    references: dict[Terms, int] = {}
    for region in regions:
        found = None if region.box is None or not dimensions else _span(region, region.box[made.axis])
        if found is None:
            made.anywhere.append(region.position)
            continue
        terms, constant, low, high = found
        shift = wrap(constant - references.setdefault(terms, constant))
        low, high = low + shift, high + shift
        if low >= -PLACES and high <= PLACES:
            spans.setdefault(terms, []).append((low, high, region.position))
        else:
            made.anywhere.append(region.position)
    for terms, group in spans.items():
        base = Form(terms, references[terms]) if terms else references[terms]
        made.groups.append((base, Spans(group)))
    return made


def _span(region: Indexed, ends: tuple[Value, Value]) -> tuple[Terms, int, int, int] | None:
    """Known terms and constant of a region's start, and its first and last point relative to them."""
    start, stop = ends
    # The region is no longer than a buffer, so nothing has wrapped.
    shortest, length = whole(add(stop, start, -1))
    if shortest <= -3 * PLACES or not 0 < length <= PLACES:
        return None
    if isinstance(start, int):
        return (), start, 0, length - 1
    known = tuple(t for t in start.terms if t[0].number < region.first_unknown)
    rest = tuple(t for t in start.terms if t[0].number >= region.first_unknown)
    low, high = whole(Form(rest)) if rest else (0, 0)
    if not (low >= LOW and high < HIGH):
        return None
    return known, start.constant, low, high + length - 1
