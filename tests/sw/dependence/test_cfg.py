"""Control flow graph, dominators, dominance frontiers and phi nodes."""

from __future__ import annotations

import random

import networkx as nx
import pytest

from sw.dependence.cfg import Graph, build_graph
from sw.dependence.ssa import phi_nodes
from sw.ir import parse_program
from tests.sw.random_tile_programs import random_program

TEXT = """
@program
def p(q: bool, n: int):
    a: Buffer[8]
    x = 0
    y = 0
    if q:
        x = 1
    else:
        z = 1
    for i in range(n):
        y = y + x
    r = f(read=a[0:y])
"""


def as_networkx(graph: Graph) -> nx.DiGraph:
    edges = [(b.number, s) for b in graph.blocks for s in b.successors]
    made = nx.DiGraph(edges)
    made.add_nodes_from(b.number for b in graph.blocks)
    return made


def test_phi_nodes_stand_where_versions_meet() -> None:
    graph = build_graph(parse_program(TEXT))
    nodes = phi_nodes(graph)
    join = next(b.number for b in graph.blocks if len(b.predecessors) == 2 and b.head is None)
    head = next(b.number for b in graph.blocks if b.head is not None)
    assert set(nodes[join]) == {"x", "z"}
    assert set(nodes[head]) == {"y"}
    assert sum(map(len, nodes)) == 3


@pytest.mark.parametrize("seed", range(40))
def test_dominators_and_frontiers_are_those_of_networkx(seed: int) -> None:
    graph = build_graph(random_program(random.Random(seed)))
    known = as_networkx(graph)
    dominators = dict(nx.immediate_dominators(known, 0))
    dominators[0] = 0
    assert graph.dominators() == [dominators[b.number] for b in graph.blocks]
    frontiers = nx.dominance_frontiers(known, 0)
    assert graph.frontiers() == [set(frontiers[b.number]) for b in graph.blocks]


def test_blocks_are_in_reverse_post_order() -> None:
    for seed in range(20):
        graph = build_graph(random_program(random.Random(seed)))
        for block in graph.blocks:
            back = [p for p in block.predecessors if p >= block.number]
            assert not back or block.head is not None
