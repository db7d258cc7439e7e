"""The machine program of a group of a model's operators: how to run it, and what bounds each operator.

It is the same whether it comes from the compiler or from a directory (`heald.bundle`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cosim.models.cycle.grid import least_cycles
from cosim.session.bounds import array_cycles, macs
from hw import isa
from hw.config import ENGINES, PORTS, MachineConfig
from hw.fabric.bitstream import ArrayEntry
from sw.cgra.bounds import MII
from sw.cgra.launcher import UNIT
from sw.cgra.verify import verify
from sw.compile.memory import Allocation, Kind
from sw.compile.operands import Tiles
from sw.compile.program import Part
from sw.compile.repeat import Repeated
from sw.compile.stages import Compiled
from sw.dfg.graph import Graph
from sw.graph.network import Operator, View
from sw.ir.expression import Expr, evaluate
from sw.ir.intrinsics import KEEP
from sw.ir.program import For, Instruction, Program, Region
from sw.ir.walk import Body, executions, instructions, walk
from sw.kernels.configuration import Configured


@dataclass(frozen=True)
class KernelFacts:
    """A configuration of the CGRA, and where an independent decoder finds that it differs from its graph.

    `configured` is the compiler's result; None if the configuration was read from a directory.
    """

    name: str
    text: str
    words: tuple[int, ...]
    graph: Graph
    arrays: Mapping[str, ArrayEntry]
    scalars: tuple[str, ...]
    ii: int
    bound: MII
    depth: int
    proved_minimal: bool
    differences: tuple[str, ...]
    #: PE and step of every node of the graph.
    places: tuple[tuple[int, int], ...]
    configured: Configured | None = field(default=None, compare=False, repr=False)

    @property
    def verified(self) -> bool:
        """Whether the words implement the graph."""
        return not self.differences

    def as_dict(self) -> dict[str, Any]:
        """An entry of `ii` in the JSON of a run."""
        return {
            "name": self.name,
            "operations": len(self.graph.nodes),
            "ii": self.ii,
            **self.bound.as_dict(),
            "depth": self.depth,
            "words": len(self.words),
            "proved_minimal": self.proved_minimal,
            "verified": self.verified,
        }


@dataclass(frozen=True)
class OperatorFacts:
    """What is known about an operator before it runs.

    `macs` are the array's multiply-accumulates, and `array` is a lower bound of their cycles. `moved` holds
    bytes by memory port, each element of a tensor counted once. `grid` is a lower bound of the CGRA's cycles:
    the sum over all launches at the MII. `kernels` are indices of its configurations in the program. `loops`
    are the trip counts of the loops around its operations. `tile` has rows and columns of its tiles; it is
    empty if there are none.
    """

    name: str
    op: str
    nodes: tuple[str, ...]
    output: View
    macs: int
    array: int
    moved: Mapping[str, int]
    grid: int
    launches: int
    kernels: tuple[int, ...]
    loops: tuple[tuple[str, int], ...]
    tile: Mapping[str, int]

    def bounds(self, config: MachineConfig, bandwidth: Mapping[str, int]) -> dict[str, int]:
        """Lower bounds of its cycles by resource: array, ports, CGRA."""
        found = {"gemm": self.array, "cgra": self.grid}
        return found | {p: -(-b // bandwidth.get(p, config.port_bytes(p))) for p, b in self.moved.items()}


@dataclass(frozen=True)
class MachineProgram:
    """A program with its memory; `homes` is in the order in which `source` names its buffers t0, t1, ...

    `constants` are address and bytes of everything in memory before tensors are written.
    """

    config: MachineConfig
    operators: tuple[OperatorFacts, ...]
    kernels: tuple[KernelFacts, ...]
    homes: Mapping[str, Allocation]
    windows: tuple[tuple[int, int, bool, bool], ...]
    constants: tuple[tuple[int, np.ndarray], ...]
    programs: Mapping[int, list[int]]
    operator_of: Mapping[tuple[int, int], int]
    source: Program
    compiled: Compiled | None = field(default=None, compare=False, repr=False)

    def kept(self) -> dict[str, Allocation]:
        """Tensors that the program writes and that are not overwritten when it ends."""
        homes = list(self.homes.values())
        return {
            name: home
            for name, home in self.homes.items()
            if home.kind in (Kind.ACTIVATION, Kind.OUTPUT) and not any(_later(other, home) for other in homes)
        }


def _later(other: Allocation, home: Allocation) -> bool:
    """Whether `other` occupies memory of `home` after `home`'s live range."""
    apart = other.address >= home.address + home.size or home.address >= other.address + other.size
    return other.first > home.last and not apart


