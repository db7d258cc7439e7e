"""The dependences of a program: use-def and def-use chains with distances (docs/dependence.md)."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property

from sw.dependence.accesses import Box, SymbolicAccess, access_tree
from sw.dependence.cases import consistent, within
from sw.dependence.forms import Facts, add, whole
from sw.dependence.walk import BackwardWalk, Met, WalkBudget
from sw.ir.parse import ENTRY
from sw.ir.program import Program
from sw.ir.walk import instructions

#: Stands for a distance that is not constant or not bounded.
ANY_DISTANCE = "*"
Component = int | str
#: Iterations between two instances, per common loop, outermost first.
Distance = tuple[Component, ...]
#: Most distances listed for one loop, and for all loops together.
_LISTED, _LISTED_TOGETHER = 1024, 4096
#: Comparisons granted to each walk after the program's budget is used up.
_LEAST = 24
#: Most distances of two accesses that are tested individually against all known facts.
_TRIED = 64


@dataclass(frozen=True)
class SeenWrite:
    """A read, numbered within its instruction, that sees a write in `area`: elements, half open."""

    source: str
    use: str
    read: int
    buffer: str
    area: Box


@dataclass(frozen=True)
class Dependences:
    """Which writes the reads of every instruction may see.

    `sources` has every label as a key. It maps each source ("entry" for what a buffer held before the
    program) to the distances in iterations of their common loops, outermost first, or () if they have none in
    common. "*" stands for a distance that is not constant or not bounded. `edges` lists, for every read, the
    writes it sees and where; `analyse(program, details=True)` fills it.
    """

    program: Program
    sources: dict[str, dict[str, set[Distance]]]
    edges: tuple[SeenWrite, ...] = ()

    @cached_property
    def use_def(self) -> dict[str, list[str]]:
        """By label the sources of its reads, sorted."""
        return {use: sorted(sources) for use, sources in self.sources.items()}

    @cached_property
    def def_use(self) -> dict[str, list[str]]:
        """By label and "entry", the instructions that may read what it wrote, sorted."""
        found: dict[str, list[str]] = {ENTRY: [], **{label: [] for label in self.sources}}
        for use in sorted(self.sources):
            for source in self.sources[use]:
                found[source].append(use)
        return found

    @cached_property
    def distance(self) -> dict[str, list[Component] | list[list[Component]]]:
        """By "source->use" the distances, sorted: numbers for one common loop, lists for several."""
        found: dict[str, list[Component] | list[list[Component]]] = {}
        for use, sources in self.sources.items():
            for source in sorted(sources):
                distances = sorted(sources[source], key=by_size)
                if distances and len(distances[0]) == 1:
                    found[f"{source}->{use}"] = [d[0] for d in distances]
                elif distances and distances[0]:
                    found[f"{source}->{use}"] = [list(d) for d in distances]
        return found

    def as_dict(self) -> dict[str, object]:
        """The JSON that `heald deps --json` prints."""
        return {"use_def": self.use_def, "def_use": self.def_use, "distance": self.distance}


def by_size(distance: Distance) -> tuple[tuple[bool, int], ...]:
    """The sort key of distances: numbers first."""
    return tuple((isinstance(n, str), 0 if isinstance(n, str) else n) for n in distance)


def analyse(program: Program, *, details: bool = False, budget: WalkBudget | None = None) -> Dependences:
    """The dependences of a program; with `details`, also the area in which each read sees each write."""
    sources: dict[str, dict[str, set[Distance]]] = {i.label: {} for i in instructions(program)}
    edges = []
    tree, budget = access_tree(program), budget or WalkBudget(_LEAST)
    for sink in (a for a in tree.accesses() if not a.write):
        use, tried = sink.instruction.label, _TRIED if budget.left >= budget.least else 0
        for met in BackwardWalk(tree, sink, budget).run():
            facts = consistent(met.facts) if tried else met.facts
            if facts is None:
                continue
            source = ENTRY if met.access is None else met.access.instruction.label
            sources[use].setdefault(source, set()).update(distances(sink, met, facts, tried))
            if details:
                edges.append(SeenWrite(source, use, sink.index, sink.buffer, _area(sink, met, facts)))
    return Dependences(program, sources, tuple(edges))


def _area(sink: SymbolicAccess, met: Met, facts: Facts) -> Box:
    """The part of a read's region in which it sees the write that its walk met."""
    limits = (whole(place, facts) for place in met.case.point)
    pairs = zip(limits, sink.hull, strict=True)
    return tuple((max(low, first), min(high + 1, last)) for (low, high), (first, last) in pairs)


def distances(sink: SymbolicAccess, met: Met, facts: Facts, tried: int = 0) -> list[Distance]:
    """All distances in iterations of the common loops that the facts allow; none for the program's start.

    Up to `tried` distances are each tested against all facts together.
    """
    if met.access is None:
        return []
    loops = zip(sink.loops, met.access.loops, strict=False)
    common = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] is pair[1], loops))
    pairs = list(zip(met.case.own[:common], met.case.numbers[:common], strict=True))
    components: list[list[Component]] = []
    for now, then in pairs:
        (first, last), (least, most) = whole(now, facts), whole(then, facts)
        low, high = whole(add(now, then, -1), facts)
        low, high = max(low, first - most), min(high, last - least)
        components.append(list(range(low, high + 1)) if high - low < _LISTED else [ANY_DISTANCE])
    for c in sorted(components, key=len, reverse=True):
        if math.prod(map(len, components)) <= _LISTED_TOGETHER:
            break
        c[:] = [ANY_DISTANCE]

    def possible(distance: Distance) -> bool:
        known: Facts | None = facts
        for n, (now, then) in zip(distance, pairs, strict=True):
            if isinstance(n, int):
                known = within(known, add(now, then, -1), n, n)
        return known is not None and consistent(known) is not None

    earlier = met.access.slot < sink.slot
    found = [d for d in itertools.product(*components) if _forward(d, earlier)]
    return [d for d in found if possible(d)] if 1 < len(found) <= tried else found


def _forward(distance: Distance, before: bool) -> bool:
    """Whether a distance is forward in time; `before`: the earlier instance comes first in the text."""
    for n in distance:
        if isinstance(n, str) or n > 0:
            return True
        if n < 0:
            return False
    return before
