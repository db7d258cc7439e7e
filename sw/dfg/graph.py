"""The data-flow graph of a loop body: operations, and dependences with a distance in iterations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

from hw.errors import InputError
from hw.fabric import Fabric, PEOperation
from hw.fabric.fabric import MOST_LANES
from hw.fabric.operations import LOADS, STORES
from sw.dfg.operations import OPERATIONS, opaque

DATA = ("I1", "I2", "I3")
PREDICATE = "P"
#: An ordering hint: never routed, compared or counted.
HINT = "PS"
#: Orders two memory accesses, at the edge's distance and every larger one. It constrains the schedule but is
#: not routed.
ORDER = "M"
OPERANDS = (*DATA, PREDICATE, HINT, ORDER)

NodeId = int | str
#: A known number, or the name of a scalar that is known when the loop starts.
Value = int | str


@dataclass(frozen=True)
class Memory:
    """The array or table that a memory operation accesses, and the element size in bytes if known."""

    name: str
    bytes: int | None = None


@dataclass(frozen=True)
class Node:
    """An operation.

    The immediate is `const` or the launch-time value of `scalar`. It is the data operand that no edge
    supplies, or the constant of an operation that has one; opaque operators may give it any meaning.
    """

    id: NodeId
    op: str
    const: int | None = None
    scalar: str | None = None
    memory: Memory | None = None

    @property
    def immediate(self) -> Value | None:
        """The number or the scalar's name, or None without an immediate."""
        return self.const if self.scalar is None else self.scalar

    def __str__(self) -> str:
        return f"{self.id} ({self.op})"


@dataclass(frozen=True)
class Edge:
    """A dependence: `target` in iteration t uses what `source` produced in iteration t - distance.

    In iterations t < distance the operand is `initial[t]`.
    """

    source: NodeId
    target: NodeId
    distance: int = 0
    operand: str = "I1"
    negated: bool = False
    initial: tuple[Value, ...] = ()

    @property
    def routed(self) -> bool:
        """Whether the edge carries a value."""
        return self.operand not in (HINT, ORDER)


@dataclass(frozen=True)
class Output:
    """A scalar result: what `source` produced `distance` iterations before the loop's end.

    Distance 1 is the last iteration. A loop of n < distance iterations gives `initial[n]`.
    """

    name: str
    source: NodeId
    distance: int
    initial: tuple[Value, ...] = ()


