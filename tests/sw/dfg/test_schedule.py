"""Bounds of the initiation interval, and schedules that reach them."""

from __future__ import annotations

import random
from fractions import Fraction

import networkx
import pytest

from hw.errors import InputError
from sw.dfg.graph import Edge, Graph, Node
from sw.dfg.json import load_graph
from sw.dfg.recurrence import MII, Resources, critical_cycle, mii
from sw.dfg.schedule import Schedule, modulo_schedule, schedule, violations, windows
from tests.sw.dfg.test_graph import FILES, GRAPHS

GRID = Resources.of(16, memory=4)
#: ResMII and RecMII on 16 PEs with 4 memory ports.
BOUNDS = {
    "2mm": (3, 4),
    "accumulate": (2, 1),
    "adpcm_decoder": (6, 7),
    "aes_encrypt": (9, 9),
    "array_add": (2, 4),
    "atax": (3, 4),
    "bicg_unroll3": (6, 3),
    "cap": (2, 1),
    "compare_neighbours": (6, 3),
    "conv2": (1, 1),
    "conv3": (2, 1),
    "dct": (6, 3),
    "final_sad": (4, 4),
    "fix_fft": (4, 1),
    "gemm_nt": (4, 6),
    "mac": (1, 1),
    "mac2": (2, 1),
    "matrixmultiply": (1, 1),
    "mults1": (1, 4),
    "mults2": (2, 1),
    "needwun": (4, 14),
    "pedometer": (4, 4),
    "sum": (1, 1),
}


def test_the_bounds_of_the_benchmark_graphs() -> None:
    found = {path.stem: mii(load_graph(path), GRID) for path in FILES}
    assert {name: (bound.res, bound.rec) for name, bound in found.items()} == BOUNDS


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_the_benchmark_graphs_have_schedules_at_the_bound(path) -> None:
    graph = load_graph(path)
    found, bound = schedule(graph, GRID)
    assert violations(graph, GRID, found) == []
    assert found.ii == bound.value
    allowed = windows(graph, found.ii, found.length)
    assert all(w.earliest <= found.steps[n] <= w.latest for n, w in allowed.items())


def test_what_limits_is_named() -> None:
    assert mii(load_graph(GRAPHS / "dct.json"), GRID).why == "88 operations on 16 PEs"
    assert mii(load_graph(GRAPHS / "aes_encrypt.json"), GRID).why == "34 operations on 4 memory ports"
    graph = load_graph(GRAPHS / "mults1.json")
    bound = mii(graph, GRID)
    assert "the recurrence " in bound.why
    assert "of 4 steps over 1 iteration" in bound.why
    assert all(f"{node} ({graph.by_id[node].op})" in bound.why for node in bound.cycle)
    assert mii(Graph("g", (Node(0, "const", 1),), ()), GRID) == MII(1, 1, "nothing")


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


def test_random_graphs_get_schedules_without_violations() -> None:
    rng, at_bound = random.Random(6), 0
    for _ in range(100):
        graph = random_graph(rng)
        resources = Resources.of(rng.randint(1, 4), memory=rng.randint(1, 2))
        found, bound = schedule(graph, resources, seed=rng.randint(0, 3))
        assert violations(graph, resources, found) == []
        assert found.ii >= bound.value
        at_bound += found.ii == bound.value
    assert at_bound > 80


def test_equal_seeds_give_equal_schedules_and_others_differ() -> None:
    graph = load_graph(GRAPHS / "dct.json")
    runs = [modulo_schedule(graph, GRID, 6, seed) for seed in (0, 0, 1, 2)]
    assert None not in runs
    assert runs[0] == runs[1]
    assert len({tuple(run.steps.items()) for run in runs if run}) == 3


def test_violations_are_found() -> None:
    nodes = (Node(0, "load"), Node(1, "load"))
    graph = Graph("g", nodes, (Edge(0, 1),), opaque=True)
    one = Resources.of(4, memory=1)
    assert violations(graph, one, Schedule(2, {0: 0, 1: 1})) == []
    assert violations(graph, one, Schedule(2, {0: 0, 1: 2})) == [
        "2 operations on 1 memory port in step 0 modulo 2"
    ]
    assert violations(graph, one, Schedule(2, {0: 1, 1: 0})) == ["0 -> 1 (I1): step 0, not before 2"]


def test_below_the_bound_there_is_no_schedule() -> None:
    graph = load_graph(GRAPHS / "mults1.json")
    assert modulo_schedule(graph, GRID, 3) is None
    with pytest.raises(InputError, match="no schedule with an II of up to 3 was found; MII: the recurrence"):
        schedule(graph, GRID, highest=3)
    with pytest.raises(InputError, match=r"the recurrence .* needs more than II 3"):
        windows(graph, 3)


def test_missing_units_are_refused() -> None:
    with pytest.raises(InputError, match="3 operations need a memory port, there is none"):
        mii(load_graph(GRAPHS / "sum.json"), Resources.of(4, memory=0))
    with pytest.raises(InputError, match="the number of PEs must be at least 1, not 0"):
        Resources.of(0)


def test_slack_is_what_a_node_can_move() -> None:
    nodes = tuple(Node(i, "add") for i in range(4))
    graph = Graph("g", nodes, (Edge(0, 1), Edge(1, 2), Edge(3, 2, operand="I2")), opaque=True)
    found = windows(graph, 1)
    assert [found[i].slack for i in range(4)] == [0, 0, 0, 1]
    assert [found[i].latest for i in range(4)] == [0, 1, 2, 1]
    with pytest.raises(InputError, match="the length must be at least 3 at II 1, not 2"):
        windows(graph, 1, 2)
