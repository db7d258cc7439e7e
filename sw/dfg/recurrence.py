"""What recurrences ask of a schedule: the least initiation interval, and the steps that operations may have.

Source: B. R. Rau, "Iterative modulo scheduling", 1994.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from hw.errors import InputError
from sw.dfg.graph import Edge, Graph, NodeId


def critical_cycle(graph: Graph) -> tuple[Edge, ...]:
    """The cycle of dependences with the greatest ratio of delay to distance; nothing where there is none.

    Every cycle that is longer than the ratio so far allows gives a greater one, until there is none.
    """
    best: tuple[Edge, ...] = ()
    ratio = Fraction(0)
    while True:
        cycle = positive_cycle(graph, graph.dependences, ratio)
        if not cycle:
            return best
        best = cycle
        ratio = Fraction(sum(graph.delay(e) for e in cycle), sum(e.distance for e in cycle))


def positive_cycle(graph: Graph, edges: Iterable[Edge], ii: Fraction) -> tuple[Edge, ...]:
    """A cycle whose delay is more than its distance times `ii`, or nothing."""
    scale = ii.denominator
    weighted = [(e, graph.delay(e) * scale - ii.numerator * e.distance) for e in edges]
    start = dict.fromkeys((n.id for n in graph.nodes), 0)
    into: dict[NodeId, Edge] = {}
    while True:
        changed = False
        for edge, weight in weighted:
            found = start[edge.source] + weight
            if found > start[edge.target]:
                start[edge.target] = found
                into[edge.target] = edge
                changed = True
        if not changed:
            return ()
        cycle = _closed(into)
        if cycle:
            return cycle


def _closed(into: Mapping[NodeId, Edge]) -> tuple[Edge, ...]:
    """A cycle among the last edges into every node."""
    done: set[NodeId] = set()
    for first in into:
        path: dict[NodeId, None] = {}
        node = first
        while node in into and node not in done and node not in path:
            path[node] = None
            node = into[node].source
        if node in path:
            found: list[Edge] = []
            last = node
            while True:
                found.append(into[node])
                node = into[node].source
                if node == last:
                    return tuple(reversed(found))
        done |= path.keys()
    return ()


@dataclass(frozen=True)
class Window:
    """The steps that a node may have without regard to resources."""

    earliest: int
    latest: int


def windows(graph: Graph, ii: int) -> dict[NodeId, Window]:
    """As soon and as late as possible, for the shortest possible iteration.

    Raises `InputError` where a recurrence does not allow the II.
    """
    cycle = positive_cycle(graph, graph.dependences, Fraction(ii))
    if cycle:
        shown = " -> ".join(str(e.source) for e in cycle)
        raise InputError(f"graph {graph.name!r}: the recurrence {shown} needs more than II {ii}")
    forwards = _longest(graph, ii, [(e.source, e.target, e) for e in graph.dependences])
    backwards = _longest(graph, ii, [(e.target, e.source, e) for e in graph.dependences])
    last = max((forwards[n] + backwards[n] for n in forwards), default=0)
    return {n: Window(forwards[n], last - backwards[n]) for n in forwards}


def _longest(graph: Graph, ii: int, edges: list[tuple[NodeId, NodeId, Edge]]) -> dict[NodeId, int]:
    """The longest paths to all nodes where no cycle is positive."""
    found = dict.fromkeys((n.id for n in graph.nodes), 0)
    changed = True
    while changed:
        changed = False
        for source, target, edge in edges:
            least = found[source] + graph.delay(edge) - ii * edge.distance
            if least > found[target]:
                found[target] = least
                changed = True
    return found
