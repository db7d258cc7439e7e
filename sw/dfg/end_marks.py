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
    marks = Counter(node.id for node in nodes if node.op in (_CONSTANT, _STORE))
    known = {(node.id, node.op) for node in nodes}

    def named(node: NodeId, op: str) -> NodeId:
        """What the node of the mark with this id and operator is called."""
        shared = count[node] == 2 and marks[node] == 1 and (node, op) in known
        return f"{node}.{op}" if shared and op in (_CONSTANT, _STORE) else node

    found: list[Edge] = []
    taken: set[tuple[NodeId, str]] = set()
    for edge in edges:
        constant = (edge.source, _CONSTANT) in known and edge.operand == "I1"
        flag = (edge.source, _FLAG) in known and edge.operand == PREDICATE
        stored = (edge.target, _STORE) in known and (edge.target, edge.operand) not in taken
        if stored and (constant or flag):
            taken.add((edge.target, edge.operand))
            source = named(edge.source, _CONSTANT) if constant else edge.source
            edge = replace(edge, source=source, target=named(edge.target, _STORE))
        found.append(edge)
    return tuple(replace(node, id=named(node.id, node.op)) for node in nodes), tuple(found)
