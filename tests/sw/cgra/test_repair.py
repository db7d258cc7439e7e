"""The repair of places with routes: a reported success has a route for every value."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from hw.fabric import load
from sw.cgra.attempt import REPAIR_HEAT, to_mapping
from sw.cgra.compiled import generator
from sw.cgra.encode import differences
from sw.cgra.place import start
from sw.cgra.problem import problem
from sw.cgra.repair import before, settle
from sw.cgra.route import routes, scratch
from sw.dfg.graph import Edge, Graph, Node


def waiting(size: int, seed: int) -> Graph:
    """Every operator takes one before it; many also take a value of up to five iterations ago."""
    rng = random.Random(seed)
    edges = [Edge(rng.randrange(i), i, 0, "I1") for i in range(1, size)]
    edges += [
        Edge(rng.randrange(size), i, rng.randrange(2, 6), "I2") for i in range(size) if rng.random() < 0.6
    ]
    return Graph("waiting", tuple(Node(i, "op") for i in range(size)), tuple(edges), True)


@pytest.mark.parametrize("size", [6, 8])
def test_every_user_of_a_value_counts(size: int) -> None:
    # Without register files values that wait often find no way, also those to users that do not move.
    mesh = load("mesh4x4", (2, 2))
    fabric = replace(mesh, kinds=tuple(replace(kind, registers=0) for kind in mesh.kinds))
    ii = -(-size // fabric.size) + 1
    ends = []
    for seed in range(30):
        p = problem(waiting(size, seed), fabric, ii, 2 * ii)
        spots = start(p, (seed,))
        assert spots is not None
        found = routes(p)
        end = settle(
            p.arrays, generator(seed), found, scratch(p), before(p, found), spots, 2, 1_000,
            *REPAIR_HEAT,
        )  # fmt: skip
        ends.append(end >= 0)
        assert end < 0 or differences(to_mapping(p, spots, found)) == ()
    assert {True, False} == set(ends)
