"""Chooses the fastest of several equivalent loops written as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hw.config import MachineConfig
from hw.errors import refusals_ignored
from hw.fabric.operations import LOADS
from sw import dtypes
from sw.cgra.bounds import bound
from sw.cgra.legal import prepare
from sw.kernels.configuration import Configured, configure, graph_of
from sw.kernels.passes import Pass

#: Number of mapping seeds tried if loads stall each other.
SEEDS = 12


def quickest(loops: Sequence[Pass], config: MachineConfig) -> tuple[int, Configured]:
    """Returns the number of the fastest loop, and its configuration; the first one wins a tie.

    Loading the configuration counts. Trip counts are numbers. Only loops after the first use lanes, and bank
    conflicts are counted only for them.
    """
    first, *others = loops
    number, best = 0, configure(first.kernel, config)
    cycles = _cycles(first, best, best.ii)
    for i, one in enumerate(others, 1):
        # There may be no PE with lanes for an operation, or no route to it.
        with refusals_ignored():
            fabric = best.mapping.fabric
            least = bound(prepare(graph_of(one.kernel), fabric), fabric).mii
            for seed in range(SEEDS if _iterations(one) * least < cycles else 0):
                found = configure(one.kernel, config, seed=seed)
                steps = found.ii + _waits(found)
                taken = _cycles(one, found, steps)
                if taken < cycles:
                    number, best, cycles = i, found, taken
                if steps == found.ii:
                    break
    return number, best


def _iterations(one: Pass) -> int:
    assert isinstance(one.iterations, int)
    return one.iterations


def _cycles(one: Pass, found: Configured, steps: int) -> int:
    """Cycles of a launch with this many cycles between iterations."""
    return len(found.words) + _iterations(one) * steps + found.depth


def _waits(found: Configured) -> int:
    """Stall cycles per iteration, in which scratchpad loads wait for a load of words by all lanes.

    Such a load takes all banks if these are as many words as there are lanes; with more banks, this is an
    overestimate.
    """
    streams, places = {s.name: s for s in found.kernel.streams}, found.mapping.places
    loads: Counter[int] = Counter()
    words = set()
    for node in found.graph.nodes:
        if node.op not in LOADS or node.memory is None or streams[node.memory.name].space != "scratch":
            continue
        step = places[node.id].step % found.ii
        loads[step] += 1
        if node.op == "load_lanes" and dtypes.ELEMENTS[streams[node.memory.name].element].bytes == 4:
            words.add(step)
    return sum(loads[step] - 1 for step in words)
