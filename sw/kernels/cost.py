"""Cycles of an elementwise loop where nobody else reads: its steps, and those in which banks make it wait.

The rules are those of docs/cgra.md, "Memory ports and freezing".
"""

from __future__ import annotations

from collections import defaultdict

from hw.config import MachineConfig
from sw import dtypes
from sw.dfg.graph import NodeId
from sw.ir.vector import Array
from sw.kernels.configuration import Configured
from sw.kernels.elementwise import ElementwiseKernel
from sw.kernels.kernel import Stream

#: Iterations that are followed, and those at the start that do not count.
_ITERATIONS, _BEFORE = 96, 32
#: Bytes between the operands' beginnings; a multiple of all banks. That is the worst for them, and what sizes
#: that are powers of two lead to.
_APART = 1 << 14
#: Blocks of a row.
_BLOCKS = 16


def cycles(elementwise: ElementwiseKernel, configured: Configured, config: MachineConfig) -> float:
    """Cycles per element, for operands that all begin in the first bank, in rows of many blocks."""
    graph, ii, places = configured.graph, configured.ii, configured.mapping.places
    streams = {stream.name: stream for stream in elementwise.kernel.streams}
    indices = elementwise.indices.followed(_ITERATIONS, _BLOCKS * elementwise.block)
    bases = {name: number * _APART for number, name in enumerate(elementwise.indices.bases)}
    nodes: dict[str, list[NodeId]] = defaultdict(list)
    for node in graph.nodes:
        if node.op in ("load", "store"):
            assert node.memory is not None
            nodes[node.memory.name].append(node.id)
    lines: dict[tuple[int, bool, int, int], set[int]] = defaultdict(set)
    stores: dict[tuple[int, int], int] = defaultdict(int)
    for name, own in nodes.items():
        key, found = indices[name]
        for number, access in enumerate(own):
            # Several elements of one array are accessed in the order of their copies.
            index = found[number * len(found) // len(own)]
            space, banks, line_of = _banks(config, streams[name], index, bases[key])
            for iteration, (bank, line) in enumerate(zip(banks, line_of, strict=True)):
                step = places[access].step + iteration * ii
                if name.startswith("y"):
                    stores[step, bank] += 1
                else:
                    lines[step, False, space, bank].add(line)
    longest: dict[int, int] = defaultdict(lambda: 1)
    for (step, *_), accessed in lines.items():
        longest[step] = max(longest[step], len(accessed))
    for (step, _), count in stores.items():
        longest[step] = max(longest[step], count)
    total = sum(longest[step] for step in range(_BEFORE * ii, _ITERATIONS * ii))
    return total / (_ITERATIONS - _BEFORE) / elementwise.per_iteration


def _banks(
    config: MachineConfig, stream: Stream, indices: Array, base: int
) -> tuple[int, list[int], list[int]]:
    """Space, banks and lines (the words or rows that a bank serves at once) of elements from a byte on."""
    entry, size = stream.entry(config), dtypes.ELEMENTS[stream.element].bytes
    address = base // size * size + entry.base + indices * size
    d = config.derived
    if stream.space == "acc":
        line = address // d.acc_word_bytes
        return entry.space, (line // d.acc_bank_words).tolist(), line.tolist()
    shape = d.scratch if stream.space == "scratch" else d.out
    word = address // 4
    return entry.space, (word % max(1, shape.banks // 4)).tolist(), word.tolist()
