"""Lower bounds of the initiation interval of a graph on a fabric."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np

from hw.fabric import Fabric
from sw.cgra.problem import allowed_pes, operation
from sw.dfg.graph import Graph
from sw.dfg.recurrence import MII, Resources, mii

#: Sets of operations that are combined at most; more than the kinds of units need.
_MOST_SETS = 10


def bound(graph: Graph, fabric: Fabric) -> MII:
    """The MII: recurrences, and for every set of units the operations that only their PEs execute.

    Raises `InputError` where an operation finds no PE.
    """
    found = mii(graph, Resources(fabric.size))
    sets: dict[bytes, tuple[np.ndarray, list[int]]] = {}
    for i, row in enumerate(allowed_pes(graph, fabric)):
        sets.setdefault(row.tobytes(), (row, []))[1].append(i)
    groups = list(sets.values())[:_MOST_SETS]
    res, why = found.res, found.why
    for size in range(1, len(groups) + 1):
        for chosen in combinations(groups, size):
            pes = int(np.logical_or.reduce([row for row, _ in chosen]).sum())
            count = sum(len(nodes) for _, nodes in chosen)
            if -(-count // pes) > res:
                res = -(-count // pes)
                units = {operation(graph, graph.nodes[nodes[0]]).unit for _, nodes in chosen}
                names = " or ".join(sorted(unit.value for unit in units if unit))
                why = f"{count} operations on {pes} PEs with {names}"
    return replace(found, res=res, why=found.why if found.rec >= max(res, 2) else why)
