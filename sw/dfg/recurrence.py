"""Lower bounds of the initiation interval: from resources, and from recurrences.

Source: B. R. Rau, "Iterative modulo scheduling", 1994.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from hw.errors import InputError
from sw.dfg.graph import Edge, Graph, Node, NodeId
from sw.dfg.operations import Unit


@dataclass(frozen=True)
class Resources:
    """What starts operations in one control step: PEs for all, and units that only some operations need.

    A unit that is not listed is in every PE.
    """

    pes: int
    units: tuple[tuple[Unit, int], ...] = ()

    def __post_init__(self) -> None:
        for name, count in (("PEs", self.pes), *((u.value, n) for u, n in self.units)):
            if count < (name == "PEs"):
                raise InputError(f"the number of {name} must be at least {int(name == 'PEs')}, not {count}")

    @classmethod
    def of(
        cls, pes: int, memory: int | None = None, multipliers: int | None = None, tables: int | None = None
    ) -> Resources:
        """Resources by numbers; None: as many as PEs."""
        given = ((Unit.MEMORY, memory), (Unit.MULTIPLIER, multipliers), (Unit.TABLE, tables))
        return cls(pes, tuple((unit, count) for unit, count in given if count is not None))

    def classes(self, graph: Graph, node: Node) -> tuple[str, ...]:
        """The names of what a node takes one of."""
        unit = graph.unit(node)
        return ("PE", unit.value) if unit in dict(self.units) else ("PE",)

    @property
    def counts(self) -> Mapping[str, int]:
        """How many there are by name."""
        return {"PE": self.pes} | {unit.value: count for unit, count in self.units}


@dataclass(frozen=True)
class MII:
    """The least initiation interval.

    `why` says what limits it; `cycle` are the nodes of the recurrence with the largest delay per distance.
    """

    res: int
    rec: int
    why: str
    cycle: tuple[NodeId, ...] = ()

    @property
    def value(self) -> int:
        """The greater of both bounds."""
        return max(self.res, self.rec)


def mii(graph: Graph, resources: Resources) -> MII:
    """Both lower bounds and what limits them; raises `InputError` where a unit that is needed is missing."""
    needed: dict[str, int] = defaultdict(int)
    for node in graph.nodes:
        for name in resources.classes(graph, node):
            needed[name] += 1
    bounds: list[tuple[int, str]] = [(1, "nothing")]
    for name, number in needed.items():
        count = resources.counts[name]
        if count == 0:
            raise InputError(f"graph {graph.name!r}: {number} operations need a {name}, there is none")
        bounds.append((-(-number // count), f"{number} operations on {count} {name}{'s' * (count > 1)}"))
    res, why = max(bounds, key=lambda bound: bound[0])
    cycle = critical_cycle(graph)
    rec = 1
    if cycle:
        delay, distance = sum(graph.delay(e) for e in cycle), sum(e.distance for e in cycle)
        rec = max(1, math.ceil(Fraction(delay, distance)))
        if rec > res:
            path = " -> ".join(str(graph.by_id[e.source]) for e in cycle)
            why = f"the recurrence {path} of {delay} steps over {distance} iteration{'s' * (distance > 1)}"
    return MII(res, rec, why, tuple(e.source for e in cycle))


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
