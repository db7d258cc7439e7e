"""The configurations of a plan's launches: every graph is mapped once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hw.errors import InputError
from hw.fabric import Fabric
from hw.fabric.bitstream import ArrayEntry, encode
from sw.cgra.encode import configuration
from sw.cgra.search import Budget, SearchEvent, SearchResult, map_graph
from sw.cgra.verify import verify
from sw.dfg.graph import Edge, Graph, Memory, Node, arrays_of

#: Arrays of the graph that copies words, and how many words it copies in an iteration.
SOURCE, TARGET, COPIED = "source", "target", 2


@dataclass(frozen=True)
class MappedGraph:
    """A graph and what the search for its mapping found."""

    graph: Graph
    outcome: SearchResult

    @property
    def _scalars(self) -> dict[str, int]:
        """The numbers of the scalars of a launch: in the order of their use."""
        return {name: i for i, name in enumerate(self.graph.scalars)}

    def words(self, places: Mapping[str, ArrayEntry] | None = None) -> list[int]:
        """The bitstream for arrays in these places; without them no array has elements."""
        assert self.outcome.mapping is not None
        names = arrays_of(self.graph, "load", "store")
        given = None if places is None else {name: places[name] for name in names}
        return encode(configuration(self.outcome.mapping, given, self._scalars))

    @functools.cached_property
    def differences(self) -> tuple[str, ...]:
        """Where the words do not mean the graph, by an independent decoder; nothing without a mapping."""
        mapping = self.outcome.mapping
        if mapping is None:
            return ()
        return tuple(verify(mapping.graph, self.words(), mapping.fabric, mapping.at, scalars=self._scalars))


def map_graphs(
    graphs: Sequence[Graph],
    fabric: Fabric,
    *,
    seed: int = 0,
    timeout: float | None = None,
    budget: Budget | None = None,
    report: Callable[[Graph, SearchEvent], None] | None = None,
) -> dict[Graph, MappedGraph]:
    """All graphs on a fabric, with at most the work of `budget` (see `map_graph`) for each.

    Raises `InputError` for a graph for which no mapping is found.
    """
    found: dict[Graph, MappedGraph] = {}
    for graph in graphs:
        if graph in found:
            continue
        told = None if report is None else functools.partial(report, graph)
        outcome = map_graph(graph, fabric, seed=seed, timeout=timeout, budget=budget, report=told)
        if outcome.mapping is None:
            raise InputError(f"graph {graph.name!r} on fabric {fabric.name!r}: {_obstacle(outcome, fabric)}")
        found[graph] = MappedGraph(graph, outcome)
    return found


def _obstacle(outcome: SearchResult, fabric: Fabric) -> str:
    """Why there is no mapping."""
    if outcome.mii > fabric.contexts:
        return (
            f"contexts must be at least {outcome.mii}, not {fabric.contexts}: no smaller II is possible, "
            f"because of {outcome.why}"
        )
    why = "; ".join(f"II {refused.ii}: {refused.why}" for refused in outcome.refused)
    return f"no mapping was found: {why or 'the time was too short'}"


def _copy() -> Graph:
    """Copies words from one array to another, `COPIED` in an iteration."""
    nodes, edges = [Node("i", "add", const=COPIED)], [Edge("i", "i", 1, "I1", initial=(-COPIED,))]
    for k in range(COPIED):
        index = f"i{k}" if k else "i"
        if k:
            nodes.append(Node(index, "add", const=k))
            edges.append(Edge("i", index))
        load, store = f"load{k}", f"store{k}"
        nodes += [Node(load, "load", memory=Memory(SOURCE)), Node(store, "store", memory=Memory(TARGET))]
        edges += [Edge(index, load), Edge(index, store), Edge(load, store, 0, "I2")]
    return Graph("copy", tuple(nodes), tuple(edges))


#: The graph that copies words.
COPY = _copy()
