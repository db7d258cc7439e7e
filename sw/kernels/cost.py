"""Cycles of a loop on the grid where nobody else reads: its steps, and those in which banks make it wait.

The rules are those of docs/cgra.md, "Memory ports and freezing".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, MutableSequence
from typing import overload

from hw.config import MachineConfig
from sw.dfg.graph import Graph, NodeId
from sw.dfg.interpret import run_graph
from sw.ir.expression import evaluate
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
    accessed = _accesses(graph, scalars)
    lines: dict[tuple[int, bool, int, int], set[int]] = defaultdict(set)
    stores: dict[tuple[int, int], int] = defaultdict(int)
    for (node, iteration), index in accessed.items():
        memory = graph.by_id[node].memory
        assert memory is not None
        space, bank, line = _bank(config, streams[memory.name], index)
        step = places[node].step + iteration * ii
        if graph.by_id[node].op == "store":
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


def _bank(config: MachineConfig, stream: Stream, index: int) -> tuple[int, int, int]:
    """Space, bank and line (the word or row that a bank serves at once) of an element."""
    entry, size = stream.entry(config), 4 if stream.element == "int32" else 1
    address = entry.base + index * size
    d = config.derived
    if stream.space == "acc":
        line = address // d.acc_word_bytes
        return entry.space, line // d.acc_bank_words, line
    shape = d.scratch if stream.space == "scratch" else d.out
    return entry.space, address // 4 % max(1, shape.banks // 4), address // 4


def _accesses(graph: Graph, scalars: Mapping[str, int]) -> dict[tuple[NodeId, int], int]:
    """The index of every access that happens, by node and iteration."""
    arrays = {n.memory.name: _Nothing() for n in graph.nodes if n.memory and n.op != "table"}
    found: dict[tuple[NodeId, int], int] = {}
    past: list[Mapping[NodeId, int]] = []
    accessing = [n for n in graph.nodes if n.op in ("load", "store")]

    def observe(iteration: int, values: Mapping[NodeId, int]) -> None:
        past.append(values)
        for node in accessing:
            edge = next((e for e in graph.incoming[node.id] if e.operand == "I1"), None)
            if edge is None:
                given = node.immediate
            elif iteration < edge.distance:
                given = edge.initial[iteration]
            else:
                given = past[iteration - edge.distance][edge.source]
            assert given is not None
            found[node.id, iteration] = given if isinstance(given, int) else scalars[given]

    run_graph(graph, arrays, scalars, _ITERATIONS, observe)
    return found
