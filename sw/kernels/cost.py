"""Cycles of a loop on the grid where nobody else reads: its steps, and those in which banks make it wait.

The rules are those of docs/cgra.md, "Memory ports and freezing".
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Mapping, MutableSequence
from dataclasses import replace
from typing import overload

import numpy as np

from hw.config import MachineConfig
from sw.dfg.graph import Graph, NodeId
from sw.dfg.interpret import run_graph
from sw.ir.expression import evaluate
from sw.ir.vector import Array
from sw.kernels.configuration import Configured
from sw.kernels.elementwise import ElementwiseKernel
from sw.kernels.indices import Key
from sw.kernels.kernel import Stream

#: Iterations that are followed, and those at the start that do not count.
_ITERATIONS, _BEFORE = 96, 32
#: Bytes between the operands' beginnings; a multiple of all banks.
_APART = 1 << 14


class _Nothing(MutableSequence[int]):
    """An array of any length that holds zeros."""

    def __len__(self) -> int:
        return 1 << 31

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> MutableSequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | MutableSequence[int]:
        return 0 if isinstance(index, int) else self

    def __setitem__(self, index: object, value: object) -> None:
        pass

    def __delitem__(self, index: object) -> None:
        pass

    def insert(self, index: int, value: int) -> None:
        """Nothing is kept."""


def cycles(elementwise: ElementwiseKernel, configured: Configured, config: MachineConfig) -> float:
    """Cycles per element, for operands that all begin in the first bank, in rows of many blocks."""
    width = 16 * elementwise.block
    sizes: dict[Key, int] = {k: access.bytes for k, access in enumerate(elementwise.operands)}
    sizes |= {"rows": 4, "columns": 4, "result": elementwise.result.bytes}
    # The worst for banks, and what sizes that are powers of two lead to.
    bases = {key: i * _APART // size for i, (key, size) in enumerate(sizes.items())}
    none = dict.fromkeys(sizes, 0)
    given = elementwise.scalars(bases, width, segment=width, row_gaps=none, segment_gaps=none)
    scalars = {name: evaluate(value, {}) for name, value in given.items()}
    streams = {stream.name: stream for stream in elementwise.kernel.streams}
    return per_iteration(configured, config, scalars, streams) / elementwise.per_iteration


def per_iteration(
    configured: Configured, config: MachineConfig, scalars: Mapping[str, int], streams: Mapping[str, Stream]
) -> float:
    """Cycles per iteration of a loop that begins with these scalars.

    All elements that are loaded are 0.
    """
    graph, ii, places = configured.graph, configured.ii, configured.mapping.places
    lines: dict[tuple[int, bool, int, int], set[int]] = defaultdict(set)
    stores: dict[tuple[int, int], int] = defaultdict(int)
    for node, indices in _accesses(graph, scalars).items():
        memory = graph.by_id[node].memory
        assert memory is not None
        space, banks, line_of = _banks(config, streams[memory.name], indices)
        store, first = graph.by_id[node].op == "store", places[node].step
        for iteration, (bank, line) in enumerate(zip(banks, line_of, strict=True)):
            step = first + iteration * ii
            if store:
                stores[step, bank] += 1
            else:
                lines[step, False, space, bank].add(line)
    longest: dict[int, int] = defaultdict(lambda: 1)
    for key, found in lines.items():
        longest[key[0]] = max(longest[key[0]], len(found))
    for (step, _), count in stores.items():
        longest[step] = max(longest[step], count)
    first, last = _BEFORE * ii, _ITERATIONS * ii
    return sum(longest[step] for step in range(first, last)) / (_ITERATIONS - _BEFORE)


def _banks(config: MachineConfig, stream: Stream, indices: Array) -> tuple[int, list[int], list[int]]:
    """Space, banks and lines (the words or rows that a bank serves at once) of elements."""
    entry, size = stream.entry(config), 4 if stream.element == "int32" else 1
    address = entry.base + indices * size
    d = config.derived
    if stream.space == "acc":
        line = address // d.acc_word_bytes
        return entry.space, (line // d.acc_bank_words).tolist(), line.tolist()
    shape = d.scratch if stream.space == "scratch" else d.out
    word = address // 4
    return entry.space, (word % max(1, shape.banks // 4)).tolist(), word.tolist()


def _accesses(graph: Graph, scalars: Mapping[str, int]) -> dict[NodeId, Array]:
    """The indices of every node that loads or stores, by iteration."""
    edges = {
        node.id: next((e for e in graph.incoming[node.id] if e.operand == "I1"), None)
        for node in graph.nodes
        if node.op in ("load", "store")
    }
    values = _values(_before(graph, {e.source for e in edges.values() if e}), tuple(sorted(scalars.items())))
    found: dict[NodeId, Array] = {}
    for node, edge in edges.items():
        if edge is None:
            given = graph.by_id[node].immediate
            index = scalars[given] if isinstance(given, str) else given
            assert index is not None
            found[node] = np.full(_ITERATIONS, index)
        else:
            initial = [scalars[v] if isinstance(v, str) else v for v in edge.initial]
            past = values[edge.source]
            found[node] = np.array([*initial, *past][:_ITERATIONS] if edge.distance else past, np.int64)
    return found


def _before(graph: Graph, nodes: set[NodeId]) -> Graph:
    """The part of a graph that some nodes are computed from; equal for loops that differ only elsewhere."""
    waiting = list(nodes)
    while waiting:
        new = {e.source for e in graph.incoming[waiting.pop()] if e.routed} - nodes
        nodes = nodes | new
        waiting += new
    kept = tuple(n for n in graph.nodes if n.id in nodes)
    used = {n.memory.name for n in kept if n.op == "table" and n.memory}
    return replace(
        graph,
        name="",
        nodes=kept,
        edges=tuple(e for e in graph.edges if e.routed and e.source in nodes and e.target in nodes),
        outputs=(),
        tables=tuple(t for t in graph.tables if t[0] in used),
    )


@functools.lru_cache(maxsize=1024)
def _values(graph: Graph, scalars: tuple[tuple[str, int], ...]) -> dict[NodeId, list[int]]:
    """What nodes give, by iteration."""
    found: dict[NodeId, list[int]] = {n.id: [] for n in graph.nodes}

    def observe(iteration: int, values: Mapping[NodeId, int]) -> None:
        for node, past in found.items():
            past.append(values[node])

    arrays = {n.memory.name: _Nothing() for n in graph.nodes if n.memory and n.op != "table"}
    run_graph(graph, arrays, dict(scalars), _ITERATIONS, observe)
    return found
