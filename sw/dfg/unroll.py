"""Loop unrolling: combines several iterations into one and adjusts loop-carried distances."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

from hw.errors import InputError
from hw.semantics import wrap
from sw.dfg.graph import DATA, ORDER, Edge, Graph, Node, NodeId, Output
from sw.dfg.transform import dead_code, drop_implied_order

#: Most operations in a graph after unrolling.
LARGEST = 1 << 14


def unroll(graph: Graph, times: int) -> Graph:
    """Combines `times` iterations into one; copy j of node n has the id `n.j`.

    An edge whose distance fits within the unrolled iteration becomes a dependence inside it. A basic
    induction variable (the same number is added in every iteration) becomes one addition per copy, each from
    the last copy of the previous iteration, so its recurrence stays one step long. If such an addition takes
    its constant from a node, the copies use an immediate and the node stays. Raises `InputError` if `times`
    is below 1 or the graph would grow too large.
    """
    if times < 1 or times * len(graph.nodes) > LARGEST:
        limit = f"1 to {LARGEST // max(1, len(graph.nodes))} for {len(graph.nodes)} operations"
        raise InputError(f"graph {graph.name!r}: times to unroll must be {limit}, not {times}")
    if times == 1:
        return graph
    steps = {n.id: step for n in graph.nodes if (step := _step(graph, n)) is not None}
    nodes = tuple(
        Node(_copy(n.id, j), "add", const=wrap((j + 1) * steps[n.id]))
        if n.id in steps
        else replace(n, id=_copy(n.id, j))
        for j in range(times)
        for n in graph.nodes
    )
    edges: list[Edge] = []
    for edge in graph.edges:
        if edge.operand == ORDER:
            edges += _unrolled_order(edge, times)
        elif not edge.routed or edge.target not in steps:
            edges += [replace(_unrolled(edge, j, times), target=_copy(edge.target, j)) for j in range(times)]
        elif edge.source == edge.target:
            # The last copy feeds every copy.
            last = replace(edge, source=_copy(edge.source, times - 1))
            edges += [replace(last, target=_copy(edge.target, j)) for j in range(times)]
    outputs = tuple(_unrolled(output, 0, times) for output in graph.outputs)
    unrolled = replace(graph, nodes=nodes, edges=tuple(edges), outputs=outputs)
    return drop_implied_order(unrolled) if any(e.operand == ORDER for e in edges) else unrolled


def _step(graph: Graph, node: Node) -> int | None:
    """The number by which an induction variable grows per iteration, else None."""
    if graph.opaque or node.op not in ("add", "sub"):
        return None
    given = graph.operands(node)
    own = [n for n, e in given.items() if isinstance(e, Edge) and (e.source, e.distance) == (node.id, 1)]
    if len(given) != 2 or len(own) != 1 or own[0] not in (DATA[:1] if node.op == "sub" else DATA):
        return None
    del given[own[0]]
    (step,) = given.values()
    if isinstance(step, Edge):
        source = graph.by_id[step.source]
        if source.op != "const" or source.const is None or graph.operands(source) or step.distance:
            return None
        step = source.const
    if isinstance(step, str):
        return None
    return step if node.op == "add" else -step


def _copy(node: NodeId, number: int) -> str:
    return f"{node}.{number}"


Carried = TypeVar("Carried", Edge, Output)


def _unrolled(value: Carried, copy: int, times: int) -> Carried:
    """A carried value as read by a copy, whose iteration I is the original's `copy + I * times`."""
    back, source = divmod(copy - value.distance, times)
    initial = tuple(value.initial[i * times + copy] for i in range(-back)) if value.initial else ()
    return replace(value, source=_copy(value.source, source), distance=-back, initial=initial)


def _unrolled_order(edge: Edge, times: int) -> Iterable[Edge]:
    """Orders every earlier copy before every copy at least `distance` iterations later."""
    for j in range(times):
        for k in range(times):
            distance = max(0, -((k - j - edge.distance) // times))
            if (edge.source, j, 0) == (edge.target, k, distance):
                continue
            yield Edge(_copy(edge.source, j), _copy(edge.target, k), distance, ORDER)


def carries_lanes(graph: Graph) -> bool:
    """Whether iterations carry values that differ between lanes."""
    return any(e.routed and e.distance and e.source in graph.wide for e in graph.edges)


def unroll_with_rest(graph: Graph, times: int) -> tuple[Graph, Graph]:
    """Returns the unrolled loop and a loop for the remaining iterations, which continues from its results.

    The unrolled loop has no nodes if nothing depends on it. Raises `InputError` as `unroll` does, and if
    iterations carry values that differ between lanes (`carries_lanes`): no scalar can hold such a value.
    """
    if carries_lanes(graph):
        raise InputError(
            f"graph {graph.name!r}: the number of iterations must be a multiple of {times}, because "
            "iterations carry values that differ between lanes, which no scalar can hold"
        )
    states: list[Output] = []

    def resumed(value: Carried, name: str) -> Carried:
        """Iteration j of the remaining loop reads the original's iteration n + j - distance."""
        own = [
            Output(f"{name}.{j}", value.source, value.distance - j, value.initial[j:])
            for j in range(len(value.initial))
        ]
        states.extend(own)
        return replace(value, initial=tuple(state.name for state in own))

    edges = tuple(resumed(edge, f"carried.{i}") for i, edge in enumerate(graph.edges))
    outputs = tuple(resumed(output, f"result.{i}") for i, output in enumerate(graph.outputs))
    rest = dead_code(replace(graph, name=f"{graph.name}.rest", edges=edges, outputs=outputs))
    needed = tuple(state for state in states if state.name in rest.scalars)
    return dead_code(unroll(replace(graph, outputs=needed), times)), rest
