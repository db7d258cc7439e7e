"""Arrays of a kernel in buffers: their sizes, and which of them must hold what they held before."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sw.cgra.launch_plan import Plan
from sw.dfg.graph import Graph, Node
from sw.dfg.kernel import HostLoop, Launch, Step
from sw.dtypes import ELEMENTS

#: Bytes of a row of a buffer that takes several, and what all sizes are multiples of.
ROW, UNIT = 4096, 64


@dataclass(frozen=True)
class Extent:
    """An array: its type as an element of buffers, and how many elements it has."""

    element: str
    length: int

    @property
    def bytes(self) -> int:
        """Bytes of a buffer for it: at least one element, whole units."""
        return UNIT * max(1, math.ceil(self.length * ELEMENTS[self.element].bytes / UNIT))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of such a buffer."""
        size = ELEMENTS[self.element].bytes
        rows = math.ceil(self.bytes / ROW)
        return (self.bytes // size,) if rows == 1 else (rows, ROW // size)

    @property
    def regions(self) -> tuple[tuple[slice, ...], ...]:
        """What the elements take of such a buffer: whole rows, and a part of one."""
        if len(self.shape) == 1:
            return ((slice(0, self.length),),)
        rows, rest = divmod(self.length, self.shape[1])
        whole = (slice(0, rows), slice(0, self.shape[1]))
        return (whole, (slice(rows, rows + 1), slice(0, rest))) if rest else (whole,)

    def image(self, array: np.ndarray) -> np.ndarray:
        """The array as contents of such a buffer."""
        held = np.zeros(self.shape, self.element)
        held.reshape(-1)[: self.length] = array
        return held


def copied_arrays(plan: Plan, arrays: Mapping[str, Extent]) -> tuple[str, ...]:
    """Written arrays of which some element may be read, or left as it is, before it is written."""
    return tuple(
        a.name
        for a in plan.kernel.arrays
        if a.written and arrays[a.name].length and not _written_first(plan, a.name, arrays[a.name].length)
    )


def _written_first(plan: Plan, array: str, length: int) -> bool:
    """Whether the first step that accesses an array reads nothing of it and writes every element."""
    for step in plan.kernel.body:
        launches = (step,) if isinstance(step, Launch) else step.launches
        nodes = [n for launch in launches for n in launch.graph.nodes if n.memory and n.memory.name == array]
        if nodes:
            stores = all(node.op == "store" for node in nodes)
            return stores and plan.iterations(step) == length and _writes_all(plan, step, array)
    return False


def _writes_all(plan: Plan, step: Step, array: str) -> bool:
    """Whether iteration i of a step surely writes element i."""
    if isinstance(step, Launch):
        return any(_counts(step.graph, store) for store in _stores(step.graph, array))
    return any(
        _index(launch.graph, store, step)
        for launch in step.body
        if isinstance(launch, Launch) and (plan.iterations(launch) or 0) > 0
        for store in _stores(launch.graph, array)
    )


def _stores(graph: Graph, array: str) -> list[Node]:
    """Stores to an array that always happen."""
    return [
        node
        for node in graph.nodes
        if node.op == "store"
        and node.memory
        and node.memory.name == array
        and all(edge.operand != "P" for edge in graph.incoming[node.id])
    ]


def _source(graph: Graph, store: Node) -> Node | None:
    """What gives the index of a store in the same iteration."""
    edges = [e for e in graph.incoming[store.id] if e.operand == "I1" and not e.distance]
    return graph.by_id[edges[0].source] if edges else None


def _index(graph: Graph, store: Node, loop: HostLoop) -> bool:
    """Whether the index of a store is the number of an iteration on the host."""
    source = _source(graph, store)
    return source is not None and source.op == "const" and source.scalar == loop.variable


def _counts(graph: Graph, store: Node) -> bool:
    """Whether the index of a store is the number of the iteration."""
    source = _source(graph, store)
    if source is None or source.op != "add" or source.const != 1:
        return False
    own = [e for e in graph.incoming[source.id] if e.routed]
    return len(own) == 1 and (own[0].source, own[0].distance, own[0].initial) == (source.id, 1, (-1,))
