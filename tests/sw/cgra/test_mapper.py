"""The mapper: mappings can be configured, implement the graph, are reproducible, and use all resources."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from heald.testing.graphs import generated
from hw.fabric import load
from sw.cgra.attempt import Effort
from sw.cgra.bounds import bound
from sw.cgra.embed import embed, smaller
from sw.cgra.encode import differences
from sw.cgra.mapping import Mapping
from sw.cgra.search import SearchEvent, map_graph
from sw.dfg.graph import Edge, Graph, Node, Output
from sw.dfg.json import load_graph
from sw.dfg.python import from_function
from sw.dfg.transform import fuse_constants, store_outputs
from sw.dfg.unroll import unroll
from tests.sw.cgra.right import SMALL, right
from tests.sw.dfg.reference import CASES, KERNELS

DFG = Path(__file__).parents[2] / "data" / "dfg"
#: Small graphs of every kind, and two that need repairs.
QUICK = ("sum", "mac", "conv2", "mults1", "2mm", "final_sad", "bicg_unroll3", "pedometer", "dct")
#: What may be missed: MII + 1 at most, with 115 operators on 16 PEs.
BEYOND = {("mesh4x4", "aes_encrypt"), ("torus4x4", "aes_encrypt")}


@pytest.mark.parametrize("name", QUICK)
def test_graphs_reach_the_least_interval_on_the_mesh(name: str) -> None:
    outcome = map_graph(load_graph(DFG / f"{name}.json"), load("mesh4x4"))
    assert right(outcome).ii == outcome.bound.mii == max(outcome.bound.res_mii, outcome.bound.rec_mii)
    assert outcome.proved_minimal
    assert outcome.refused == ()


@pytest.mark.slow
@pytest.mark.parametrize("fabric", ["mesh4x4", "torus4x4"])
@pytest.mark.parametrize("path", sorted(DFG.glob("*.json")), ids=lambda p: p.stem)
def test_all_benchmark_graphs(fabric: str, path: Path) -> None:
    outcome = map_graph(load_graph(path), load(fabric))
    found = right(outcome)
    assert found.ii <= outcome.bound.mii + ((fabric, path.stem) in BEYOND)
    assert outcome.proved_minimal == (found.ii == outcome.bound.mii)
    assert [r.ii for r in outcome.refused] == list(range(outcome.bound.mii, found.ii))


@pytest.mark.parametrize("name", CASES)
def test_python_kernels(name: str) -> None:
    fabric = load("mesh4x4")
    for launch in from_function(KERNELS, name).launches:
        found = right(map_graph(fuse_constants(store_outputs(launch.graph, "results")), fabric))
        assert found.ii <= bound(found.graph, fabric).mii + 1


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
    found = map_graph(graph, load(preset, (rows, cols)), budget=SMALL)
    assert right(found).ii >= found.bound.mii


@pytest.mark.parametrize("seed", range(4))
def test_groups_are_never_worse_than_flat_places_for_equal_budgets(seed: int) -> None:
    graph, fabric = generated(80, seed, parts=2), load("mesh4x4", (6, 6))
    tiny = ((2, Effort(300, 3, 500)), (2, Effort(1_000, 6, 2_000)))
    groups, flat = (map_graph(graph, fabric, seed=seed, flat=f, budget=tiny) for f in (False, True))
    assert (groups.attempts[0].stage == "groups") == (groups.bound.rec_mii < groups.bound.res_mii)
    assert all(a.stage.startswith("flat") for a in flat.attempts)
    assert right(groups).ii <= right(flat).ii
    tried = {(a.ii, a.effort, a.number, a.left) for a in flat.attempts}
    both = {(a.ii, a.effort, a.number, a.left) for a in groups.attempts if a.stage == "flat"}
    assert all(a in tried or a[0] < right(flat).ii for a in both)


def test_no_attempt_is_made_twice() -> None:
    tiny = ((2, Effort(20, 1, 20)), (2, Effort(100, 2, 100)))
    outcome = map_graph(generated(60, 5), load("mesh4x4", (4, 4)), budget=tiny)
    made = [(a.ii, a.stage, a.effort, a.number) for a in outcome.attempts]
    assert len(made) == len(set(made)) > 1


def test_a_larger_mesh_is_not_worse() -> None:
    graph = unroll(load_graph(DFG / "conv3.json"), 2)
    tiny = ((1, Effort(200, 3, 200)), (1, Effort(1_500, 6, 2_000)))
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
    assert differences(moved) == ()


@pytest.mark.slow
def test_what_was_tried_is_recorded_with_what_stood_in_the_way() -> None:
    # Sixteen PEs of full use in one step: the values cannot pass each other in one context.
    nodes = tuple(Node(i, "op") for i in range(16))
    edges = tuple(
        Edge(i, j, 0, f"I{k + 1}") for i in range(15) for k, j in enumerate((i + 1, i + 7)) if j < 16
    )
    graph = Graph("full", nodes, edges, True)
    events: list[SearchEvent] = []
    outcome = map_graph(graph, load("mesh4x4"), budget=SMALL, report=events.append)
    found = right(outcome)
    assert found.ii > outcome.bound.mii == 1
    assert not outcome.proved_minimal
    assert [r.ii for r in outcome.refused] == list(range(1, found.ii))
    tried = [a for a in outcome.attempts if a.ii == 1]
    work = f"{sum(a.proposals for a in tried)} proposals and {sum(a.moves for a in tried)} routed moves"
    assert outcome.refused[0].why.startswith(f"not found within {work}; ")
    assert "overused" in outcome.refused[0].why or "lacks" in outcome.refused[0].why
    assert len(events) == len(outcome.attempts)
    assert all(attempt.why for attempt in outcome.attempts if attempt.left)


def test_a_mapping_that_is_not_right_is_an_attempt_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Mapping] = []

    def first_is_wrong(mapping: Mapping) -> tuple[str, ...]:
        calls.append(mapping)
        return ("something",) if len(calls) == 1 else differences(mapping)

    monkeypatch.setattr("sw.cgra.search.differences", first_is_wrong)
    outcome = map_graph(load_graph(DFG / "conv3.json"), load("mesh4x4"), budget=SMALL)
    assert outcome.attempts[0].why == "the mapping is wrong: something"
    assert outcome.attempts[0].left == 1
    assert right(outcome).places != calls[0].places


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


def test_an_output_of_a_graph_does_not_hinder() -> None:
    nodes = (Node("a", "add", 1),)
    edges = (Edge("a", "a", 1, "I1", initial=(0,)),)
    graph = Graph("g", nodes, edges, outputs=(Output("r", "a", 1, (0,)),))
    assert right(map_graph(store_outputs(graph, "r"), load("mesh4x4"))).ii == 1
