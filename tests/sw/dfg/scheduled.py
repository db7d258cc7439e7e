"""Runs graphs in the order of a random schedule, iterations overlapped, accesses of one step in any order.

The schedule keeps nothing but the dependences, so it shows whether they suffice.
"""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

from sw.dfg.graph import Edge, Graph, NodeId, Value
from sw.dfg.kernel import Launch, Step, trips
from sw.dfg.operations import OPERATIONS
from sw.dfg.recurrence import critical_cycle, windows


def random_steps(graph: Graph, ii: int, rng: random.Random) -> dict[NodeId, int]:
    """A step for every node, one after the other, within what the dependences on those before leave."""
    spare = rng.choice((0, 0, 2, 5))
    allowed = {n: [first, last + spare] for n, (first, last) in windows(graph, ii).items()}
    for node in rng.sample(list(allowed), len(allowed)):
        allowed[node] = [rng.randint(*allowed[node])] * 2
        changed = True
        while changed:
            changed = False
            for edge in graph.dependences:
                source, target = allowed[edge.source], allowed[edge.target]
                least = graph.delay(edge) - ii * edge.distance
                if target[0] < source[0] + least or source[1] > target[1] - least:
                    target[0] = max(target[0], source[0] + least)
                    source[1] = min(source[1], target[1] - least)
                    changed = True
    return {node: first for node, (first, _) in allowed.items()}


def run_overlapped(
    graph: Graph,
    memory: dict[str, list[int]],
    scalars: dict[str, int],
    n: int,
    seed: int,
) -> dict[str, int]:
    """Every operation of every iteration in its step; raises `KeyError` for a value that is not there yet."""
    rng = random.Random(seed)
    cycle = critical_cycle(graph)
    ii = -(-sum(graph.delay(e) for e in cycle) // sum(e.distance for e in cycle)) if cycle else 1
    ii += rng.choice((0, 0, 1, 3))
    steps = random_steps(graph, ii, rng)
    assert all(
        steps[e.target] >= steps[e.source] + graph.delay(e) - ii * e.distance for e in graph.dependences
    )
    events: dict[int, list[tuple[NodeId, int]]] = defaultdict(list)
    for t in range(n):
        for node, step in steps.items():
            events[step + t * ii].append((node, t))
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
            for operand, given in graph.operands(spec).items():
                if not isinstance(given, Edge) or t < given.distance:
                    operands[operand] = known(given.initial[t] if isinstance(given, Edge) else given)
                else:
                    source = (given.source, t - given.distance)
                    assert ready[source] <= now
                    operands[operand] = values[source]
                if isinstance(given, Edge) and operand == "P":
                    holds = (operands["P"] != 0) is not given.negated
            args = [operands[d] for d in ("I1", "I2", "I3") if d in operands]
            if spec.op == "const":
                args = [known(spec.immediate or 0)]
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
    if meaning or node.op == "const":
        return meaning(*args) if meaning else args[0]
    if node.op == "store":
        memory[node.memory.name][args[0]] = args[1]
        return 0
    return (memory if node.op == "load" else tables)[node.memory.name][args[0]]


def run_steps_overlapped(
    body: tuple[Step, ...],
    memory: dict[str, list[int]],
    scalars: dict[str, int],
    seed: int,
) -> None:
    """All steps of a kernel."""
    for step in body:
        count = trips(step.count, scalars)
        if isinstance(step, Launch):
            scalars.update(run_overlapped(step.graph, memory, scalars, count, seed))
            continue
        for i in range(count):
            scalars[step.variable] = i
            run_steps_overlapped(step.body, memory, scalars, seed)
