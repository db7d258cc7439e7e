"""Chooses a mapping of a loop whose accesses seldom wait for a bank of a buffer."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from hw.config import MachineConfig
from hw.fabric.operations import LOADS
from sw import dtypes
from sw.kernels.configuration import Configured, configure
from sw.kernels.kernel import GridKernel

#: Number of mapping seeds tried if accesses stall each other.
SEEDS = 6


def steadiest(
    kernel: GridKernel, config: MachineConfig, moves: Mapping[str, int], seeds: int | None = None
) -> tuple[int, Configured]:
    """The cycles per iteration of the best of some mappings, and its configuration.

    `moves` is as in `cycles`; `seeds` is the number of mappings (`SEEDS`).
    """
    best = configure(kernel, config)
    least = cycles(best, moves)
    for seed in range(1, seeds or SEEDS):
        if least == best.ii:
            break
        found = configure(kernel, config, seed=seed)
        taken = cycles(found, moves)
        if taken < least:
            least, best = taken, found
    return least, best


def cycles(found: Configured, moves: Mapping[str, int]) -> int:
    """Cycles per iteration of a loop in which all bytes are loaded and stored by lanes.

    Arrays of bytes in one space have one index, which moves by `moves[space]` per iteration; arrays of words
    take all banks. In one cycle a bank serves one load and one store.
    """
    config, streams = found.config, {s.name: s for s in found.kernel.streams}
    assert config.cgra is not None
    derived, width = config.derived, config.cgra.lanes
    banks = {"scratch": derived.scratch.banks // 4, "out": derived.out.banks // 4}
    taken: dict[int, Counter[tuple[str, bool, int]]] = defaultdict(Counter)
    for node in found.graph.nodes:
        stream = streams.get(node.memory.name) if node.memory is not None else None
        if stream is None:
            continue
        step, size = found.mapping.places[node.id].step, dtypes.ELEMENTS[stream.element].bytes
        first = stream.offset - step // found.ii * moves.get(stream.space, 0) if size == 1 else 0
        words = {(first // 4 + i) % banks[stream.space] for i in range(max(1, size * width // 4))}
        taken[step % found.ii].update((stream.space, node.op in LOADS, word) for word in words)
    return sum(max(taken[step].values(), default=1) for step in range(found.ii))
