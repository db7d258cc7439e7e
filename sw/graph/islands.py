"""Groups adjacent host operators into as few islands as their order allows, and estimates their cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sw.graph.host import HostOperator
from sw.graph.network import Network, Operator


@dataclass(frozen=True)
class Island:
    """Operators that the host executes between two programs of the machine.

    `taken` are the tensors it reads that the machine computed, and `given` those it computes and the machine
    reads, both with their sizes in bytes.
    """

    operators: tuple[HostOperator, ...]
    taken: Mapping[str, int]
    given: Mapping[str, int]

    def as_dict(self) -> dict[str, Any]:
        """An entry of `islands` in a run's JSON."""
        return {
            "operators": [o.name for o in self.operators],
            "taken": dict(self.taken),
            "given": dict(self.given),
            "bytes": sum(self.taken.values()) + sum(self.given.values()),
        }


def told(found: Sequence[Island]) -> list[str]:
    """One line on the cost of islands; empty without islands."""
    if not found:
        return []
    count = sum(len(island.operators) for island in found)
    operators = f"{count} operators" if count != 1 else "1 operator"
    where = f"in {len(found)} islands" if len(found) != 1 else "in 1 island"
    taken = sum(sum(island.taken.values()) for island in found)
    given = sum(sum(island.given.values()) for island in found)
    moved = sum(len(island.taken) + len(island.given) for island in found)
    tensors = f"{moved} tensors cross" if moved != 1 else "1 tensor crosses"
    return [f"{operators} on the host {where}: {tensors}, {taken:,} bytes to the host and {given:,} back"]


def gathered(network: Network) -> Network:
    """Reorders the network so that host and machine operators form as few groups as dependences allow.

    Each operator goes to the first group of its side after everything it needs, so no order has fewer groups.
    Quantisation of inputs comes first, and dequantisation of outputs last.
    """
    first, second = (_groups(network, host_first) for host_first in (True, False))
    chosen = first if max(first, default=0) <= max(second, default=0) else second
    host = [group for group, o in zip(chosen, network.operators, strict=True) if isinstance(o, HostOperator)]
    sides = _sides(network)
    for place, side in enumerate(sides):
        if side == "last":
            chosen[place] = max(host)
    order = sorted(range(len(chosen)), key=chosen.__getitem__)
    ordered = [
        _inner(network.operators[place]) if sides[place] == "inner" else network.operators[place]
        for place in order
    ]
    return dataclasses.replace(network, operators=tuple(ordered))


def _sides(network: Network) -> list[str]:
    """The side of each edge operator: "first", "last" or "inner" (no edge after all); else empty."""
    # Tensors read by operators that are not last.
    read: set[str] = set()
    last: set[int] = set()
    for place in reversed(range(len(network.operators))):
        operator = network.operators[place]
        if _edge(operator) and operator.output.tensor not in read:
            last.add(place)
        else:
            read.update(view.tensor for view in operator.inputs)
    # Tensors that the host can compute before the machine starts.
    early = {*network.inputs, *(n for n, t in network.tensors.items() if t.constant is not None)}
    found = []
    for place, operator in enumerate(network.operators):
        first = _edge(operator) and early.issuperset(view.tensor for view in operator.inputs)
        if first:
            early.add(operator.output.tensor)
        found.append("first" if first else "last" if place in last else "inner" if _edge(operator) else "")
    return found


def _edge(operator: Operator) -> bool:
    return isinstance(operator, HostOperator) and operator.edge


def _inner(operator: Operator) -> Operator:
    """Turns an edge operator into an ordinary host operator between others of the machine."""
    assert isinstance(operator, HostOperator)
    return dataclasses.replace(operator, edge=False, reason="what it computes in float32 is quantised again")


def _groups(network: Network, host_first: bool) -> list[int]:
    """The group number of every operator; groups of host and machine alternate."""
    found: list[int] = []
    written: dict[str, int] = {}
    touched: dict[str, int] = {}
    for operator in network.operators:
        # After the writers of what it reads, and after all earlier users of the tensor it writes.
        before = [written.get(view.tensor, 0) for view in operator.inputs]
        before.append(touched.get(operator.output.tensor, 0))
        group = max(before)
        if isinstance(operator, HostOperator) != (host_first == (group % 2 == 0)):
            group += 1
        found.append(group)
        target = operator.output.tensor
        written[target] = max(group, written.get(target, 0))
        for name in (target, *(view.tensor for view in operator.inputs)):
            touched[name] = max(group, touched.get(name, 0))
    return found


def islands(network: Network, operators: Sequence[Operator | Any]) -> tuple[Island, ...]:
    """The islands of operators in execution order; edges alone are not islands.

    Everything that is not a host operator counts as the machine's.
    """
    made_by_host = {o.output.tensor for o in network.operators if isinstance(o, HostOperator)}
    by_machine = {o.output.tensor for o in network.operators if not isinstance(o, HostOperator)}
    read = {v.tensor for o in network.operators if not isinstance(o, HostOperator) for v in o.inputs}
    found = []
    for group in _runs(operators):
        taken = dict.fromkeys(v.tensor for o in group for v in o.inputs if v.tensor in by_machine)
        given = dict.fromkeys(o.output.tensor for o in group if o.output.tensor in read & made_by_host)
        sizes = [{name: _bytes(network, name) for name in names} for names in (taken, given)]
        found.append(Island(group, *sizes))
    return tuple(found)


def _runs(operators: Sequence[Any]) -> Iterator[tuple[HostOperator, ...]]:
    """Consecutive operators of the host, at least one of which is not an edge."""
    run: list[HostOperator] = []
    for operator in (*operators, None):
        if isinstance(operator, HostOperator):
            run.append(operator)
            continue
        if any(not o.edge for o in run):
            yield tuple(run)
        run = []


def _bytes(network: Network, name: str) -> int:
    tensor = network.tensors[name]
    return tensor.elements * np.dtype(tensor.element).itemsize
