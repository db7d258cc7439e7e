"""Lower bounds of the initiation interval (MII) of a graph on a fabric."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np

from hw.fabric import Fabric
from sw.cgra.problem import allowed_pes
from sw.dfg.graph import Graph
from sw.dfg.recurrence import critical_cycle

#: Most sets of operations that are combined; the kinds of units need fewer.
_MOST_SETS = 10


@dataclass(frozen=True)
class MII:
    """The minimum initiation interval from resources and from recurrences; `why` says what limits it."""

    res_mii: int
    rec_mii: int
    why: str

    @property
    def mii(self) -> int:
        """The larger of both bounds."""
        return max(self.res_mii, self.rec_mii)

    def as_dict(self) -> dict[str, Any]:
        """The bounds as JSON."""
        return {"mii": self.mii, "res_mii": self.res_mii, "rec_mii": self.rec_mii, "why": self.why}


def bound(graph: Graph, fabric: Fabric) -> MII:
    """The MII: from recurrences, and for every set of units from the operations that need them.

    Raises `InputError` if no PE can execute an operation.
    """
    size, pes = len(graph.nodes), fabric.size
    shared = [(1, "nothing"), (-(-size // pes), f"{size} operations on {pes} PE{'s' * (pes > 1)}")]
    recurrence = _recurrence(graph, fabric)
    units = list(_units(graph, fabric))
    _, why = max([*shared, recurrence, *units], key=lambda found: found[0])
    return MII(max([*shared, *units])[0], recurrence[0], why)


def _recurrence(graph: Graph, fabric: Fabric) -> tuple[int, str]:
    """The bound of the worst recurrence, and its path."""
    cycle = critical_cycle(graph, fabric)
    if not cycle:
        return 1, ""
    delay, distance = sum(graph.delay(e, fabric) for e in cycle), sum(e.distance for e in cycle)
    path = " -> ".join(str(graph.by_id[e.source]) for e in cycle)
    why = f"the recurrence {path} of {delay} steps over {distance} iteration{'s' * (distance > 1)}"
    return max(1, math.ceil(Fraction(delay, distance))), why


def _units(graph: Graph, fabric: Fabric) -> Iterator[tuple[int, str]]:
    """By set of units: the steps that its operations need on the PEs that have them."""
    sets: dict[bytes, tuple[np.ndarray, list[int]]] = {}
    for i, row in enumerate(allowed_pes(graph, fabric)):
        sets.setdefault(row.tobytes(), (row, []))[1].append(i)
    groups = list(sets.values())[:_MOST_SETS]
    for size in range(1, len(groups) + 1):
        for chosen in combinations(groups, size):
            on = np.flatnonzero(np.logical_or.reduce([row for row, _ in chosen]))
            lanes = min(fabric.kinds[pe].lanes for pe in on)
            count = sum(len(nodes) for _, nodes in chosen)
            units = {graph.operation(graph.nodes[nodes[0]]).unit for _, nodes in chosen}
            names = " or ".join(sorted(unit.value for unit in units if unit))
            names += f" and {lanes} lanes" * (lanes > 1)
            yield -(-count // len(on)), f"{count} operations on {len(on)} PEs with {names}"
