"""Random graphs of opaque operators, with the locality of real loops."""

from __future__ import annotations

import random

from sw.dfg.graph import DATA, Edge, Graph, Node

#: Fraction of loads and stores, and how many operators back operands come from.
MEMORY, WINDOW = 0.12, 12


def generated(size: int, seed: int, parts: int = 1) -> Graph:
    """A graph of about `size` operators in `parts` separate parts; some values go to the next iteration."""
    rng = random.Random(seed)
    nodes: list[Node] = []
    edges: list[Edge] = []
    for part in range(parts):
        values: list[str] = []
        for i in range(size // parts):
            name, drawn = f"{part}.{i}", rng.random()
            op = "load" if i < 2 or drawn < MEMORY / 2 else "store" if drawn < MEMORY else "op"
            count = min(len(values), 1 if op == "load" else rng.choice((1, 2, 2)))
            sources = sorted({rng.choice(values[-WINDOW:]) for _ in range(count)})
            nodes.append(Node(name, op))
            edges += [Edge(source, name, 0, DATA[k]) for k, source in enumerate(sources)]
            if op != "store":
                values.append(name)
        for _ in range(len(values) // 32):
            last = rng.randrange(1, len(values))
            first = rng.randrange(max(0, last - 3), last + 1)
            if not any(e.target == values[first] and e.operand == "I3" for e in edges):
                edges.append(Edge(values[last], values[first], 1, "I3"))
    return Graph(f"generated_{size}_{parts}_{seed}", tuple(nodes), tuple(edges), True)
