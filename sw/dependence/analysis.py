"""The dependences of a program: use-def and def-use chains with distances (docs/dependence.md)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from sw.dependence.accesses import SymbolicAccess, access_tree, common_loops
from sw.dependence.budget import WalkBudget
from sw.dependence.cases import Case, consistent
from sw.dependence.distances import ANY_DISTANCE, Component, Distance, listed
from sw.dependence.forms import Facts, whole
from sw.dependence.places import Box
from sw.dependence.walk import BackwardWalk
from sw.ir.program import Program
from sw.ir.walk import instructions

#: What a buffer held before the program.
ENTRY = "entry"
#: Comparisons of a walk where those of the whole program are used up.
_LEAST = 24
#: Distances of two accesses that are each held against all that is known.
_TRIED = 64


@dataclass(frozen=True)
class SeenWrite:
    """A read that may see a write.

    `read` and `write` count the accesses of the two instructions, `areas` are the parts of the read's region
    where, in elements and half open, `iteration` is that of the use where it was found, as text.
    """

    source: str
    use: str
    write: int
    read: int
    buffer: str
    areas: tuple[Box, ...]
    iteration: str
    source_iteration: str


@dataclass(frozen=True)
class Dependences:
    """Which writes every instruction's reads may see.

    `sources` has every label as a key: by source ("entry" for what a buffer held before the program) the
    distances in iterations of their common loops, outermost first, none where they have no loop in common.
    "*" stands for any number in place of one that is not constant or not bounded. `edges` tells of every read
    where; it is filled by `analyse(program, details=True)`.
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
        """By label, and "entry", the instructions that may read what it wrote, sorted."""
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
                distances = sorted(sources[source], key=_order)
                if distances and len(distances[0]) == 1:
                    found[f"{source}->{use}"] = [d[0] for d in distances]
                elif distances:
                    found[f"{source}->{use}"] = [list(d) for d in distances]
        return found

    def as_dict(self) -> dict[str, object]:
        """What `jacquard deps --json` prints."""
        return {"use_def": self.use_def, "def_use": self.def_use, "distance": self.distance}


def _order(distance: Distance) -> tuple[tuple[bool, int], ...]:
    return tuple((isinstance(n, str), 0 if isinstance(n, str) else n) for n in distance)


def analyse(program: Program, *, details: bool = False, budget: WalkBudget | None = None) -> Dependences:
    """The dependences of a program; with `details` also where every read sees what."""
    made = _Sources(details)
    for i in instructions(program):
        made.sources[i.label] = {}
    tree, budget = access_tree(program), budget or WalkBudget(_LEAST)
    for sink in tree.accesses():
        if not sink.write:
            made.sink = sink
            made.tried = _TRIED if budget.left >= budget.least else 0
            for case in BackwardWalk(tree, sink, made.add, budget).run():
                made.entry(case)
    return Dependences(program, made.sources, tuple(made.edges))


@dataclass
class _Sources:
    """What walks have found."""

    details: bool
    sources: dict[str, dict[str, set[Distance]]] = field(default_factory=dict)
    edges: list[SeenWrite] = field(default_factory=list)
    sink: SymbolicAccess | None = None
    tried: int = _TRIED

    def add(self, source: SymbolicAccess, case: Case, facts: Facts) -> None:
        """A read may see a write."""
        sink = self.sink
        assert sink is not None
        known = consistent(facts) if self.tried else facts
        if known is None:
            return
        facts = known
        found = self.sources[sink.instruction.label].setdefault(source.instruction.label, set())
        common = common_loops(source, sink)
        if common:
            found.update(
                listed(case.own[:common], case.numbers[:common], facts, source.slot < sink.slot, self.tried)
            )
        if self.details:
            self.edges.append(self.seen(source.instruction.label, source.index, case, facts))

    def entry(self, case: Case) -> None:
        """A read may see what was there before the program."""
        sink = self.sink
        assert sink is not None
        known = consistent(case.facts) if self.tried else case.facts
        if known is None:
            return
        self.sources[sink.instruction.label].setdefault(ENTRY, set())
        if self.details:
            self.edges.append(self.seen(ENTRY, -1, case, case.facts))

    def seen(self, source: str, write: int, case: Case, facts: Facts) -> SeenWrite:
        sink = self.sink
        assert sink is not None
        limits = (whole(place, facts) for place in case.point)
        pairs = zip(limits, sink.hull, strict=True)
        area = tuple((max(low, first), min(high + 1, last)) for (low, high), (first, last) in pairs)
        return SeenWrite(
            source,
            sink.instruction.label,
            write,
            sink.index,
            sink.buffer,
            (area,),
            ", ".join(map(str, case.own)),
            ", ".join(map(str, case.numbers)),
        )


__all__ = ["ANY_DISTANCE", "ENTRY", "Dependences", "SeenWrite", "analyse"]