@dataclass(frozen=True)
class Graph:
    """The graph of a loop body. Raises `InputError` if the edges are inconsistent.

    In an `opaque` graph operators are only names, and each takes one step. In any other graph they are those
    of `sw.dfg.operations`, and every operand is supplied exactly once. `tables` holds the words that `table`
    reads. `lanes` is the number of words in the value of a wide node.
    """

    name: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    opaque: bool = False
    outputs: tuple[Output, ...] = ()
    tables: tuple[tuple[str, tuple[int, ...]], ...] = ()
    lanes: int = 1
    #: Documentation of the graph: origin, licence.
    notes: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        check(self)

    @cached_property
    def by_id(self) -> Mapping[NodeId, Node]:
        """Nodes by id."""
        return {node.id: node for node in self.nodes}

    @cached_property
    def incoming(self) -> Mapping[NodeId, tuple[Edge, ...]]:
        """Incoming edges of every node."""
        found: dict[NodeId, list[Edge]] = defaultdict(list)
        for edge in self.edges:
            found[edge.target].append(edge)
        return {node.id: tuple(found[node.id]) for node in self.nodes}

    @cached_property
    def dependences(self) -> tuple[Edge, ...]:
        """The edges that constrain a schedule: all except hints."""
        return tuple(edge for edge in self.edges if edge.operand != HINT)

    @cached_property
    def order(self) -> tuple[NodeId, ...]:
        """The nodes in a topological order of the dependences with distance 0."""
        sorter = TopologicalSorter[NodeId]({node.id: () for node in self.nodes})
        for edge in self.dependences:
            if edge.distance == 0:
                sorter.add(edge.target, edge.source)
        try:
            return tuple(sorter.static_order())
        except CycleError as error:
            shown = " -> ".join(str(node) for node in error.args[1])
            message = "a cycle must have a distance of at least 1, this one has 0"
            raise InputError(f"graph {self.name!r}: {message}: {shown}") from None

    @cached_property
    def wide(self) -> frozenset[NodeId]:
        """The nodes whose values differ between lanes."""
        found: set[NodeId] = set()
        stack = [] if self.opaque else [n.id for n in self.nodes if n.op in _DIFFERENT]
        if not stack:
            return frozenset()
        users: dict[NodeId, list[Edge]] = defaultdict(list)
        for edge in self.edges:
            if edge.routed and not _same_in_lanes(self.by_id[edge.target].op, edge):
                users[edge.source].append(edge)
        while stack:
            node = stack.pop()
            if node not in found:
                found.add(node)
                stack += [edge.target for edge in users[node]]
        return frozenset(found)

    @property
    def of_lanes(self) -> bool:
        """Whether it needs PEs with several lanes. Every wide node derives from a lane operation."""
        return any(self.operation(node).of_lanes for node in self.nodes)

    def operation(self, node: Node) -> PEOperation:
        """The PE operation of a node."""
        return opaque(node.op) if self.opaque else OPERATIONS[node.op]

    def latency(self, node: NodeId, fabric: Fabric | None = None) -> int:
        """Steps until a node's value can be used; without a fabric, for one that is not pipelined."""
        operation = self.operation(self.by_id[node])
        return operation.latency if fabric is None else fabric.latency(operation)

    def operands(self, node: Node) -> dict[str, Edge | Value]:
        """For each operand, the edge that supplies it or the immediate of a known operation.

        Data operands of opaque operators are called I1, I2, I3 in the order of their edges.
        """
        found: dict[str, Edge | Value] = {}
        names = iter(DATA)
        for edge in self.incoming[node.id]:
            if edge.routed:
                in_order = self.opaque and edge.operand != PREDICATE
                found[next(names) if in_order else edge.operand] = edge
        if node.immediate is not None and not self.opaque:
            for name in DATA[: OPERATIONS[node.op].operands]:
                found.setdefault(name, node.immediate)
        return found

    def delay(self, edge: Edge, fabric: Fabric | None = None) -> int:
        """Minimum number of steps from the start of the source to the start of the target, at distance 0."""
        return 1 if edge.operand == ORDER else self.latency(edge.source, fabric)

    @property
    def scalars(self) -> tuple[str, ...]:
        """Scalars that must be known when the loop starts, in order of use."""
        carried: tuple[Edge | Output, ...] = (*self.edges, *self.outputs)
        found = (*(node.scalar for node in self.nodes), *(value for c in carried for value in c.initial))
        return tuple(dict.fromkeys(name for name in found if isinstance(name, str)))


#: Operations whose result differs between lanes, whatever their operands.
_DIFFERENT = ("lane", "load_lanes", "shift_lanes", "even_lanes", "odd_lanes")


def _same_in_lanes(op: str, wide: Edge) -> bool:
    """Whether an operation with this wide operand gives every lane the same value, or no value."""
    across = op in ("sum_lanes", "max_lanes") and wide.operand != PREDICATE
    return across or op == "load" or op in STORES


def arrays_of(graph: Graph, *operations: str) -> tuple[str, ...]:
    """The arrays that these operations access, in node order."""
    return tuple(dict.fromkeys(n.memory.name for n in graph.nodes if n.memory and n.op in operations))


