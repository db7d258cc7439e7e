"""Graphs with lanes on fabrics where some PEs have lanes: places, routes, configurations, launches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hw.errors import InputError
from hw.fabric import Fabric, PEKind, Unit, load
from hw.fabric.toml import regular
from sw.cgra.bounds import bound
from sw.cgra.encode import differences
from sw.cgra.exact import INFEASIBLE, decide
from sw.cgra.launch_arrays import ArrayExtent, copied_arrays
from sw.cgra.launch_merge import merge
from sw.cgra.launch_plan import plan
from sw.cgra.mapping import Hop, Mapping, Place, Register
from sw.cgra.problem import allowed_pes, problem
from sw.cgra.search import map_graph
from sw.dfg.graph import Edge, Graph, Memory, Node, Output
from sw.dfg.json import load_graph
from sw.dfg.kernel import Array, HostLoop, Kernel, Launch, launches_in
from sw.dfg.python import parse_kernel
from sw.dfg.transform import fuse_constants, store_outputs
from sw.dfg.unroll import unroll
from sw.kernels.mappings import structure
from tests.sw.cgra.random_fabrics import random_fabric
from tests.sw.cgra.random_loops import random_loop
from tests.sw.cgra.right import SMALL, right
from tests.sw.cgra.test_launch_plan import check
from tests.sw.cgra.test_mapper import DFG

ONE = PEKind("one", frozenset({Unit.ALU, Unit.MULTIPLIER, Unit.MEMORY}))
SEVERAL = replace(ONE, name="several", units=ONE.units | {Unit.LANES}, lanes=4)


def grid(rows: str, pipelined: bool = False) -> Fabric:
    """A mesh: `1` is a PE of one lane, `4` one of four."""
    lines = rows.split()
    kinds = tuple(SEVERAL if c == "4" else ONE for line in lines for c in line)
    size = len(lines), len(lines[0])
    return Fabric("grid", *size, kinds, tuple(sorted(regular("mesh", *size))), pipelined=pipelined)


def passes(mapping: Mapping) -> None:
    """Wide values are made, read and kept where there are lanes."""
    graph, fabric = mapping.graph, mapping.fabric
    for number, hops in mapping.routes.items():
        edge = graph.edges[number]
        if edge.source in graph.wide:
            ends = {mapping.places[end].pe for end in (edge.source, edge.target)}
            on = ends.union(*({hop.register.pe, hop.register.reader(fabric)} for hop in hops))
            assert {fabric.kinds[pe].lanes for pe in on} == {graph.lanes}


@pytest.mark.parametrize("first", range(0, 64, 16))
def test_random_graphs_on_random_fabrics(first: int) -> None:
    mapped = 0
    for seed in range(first, first + 16, 2):
        lanes = 2 << seed // 2 % 2
        graph = fuse_constants(store_outputs(random_loop(seed, lanes).kernel.loops[0].graph, "results"))
        try:
            outcome = map_graph(graph, random_fabric(seed, lanes), budget=SMALL[:1])
        except InputError as error:
            assert "needs a PE with" in str(error)  # noqa: PT017
            continue
        if outcome.mapping is not None:
            passes(right(outcome))
            mapped += 1
    assert mapped >= 2


PAIR = Graph("pair", (Node("l", "lane"), Node("a", "add", 1)), (Edge("l", "a"),), lanes=4)


def test_a_value_that_passes_a_pe_of_one_lane_is_reported() -> None:
    fabric = grid("414")
    first, second = (Register("link", pe, fabric.outgoing[pe][-1]) for pe in (0, 1))
    routes = {0: (Hop(first, 1), Hop(second, 2))}
    spoiled = Mapping(PAIR, fabric, 1, {"l": Place(0, 0), "a": Place(2, 2)}, routes)
    assert differences(spoiled) == (
        "node a (add), add in PE (0,2), step 2: operand a must be node l, 0 iterations before, "
        "with lanes = 4, not node l, 0 iterations before, with lanes = 1",
    )
    assert differences(replace(spoiled, fabric=grid("444"))) == ()
    assert len(differences(replace(spoiled, fabric=grid("441")))) == 1
    other = differences(replace(spoiled, graph=replace(PAIR, lanes=2), fabric=grid("444")))
    assert "lanes must be 2, not 4" in other[0]


@pytest.mark.parametrize(("rows", "found"), [("414", False), ("414 444", True), ("444 111", True)])
def test_a_constraint_program_keeps_wide_values_in_lanes(rows: str, found: bool) -> None:
    # One PE has no room for all three nodes.
    graph = Graph(
        "three",
        (*PAIR.nodes, Node("b", "add", 2)),
        (Edge("l", "a"), Edge("a", "b"), Edge("b", "a", 2, "P", initial=(1, 1))),
        lanes=4,
    )
    decided = decide(problem(graph, grid(rows), 2, extra=4))
    assert (decided == INFEASIBLE) != found
    if isinstance(decided, Mapping):
        passes(decided)
        assert differences(decided) == ()


def test_what_is_the_same_in_all_lanes_may_be_anywhere() -> None:
    nodes = (
        *PAIR.nodes,
        Node("s", "sum_lanes"),
        Node("c", "add", 1),
        Node("o", "store", 0, memory=Memory("y")),
    )
    edges = (Edge("l", "a"), Edge("a", "s"), Edge("s", "c"), Edge("a", "o", 0, "I2"))
    graph = Graph("g", nodes, edges, lanes=4)
    allowed = dict(zip("lasco", allowed_pes(graph, grid("14")).tolist(), strict=True))
    assert allowed == {n: [n == "c", True] for n in "lasco"}
    passes(right(map_graph(graph, grid("14"), budget=SMALL)))
    assert bound(graph, grid("14")).why == "4 operations on 1 PEs with alu and 4 lanes"
    assert structure(graph).lanes == 4


@pytest.mark.parametrize("lanes", [1, 2, 8])
def test_fabrics_of_other_lanes_are_refused(lanes: int) -> None:
    kind = replace(SEVERAL, lanes=lanes, units=ONE.units)
    fabric = replace(grid("44"), kinds=(kind, kind))
    expected = f"graph 'pair': works on 4 lanes, the PEs of fabric 'grid' have {lanes}$"
    with pytest.raises(InputError, match=expected):
        map_graph(PAIR, fabric)


def test_no_pe_has_unit_and_lanes() -> None:
    fabric = replace(grid("41"), kinds=(replace(SEVERAL, units=ONE.units - {Unit.MEMORY}), ONE))
    graph = Graph("g", (Node("v", "load_lanes", 0, memory=Memory("x")),), (), lanes=4)
    expected = r"node v \(load_lanes\): needs a PE with memory and 4 lanes, fabric 'grid' has none"
    with pytest.raises(InputError, match=expected):
        map_graph(graph, fabric)


@pytest.mark.parametrize("preset", ["mesh4x4", "small3x3"])
def test_graphs_of_one_lane_are_mapped_as_if_there_were_no_others(preset: str) -> None:
    fabric = load(preset)
    wide = replace(fabric, kinds=tuple(replace(kind, lanes=4) for kind in fabric.kinds))
    mixed = replace(
        fabric, kinds=tuple(replace(k, lanes=1 + 3 * (i % 2)) for i, k in enumerate(fabric.kinds))
    )
    graph = load_graph(DFG / "conv3.json")
    found = [map_graph(graph, f, budget=SMALL[:1]).found for f in (fabric, wide, mixed)]
    assert found[0].places == found[1].places == found[2].places
    assert found[0].routes == found[1].routes == found[2].routes


# Kernels

SUMS = """
LANES = 4

