"""The result of a search as a `Mapping`: numbers become nodes, registers and hops again."""

from __future__ import annotations

from sw.cgra.mapping import Hop, Mapping, Place, Register
from sw.cgra.place import Spots
from sw.cgra.problem import Problem
from sw.cgra.route import Routes
from sw.dfg.graph import HINT


def mapping(problem: Problem, spots: Spots, routes: Routes) -> Mapping:
    """The mapping; its first step is 0."""
    graph, fabric = problem.graph, problem.fabric
    first = int(spots.step.min(initial=0)) if problem.size else 0
    places = {
        node.id: Place(int(spots.pe[i]), int(spots.step[i]) - first) for i, node in enumerate(graph.nodes)
    }
    names = registers(problem)
    counted = iter(range(len(problem.source)))
    found: dict[int, tuple[Hop, ...]] = {}
    for number, edge in enumerate(graph.edges):
        if edge.operand == HINT:
            continue
        e = next(counted)
        if edge.routed:
            at = places[edge.source].step + graph.latency(edge.source) - 1
            path = routes.path[e, 1 : int(routes.length[e]) + 1]
            found[number] = tuple(Hop(names[int(x)], at + k) for k, x in enumerate(path, start=1))
    return Mapping(graph, fabric, problem.ii, places, found)


def registers(problem: Problem) -> list[Register]:
    """The registers by their number among the resources."""
    fabric, r = problem.fabric, problem.resources
    found = [Register("link", link.source, i) for i, link in enumerate(fabric.links)]
    found += [Register("result", pe) for pe in range(fabric.size)]
    for pe in range(fabric.size):
        found += [Register("register", pe, i) for i in range(int(r.file_at[pe + 1] - r.file_at[pe]))]
    return found
