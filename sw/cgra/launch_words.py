"""Scalars that pass through memory: what a launch computes, and a later one needs, is a word of an array.

A warp cannot read what the CGRA wrote. So outputs of a graph become stores to words, and scalars that an
earlier launch computed become loads of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sw.dfg.graph import Edge, Graph, Memory, Node, NodeId
from sw.dfg.python import parse_kernel


def with_words(graph: Graph, array: str, words: Mapping[str, int]) -> Graph:
    """The graph with loads of elements of `array` in the place of scalars, by name.

    An initial value of an edge that is such a scalar becomes a choice between the word and what the edge
    carries. What the graph stores must be other words. Outputs must not have such initial values.
    """
    nodes: dict[NodeId, Node] = {}
    edges: list[Edge] = []

    def add(node: Node) -> NodeId:
        nodes[node.id] = node
        return node.id

    def load(name: str) -> NodeId:
        # No other node has such a name: graphs of functions have numbers, and what is made of them.
        return add(Node(f"#{name}.load", "load", const=words[name], memory=Memory(array)))

    for node in graph.nodes:
        if node.scalar is None or node.scalar not in words:
            add(node)
        elif node.op == "const":
            add(replace(node, op="load", const=words[node.scalar], scalar=None, memory=Memory(array)))
        else:
            operand = next(o for o, given in graph.operands(node).items() if given == node.scalar)
            edges.append(Edge(load(node.scalar), node.id, 0, operand))
            add(replace(node, scalar=None))
    for number, edge in enumerate(graph.edges):
        carried = replace(edge, initial=tuple(0 if v in words else v for v in edge.initial))
        for t, name in enumerate(edge.initial):
            if not isinstance(name, str) or name not in words:
                continue
            choice = add(Node(f"#{number}.{t}.choice", "select"))
            flag = add(Node(f"#{number}.{t}.flag", "const", const=0))
            # 1 in iteration t, 0 in all others.
            edges.append(Edge(flag, choice, t + 1, "I1", initial=tuple(int(i == t) for i in range(t + 1))))
            edges.append(Edge(load(name), choice, 0, "I2"))
            edges.append(replace(carried, target=choice, operand="I3", negated=False))
            carried = replace(edge, source=choice, distance=0, initial=())
        edges.append(carried)
    return replace(graph, nodes=tuple(nodes.values()), edges=tuple(edges))


def moves(name: str, array: str, moved: Mapping[int, str | int]) -> Graph:
    """A graph that sets words to scalars of the launch and to other words, all at once, in one iteration."""
    words = [source for source in moved.values() if isinstance(source, int)]
    scalars = [source for source in moved.values() if isinstance(source, str)]
    lines = [f"word{source} = {array}[{source}]" for source in words]
    lines += [f"{array}[{word}] = {f'word{s}' if isinstance(s, int) else s}" for word, s in moved.items()]
    body = "".join(f"        {line}\n" for line in lines)
    text = f"def moves({', '.join(('n', array, *scalars))}):\n    for i in range(n):\n{body}"
    return replace(parse_kernel(text, "moves").loops[0].graph, name=name)
