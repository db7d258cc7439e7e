"""Constraints of recurrences on a schedule."""

from __future__ import annotations

import random
from fractions import Fraction

import networkx
import pytest

from hw.errors import InputError
from sw.dfg.graph import Edge, Graph, Node
from sw.dfg.json import load_graph
from sw.dfg.recurrence import critical_cycle, windows
from tests.sw.dfg.test_graph import GRAPHS


def random_graph(rng: random.Random) -> Graph:
    """An opaque graph whose dependences of distance 0 go forwards."""
    size = rng.randint(1, 14)
    edges = []
    for _ in range(rng.randint(0, 3 * size)):
        a, b = rng.randrange(size), rng.randrange(size)
        edges.append(Edge(a, b, 0 if a < b and rng.random() < 0.7 else rng.randint(1, 3), "I1"))
    names = ("add", "load", "store")
    return Graph("g", tuple(Node(i, rng.choice(names)) for i in range(size)), tuple(edges), opaque=True)


def test_the_critical_cycle_has_the_greatest_ratio_of_all() -> None:
    rng, cyclic = random.Random(5), 0
    for _ in range(150):
        graph = random_graph(rng)
        net = networkx.MultiDiGraph()
        net.add_nodes_from(n.id for n in graph.nodes)
        shortest: dict[tuple, int] = {}
        for edge in graph.edges:
            ends = (edge.source, edge.target)
            shortest[ends] = min(edge.distance, shortest.get(ends, edge.distance))
        net = networkx.DiGraph(list(shortest))
        ratios = [
            Fraction(len(c), sum(shortest[a, b] for a, b in zip(c, [*c[1:], c[0]], strict=True)))
            for c in networkx.simple_cycles(net)
        ]
        cycle = critical_cycle(graph)
        assert bool(cycle) == bool(ratios)
        if cycle:
            cyclic += 1
            assert Fraction(len(cycle), sum(e.distance for e in cycle)) == max(ratios)
            assert all(a.target == b.source for a, b in zip(cycle, [*cycle[1:], cycle[0]], strict=True))
    assert cyclic > 50


def test_slack_is_what_a_node_can_move() -> None:
    nodes = tuple(Node(i, "add") for i in range(4))
    graph = Graph("g", nodes, (Edge(0, 1), Edge(1, 2), Edge(3, 2, operand="I2")), opaque=True)
    found = windows(graph, 1)
    assert [found[i][1] - found[i][0] for i in range(4)] == [0, 0, 0, 1]
    assert [found[i][1] for i in range(4)] == [0, 1, 2, 1]


def test_an_ii_below_a_recurrence_is_refused() -> None:
    with pytest.raises(InputError, match=r"the recurrence .* needs more than II 3"):
        windows(load_graph(GRAPHS / "mults1.json"), 3)
