"""The mapper: what it finds can be configured and means the graph, is repeatable and uses what there is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hw.errors import InputError
from hw.fabric import Fabric, Kind, Link, Unit, load
from hw.fabric.bitstream import ArrayEntry, encode
from sw.cgra.assign import assign, clusters
from sw.cgra.attempt import Effort
from sw.cgra.bounds import bound
from sw.cgra.check import check
from sw.cgra.embed import embed, smaller
from sw.cgra.encode import configuration
from sw.cgra.groups import partition, threshold_for
from sw.cgra.legal import prepare, starts
from sw.cgra.mapping import Hop, Mapping, Place
from sw.cgra.problem import problem
from sw.cgra.resources import resources
from sw.cgra.search import Budget, Event, Outcome, map_graph
from sw.cgra.verify import verify
from sw.dfg.graph import ORDER, Edge, Graph, Memory, Node, Output
from sw.dfg.interpret import run_graph
from sw.dfg.json import load_graph
from sw.dfg.kernel import HostLoop, Launch, Step
from sw.dfg.python import from_function
from sw.dfg.transform import fuse_constants, store_outputs
from sw.dfg.unroll import unroll
from tests.sw.cgra.generated import generated
from tests.sw.dfg.reference import CASES, KERNELS

DFG = Path(__file__).parents[2] / "data" / "dfg"
#: Small graphs of every kind, and two that need repairs.
QUICK = ("sum", "mac", "conv2", "mults1", "2mm", "final_sad", "bicg_unroll3", "pedometer", "dct")
#: What may be missed: MII + 1 at most, with 115 operators on 16 PEs.
BEYOND = {("mesh4x4", "aes_encrypt"), ("torus4x4", "aes_encrypt")}
SMALL = Budget(((3, Effort(1_500, 12, 6_000)), (3, Effort(6_000, 12, 20_000))))


def right(outcome: Outcome) -> Mapping:
    """The mapping, checked, encoded, decoded and compared."""
    found = outcome.mapping
    assert found is not None
    assert check(found) == []
    scalars = {name: i % 14 for i, name in enumerate(outcome.graph.scalars)}
    words = encode(configuration(found, scalars=scalars))
    assert verify(outcome.graph, words, found.fabric, scalars=scalars) == []
    return found


@pytest.mark.parametrize("name", QUICK)
def test_graphs_reach_the_least_interval_on_the_mesh(name: str) -> None:
    outcome = map_graph(load_graph(DFG / f"{name}.json"), load("mesh4x4"))
    assert right(outcome).ii == outcome.mii == max(outcome.res_mii, outcome.rec_mii)
    assert outcome.proved_minimal
    assert outcome.refused == ()


@pytest.mark.slow
@pytest.mark.parametrize("fabric", ["mesh4x4", "torus4x4"])
@pytest.mark.parametrize("path", sorted(DFG.glob("*.json")), ids=lambda p: p.stem)
def test_all_benchmark_graphs(fabric: str, path: Path) -> None:
    outcome = map_graph(load_graph(path), load(fabric))
    found = right(outcome)
    assert found.ii <= outcome.mii + ((fabric, path.stem) in BEYOND)
    assert outcome.proved_minimal == (found.ii == outcome.mii)
    assert [r.ii for r in outcome.refused] == list(range(outcome.mii, found.ii))


def launches(body: tuple[Step, ...]) -> list[Graph]:
    found: list[Graph] = []
    for step in body:
        if isinstance(step, Launch):
            found.append(step.graph)
        elif isinstance(step, HostLoop):
            found += launches(step.body)
    return found


@pytest.mark.parametrize("name", CASES)
def test_python_kernels(name: str) -> None:
    fabric = load("mesh4x4")
    for graph in launches(from_function(KERNELS, name).body):
        found = right(map_graph(fuse_constants(store_outputs(graph, "results")), fabric))
        assert found.ii <= bound(found.graph, fabric).value + 1


def test_equal_seeds_give_equal_mappings_and_others_others() -> None:
    graph, fabric = load_graph(DFG / "gemm_nt.json"), load("mesh4x4")
    first, again, other = (map_graph(graph, fabric, seed=seed).mapping for seed in (3, 3, 4))
    assert first is not None
    assert first == again
    assert other is not None
    assert first.places != other.places


@pytest.mark.parametrize(("rows", "cols"), [(2, 3), (2, 5), (6, 3)])
@pytest.mark.parametrize("preset", ["mesh4x4", "torus4x4", "diagonal4x4", "mixed4x4"])
def test_generated_graphs_on_other_grids(preset: str, rows: int, cols: int) -> None:
    graph = generated(20, rows * 10 + cols)
    right(map_graph(graph, load(preset, (rows, cols)), budget=SMALL))


def test_groups_and_flat_on_a_large_grid() -> None:
    graph, fabric = generated(80, 1, parts=2), load("mesh4x4", (8, 8))
    stages = set()
    for flat in (False, True):
        outcome = map_graph(graph, fabric, flat=flat, budget=SMALL)
        right(outcome)
        stages.add(outcome.attempts[0].stage)
    assert stages == {"groups", "flat"}


def test_a_larger_mesh_is_not_worse() -> None:
    graph = unroll(load_graph(DFG / "conv3.json"), 2)
    tiny = Budget(((1, Effort(200, 3, 200)), (1, Effort(1_500, 6, 2_000))))
    intervals = []
    for size in (3, 4, 5, 6):
        outcome = map_graph(graph, load("mesh4x4", (size, size)), budget=tiny)
        intervals.append(right(outcome).ii)
    assert intervals == sorted(intervals, reverse=True)


def test_a_mapping_of_a_part_is_one_of_the_whole() -> None:
    whole = load("mesh4x4", (4, 5))
    part = smaller(whole)
    assert part is not None
    assert (part.rows, part.cols) == (4, 4)
    assert part.as_dict() != whole.as_dict()
    found = map_graph(load_graph(DFG / "cap.json"), part).mapping
    assert found is not None
    moved = embed(found, whole)
    assert moved.fabric is whole
    assert check(moved) == []
    assert verify(moved.graph, encode(configuration(moved)), whole) == []


def test_what_was_tried_is_recorded_with_what_stood_in_the_way() -> None:
    # Sixteen PEs of full use in one step: the values cannot pass each other in one context.
    nodes = tuple(Node(i, "op") for i in range(16))
    edges = tuple(
        Edge(i, j, 0, f"I{k + 1}") for i in range(15) for k, j in enumerate((i + 1, i + 7)) if j < 16
    )
    graph = Graph("full", nodes, edges, True)
    events: list[Event] = []
    outcome = map_graph(graph, load("mesh4x4"), budget=SMALL, report=events.append)
    found = right(outcome)
    assert found.ii > outcome.mii == 1
    assert not outcome.proved_minimal
    assert [r.ii for r in outcome.refused] == list(range(1, found.ii))
    assert "not found within" in outcome.refused[0].why
    assert "overused" in outcome.refused[0].why or "lacks" in outcome.refused[0].why
    assert len(events) == len(outcome.attempts)
    assert all(attempt.why for attempt in outcome.attempts if attempt.left)


def test_no_time_gives_no_mapping() -> None:
    outcome = map_graph(load_graph(DFG / "dct.json"), load("mesh4x4"), timeout=0.0)
    assert outcome.mapping is None
    assert not outcome.proved_minimal


def test_graphs_too_long_for_the_stages_are_not_mapped() -> None:
    fabric = replace(load("mesh4x4", (2, 2)), stages=2, contexts=2)
    chain = Graph(
        "chain", tuple(Node(i, "op") for i in range(8)), tuple(Edge(i, i + 1) for i in range(7)), True
    )
    assert map_graph(chain, fabric, budget=SMALL).mapping is None


def test_an_empty_graph() -> None:
    assert right(map_graph(Graph("empty", (), (), True), load("mesh4x4"))).ii == 1


# What the check notices


@pytest.fixture(scope="module")
def mapped() -> Mapping:
    return right(map_graph(load_graph(DFG / "array_add.json"), load("mesh4x4")))


def test_the_check_notices_places_that_are_taken_or_lack_the_unit(mapped: Mapping) -> None:
    first, second = list(mapped.places)[:2]
    both = replace(mapped, places={**mapped.places, first: mapped.places[second]})
    assert any("both on PE" in wrong for wrong in check(both))
    memory = next(n.id for n in mapped.graph.nodes if mapped.graph.unit(n).value == "memory port")
    moved = replace(mapped, places={**mapped.places, memory: Place(15, mapped.places[memory].step)})
    assert any("needs a PE with memory" in wrong for wrong in check(moved))


def test_the_check_notices_every_change_of_a_hop(mapped: Mapping) -> None:
    registers = {hop.register for hops in mapped.routes.values() for hop in hops}
    for number, hops in mapped.routes.items():
        for i, hop in enumerate(hops):
            for other in sorted(registers - {hop.register}, key=str)[::7]:
                changed = (*hops[:i], Hop(other, hop.step), *hops[i + 1 :])
                wrong = check(replace(mapped, routes={**mapped.routes, number: changed}))
                ways = verify_quietly(replace(mapped, routes={**mapped.routes, number: changed}))
                assert wrong or ways == []


def verify_quietly(mapping: Mapping) -> list[str]:
    """What the decoder finds in a mapping that the check accepts: another way of the same value."""
    return verify(mapping.graph, encode(configuration(mapping)), mapping.fabric) if not check(mapping) else []


def test_the_check_notices_a_route_that_is_late(mapped: Mapping) -> None:
    number, hops = next(iter(mapped.routes.items()))
    late = tuple(replace(hop, step=hop.step + 1) for hop in hops)
    assert any("must have hops" in w for w in check(replace(mapped, routes={**mapped.routes, number: late})))


# What entries can hold


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


# Kinds of PEs


def test_operations_go_to_pes_that_have_their_units_and_tables() -> None:
    alu = Kind("alu", frozenset({Unit.ALU}))
    multiplier = Kind("multiplier", frozenset({Unit.MULTIPLIER, Unit.ALU}), registers=0)
    table = Kind("table", frozenset({Unit.TABLE}), registers=1, table_words=3)
    memory = Kind("memory", frozenset({Unit.MEMORY, Unit.ALU}), registers=2)
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
    alu = Kind("alu", frozenset({Unit.ALU}))
    fabric = Fabric("plain", 1, 2, (alu, alu), (Link(0, 1), Link(1, 0)))
    with pytest.raises(InputError, match=r"node 0 \(load\): needs a PE with memory, fabric 'plain' has none"):
        map_graph(Graph("g", (Node(0, "load"),), (), True), fabric)


def test_the_bound_counts_what_only_some_pes_execute() -> None:
    nodes = tuple(Node(i, "load" if i < 9 else "op") for i in range(20))
    found = bound(Graph("g", nodes, (), True), load("mesh4x4"))
    assert (found.res, found.rec, found.value) == (3, 1, 3)
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


def test_arrays_and_scalars_that_are_missing_are_named(mapped: Mapping) -> None:
    nodes = (Node("c", "const", scalar="v"), Node("s", "store", 0, memory=Memory("y")))
    found = right(map_graph(Graph("g", nodes, (Edge("c", "s", 0, "I2"),)), load("mesh4x4")))
    with pytest.raises(InputError, match="there is no scalar 'v' in this launch"):
        configuration(found)
    with pytest.raises(InputError, match="there is no array 'y' in this launch"):
        configuration(found, {"x": ArrayEntry(1, 0, 0, 4)}, {"v": 0})


# Groups


@pytest.mark.parametrize("preset", ["mesh4x4", "torus4x4", "diagonal4x4"])
@pytest.mark.parametrize("threshold", [0, 1, 2, 4])
def test_groups_are_partitions_of_near_pes(preset: str, threshold: int) -> None:
    fabric = load(preset, (5, 6))
    hops = resources(fabric).distance
    found = {partition(fabric, threshold, variant) for variant in range(4)}
    for groups in found:
        assert sorted(pe for group in groups for pe in group) == list(range(fabric.size))
        assert all(hops[a, b] <= threshold for group in groups for a in group for b in group)
    assert len(found) > 1 or threshold == 0
    assert len(partition(fabric, threshold_for(fabric, 8))) <= 8


def test_operations_are_assigned_to_groups_that_have_their_units() -> None:
    fabric = load("mesh4x4", (6, 6))
    p = problem(generated(80, 2), fabric, 3, 6)
    groups = partition(fabric, threshold_for(fabric, 9))
    joined = clusters(p, 4, (0,))
    assert max(map(len, joined.members)) <= 4
    assert sorted(n for members in joined.members for n in members) == list(range(p.size))
    for work in (0.0, 0.2):
        of = assign(p, groups, joined, work)
        for n in range(p.size):
            assert p.allowed[n, list(groups[of[n]])].any()
        full = np.bincount(of, minlength=len(groups))
        assert all(full <= [len(group) * 3 for group in groups])


def test_an_output_of_a_graph_does_not_hinder() -> None:
    nodes = (Node("a", "add", 1),)
    edges = (Edge("a", "a", 1, "I1", initial=(0,)),)
    graph = Graph("g", nodes, edges, outputs=(Output("r", "a", 1, (0,)),))
    assert right(map_graph(store_outputs(graph, "r"), load("mesh4x4"))).ii == 1
