"""Cycles of an elementwise loop with no competing readers: its steps and its bank conflicts.

The rules are those of docs/cgra.md, "Memory ports and freezing".
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from hw.config import MachineConfig
from hw.fabric.operations import LOADS, STORES, WIDE
from sw import dtypes
from sw.dfg.graph import NodeId
from sw.ir.vector import Array
from sw.kernels.configuration import Configured
from sw.kernels.elementwise import ElementwiseKernel
from sw.kernels.kernel import Stream

#: Iterations simulated, and those at the start that do not count.
_ITERATIONS, _BEFORE = 96, 32
#: Distance in bytes between the operands' bases: a multiple of the size of all banks. This is the worst case,
#: and also the common one, since sizes are often powers of two.
_APART = 1 << 14
#: Blocks per row.
_BLOCKS = 16
#: Bits of a key below space and bank, and below the line.
_SPACES, _LINES = 20, 28
_NONE: Array = np.empty(0, np.int64)


def cycles(elementwise: ElementwiseKernel, configured: Configured, config: MachineConfig) -> float:
    """Cycles per element, for operands that all start in the first bank, with many blocks per row."""
    graph, ii, places = configured.graph, configured.ii, configured.mapping.places
    streams = {stream.name: stream for stream in elementwise.kernel.streams}
    indices = elementwise.indices.followed(_ITERATIONS, _BLOCKS * elementwise.block)
    bases = {name: number * _APART for number, name in enumerate(elementwise.indices.bases)}
    nodes: dict[str, list[NodeId]] = defaultdict(list)
    for node in graph.nodes:
        if node.op in (*LOADS, *STORES):
            assert node.memory is not None
            nodes[node.memory.name].append(node.id)
    iterations = ii * np.arange(_ITERATIONS)
    loads, stores = [_NONE], [_NONE]
    for name, own in nodes.items():
        key, found = indices[name]
        for number, access in enumerate(own):
            # Several elements of one array are accessed in the order of their copies.
            index = found[number * len(found) // len(own)]
            stream, lanes = streams[name], graph.lanes if graph.by_id[access].op in WIDE else 1
            size = dtypes.ELEMENTS[stream.element].bytes
            # An access by several lanes reaches a different bank with every fourth byte.
            for more in range(0, max(1, lanes * size // 4) if stream.space != "acc" else 1):
                places_of = _banks(config, stream, index + more * 4 // size, bases[key])
                served = (places[access].step + iterations << _SPACES + _LINES) + places_of
                (stores if name.startswith("y") else loads).append(served)
    longest = np.ones(_ITERATIONS * ii + configured.depth, np.int64)
    # A bank serves a line once, however many accesses read it.
    for keys in (np.unique(np.concatenate(loads)), np.concatenate(stores)):
        banks, count = np.unique(keys >> _LINES, return_counts=True)
        np.maximum.at(longest, banks >> _SPACES, count)
    total = int(longest[_BEFORE * ii : _ITERATIONS * ii].sum())
    return total / (_ITERATIONS - _BEFORE) / elementwise.per_iteration


def _banks(config: MachineConfig, stream: Stream, indices: Array, base: int) -> Array:
    """Space, bank and line (the word or row that a bank serves at once) of elements, from a base in bytes."""
    entry, size = stream.entry(config), dtypes.ELEMENTS[stream.element].bytes
    address = base // size * size + entry.base + indices * size
    d = config.derived
    if stream.space == "acc":
        line = address // d.acc_word_bytes
        bank = line // d.acc_bank_words
    else:
        shape = d.scratch if stream.space == "scratch" else d.out
        line = address // 4
        bank = line % max(1, shape.banks // 4)
    return (entry.space << _SPACES - 2 << _LINES) + (bank << _LINES) + line
