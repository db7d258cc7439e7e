"""Meaning of the operations, unrolling of distances, order implied by other order."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hw.errors import InputError
from hw.fabric import Unit
from hw.fabric.operations import LOADS, STORES
from hw.semantics import quantisation, wrap
from sw.dfg.graph import Edge, Graph, Memory, Node, Output
from sw.dfg.interpret import run_graph
from sw.dfg.json import load_graph
from sw.dfg.operations import (
    OPERATIONS,
    clz,
    mul_shift_round,
    mul_shift_round_even,
    shift_right_logical,
)
from sw.dfg.python import parse_kernel
from sw.dfg.transform import dead_code, drop_implied_order, fuse_constants
from sw.dfg.unroll import unroll
from tests.sw.dfg.test_graph import FILES

WORDS = st.integers(-(2**31), 2**31 - 1)


@given(WORDS, WORDS, st.integers(0, 63))
def test_products_round_exactly(a: int, b: int, shift: int) -> None:
    exact = Fraction(a * b, 2**shift)
    assert mul_shift_round_even(a, b, shift) == wrap(round(exact))
    assert mul_shift_round(a, b, shift) == wrap((exact + Fraction(1, 2)).__floor__())


def test_halves_go_up_or_to_the_even_neighbour() -> None:
    products = (-5, -3, -1, 1, 3, 5)
    assert [mul_shift_round(p, 1, 1) for p in products] == [-2, -1, 0, 1, 2, 3]
    assert [mul_shift_round_even(p, 1, 1) for p in products] == [-2, -2, 0, 0, 2, 2]
    assert mul_shift_round(7, 9, 0) == mul_shift_round_even(7, 9, 0) == 63


@given(WORDS, st.integers(0, 31))
def test_logical_shifts_and_leading_zeros(a: int, shift: int) -> None:
    assert shift_right_logical(a, shift) == wrap((a % 2**32) // 2**shift)
    assert clz(a) == f"{a % 2**32:032b}".find("1") % 33
    assert OPERATIONS["abs"].meaning(a) == (a if a >= 0 or a == -(2**31) else -a)


def test_latencies_and_units_are_those_of_the_specification() -> None:
    two = {name for name, operation in OPERATIONS.items() if operation.latency == 2}
    across = {"sum_lanes", "max_lanes", "shift_lanes", "even_lanes", "odd_lanes"}
    assert (
        two
        == {
            "mul",
            "mul_shift_round",
            "mul_shift_round_even",
            "load",
            "load_lanes",
            "table",
            "requantise",
            "requantise_even",
            "requantise_sum",
            "requantise_sum_even",
        }
        | across
    )
    assert {o.name for o in OPERATIONS.values() if o.unit is Unit.MEMORY} == {*LOADS, *STORES}
    assert {o.name for o in OPERATIONS.values() if o.unit is Unit.LANES} == across


def test_every_operation_runs_with_any_one_operand_as_immediate() -> None:
    for name, operation in OPERATIONS.items():
        if operation.meaning is None:
            continue
        for place in range(operation.operands):
            values = (7, -3, 2)[: operation.operands]
            sources = [Node(f"v{i}", "const", v) for i, v in enumerate(values) if i != place]
            edges = [Edge(f"v{i}", "r", 0, f"I{i + 1}") for i in range(len(values)) if i != place]
            nodes = (*sources, Node("r", name, const=values[place]))
            if operation.constant:
                with pytest.raises(InputError, match=f"needs I{place + 1}"):
                    Graph("g", nodes, tuple(edges))
                continue
            graph = Graph("g", nodes, tuple(edges), outputs=(Output("r", "r", 1, (0,)),))
            assert run_graph(graph, {}, {}, 1) == {"r": operation.meaning(*values)}


def test_the_quantisation_of_a_sum_is_an_immediate() -> None:
    sources = [Node(f"v{i}", "const", v) for i, v in enumerate((-700, 3, 690))]
    edges = tuple(Edge(f"v{i}", "r", 0, f"I{i + 1}") for i in range(3))
    for name in ("requantise_sum", "requantise_sum_even"):
        node = Node("r", name, const=quantisation(2, 5, -128, 127))
        graph = Graph("g", (*sources, node), edges, outputs=(Output("r", "r", 1, (0,)),))
        # -30 / 4 is -7.5: -7 rounded up, -8 rounded to even.
        assert run_graph(graph, {}, {}, 1) == {"r": -2 if name == "requantise_sum" else -3}
        with pytest.raises(InputError, match="an immediate, its quantisation"):
            replace(graph, nodes=(*sources, replace(node, const=None)))


def test_the_quantisation_of_a_sum_must_not_change_in_the_loop() -> None:
    text = "def f(n, a, q):\n    for i in range(n):\n        a[i] = requantise_sum_even(a[i], 3, i, {})\n"
    (launch,) = parse_kernel(text.format("q"), "f").launches
    (node,) = (n for n in launch.graph.nodes if n.op == "requantise_sum_even")
    assert node.scalar == "q"
    with pytest.raises(InputError, match="a parameter that the loop does not change"):
        parse_kernel(text.format("i"), "f")


def test_a_value_whose_predicate_does_not_hold_is_0() -> None:
    nodes = (Node("i", "add", const=1), Node("p", "gt", const=1), Node("v", "add", const=10))
    edges = (Edge("i", "i", 1, initial=(-1,)), Edge("i", "p"), Edge("i", "v"), Edge("p", "v", 0, "P", True))
    graph = Graph("g", nodes, edges, outputs=(Output("v", "v", 1, (5,)),))
    assert [run_graph(graph, {}, {}, n)["v"] for n in range(4)] == [5, 10, 11, 0]


def delays(distance: int, initial: tuple[int, ...]) -> Graph:
    """Stores what the counter was some iterations ago."""
    nodes = (Node("i", "add", const=1), Node("s", "store", memory=Memory("y")))
    edges = (
        Edge("i", "i", 1, initial=(-1,)),
        Edge("i", "s"),
        Edge("i", "s", distance, "I2", initial=initial),
    )
    return Graph("g", nodes, edges, outputs=(Output("last", "i", distance, initial),))


@given(st.integers(1, 7), st.integers(1, 6), st.integers(0, 5))
def test_unrolling_keeps_values_from_far_back(distance: int, times: int, count: int) -> None:
    initial = tuple(range(100, 100 + distance))
    graph = delays(distance, initial)
    unrolled = unroll(graph, times)
    once, more = [0] * 40, [0] * 40
    last = run_graph(graph, {"y": once}, {}, times * count)
    assert run_graph(unrolled, {"y": more}, {}, count) == last
    assert once == more
    assert len(unrolled.nodes) == times * len(graph.nodes)


def test_unrolling_is_bounded() -> None:
    with pytest.raises(InputError, match=r"times to unroll must be 1 to 8192 for 2 operations, not 8193"):
        unroll(delays(1, (0,)), 8193)
    with pytest.raises(InputError, match=r"must be 1 to"):
        unroll(delays(1, (0,)), 0)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_opaque_graphs_unroll(path) -> None:
    graph = load_graph(path)
    unrolled = unroll(graph, 3)
    assert len(unrolled.nodes) == 3 * len(graph.nodes)
    assert len(unrolled.edges) == 3 * len(graph.edges)
    assert sum(e.distance for e in unrolled.edges) == sum(e.distance for e in graph.edges)
    assert dead_code(graph) is graph
    assert fuse_constants(graph) is graph


def test_order_that_follows_is_left_out() -> None:
    nodes = tuple(Node(i, "store") for i in range(4))
    chain = (Edge(0, 1, 0, "M"), Edge(1, 2, 0, "M"))
    extra = (
        Edge(0, 2, 0, "M"),
        Edge(0, 2, 1, "M"),
        Edge(2, 2, 1, "M"),
        Edge(2, 0, 1, "M"),
        Edge(2, 0, 2, "M"),
    )
    graph = drop_implied_order(Graph("g", nodes, (*chain, *extra), opaque=True))
    assert graph.edges == (*chain, Edge(2, 0, 1, "M"))
