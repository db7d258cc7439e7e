"""Allocation of a kernel's arrays in buffers: sizes, and which arrays must keep their old contents."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from hw.fabric.operations import STORES
from sw.cgra.launch_plan import LaunchPlan
from sw.dfg.graph import Edge, Graph, Node
from sw.dfg.kernel import Launch, Step, launches_in
from sw.dtypes import ELEMENTS

#: Bytes per row of a buffer with several rows, and the unit of all sizes.
ROW, UNIT = 4096, 64


@dataclass(frozen=True)
class ArrayExtent:
    """An array: element type of its buffer, and number of elements."""

    element: str
    length: int

    @property
    def bytes(self) -> int:
        """Size of its buffer in bytes: at least one element, rounded up to whole units."""
        return UNIT * max(1, math.ceil(self.length * ELEMENTS[self.element].bytes / UNIT))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of its buffer."""
        size, rows = ELEMENTS[self.element].bytes, math.ceil(self.bytes / ROW)
        return (self.bytes // size,) if rows == 1 else (rows, ROW // size)

    @property
    def regions(self) -> tuple[tuple[slice, ...], ...]:
        """The regions of its buffer that hold elements: whole rows and part of one."""
        if len(self.shape) == 1:
            return ((slice(0, self.length),),)
        rows, rest = divmod(self.length, self.shape[1])
        whole = (slice(0, rows), slice(0, self.shape[1]))
        return (whole, (slice(rows, rows + 1), slice(0, rest))) if rest else (whole,)

    def image(self, array: np.ndarray) -> np.ndarray:
        """The array as the contents of its buffer."""
        held = np.zeros(self.shape, self.element)
        held.reshape(-1)[: self.length] = array
        return held


def copied_arrays(plan: LaunchPlan, arrays: Mapping[str, ArrayExtent]) -> tuple[str, ...]:
    """Written arrays with an element that may be read, or left unchanged, before it is written."""
    lengths = {a.name: arrays[a.name].length for a in plan.kernel.arrays if a.written}
    return tuple(
        name for name, length in lengths.items() if length and not _written_first(plan, name, length)
    )


def _written_first(plan: LaunchPlan, array: str, length: int) -> bool:
    """Whether the first step that accesses an array writes every element and reads none."""
    for step in plan.kernel.body:
        found = {
            (n.op, x.graph.lanes if n.op == "store_lanes" else 1)
            for x in launches_in([step])
            for n in x.graph.nodes
            if n.memory and n.memory.name == array
        }
        if found:
            (op, count), *others = found
            every = not others and op in STORES and plan.iterations(step) == length / count
            return every and _writes_all(plan, step, array, count)
    return False


def _writes_all(plan: LaunchPlan, step: Step, array: str, count: int) -> bool:
    """Whether iteration i of a step certainly writes `count` elements from i * count on."""
    if isinstance(step, Launch):
        return any(_counts(step.graph, index, count) for index in _indices(step.graph, array))
    if count > 1:
        return False
    return any(
        index.op == "const" and index.scalar == step.variable
        for launch in step.body
        if isinstance(launch, Launch) and (plan.iterations(launch) or 0) > 0
        for index in _indices(launch.graph, array)
    )


def _indices(graph: Graph, array: str) -> Iterator[Node]:
    """The indices, of the same iteration, of stores to an array that always happen."""
    for node in graph.nodes:
        incoming = graph.incoming[node.id]
        if node.op not in STORES or node.memory is None or node.memory.name != array:
            continue
        if all(edge.operand != "P" for edge in incoming):
            yield from (graph.by_id[e.source] for e in incoming if e.operand == "I1" and not e.distance)


def _counts(graph: Graph, node: Node, by: int = 1) -> bool:
    """Whether a node computes the iteration number times a power of two."""
    given = graph.operands(node)
    if by > 1:
        first, second = given.get("I1"), given.get("I2")
        if node.op != "shl" or not isinstance(first, Edge) or first.distance or len(given) > 2:
            return False
        if isinstance(second, Edge) and not graph.operands(graph.by_id[second.source]):
            second = graph.by_id[second.source].const
        return second == by.bit_length() - 1 and _counts(graph, graph.by_id[first.source])
    own = [e for e in graph.incoming[node.id] if e.routed]
    before = [(e.source, e.distance, e.initial) for e in own]
    return node.op == "add" and node.const == 1 and before == [(node.id, 1, (-1,))]
