"""The edges of the control-data-resource-flow graph, from which warps are made (docs/warps.md, "Edges")."""

from __future__ import annotations

from dataclasses import dataclass, field

from sw.dependence.accesses import SymbolicAccess, access_tree, common_loops
from sw.dependence.budget import WalkBudget
from sw.dependence.cases import Case
from sw.dependence.distances import ANY_DISTANCE, Distance, listed
from sw.dependence.forms import Facts
from sw.dependence.walk import BackwardWalk
from sw.ir.program import Program


@dataclass(frozen=True)
class Edge:
    """One instruction must complete before another one begins.

    `source` and `sink` are labels. `data`: the sink may read what the source wrote; else it overwrites what
    the source reads, or wrote with no reader since. `distances` are the iterations of their common loops that
    lie between them, outermost first, with "*" for any number; () where they have no loop in common.
    """

    source: str
    sink: str
    data: bool
    distances: frozenset[Distance]


def edges(program: Program) -> tuple[Edge, ...]:
    """The edges of a program, in the order of its text, without those within one warp.

    Distances at which a pair is data are not listed as resource besides.
    """
    found, budget = _Edges(), WalkBudget()
    tree = access_tree(program)
    by_buffer: dict[str, list[SymbolicAccess]] = {}
    for access in tree.accesses():
        by_buffer.setdefault(access.buffer, []).append(access)
    for accesses in by_buffer.values():
        writers = [a for a in accesses if a.write]
        for sink in accesses:
            if any(_across(a, sink) for a in (accesses if sink.write else writers)):
                found.sink = sink
                BackwardWalk(tree, sink, found.add, budget).run()
    return found.edges()


def _across(a: SymbolicAccess, b: SymbolicAccess) -> bool:
    """Whether two accesses may be of different warps."""
    return a.instruction.warp is None or a.instruction.warp != b.instruction.warp


@dataclass
class _Edges:
    """What walks have found: labels and distances by places of source and sink in the text."""

    sink: SymbolicAccess | None = None
    found: dict[tuple[int, int, bool], tuple[str, str, set[Distance]]] = field(default_factory=dict)

    def add(self, source: SymbolicAccess, case: Case, facts: Facts) -> None:
        sink = self.sink
        assert sink is not None
        if not _across(source, sink):
            return
        key = source.slot, sink.slot, not sink.write
        distances = self.found.setdefault(key, (source.instruction.label, sink.instruction.label, set()))[2]
        common = common_loops(source, sink)
        earlier = source.slot < sink.slot
        own, numbers = case.own[:common], case.numbers[:common]
        distances.update(listed(own, numbers, facts, earlier) if common else [()])

    def edges(self) -> tuple[Edge, ...]:
        made = []
        for (first, last, data), (source, sink, distances) in sorted(self.found.items()):
            both = (
                set() if data or (first, last, True) not in self.found else self.found[first, last, True][2]
            )
            if distances - both:
                made.append(Edge(source, sink, data, frozenset(distances - both)))
        return tuple(made)


__all__ = ["ANY_DISTANCE", "Edge", "edges"]
