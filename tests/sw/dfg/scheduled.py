"""Runs graphs in the order of a modulo schedule, iterations overlapped, accesses of one step in any order."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

from sw.dfg.graph import Graph, NodeId, Value
from sw.dfg.kernel import Launch, Step
from sw.dfg.operations import OPERATIONS
from sw.dfg.recurrence import Resources
from sw.dfg.schedule import schedule


def run_overlapped(
    graph: Graph,
    resources: Resources,
    memory: dict[str, list[int]],
    scalars: dict[str, int],
    n: int,
    seed: int,
) -> dict[str, int]:
    """Every operation of every iteration in its step; raises `KeyError` for a value that is not there yet."""
    rng = random.Random(seed)
    found, _ = schedule(graph, resources, seed=seed)
    events: dict[int, list[tuple[NodeId, int]]] = defaultdict(list)
    for t in range(n):
        for node, step in found.steps.items():
            events[step + t * found.ii].append((node, t))
    ready: dict[tuple[NodeId, int], int] = {}
    values: dict[tuple[NodeId, int], int] = {}
    tables = dict(graph.tables)

    def known(value: Value) -> int:
        return value if isinstance(value, int) else scalars[value]

    for now in sorted(events):
        rng.shuffle(events[now])
        for node, t in events[now]:
            spec, operation = graph.by_id[node], OPERATIONS[graph.by_id[node].op]
            operands: dict[str, int] = {}
            holds = True
            for edge in graph.incoming[node]:
                if not edge.routed:
                    continue
                source = (edge.source, t - edge.distance)
                if t >= edge.distance:
                    assert ready[source] <= now
                operands[edge.operand] = known(edge.initial[t]) if t < edge.distance else values[source]
                if edge.operand == "P":
                    holds = (operands["P"] != 0) is not edge.negated
            if spec.immediate is not None:
                missing = [d for d in ("I1", "I2", "I3") if d not in operands]
                operands[missing[0]] = known(spec.immediate)
            args = [operands[d] for d in ("I1", "I2", "I3") if d in operands]
            values[node, t] = _value(spec, args, memory, tables) if holds else 0
            ready[node, t] = now + operation.latency
    return {
        o.name: known(o.initial[n]) if n < o.distance else values[o.source, n - o.distance]
        for o in graph.outputs
    }


def _value(
    node: Any, args: list[int], memory: dict[str, list[int]], tables: dict[str, tuple[int, ...]]
) -> int:
    meaning = OPERATIONS[node.op].meaning
    if meaning:
        return meaning(*args)
    if node.op == "store":
        memory[node.memory.name][args[0]] = args[1]
        return 0
    if node.op == "const":
        return args[0]
    return (memory if node.op == "load" else tables)[node.memory.name][args[0]]


def run_steps_overlapped(
    body: tuple[Step, ...],
    resources: Resources,
    memory: dict[str, list[int]],
    scalars: dict[str, int],
    seed: int,
) -> None:
    """All steps of a kernel."""
    for step in body:
        count = step.count.evaluate(scalars)
        if isinstance(step, Launch):
            scalars.update(run_overlapped(step.graph, resources, memory, scalars, count, seed))
            continue
        for i in range(count):
            scalars[step.variable] = i
            run_steps_overlapped(step.body, resources, memory, scalars, seed)