def machine_program(compiled: Compiled) -> MachineProgram:
    """The compiler's result in the form in which it is run."""
    homes = compiled.memory.homes
    kernels = _kernels(compiled)
    names = {f"t{i}": name for i, name in enumerate(homes)}
    launches = _launches(compiled, kernels)
    ports = _ports(compiled, names)
    facts = tuple(
        _facts(operator, homes, launches.get(number, _Launched()), ports.get(number, {}), number, compiled)
        for number, operator in enumerate(compiled.operators)
    )
    return MachineProgram(
        compiled.config,
        facts,
        kernels,
        homes,
        compiled.memory.windows,
        compiled.constants,
        compiled.programs,
        compiled.operator_of,
        compiled.source,
        compiled,
    )


def _kernels(compiled: Compiled) -> tuple[KernelFacts, ...]:
    """The distinct configurations."""
    made: dict[tuple[int, ...], KernelFacts] = {}
    for part in compiled.parts:
        for configured in part.configured:
            words = tuple(configured.words)
            if words not in made:
                made[words] = kernel_facts(
                    configured, f"k{len(made)}_{configured.kernel.name}", compiled.config
                )
    return tuple(made.values())


def kernel_facts(configured: Configured, name: str, config: MachineConfig) -> KernelFacts:
    """Facts about a configuration; its words are decoded and compared once more."""
    kernel = configured.kernel
    arrays = {stream.name: stream.entry(config) for stream in kernel.streams}
    return KernelFacts(
        name,
        kernel.text,
        tuple(configured.words),
        configured.graph,
        arrays,
        kernel.scalars,
        configured.ii,
        configured.found.bound,
        configured.depth,
        configured.found.proved_minimal,
        configured.differences,
        tuple(configured.mapping.places[node.id] for node in configured.graph.nodes),
        configured,
    )


def decoded(
    graph: Graph,
    words: Sequence[int],
    arrays: Mapping[str, ArrayEntry],
    scalars: Sequence[str],
    places: Sequence[Sequence[int]],
    config: MachineConfig,
) -> tuple[str, ...]:
    """Where the words of a configuration differ from its graph, according to the independent decoder.

    `places` are PE and step of every node, in the graph's order.
    """
    if config.cgra is None:
        return (f"machine {config.name!r} has no CGRA",)
    numbers = {name: i for i, name in enumerate(scalars)}
    at = {node.id: (pe, step) for node, (pe, step) in zip(graph.nodes, places, strict=True)}
    return tuple(verify(graph, words, config.cgra, at, arrays=arrays, scalars=numbers))


