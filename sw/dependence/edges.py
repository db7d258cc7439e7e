"""The edges of the control-data-resource-flow graph, from which warps are made (docs/warps.md, "Edges")."""

from __future__ import annotations

from dataclasses import dataclass

from sw.dependence.accesses import SymbolicAccess, access_tree
from sw.dependence.analysis import ANY_DISTANCE, Distance, distances
from sw.dependence.walk import BackwardWalk, WalkBudget
from sw.ir.program import Program

#: Most distances listed for a pair; beyond, components become "*", innermost loop first.
_LISTED = 256


@dataclass(frozen=True)
class Edge:
    """One instruction must complete before another begins.

    `source` and `sink` are labels. `data`: the sink may read what the source wrote; otherwise, it overwrites
    what the source reads, or what the source wrote and nothing has read since. `distances` are in iterations
    of their common loops, outermost first, with "*" for any number; () if they have no loop in common.
    """

    source: str
    sink: str
    data: bool
    distances: frozenset[Distance]


def edges(program: Program) -> tuple[Edge, ...]:
    """The edges of a program, in the order of its text, without those within one warp.

    A distance at which a pair is data is not listed as resource too.
    """
    tree, budget = access_tree(program), WalkBudget()
    #: Keyed by text position of source and sink, and whether the edge is a data edge.
    found: dict[tuple[int, int, bool], set[Distance]] = {}
    labels = {a.slot: a.instruction.label for a in tree.accesses()}
    for accesses in tree.root.accesses.values():
        writers = [a for a in accesses if a.write]
        for sink in accesses:
            if not any(_across(a, sink) for a in (accesses if sink.write else writers)):
                continue
            for met in BackwardWalk(tree, sink, budget).run():
                if met.access is not None and _across(met.access, sink):
                    key = met.access.slot, sink.slot, not sink.write
                    found.setdefault(key, set()).update(distances(sink, met, met.facts))
    made = []
    for (first, last, data), listed in sorted(found.items()):
        if not data:
            listed = listed - found.get((first, last, True), set())
        for loop in reversed(range(len(next(iter(listed), ())))):
            if len(listed) > _LISTED:
                listed = {(*d[:loop], ANY_DISTANCE, *d[loop + 1 :]) for d in listed}
        if listed:
            made.append(Edge(labels[first], labels[last], data, frozenset(listed)))
    return tuple(made)


def _across(a: SymbolicAccess, b: SymbolicAccess) -> bool:
    """Whether two accesses may be of different warps."""
    return a.instruction.warp is None or a.instruction.warp != b.instruction.warp
