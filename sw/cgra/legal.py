"""Legalises graphs so that every operation fits one entry of a PE (docs/cgra.md, "Configuration of a PE").

An entry has one initial value for some of its operands, and one count of first iterations. Operands that need
others go through extra `mov` operations.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace

from hw.errors import InputError
from hw.fabric import Fabric
from hw.fabric.layout import ARRAYS, FIRST, PATCHES
from hw.fabric.operations import LOADS, STORES
from sw.dfg.graph import DATA, PREDICATE, Edge, Graph, Node, NodeId, Value, arrays_of

#: What the operands of one entry share: number of first iterations, initial value.
Start = tuple[int, Value]


def prepare(graph: Graph, fabric: Fabric) -> Graph:
    """An equivalent graph in which every node fits one entry; opaque graphs stay as they are.

    Raises `InputError` for an edge over more iterations than the fabric has registers for, and for more
    arrays or patches than a configuration has.
    """
    registers = len(fabric.links) + sum(1 + kind.registers for kind in fabric.kinds)
    for edge in graph.edges:
        if edge.routed and edge.distance > registers:
            raise InputError(
                f"graph {graph.name!r}: edge {edge.source} to {edge.target}: the distance must be at most "
                f"{registers}, one iteration per register of fabric {fabric.name!r}, not {edge.distance}"
            )
    if graph.opaque:
        _check_operands(graph)
        return graph
    builder = _Builder(graph)
    for node in graph.nodes:
        builder.node(node)
    arrays = arrays_of(graph, *LOADS, *STORES)
    for what, count, most in (("arrays", len(arrays), ARRAYS), ("patches", patches(graph), PATCHES)):
        if count > most:
            listed = f": {', '.join(arrays)}" if what == "arrays" else ""
            raise InputError(f"graph {graph.name!r}: {what} must be at most {most}, not {count}{listed}")
    if len(builder.nodes) == len(graph.nodes):
        return graph
    return replace(graph, nodes=tuple(builder.nodes), edges=tuple(builder.edges))


def patches(graph: Graph) -> int:
    """The number of patches that put a launch's scalars into a configuration of a graph."""
    immediates = sum(node.scalar is not None for node in graph.nodes)
    return immediates + len({e.target for e in graph.edges if any(isinstance(v, str) for v in e.initial)})


def _check_operands(graph: Graph) -> None:
    """Checks that opaque operators have no more operands than an entry has muxes."""
    for node in graph.nodes:
        routed = [e.operand for e in graph.incoming[node.id] if e.routed]
        predicates = routed.count(PREDICATE)
        if predicates > 1 or len(routed) - predicates > len(DATA):
            found = f"{len(routed) - predicates} data operands and {predicates} predicates"
            needed = f"at most {len(DATA)} and 1"
            raise InputError(f"graph {graph.name!r}, node {node}: an operation takes {needed}, not {found}")


def start(edge: Edge) -> Start | None:
    """The requirement of an edge on its target's entry; None without initial values.

    Only for edges with one initial value and few enough first iterations.
    """
    return (edge.distance, edge.initial[0]) if edge.distance else None


def starts(graph: Graph, node: NodeId) -> set[Start]:
    """The requirements of the edges to a node on its entry; a legal node has at most one."""
    return {found for e in graph.incoming[node] if e.routed and (found := start(e))}


@dataclass
class _Builder:
    """Nodes and edges of the new graph; `copies` are the `mov` nodes by what they copy."""

    graph: Graph
    nodes: list[Node] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    copies: dict[tuple[NodeId, int, tuple[Value, ...]], NodeId] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.names: set[str] = {str(node.id) for node in self.graph.nodes}

    def name(self, wanted: str) -> str:
        """An id that no node has."""
        while wanted in self.names:
            wanted += "'"
        self.names.add(wanted)
        return wanted

    def node(self, node: Node) -> None:
        """One node with the edges to it."""
        incoming = self.graph.incoming[node.id]
        if node.op == "table" and node.immediate is not None:
            # The entry's own constant is the table's offset, so the index needs a node.
            index = Node(self.name(f"{node.id}.index"), "const", node.const, node.scalar)
            self.nodes.append(index)
            node = replace(node, const=None, scalar=None)
            self.edges.append(Edge(index.id, node.id, 0, DATA[0]))
        self.nodes.append(node)
        kept = self.kept(incoming)
        for edge in incoming:
            whole = not edge.routed or edge.distance == 0
            if whole or (_run(edge.initial) == edge.distance and start(edge) == kept):
                self.edges.append(edge)
            elif kept == (_run(edge.initial), edge.initial[0]):
                self.edges.append(self.shortened(edge))
            else:
                source = self.copy(edge.source, edge.distance, edge.initial)
                self.edges.append(replace(edge, source=source, distance=0, initial=()))

    def kept(self, incoming: tuple[Edge, ...]) -> Start | None:
        """The requirement that the node's own entry meets: that of short distances and most edges."""
        wanted: dict[Start, list[int]] = defaultdict(list)
        for edge in incoming:
            if edge.routed and edge.distance:
                wanted[_run(edge.initial), edge.initial[0]].append(edge.distance)
        order = sorted(wanted, key=lambda s: (min(wanted[s]), -len(wanted[s]), s[0], str(s[1])))
        return order[0] if order else None

    def shortened(self, edge: Edge) -> Edge:
        """The edge with only its first initial value, from a copy that has the others."""
        run = _run(edge.initial)
        source = self.copy(edge.source, edge.distance - run, edge.initial[run:])
        return replace(edge, source=source, distance=run, initial=edge.initial[:run])

    def copy(self, source: NodeId, distance: int, initial: tuple[Value, ...]) -> NodeId:
        """A node whose result equals what an edge with this distance and these initial values carries."""
        key = source, distance, initial
        if key not in self.copies:
            copy = Node(self.name(f"{source}.{len(self.copies)}.mov"), "mov")
            self.copies[key] = copy.id
            edge = Edge(source, copy.id, distance, DATA[0], initial=initial)
            if _run(initial) < distance:
                edge = self.shortened(edge)
            self.nodes.append(copy)
            self.edges.append(edge)
        return self.copies[key]


def _run(initial: tuple[Value, ...]) -> int:
    """How many leading values are equal, up to the limit of an entry."""
    count = 1
    while count < min(len(initial), FIRST) and initial[count] == initial[0]:
        count += 1
    return count
