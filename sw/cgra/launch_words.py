"""Scalars that pass through memory: what a launch computes, and a later one needs, is a word of an array.

A warp cannot read what the CGRA wrote. So outputs of a graph become stores to words, and scalars that an
earlier launch computed become loads of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sw.dfg.graph import DATA, ORDER, Edge, Graph, Memory, Node, NodeId


def with_words(graph: Graph, array: str, words: Mapping[str, int]) -> Graph:
    """The graph with loads of elements of `array` in the place of scalars, by name.

    An initial value of an edge that is such a scalar becomes a choice between the word and what the edge
    carries. What the graph stores must be other words. Outputs must not have such initial values.
    """
    # No other node has such a name: graphs of functions have numbers, and what is made of them.
    loads = {name: f"#{name}.load" for name in graph.scalars if name in words}
    made: dict[str, Node] = {}
    nodes: list[Node] = []
    edges: list[Edge] = []

    def load(name: str) -> NodeId:
        if name not in made:
            made[name] = Node(loads[name], "load", const=words[name], memory=Memory(array))
            nodes.append(made[name])
        return loads[name]

    for node in graph.nodes:
        if node.scalar not in loads or node.scalar is None:
            nodes.append(node)
        elif node.op == "const":
            nodes.append(
                replace(node, op="load", const=words[node.scalar], scalar=None, memory=Memory(array))
            )
        else:
            given = {e.operand for e in graph.incoming[node.id]}
            operand = next(name for name in DATA if name not in given)
            edges.append(Edge(load(node.scalar), node.id, 0, operand))
            nodes.append(replace(node, scalar=None))
    for number, edge in enumerate(graph.edges):
        carried = replace(edge, initial=tuple(0 if v in loads else v for v in edge.initial))
        for t, name in enumerate(edge.initial):
            if not isinstance(name, str) or name not in loads:
                continue
            choice, flag = f"#{number}.{t}.choice", f"#{number}.{t}.flag"
            nodes += [Node(choice, "select"), Node(flag, "const", const=0)]
            # 1 in iteration t, 0 in all others.
            edges.append(Edge(flag, choice, t + 1, "I1", initial=tuple(int(i == t) for i in range(t + 1))))
            edges.append(Edge(load(name), choice, 0, "I2"))
            edges.append(replace(carried, target=choice, operand="I3", negated=False))
            carried = replace(edge, source=choice, distance=0, initial=())
        edges.append(carried)
    return replace(graph, nodes=tuple(nodes), edges=tuple(edges))


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
