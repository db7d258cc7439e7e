"""Scalars that pass through memory: what a launch computes, and a later one needs, is a word of an array.

A warp cannot read what the grid wrote. So outputs of a graph become stores to words, and scalars that an
earlier launch computed become loads of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sw.dfg.graph import ORDER, Edge, Graph, Memory, Node, NodeId, Value


def with_words(graph: Graph, array: str, words: Mapping[str, int]) -> Graph:
    """The graph with loads of elements of `array` in the place of scalars, by name.

    An initial value of an edge that is such a scalar becomes a choice between the word and what the edge
    carries. What the graph stores must be other words. Outputs must not have such initial values.
    """
    wanted = [name for name in graph.scalars if name in words]
    return _Loads(graph, array, words).graph_with_loads() if wanted else graph


@dataclass
class _Loads:
    graph: Graph
    array: str
    words: Mapping[str, int]
    nodes: list[Node] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    made: dict[str, NodeId] = field(default_factory=dict)

    def graph_with_loads(self) -> Graph:
        """All of it."""
        taken = {str(node.id) for node in self.graph.nodes}
        self.mark = next(
            m for i in range(len(taken) + 1) if (m := f"{self.array}{i}.") and not _starts(m, taken)
        )
        for node in self.graph.nodes:
            self.nodes.append(self.node(node))
        for edge in self.graph.edges:
            self.edge(edge)
        return replace(self.graph, nodes=tuple(self.nodes), edges=tuple(self.edges))

    def name(self, stem: str) -> str:
        """An id that no node has."""
        return f"{self.mark}{len(self.nodes)}.{stem}"

    def node(self, node: Node) -> Node:
        """A node without a scalar that is a word."""
        if node.scalar is None or node.scalar not in self.words:
            return node
        if node.op == "const":
            return replace(
                node, op="load", const=self.words[node.scalar], scalar=None, memory=Memory(self.array)
            )
        given = {e.operand for e in self.graph.incoming[node.id]}
        operand = next(name for name in ("I1", "I2", "I3") if name not in given)
        self.edges.append(Edge(self.load(node.scalar), node.id, 0, operand))
        return replace(node, scalar=None)

    def load(self, name: str) -> NodeId:
        """The load of a word."""
        if name not in self.made:
            node = Node(self.name("load"), "load", const=self.words[name], memory=Memory(self.array))
            self.nodes.append(node)
            self.made[name] = node.id
        return self.made[name]

    def edge(self, edge: Edge) -> None:
        """An edge, with a choice for every initial value that is a word."""
        found = [t for t, value in enumerate(edge.initial) if value in self.words]
        if not found:
            self.edges.append(edge)
            return
        kept: tuple[Value, ...] = tuple(0 if v in self.words else v for v in edge.initial)
        carried = replace(edge, initial=kept)
        for t in found:
            name = edge.initial[t]
            assert isinstance(name, str)
            choice = Node(self.name("choice"), "select")
            self.nodes.append(choice)
            flag = Node(self.name("flag"), "const", const=0)
            self.nodes.append(flag)
            # 1 in iteration t, 0 in all others.
            once = tuple(int(i == t) for i in range(t + 1))
            self.edges.append(Edge(flag.id, choice.id, t + 1, "I1", initial=once))
            self.edges.append(Edge(self.load(name), choice.id, 0, "I2"))
            self.edges.append(replace(carried, target=choice.id, operand="I3", negated=False))
            carried = replace(edge, source=choice.id, distance=0, initial=())
        self.edges.append(carried)


def _starts(mark: str, taken: set[str]) -> bool:
    return any(name.startswith(mark) for name in taken)


@dataclass(frozen=True)
class Moved:
    """A word that takes the value of a scalar of the launch, or of another word."""

    word: int
    source: str | int


def moves(name: str, array: str, moved: Sequence[Moved]) -> Graph:
    """A graph that moves all at once, in one iteration."""
    nodes: list[Node] = []
    edges: list[Edge] = []
    memory = Memory(array)
    for move in moved:
        value, store, index = f"{move.word}.value", f"{move.word}.store", f"{move.word}.index"
        if isinstance(move.source, int):
            nodes.append(Node(value, "load", const=move.source, memory=memory))
        else:
            nodes.append(Node(value, "const", scalar=move.source))
        nodes += [Node(index, "const", const=move.word), Node(store, "store", memory=memory)]
        edges += [Edge(index, store, 0, "I1"), Edge(value, store, 0, "I2")]
    for move in moved:
        if not isinstance(move.source, int):
            continue
        # What another move writes is read before.
        edges += [
            Edge(f"{move.word}.value", f"{other.word}.store", 0, ORDER)
            for other in moved
            if other.word == move.source
        ]
    return Graph(name, tuple(nodes), tuple(edges))
