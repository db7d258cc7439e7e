"""Graph transformations: dead-code removal, constant fusion, stores of results."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from hw.fabric.operations import STORES
from sw.dfg.graph import DATA, ORDER, PREDICATE, Edge, Graph, Memory, Node, NodeId


def dead_code(graph: Graph) -> Graph:
    """Removes nodes on which no store and no output depends; opaque graphs stay whole."""
    if graph.opaque:
        return graph
    needed: set[NodeId] = set()
    stack = [n.id for n in graph.nodes if n.op in STORES] + [o.source for o in graph.outputs]
    while stack:
        node = stack.pop()
        if node not in needed:
            needed.add(node)
            stack += [e.source for e in graph.incoming[node] if e.routed]
    if len(needed) == len(graph.nodes):
        return graph
    nodes = tuple(n for n in graph.nodes if n.id in needed)
    edges = tuple(e for e in graph.edges if e.source in needed and e.target in needed)
    used = {n.memory.name for n in nodes if n.op == "table" and n.memory}
    return replace(graph, nodes=nodes, edges=edges, tables=tuple(t for t in graph.tables if t[0] in used))


def fuse_constants(graph: Graph) -> Graph:
    """Turns constants and scalars into immediates of their users; a node has room for one.

    A node with two constant operands keeps the second as an edge; `select` instead fuses the first that it
    can. A constant read by a later iteration stays a node, because of its initial value.
    """
    if graph.opaque:
        return graph
    immediates = dict[NodeId, Node]()
    dropped: set[Edge] = set()
    for node in graph.nodes:
        if node.op == "const" or node.immediate is not None:
            continue
        for edge in graph.incoming[node.id]:
            source = graph.by_id[edge.source]
            constant = source.op == "const" and edge.operand in DATA and edge.distance == 0
            if constant and PREDICATE not in graph.operands(source):
                immediates[node.id] = replace(node, const=source.const, scalar=source.scalar)
                dropped.add(edge)
                break
    nodes = tuple(immediates.get(n.id, n) for n in graph.nodes)
    edges = tuple(e for e in graph.edges if e not in dropped)
    return dead_code(replace(graph, nodes=nodes, edges=edges))


def drop_implied_order(graph: Graph) -> Graph:
    """Removes order edges that follow from other dependences."""
    following: dict[NodeId, list[Edge]] = defaultdict(list)
    for edge in graph.dependences:
        following[edge.source].append(edge)
    dropped: set[int] = set()
    # Long distances first: short ones imply them.
    candidates = sorted((e for e in graph.edges if e.operand == ORDER), key=lambda e: -e.distance)
    for edge in candidates:
        following[edge.source].remove(edge)
        if edge.source == edge.target or _reaches(following, edge):
            dropped.add(id(edge))
        else:
            following[edge.source].append(edge)
    return replace(graph, edges=tuple(e for e in graph.edges if id(e) not in dropped)) if dropped else graph


def _reaches(following: dict[NodeId, list[Edge]], edge: Edge) -> bool:
    """Whether a path leads from source to target within the distance."""
    best: dict[NodeId, int] = {edge.source: 0}
    queue: list[tuple[int, int, NodeId]] = [(0, 0, edge.source)]
    pushed = 0
    while queue:
        distance, _, node = heapq.heappop(queue)
        for step in following[node]:
            total = distance + step.distance
            if total > edge.distance:
                continue
            if step.target == edge.target:
                return True
            if total < best.get(step.target, edge.distance + 1):
                best[step.target] = total
                pushed += 1
                heapq.heappush(queue, (total, pushed, step.target))
    return False


def store_outputs(graph: Graph, array: str, elements: Mapping[str, int] | None = None) -> Graph:
    """Replaces outputs by stores: every iteration stores output k to element k as if it were the last.

    `elements` maps names of outputs to other elements. If no iteration runs, the elements keep their
    contents. For CGRAs that return results only through memory.
    """
    nodes, edges = list(graph.nodes), list(graph.edges)
    taken = {str(n.id) for n in graph.nodes}
    for k, output in enumerate(graph.outputs):
        k = k if elements is None else elements[output.name]
        own = next(name for i in range(len(nodes) + 1) if (name := f"{array}.{k}" + "'" * i) not in taken)
        address = f"{own}.index"
        nodes += [Node(address, "const", const=k), Node(own, "store", memory=Memory(array))]
        edges.append(Edge(address, own, 0, "I1"))
        edges.append(Edge(output.source, own, output.distance - 1, "I2", initial=output.initial[1:]))
    return replace(graph, nodes=tuple(nodes), edges=tuple(edges), outputs=())