def executed(
    source: Program, homes: Mapping[str, Allocation], kernels: Sequence[KernelFacts]
) -> Iterator[tuple[Instruction, dict[str, int], int]]:
    """The GEMMs and launches that a program executes, in order, with their operands.

    The third item is the index of the configuration that the CGRA then holds, or -1.
    """
    numbers = {k.words: n for n, k in enumerate(kernels)}
    held: dict[str, int] = {}
    for number, home in enumerate(homes.values()):
        constant = home.tensor.constant
        if constant is not None and constant.dtype == np.int32 and constant.ndim == 1:
            words = tuple(np.ascontiguousarray(constant).view(np.uint32).tolist())
            held |= {f"t{number}": numbers[words]} if words in numbers else {}

    def brought(i: Instruction) -> int | None:
        region = i.reads[0] if i.name == "load_c" and i.reads else None
        return held.get(region.buffer) if isinstance(region, Region) else None

    places: dict[int, int] = {}
    current, values = -1, dict[str, int]()
    wanted = ("gemm", "gemm_acc", "cgra")
    for i, _ in executions(source.body, values, lambda i: i.name in wanted or brought(i) is not None):
        operands = {n: evaluate(v, values) for n, v in i.operands if isinstance(v, Expr)}
        loaded = brought(i)
        if loaded is not None:
            places[operands["target"] // UNIT] = loaded
            continue
        if i.name == "cgra" and operands["bitstream"] != KEEP:
            current = places[operands["bitstream"]]
        yield i, operands, current


@dataclass
class _Launched:
    """The launches of an operator with any iterations: number, lower bound of cycles, configurations."""

    count: int = 0
    cycles: int = 0
    kernels: set[int] = field(default_factory=set)


def _launches(compiled: Compiled, kernels: Sequence[KernelFacts]) -> dict[int, _Launched]:
    found: dict[int, _Launched] = {}
    for i, operands, current in executed(compiled.source, compiled.memory.homes, kernels):
        if i.name == "cgra":
            launched = found.setdefault(compiled.labels[i.label], _Launched())
            launched.kernels.add(current)
            launched.count += operands["iterations"] > 0
            if operands["iterations"] > 0:
                kernel, fabric = kernels[current], compiled.config.cgra
                steps = (operands["iterations"] - 1) * kernel.bound.mii + min(kernel.depth, kernel.bound.mii)
                loads = operands["bitstream"] != KEEP
                assert fabric is not None
                launched.cycles += least_cycles(kernel.words, fabric, steps, loads=loads)
    return found


def _ports(compiled: Compiled, names: Mapping[str, str]) -> dict[int, dict[str, set[str]]]:
    """Tensors by operator and engine; products have the key `gemm` without tensors."""
    found: dict[int, dict[str, set[str]]] = {}
    for i in instructions(compiled.source):
        spec = isa.INSTRUCTIONS.get(i.name)
        if spec is None or spec.engine not in ENGINES or i.label not in compiled.labels:
            continue
        tensors = found.setdefault(compiled.labels[i.label], {}).setdefault(spec.engine, set())
        accesses = i.writes if spec.engine == "store" else i.reads
        # A store's first region is what it stores; the others are what it overwrites.
        first = accesses[0] if accesses else None
        if isinstance(first, Region) and first.buffer in names:
            tensors.add(names[first.buffer])
    return found


def _facts(
    operator: Operator | Repeated,
    homes: Mapping[str, Allocation],
    launched: _Launched,
    engines: Mapping[str, set[str]],
    number: int,
    compiled: Compiled,
) -> OperatorFacts:
    views = (*operator.inputs, operator.output)

    def size(tensor: str) -> int:
        # Repeated elements count once.
        steps = [zip(v.shape, v.strides, strict=True) for v in views if v.tensor == tensor]
        found = [math.prod(n for n, stride in own if stride) for own in steps]
        home = homes[tensor]
        return min(max(found, default=home.tensor.elements), home.tensor.elements) * home.itemsize

    moved = {p: sum(size(t) for t in sorted(engines[p])) for p in PORTS if engines.get(p)}
    return OperatorFacts(
        operator.name,
        operator.op,
        operator.nodes,
        operator.output,
        macs(operator) if "gemm" in engines else 0,
        array_cycles(operator, compiled.config) if "gemm" in engines else 0,
        moved,
        launched.cycles,
        launched.count,
        tuple(sorted(launched.kernels)),
        _loops(compiled, number),
        _tile(compiled.parts[number]),
    )


def _tile(part: Part) -> dict[str, int]:
    """Tile sizes of an operator, and the sizes of the whole."""
    tiles = getattr(part, "tiles", None)
    if not isinstance(tiles, Tiles):
        return {}
    names = ("rows", "columns", "width", "whole_rows", "whole_columns")
    return {name: getattr(tiles, name) for name in names}


def _loops(compiled: Compiled, number: int) -> tuple[tuple[str, int], ...]:
    """The deepest loop nest around an operator's instructions, outermost first, with trip counts.

    Bounds that depend on other loops are evaluated in the first iteration.
    """
    best: Body = ()
    for s, around in walk(compiled.source.body):
        if isinstance(s, Instruction) and compiled.labels.get(s.label) == number:
            best = max(best, tuple(x for x in around if isinstance(x, For)), key=len)
    values: dict[str, int] = {}
    found = []
    for loop in best:
        assert isinstance(loop, For)
        steps = range(*(evaluate(x, values) for x in (loop.start, loop.stop, loop.step)))
        values[loop.variable] = steps.start
        found.append((loop.variable, len(steps)))
    return tuple(found)
