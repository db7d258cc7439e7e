"""Runs graphs in a random schedule: iterations overlap, and accesses of one step come in any order.

Every value has as many words as the graph has lanes.

The schedule respects only the dependences, so it shows whether they suffice.
"""

from __future__ import annotations

import random
from collections import defaultdict

import numpy as np

from hw.semantics import wrap
from sw.dfg.graph import Edge, Graph, Node, NodeId, Value
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
    values: dict[tuple[NodeId, int], list[int]] = {}
    tables = dict(graph.tables)

    def known(value: Value) -> int:
        return value if isinstance(value, int) else scalars[value]

    for now in sorted(events):
        rng.shuffle(events[now])
        for node, t in events[now]:
            spec, operation = graph.by_id[node], OPERATIONS[graph.by_id[node].op]
            operands: dict[str, list[int]] = {}
            holds = [True] * graph.lanes
            for operand, given in graph.operands(spec).items():
                if not isinstance(given, Edge) or t < given.distance:
                    word = known(given.initial[t] if isinstance(given, Edge) else given)
                    operands[operand] = [word] * graph.lanes
                else:
                    source = (given.source, t - given.distance)
                    assert ready[source] <= now
                    operands[operand] = values[source]
                if isinstance(given, Edge) and operand == "P":
                    holds = [(word != 0) is not given.negated for word in operands["P"]]
            args = [operands[d] for d in ("I1", "I2", "I3") if d in operands]
            if spec.op == "const" or operation.constant:
                args.append([known(spec.immediate or 0)] * graph.lanes)
            values[node, t] = _value(spec, args, holds, memory, tables)
            assert node in graph.wide or len(set(values[node, t])) == 1
            ready[node, t] = now + operation.latency
    return {
        o.name: known(o.initial[n]) if n < o.distance else values[o.source, n - o.distance][0]
        for o in graph.outputs
    }


def _value(
    node: Node,
    args: list[list[int]],
    holds: list[bool],
    memory: dict[str, list[int]],
    tables: dict[str, tuple[int, ...]],
) -> list[int]:
    """The words of a value, 0 where the predicate does not hold."""
    lanes = range(len(holds))
    held = memory[node.memory.name] if node.memory and node.op != "table" else []
    if node.op in ("load", "store"):
        if not holds[0]:
            return [0] * len(holds)
        if node.op == "store":
            held[args[0][0]] = args[1][0]
        return [held[args[0][0]] if node.op == "load" else 0] * len(holds)
    if node.op in ("load_lanes", "store_lanes"):
        start = args[0][0] if any(holds) else 0
        assert start % len(holds) == 0
        for lane in lanes if node.op == "store_lanes" else ():
            if holds[lane]:
                held[start + lane] = args[1][lane]
        words = held[start : start + len(holds)] if node.op == "load_lanes" else [0] * len(holds)
    elif OPERATIONS[node.op].of_lanes:
        words = _across(node.op, args, len(holds))
    else:
        meaning = OPERATIONS[node.op].meaning or (lambda word: word)
        if node.memory is not None:
            meaning = tables[node.memory.name].__getitem__
        words = [meaning(*(a[lane] for a in args)) if holds[lane] else 0 for lane in lanes]
    return [word if holds[lane] else 0 for lane, word in enumerate(words)]


def _across(op: str, args: list[list[int]], lanes: int) -> list[int]:
    """What an operation makes of all lanes."""
    if op == "lane":
        return list(range(lanes))
    words = np.array(args[0])
    if op == "shift_lanes":
        return list(np.roll([*words, *args[1]], -(args[2][0] % lanes))[:lanes].tolist())
    if op in ("even_lanes", "odd_lanes"):
        return list(np.concatenate([words, args[1]]).reshape(-1, 2)[:, int(op == "odd_lanes")].tolist())
    return [wrap(int(words.sum() if op == "sum_lanes" else words.max()))] * lanes


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
