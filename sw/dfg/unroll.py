"""Several iterations as one, with loop-carried distances that fit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from hw.errors import InputError
from hw.semantics import wrap
from sw.dfg.graph import DATA, ORDER, Edge, Graph, Node, NodeId, Output, Value
from sw.dfg.transform import dead_code, drop_implied_order

#: Operations that a graph may have after unrolling.
LARGEST = 1 << 14


def unroll(graph: Graph, times: int) -> Graph:
    """The graph of `times` iterations as one: copy j of node n has the id `n.j`.

    What an edge carries over fewer iterations than that stays inside of the new one. A basic induction
    variable, to which every iteration adds the same number, becomes one addition per copy, each from the last
    copy of the iteration before: its recurrence stays one step long. Constants that such additions took from
    a node of their own are immediates then, and the nodes stay. Raises `InputError` for less than one time or
    a graph that grows too large.
    """
    if times < 1 or times * len(graph.nodes) > LARGEST:
        limit = f"1 to {LARGEST // max(1, len(graph.nodes))} for {len(graph.nodes)} operations"
        raise InputError(f"graph {graph.name!r}: times to unroll must be {limit}, not {times}")
    if times == 1:
        return graph
    found = (_induction(graph, node) for node in graph.nodes)
    inductions = {induction.node: induction for induction in found if induction}
    nodes = tuple(
        inductions[n.id].copy(j) if n.id in inductions else replace(n, id=_copy(n.id, j))
        for j in range(times)
        for n in graph.nodes
    )
    edges: list[Edge] = []
    for edge in graph.edges:
        if edge.routed and edge.target in inductions:
            edges += inductions[edge.target].edges(edge, times)
        elif edge.operand == ORDER:
            edges += _unrolled_order(edge, times)
        else:
            edges += [_unrolled(edge, j, times) for j in range(times)]
    outputs = tuple(_unrolled_output(output, times) for output in graph.outputs)
    unrolled = replace(graph, nodes=nodes, edges=tuple(edges), outputs=outputs)
    return drop_implied_order(unrolled) if any(e.operand == ORDER for e in edges) else unrolled


@dataclass(frozen=True)
class _Induction:
    """A node whose value is `step` more than it was in the iteration before."""

    node: NodeId
    step: int

    def copy(self, number: int) -> Node:
        """The addition of one copy, to the value after the last iteration of all copies before."""
        return Node(_copy(self.node, number), "add", const=wrap((number + 1) * self.step))

    def edges(self, edge: Edge, times: int) -> list[Edge]:
        """The edges for one to the node: the last copy to every copy for that from itself."""
        if edge.source != self.node:
            return []
        last = _copy(self.node, times - 1)
        return [
            Edge(last, _copy(self.node, j), edge.distance, edge.operand, initial=edge.initial)
            for j in range(times)
        ]


def _induction(graph: Graph, node: Node) -> _Induction | None:
    """The induction variable that a node is: the sum of itself and a number, under no predicate."""
    if graph.opaque or node.op not in ("add", "sub"):
        return None
    routed = {edge.operand: edge for edge in graph.incoming[node.id] if edge.routed}
    own = [edge for edge in routed.values() if edge.source == node.id and edge.distance == 1]
    if len(own) != 1 or own[0].operand not in DATA or (node.op == "sub" and own[0].operand != DATA[0]):
        return None
    step = node.const
    for edge in routed.values():
        if edge is not own[0]:
            step = _number(graph, edge)
            if step is None:
                return None
    if step is None:
        return None
    return _Induction(node.id, step if node.op == "add" else -step)


def _number(graph: Graph, edge: Edge) -> int | None:
    """The number that a data edge gives in every iteration, if it is known."""
    source = graph.by_id[edge.source]
    guarded = any(e.routed for e in graph.incoming[source.id])
    if source.op != "const" or guarded or edge.distance or edge.operand not in DATA:
        return None
    return source.const


def _copy(node: NodeId, number: int) -> str:
    return f"{node}.{number}"


def _unrolled(edge: Edge, copy: int, times: int) -> Edge:
    """The edge to one copy: in iteration I it is `copy + I * times` of before."""
    back, source = divmod(copy - edge.distance, times)
    initial = tuple(edge.initial[i * times + copy] for i in range(-back)) if edge.initial else ()
    return replace(
        edge,
        source=_copy(edge.source, source),
        target=_copy(edge.target, copy),
        distance=-back,
        initial=initial,
    )


def _unrolled_order(edge: Edge, times: int) -> Iterable[Edge]:
    """Every earlier copy before every copy at least `distance` iterations later."""
    for j in range(times):
        for k in range(times):
            distance = max(0, -((k - j - edge.distance) // times))
            if (edge.source, j, 0) == (edge.target, k, distance):
                continue
            yield Edge(_copy(edge.source, j), _copy(edge.target, k), distance, ORDER)


def _unrolled_output(output: Output, times: int) -> Output:
    back, source = divmod(-output.distance, times)
    initial = tuple(output.initial[i * times] for i in range(-back))
    return Output(output.name, _copy(output.source, source), -back, initial)


def unroll_with_rest(graph: Graph, times: int) -> tuple[Graph, Graph]:
    """The unrolled loop, and the iterations that are left over, which start from what it leaves behind.

    The first has no nodes where nothing of it counts.
    """
    states: list[Output] = []
    edges: list[Edge] = []
    for i, edge in enumerate(graph.edges):
        names: list[Value] = []
        if edge.routed:
            for j in range(edge.distance):
                # Iteration j of the rest reads what iteration n + j - distance of the whole gave.
                state = Output(f"carried.{i}.{j}", edge.source, edge.distance - j, edge.initial[j:])
                names.append(state.name)
                states.append(state)
        edges.append(replace(edge, initial=tuple(names)))
    outputs = []
    for i, output in enumerate(graph.outputs):
        values: list[Value] = []
        for j in range(output.distance):
            state = Output(f"result.{i}.{j}", output.source, output.distance - j, output.initial[j:])
            values.append(state.name)
            states.append(state)
        outputs.append(replace(output, initial=tuple(values)))
    rest = dead_code(replace(graph, name=f"{graph.name}.rest", edges=tuple(edges), outputs=tuple(outputs)))
    needed = tuple(state for state in states if state.name in rest.scalars)
    return dead_code(unroll(replace(graph, outputs=needed), times)), rest
