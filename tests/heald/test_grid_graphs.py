"""Random graphs on random fabrics: mapped ones decode to their graph, others say why they have no mapping."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cosim.job import Outcome as Observed
from hw.fabric import Unit
from sw.cgra.search import SearchResult, map_graph
from sw.dfg.graph import ORDER, PREDICATE, Graph
from sw.dfg.interpret import run
from tests.fuzz import grid_graphs
from tests.fuzz.grid_graphs import LIMITS, Attempt, attempt, prove, small_fabrics
from tests.heald.conftest import Quick
from tests.sw.cgra.random_fabrics import random_fabric
from tests.sw.cgra.random_loops import random_loop

COUNT = 12


def test_random_graphs_on_random_fabrics() -> None:
    found = [attempt(seed) for seed in range(COUNT)]
    assert [(a.seed, a.faults, a.why) for a in found if a.faults] == []
    assert all(a.mapped == (not a.why) for a in found)
    assert sum(a.mapped for a in found) >= COUNT // 2
    assert {a.limit for a in found if not a.mapped} <= set(LIMITS)


@pytest.mark.parametrize("kind", ["number", "sense"])
def test_a_configuration_of_another_graph_is_a_fault(monkeypatch: Any, kind: str) -> None:
    def other(graph: Graph) -> Graph:
        """The graph with one number changed, or the sense of one predicate."""
        if kind == "number":
            node = next(n for n in graph.nodes if n.const is not None)
            assert node.const is not None
            changed = replace(node, const=node.const ^ 1)
            return replace(graph, nodes=tuple(changed if n is node else n for n in graph.nodes))
        edge = next(e for e in graph.edges if e.operand == PREDICATE)
        flipped = replace(edge, negated=not edge.negated)
        return replace(graph, edges=tuple(flipped if e is edge else e for e in graph.edges))

    def spoiled(graph: Graph, *given: Any, **named: Any) -> SearchResult:
        outcome = map_graph(other(graph), *given, **named)
        return replace(outcome, graph=graph, prepared=map_graph(graph, *given, **named).prepared)

    seed = next(s for s in range(0, 40, 2) if _predicated(found := attempt(s)) and found.mapped)
    monkeypatch.setattr(grid_graphs, "map_graph", spoiled)
    assert attempt(seed).faults


def _predicated(found: Attempt) -> bool:
    return any(e.operand == PREDICATE for e in found.graph.edges)


def test_a_reason_that_names_no_limit_is_a_fault(monkeypatch: Any) -> None:
    seed = next(s for s in range(COUNT) if not attempt(s).mapped)

    def silent(graph: Graph, *given: Any, **named: Any) -> SearchResult:
        outcome = map_graph(grid_graphs.largest(random_loop(0)), random_fabric(0))
        return replace(outcome, mapping=None, refused=())

    monkeypatch.setattr(grid_graphs, "map_graph", silent)
    found = attempt(seed)
    assert not found.mapped
    # The search that got no further says that it was the time.
    assert found.limit == "time"
    graph, fabric = found.graph, found.fabric
    assert Attempt(seed, graph, fabric, None, "cannot be mapped").limit is None


def test_kernels_on_a_machine_and_results_that_are_wrong(monkeypatch: Any) -> None:
    fabric = small_fabrics(1, 0)[0]
    monkeypatch.setattr(grid_graphs, "simulator", lambda config, name: Quick(config))
    tally = prove(fabric, range(COUNT), 4, None, "quick")
    assert len(tally.results) == 4
    assert tally.faults == []
    assert tally.counter("CGRA_OPERATIONS") >= 4

    def spoil(outcome: Observed) -> Observed:
        return replace(outcome, outputs=[np.bitwise_xor(o, 1) for o in outcome.outputs])

    monkeypatch.setattr(grid_graphs, "simulator", lambda config, name: Quick(config, spoil=spoil))
    assert len(prove(fabric, range(COUNT), 4, None, "quick").faults) == 4


def test_loops_and_fabrics_differ_in_what_matters() -> None:
    loops = [random_loop(seed) for seed in range(60)]
    for loop in loops:
        run(loop.kernel, loop.arrays, loop.scalars)  # no index is outside
    edges = [e for loop in loops for launch in loop.kernel.launches for e in launch.graph.edges]
    assert {e.distance for e in edges if e.routed} >= {0, 1, 2, 3, 5, 9}
    assert {e.negated for e in edges if e.operand == PREDICATE} == {True, False}
    assert {e.distance for e in edges if e.operand == ORDER} >= {0, 1}
    assert any(isinstance(v, str) for e in edges for v in e.initial)
    assert {str(a.dtype) for loop in loops for a in loop.arrays.values()} == {"int32", "int8", "uint8"}
    several = [attempt(seed) for seed in range(COUNT)]
    assert {a.fabric.lanes for a in several} == {1, 2, 4}
    assert any(a.graph.wide and a.mapped for a in several)
    fabrics = [random_fabric(seed) for seed in range(60)]
    assert {kind.registers for f in fabrics for kind in f.kinds} == {0, 1, 2, 3, 4}
    assert {unit for f in fabrics for unit in Unit if not f.having(unit)} >= {Unit.TABLE, Unit.MEMORY}
    assert {(f.rows, f.cols) for f in fabrics} >= {(2, 2), (6, 6)}
