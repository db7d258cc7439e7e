"""The mapping problem of a graph at one initiation interval, as flat arrays for the searches."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping as Dictionary
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from hw.errors import InputError
from hw.fabric import Fabric
from sw.cgra.compiled import Array
from sw.cgra.mapping import Hop, Mapping, Place, Register
from sw.cgra.resources import Resources, offsets, resources
from sw.dfg.graph import HINT, PREDICATE, Graph, NodeId, arrays_of
from sw.dfg.recurrence import windows


class Arrays(NamedTuple):
    """Nodes and edges of a graph by number, for the searches; edges are `graph.dependences` in order.

    `on` are the resources of the fabric. `wait[e]` plus the target's step minus the source's is how many
    steps after the source's last one the target starts: a value at distance d needs `max(1, d)`, an order of
    accesses 1. `wide[n]` is which distance of `on` counts for the value of node n: 1 where it must not pass
    PEs of one lane. `allowed[n, p]`: PE p executes node n. `low` and `high` are the steps that a node may
    have. `edges[at[n]:at[n + 1]]` are the edges at node n, `nets[net_at[n]:net_at[n + 1]]` the routed ones
    that leave it.
    """

    ii: int
    on: Resources
    source: Array
    target: Array
    wait: Array
    routed: Array
    latency: Array
    wide: Array
    allowed: Array
    low: Array
    high: Array
    at: Array
    edges: Array
    net_at: Array
    nets: Array


@dataclass(frozen=True)
class Problem:
    """A graph to be mapped to a fabric with one initiation interval."""

    graph: Graph
    fabric: Fabric
    arrays: Arrays

    @property
    def size(self) -> int:
        """Number of nodes."""
        return len(self.graph.nodes)

    @cached_property
    def nets(self) -> list[int]:
        """The nodes whose values are routed."""
        return sorted({int(u) for u in self.arrays.source[self.arrays.routed]})

    def mapping(
        self, pes: Sequence[int], steps: Sequence[int], paths: Dictionary[int, Sequence[Register]]
    ) -> Mapping:
        """The mapping for given places of all nodes and registers of routed edges; its first step is 0."""
        first, graph = min(steps, default=0), self.graph
        places = {
            node.id: Place(pe, step - first) for node, pe, step in zip(graph.nodes, pes, steps, strict=True)
        }
        routes = {}
        for e, number in enumerate(n for n, edge in enumerate(graph.edges) if edge.operand != HINT):
            if e in paths:
                source = graph.edges[number].source
                start = places[source].step + graph.latency(source, self.fabric)
                routes[number] = tuple(Hop(register, start + k) for k, register in enumerate(paths[e]))
        return Mapping(graph, self.fabric, self.arrays.ii, places, routes)

    @cached_property
    def longest(self) -> int:
        """The most steps that a value can need to travel."""
        a = self.arrays
        span = a.high[a.target] - a.low[a.source] + a.wait
        return int(max(span.max(initial=1), 1))


def allowed_pes(graph: Graph, fabric: Fabric, variant: int = 0) -> Array:
    """By node and PE: whether the PE has what the node needs.

    If the graph's tables do not all fit into every table memory, each PE gets some of them; `variant` selects
    the choice. Raises `InputError` if an operation finds no PE.
    """
    if graph.of_lanes and graph.lanes != fabric.lanes:
        raise InputError(
            f"graph {graph.name!r}: works on {graph.lanes} lanes, the PEs of fabric {fabric.name!r} have "
            f"{fabric.lanes}"
        )
    kinds = {kind: i for i, kind in enumerate(dict.fromkeys(fabric.kinds))}
    of_pe = np.array([kinds[kind] for kind in fabric.kinds])
    held = _tables(graph, fabric, variant)
    predicated = {e.target for e in graph.edges if e.operand == PREDICATE}
    wide = graph.wide.union(e.target for e in graph.edges if e.routed and e.source in graph.wide)
    rows: dict[tuple[str, str, bool, bool], Array] = {}
    found = np.zeros((len(graph.nodes), fabric.size), dtype=np.bool_)
    for i, node in enumerate(graph.nodes):
        what = graph.operation(node)
        table = node.memory.name if node.op == "table" and node.memory and not graph.opaque else ""
        key = what.name, table, node.id in predicated, node.id in wide
        if key not in rows:
            least = graph.lanes if node.id in wide or what.of_lanes else 1
            executes = np.array(
                [
                    k.executes(what) and k.lanes >= least and (k.predicated or node.id not in predicated)
                    for k in kinds
                ],
                dtype=np.bool_,
            )
            rows[key] = executes[of_pe]
            if table:
                rows[key] = rows[key] & np.array([table in held[pe] for pe in range(fabric.size)])
            if not rows[key].any():
                size = f" and {len(dict(graph.tables)[table])} words for {table!r}" if table else ""
                needs = f"{what.unit.value if what.unit else 'PE'}{size}"
                needs += f" and {least} lanes" * (least > 1)
                if any(what.unit in kind.units and what.name in kind.without for kind in kinds):
                    needs += f" that has {what.name!r}"
                raise InputError(
                    f"graph {graph.name!r}, node {node}: needs a PE with {needs}, "
                    f"fabric {fabric.name!r} has none"
                )
        found[i] = rows[key]
    return found


def _tables(graph: Graph, fabric: Fabric, variant: int) -> list[set[str]]:
    """The tables that every PE holds."""
    used = () if graph.opaque else arrays_of(graph, "table")
    sizes = {name: len(words) for name, words in graph.tables if name in used}
    names = deque(sorted(sizes, key=lambda name: -sizes[name]))
    names.rotate(-variant)
    held: list[set[str]] = []
    for kind in fabric.kinds:
        free, own = kind.table_words, set[str]()
        for name in names:
            if sizes[name] <= free:
                own.add(name)
                free -= sizes[name]
        if kind.table_words:
            names.rotate(-1)
        held.append(own)
    return held


def problem(graph: Graph, fabric: Fabric, ii: int, extra: int = 0, variant: int = 0) -> Problem:
    """The arrays for an II; iterations may be `extra` steps longer than the shortest possible.

    Raises `InputError` if a recurrence does not allow the II, or if an operation finds no PE.
    """
    number: dict[NodeId, int] = {node.id: i for i, node in enumerate(graph.nodes)}
    edges = graph.dependences
    latency = np.array([graph.latency(node.id, fabric) for node in graph.nodes], dtype=np.int64)
    source = np.array([number[e.source] for e in edges], dtype=np.int64)
    target = np.array([number[e.target] for e in edges], dtype=np.int64)
    distance = np.array([e.distance for e in edges], dtype=np.int64)
    routed = np.array([e.routed for e in edges], dtype=np.bool_)
    wait = distance * ii - np.where(routed, latency[source] - 1, 0)
    shortest = windows(graph, ii, fabric)
    first: dict[NodeId, int] = defaultdict(int)
    for edge in graph.edges:
        if edge.routed and not graph.opaque:
            first[edge.target] = max(first[edge.target], edge.distance)
    low, high = np.zeros((2, len(graph.nodes)), dtype=np.int64)
    for node, i in number.items():
        low[i], latest = shortest[node]
        # The hardware counts iterations up to `stages`, including those with initial values.
        last = (fabric.stages - first[node]) * ii - 1
        high[i] = min(latest + extra, last)
    at: list[list[int]] = [[] for _ in graph.nodes]
    nets: list[list[int]] = [[] for _ in graph.nodes]
    for e, edge in enumerate(edges):
        for end in dict.fromkeys((number[edge.source], number[edge.target])):
            at[end].append(e)
        if edge.routed:
            nets[number[edge.source]].append(e)
    on = resources(fabric)
    wide = np.array([len(on.distance) > 1 and node.id in graph.wide for node in graph.nodes], dtype=np.int64)
    return Problem(
        graph,
        fabric,
        Arrays(
            ii, on, source, target, wait, routed, latency, wide,
            allowed_pes(graph, fabric, variant), low, high, *offsets(at), *offsets(nets),
        ),
    )  # fmt: skip
