"""Induction variables of unrolled loops: the same values, in a recurrence of one step."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sw.dfg.graph import Edge, Graph, Memory, Node, Output
from sw.dfg.interpret import run_graph
from sw.dfg.python import parse_kernel
from sw.dfg.recurrence import critical_cycle
from sw.dfg.transform import fuse_constants
from sw.dfg.unroll import unroll

WORDS = st.integers(-(2**31), 2**31 - 1)
SIZE = 40


def counted(variable: Node, *edges: Edge, extra: tuple[Node, ...] = ()) -> Graph:
    """Stores the values of the node `v`, and those of two iterations before, by iteration."""
    nodes = (
        Node("i", "add", const=1),
        *extra,
        variable,
        Node("y", "store", memory=Memory("y")),
        Node("z", "store", memory=Memory("z")),
    )
    stores = (
        Edge("i", "i", 1, initial=(-1,)),
        Edge("i", "y"),
        Edge("v", "y", 0, "I2"),
        Edge("i", "z"),
        Edge("v", "z", 2, "I2", initial=(11, "before")),
    )
    return Graph("g", nodes, (*stores, *edges), outputs=(Output("last", "v", 1, ("start",)),))


def run(graph: Graph, count: int, start: int) -> tuple[list[int], list[int], dict[str, int]]:
    y, z = [0] * SIZE, [0] * SIZE
    results = run_graph(graph, {"y": y, "z": z}, {"start": start, "before": 12}, count)
    return y, z, dict(results)


def from_itself(operand: str = "I1") -> Edge:
    return Edge("v", "v", 1, operand, initial=("start",))


def variants(step: int) -> dict[str, Graph]:
    number = Node("c", "const", const=step)
    return {
        "add": counted(Node("v", "add", const=step), from_itself()),
        "added to": counted(Node("v", "add", const=step), from_itself("I2")),
        "sub": counted(Node("v", "sub", const=step), from_itself()),
        "add of a node": counted(Node("v", "add"), from_itself("I2"), Edge("c", "v"), extra=(number,)),
        "sub of a node": counted(Node("v", "sub"), from_itself(), Edge("c", "v", 0, "I2"), extra=(number,)),
    }


@given(WORDS, WORDS, st.integers(2, 6), st.integers(0, 5))
def test_an_induction_variable_has_the_same_values_in_a_recurrence_of_one_step(
    step: int, start: int, times: int, count: int
) -> None:
    for name, graph in variants(step).items():
        unrolled = unroll(graph, times)
        assert run(unrolled, count, start) == run(graph, count * times, start), name
        cycle = critical_cycle(unrolled)
        assert (sum(unrolled.delay(e) for e in cycle), sum(e.distance for e in cycle)) == (1, 1), name
        assert len(unrolled.nodes) == times * len(graph.nodes)


def others() -> dict[str, Graph]:
    three = Node("c", "const", const=3)
    odd = Node("p", "and", const=1)
    scalar = Node("c", "const", scalar="before")
    return {
        "subtracted from a number": counted(Node("v", "sub", const=3), from_itself("I2")),
        "predicated": counted(
            Node("v", "add", const=3), from_itself(), Edge("p", "v", 0, "P"), Edge("i", "p"), extra=(odd,)
        ),
        "number that is predicated": counted(
            Node("v", "add"),
            from_itself(),
            Edge("c", "v", 0, "I2"),
            Edge("p", "c", 0, "P"),
            Edge("i", "p"),
            extra=(odd, three),
        ),
        "number of the iteration before": counted(
            Node("v", "add"), from_itself(), Edge("c", "v", 1, "I2", initial=(5,)), extra=(three,)
        ),
        "scalar": counted(Node("v", "add"), from_itself(), Edge("c", "v", 0, "I2"), extra=(scalar,)),
        "scalar immediate": counted(Node("v", "add", scalar="before"), from_itself()),
        "doubled": counted(Node("v", "add"), from_itself(), from_itself("I2")),
        "two iterations back": counted(
            Node("v", "add", const=3), Edge("v", "v", 2, initial=("start", "before"))
        ),
        "its own predicate": counted(
            Node("v", "add", const=3), from_itself(), Edge("v", "v", 1, "P", initial=(1,))
        ),
        "multiplied": counted(Node("v", "mul", const=3), from_itself()),
    }


@pytest.mark.parametrize("name", list(others()))
def test_what_is_no_induction_variable_keeps_its_meaning(name: str) -> None:
    graph = others()[name]
    for times in (2, 3, 5):
        for count in range(4):
            assert run(unroll(graph, times), count, 7) == run(graph, count * times, 7)


def test_a_loop_without_other_recurrences_has_a_bound_of_1() -> None:
    text = """
def f(n, x, y):
    place = 100
    for i in range(n):
        place -= 3
        y[i] = x[i] + place
"""
    graph = parse_kernel(text, "f").loops[0].graph
    for times in (2, 4, 8):
        unrolled = fuse_constants(unroll(graph, times))
        cycle = critical_cycle(unrolled)
        assert sum(unrolled.delay(e) for e in cycle) == sum(e.distance for e in cycle)
        # Per copy: two variables, a load, an addition, a store.
        assert len(unrolled.nodes) == 5 * times


def test_order_of_accesses_is_kept_where_addresses_come_from_induction_variables() -> None:
    text = """
def f(n, x):
    for i in range(n):
        x[i + 3] = x[i] + 1
"""
    graph = parse_kernel(text, "f").loops[0].graph
    for times in (2, 3, 4):
        unrolled = unroll(graph, times)
        orders = {(e.source, e.target, e.distance) for e in unrolled.edges if e.operand == "M"}
        store = next(n.id for n in graph.nodes if n.op == "store")
        load = next(n.id for n in graph.nodes if n.op == "load")
        # What copy 0 stores is loaded three iterations later.
        back, copy = divmod(3, times)
        assert (f"{store}.0", f"{load}.{copy}", back) in orders
