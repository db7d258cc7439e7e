"""Ids that graphs of compilers give twice: to a node of the loop's end mark and to one of the body.

The end mark is a constant (`movc`) that `storeb` writes, with the loop's start flag (`loadb`) as predicate.
Seven of the benchmark graphs number its nodes from a number that the body has as well. Which node an edge
belongs to is still known: the mark has exactly these two edges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from sw.dfg.graph import PREDICATE, Edge, Node, NodeId

_CONSTANT, _STORE, _FLAG = "movc", "storeb", "loadb"


def distinct(nodes: Sequence[Node], edges: Sequence[Edge]) -> tuple[tuple[Node, ...], tuple[Edge, ...]]:
    """The same graph with ids of their own: node 88 of the mark becomes `88.storeb`, the other stays 88.

    Ids that are given twice to anything else stay as they are.
    """
    count = Counter(node.id for node in nodes)
    marks: dict[NodeId, Node] = {
        node.id: node for node in nodes if count[node.id] == 2 and node.op in (_CONSTANT, _STORE)
    }
    for node in nodes:
        if node.id in marks and node is not marks[node.id] and node.op in (_CONSTANT, _STORE):
            del marks[node.id]
    if not marks:
        return tuple(nodes), tuple(edges)
    by_op = {op: {node.id for node in nodes if node.op == op} for op in (_CONSTANT, _STORE, _FLAG)}
    named = {key: f"{key}.{node.op}" for key, node in marks.items()}
    renamed = tuple(replace(n, id=named[n.id]) if marks.get(n.id) is n else n for n in nodes)
    found: list[Edge] = []
    taken: set[tuple[NodeId, str]] = set()
    for edge in edges:
        constant = edge.source in by_op[_CONSTANT] and edge.operand == "I1"
        flag = edge.source in by_op[_FLAG] and edge.operand == PREDICATE
        if edge.target in by_op[_STORE] and (constant or flag) and (edge.target, edge.operand) not in taken:
            taken.add((edge.target, edge.operand))
            edge = replace(edge, target=named.get(edge.target, edge.target))
            if constant:
                edge = replace(edge, source=named.get(edge.source, edge.source))
        found.append(edge)
    return renamed, tuple(found)
