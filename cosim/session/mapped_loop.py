"""Loops mapped to a fabric; their bitstreams are decoded again and compared with their graphs."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from cosim.session.arguments import function_of
from hw.errors import InputError
from hw.fabric import Fabric
from hw.fabric.bitstream import SCALARS
from sw.cgra.search import SearchResult
from sw.dfg.graph import Graph
from sw.dfg.json import load_graph
from sw.dfg.kernel import Kernel
from sw.dfg.python import from_function
from sw.dfg.transform import fuse_constants, store_outputs
from sw.dfg.unroll import unroll


@dataclass(frozen=True)
class MappedLoop:
    """The result for one loop of a command: the search, the words, and differences found by decoding them."""

    outcome: SearchResult
    fabric: Fabric

    @property
    def name(self) -> str:
        """The name of the loop."""
        return self.outcome.graph.name

    @functools.cached_property
    def bitstream(self) -> tuple[int, ...]:
        """The words; scalars and arrays are numbered in order of use. Empty without a mapping."""
        return () if self.outcome.mapping is None else tuple(self.outcome.words())

    @property
    def ok(self) -> bool:
        """Whether there is a mapping whose bitstream implements the graph."""
        return self.outcome.mapping is not None and not self.outcome.differences

    @property
    def operators(self) -> int:
        """Number of placed operations."""
        return len(self.outcome.prepared.nodes)

    @property
    def utilization(self) -> float:
        """Fraction of the slots (PEs x contexts) that start an operation."""
        if self.outcome.mapping is None:
            return 0.0
        return self.operators / (self.fabric.size * self.outcome.mapping.ii)

    @property
    def failure(self) -> str:
        """Why there is no mapping; empty if there is one."""
        outcome, most = self.outcome, self.fabric.contexts
        if outcome.mapping is not None:
            return ""
        where = f"{self.name}: no mapping on {self.fabric.name}"
        mii = outcome.bound.mii
        if mii > most:
            return f"{where}: the MII is {mii} ({outcome.bound.why}), the fabric has {most} contexts"
        if not outcome.refused:
            return f"{where} in {outcome.seconds:.1f} s, the search got no further than II {mii}"
        last = outcome.refused[-1]
        return f"{where} in {outcome.seconds:.1f} s up to II {last.ii}: {last.why}"

    def as_dict(self) -> dict[str, Any]:
        """The result as JSON; a place is row, column and step."""
        outcome, mapping = self.outcome, self.outcome.mapping
        places = {} if mapping is None else mapping.places
        return {
            "name": self.name,
            "fabric": self.fabric.name,
            "ii": None if mapping is None else mapping.ii,
            **outcome.bound.as_dict(),
            "proved_minimal": outcome.proved_minimal,
            "seconds": round(outcome.seconds, 3),
            "operators": self.operators,
            "utilization": round(self.utilization, 4),
            "refused": [{"ii": refused.ii, "why": refused.why} for refused in outcome.refused],
            "depth": None if mapping is None else mapping.depth,
            "placement": {
                str(node): [*self.fabric.at(place.pe), place.step] for node, place in places.items()
            },
            "bitstream_words": len(self.bitstream),
            "verified": self.ok,
            "problems": list(self.outcome.differences),
            "failure": self.failure,
        }


def loops_of(source: str, times: int = 1) -> list[Graph]:
    """The graphs to map: from GRAPH.json, or from the loops of FILE.py:FUNCTION, unrolled `times` times.

    Raises `InputError` for unreadable input, and for more scalars than a launch has.
    """
    if source.endswith(".json"):
        return [_ready(unroll(load_graph(source), times))]
    file, name = function_of(source, "a loop must be GRAPH.json or FILE.py:FUNCTION")
    return graphs_of(from_function(file, name), times)


def graphs_of(kernel: Kernel, times: int = 1) -> list[Graph]:
    """The graphs of a function's loops, unrolled `times` times.

    Scalar results become stores, since the CGRA returns results in memory. Raises `InputError` if there is no
    loop, and for more scalars than a launch has.
    """
    graphs = [launch.graph for launch in kernel.loops]
    if not graphs:
        raise InputError(f"{kernel.file}: {kernel.name}: needs a loop that does something, there is none")
    return [_ready(unroll(graph, times)) for graph in graphs]


def _ready(graph: Graph) -> Graph:
    """The graph in the form in which it is launched."""
    if graph.opaque:
        return graph
    taken = {node.memory.name for node in graph.nodes if node.memory}
    array = "results"
    while array in taken:
        array += "_"
    graph = fuse_constants(store_outputs(graph, array))
    if len(graph.scalars) > SCALARS:
        listed = ", ".join(graph.scalars)
        raise InputError(
            f"graph {graph.name!r}: scalars must be at most {SCALARS}, not {len(graph.scalars)}: {listed}"
        )
    return graph