def f(n, x, y, p):
    acc = 0
    total = 0
    for i in range(n):
        v = load_lanes(x, 4 * i) * p
        store_lanes(y, 4 * i, v)
        acc += v
        total = sum_lanes(acc)
    return total
"""
ROWS = """
LANES = 4

def f(n, x, y, p):
    for r in range(n):
        total = p
        for i in range(2):
            total = total + sum_lanes(load_lanes(x, 8 * r + 4 * i))
        store_lanes(y, 4 * r, total + lane())
"""
BOTH = SUMS.replace("        acc", "        y[4 * i] = p\n        acc")


def arrays(count: int) -> dict[str, np.ndarray]:
    return {"x": np.arange(64, dtype=np.int32) - 20, "y": np.full(count, -1, np.int32)}


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("text", [SUMS, ROWS])
@pytest.mark.parametrize("pipelined", [False, True])
def test_kernels_with_lanes_are_planned_unrolled_and_mapped(text: str, times: int, pipelined: bool) -> None:
    kernel = parse_kernel(text, "f")
    fabric = grid("144 144 141", pipelined)
    for n in (0, 1, 4, 6):
        made = check(kernel, arrays(32), {"p": 3}, n, times)
        for launch in dict.fromkeys(launch.graph for launch in made.launches) if n == 6 else ():
            passes(right(map_graph(launch, fabric, budget=SMALL[:1])))
    for launch in kernel.loops:
        twice = unroll(fuse_constants(store_outputs(launch.graph, "results")), 2)
        passes(right(map_graph(twice, fabric, budget=SMALL[:1])))


def test_no_rest_of_iterations_that_hand_on_wide_values() -> None:
    made = plan(parse_kernel(SUMS, "f"), {"n": 5, "p": 2}, times=2)
    assert [
        len(launch.graph.wide) for launch in made.launches if not launch.graph.name.endswith("words")
    ] == [3]


@pytest.mark.parametrize(
    ("text", "length", "copied"), [(SUMS, 24, ()), (SUMS, 25, ("y",)), (SUMS, 28, ("y",)), (BOTH, 24, ("y",))]
)
def test_arrays_that_lanes_write_whole_are_not_copied(
    text: str, length: int, copied: tuple[str, ...]
) -> None:
    kernel: Kernel = parse_kernel(text, "f")
    extents = {"x": ArrayExtent("int32", 64), "y": ArrayExtent("int32", length)}
    assert copied_arrays(plan(kernel, {"n": 6, "p": 2}), extents) == copied


@pytest.mark.parametrize("node", ["l", "s"])
def test_straight_code_that_takes_lane_0_is_not_merged_into_a_loop(node: str) -> None:
    nodes, edges = (*PAIR.nodes, Node("s", "sum_lanes")), (*PAIR.edges, Edge("l", "s"))
    summed = Graph("loop", nodes, edges, outputs=(Output("v", node, 1, (0,)),), lanes=4)
    words = (Node("v", "const", scalar="v"), Node("o", "store", 0, memory=Memory("y")))
    stored = Graph("straight", words, (Edge("v", "o", 0, "I2"),))
    body = (HostLoop("r", "n", (Launch(summed, 3), Launch(stored, 1))),)
    kernel = Kernel("f", "<text>", (Array("y", False, True),), (), "n", body, ())
    (merged,) = merge(kernel, {"n": 2}).body
    assert isinstance(merged, HostLoop)
    assert [launch.graph.lanes for launch in launches_in((merged,))] == ([4, 1] if node == "l" else [4])
