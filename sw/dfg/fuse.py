"""Fused operators: chains of operations that one PE executes together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from hw.errors import InputError
from sw.dfg.graph import DATA, HINT, ORDER, PREDICATE, Edge, Graph, NodeId


@dataclass(frozen=True)
class Pattern:
    """A chain: names of operations by place; the value of each goes only to the next.

    `operands` is how many data operands from outside the chain may have, `latency` the steps until its value.
    """

    name: str
    chain: tuple[frozenset[str], ...]
    operands: int
    latency: int

    def __post_init__(self) -> None:
        if len(self.chain) < 2 or self.operands < 0 or self.latency < 1:
            found = f"{len(self.chain)} operations, {self.operands} operands and latency {self.latency}"
            raise InputError(
                f"pattern {self.name!r}: a chain must have 2 operations and latency 1, not {found}"
            )


@dataclass(frozen=True)
class FusedOperator:
    """What one PE executes together: nodes in the order of the chain; its id is that of the last.

    `pattern` is None for a single node.
    """

    nodes: tuple[NodeId, ...]
    pattern: Pattern | None = None

    @property
    def id(self) -> NodeId:
        """The node that gives the value."""
        return self.nodes[-1]


@dataclass(frozen=True)
class Fusion:
    """A graph as fused operators; every node is in exactly one."""

    graph: Graph
    operators: tuple[FusedOperator, ...]

    @cached_property
    def owner(self) -> Mapping[NodeId, FusedOperator]:
        """The operator of every node."""
        return {node: operator for operator in self.operators for node in operator.nodes}

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """The edges that are not inside of an operator; ends are nodes of the graph."""
        return tuple(
            e for e in self.graph.edges if e.distance or self.owner[e.source] is not self.owner[e.target]
        )

    def latency(self, operator: FusedOperator) -> int:
        """Steps until the value of an operator."""
        return operator.pattern.latency if operator.pattern else self.graph.latency(operator.id)


def fuse(graph: Graph, patterns: Sequence[Pattern]) -> Fusion:
    """Chains by pattern, longest first and in the order of the graph; every other node is on its own.

    No cycle arises: what leaves a chain leaves from its last node.
    """
    taken: dict[NodeId, FusedOperator] = {}
    for pattern in sorted(patterns, key=lambda p: -len(p.chain)):
        for first in graph.order:
            chain = _chain(graph, first, pattern, taken)
            if chain:
                operator = FusedOperator(chain, pattern)
                taken |= dict.fromkeys(chain, operator)
    single = {n.id: FusedOperator((n.id,)) for n in graph.nodes if n.id not in taken}
    operators = dict.fromkeys((taken | single)[node] for node in graph.order)
    return Fusion(graph, tuple(operators))


def _chain(
    graph: Graph, first: NodeId, pattern: Pattern, taken: Mapping[NodeId, FusedOperator]
) -> tuple[NodeId, ...]:
    """The chain that starts here, or nothing."""
    found: list[NodeId] = []
    results = {output.source for output in graph.outputs}
    node, outside = first, 0
    for place, names in enumerate(pattern.chain):
        incoming = [e for e in graph.incoming[node] if e.operand != HINT]
        alone = all(e.operand not in (PREDICATE, ORDER) for e in incoming)
        if node in taken or node in found or graph.by_id[node].op not in names or not alone:
            return ()
        outside += sum(e.operand in DATA for e in incoming) - (place > 0)
        found.append(node)
        if place + 1 == len(pattern.chain):
            break
        users = [e for e in graph.outgoing[node] if e.operand != HINT]
        if len(users) != 1 or users[0].distance or users[0].operand not in DATA or node in results:
            return ()
        node = users[0].target
    return tuple(found) if outside <= pattern.operands else ()
