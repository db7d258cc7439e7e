"""Graphs are prepared so that configuration entries can hold them, on PEs with the needed units."""

from __future__ import annotations

import pytest

from hw.errors import InputError
from hw.fabric import Fabric, Link, PEKind, Unit, load
from sw.cgra.bounds import bound
from sw.cgra.legal import prepare, starts
from sw.cgra.search import map_graph
from sw.dfg.graph import ORDER, Edge, Graph, Memory, Node
from sw.dfg.interpret import run_graph
from tests.sw.cgra.right import right


def carried(initial: tuple[int, ...], others: tuple[int, ...] = ()) -> Graph:
    """A counter, and a sum of what it was some iterations ago; stored."""
    nodes = (
        Node("i", "add", 1),
        Node("s", "add"),
        Node("out", "store", memory=Memory("y")),
    )
    edges = (
        Edge("i", "i", 1, "I1", initial=(-1,)),
        Edge("i", "s", len(initial), "I1", initial=initial),
        Edge("i", "s", len(others), "I2", initial=others),
        Edge("i", "out", 0, "I1"),
        Edge("s", "out", 0, "I2"),
    )
    return Graph("carried", nodes, edges)


@pytest.mark.parametrize(
    ("initial", "others"),
    [
        ((5,), ()),
        ((5, 5), ()),
        ((5, 6), ()),
        ((5,), (6,)),
        ((5, 5, 6), (5, 5)),
        ((1,) * 9, (2, 3)),
        ((4, 4, 4, 5, 5, 6, 6, 6), (4, 4, 4)),
    ],
)
def test_prepared_graphs_mean_the_same_and_fit_entries(
    initial: tuple[int, ...], others: tuple[int, ...]
) -> None:
    graph, fabric = carried(initial, others), load("mesh4x4")
    legal = prepare(graph, fabric)
    for node in legal.nodes:
        held = starts(legal, node.id)
        assert len(held) <= 1
        assert all(count <= 7 for count, _ in held)
    for edge in legal.edges:
        assert len(set(edge.initial)) <= 1
    for count in (1, 2, 3, 12):
        results = []
        for g in (graph, legal):
            words = [0] * 16
            run_graph(g, {"y": words}, {}, count)
            results.append(words)
        assert results[0] == results[1]
    found = right(map_graph(graph, fabric))
    assert {n.op for n in found.graph.nodes} <= {"add", "store", "mov"}


def test_a_graph_that_fits_stays_as_it_is() -> None:
    graph = carried((5,), (5,))
    assert prepare(graph, load("mesh4x4")) is graph


def test_a_table_with_a_constant_index_gets_a_constant() -> None:
    nodes = (Node("t", "table", 1, memory=Memory("words")), Node("s", "store", 0, memory=Memory("y")))
    graph = Graph("t", nodes, (Edge("t", "s", 0, "I2"),), tables=(("words", (3, 4)),))
    legal = prepare(graph, load("mesh4x4"))
    assert [n.op for n in legal.nodes] == ["const", "table", "store"]
    assert right(map_graph(graph, load("mesh4x4"))).ii == 1


def test_edges_over_more_iterations_than_there_are_registers_are_refused() -> None:
    far = Graph("far", (Node(0, "op"), Node(1, "op")), (Edge(0, 1, 10_000),), True)
    with pytest.raises(InputError, match=r"edge 0 to 1: the distance must be at most \d+, one iteration"):
        prepare(far, load("mesh4x4"))


def test_opaque_operators_take_three_operands_and_a_predicate() -> None:
    nodes = tuple(Node(i, "op") for i in range(5))
    many = Graph("many", nodes, tuple(Edge(i, 4) for i in range(4)), True)
    with pytest.raises(InputError, match="at most 3 and 1, not 4 data operands and 0 predicates"):
        prepare(many, load("mesh4x4"))


def test_operations_go_to_pes_that_have_their_units_and_tables() -> None:
    alu = PEKind("alu", frozenset({Unit.ALU}))
    multiplier = PEKind("multiplier", frozenset({Unit.MULTIPLIER, Unit.ALU}), registers=0)
    table = PEKind("table", frozenset({Unit.TABLE}), registers=1, table_words=3)
    memory = PEKind("memory", frozenset({Unit.MEMORY, Unit.ALU}), registers=2)
    mesh = load("mesh4x4", (2, 4))
    kinds = (memory, alu, multiplier, table, memory, alu, alu, table)
    fabric = Fabric("kinds", 2, 4, kinds, mesh.links, contexts=8)
    nodes = (
        Node("i", "add", 1),
        Node("x", "load", memory=Memory("x")),
        Node("t", "table", memory=Memory("a")),
        Node("u", "table", memory=Memory("b")),
        Node("m", "mul"),
        Node("s", "store", memory=Memory("y")),
    )
    edges = (
        Edge("i", "i", 1, "I1", initial=(-1,)),
        Edge("i", "x", 0, "I1"),
        Edge("x", "t", 0, "I1"),
        Edge("x", "u", 0, "I1"),
        Edge("t", "m", 0, "I1"),
        Edge("u", "m", 0, "I2"),
        Edge("i", "s", 0, "I1"),
        Edge("m", "s", 0, "I2"),
    )
    # Both tables together do not fit into one memory of three words.
    graph = Graph("kinds", nodes, edges, tables=(("a", (1, 2)), ("b", (3, 4))))
    found = right(map_graph(graph, fabric))
    assert {found.places[n].pe for n in ("t", "u")} == {3, 7}
    assert found.places["m"].pe == 2
    assert {found.places[n].pe for n in ("x", "s")} <= {0, 4}


def test_a_unit_that_is_missing_is_named() -> None:
    alu = PEKind("alu", frozenset({Unit.ALU}))
    fabric = Fabric("plain", 1, 2, (alu, alu), (Link(0, 1), Link(1, 0)))
    with pytest.raises(InputError, match=r"node 0 \(load\): needs a PE with memory, fabric 'plain' has none"):
        map_graph(Graph("g", (Node(0, "load"),), (), True), fabric)


def test_the_bound_counts_what_only_some_pes_execute() -> None:
    nodes = tuple(Node(i, "load" if i < 9 else "op") for i in range(20))
    found = bound(Graph("g", nodes, (), True), load("mesh4x4"))
    assert (found.res_mii, found.rec_mii, found.mii) == (3, 1, 3)
    assert found.why == "9 operations on 4 PEs with memory"


def test_order_of_accesses_counts_in_steps_only() -> None:
    nodes = (
        Node("a", "store", 1, memory=Memory("y")),
        Node("b", "store", 2, memory=Memory("y")),
        Node("i", "const", 3),
    )
    edges = (
        Edge("i", "a", 0, "I1"),
        Edge("i", "b", 0, "I1"),
        Edge("a", "b", 0, ORDER),
        Edge("b", "a", 1, ORDER),
    )
    found = right(map_graph(Graph("order", nodes, edges), load("mesh4x4")))
    assert found.ii == 2
    assert found.places["b"].step > found.places["a"].step
    assert set(found.routes) == {0, 1}
