"""Groups of PEs and the operations assigned to them."""

from __future__ import annotations

import numpy as np
import pytest

from heald.testing.graphs import generated
from hw.fabric import load
from sw.cgra.groups import assign, partition, threshold_for
from sw.cgra.problem import problem
from sw.cgra.resources import resources


@pytest.mark.parametrize("preset", ["mesh4x4", "torus4x4", "diagonal4x4"])
@pytest.mark.parametrize("threshold", [0, 1, 2, 4])
def test_groups_are_partitions_of_near_pes(preset: str, threshold: int) -> None:
    fabric = load(preset, (5, 6))
    hops = resources(fabric).distance[0]
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
    of = assign(p, groups)
    for n in range(p.size):
        assert p.arrays.allowed[n, list(groups[of[n]])].any()
    full = np.bincount(of, minlength=len(groups))
    assert all(full <= [len(group) * 3 for group in groups])
