"""Recurrence constraints: the recurrence-bound initiation interval (RecMII), and ASAP and ALAP steps.

Source: B. R. Rau, "Iterative modulo scheduling", 1994.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from hw.errors import InputError
from hw.fabric import Fabric
from sw.dfg.graph import Edge, Graph, NodeId


def critical_cycle(graph: Graph, fabric: Fabric | None = None) -> tuple[Edge, ...]:
    """The dependence cycle with the largest ratio of delay to distance; empty if the graph has no cycle.

    Starts with ratio 0 and repeatedly finds a cycle that exceeds the current ratio, until there is none.
    """
    best: tuple[Edge, ...] = ()
    ratio = Fraction(0)
    while cycle := _longest(graph, fabric, ratio)[1]:
        best = cycle
        ratio = Fraction(sum(graph.delay(e, fabric) for e in cycle), sum(e.distance for e in cycle))
    return best


def windows(graph: Graph, ii: int, fabric: Fabric | None = None) -> dict[NodeId, tuple[int, int]]:
    """Earliest and latest step of every node in the shortest iteration, ignoring resources.

    Raises `InputError` if a recurrence does not allow this II.
    """
    forwards, cycle = _longest(graph, fabric, Fraction(ii))
    if cycle:
        shown = " -> ".join(str(e.source) for e in cycle)
        raise InputError(f"graph {graph.name!r}: the recurrence {shown} needs more than II {ii}")
    backwards, _ = _longest(graph, fabric, Fraction(ii), backwards=True)
    last = max((forwards[n] + backwards[n] for n in forwards), default=0)
    return {n: (forwards[n], last - backwards[n]) for n in forwards}


def _longest(
    graph: Graph, fabric: Fabric | None, ii: Fraction, *, backwards: bool = False
) -> tuple[dict[NodeId, int], tuple[Edge, ...]]:
    """Longest paths to (or from) all nodes, in units of one step divided by the denominator of `ii`.

    If a cycle has more delay than its distance times `ii`, no longest paths exist; the cycle is returned too.
    """
    weighted = [
        (e, graph.delay(e, fabric) * ii.denominator - ii.numerator * e.distance) for e in graph.dependences
    ]
    found = dict.fromkeys((n.id for n in graph.nodes), 0)
    into: dict[NodeId, Edge] = {}
    changed = True
    while changed:
        changed = False
        for edge, weight in weighted:
            source, target = edge.source, edge.target
            if backwards:
                source, target = target, source
            if found[source] + weight > found[target]:
                found[target] = found[source] + weight
                into[target] = edge
                changed = True
        if not backwards and (cycle := _closed(into)):
            return found, cycle
    return found, ()


def _closed(into: Mapping[NodeId, Edge]) -> tuple[Edge, ...]:
    """Finds a cycle among the last edges into every node."""
    done: set[NodeId] = set()
    for first in into:
        path: dict[NodeId, None] = {}
        node = first
        while node in into and node not in done and node not in path:
            path[node] = None
            node = into[node].source
        if node in path:
            found = [into[node]]
            while found[-1].source != node:
                found.append(into[found[-1].source])
            return tuple(reversed(found))
        done |= path.keys()
    return ()
