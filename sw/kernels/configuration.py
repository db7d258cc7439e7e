"""Configurations of CGRA loops: from text to graph, mapping and verified bitstream."""

from __future__ import annotations

import functools
import time
from collections import Counter
from dataclasses import dataclass, replace

from hw.config import MachineConfig
from hw.errors import InputError, refusals_ignored
from hw.fabric import Fabric
from hw.fabric.bitstream import ArrayEntry, encode
from hw.fabric.layout import PATCHES
from hw.fabric.operations import Unit
from sw.cgra.bounds import bound
from sw.cgra.encode import configuration
from sw.cgra.legal import patches, prepare
from sw.cgra.mapping import Mapping
from sw.cgra.search import SearchResult
from sw.cgra.verify import verify
from sw.dfg.graph import Graph
from sw.dfg.python import parse_kernel
from sw.dfg.transform import fuse_constants
from sw.ir.errors import LimitError
from sw.kernels import mappings
from sw.kernels.kernel import GridKernel


@dataclass(frozen=True)
class Configured:
    """A loop mapped to the CGRA of a machine.

    `words` is the bitstream; scalar i of a launch is `kernel.scalars[i]`. `cached`: the mapping was found on
    disk.
    """

    kernel: GridKernel
    config: MachineConfig
    words: tuple[int, ...]
    found: SearchResult
    seconds: float
    cached: bool

    @property
    def mapping(self) -> Mapping:
        """The mapping of the graph: PEs and steps."""
        return self.found.found

    @property
    def graph(self) -> Graph:
        """The mapped graph."""
        return self.mapping.graph

    @property
    def ii(self) -> int:
        """The initiation interval: steps from one iteration to the next."""
        return self.mapping.ii

    @property
    def depth(self) -> int:
        """Steps of one iteration."""
        return max(1, self.mapping.depth)

    @functools.cached_property
    def differences(self) -> tuple[str, ...]:
        """The differences between bitstream and graph, found by an independent decoder.

        Computed on demand, since few of the many configurations compared are used.
        """
        (arrays, scalars), mapping = _entries(self.kernel, self.config), self.mapping
        found = verify(
            mapping.graph, self.words, mapping.fabric, mapping.places, arrays=arrays, scalars=scalars
        )
        return tuple(found)

    @property
    def verified(self) -> bool:
        """Whether the bitstream decodes to the graph."""
        return not self.differences


@functools.lru_cache(maxsize=1024)
def graph_of(kernel: GridKernel) -> Graph:
    """The graph of a kernel's only loop, with constants folded into their users.

    Raises `InputError` for a text that is too large or not one loop over all of its parameters, and
    `LoopTextError` for one that a person wrote and that is wrong.
    """
    try:
        return _graph(kernel)
    except LimitError:
        raise
    except InputError as error:
        if kernel.origin is None:
            raise
        raise kernel.origin.located(error, kernel.text) from None


def _graph(kernel: GridKernel) -> Graph:
    parsed = parse_kernel(kernel.text, kernel.name, f"kernel {kernel.name}")
    place = f"kernel {kernel.name}"
    if len(parsed.loops) != 1 or parsed.results or not all(x.on_host for x in parsed.launches if x.once):
        raise InputError(f"{place}: the text must be one loop without results, not {len(parsed.loops)} loops")
    graph = parsed.loops[0].graph
    unknown = [a.name for a in parsed.arrays if a.name not in {s.name for s in kernel.streams}]
    unknown += [name for name in graph.scalars if name not in kernel.scalars]
    if unknown:
        raise InputError(f"{place}: every name must be a stream or a scalar, not {', '.join(unknown)}")
    return fuse_constants(graph)


def over(kernel: GridKernel) -> tuple[int, Counter[str | None]]:
    """Number of patches beyond a configuration's limit, and the number of patches of each scalar."""
    graph = graph_of(kernel)
    return patches(graph) - PATCHES, Counter(node.scalar for node in graph.nodes)


@functools.lru_cache(maxsize=1024)
def mapped(graph: Graph, fabric: Fabric, seed: int, compared: bool = True) -> tuple[SearchResult, bool]:
    """Returns a mapping with as few table memories as the II allows, since each takes long to load."""
    counts = Counter(n.memory.name for n in graph.nodes if n.op == "table" and n.memory)
    if counts:
        least = bound(prepare(graph, fabric), fabric).mii
        few = _with_tables(graph, fabric, sum(-(-count // least) for count in counts.values()))
        if few != fabric:
            with refusals_ignored():
                found, cached = mappings.find(graph, few, seed, compared)
                if found.found.ii == least:
                    return replace(found, mapping=replace(found.found, fabric=fabric)), cached
                if not compared:
                    return mapped(graph, fabric, seed)
    return mappings.find(graph, fabric, seed, compared)


def _with_tables(graph: Graph, fabric: Fabric, number: int) -> Fabric:
    """The fabric with table memories in this many PEs only; with lanes, in PEs that have lanes."""
    tables = fabric.having(Unit.TABLE)
    if graph.of_lanes:
        tables = tuple(sorted(tables, key=lambda pe: -fabric.kinds[pe].lanes))
    without = set(tables[number:])
    kinds = tuple(
        replace(kind, units=kind.units - {Unit.TABLE}, table_words=0) if pe in without else kind
        for pe, kind in enumerate(fabric.kinds)
    )
    return replace(fabric, kinds=kinds)


@functools.lru_cache(maxsize=256)
def configure(
    kernel: GridKernel, config: MachineConfig, *, seed: int = 0, compared: bool = True
) -> Configured:
    """Configures a kernel for a machine; equal kernels give equal bitstreams.

    Mappings from disk are `compared` with the graph, unless another configuration may still be chosen. Raises
    `InputError` for a machine without a CGRA, and for a kernel that cannot be mapped to it.
    """
    if config.cgra is None:
        raise InputError(f"machine {config.name!r} must have a CGRA to run kernel {kernel.name}, it has none")
    began = time.perf_counter()
    found, cached = mapped(graph_of(kernel), config.cgra, seed, compared)
    try:
        words = tuple(encode(configuration(found.found, *_entries(kernel, config))))
    except mappings.BROKEN:
        if compared:
            raise
        return configure(kernel, config, seed=seed)
    return Configured(kernel, config, words, found, time.perf_counter() - began, cached)


def _entries(kernel: GridKernel, config: MachineConfig) -> tuple[dict[str, ArrayEntry], dict[str, int]]:
    """A kernel's arrays by name, and the numbers of its scalars in a launch."""
    arrays = {stream.name: stream.entry(config) for stream in kernel.streams}
    return arrays, {name: i for i, name in enumerate(kernel.scalars)}