def check(graph: Graph) -> None:
    """Checks a graph. Raises `InputError` with the place, what was found and what is needed."""
    place = f"graph {graph.name!r}"
    known: dict[NodeId, int] = {}
    several = [1 << i for i in range(1, MOST_LANES.bit_length())]
    if graph.lanes not in ((1,) if graph.opaque else (1, *several)):
        limits = "1, as it is opaque" if graph.opaque else f"1, {', '.join(map(str, several))}"
        raise InputError(f"{place}: lanes must be {limits}, not {graph.lanes}")
    for node in graph.nodes:
        if node.id in known:
            raise InputError(f"{place}: the id of a node must be its own, {node.id!r} appears twice")
        known[node.id] = len(known)
        if not graph.opaque and node.op not in OPERATIONS:
            listed = ", ".join(OPERATIONS)
            raise InputError(f"{place}: node {node}: the operation must be one of {listed}, not {node.op!r}")
        if node.const is not None and node.scalar is not None:
            raise InputError(f"{place}: node {node}: the immediate must be a number or a scalar, not both")
    for edge in graph.edges:
        _check_edge(graph, edge, known, place)
    for output in graph.outputs:
        if output.source not in known:
            raise InputError(f"{place}: output {output.name!r}: there is no node {output.source!r}")
        if output.distance < 1 or len(output.initial) != output.distance:
            found = f"distance {output.distance} and {len(output.initial)} initial values"
            raise InputError(
                f"{place}: output {output.name!r}: needs a value per iteration back, not {found}"
            )
    if not graph.opaque:
        for node in graph.nodes:
            _check_operands(graph, node, place)
    # If every edge points forward in the text there is no cycle.
    if any(known[e.source] >= known[e.target] for e in graph.dependences if e.distance == 0):
        _ = graph.order


def _check_edge(graph: Graph, edge: Edge, known: Mapping[NodeId, int], place: str) -> None:
    for end in (edge.source, edge.target):
        if end not in known:
            raise InputError(f"{place}: edge {edge.source} to {edge.target}: there is no node {end!r}")
    place = f"{place}: edge {edge.source} to {edge.target}"
    if edge.operand not in OPERANDS:
        raise InputError(f"{place}: the operand must be one of {', '.join(OPERANDS)}, not {edge.operand!r}")
    if edge.distance < 0:
        raise InputError(f"{place}: the distance must be at least 0, not {edge.distance}")
    if edge.negated and edge.operand != PREDICATE:
        raise InputError(f"{place}: only a predicate (P) can be negated, not {edge.operand}")
    if edge.routed and not graph.opaque:
        if len(edge.initial) != edge.distance:
            found = f"{len(edge.initial)} initial values"
            raise InputError(f"{place}: distance {edge.distance} needs as many initial values, not {found}")
        if graph.by_id[edge.source].op in STORES:
            raise InputError(f"{place}: a store gives no value; order of accesses is the operand {ORDER}")


def _check_operands(graph: Graph, node: Node, place: str) -> None:
    """Checks the data operands of a known operation: one edge each; one of them may be the immediate."""
    place = f"{place}: node {node}"
    operation = OPERATIONS[node.op]
    given: set[str] = set()
    for edge in graph.incoming[node.id]:
        if edge.operand not in (HINT, ORDER) and edge.operand in given:
            raise InputError(f"{place}: operand {edge.operand} must be given once, it appears twice")
        given.add(edge.operand)
    wanted = DATA[: operation.operands]
    extra = sorted(given & set(DATA) - set(wanted))
    if extra:
        raise InputError(f"{place}: takes {operation.operands} data operands, there is {extra[0]} as well")
    missing = [operand for operand in wanted if operand not in given]
    spare = operation.name == "const"
    if operation.constant and (missing or node.immediate is None):
        raise InputError(f"{place}: needs {' and '.join(missing) or 'an immediate, its quantisation'}")
    spare |= operation.constant
    if node.immediate is None and (missing or spare):
        raise InputError(f"{place}: needs {' and '.join(missing) or 'an immediate'}")
    if node.immediate is not None and not spare and len(missing) != 1:
        found = "none is open" if not missing else f"{' and '.join(missing)} are"
        raise InputError(f"{place}: its immediate must be the one open operand, {found}")
    if operation.of_lanes and graph.lanes == 1:
        raise InputError(f"{place}: works on several lanes, the graph has lanes = 1")
    if operation.name in (*LOADS, *STORES, "table") and node.memory is None:
        raise InputError(f"{place}: needs the name of its memory")
    if operation.name == "table" and node.memory and node.memory.name not in dict(graph.tables):
        raise InputError(f"{place}: there is no table {node.memory.name!r}")
