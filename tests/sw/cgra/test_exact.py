"""The constraint program for small graphs: its mappings are correct, and its proofs agree with counting."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from heald.testing.graphs import generated
from hw.fabric import load
from sw.cgra.encode import differences
from sw.cgra.exact import INFEASIBLE, decidable, decide
from sw.cgra.mapping import Mapping
from sw.cgra.problem import problem
from sw.cgra.search import map_graph
from sw.dfg.graph import Edge, Graph, Node
from sw.dfg.json import load_graph
from tests.sw.cgra.right import right

DFG = Path(__file__).parents[2] / "data" / "dfg"


@pytest.mark.parametrize(
    ("name", "ii"),
    [("mac", 1), ("conv2", 1), *(pytest.param("sum", ii, marks=pytest.mark.slow) for ii in (1, 2))],
)
def test_its_mappings_are_right(name: str, ii: int) -> None:
    found = decide(problem(load_graph(DFG / f"{name}.json"), load("mesh4x4"), ii))
    assert isinstance(found, Mapping)
    assert found.ii == ii
    assert differences(found) == ()


def star(users: int) -> Graph:
    """One operator whose value goes to all others."""
    nodes = tuple(Node(i, "op") for i in range(users + 1))
    return Graph("star", nodes, tuple(Edge(0, i, 0, "I1") for i in range(1, users + 1)), True)


def test_more_operations_than_places_are_infeasible() -> None:
    fabric = load("mesh4x4", (2, 2))
    assert decide(problem(star(4), fabric, 1)) == INFEASIBLE
    assert isinstance(decide(problem(star(3), fabric, 1)), Mapping)


def test_a_pair_without_a_link_is_infeasible_at_every_interval() -> None:
    mesh = load("mesh4x4", (1, 2))
    fabric = replace(mesh, links=())
    pair = Graph("pair", (Node(0, "op"), Node(1, "op")), (Edge(0, 1, 0, "I1"),), True)
    assert decide(problem(pair, fabric, 1)) == INFEASIBLE
    # With two contexts both run on one PE.
    assert isinstance(decide(problem(pair, fabric, 2)), Mapping)


def test_an_interval_that_is_refuted_is_named_and_makes_the_next_one_minimal() -> None:
    fabric = replace(load("mesh4x4", (1, 2)), links=())
    pair = Graph("pair", (Node(0, "op"), Node(1, "op")), (Edge(0, 1, 0, "I1"),), True)
    outcome = map_graph(pair, fabric)
    assert outcome.bound.mii == 1
    assert right(outcome).ii == 2
    assert outcome.proved_minimal
    assert [r.ii for r in outcome.refused] == [1]
    assert outcome.refused[0].why.startswith(f"{INFEASIBLE}; the best attempt left: ")
    assert "0 -> 1" in outcome.refused[0].why


def test_large_graphs_are_left_to_the_search() -> None:
    p = problem(generated(80, 1), load("mesh4x4"), 6, 6)
    assert not decidable(p)
